"""Chassis' sessions over an archive: in its harness, through a crash, with secrets, on storage that is read only."""

from __future__ import annotations

import asyncio
import copy
import pickle
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("chassis", reason="needs chassis-harness (Python 3.12 or newer)")

from chassis import PluginContext, plugin
from chassis.budget import BudgetGovernor, BudgetLimits
from chassis.core.errors import BudgetExceeded, PolicyDenied, ReplayMismatch
from chassis.hooks import HookEvent
from chassis.replay import (
    BoundaryKind,
    ReplayChatModel,
    ReplayFallback,
    ReplayMode,
    ReplayRecord,
    ReplaySession,
    boundary_key,
)
from chassis.secrets import SecretRedactor
from chassis.testing import FakeChatModel, FakePolicy, TestHarness, fake_tool
from chassis.tools import ToolPolicy, ToolRequest

import replaypack
from replaypack import Archive
from replaypack.errors import (
    ExportError,
    RecorderClosedError,
    RecordingExistsError,
    RecordingNotFoundError,
    ReplaypackWarning,
    UsageError,
    ValueEncodingError,
)
from replaypack.integrations.chassis import ArchiveReplaySession
from replaypack.recover import recover

RECORD, REPLAY, LIVE = ReplayMode.RECORD, ReplayMode.REPLAY, ReplayFallback.LIVE
TOOL, MODEL = BoundaryKind.TOOL, BoundaryKind.MODEL
SECRET = "sk-live-abcdef123456"


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "archive", {"replaypack": {"fsync": False}}) as opened:
        yield opened


def fill(archive: Archive, name: str = "run", count: int = 3, **options: Any) -> None:
    """Record ``count`` answers to each of the keys ``k0``, ``k1``, …"""
    with ArchiveReplaySession(RECORD, archive=archive, name=name, **options) as session:
        for n in range(count):
            for key in ("k0", "k1"):
                session.record(TOOL, key=key, request={"tool": "t", "n": n}, response=f"{key} {n}", run_id="r")


async def call(harness: TestHarness, *texts: str, **fields: Any) -> list[Any]:
    """Call the tool ``echo`` through the harness' executor."""
    generation = harness.current_generation
    snapshot = harness.tool_snapshot(generation)
    return [
        await harness.tool_executor.execute(ToolRequest(name="echo", args={"text": text}, **fields), snapshot=snapshot)
        for text in texts
    ]


def echo(calls: list[Any], result: Any = "echoed") -> Any:
    return fake_tool("echo", result=result, parameters={"text": (str, ...)}, calls=calls)


# In the harness


def test_a_harness_records_to_an_archive_and_is_replayed_from_it(archive: Archive) -> None:
    calls: list[Any] = []
    seen: list[Any] = []

    async def watch(payload: Any) -> None:
        seen.append(payload.get("status"))

    @plugin(name="watch", version="1.0.0")
    async def watcher(ctx: PluginContext) -> None:
        ctx.hooks.register(HookEvent.AFTER_TOOL_EXECUTE, watch)

    async def run(session: ArchiveReplaySession, **attribution: Any) -> list[Any]:
        async with TestHarness(replay=session) as harness:
            harness.install_tools(echo(calls, result={"rows": [1, 2.5, None]}))
            harness.install(watcher, entry_id="watch")
            await harness.reconcile()
            model = ReplayChatModel(session=session, inner=FakeChatModel(responses=["yes"]), model_name="m")
            assert (await model.ainvoke("is it?")).content == "yes"
            return await call(harness, "a", "b", "a", **attribution)

    with ArchiveReplaySession(RECORD, archive=archive, name="agents/run", metadata={"dataset": "d"}) as session:
        live = asyncio.run(run(session, run_id="old", generation_id="g-old", tool_call_id="c-old"))
    assert len(calls) == len(seen) == 3
    with ArchiveReplaySession(REPLAY, archive=f"{archive.url}#agents/run") as session:
        again = asyncio.run(run(session, run_id="new", generation_id="g-new", tool_call_id="c-new"))
        assert session.metadata == {"dataset": "d"}
        with pytest.raises(ReplayMismatch) as exhausted:
            asyncio.run(run(session))
    assert [r.content for r in again] == [r.content for r in live] == [{"rows": [1, 2.5, None]}] * 3
    # Nothing ran; what the harness does around a call was done, with the attribution of today.
    assert len(calls) == 3
    assert len(seen) == 6
    assert [(r.run_id, r.generation_id, r.tool_call_id) for r in again] == [("new", "g-new", "c-new")] * 3
    assert exhausted.value.context["reason"] == "exhausted"
    recording = archive.open("agents/run")
    assert recording.manifest.content.counts["tool"] == 3
    assert {record.kind for record in recording.records()} == {"tool", "model", "lifecycle", "snapshot"}
    assert recording.lookup(key=boundary_key("tool", "echo", {"text": "b"})).name == "echo"  # type: ignore[union-attr]
    assert not list(archive.verify())


def test_policy_approval_and_budget_hold_for_answers_from_an_archive(archive: Archive) -> None:
    key = boundary_key("tool", "echo", {"text": "a"})
    with ArchiveReplaySession(RECORD, archive=archive, name="run") as session:
        for _ in range(5):
            session.record(TOOL, key=key, response={"name": "echo", "status": "ok", "content": "stored"})
    calls: list[Any] = []

    async def run(session: Any, granted: str, *, approval: bool = False, limit: int | None = None) -> list[Any]:
        async with TestHarness(replay=session, policy=FakePolicy([granted])) as harness:
            policy = ToolPolicy(permissions=("net",), approval_required=approval)
            harness.install_tools(echo(calls), policies={"echo": policy})
            await harness.reconcile()
            snapshot = harness.tool_snapshot(harness.current_generation)
            budget = BudgetGovernor(BudgetLimits(tool_calls=limit))
            request = ToolRequest(name="echo", args={"text": "a"})
            execute = harness.tool_executor.execute
            return [await execute(request, snapshot=snapshot, budget=budget) for _ in range(2)]

    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        with pytest.raises(PolicyDenied):
            asyncio.run(run(session, "other"))
        with pytest.raises(PolicyDenied, match="approv"):
            asyncio.run(run(session, "net", approval=True))
        assert [result.content for result in asyncio.run(run(session, "net"))] == ["stored", "stored"]
        with pytest.raises(BudgetExceeded):
            asyncio.run(run(session, "net", limit=1))
        # Calls that were refused consumed nothing.
        assert session.replay(TOOL, key=key).sequence == 3
    assert calls == []


def test_what_runs_live_is_captured_in_a_new_revision_and_does_not_answer(archive: Archive) -> None:
    fill(archive, count=1)
    pinned = archive.open("run")
    with ArchiveReplaySession(REPLAY, LIVE, archive=archive, name="run") as session:
        captured = session.record_fallback(TOOL, key="new", request={"tool": "t"}, response="live")
        assert captured.sequence == 2
        assert session.has(TOOL, key="new")
        assert not session.has_remaining(TOOL, key="new")
        with pytest.raises(ReplayMismatch, match="exhausted"):
            session.replay(TOOL, key="new")
        assert session.replay(TOOL, key="k1").response == "k1 0"
        assert session.counts() == {"tool": 3}
        assert session.records[-1] == captured
        assert [record.key for record in session.records] == ["k0", "k1", "new"]
    newest = archive.open("run")
    assert newest.manifest.storage.revision > pinned.manifest.storage.revision
    assert newest.content_digest != pinned.content_digest
    assert newest.record(2).flags == {"live_fallback"}
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        assert session.replay(TOOL, key="new").response == "live"
    with ArchiveReplaySession(
        REPLAY, archive=archive, name="run", revision=pinned.manifest.storage.revision
    ) as session:
        assert not session.has(TOOL, key="new")
        session.mode = RECORD
        with pytest.raises(UsageError, match="revision"):
            session.record(TOOL, key="new")


def test_record_fallback_is_guarded(archive: Archive) -> None:
    fill(archive)
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        with pytest.raises(RuntimeError, match="LIVE fallback"):
            session.record_fallback(TOOL, key="k")
        session.fallback = LIVE
        with pytest.raises(ValueError, match="tool and model"):
            session.record_fallback(BoundaryKind.LIFECYCLE, key="k")


def test_what_runs_live_over_a_read_only_archive_goes_to_this_machine(archive: Archive, tmp_path: Path) -> None:
    fill(archive, count=1)
    zipped = tmp_path / "run.zip"
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_STORED) as out:
        for path in (tmp_path / "archive").rglob("*"):
            if path.is_file() and "journal" not in path.parts:
                out.write(path, path.relative_to(tmp_path / "archive"))
    with ArchiveReplaySession(REPLAY, LIVE, archive=str(zipped), name="run") as session:
        with pytest.warns(ReplaypackWarning, match="live.*#run/") as warned:
            session.record_fallback(TOOL, key="new", response="live")
        session.record_fallback(MODEL, key="new", response="live")
        assert session.counts() == {"model": 1, "tool": 3}
    assert len(warned) == 1
    locator = str(warned[0].message).rsplit(" ", 1)[-1]
    with replaypack.open(locator) as local:
        assert [record.response for record in local.records()] == ["live", "live"]


# Modes and names


def test_live_mode_is_inert(archive: Archive, tmp_path: Path) -> None:
    with ArchiveReplaySession(archive=archive, name="run") as session:
        assert session.record(TOOL, key="k") is None
        session.record_lifecycle("plugin.mount")
        assert session.records == []
        assert not session.is_recording
        assert not session.is_replaying
    assert not (tmp_path / "archive").exists()


def test_a_missing_recording_and_one_that_is_in_the_way_are_told_at_once(archive: Archive) -> None:
    fill(archive)
    with pytest.raises(RecordingNotFoundError):
        ArchiveReplaySession(REPLAY, archive=archive, name="rum")
    with pytest.raises(RecordingExistsError):
        ArchiveReplaySession(RECORD, archive=archive, name="run")
    with pytest.raises(UsageError):
        ArchiveReplaySession(RECORD, archive=archive)
    with pytest.raises(UsageError):
        ArchiveReplaySession(RECORD, name="run")
    with pytest.raises(UsageError):
        ArchiveReplaySession(RECORD, archive=archive, name="run", if_exists="append", records=[])


@pytest.mark.parametrize("read_meanwhile", [False, True])
def test_a_recording_is_continued_or_replaced(archive: Archive, read_meanwhile: bool) -> None:
    fill(archive, count=1, metadata={"dataset": "d"})
    with ArchiveReplaySession(RECORD, archive=archive, name="run", if_exists="append") as session:
        assert session.metadata == {"dataset": "d"}
        record = session.record(TOOL, key="k2")
        assert record is not None
        assert record.sequence == 2
        if read_meanwhile:
            assert len(session.records) == 3
    with ArchiveReplaySession(RECORD, archive=archive, name="run", if_exists="replace") as session:
        record = session.record(TOOL, key="k3")
        assert record is not None
        assert record.sequence == 0
        if read_meanwhile:
            assert session.records == [record]
        session.record(TOOL, key="k4")
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        assert [record.key for record in session.records] == ["k3", "k4"]


def test_metadata_changed_while_recording_are_kept(archive: Archive) -> None:
    with ArchiveReplaySession(RECORD, archive=archive, name="run", metadata={"a": 1, "b": 2.0}) as session:
        session.record(TOOL, key="k")
        session.metadata["c"] = "later"
        del session.metadata["a"]
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        assert session.metadata == {"b": 2.0, "c": "later"}
        assert type(session.metadata["b"]) is float


def test_an_empty_session_is_a_recording(archive: Archive) -> None:
    ArchiveReplaySession(RECORD, archive=archive, name="run").close()
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        assert len(session.records) == 0


def test_a_session_that_ends_by_an_error_is_incomplete(archive: Archive) -> None:
    session = ArchiveReplaySession(RECORD, archive=archive, name="run")

    def fail() -> None:
        with session:
            session.record(TOOL, key="k", response=1)
            raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError):
        fail()
    recording = archive.open("run")
    assert recording.state == "incomplete"
    assert len(recording) == 1
    with pytest.raises(RecorderClosedError):
        session.record(TOOL, key="k")


# Records


def test_values_come_back_as_they_were(archive: Archive, tmp_path: Path) -> None:
    values = [b"\xff\x00", 1, 1.0, True, float("inf"), 2**70, -0.0, "\ud800", {"b": 1, "a": 2}, None, {}, []]
    with ArchiveReplaySession(RECORD, archive=archive, name="run") as session:
        for value in values:
            session.record(MODEL, key="k", request={"v": value}, response=value)
        with pytest.raises(ValueEncodingError, match="/response"):
            session.record(MODEL, key="k", response=object())
        with pytest.raises(ExportError, match="/records/0/response: JSON has no form for bytes"):
            session.save(tmp_path / "out.json")
        assert not (tmp_path / "out.json").exists()
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        for value in values:
            found = session.replay(MODEL, key="k")
            assert repr(found.response) == repr(value)
            assert repr(found.request) == repr({"v": value})


def test_an_answer_is_a_replay_record(archive: Archive) -> None:
    fill(archive)
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        peeked = session.peek(TOOL, key="k1")
        found = session.replay(TOOL, key="k1")
        listed = session.records[1]
        assert found == peeked == listed
        assert isinstance(found, ReplayRecord)
        assert type(listed) is ReplayRecord
        assert ReplayRecord.from_dict(found.to_dict()) == found
        assert (found.kind, found.sequence, found.key) == (TOOL, 1, "k1")
        assert (found.request, found.response, found.run_id) == ({"tool": "t", "n": 0}, "k1 0", "r")
        assert found.created_at == listed.created_at == archive.open("run").record(1).start / 10**9
        found.request["n"] = "changed"
        assert session.records[1].request["n"] == 0
        assert session.records[-1].sequence == 5
        assert [r.sequence for r in session.records[1:4]] == [1, 2, 3]
        with pytest.raises(IndexError):
            session.records[6]


def test_records_given_to_a_session_begin_its_recording(archive: Archive) -> None:
    plain = ReplaySession(mode=RECORD)
    plain.record(TOOL, key="k", response=1, run_id="r")
    plain.record(TOOL, key="k", response=2)
    with ArchiveReplaySession(REPLAY, archive=archive, name="run", records=plain.records) as session:
        assert session.replay(TOOL, key="k").response == 1
        assert session.records == plain.records
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        assert session.records == plain.records
        with pytest.raises(UsageError):
            session.records = []


def test_a_long_replay_is_answered_as_single_lookups_are(archive: Archive) -> None:
    plain = ReplaySession(mode=RECORD)
    values: list[Any] = [None, b"\xff", "x" * 5000, {"a": [1.0, -0.0]}, 2**80, "\ud800", "text", [[[]]]]
    for n in range(400):
        kind = (TOOL, MODEL, BoundaryKind.LIFECYCLE)[n % 3]
        plain.record(kind, key=f"k{n % 37}", request={"n": n}, response=values[n % 8], run_id=str(n), generation_id="g")
    with ArchiveReplaySession(RECORD, archive=archive, name="run", records=plain.records):
        pass
    plain.mode = REPLAY
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        for n in range(400):
            kind = (TOOL, MODEL)[n % 2]
            if plain.has_remaining(kind, key=f"k{n % 41}"):
                theirs, ours = plain.replay(kind, key=f"k{n % 41}"), session.replay(kind, key=f"k{n % 41}")
                assert repr(ours.to_dict()) == repr(theirs.to_dict())
            else:
                assert session.peek(kind, key=f"k{n % 41}") is None
        assert session._store._held is not None  # type: ignore[union-attr]


def test_answers_are_copied_as_ordinary_records(archive: Archive) -> None:
    fill(archive)
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        found = session.replay(TOOL, key="k0")
        for copied in (replace(found, run_id="r"), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
            assert type(copied) is ReplayRecord
            assert copied == found
        with pytest.raises(AttributeError):
            found.response = 1
        again = replace(session, mode=RECORD)
        assert [record.sequence for record in again.records] == list(range(6))
        assert repr(again) == "<ArchiveReplaySession record, in memory>"
        assert repr(session) == f"<ArchiveReplaySession replay, {archive.url}#run>"
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        assert session.replay(TOOL, key="k1").response == "k1 0"


def test_a_list_in_memory_may_change_under_the_session() -> None:
    session = ArchiveReplaySession(RECORD)
    first = session.record(TOOL, key="a", response=1)
    assert first is not None
    assert session.has(TOOL, key="a")
    session.records.append(ReplayRecord(TOOL, 1, "b", response=2))  # type: ignore[attr-defined]
    assert session.peek(TOOL, key="b").response == 2  # type: ignore[union-attr]
    session.records[0] = ReplayRecord(TOOL, 0, "c")  # type: ignore[index]
    assert not session.has(TOOL, key="a")
    assert session.has(TOOL, key="c")
    del session.records[:]  # type: ignore[attr-defined]
    assert session.counts() == {}
    session.records = [first]
    assert session.counts() == {"tool": 1}


def test_json_goes_in_and_out_through_save_and_load(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    plain = ReplaySession(mode=RECORD, metadata={"n": 1.0})
    plain.record(TOOL, key="k", request={"tool": "é", "nested": {"z": [], "a": {}}}, response=None)
    plain.record_snapshot({"generation_id": "g"})
    plain.save(path)
    with ArchiveReplaySession.load(path, archive=archive, name="run") as session:
        assert session.mode is RECORD
        session.save(tmp_path / "ours.json")
        assert archive.open("run").state == "sealed"
    assert (tmp_path / "ours.json").read_bytes() == path.read_bytes()
    loaded = ArchiveReplaySession.load(tmp_path / "ours.json", mode=REPLAY)
    assert loaded.replay(TOOL, key="k").response is None
    assert loaded.save(path) == path
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(Exception, match="corrupted"):
        ArchiveReplaySession.load(tmp_path / "empty.json")


def test_recording_goes_on_after_save(archive: Archive, tmp_path: Path) -> None:
    with ArchiveReplaySession(RECORD, archive=archive, name="run") as session:
        session.record(TOOL, key="k", response=1)
        session.save(tmp_path / "one.json")
        session.record(TOOL, key="k", response=2)
        assert [record.sequence for record in session.records] == [0, 1]
    assert [record.response for record in archive.open("run").records()] == [1, 2]


# Secrets


def test_no_secret_known_at_the_start_is_written_anywhere(archive: Archive, tmp_path: Path) -> None:
    metadata = {"token": SECRET, "note": f"by {SECRET}"}
    plain = ReplaySession(mode=RECORD)
    plain.record(TOOL, key="k", request={"args": {"password": SECRET}}, response=SECRET)
    with ArchiveReplaySession(RECORD, archive=archive, name="run", metadata=metadata, records=plain.records) as session:
        session.bind_redactor(SecretRedactor([SECRET]))
        session.record(TOOL, key="k", request={"tool": SECRET, SECRET: {"api_key": SECRET}}, response=[SECRET])
        journals = [path for path in (tmp_path / "archive").rglob("*") if path.is_file()]
        assert any("journal" in path.parts for path in journals)
        assert not [path for path in journals if SECRET.encode() in path.read_bytes()]
    for record in archive.open("run").records():
        assert SECRET not in str((record.request, record.response, record.attributes, record.name))
    assert not [p for p in (tmp_path / "archive").rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]


def test_what_was_written_before_the_redactor_came_is_scrubbed_when_read_and_warned_of(archive: Archive) -> None:
    with ArchiveReplaySession(RECORD, archive=archive, name="run") as session:
        session.record(TOOL, key="k", response=SECRET)
        with pytest.warns(ReplaypackWarning, match="1 records .* were written before"):
            session.bind_redactor(SecretRedactor([SECRET]))
        assert session.records[0].response == "<redacted>"
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        session.bind_redactor(SecretRedactor([SECRET]))
        assert session.replay(TOOL, key="k").response == "<redacted>"
        assert SECRET not in str(session.to_dict())


# Threads and crashes


def test_threads_record_and_are_answered_each_with_its_own(archive: Archive) -> None:
    def in_threads(run: Any) -> None:
        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    taken: list[int] = []
    with ArchiveReplaySession(RECORD, archive=archive, name="run") as session:
        in_threads(lambda number: [session.record(TOOL, key="k", response=number * 50 + n) for n in range(50)])
        assert [record.sequence for record in session.records] == list(range(400))
    with ArchiveReplaySession(REPLAY, LIVE, archive=archive, name="run") as session:
        in_threads(lambda _: [taken.append(session.replay(TOOL, key="k").response) for _ in range(50)])
        assert sorted(taken) == list(range(400))
        in_threads(lambda number: [session.record_fallback(TOOL, key="k", response=n) for n in range(20)])
        assert session.counts() == {"tool": 560}


CHILD = """
import sys
from chassis.replay import BoundaryKind, ReplayMode
from replaypack.integrations.chassis import ArchiveReplaySession
session = ArchiveReplaySession(ReplayMode.RECORD, archive=sys.argv[1], name="run", metadata={"dataset": "d"})
n = 0
while True:
    session.record(BoundaryKind.TOOL, key=f"k{n}", request={"tool": "t"}, response={"content": n}, run_id="r")
    print(n, flush=True)
    n += 1
"""


def test_a_process_that_is_killed_loses_nothing_it_recorded(archive: Archive) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, archive.url], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = [int(next(child.stdout)) for _ in range(200)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in child.stdout if line.endswith("\n")]
    child.wait()
    session = ArchiveReplaySession(RECORD, archive=archive, name="run")
    with pytest.raises(RecordingExistsError, match="died"):
        session.record(TOOL, key="k")
    list(recover(archive))
    with ArchiveReplaySession(REPLAY, archive=archive, name="run") as session:
        assert session.metadata == {"dataset": "d"}
        for n in acknowledged:
            found = session.replay(TOOL, key=f"k{n}")
            assert (found.response, found.run_id, found.sequence) == ({"content": n}, "r", n)
    assert not list(archive.verify())


def test_secrets_of_an_iterator_are_removed_by_every_recorder_of_a_session(archive: Archive) -> None:
    options = {"secrets": iter(["correct-horse-battery"])}
    with ArchiveReplaySession(RECORD, archive=archive, name="r", recorder_options=options) as session:
        for part in ("one", "two"):
            session.record(TOOL, key=part, response=f"{part} correct-horse-battery")
            session.seal()
    assert [record.response for record in archive.open("r").records()] == ["one __redacted__", "two __redacted__"]
