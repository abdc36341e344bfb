"""Sessions: what is recorded, what answers, and what happens to a call that has no answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import replaypack
from replaypack import Archive, BoundaryKind, ReplayFallback, ReplayMismatch, ReplayMode, ReplaySession
from replaypack.errors import (
    AccessDeniedError,
    FormatError,
    RecordingExistsError,
    RecordingNotFoundError,
    ReplaypackWarning,
    SessionClosedError,
    UnplayedRecordsError,
    UsageError,
    ValueEncodingError,
)
from replaypack.policies.redaction import RedactionPolicy
from replaypack.storage._memory import MemoryStorage


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


def answers(*values: Any) -> Callable[[], Any]:
    """A call that returns one value after the other."""
    left = iter(values)
    return lambda: next(left)


def refuse() -> Any:
    raise AssertionError("this must not be called")


def record(archive: Archive, name: str = "r", **calls: Any) -> None:
    with archive.session(name, "record") as session:
        for tool, result in calls.items():
            session.tool(tool, {}, lambda result=result: result)


# Modes


def test_a_recorded_session_answers_without_calling(archive: Archive) -> None:
    request = {"messages": [{"role": "user", "content": "hi"}]}
    with archive.session("run", "record") as session:
        assert session.mode is ReplayMode.RECORD
        assert session.tool("ls", {"path": "."}, lambda: ["a", "b"]) == ["a", "b"]
        assert session.model("m-1", request, lambda: {"text": "hello"}) == {"text": "hello"}
        assert session.model({"model": "m-1", "temperature": 0}, request, lambda: "cold") == "cold"
        assert session.call("http", {"method": "GET", "url": "/"}, lambda: b"\xff") == b"\xff"
    with archive.session("run", "replay", strict=True) as session:
        assert session.tool("ls", {"path": "."}, refuse) == ["a", "b"]
        assert session.model({"model": "m-1", "temperature": 0}, request, refuse) == "cold"
        assert session.model("m-1", request, refuse) == {"text": "hello"}
        assert session.call("http", {"method": "GET", "url": "/"}, refuse) == b"\xff"


def test_identities_are_what_the_manual_says(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        session.tool("ls", {"path": "."}, lambda: 1)
        session.model({"model": "m", "top_p": 1}, {"prompt": "p"}, lambda: 2)
        session.note("lifecycle", "begin", {"agent": "a"})
    recording = archive.open("run")
    tool, model, note = recording.records()
    assert tool.request == {"name": "ls", "args": {"path": "."}}
    assert (tool.kind, tool.name) == ("tool", "ls")
    assert model.request == {"model": "m", "top_p": 1, "request": {"prompt": "p"}}
    assert (model.kind, model.name) == ("model", "m")
    assert (note.kind, note.name, note.request, note.response) == (
        "lifecycle",
        "begin",
        {"name": "begin"},
        {"agent": "a"},
    )


@pytest.mark.parametrize("mode", ["record", "replay"])
def test_what_is_no_function_is_refused_and_not_recorded(archive: Archive, mode: Any) -> None:
    async def work() -> int:
        return 1

    async def use(session: ReplaySession) -> None:
        for given in ({"text": "hello"}, None, work()):
            with pytest.raises(UsageError, match=f"not {type(given).__name__} .*lambda"):
                session.tool("t", {}, given)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="not coroutine"):
            await session.amodel("m", {}, work())  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="not list"):
            next(session.stream("model", {}, []))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="not list"):
            await anext(session.astream("model", {}, []))  # type: ignore[arg-type]

    if mode == "replay":
        record(archive, t=1)
    with archive.session("r", mode) as session:
        asyncio.run(use(session))
    assert len(archive.open("r")) == (mode == "replay")


def test_a_mistyped_option_is_named_with_the_one_that_is_meant(archive: Archive) -> None:
    with pytest.raises(UsageError, match=r"no option stict \(did you mean strict\?\)"):
        archive.session("run", stict=True)


def test_a_session_that_is_over_cannot_be_entered_again(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        pass
    with pytest.raises(SessionClosedError, match="open another one"):
        session.__enter__()


def test_a_live_session_is_inert(archive: Archive) -> None:
    with archive.session("run", "live") as session, ReplaySession("live") as other:
        marker = object()
        for each in (session, other):
            assert each.tool("t", {"a": object()}, lambda: marker) is marker
            each.note("snapshot", "s", 1)
            assert each.unplayed() == []
    with pytest.raises(RecordingNotFoundError):
        archive.open("run")


def test_auto_records_once_and_replays_from_then_on(archive: Archive) -> None:
    for expected in (ReplayMode.RECORD, ReplayMode.REPLAY, ReplayMode.REPLAY):
        with archive.session("run") as session:
            assert session.mode is expected
            assert session.tool("t", {}, answers("the first")) == "the first"
    assert len(archive.open("run")) == 1


def test_a_session_in_memory_can_be_replayed() -> None:
    with ReplaySession("record") as session:
        session.tool("t", {}, lambda: 1)
        with pytest.raises(UsageError, match="not over yet"):
            session.replayed()
    assert len(session.recording) == 1
    with session.replayed() as again:
        assert again.tool("t", {}, refuse) == 1
    with ReplaySession.from_recording(session.recording) as again:
        assert again.tool("t", {}, refuse) == 1
    with pytest.raises(UsageError, match="nothing to replay"):
        ReplaySession("replay")


@pytest.mark.parametrize(
    "option", [{"revision": 1}, {"expect_digest": "0" * 64}, {"expect_manifest": "0" * 64}, {"match": "uuids"}]
)
def test_how_to_open_what_is_open_already_is_refused(archive: Archive, option: dict[str, Any]) -> None:
    record(archive, "r", t=1)
    with pytest.raises(UsageError, match="is open already"):
        ReplaySession.from_recording(archive.open("r"), **option)


def test_a_locator_names_recording_and_revision(tmp_path: Path) -> None:
    url = str(tmp_path / "a")
    with ReplaySession("record", url, "run") as session:
        session.tool("t", {}, lambda: "old")
    with ReplaySession("record", f"{url}#run", if_exists="replace") as session:
        session.tool("t", {}, lambda: "new")
    assert session.recording.metadata == {}
    for locator, expected in ((f"{url}#run", "new"), (f"{url}#run@2", "old")):
        with ReplaySession("replay", locator) as replaying:
            assert replaying.tool("t", {}, refuse) == expected
    with ReplaySession("replay", url, "run", revision=2) as replaying:
        assert replaying.tool("t", {}, refuse) == "old"
    with pytest.raises(UsageError, match="revision is there to be replayed"), ReplaySession("record", f"{url}#run@2"):
        pass


def test_options_of_the_recorder_go_through(archive: Archive) -> None:
    with archive.session("run", "record", metadata={"suite": "s"}, recorded_by="me", flush_interval=None) as session:
        session.tool("t", {}, lambda: 1)
    assert archive.open("run").metadata == {"suite": "s"}
    assert archive.open("run").manifest.content.recorded_by == "me"
    with pytest.raises(RecordingExistsError), archive.session("run", "record"):
        pass
    with pytest.raises(UsageError, match="no option colour"):
        archive.session("run", "record", colour="red")
    with pytest.raises(FormatError, match="digest"), archive.session("run", "replay", expect_digest="0" * 64):
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "loud"},
        {"on_missing": "last"},
        {"on_missing": "sometimes"},
        {"on_exhausted": "never"},
        {"speed": "fast"},
        {"kinds": {"interrupt": True}},
        {"kinds": ["tool"]},
        {"archive": "runs"},
        {"archive": 3, "name": "r"},
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ReplaySession(**{"mode": "record", **options})


def test_the_words_are_text() -> None:
    assert [*map(str, ReplayMode)] == ["live", "record", "replay", "auto"]
    assert [*map(str, ReplayFallback)] == ["error", "last", "live"]
    assert BoundaryKind.TOOL == "tool"
    assert isinstance(BoundaryKind.MODEL, str)


# Kinds


def test_attribution_never_answers(archive: Archive) -> None:
    with archive.session("run", "record", kinds={"checkpoint": False, "vote": True}) as session:
        for kind in ("interrupt", "snapshot", "lifecycle", "checkpoint", BoundaryKind.SNAPSHOT):
            session.note(kind, "n", {"at": 1})
            with pytest.raises(UsageError, match="answer no calls"):
                session.call(kind, {"name": "n"}, lambda: 1)
        for kind in ("tool", "vote", "anything"):
            with pytest.raises(UsageError, match="answer calls"):
                session.note(kind, "n")
        assert session.call("vote", 1, lambda: "yes") == "yes"
    with archive.session("run", "replay", kinds={"checkpoint": False}, strict=True) as session:
        session.note("checkpoint", "n")
        assert session.call("vote", 1, refuse) == "yes"


# The same objects, live and replayed


@dataclass
class Weather:
    city: str
    days: tuple[int, ...]


def test_the_same_comes_back_live_and_replayed(archive: Archive) -> None:
    values = [(1, (2, 3)), Weather("Bern", (1,)), {"a": {3, 1}}, [1.5, None, True, b"x", float("inf")], "text", 2**70]

    def run(session: ReplaySession) -> list[Any]:
        with session:
            return [session.tool("t", {"n": n}, lambda value=value: value) for n, value in enumerate(values)]

    live = run(archive.session("run", "record"))
    assert live == run(archive.session("run", "replay"))
    assert live[:3] == [[1, [2, 3]], {"city": "Bern", "days": [1]}, {"a": [1, 3]}]


def test_a_type_is_made_of_the_answer_live_and_replayed(archive: Archive) -> None:
    for _ in range(2):
        with archive.session("run") as session:
            given = session.tool("w", {}, lambda: Weather("Bern", (1, 2)), returns=Weather)
            assert given == Weather("Bern", (1, 2))
            assert session.tool("n", {}, lambda: 3, returns=lambda n: n + 1) == 4
            with pytest.raises(UsageError, match="is no Weather"):
                session.tool("x", {}, lambda: "no weather", returns=Weather)


def test_what_the_caller_does_to_an_answer_changes_no_record(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        session.tool("t", {}, lambda: {"a": []})["a"].append(1)
    with archive.session("run", "replay", on_exhausted="last") as session:
        for _ in range(3):
            answer = session.tool("t", {}, refuse)
            assert answer == {"a": []}
            answer["a"].append(1)


def test_a_callee_that_changes_its_arguments_changes_neither_key_nor_request(archive: Archive) -> None:
    for mode in ("record", "replay"):
        with archive.session("run", mode) as session:
            args = {"items": [1], "deep": {"x": bytearray(b"a")}}

            def call(args: dict[str, Any] = args) -> str:
                args["items"].append(2)
                args["deep"]["x"][0] = 0
                args.pop("deep")
                return "done"

            assert session.tool("t", args, call) == "done"
    [kept] = archive.open("run").records()
    assert kept.request == {"name": "t", "args": {"items": [1], "deep": {"x": b"a"}}}


def test_a_result_that_cannot_be_recorded_is_no_silent_loss(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        with pytest.raises(ValueEncodingError) as caught:
            session.tool("t", {}, lambda: {"a": object()})
        assert "the tool call 't' was made, but could not be recorded" in caught.value.__notes__[0]
        with pytest.raises(UsageError, match="acall"):
            session.tool("t", {}, lambda: _coroutine())
        session.tool("u", {}, lambda: 1)
    assert [r.name for r in archive.open("run").records()] == ["u"]


async def _coroutine() -> int:
    return 1


# Consumption


def test_repeated_calls_are_answered_in_order_then_exhausted(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        for value in (1, 2):
            session.tool("t", {"a": 1}, lambda value=value: value)
    with archive.session("run", "replay") as session:
        assert [session.tool("t", {"a": 1.0}, refuse) for _ in range(2)] == [1, 2]
        for asked in (3, 4):
            with pytest.raises(ReplayMismatch) as caught:
                session.tool("t", {"a": 1}, refuse)
            error = caught.value
            assert (error.reason, error.recorded, error.asked) == ("exhausted", 2, asked)
            assert (error.kind, error.name, error.scope) == ("tool", "t", None)
            assert error.key == replaypack.key_digest("tool", {"name": "t", "args": {"a": 1}}).hex()
            assert "recorded 2 times, and asked for" in str(error)
            assert error.explanation is not None


def test_exhausted_calls_may_get_the_last_answer(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        for value in ("starting", "running", "done"):
            session.tool("poll", {}, lambda value=value: value)
    with archive.session("run", "replay", on_exhausted="last") as session:
        assert [session.tool("poll", {}, refuse) for _ in range(5)] == ["starting", "running", "done", "done", "done"]
        assert session.unplayed() == []


def test_ten_thousand_equal_calls_come_back_in_order(archive: Archive) -> None:
    count = 10_000
    with archive.session("run", "record", flush_interval=None) as session:
        for number in range(count):
            session.tool("t", {}, lambda number=number: number)
    with archive.session("run", "replay") as session:
        assert [session.tool("t", {}, refuse) for _ in range(count)] == list(range(count))


def test_unplayed_records_are_listed_and_fail_a_strict_session(archive: Archive) -> None:
    record(archive, a=1, b=2, c=3, d=4, e=5)
    with archive.session("r", "replay") as session:
        session.tool("b", {}, refuse)
        assert [r.name for r in session.unplayed()] == ["a", "c", "d", "e"]
    session = archive.session("r", "replay", strict=True)
    session.__enter__().tool("b", {}, refuse)
    with pytest.raises(UnplayedRecordsError, match=r"4 records .* record 0 \(tool 'a'\), .* and 1 more") as caught:
        session.__exit__(None, None, None)
    assert caught.value.count == 4
    assert caught.value.hint is None
    session = archive.session("r", "replay", strict=True)
    with contextlib.suppress(ReplayMismatch):
        session.__enter__().tool("swallowed by a loop", {}, refuse)
    with pytest.raises(UnplayedRecordsError, match="calls without an answer: 1"):
        session.__exit__(None, None, None)
    with pytest.raises(ZeroDivisionError), archive.session("r", "replay", strict=True):
        raise ZeroDivisionError


# Misses


def test_missing_calls_may_be_made_live_and_never_answer_in_the_session(archive: Archive) -> None:
    record(archive, a=1)
    digest = archive.open("r").content_digest
    with archive.session("r", "replay", on_missing="live", on_exhausted="live") as session:
        assert session.tool("a", {}, refuse) == 1
        assert session.tool("a", {}, lambda: "live") == "live"
        assert session.tool("b", {}, answers("first", "second")) == "first"
        assert session.tool("b", {}, lambda: "second") == "second"
    newest = archive.open("r")
    assert newest.content_digest != digest
    assert [(r.name, r.response, sorted(r.flags)) for r in newest.records()] == [
        ("a", 1, []),
        ("a", "live", ["live_fallback"]),
        ("b", "first", ["live_fallback"]),
        ("b", "second", ["live_fallback"]),
    ]
    with pytest.raises(FormatError), archive.session("r", "replay", expect_digest=digest):
        pass
    with archive.session("r", "replay", revision=2, expect_digest=digest) as session:
        assert session.tool("a", {}, refuse) == 1
    with archive.session("r", "replay", strict=True) as session:
        assert [session.tool(name, {}, refuse) for name in "aabb"] == [1, "live", "first", "second"]


def test_a_replay_without_live_calls_makes_no_revision(archive: Archive) -> None:
    record(archive, a=1)
    with archive.session("r", "replay", on_missing="live") as session:
        session.tool("a", {}, refuse)
    assert archive.open("r").manifest.storage.revision == 2


def test_live_calls_of_a_read_only_archive_go_to_a_local_recording(tmp_path: Path) -> None:
    url = str(tmp_path / "a")
    record(Archive(url), a=1)
    read_only = {"replaypack": {"read_only": True}}
    with ReplaySession("replay", f"{url}#r", storage_options=read_only, on_missing="live") as session:
        assert session.tool("a", {}, refuse) == 1
        with pytest.warns(ReplaypackWarning) as warned:
            assert session.tool("b", {}, lambda: 2) == 2
    assert len(Archive(url).open("r")) == 1
    text = str(warned[0].message)
    name, _, path = text.partition("recorded as ")[2].partition(" in ")
    assert name == "r"
    assert [r.response for r in Archive(path).open(name).records()] == [2]


def test_a_local_recording_of_live_calls_has_the_policies_of_the_recording(tmp_path: Path) -> None:
    url = str(tmp_path / "a")
    for match in ("uuids", "timestamps"):  # recorded anew in between: what lies there has the first one's policies
        policy = RedactionPolicy(name=f"x-{match}", names=("badge",))
        with ReplaySession("record", url, "r", if_exists="replace", match=match, redact=policy) as session:
            session.tool("a", {}, lambda: 1)
        read_only = {"replaypack": {"read_only": True}}
        session = ReplaySession("replay", f"{url}#r", storage_options=read_only, on_missing="live")
        with session, pytest.warns(ReplaypackWarning) as warned:
            session.tool("b", {"badge": "B-1234567"}, lambda: {"badge": "B-7654321"})
        name, _, path = str(warned[0].message).partition("recorded as ")[2].partition(" in ")
        with Archive(path).open(name) as live:
            assert str(live.match).startswith(match)
            [found] = live.records()
            assert found.response == {"badge": "__redacted__"}
            assert found.identity["args"] == {"badge": "__redacted__"}


def test_live_calls_that_the_store_refuses_go_to_a_local_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    with ReplaySession("record") as session:
        session.tool("a", {}, lambda: 1)

    def refused(*_: object, **__: object) -> None:
        raise AccessDeniedError("no", operation="put_new", url="memory://")

    with session.replayed(on_missing="live") as again:
        monkeypatch.setattr(MemoryStorage, "put_new", refused)
        with pytest.warns(ReplaypackWarning, match="AccessDeniedError"):
            assert again.tool("b", {}, lambda: 2) == 2
    assert len(session.recording) == 1


def test_two_sessions_that_go_live_at_once_do_not_mix(archive: Archive) -> None:
    record(archive, a=1)
    first, second = (archive.session("r", "replay", on_missing="live") for _ in range(2))
    with first, second:
        first.tool("b", {}, lambda: 1)
        with pytest.warns(ReplaypackWarning, match="another writer") as warned:
            second.tool("c", {}, lambda: 2)
    assert [r.name for r in archive.open("r").records()] == ["a", "b"]
    sibling = str(warned[0].message).rpartition("#")[2]
    assert [r.name for r in archive.open(sibling).records()] == ["c"]


def test_a_mismatch_says_whether_the_recorded_run_finished(archive: Archive) -> None:
    with archive.session("run", "record") as recording:
        recording.tool("a", {}, lambda: 1)
        recording.flush()
        with archive.session("run", "replay") as session, pytest.raises(ReplayMismatch, match="is being recorded"):
            session.tool("b", {}, refuse)
    archive.delete("run")
    with contextlib.suppress(ZeroDivisionError), archive.session("run", "record") as session:
        session.tool("a", {}, lambda: 1)
        raise ZeroDivisionError
    assert archive.open("run").state == "incomplete"
    with archive.session("run", "replay") as session:
        session.tool("a", {}, refuse)
        with pytest.raises(ReplayMismatch, match=r"recording is incomplete.*if_exists='replace'.*on_missing='live'"):
            session.tool("a", {}, refuse)


def test_a_mismatch_shows_the_nearest_request_and_where_it_differs(archive: Archive) -> None:
    def request(text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}]}

    with archive.session("run", "record") as session:
        session.model("m", request("x" * 200 + " old"), lambda: 1)
        session.tool("t", {"page": 1}, lambda: 1)
    with archive.session("run", "replay", strict=True) as session:
        session.tool("t", {"page": 1}, refuse)
        with pytest.raises(ReplayMismatch, match="`/request/messages/0/content` differs at character 201") as caught:
            session.model("m", request("x" * 200 + " new"), refuse)
        assert (caught.value.reason, caught.value.recorded, caught.value.asked) == ("missing", 0, 1)
        assert isinstance(caught.value, LookupError)
        explanation = session.explain("model", {"model": "m", "request": request("x" * 200 + " new")})
        assert str(explanation) in str(caught.value)
        with session.scope("s"):
            assert session.explain("tool", {"name": "t", "args": {"page": 1}}).played == 1
        session.model("m", request("x" * 200 + " old"), refuse)
    with pytest.raises(SessionClosedError):
        session.explain("tool", 1)
    assert session.unplayed() == []


# Life cycle


def test_a_session_may_be_used_without_a_block(archive: Archive) -> None:
    session = archive.session("run", "record")
    assert session.tool("t", {}, lambda: 1) == 1
    session.close()
    session.close()
    with pytest.raises(SessionClosedError):
        session.tool("t", {}, lambda: 1)
    replaying = archive.session("run", "replay")
    assert replaying.tool("t", {}, refuse) == 1
    replaying.close()
    with pytest.raises(SessionClosedError):
        replaying.tool("t", {}, refuse)


def test_the_innermost_session_is_the_current_one(archive: Archive) -> None:
    assert replaypack.current_session() is None
    with archive.session("a", "record") as outer:
        assert replaypack.current_session() is outer
        with archive.session("b", "record") as inner:
            assert replaypack.current_session() is inner
            replaypack.call("tool", {"name": "t"}, lambda: 1)
        assert replaypack.current_session() is outer
        with pytest.raises(UsageError, match="entered already"), outer:
            pass
    assert replaypack.current_session() is None
    assert (len(archive.open("a")), len(archive.open("b"))) == (0, 1)


def test_flush_publishes_what_is_there(archive: Archive) -> None:
    with archive.session("run", "record", flush_interval=None) as session:
        session.tool("t", {}, lambda: 1)
        session.flush()
        assert len(archive.open("run")) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_gets_a_clear_error(tmp_path: Path) -> None:
    program = f"""
import os, replaypack
from replaypack.errors import SessionClosedError
archive = replaypack.Archive({str(tmp_path)!r})
for mode in ("record", "replay"):
    with archive.session("run", mode) as session:
        session.tool("t", {{}}, lambda: 1)
        pid = os.fork()
        if not pid:
            try:
                session.tool("t", {{}}, lambda: 1)
            except SessionClosedError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(replaypack.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_many_threads_record_and_replay_every_answer_once(archive: Archive) -> None:
    threads, calls = 8, 50

    def everywhere(work: Callable[[int], None]) -> None:
        failures: list[BaseException] = []

        def run(number: int) -> None:
            try:
                work(number)
            except BaseException as error:
                failures.append(error)

        started = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        assert not failures

    with archive.session("run", "record") as session:
        everywhere(lambda n: [session.tool("t", {}, lambda i=i: [n, i]) for i in range(calls)] and None)
    got: list[list[int]] = []
    with archive.session("run", "replay", strict=True) as session:
        everywhere(lambda n: got.extend(session.tool("t", {}, refuse) for _ in range(calls)))
    assert sorted(got) == [[n, i] for n in range(threads) for i in range(calls)]


def test_no_warnings_where_nothing_is_wrong(archive: Archive) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record(archive, a=1)
        with archive.session("r", "replay", on_missing="live") as session:
            session.tool("b", {}, lambda: 2)


@pytest.mark.parametrize("mode", ["record", "replay"])
@pytest.mark.parametrize("kind", [None, 5, b"tool", ["tool"]])
def test_a_kind_is_text(archive: Archive, mode: Any, kind: Any) -> None:
    record(archive, "r", t=1)
    with archive.session("r", mode, if_exists="append") as session:
        for call in (
            lambda: session.call(kind, {}, refuse),
            lambda: session.note(kind),
            lambda: session.wrap(refuse, kind=kind),
            lambda: session.explain(kind, {}) if mode == "replay" else session.call(kind, {}, refuse),
        ):
            with pytest.raises(UsageError, match="kind is text, not"):
                call()


def test_arguments_that_are_missing_are_refused(archive: Archive) -> None:
    nothing: Any = None
    with archive.session("r") as session:
        with pytest.raises(UsageError, match="not NoneType"):
            session.model(nothing, {}, refuse)
        with pytest.raises(UsageError, match="not NoneType"):
            session.scope(nothing)
    with pytest.raises(UsageError, match="not NoneType"):
        ReplaySession.from_recording(nothing)
    with pytest.raises(UsageError, match="each of kinds is text"):
        ReplaySession("record", kinds={nothing: False})
    with pytest.raises(UsageError, match="base is the name"), archive.session("s", base=5):
        pass


def test_a_scope_that_cannot_be_stored_is_refused_before_a_call_is_made(archive: Archive) -> None:
    with archive.session("r", strict=True) as session:
        for outer, inner in (("\ud800", "x"), ("x" * 4096, "y")):
            with pytest.raises(ValueEncodingError, match="/scope"), session.scope(outer), session.scope(inner):
                session.tool("t", {}, refuse)
        assert session.scope_label is None


@pytest.mark.parametrize("pinned", ["expect_digest", "expect_manifest"])
def test_auto_records_nothing_in_place_of_a_recording_that_is_pinned(archive: Archive, pinned: str) -> None:
    record(archive, "there", t=1)
    digest = archive.open("there").content_digest
    with archive.session("there", expect_digest=digest) as session:
        assert session.tool("t", {}, refuse) == 1
    with pytest.raises(RecordingNotFoundError), archive.session("forgotten", **{pinned: digest}) as session:
        session.tool("t", {}, refuse)


def test_a_record_without_a_response_does_not_answer(archive: Archive) -> None:
    identity = {"name": "t", "args": {}}
    with archive.recorder("r") as recorder:
        recorder.append(kind="tool", name="t", identity=identity)
        recorder.append(kind="tool", name="t", identity=identity, flags=["truncated"])
    with archive.session("r", answer_truncated=True) as session:
        with pytest.raises(
            ReplayMismatch, match=r"record 0 \(no response\), record 1 \(truncated, no response\)"
        ) as caught:
            session.tool("t", {}, refuse)
        assert caught.value.reason == "unanswerable"
        assert session.unplayed() == []
    with archive.recorder("r", if_exists="append") as recorder:
        recorder.append(kind="tool", name="t", identity=identity, response=None)
    with archive.session("r", strict=True) as session:
        assert session.tool("t", {}, refuse) is None
