"""Scopes keep concurrent tasks apart; threads get them on request."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import replaypack
from replaypack import Archive, ReplayMismatch, ReplaySession
from replaypack.errors import UsageError

TASKS, CALLS = 100, 50


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def refuse() -> Any:
    raise AssertionError("this must not be called")


async def _sample(session: ReplaySession, number: int, rng: random.Random, *, live: bool) -> list[Any]:
    """One task of many that all make the same calls, giving way to others in an order of the day."""
    got = []
    with session.scope(f"sample-{number}"):
        for call in range(CALLS):

            async def answer(call: int = call) -> list[int]:
                await asyncio.sleep(0)
                return [number, call]

            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            got.append(await session.atool("ask", {"question": "the same"}, answer if live else refuse))
    return got


async def _all(session: ReplaySession, seed: int, *, live: bool) -> list[list[Any]]:
    rng = random.Random(seed)
    order = list(range(TASKS))
    rng.shuffle(order)
    async with session:
        tasks = {n: asyncio.create_task(_sample(session, n, random.Random(seed + n), live=live)) for n in order}
        return [await tasks[n] for n in range(TASKS)]


@pytest.mark.once
def test_scope_keeps_tasks_apart(archive: Archive) -> None:
    expected = [[[number, call] for call in range(CALLS)] for number in range(TASKS)]
    assert asyncio.run(_all(archive.session("run", "record"), 0, live=True)) == expected
    recording = archive.open("run")
    for seed in range(1, 21):
        session = ReplaySession.from_recording(recording, strict=True)
        assert asyncio.run(_all(session, seed, live=False)) == expected


def test_scopes_nest_and_end(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        assert session.scope_label is None
        with session.scope("a") as label:
            assert (label, session.scope_label) == ("a", "a")
            with contextlib.suppress(ZeroDivisionError), session.scope("b"):
                assert session.scope_label == "a/b"
                session.tool("t", {}, lambda: 1)
                raise ZeroDivisionError
            session.tool("t", {}, lambda: 2)
        session.tool("t", {}, lambda: 3)
    assert [r.scope for r in archive.open("run").records()] == ["a/b", "a", None]
    for label in ("", 3):
        with pytest.raises(UsageError):
            session.scope(label)  # type: ignore[arg-type]


def test_a_scope_is_answered_by_its_own_records_or_those_of_none(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        session.tool("shared", {}, lambda: "for all")
        with session.scope("a"):
            session.tool("own", {}, lambda: "of a")
    with archive.session("run", "replay") as session:
        with session.scope("b"):
            assert session.tool("shared", {}, refuse) == "for all"
            with pytest.raises(ReplayMismatch) as caught:
                session.tool("own", {}, refuse)
            assert (caught.value.scope, caught.value.reason) == ("b", "missing")
            assert "in other scopes, such as 'a'" in str(caught.value)
        with session.scope("a"):
            assert session.tool("own", {}, refuse) == "of a"


def test_each_session_has_scopes_of_its_own(archive: Archive) -> None:
    one, two = archive.session("one", "record"), archive.session("two", "record")
    with one, two, one.scope("a"), two.scope("b"), one.scope("c"):
        assert (one.scope_label, two.scope_label) == ("a/c", "b")


def test_threads_get_session_and_scope_on_request(archive: Archive) -> None:
    def work(number: int) -> Any:
        return replaypack.call("tool", {"name": "t"}, lambda: number)

    for mode in ("record", "replay"):
        with archive.session("run", mode) as session, ThreadPoolExecutor(4) as pool:
            futures = []
            for number in range(20):
                with session.scope(f"s{number}"):
                    futures.append(pool.submit(session.bind(work), number if mode == "record" else -1))
            assert [future.result() for future in futures] == list(range(20))
            assert pool.submit(work, 7).result() == 7  # not bound: there is no session
    assert len(archive.open("run")) == 20


def test_one_bound_function_runs_in_many_threads_at_once(archive: Archive) -> None:
    with archive.session("run", "record") as session, session.scope("s"):
        together = threading.Barrier(4)

        def work() -> str | None:
            together.wait(10)
            return session.scope_label

        bound = session.bind(work)
        with ThreadPoolExecutor(4) as pool:
            assert [f.result() for f in [pool.submit(bound) for _ in range(4)]] == ["s"] * 4


def test_a_bound_coroutine_function_finds_its_session_in_another_loop(archive: Archive) -> None:
    async def work() -> str | None:
        await asyncio.sleep(0)
        current = replaypack.current_session()
        assert current is not None
        return current.scope_label

    with archive.session("run", "record") as session, session.scope("s"), ThreadPoolExecutor(1) as pool:
        bound = session.bind(work)
        assert pool.submit(lambda: asyncio.run(bound())).result() == "s"


def test_to_thread_inherits_by_itself(archive: Archive) -> None:
    async def main() -> None:
        async with archive.session("run", "record") as session:
            with session.scope("s"):
                await asyncio.to_thread(replaypack.call, "tool", {"name": "t"}, lambda: 1)

    asyncio.run(main())
    assert [r.scope for r in archive.open("run").records()] == ["s"]


def test_a_session_may_end_in_another_context(archive: Archive) -> None:
    async def fixture() -> AsyncIterator[ReplaySession]:
        async with archive.session("run", "record") as session:
            with session.scope("s"):
                yield session

    async def main() -> None:
        generator = fixture()
        session = await asyncio.create_task(anext(generator))  # type: ignore[arg-type]
        session.tool("t", {}, lambda: 1)
        with pytest.raises(StopAsyncIteration):
            await asyncio.create_task(anext(generator))  # type: ignore[arg-type]
        assert replaypack.current_session() is None

    asyncio.run(main())
    assert archive.open("run").state == "sealed"
