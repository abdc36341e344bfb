"""``replaypack zip`` and ``unzip``."""

from __future__ import annotations

from pathlib import Path

from .conftest import run


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


def test_what_goes_wrong_is_said(archive: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    assert run("zip", f"{archive}#no/such", "-o", str(path)).code == 1
    assert run("zip", f"{archive}#team/mixed").code == 2
    assert run("zip", archive, f"{archive}#team/mixed", "-o", str(path)).code == 2
    path.write_text("mine")
    taken = run("zip", f"{archive}#team/mixed", "-o", str(path))
    assert taken.code == 2 or taken.code == 1
    assert "already" in taken.err
    assert path.read_text() == "mine"
    assert run("zip", f"{archive}#team/mixed", "-o", str(path), "--overwrite").code == 0
    none = run("unzip", str(tmp_path / "none.zip"), str(tmp_path / "x"))
    assert none.code in (1, 2)
    assert not (tmp_path / "x").exists()
    (tmp_path / "no.zip").write_text("text")
    broken = run("unzip", str(tmp_path / "no.zip"), str(tmp_path / "x"))
    assert broken.code == 1
    assert "no zip file" in broken.err
