"""`replaypack explain`: the verdict, the nearest calls, and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import CANARY, environment, is_safe, run, run_process


def call(tmp_path: Path, value: Any) -> str:
    path = tmp_path / "call.json"
    path.write_text(json.dumps(value))
    return str(path)


def test_a_call_that_is_answered(archive: str, tmp_path: Path) -> None:
    locator = f"{archive}#team/mixed"
    result = run_process("explain", locator, "--request", call(tmp_path, {"q": "weather"}), "--kind", "tool")
    assert (result.code, result.err) == (0, "")
    assert "is answered: recorded once, 0 of them played" in result.out
    again = run("explain", locator, "-r", call(tmp_path, {"kind": "tool", "identity": {"q": "weather"}}), "--json")
    assert (again.code, again.json["answered"], again.json["reason"]) == (0, True, "answered")
    done = run("explain", locator, "-r", call(tmp_path, {"q": "weather"}), "--kind", "tool", "--played", "1", "--json")
    assert (done.code, done.json["reason"]) == (1, "exhausted")


def test_a_miss_shows_the_nearest_calls(archive: str, tmp_path: Path) -> None:
    options = ["explain", f"{archive}#team/mixed", "-r", call(tmp_path, {"q": "weather!"}), "--kind", "tool"]
    result = run(*options, "--name", "search")
    assert result.code == 1
    assert '`/q` differs at character 7: "weather" → "weather!"' in result.out
    assert is_safe(result.out)
    document = run(*options, "--json", "--count", "1").json
    assert [near["seq"] for near in document["nearest"]] == [0]
    assert document["nearest"][0]["differences"] == [
        {"pointer": "/q", "what": "changed", "old": "weather", "new": "weather!", "at": 7}
    ]


def test_recorded_text_and_arguments_do_not_act_on_a_terminal(archive: str, tmp_path: Path) -> None:
    given = call(tmp_path, {"kind": "tool", "identity": CANARY + "x", "name": CANARY, "scope": CANARY})
    result = run("explain", f"{archive}#team/mixed", "-r", given)
    assert result.code == 1
    assert is_safe(result.out)
    assert "differs at character" in result.out


def test_the_request_may_come_through_a_pipe(archive: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "replaypack", "explain", f"{archive}#team/mixed", "-r", "-", "--kind", "tool"],
        input=b'"nothing"',
        capture_output=True,
        env=environment(),
    )
    # It was heard: a record with this identity is there, which has nothing to answer with.
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"(no response)" in done.stdout


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("{", ["--kind", "tool"], "is not JSON"),
        ('{"a": 1, "a": 2}', ["--kind", "tool"], "'a' twice"),
        ('{"$float": "nan"}', ["--kind", "tool"], "the identity has no key"),
        ('{"q": 1}', [], "the kind of the call is not known"),
        ('{"kind": 1, "identity": 1}', [], "kind is int, not text"),
        (None, ["--kind", "tool"], "cannot be read"),
    ],
)
def test_mistakes(archive: str, tmp_path: Path, text: str | None, options: list[str], says: str) -> None:
    path = tmp_path / "call.json"
    if text is not None:
        path.write_text(text)
    result = run("explain", f"{archive}#team/mixed", "--request", str(path), *options)
    assert (result.code, result.out) == (2, "")
    assert says in result.err
