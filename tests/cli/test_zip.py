"""``replaypack zip`` and ``unzip``."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.format.names import pack_key_of
from tests.support.servers import Server, static_server

from .conftest import run

__all__ = ["static_server"]


def test_there_and_back(archive: str, tmp_path: Path) -> None:
    path, back = str(tmp_path / "run.zip"), str(tmp_path / "back")
    done = run("zip", f"{archive}#team/mixed", "-o", path)
    assert done.code == 0
    assert "team/mixed@1: copied, 7 records" in done.out
    assert run("ls", path, "--json").json[0]["name"] == "team/mixed"
    assert run("verify", path).code == 0
    assert run("show", f"{path}#team/mixed", "--json").json["records"] == 7
    out = run("unzip", path, back, "--json")
    assert out.json["recordings"][0]["state"] == "copied"
    before = run("ls", archive, "--prefix", "team/mixed", "--json").json
    after = run("ls", back, "--json").json
    assert after[0]["content_digest"] == before[0]["content_digest"]
    assert "there already" in run("unzip", path, back).out
    assert run("purge", f"{back}#team/mixed", "--records", "0", "--reason", "r", "--keep-shared", "--yes").code == 0
    refused = run("unzip", path, back)
    assert refused.code == 1
    assert "--if-exists replace" in refused.err
    assert run("unzip", path, back, "--if-exists", "replace").code == 0
    assert run("cat", f"{back}#team/mixed", "0", "--response").code == 0


def test_what_goes_wrong_is_said(archive: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    assert run("zip", f"{archive}#no/such", "-o", str(path)).code == 1
    assert run("zip", f"{archive}#team/mixed").code == 2
    assert run("zip", archive, f"{archive}#team/mixed", "-o", str(path)).code == 2
    path.write_text("mine")
    taken = run("zip", f"{archive}#team/mixed", "-o", str(path))
    assert (taken.code, f"{path} is there already (--overwrite replaces it" in taken.err) == (2, True)
    assert path.read_text() == "mine"
    assert run("zip", f"{archive}#team/mixed", "-o", str(path), "--overwrite").code == 0
    none = run("unzip", str(tmp_path / "none.zip"), str(tmp_path / "x"))
    assert none.code in (1, 2)
    assert not (tmp_path / "x").exists()
    (tmp_path / "no.zip").write_text("text")
    broken = run("unzip", str(tmp_path / "no.zip"), str(tmp_path / "x"))
    assert broken.code == 1
    assert "no zip file" in broken.err


def test_of_what_is_damaged_there_is_no_file(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "runs")
    for number, name in enumerate("abc"):
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", identity=number, response=number)
    target, before = tmp_path / "runs.zip", set(tmp_path.iterdir())
    for name in "ac":
        [pack] = archive.open(name).index.packs
        (tmp_path / "runs" / pack_key_of(pack.digest)).unlink()
    result = run("zip", archive.url, "-o", str(target))
    assert (result.code, result.out) == (1, "")
    assert "no such object (cannot be copied: 'a', 'c'; see what `verify` says" in result.err
    result = run("export", f"{archive.url}#a", str(tmp_path / "a.jsonl"))
    assert (result.code, result.out) == (1, "")
    assert set(tmp_path.iterdir()) == before
    assert run("zip", f"{archive.url}#b", "-o", str(target)).code == 0


def test_unzip_names_what_is_damaged_and_goes_on(tmp_path: Path) -> None:
    """A zip file that another tool made of a damaged archive."""
    archive = Archive(tmp_path / "runs")
    for name in "ab":
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", identity=name, response=name)
    [pack] = archive.open("a").index.packs
    path = tmp_path / "runs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for item in sorted((tmp_path / "runs").rglob("*")):
            if item.is_file() and item.stem != pack.digest:
                file.write(item, item.relative_to(tmp_path / "runs").as_posix())
    result = run("unzip", str(path), str(tmp_path / "back"))
    assert result.code == 1
    assert result.out.startswith("a: failed: ")
    assert "\nb@1: copied, 1 record\n" in result.out
    assert list(Archive(tmp_path / "back").recordings()) == ["b"]


def test_what_is_left_out_is_said_by_the_exit_code(tmp_path: Path) -> None:
    """A zip file that another tool made of an archive where somebody was recording."""
    with Archive(tmp_path / "runs") as archive, archive.recorder("done") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
    with archive.recorder("open") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
        recorder.flush()
        path = tmp_path / "runs.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
            for item in sorted((tmp_path / "runs").rglob("*")):
                if item.is_file() and "journal" not in item.parts:
                    file.write(item, item.relative_to(tmp_path / "runs").as_posix())
    done = run("unzip", str(path), str(tmp_path / "back"))
    assert done.code == 1
    assert "done@1: copied, 1 record\nopen: left out (it is still being recorded)\n" in done.out
    assert list(Archive(tmp_path / "back").recordings()) == ["done"]
    shown = run("unzip", str(path), str(tmp_path / "other"), "--json")
    assert (shown.code, [found["state"] for found in shown.json["recordings"]]) == (1, ["copied", "left out"])
    assert run("unzip", str(path), str(tmp_path / "third"), "done").code == 0


def test_a_zip_file_that_is_missing_is_said_to_be(static_server: Server, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    for url in (f"{static_server.url}/none.zip", str(tmp_path / "none.zip")):
        for command in (["ls", url], ["show", f"{url}#a"], ["unzip", url, str(tmp_path / "x")]):
            done = run(*command)
            assert done.code == 1
            assert f"opening {url}: there is no such zip file" in done.err
            assert "get_suffix" not in done.err
    assert not (tmp_path / "x").exists()
