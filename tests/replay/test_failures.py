"""Recorded exceptions come back as what they were, or as `ReplayedError`, and interruptions never answer."""

from __future__ import annotations

import asyncio
import builtins
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive, ReplayedError, ReplayMismatch, ReplaySession
from replaypack.errors import JournalError
from replaypack.replay.failures import describe, rebuild, register_error


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def refuse() -> Any:
    raise AssertionError("this must not be called")


def raising(error: BaseException) -> Any:
    def call() -> Any:
        raise error

    return call


def through(archive: Archive, error: Exception) -> tuple[BaseException, BaseException]:
    """The exception as the recorded and as the replayed session raised it."""
    caught = []
    for mode, call in (("record", raising(error)), ("replay", refuse)):
        with archive.session("run", mode) as session:
            try:
                session.tool("t", {}, call)
            except Exception as raised:
                caught.append(raised)
    return caught[0], caught[1]


def real(function: Any) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError


GROUP = ExceptionGroup("several", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])
BUILTINS = [
    ValueError("bad", 3),
    KeyError("missing"),
    real(lambda: {}["x"]),
    real(lambda: Path("/does/not/exist").read_text()),
    OSError(28, "No space left on device", "/a", None, "/b"),
    ConnectionResetError(104, "reset"),
    OSError("just text"),
    TimeoutError(),
    real(lambda: b"\xff".decode()),
    real(lambda: "\ud800".encode()),
    real(lambda: compile("a b", "f.py", "exec")),
    real(lambda: 1 / 0),
    UnicodeTranslateError("x", 0, 1, "reason"),
    RuntimeError(),
    ModuleNotFoundError("no module"),
    UserWarning("careful"),
    ValueError("n", {"a": [1, None]}),
    real(lambda: {}[1, "a"]),
    ValueError(((1, (2,)), [{"k": (3,)}])),
]


@pytest.mark.parametrize("error", BUILTINS, ids=repr)
def test_builtin_exceptions_come_back_equal(archive: Archive, error: Exception) -> None:
    live, replayed = through(archive, error)
    assert live is error
    assert type(replayed) is type(error)
    assert replayed.args == error.args
    assert str(replayed) == str(error)


@pytest.mark.parametrize(
    "name", [n for n, c in vars(builtins).items() if isinstance(c, type) and issubclass(c, Exception)]
)
def test_every_builtin_exception_survives_or_is_carried(name: str) -> None:
    cls = getattr(builtins, name)
    try:
        error = cls("message")
    except TypeError:
        return  # needs more: those are listed above
    again = rebuild(describe(error))
    if issubclass(cls, StopIteration | StopAsyncIteration):
        assert isinstance(again, ReplayedError)
    else:
        assert type(again) is cls
    assert str(again) == "message" or name in ("KeyError",)


def test_groups_notes_and_causes_come_back(archive: Archive) -> None:
    error = ExceptionGroup("several", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])
    error.add_note("in the second step")
    error.__cause__ = OSError(2, "gone")
    _, replayed = through(archive, error)
    assert isinstance(replayed, ExceptionGroup)
    assert replayed.message == "several"
    first, inner = replayed.exceptions
    assert (type(first), first.args) == (ValueError, ("a",))
    assert isinstance(inner, ExceptionGroup)
    assert inner.exceptions[0].args == ("b",)
    assert replayed.__notes__ == ["in the second step"]
    assert isinstance(replayed.__cause__, FileNotFoundError)


class Own(ValueError):
    pass


class Coded(Exception):
    def __init__(self, code: int, *, retry: float) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.retry = retry


def test_other_exceptions_come_back_with_all_that_was_recorded(archive: Archive) -> None:
    _, replayed = through(archive, Own("what", 3))
    assert isinstance(replayed, ReplayedError)
    assert (replayed.type, replayed.module, replayed.args) == ("Own", __name__, ("what", 3))
    assert str(replayed) == "('what', 3)"
    assert replayed.message == str(replayed)
    [note] = replayed.__notes__
    assert f"recorded as {__name__}.Own; " in note
    assert "register_error" in note


def test_an_exception_whose_message_fails_is_recorded_all_the_same(archive: Archive) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    live, replayed = through(archive, Broken())
    assert isinstance(live, Broken)
    assert isinstance(replayed, ReplayedError)
    assert "RuntimeError" in str(replayed)


@pytest.mark.parametrize("cls", [RuntimeError, ValueError, OSError, TimeoutError])
def test_a_builtin_type_comes_back_where_its_arguments_are_no_data(archive: Archive, cls: type[Exception]) -> None:
    live, replayed = through(archive, cls(Own("the tool is down"), object))
    assert type(replayed) is cls
    assert replayed.args == (str(live),)
    assert str(replayed) == str(live)


def test_arguments_that_are_no_data_leave_a_replayed_error_where_they_are_needed(archive: Archive) -> None:
    error = UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")
    error.args = (object(),)
    _, replayed = through(archive, error)
    assert isinstance(replayed, ReplayedError)
    assert replayed.type == "UnicodeDecodeError"


def test_a_registered_type_comes_back_as_itself(archive: Archive) -> None:
    register_error(Own)
    register_error(
        Coded,
        describe=lambda error: {"code": error.code, "retry": error.retry},
        build=lambda recorded: Coded(recorded["details"]["code"], retry=recorded["details"]["retry"]),
    )
    _, replayed = through(archive, Own("x"))
    assert (type(replayed), replayed.args) == (Own, ("x",))
    again = rebuild(describe(Coded(429, retry=0.5)))
    assert isinstance(again, Coded)
    assert (again.code, again.retry, str(again)) == (429, 0.5, "code 429")


@pytest.mark.parametrize(
    "recorded",
    [
        {"type": "eval", "module": "builtins", "args": ["1"]},
        {"type": "SystemExit", "module": "builtins", "args": [1]},
        {"type": "StopIteration", "module": "builtins", "args": []},
        {"type": "Popen", "module": "subprocess", "args": ["true"]},
        {"type": "UnicodeDecodeError", "module": "builtins", "args": [1]},
        {"type": "ValueError", "module": "builtins", "args": "text"},
        {"type": "ExceptionGroup", "module": "builtins", "message": "m"},
        {"type": "Client", "module": "httpx", "message": ""},
        {"type": "ValueError", "module": "builtins", "args": [1], "tuples": [[0]]},
        {"type": "ValueError", "module": "builtins", "args": [1], "tuples": [[7, "x"]]},
        {"type": "ValueError", "module": "builtins", "args": [1], "tuples": [3]},
        {"type": 3, "module": None, "message": None},
        {},
    ],
)
def test_what_an_archive_names_is_not_made_blindly(recorded: dict[str, Any]) -> None:
    assert type(rebuild(recorded)) is ReplayedError


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
def test_interruptions_are_recorded_and_never_answer(archive: Archive, error: BaseException) -> None:
    with archive.session("run", "record") as session:
        with pytest.raises(type(error)) as caught:
            session.tool("t", {}, raising(error))
        assert caught.value is error
    [record] = archive.open("run").records()
    assert record.status == "interrupted"
    with archive.session("run", "replay", strict=True) as session:
        with pytest.raises(ReplayMismatch) as mismatch:
            session.tool("t", {}, refuse)
        assert mismatch.value.reason == "unanswerable"
    with archive.session("run", "replay", on_missing="live") as session:
        assert session.tool("t", {}, lambda: "done") == "done"


def test_a_cancelled_task_is_interrupted(archive: Archive) -> None:
    async def main() -> None:
        async with archive.session("run", "record") as session:
            task = asyncio.create_task(session.atool("t", {}, lambda: asyncio.sleep(3600)))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert [r.status for r in archive.open("run").records()] == ["interrupted"]


@pytest.fixture
def full_disk(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> ReplaySession:
    """A session that recorded a call, and can record no more."""

    def full(*_: object) -> None:
        raise JournalError("no space left")

    session = archive.session("run", "record")
    session.tool("t", {}, lambda: 1)
    monkeypatch.setattr("replaypack._write.journal.JournalFile.append", full)
    return session


def test_a_failure_to_record_is_raised_from_the_failure_of_the_call(full_disk: ReplaySession) -> None:
    with pytest.raises(JournalError) as caught:
        full_disk.tool("t", {}, raising(ValueError("v")))
    assert isinstance(caught.value.__cause__, ValueError)
    assert "was made, but could not be recorded" in caught.value.__notes__[0]


def test_an_interruption_is_not_hidden_by_a_failure_to_record(full_disk: ReplaySession) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        full_disk.tool("t", {}, raising(KeyboardInterrupt()))
    assert "no space left" in caught.value.__notes__[0]


class _NoModule(Exception):
    pass


_NoModule.__module__ = None  # type: ignore[assignment]


class _NoNotes(Exception):
    __notes__ = 5  # type: ignore[assignment]


class _OwnNotes(Exception):
    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("notes")


class _OwnArguments(Exception):
    @property
    def args(self) -> Any:
        raise RuntimeError("args")

    @args.setter
    def args(self, value: Any) -> None:
        pass


class _NoArguments(Exception):
    args = None  # type: ignore[assignment]


class _OwnCause(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("cause")


class _OwnReduce(OSError):
    def __reduce__(self) -> Any:
        return "not a tuple of two"


@pytest.mark.parametrize("type_", [_NoModule, _NoNotes, _OwnNotes, _OwnArguments, _NoArguments, _OwnCause, _OwnReduce])
def test_an_exception_is_never_hidden_by_what_it_does_when_looked_at(archive: Archive, type_: type[Exception]) -> None:
    error = type_("what happened")
    with archive.session("odd") as session:
        with pytest.raises(type_) as raised:
            session.tool("t", {}, raising(error))
        assert raised.value is error
    with archive.session("odd") as session, pytest.raises(ReplayedError) as again:
        session.tool("t", {}, refuse)
    assert again.value.type == type_.__qualname__


def test_a_description_nested_without_end_is_followed_a_little_way() -> None:
    leaf = {"type": "ValueError", "module": "builtins", "message": "m", "args": ["m"]}
    chain, group = leaf, leaf
    for _ in range(2000):
        chain = {**leaf, "cause": chain}
        group = {"type": "ExceptionGroup", "module": "builtins", "message": "g", "exceptions": [group]}
    error: BaseException | None = rebuild(chain)
    depth = 0
    while error is not None:
        error, depth = error.__cause__, depth + 1
    assert depth == 9
    assert isinstance(rebuild(group), ExceptionGroup)


def test_a_failure_of_which_only_the_message_is_known_has_no_type_to_name() -> None:
    assert not hasattr(rebuild({"message": "it broke"}), "__notes__")
    assert rebuild({"message": "it broke", "type": "Broke"}).__notes__ == ["replaypack: recorded as Broke"]
