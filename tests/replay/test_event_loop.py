"""Coroutine twins block no event loop on remote storage, and pay for no thread where nothing can block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from replaypack import Archive, ReplayMismatch
from replaypack.storage import Storage
from replaypack.storage._memory import MemoryStorage
from replaypack.storage._protocol import ObjectInfo


class Remote(Storage):
    """Objects of this process behind calls that note the thread they block."""

    def __init__(self) -> None:
        self.objects = MemoryStorage()
        self.url = "memory://remote"
        self.threads: set[int] = set()

    def get(self, key: str) -> bytes:
        self.threads.add(threading.get_ident())
        return self.objects.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.threads.add(threading.get_ident())
        return self.objects.get_range(key, start, length)

    def get_suffix(self, key: str, length: int) -> bytes:
        self.threads.add(threading.get_ident())
        return self.objects.get_suffix(key, length)

    def put_new(self, key: str, data: bytes) -> None:
        self.threads.add(threading.get_ident())
        self.objects.put_new(key, data)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self.threads.add(threading.get_ident())
        self.objects.put(key, data, cache_control=cache_control)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.threads.add(threading.get_ident())
        yield from self.objects.list(prefix)

    def delete(self, key: str) -> None:
        self.objects.delete(key)


async def _one() -> int:
    return 1


async def _two() -> AsyncIterator[int]:
    yield 1
    yield 2


async def _run(archive: Archive, mode: str, **options: Any) -> None:
    async with archive.session("run", mode, **options) as session:
        with session.scope("s"):
            assert await session.atool("t", {}, _one) == 1
            assert await session.amodel("m", {"q": "x" * 9000}, _one) == 1
            assert [n async for n in session.astream("model", 1, _two)] == [1, 2]
        if mode == "replay":
            if options:
                assert await session.acall("vote", 1, _one) == 1
            else:
                with pytest.raises(ReplayMismatch):
                    await session.acall("vote", 1, _one)


def test_the_event_loop_never_waits_for_remote_storage() -> None:
    storage = Remote()
    archive = Archive(storage.url, storage=storage)
    for mode, options in (("record", {}), ("replay", {}), ("replay", {"on_missing": "live"})):
        asyncio.run(_run(archive, mode, **options))
    assert storage.threads
    assert threading.get_ident() not in storage.threads
    assert {r.scope for r in archive.open("run").records()} == {"s", None}


class Slow(Remote):
    """Reads that wait to be let through, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.through = threading.Event(), threading.Event()
        self.through.set()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.waiting.set()
        assert self.through.wait(60)
        return super().get_range(key, start, length)

    def get_suffix(self, key: str, length: int) -> bytes:
        self.waiting.set()
        assert self.through.wait(60)
        return super().get_suffix(key, length)

    def get(self, key: str) -> bytes:
        self.waiting.set()
        assert self.through.wait(60)
        return super().get(key)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_cancelled_while_its_answer_is_read_takes_none(stream: bool) -> None:
    storage = Slow()
    archive = Archive(storage.url, storage=storage)

    async def give(number: int) -> int:
        return number

    async def main() -> None:
        async with archive.session("run", "record") as session:
            for number in range(3):
                await session.acall("tool", {}, lambda number=number: give(number))  # type: ignore[misc]
        async with archive.session("run", "replay", strict=True) as session:

            async def ask() -> int:
                if stream:
                    [answer] = [n async for n in session.astream("tool", {}, _two)]
                    return answer
                return await session.acall("tool", {}, _one)

            storage.waiting.clear()
            storage.through.clear()
            task = asyncio.create_task(ask())
            assert await asyncio.to_thread(storage.waiting.wait, 60)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            storage.through.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [await ask() for _ in range(3)] == [0, 1, 2]

    asyncio.run(main())


def test_lookups_in_memory_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    archive = Archive(storage.url, storage=storage)
    asyncio.run(_run(archive, "record"))

    async def main() -> None:
        async with archive.session("run", "replay") as session:
            monkeypatch.setattr("asyncio.to_thread", None)
            with session.scope("s"):
                assert await session.atool("t", {}, _one) == 1
            monkeypatch.undo()

    asyncio.run(main())
