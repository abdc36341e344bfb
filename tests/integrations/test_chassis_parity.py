"""One script, run by Chassis' `ReplaySession` and by ours: everything that a program can see of them is the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("chassis", reason="needs chassis-harness (Python 3.12 or newer)")

from chassis.replay import BoundaryKind, ReplayFallback, ReplayMode, ReplayRecord, ReplaySession
from chassis.secrets import SecretRedactor
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from replaypack import Archive
from replaypack.integrations.chassis import ArchiveReplaySession

SECRET = "sk-live-abcdef"
numbers = itertools.count()

kinds = st.sampled_from(list(BoundaryKind))
keys = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from([SECRET, f"x {SECRET} y", b"\xff\x00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
requests = st.none() | st.dictionaries(st.sampled_from(["tool", "args", "api_key", "model"]), values, max_size=3)
ids = st.none() | st.sampled_from(["run-1", "gen-1"])


def step(name: str, *arguments: Any) -> Any:
    return st.tuples(st.just(name), *arguments)


steps = st.lists(
    st.one_of(
        step("record", kinds, keys, requests, values, ids, ids),
        step("record_fallback", kinds, keys, requests, values, ids, ids),
        step("replay", kinds, keys),
        step("peek", kinds, keys),
        step("has", kinds, keys),
        step("has_remaining", kinds, keys),
        step("counts"),
        step("mode", st.sampled_from(list(ReplayMode))),
        step("fallback", st.sampled_from(list(ReplayFallback))),
        step("records"),
        step("record_lifecycle", st.sampled_from(["plugin.mount", "harness.shutdown"]), requests),
        step("record_snapshot", st.dictionaries(st.sampled_from(["generation_id", "plugins"]), values, max_size=2)),
        step("bind_redactor"),
        step("learn"),
        step("to_dict"),
    ),
    max_size=25,
)


def seen(record: ReplayRecord | None) -> Any:
    """A record as it is shown, but for the moment."""
    return record if record is None else {**record.to_dict(), "created_at": None}


def run(session: Any, script: list[Any]) -> list[Any]:
    """What every step returned or raised."""
    log: list[Any] = []
    redactor = SecretRedactor(["early"])
    for name, *arguments in script:
        try:
            if name in ("record", "record_fallback"):
                if not hasattr(ReplaySession, name):
                    continue
                kind, key, request, response, generation, run_id = arguments
                result: Any = getattr(session, name)(
                    kind, key=key, request=request, response=response, generation_id=generation, run_id=run_id
                )
                log.append(seen(result))
            elif name in ("replay", "peek"):
                log.append(seen(getattr(session, name)(arguments[0], key=arguments[1])))
            elif name in ("has", "has_remaining"):
                log.append(getattr(session, name)(arguments[0], key=arguments[1]))
            elif name in ("mode", "fallback"):
                setattr(session, name, arguments[0])
                log.append((session.is_recording, session.is_replaying))
            elif name == "records":
                log.append([seen(record) for record in session.records])
                log.append((len(session.records), [seen(r) for r in session.records[-2:]]))
            elif name == "bind_redactor":
                session.bind_redactor(redactor)
                log.append(session.metadata)
            elif name == "learn":
                redactor.add(SECRET)
            elif name == "to_dict":
                document = session.to_dict()
                log.append({**document, "records": [{**r, "created_at": None} for r in document["records"]]})
            else:
                log.append(getattr(session, name)(*arguments))
        except Exception as error:
            log.append((type(error), str(error), getattr(error, "context", None)))
    return log


def in_memory(archive: Archive, **arguments: Any) -> ArchiveReplaySession:
    return ArchiveReplaySession(**arguments)


def in_archive(archive: Archive, **arguments: Any) -> ArchiveReplaySession:
    return ArchiveReplaySession(**arguments, archive=archive, name=f"r{next(numbers)}")


LEARNED_LATE = [
    ("record", BoundaryKind.TOOL, "a", {"args": {"q": SECRET}}, SECRET, None, "run-1"),
    ("bind_redactor",),
    ("record", BoundaryKind.TOOL, "a", {"api_key": 1}, {"token": 2, "x": SECRET}, None, None),
    ("learn",),
    ("mode", ReplayMode.REPLAY),
    ("replay", BoundaryKind.TOOL, "a"),
    ("peek", BoundaryKind.TOOL, "a"),
    ("replay", BoundaryKind.TOOL, "a"),
    ("replay", BoundaryKind.TOOL, "a"),
    ("to_dict",),
    ("bind_redactor",),
    ("records",),
]
SHARED_KEY = [
    ("record", BoundaryKind.LIFECYCLE, "a", None, 0, None, None),
    ("record", BoundaryKind.TOOL, "a", None, 1, None, None),
    ("record", BoundaryKind.MODEL, "a", None, 2, None, None),
    ("record", BoundaryKind.TOOL, "a", None, 3, None, None),
    ("mode", ReplayMode.REPLAY),
    ("fallback", ReplayFallback.LIVE),
    ("replay", BoundaryKind.TOOL, "a"),
    ("has", BoundaryKind.MODEL, "a"),
    ("has", BoundaryKind.SNAPSHOT, "a"),
    ("record_fallback", BoundaryKind.MODEL, "a", None, 4, None, None),
    ("has_remaining", BoundaryKind.MODEL, "a"),
    ("replay", BoundaryKind.MODEL, "a"),
    ("peek", BoundaryKind.TOOL, "a"),
    ("replay", BoundaryKind.TOOL, "a"),
    ("replay", BoundaryKind.TOOL, "a"),
    ("counts",),
    ("records",),
    ("mode", ReplayMode.RECORD),
    ("record", BoundaryKind.MODEL, "a", None, 5, None, None),
    ("mode", ReplayMode.REPLAY),
    ("replay", BoundaryKind.MODEL, "a"),
    ("records",),
]

many = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
either = pytest.mark.parametrize("make", [in_memory, in_archive])
late = pytest.mark.filterwarnings("ignore::replaypack.errors.ReplaypackWarning")
METADATA = {"dataset": "d", "token": SECRET, "n": 1.0}


@late
@either
@many
@given(script=steps, mode=st.sampled_from([ReplayMode.LIVE, ReplayMode.RECORD]))
@example(script=LEARNED_LATE, mode=ReplayMode.RECORD)
@example(script=SHARED_KEY, mode=ReplayMode.RECORD)
def test_every_script_of_calls_gives_what_chassis_gives(
    make: Callable[..., ArchiveReplaySession], script: list[Any], mode: ReplayMode
) -> None:
    expected = run(ReplaySession(mode=mode, metadata=dict(METADATA)), script)
    with Archive("memory://parity") as archive, make(archive, mode=mode, metadata=dict(METADATA)) as session:
        assert run(session, script) == expected


@late
@many
@given(recorded=steps, script=steps)
@example(recorded=LEARNED_LATE[:3], script=LEARNED_LATE[3:])
@example(recorded=SHARED_KEY[:4], script=SHARED_KEY[4:])
def test_a_recording_that_is_opened_again_answers_as_chassis_does(recorded: list[Any], script: list[Any]) -> None:
    theirs = ReplaySession(mode=ReplayMode.RECORD, metadata=dict(METADATA))
    log = run(theirs, recorded)
    expected = run(ReplaySession.from_dict(theirs.to_dict(), mode=ReplayMode.REPLAY), script)
    with Archive("memory://parity") as archive:
        with in_archive(archive, mode=ReplayMode.RECORD, metadata=dict(METADATA)) as ours:
            assert run(ours, recorded) == log
            # What Chassis keeps in a file is what its redactor lets pass when the file is written.
            document, name = ours.to_dict(), f"r{next(numbers)}"
        begun = {"archive": archive, "name": name}
        ArchiveReplaySession.from_dict(document, **begun).close()
        with ArchiveReplaySession(mode=ReplayMode.REPLAY, fallback=theirs.fallback, **begun) as session:
            assert run(session, script) == expected
