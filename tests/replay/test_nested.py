"""Calls inside of calls: recorded, but answered by the call that they are a part of."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replaypack
from replaypack import Archive, ReplayMismatch, ReplaySession


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def refuse() -> Any:
    raise AssertionError("this must not be called")


def twice(archive: Archive, program: Callable[[ReplaySession, Callable[[], int]], Any]) -> None:
    """What a program sees is the same when it is recorded, and replayed with nothing left over."""
    seen = []
    for _ in range(2):
        counter = itertools.count()
        with archive.session("run", strict=True) as session:
            seen.append(program(session, lambda counter=counter: next(counter)))
    assert seen[0] == seen[1]


def test_a_call_made_inside_of_another_does_not_answer_one_made_outside(archive: Archive) -> None:
    def program(session: ReplaySession, number: Callable[[], int]) -> Any:
        return session.tool("outer", {}, lambda: session.tool("inner", {}, number)), session.tool("inner", {}, number)

    twice(archive, program)
    assert [(r.name, r.attributes, r.response) for r in archive.open("run").records()] == [
        ("inner", {"inside": True}, 0),
        ("outer", {}, 0),
        ("inner", {}, 1),
    ]


def test_a_tool_that_calls_itself(archive: Archive) -> None:
    def program(session: ReplaySession, number: Callable[[], int]) -> Any:
        def deeper() -> list[Any]:
            n = number()
            return [n, session.tool("same", {}, deeper)] if n < 3 else [n]

        return session.tool("same", {}, deeper)

    twice(archive, program)


def test_streams_and_what_is_called_between_their_items(archive: Archive) -> None:
    def program(session: ReplaySession, number: Callable[[], int]) -> Any:
        def items() -> Iterator[int]:
            for _ in range(3):
                yield session.tool("inner", {}, number)

        return [(item, session.tool("inner", {}, number)) for item in session.stream("model", {}, items)]

    twice(archive, program)
    inside = [r.response for r in archive.open("run").records(kinds="tool") if r.attributes]
    assert inside == [0, 2, 4]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_what_a_stream_calls_when_it_is_closed_is_inside_of_it(archive: Archive, how: str) -> None:
    def program(session: ReplaySession) -> int:
        def items() -> Iterator[int]:
            try:
                yield from range(5)
            finally:
                session.tool("hang up", {}, lambda: None)

        async def aitems() -> AsyncIterator[int]:
            with contextlib.closing(items()) as source:
                for item in source:
                    yield item

        async def first() -> int:
            async with contextlib.aclosing(session.astream("model", {}, aitems)) as stream:
                return await anext(stream)

        if how == "async":
            return asyncio.run(first())
        with contextlib.closing(session.stream("model", {}, items)) as stream:
            return next(stream)

    for _ in range(2):
        with archive.session("run", strict=True, answer_truncated=True) as session:
            assert program(session) == 0
    assert [(r.name, r.attributes, r.flags) for r in archive.open("run").records()] == [
        ("hang up", {"inside": True}, set()),
        (None, {"stream": how}, {"truncated"}),
    ]


def test_a_stream_inside_of_a_call_keeps_its_form(archive: Archive) -> None:
    def program(session: ReplaySession, number: Callable[[], int]) -> Any:
        def outer() -> list[int]:
            return list(session.stream("model", {}, lambda: iter([number(), number()])))

        return session.tool("outer", {}, outer), list(session.stream("model", {}, lambda: iter([number()])))

    twice(archive, program)
    assert archive.open("run").record(0).attributes == {"inside": True, "stream": "sync"}


def test_coroutines_their_tasks_and_asynchronous_streams(archive: Archive) -> None:
    def program(session: ReplaySession, number: Callable[[], int]) -> Any:
        async def one() -> int:
            await asyncio.sleep(0)
            return number()

        async def ask() -> int:
            return await session.atool("inner", {}, one)

        async def outer() -> list[int]:
            return list(await asyncio.gather(asyncio.create_task(ask()), asyncio.to_thread(threaded)))

        def threaded() -> int:
            return session.tool("inner", {}, number)

        async def items() -> AsyncIterator[int]:
            yield await ask()
            yield await ask()

        async def run() -> Any:
            with session.scope("beside"):
                outside = asyncio.create_task(ask())
            made = sorted(await session.atool("outer", {}, outer))
            streamed = [(item, await ask()) async for item in session.astream("model", {}, items)]
            return made, streamed, await outside, await ask()

        return asyncio.run(run())

    twice(archive, program)


def test_a_worker_that_a_call_starts_and_leaves_running_is_free_of_it(archive: Archive) -> None:
    def program(session: ReplaySession, number: Callable[[], int]) -> Any:
        waiting: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()
        workers: list[asyncio.Task[None]] = []

        async def one() -> int:
            return number()

        async def work() -> None:
            while True:
                (await waiting.get()).set_result(await session.atool("inner", {}, one))

        async def ask() -> int:
            if not workers:
                workers.append(asyncio.create_task(work()))
            future = asyncio.get_running_loop().create_future()
            waiting.put_nowait(future)
            return await future

        async def run() -> Any:
            return await session.atool("outer", {}, ask), await ask(), await ask()

        return asyncio.run(run())

    twice(archive, program)


def test_threads_that_a_call_starts_with_bind(archive: Archive) -> None:
    def program(session: ReplaySession, number: Callable[[], int]) -> Any:
        def outer() -> int:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(session.bind(lambda: session.tool("inner", {}, number))).result()

        return session.tool("outer", {}, outer), session.tool("inner", {}, number)

    twice(archive, program)


def test_after_a_call_that_failed_calls_are_outside_again(archive: Archive) -> None:
    def program(session: ReplaySession, number: Callable[[], int]) -> Any:
        def outer() -> None:
            raise ValueError(session.tool("inner", {}, number))

        with pytest.raises(ValueError, match="0"):
            session.tool("outer", {}, outer)
        return session.tool("inner", {}, number)

    twice(archive, program)


def test_another_session_inside_of_a_call_is_not_a_part_of_it() -> None:
    with ReplaySession("record") as outer, ReplaySession("record") as other:

        def call() -> int:
            return other.tool("t", {}, lambda: outer.tool("t", {"n": 1}, lambda: 1))

        assert outer.tool("t", {}, call) == 1
    assert [record.attributes for record in outer.recording.records()] == [{"inside": True}, {}]
    assert [record.attributes for record in other.recording.records()] == [{}]


#: A call: which key it has, whether it is a stream, fails, is in a scope, and what it calls.
CALLS = st.recursive(
    st.tuples(st.integers(0, 1), st.booleans(), st.booleans(), st.booleans(), st.just(())),
    lambda calls: st.tuples(
        st.integers(0, 1), st.booleans(), st.booleans(), st.booleans(), st.lists(calls, max_size=3)
    ),
    max_leaves=12,
)


@given(st.lists(CALLS, max_size=4))
def test_any_program_gets_its_own_answers(program: list[Any]) -> None:
    def make(session: ReplaySession, call: Any, number: Callable[[], int]) -> Any:
        key, streamed, fails, scoped, inner = call

        def items() -> Iterator[Any]:
            yield number()
            for other in inner:
                yield make(session, other, number)
            if fails:
                raise ValueError(number())

        found: list[Any] = []
        with session.scope("s") if scoped else contextlib.nullcontext():
            try:
                if streamed:
                    found.extend(iter(session.stream("tool", {"key": key}, items)))
                else:
                    found.append(session.call("tool", {"key": key}, lambda: list(items())))
            except ValueError as error:
                found.append(error.args)
        return found

    def run(session: ReplaySession) -> list[Any]:
        with session:
            numbers = itertools.count()
            return [make(session, call, lambda: next(numbers)) for call in program]

    recorded = ReplaySession("record")
    assert run(recorded) == run(recorded.replayed(strict=True))


def test_a_call_that_was_only_made_inside_says_so(archive: Archive) -> None:
    with archive.session("run") as session:
        session.tool("outer", {}, lambda: session.tool("inner", {}, lambda: 1))
    with archive.session("run") as session:
        with pytest.raises(ReplayMismatch, match=r"record 0 \(made inside of another call\)") as caught:
            session.tool("inner", {}, refuse)
        assert (caught.value.reason, caught.value.recorded) == ("unanswerable", 0)
        assert [record.name for record in session.unplayed()] == ["outer"]


def test_a_run_that_was_cut_off_inside_of_a_call_goes_on_where_it_was(archive: Archive) -> None:
    def agent(session: ReplaySession, answer: Callable[[int], int]) -> list[int]:
        return [session.tool("step", {}, lambda n=n: answer(n)) for n in range(4)]

    def cut(n: int) -> int:
        if n == 2:
            raise KeyboardInterrupt
        return n

    with pytest.raises(KeyboardInterrupt), archive.session("run") as session:
        session.tool("agent", {}, lambda: agent(session, cut))
    made: list[int] = []
    with archive.session("run", on_missing="live") as session:
        assert session.tool("agent", {}, lambda: agent(session, lambda n: made.append(n) or n)) == [0, 1, 2, 3]  # type: ignore[func-returns-value]
    assert made == [2, 3]
    with archive.session("run") as session:
        assert session.tool("agent", {}, refuse) == [0, 1, 2, 3]


def test_a_call_that_is_made_once_more_asks_anew(archive: Archive) -> None:
    def check(answer: Any) -> Any:
        return replaypack.call("tool", {"name": "status", "args": {}}, answer)

    with archive.session("run") as session:
        session.tool("check", {}, lambda: check(lambda: "waiting"))
        session.tool("status", {}, lambda: "outside")
    with archive.session("run", on_exhausted="live") as session:
        assert session.tool("check", {}, refuse) == "waiting"
        assert session.tool("check", {}, lambda: check(lambda: "done")) == "done"
        assert session.tool("status", {}, refuse) == "outside"


def test_inside_of_a_call_made_live_no_record_from_outside_answers(archive: Archive) -> None:
    with archive.session("run") as session:
        session.tool("inner", {}, lambda: "recorded outside")
    with archive.session("run", on_missing="live", strict=True) as session:
        assert session.tool("outer", {}, lambda: session.tool("inner", {}, lambda: "live")) == "live"
        assert session.tool("inner", {}, refuse) == "recorded outside"
    added = [(r.name, r.attributes, r.flags) for r in archive.open("run").records(first=1)]
    assert added == [("inner", {"inside": True}, {"live_fallback"}), ("outer", {}, {"live_fallback"})]
