"""Match policies in recordings: chosen when recording, applied without being asked, overridden in the open."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import replaypack
from replaypack import Archive, key_digest
from replaypack._read import rekeyed
from replaypack.errors import ReplaypackWarning, UsageError
from replaypack.policies.matching import MatchPolicy, ignore
from replaypack.replay._cursor import Cursor

UUID = "123e4567-e89b-12d3-a456-42661417400"


def call(number: int, n: int = 0) -> dict[str, Any]:
    return {"name": "f", "arguments": {"id": f"{UUID}{number}", "n": n}}


def record(archive: Archive, count: int = 4, **options: Any) -> None:
    with archive.recorder("r", **options) as recorder:
        for number in range(count):
            recorder.append(kind="tool", identity=call(number), response=number, scope=None if number % 2 else "s")
        recorder.append(kind="tool", key="host", response="host")


def test_recorded_and_looked_up_with_the_policy(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("r", match=["uuids", ignore("/arguments/n", kinds=["tool"])]) as recorder:
        assert recorder.match.name == "uuids+custom"
        recorder.append(kind="tool", identity=call(1, 2), response="tool")
        recorder.append(kind="model", identity=call(1, 2), response="model", request={"other": 1})
        key = recorder.key_of("tool", call(3, 4))
    with archive.open("r") as recording:
        assert recording.match == recording.manifest.match == recorder.match
        assert not recording.match_overridden
        assert recording.key_of("tool", call(5, 6)) == key
        found = recording.lookup("tool", call(7, 8))
        assert found is not None
        assert (found.response, found.key) == ("tool", key)
        assert found.identity == found.request == call(1, 2)  # as it was given
        assert recording.lookup("model", call(7, 8)) is None
        found = recording.lookup("model", call(7, 2))
        assert found is not None
        assert (found.identity, found.request) == (call(1, 2), {"other": 1})
        assert recording.count("tool", call(0)) == 1
    assert list(archive.verify()) == []


def test_without_one_keys_are_plain(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    record(archive)
    recording = archive.open("r")
    assert recording.key_of("tool", call(1)) == key_digest("tool", call(1)) == recording.record(1).key
    assert '"match":{"name":"none","version":1}' in recording.manifest.raw.decode()


def test_an_append_goes_on_with_the_policy(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    record(archive, match="uuids")
    with pytest.raises(UsageError, match="rekey"):
        archive.recorder("r", if_exists="append", match="timestamps")
    with pytest.raises(UsageError, match="rekey"):
        archive.recorder("r", if_exists="append", match="none")
    record(archive, if_exists="append")
    record(archive, if_exists="append", match="uuids")
    assert archive.open("r").count("tool", call(9)) == 12
    record(archive, if_exists="replace", match="timestamps")
    assert archive.open("r").match == MatchPolicy.of("timestamps")
    with pytest.raises(UsageError, match="did you mean 'uuids'"):
        archive.recorder("new", match="uuid")
    assert list(archive.recordings()) == ["r"]
    assert list(archive.verify()) == []


def test_a_recorder_that_died_is_recovered_with_the_policy(tmp_path: Path) -> None:
    program = f"""
import os, replaypack
recorder = replaypack.Archive({str(tmp_path / "a")!r}).recorder("r", match="uuids")
recorder.append(kind="tool", identity={call(1)!r}, response=1)
os._exit(9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False
    )
    assert done.returncode == 9
    archive = Archive(tmp_path / "a")
    record(archive, if_exists="append")
    assert archive.open("r").count("tool", call(9)) == 5
    assert list(archive.verify()) == []


def test_overridden_in_the_open(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    record(archive)
    with archive.open("r", match="uuids") as recording:
        assert repr(recording).endswith("5 records, match policy overridden: uuids 1>")
        assert recording.match_overridden
        assert recording.manifest.match == MatchPolicy.of("none")
        answers = [recording.lookup("tool", call(9), nth=nth) for nth in range(3)]
        assert [found and found.response for found in answers] == [1, 3, None]
        scoped = [recording.lookup("tool", call(9), scope="s", nth=nth) for nth in range(3)]
        assert [found and found.response for found in scoped] == [0, 2, None]
        assert answers[0] is not None
        assert answers[0].key == recording.key_of("tool", call(8)) == recording.record(3).key
        assert recording.count("tool", call(9)) == 4
        assert recording.count_scoped(recording.key_of("tool", call(9)), "s") == 2
        assert recording.count_scoped(recording.key_of("tool", call(9)), None) == 2
        host = recording.lookup(key="host")
        assert host is not None
        assert host.response == "host"
        assert recording.lookup("tool", "missing") is None
        cursor = Cursor(recording, answers=lambda row: True)
        taken = [cursor.take(recording.key_of("tool", call(9)), "other") for _ in range(3)]
        assert [found and found.seq for found in taken] == [1, 3, None]
    with replaypack.open(f"{tmp_path}#r", match=["none"]) as recording:
        assert not recording.match_overridden
        assert "policy overridden" not in repr(recording)

    async def later() -> Any:
        async with await replaypack.aopen(f"{tmp_path}#r", match="uuids") as recording:
            return await recording.alookup("tool", call(9))

    found = asyncio.run(later())
    assert found.response == 1
    with pytest.raises(UsageError):
        archive.open("r", match="uuid")


def test_an_override_sees_what_comes_later(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("r", match="timestamps") as recorder:
        recorder.append(kind="tool", identity=call(1), response=1)
        recorder.flush()
        recording = archive.open("r", match="uuids")
        assert recording.count("tool", call(2)) == 1
        recorder.append(kind="tool", identity=call(3), response=3)
        recorder.flush()
        assert recording.refresh()
        assert recording.count("tool", call(2)) == 2


def test_an_override_from_many_threads(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    record(archive, 200)
    recording = archive.open("r", match="uuids")
    found: list[int] = []

    def look() -> None:
        found.append(recording.count("tool", call(1)))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [10] * 8  # the ids of ten and more have a digit more, and are none


def test_an_override_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path)
    record(archive)
    monkeypatch.setattr(rekeyed, "MANY_RECORDS", 3)
    with pytest.warns(ReplaypackWarning, match="all 5 records are read; replaypack rekey"):
        assert archive.open("r", match="uuids").count("tool", call(1)) == 4
    monkeypatch.setattr(rekeyed, "MAX_RECORDS", 4)
    with warnings.catch_warnings(), pytest.raises(UsageError, match="rekey"):
        archive.open("r", match="uuids").lookup("tool", call(1))


def test_sessions_match_by_the_policy_and_say_when_it_is_overridden(tmp_path: Path) -> None:
    def run(number: int, mode: Any, **options: Any) -> tuple[Any, str]:
        with replaypack.ReplaySession(mode, tmp_path, "r", **options) as session:
            return session.tool("f", {"id": f"{UUID}{number}"}, lambda **_: number), repr(session)

    assert run(1, "auto", match="uuids")[0] == 1
    assert run(2, "auto", match="uuids") == (1, f"<ReplaySession replay of {tmp_path}#r>")
    assert run(3, "replay")[0] == 1
    with pytest.raises(replaypack.ReplayMismatch):
        run(4, "replay", match="none")
    answer, shown = run(1, "replay", match="none")
    assert answer == 1
    assert "match policy overridden: none 1" in shown
    assert run(5, "replay", match="none", on_missing="live")[0] == 5
    recording = Archive(tmp_path).open("r")
    assert recording.match == MatchPolicy.of("uuids")  # what was called live is appended with it
    assert len(recording) == 2


def test_what_a_miss_explains_is_what_counts(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    record(archive, match="uuids")
    from replaypack.replay.mismatch import explain

    for opened in (archive.open("r"), archive.open("r", match=["uuids", "timestamps"])):
        assert explain(opened, "tool", call(8)).answered
        found = explain(opened, "tool", call(8, n=1))
        assert not found.answered
        assert [difference.pointer for near in found.nearest[:1] for difference in near.differences] == ["/arguments/n"]
        assert explain(opened, "model", call(8)).reason != "answered"
        records = opened.of_key(opened.key_of("tool", call(8)))
        assert [item.seq for item in records] == [0, 1, 2, 3]
        assert opened.count_keys([item.key for item in records[:2]]) == [4, 4]
        latest = opened.latest(opened.key_of("tool", call(8)), ["nobody", "s"])
        assert latest is not None
        assert latest.seq == 2
        assert sorted(opened.repeated()) == [[0, 2], [1, 3]]


def test_policies_may_come_from_an_iterator(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    policies: Any = ["uuids", "timestamps"]
    with archive.recorder("recorded", match=iter(policies)) as recorder:
        recorder.append(kind="tool", identity={}, response=1)
    for _ in range(2):
        with archive.session("session", match=iter(policies)) as session:
            session.tool("t", {}, lambda: 1)
    assert not session.recording.match_overridden
    assert archive.open("recorded").match == archive.open("session").match == MatchPolicy.of(policies)
