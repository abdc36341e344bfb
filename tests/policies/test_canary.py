"""No secret that is known at the start, or given away by its name, is in any byte that is written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.recover import recover
from replaypack.values import encode
from tests.policies.canaries import KNOWN, NAMED, calls, known_values, leaks, leaks_in, named_values

ROOT = Path(__file__).parents[2]


def test_the_search_finds_what_is_not_redacted(tmp_path: Path) -> None:
    groups = [*(known_values(secret) for secret in KNOWN), named_values(NAMED)]
    for form, value in (item for group in groups for item in group.items()):
        assert list(leaks_in(encode(value))), form
        assert list(leaks_in(encode(str(value)))) or b"\\x" in str(value).encode(), form
    with Archive(tmp_path / "a").recorder("r", redact=None) as recorder:
        recorder.append(**next(calls()))
        assert leaks(tmp_path / "a" / "journal")
    assert leaks(tmp_path / "a" / "packs")


def test_no_canary_is_written(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a", {"replaypack": {"fsync": False}})
    metadata = {"note": f"with {KNOWN[0]}", "api_key": NAMED, "list": [KNOWN[1]], KNOWN[2]: 1}
    recorder = archive.recorder("r", metadata=metadata, recorded_by=f"me {KNOWN[0]}", secrets=KNOWN)
    with recorder:
        for number, call in enumerate(calls()):
            recorder.append(**call)
            if number % 150 == 0:
                recorder.flush()
        assert not leaks(tmp_path)  # the journal and what is published so far
    assert not leaks(tmp_path)
    recording = archive.open("r")
    assert len(recording) == len(list(calls()))
    assert not list(archive.verify("r"))
    for record in recording.records():
        for role in ("request", "identity", "response"):
            assert not list(leaks_in(record.blob_bytes(role))), record
        assert "redacted" in record.flags or record.key_scheme == "opaque"


def test_the_note_of_an_error_has_no_canary(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")

    def fail() -> None:
        with archive.recorder("r", secrets=KNOWN) as recorder:
            recorder.append(kind="tool", identity=1, response=2)
            raise ValueError(f"failed with {KNOWN[0]}", {"password": NAMED})

    with pytest.raises(ValueError, match="canary"):  # the program gets its own error
        fail()
    assert archive.open("r").state == "incomplete"
    assert not leaks(tmp_path)


def test_the_journal_of_a_killed_process_has_no_canary(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, signal, sys
        from replaypack import Archive
        from tests.policies.canaries import KNOWN, calls
        recorder = Archive(sys.argv[1]).recorder("r", secrets=KNOWN, flush_interval=None)
        for number, call in enumerate(calls()):
            recorder.append(**call)
            if number == 40:
                recorder.flush()
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a")], env=environment, cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((tmp_path / "a" / "journal").glob("*.rpj"))
    assert not leaks(tmp_path)
    archive = Archive(tmp_path / "a")
    assert [result.error for result in recover(archive)] == [None]
    assert len(archive.open("r")) == len(list(calls()))
    assert not leaks(tmp_path)


def test_a_redacted_call_is_found_again(tmp_path: Path) -> None:
    """The live request is redacted as the recorded one was, whatever secret it carries by name."""
    archive = Archive(tmp_path / "a")
    with archive.recorder("r", secrets=[KNOWN[0]]) as recorder:
        recorder.append(kind="http", identity={"url": "/x", "headers": {"Authorization": "Bearer one"}}, response=1)
        recorder.append(kind="http", identity={"url": f"/{KNOWN[0]}"}, response=2, scope=KNOWN[0])
        recorder.append(kind="tool", key=f"key {KNOWN[0]}", response=3)
    recording = archive.open("r", secrets=[KNOWN[0]])
    found = recording.lookup("http", {"url": "/x", "headers": {"Authorization": "Bearer another"}})
    assert found is not None
    assert found.response == 1
    assert recording.count("http", {"url": "/x", "headers": {"Authorization": "third"}}) == 1
    found = recording.lookup("http", {"url": f"/{KNOWN[0]}"}, scope=KNOWN[0])
    assert found is not None
    assert found.response == 2
    found = recording.lookup(key=f"key {KNOWN[0]}")
    assert found is not None
    assert found.response == 3
    assert archive.open("r").lookup("http", {"url": f"/{KNOWN[0]}"}, scope=KNOWN[0]) is None
