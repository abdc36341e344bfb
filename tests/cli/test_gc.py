"""``replaypack gc``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replaypack import Archive

from .conftest import run


@pytest.fixture
def url(tmp_path: Path) -> str:
    archive = Archive(tmp_path / "archive")
    for name in ("kept", "gone"):
        for _ in range(2):
            with archive.recorder(name, if_exists="replace") as recorder:
                recorder.append(kind="tool", identity={"n": name}, response="x" * 5000)
    archive.delete("gone")
    return archive.url


def test_says_first_and_deletes_when_told_to(url: str) -> None:
    result = run("gc", url, "--grace", "0", "--keep-last", "1")
    assert (result.code, result.err) == (0, "")
    assert "would delete 6 objects" in result.out
    assert "--apply deletes" in result.out
    assert len(list(Path(url).glob("packs/*/*"))) == 4
    result = run("gc", url, "--grace", "0", "--keep-last", "1", "--apply")
    assert (result.code, result.err) == (0, "")
    assert "deleted 6 objects" in result.out
    assert "1 pack, " in result.out
    assert len(list(Path(url).glob("packs/*/*"))) == 1
    assert run("verify", url).code == 0
    again = run("gc", url, "--grace", "0", "--keep-last", "1", "--apply")
    assert "deleted 0 objects" in again.out


def test_waits_for_the_grace_period(url: str) -> None:
    (Path(url) / "mine.txt").write_text("x")
    result = run("gc", url)
    assert "if --apply marks them now" in result.out
    result = run("gc", url, "--apply")
    assert "2 objects, " in result.out
    assert "unreferenced too short a time" in result.out
    assert "1 object that replaypack did not make, left alone" in result.out
    assert len(list(Path(url).glob("packs/*/*"))) == 4


def test_json(url: str) -> None:
    done = json.loads(run("gc", url, "--json", "--apply", "--keep-within", "90d", "--grace", "1s").out)
    assert done["applied"] is True
    assert done["removed"]["claims"]["objects"] == 2
    assert done["removed"]["packs"] == {"objects": 0, "bytes": 0}
    assert done["waiting"]["objects"] == 2
    assert done["next"].endswith("+00:00")
    assert done["unreadable"] == []


def test_a_manifest_that_cannot_be_read(url: str) -> None:
    (Path(url) / "recordings/kept/00000002.json").write_text("{}")
    result = run("gc", url, "--apply", "--grace", "0")
    assert result.code == 1
    assert "recordings/kept/00000002.json" in result.out
    assert "no pack was deleted" in result.out
    assert len(list(Path(url).glob("packs/*/*"))) == 4
    assert json.loads(run("gc", url, "--json").out)["unreadable"][0]["key"] == "recordings/kept/00000002.json"


@pytest.mark.parametrize("text", ["90", "d", "1y", "-1d", "1.5d", ""])
def test_times_that_are_none(url: str, text: str) -> None:
    result = run("gc", url, f"--grace={text}")
    assert result.code == 2
    assert "is no time" in result.err


def test_no_archive(tmp_path: Path) -> None:
    assert run("gc", str(tmp_path / "nothing"), "--apply").code == 1
    assert not (tmp_path / "nothing").exists()
