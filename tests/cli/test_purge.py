"""``replaypack purge``."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaypack import Archive

from .conftest import run, run_on_terminal


@pytest.fixture
def url(tmp_path: Path) -> str:
    archive = Archive(tmp_path / "archive")
    with archive.recorder("r") as recorder:
        for number in range(6):
            recorder.append(kind="tool", name="f", identity={"number": number}, response=f"answer {number}")
        recorder.append(kind="tool", name="f", identity={"number": 0}, response="again")
    return archive.url


def test_purge(url: str) -> None:
    digest = Archive(url).open("r").content_digest
    planned = run("purge", f"{url}#r", "--records", "0, 3-4", "--reason", "a customer asked", "--dry-run")
    assert (planned.code, planned.err) == (0, "")
    assert planned.out.splitlines()[0] == f"r@2: 3 records (0, 3-4) to be purged, content digest {digest}"
    assert "older revisions to be deleted: r@2" in planned.out
    assert Archive(url).open("r").tombstones == []
    result = run("purge", f"{url}#r", "--records", "0,3-4", "--reason", "a customer asked", "--yes")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == f"r@3: 3 records (0, 3-4) purged, content digest {digest}"
    assert lines[1:3] == ["recordings with a new revision: r", "older revisions deleted: r@2"]
    assert lines[4] == "note: a payload of theirs stands in 6 of r as well, by itself"
    assert run("verify", f"{url}#r").out == "sound: 1 recording (level full), 3 purged\n"
    assert run("verify", url, "--json").json["purged"] == 3
    shown = run("show", f"{url}#r").out
    assert "purged\t3 records (0, 3-4), 20" in shown
    assert ": a customer asked" in shown
    assert run("show", f"{url}#r", "--json").json["tombstones"][0]["records"] == [0, 3, 4]
    assert run("ls", url, "--json").json[0]["purged"] == 3
    assert run("log", f"{url}#r", "--json").json[-1]["purged"] == 3
    gone = run("cat", f"{url}#r", "3")
    assert gone.code == 1
    assert "record 3 of" in gone.err
    assert "was purged on" in gone.err
    assert len(run("show", f"{url}#r", "--records", "--json").json) == 4
    again = run("purge", f"{url}#r", "--records", "3", "--reason", "a customer asked", "--yes", "--json").json
    assert (again["records"], again["packs"], again["applied"]) == ([], 0, True)


def test_it_asks(url: str) -> None:
    refused = run("purge", f"{url}#r", "--records", "1", "--reason", "asked")
    assert refused.code == 2
    assert "--yes" in refused.err
    asked = run_on_terminal("purge", f"{url}#r", "--records", "1", "--reason", "asked", typed="n\n")
    assert asked.code == 1
    assert "for good?" in asked.out
    assert Archive(url).open("r").tombstones == []
    asked = run_on_terminal("purge", f"{url}#r", "--records", "1", "--reason", "asked", typed="y\n")
    assert asked.code == 0
    assert Archive(url).open("r").manifest.purged == 1
    assert "sealed, 1 purged" in run_on_terminal("ls", url).out


@pytest.mark.parametrize("records", ["", "x", "3-1", "1-99999999", "-1", "1,,2", "99"])
def test_numbers_that_are_none(url: str, records: str) -> None:
    assert run("purge", f"{url}#r", f"--records={records}", "--reason", "asked", "--yes").code == 2


def test_a_revision_is_refused(url: str) -> None:
    assert run("purge", f"{url}#r@2", "--records", "1", "--reason", "asked", "--yes").code == 2
    assert run("purge", f"{url}#r", "--records", "1", "--reason", "", "--yes").code == 2


def test_records_of_several_recordings(url: str) -> None:
    media = "the same text " * 600
    for name in ("a", "b"):
        with Archive(url).recorder(name, base="a" if name == "b" else None) as recorder:
            recorder.append(kind="tool", name="f", identity={"text": media}, response=name)
            recorder.append(kind="tool", name="f", identity={"of": name}, response=name)
    refused = run("purge", f"{url}#a", "--records", "0", "--reason", "asked", "--yes")
    assert refused.code == 2
    assert "1 other record takes bytes of what is to be purged: 0 of b" in refused.err
    assert "--records 0 --also b=0" in refused.err
    refused = run("purge", f"{url}#a", "--records", "0", "--reason", "asked", "--yes", "--json")
    assert refused.code == 2
    assert (refused.json["error"]["code"], refused.json["error"]["shared"]) == ("purge.shared", {"b": [0]})
    for wrong in ("b", "b=x", "=1"):
        assert run("purge", f"{url}#a", "--records", "0", "--also", wrong, "--reason", "asked", "--yes").code == 2
    result = run("purge", f"{url}#a", "--records", "0", "--also", "b=0", "--reason", "asked", "--yes")
    assert (result.code, result.err) == (0, "")
    assert "a@3: 1 record (0) purged" in result.out
    assert "1 record (0) purged, content digest" in result.out.partition("\nb@")[2]
    assert run("verify", url).out == "sound: 3 recordings (level full), 2 purged\n"
    again = run("purge", f"{url}#a", "--records", "0", "--also", "b=0", "--reason", "asked", "--yes", "--json").json
    assert [other["locator"] for other in again["others"]] == [f"{url}#b"]
