"""``replaypack export --to``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.audit.sanitise import STATEMENT

from .conftest import run


@pytest.fixture
def url(tmp_path: Path) -> str:
    archive = Archive(tmp_path / "archive")
    with archive.recorder("r", redact=None) as recorder:
        for number in range(3):
            recorder.append(
                kind="tool",
                name="f",
                identity={"password": "p-secret", "n": number},
                response={"text": f"my-known-secret {number}", "ok": True},
            )
        recorder.append(kind="tool", key="host", response=1)
    return archive.url


def test_a_sanitised_recording(url: str, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    arguments = ("export", f"{url}#r", "--to", f"{tmp_path / 'out'}#clean", "--secret-env", "MINE", "--report")
    result = run(*arguments, str(report), env={"MINE": "my-known-secret"})
    assert (result.code, result.err) == (0, "")
    made = Archive(tmp_path / "out").open("clean")
    first, second, third, fourth = result.out.splitlines()
    assert first.endswith(f"#clean@{made.manifest.revision}")
    assert second == f"content digest {made.content_digest}, derived from {Archive(url).open('r').content_digest}"
    assert third == "removed from 3 records: known 3, name 3"
    assert fourth == "note: 1 key of the host stay as they are, as digests"
    assert made.record(0).request == {"password": "__redacted__", "n": 0}
    removals = [json.loads(line) for line in report.read_text().splitlines()]
    assert removals[0] == {"seq": 0, "part": "request", "pointer": "/password", "rule": "name"}
    assert len(removals) == 6
    assert made.metadata[STATEMENT]["removed"] == {"known": 3, "name": 3}
    assert run("verify", f"{tmp_path / 'out'}#clean").code == 0
    again = run(*arguments, str(report), env={"MINE": "my-known-secret"})
    assert (again.code, "is there already" in again.err) == (1, True)


def test_allowing_and_policies(url: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    rules = {"names": ["text"], "keep": [], "prefixes": []}
    policy.write_text(json.dumps({"name": "x-mine", "version": 1, "rules": rules}))
    out = str(tmp_path / "out")
    result = run(
        "export", f"{url}#r", "--to", f"{out}#a", "--redact", str(policy), "--allow", "/response/text", "--json"
    )
    assert result.json["removed"]["allow"] > 0
    assert result.json["redaction"]["name"] == "x-mine"
    assert Archive(out).open("a").record(0).response == {"text": "__redacted__", "__redacted__": "__redacted__"}
    assert run("export", f"{url}#r", "--to", f"{out}#b", "--redact", "none", "--json").json["changed"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.jsonl", "--to", "out#r"], "not a file"),
        ([], "needs a FILE"),
        (["x.jsonl", "--allow", "/a"], "--to URL#name"),
        (["--to", "out#r@2"], "leave out the @revision"),
        (["--to", "out#r", "--redact", "missing.json"], "--redact missing.json"),
        (["--to", "out#r", "--allow", "a"], "JSON pointer"),
        (["--to", "out#r", "--secret-env", "NOT_THERE_AT_ALL"], "is not set, or empty"),
    ],
)
def test_refusals(url: str, arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("export", f"{url}#r", *arguments)
    assert (result.code, said in result.err) == (2, True), result.err
