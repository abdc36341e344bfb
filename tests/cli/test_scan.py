"""``replaypack scan``."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaypack import Archive
from tests.cli.conftest import run, run_on_terminal, without_pack


@pytest.fixture
def url(tmp_path: Path) -> str:
    archive = Archive(tmp_path / "a")
    for name, response in (
        ("clean", {"max_tokens": 5}),
        ("dirty", {"api_key": "tell-nobody-1234", "note": "zxcvbn-99"}),
    ):
        with archive.recorder(name, redact=None) as recorder:
            recorder.append(kind="tool", identity=1, response=response)
    return str(tmp_path / "a")


def test_exit_codes_and_output(url: str) -> None:
    result = run("scan", f"{url}#clean")
    assert (result.code, result.out) == (0, "no secrets found: 1 recording\n")
    result = run("scan", url)
    assert result.code == 1
    assert result.out.splitlines()[0] == "dirty\t0\tresponse\t/api_key\tname\ttel… (16 characters)"
    assert "nobody" not in result.out + result.err


def test_values_of_the_environment_are_searched_for(url: str) -> None:
    result = run("scan", f"{url}#dirty@2", "--secret-env", "MINE", "--json", env={"MINE": "zxcvbn-99"})
    assert result.code == 1
    assert [finding["rule"] for finding in result.json["findings"]] == ["name", "known"]
    assert "zxcvbn-99" not in result.out


@pytest.mark.parametrize("target", ["nowhere", "{url}#missing"])
def test_what_cannot_be_scanned(url: str, target: str, tmp_path: Path) -> None:
    result = run("scan", target.format(url=url))
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert run("scan", url, "--secret-env", "NOT_SET_ANYWHERE").code == 2


def test_a_damaged_archive_cannot_be_scanned(url: str) -> None:
    for pack in Path(url).rglob("*.rpk"):
        pack.write_bytes(b"\0" * pack.stat().st_size)
    result = run("scan", f"{url}#dirty", "--json")
    assert result.code == 2
    assert result.json["error"]["code"] == "format.corrupted"


def test_a_damaged_recording_is_named_and_the_others_are_scanned(url: str) -> None:
    archive = Archive(url)
    for name in ("x/1", "x/2"):
        with archive.recorder(name, redact=None) as recorder:
            recorder.append(kind="tool", identity=name, response={"password": f"open-{name}-sesame"})
    gone = without_pack(archive, "x/1")
    result = run("scan", url)
    assert result.code == 2
    assert [line.split("\t")[0] for line in result.out.splitlines()] == [
        "dirty",
        "x/2",
        "2 likely secrets in 3 recordings, 1 could not be scanned",
    ]
    hint = f"see what `verify` says of {url}#x/1, or `recover` it into another place"
    assert result.err == f"error: x/1: reading a part of {gone}: no such object ({hint})\n"
    assert f"no such object ({hint})" in run_on_terminal("scan", url, columns=1000).out
    result = run("scan", url, "--json")
    assert (result.code, result.err) == (2, "")
    assert [finding["recording"] for finding in result.json["findings"]] == ["dirty", "x/2"]
    assert result.json["recordings"] == 3
    assert "error" not in result.json
    [failed] = result.json["failed"]
    assert failed["name"] == "x/1"
    assert (failed["error"]["code"], failed["error"]["hint"]) == ("storage.missing", hint)
    assert set(failed["error"]) == {"code", "message", "hint", "url", "operation"}
    # One that is named ends it.
    result = run("scan", f"{url}#x/1", "--json")
    assert (result.code, result.json["findings"], result.json["failed"]) == (2, [], [])
    assert result.json["error"]["message"] == f"x/1: reading a part of {gone}: no such object"
    assert result.err == f"error: x/1: reading a part of {gone}: no such object ({hint})\n"


def test_nothing_found_is_no_answer_where_not_everything_was_looked_at(url: str) -> None:
    archive = Archive(url)
    for manifest in (Path(url) / "recordings" / "dirty").iterdir():
        manifest.write_bytes(b"no manifest")
    result = run("scan", url)
    assert (result.code, result.out) == (2, "no secrets found: 1 recording, 1 could not be scanned\n")
    assert result.err.startswith("error: dirty: recordings/dirty/00000002.json: ")
    without_pack(archive, "clean")
    result = run("scan", url, "--json")
    assert (result.code, result.json["recordings"], len(result.json["failed"])) == (2, 0, 2)
