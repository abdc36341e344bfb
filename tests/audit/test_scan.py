"""`scan` finds what redaction would have removed, says where, and shows nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.audit import Finding, scan
from replaypack.errors import UsageError
from tests.policies.canaries import KNOWN, NAMED, calls


def found(archive: Archive, **options: object) -> list[Finding]:
    return list(scan(archive.open("r"), **options))  # type: ignore[arg-type]


def test_every_canary_of_an_unredacted_recording_is_found_and_masked(tmp_path: Path) -> None:
    archive = Archive(tmp_path, {"replaypack": {"fsync": False}})
    everything = list(calls())
    with archive.recorder("r", redact=None, metadata={"password": NAMED}) as recorder:
        for call in everything:
            recorder.append(**call)
    findings = found(archive, secrets=KNOWN)
    assert {finding.seq for finding in findings} == {None, *range(len(everything))}
    shown = json.dumps([finding._asdict() for finding in findings], ensure_ascii=False) + str([*map(str, findings)])
    for secret in (*KNOWN, NAMED):
        assert secret not in shown
        assert json.dumps(secret)[1:-1] not in shown


def test_nothing_is_found_in_a_redacted_recording(tmp_path: Path) -> None:
    archive = Archive(tmp_path, {"replaypack": {"fsync": False}})
    with archive.recorder("r", secrets=KNOWN, metadata={"password": NAMED}) as recorder:
        for call in calls():
            recorder.append(**call)
    assert found(archive, secrets=KNOWN) == []


def test_it_says_where(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    token = "hf_" + "aB3" * 12
    with archive.recorder("r", redact=None) as recorder:
        recorder.append(kind="tool", identity={"n": 1, "max_tokens": 5, "page_token": "x" * 30}, response="fine")
        recorder.append(
            kind="http",
            identity={"url": "/x", "headers": [["Authorization", "Bearer abcdefghijkl"]]},
            response={"body": f"see {token}", "a/b": {"bot_key": "q8Zr1LmX0vT5bN2kP9sD"}},
        )
    assert found(archive) == [
        Finding("r", 1, "request", "/headers/0/1", "name", "Bea… (19 characters)"),
        Finding("r", 1, "response", "/body", "token.huggingface", "hf_… (39 characters)"),
        Finding("r", 1, "response", "/a~1b/bot_key", "entropy", "q8Z… (20 characters)"),
    ]


def test_the_text_of_a_host_s_key_is_no_guess(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    key, token = "07705eb2e4c605f80e39a12f2be34ba9", "hf_" + "aB3" * 12
    with archive.recorder("r", redact=None) as recorder:
        recorder.append(kind="tool", key=key, response=1, attributes={"key": key})
        recorder.append(kind="tool", key="another", response=1, attributes={"key": key})
        recorder.append(kind="tool", key=token, response=1, attributes={"key": token})
    assert [(finding.seq, finding.rule) for finding in found(archive)] == [(1, "entropy"), (2, "token.huggingface")]


def test_repeated_clean_payloads_are_read_once_and_dirty_ones_reported_each_time(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("r", redact=None) as recorder:
        for _ in range(3):
            recorder.append(kind="tool", identity={"a": 1}, response={"api_key": "abcdefghijk"})
    assert [(finding.seq, finding.pointer) for finding in found(archive)] == [(n, "/api_key") for n in range(3)]


def test_a_secret_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with Archive(tmp_path).recorder("r") as recorder:
        recorder.append(kind="tool", identity=1, response=2)
    with pytest.raises(UsageError, match="at least 6"):
        found(Archive(tmp_path), secrets=["abc"])
