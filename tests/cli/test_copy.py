"""``replaypack copy``."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.format.names import pack_key_of

from .conftest import run, run_on_terminal


@pytest.fixture
def url(tmp_path: Path) -> str:
    archive = Archive(tmp_path / "archive")
    for name, count in (("nightly/1", 4), ("nightly/2", 5), ("other", 1)):
        with archive.recorder(name) as recorder:
            for number in range(count):
                recorder.append(kind="tool", name="f", identity={"n": number}, response="x" * 5000)
    return archive.url


def test_copy(url: str, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    result = run("copy", url, there)
    assert (result.code, result.err) == (0, "")
    *lines, last = result.out.splitlines()
    assert lines == [
        "nightly/1@1: copied, 4 records",
        "nightly/2@1: copied, 5 records",
        "other@1: copied, 1 record",
    ]
    assert last.startswith("3 packs (")
    assert last.endswith(" sent")
    assert run("verify", there).code == 0
    again = run("copy", url, there)
    assert again.out.splitlines() == [
        "nightly/1@1: there already",
        "nightly/2@1: there already",
        "other@1: there already",
        "0 packs (0 B) sent",
    ]
    assert run("log", f"{there}#other").out.count("copy") == 1


def test_names_and_locators(url: str, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    found = run("copy", url, there, "nightly/*", "--json").json
    assert [item["name"] for item in found["recordings"]] == ["nightly/1", "nightly/2"]
    assert (found["packs"], found["reused"], found["repacked"]) == (2, 0, 0)
    result = run("copy", f"{url}#other@2", f"{there}#mine/x")
    assert result.out.splitlines()[0] == "mine/x@1 (from other): copied, 1 record"
    assert sorted(Archive(there).recordings()) == ["mine/x", "nightly/1", "nightly/2"]
    for arguments, message in (
        ((f"{url}#other", there, "nightly/1"), "no other names"),
        ((url, f"{there}#x@2"), "cannot name one"),
        ((url, f"{there}#x"), "SRC must name one"),
        ((url, there, "z*"), "matches"),
        ((url, there, "zzz"), "no recording"),
        ((str(tmp_path / "none"), there), "no archive"),
    ):
        result = run("copy", *arguments)
        assert result.code != 0
        assert message in result.err
    assert run("copy", url, there, "zzz").code == 1
    assert run("copy", url, f"{there}#x").code == 2


def test_another_recording_of_that_name(url: str, tmp_path: Path) -> None:
    there = Archive(tmp_path / "there")
    with there.recorder("other") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
    result = run("copy", url, there.url)
    assert result.code == 1
    assert "--if-exists replace" in result.err
    assert list(there.recordings()) == ["other"]
    assert run("copy", url, there.url, "--if-exists", "replace").code == 0
    assert len(there.open("other")) == 1


def test_what_is_still_recorded_is_left_out(url: str, tmp_path: Path) -> None:
    recorder = Archive(url).recorder("open")
    result = run("copy", url, str(tmp_path / "there"))
    recorder.seal()
    assert result.code == 1
    assert "open: left out (it is still being recorded)" in result.out


def damage(url: str, name: str, *, gone: bool = False) -> tuple[Path, bytes]:
    """Damage a pack of a recording, or delete it; return where it is, and what it was."""
    [pack] = Archive(url).open(name).index.packs
    path = Path(url, pack_key_of(pack.digest))
    data = path.read_bytes()
    path.write_bytes(data[:-50] + bytes([data[-50] ^ 1]) + data[-49:])
    if gone:
        path.unlink()
    return path, data


def test_what_is_damaged_is_named_and_the_others_arrive(url: str, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    flipped, gone = damage(url, "nightly/1"), damage(url, "other", gone=True)
    result = run("copy", url, there, "--jobs", "1")
    assert (result.code, result.err) == (1, "")
    first, second, third, last = result.out.splitlines()
    assert first.startswith("nightly/1: failed: ")
    assert flipped[0].name in first
    assert first.endswith("(see what `verify` says of the source, or `recover` it into another place)")
    assert second == "nightly/2@1: copied, 5 records"
    assert third.startswith("other: failed: ")
    assert gone[0].name in third
    assert last.startswith("1 pack (")
    assert list(Archive(there).recordings()) == ["nightly/2"]
    assert run("verify", there).code == 0
    result = run("copy", url, there, "--json")
    assert result.code == 1
    found = {item["name"]: (item["state"], item["revision"], item["error"]) for item in result.json["recordings"]}
    assert found["nightly/2"] == ("there", 1, None)
    assert found["nightly/1"][:2] == found["other"][:2] == ("failed", None)
    assert (found["nightly/1"][2]["code"], found["nightly/1"][2]["reason"]) == ("format.corrupted", "corrupted")
    assert found["other"][2]["code"] == "storage.missing"
    assert set(found["other"][2]) == {"code", "message", "hint", "url", "operation"}
    # One that is named is no other case.
    result = run("copy", f"{url}#other", f"{there}#mine")
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith("mine (from other): failed: ")
    for path, data in (flipped, gone):
        path.write_bytes(data)
    result = run("copy", url, there)
    assert result.code == 0
    assert [line.split(": ")[1] for line in result.out.splitlines()[:-1]] == [
        "copied, 4 records",
        "there already",
        "copied, 1 record",
    ]


def test_responses_only(url: str, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    assert run("copy", url, there, "other", "--responses-only").code == 0
    assert "withheld" in run("cat", f"{there}#other", "0", "--request").err
    assert run("verify", there).code == 0


def test_progress(url: str, tmp_path: Path) -> None:
    result = run_on_terminal("copy", url, str(tmp_path / "there"))
    assert result.code == 0
    assert "3 packs" in result.out


def test_progress_where_one_is_damaged(url: str, tmp_path: Path) -> None:
    damage(url, "other")
    result = run_on_terminal("copy", url, str(tmp_path / "there"))
    assert result.code == 1
    assert "other: failed" in result.out
    assert "2 packs" in result.out
