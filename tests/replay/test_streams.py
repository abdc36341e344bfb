"""Streams: recorded as they pass, truncated where the consumer stops, replayed item by item."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive, ReplayMismatch, ReplaySession
from replaypack.errors import FormatError, ReplayedError, ValueEncodingError

IDENTITY = {"model": "m", "request": "tell me"}


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def refuse() -> Any:
    raise AssertionError("this must not be called")


def words(*items: Any, error: BaseException | None = None, value: Any = None) -> Callable[[], Generator[Any, Any, Any]]:
    def generate() -> Generator[Any, Any, Any]:
        yield from items
        if error is not None:
            raise error
        return value

    return generate


def awords(*items: Any, error: BaseException | None = None) -> Callable[[], AsyncIterator[Any]]:
    async def generate() -> AsyncIterator[Any]:
        for item in items:
            await asyncio.sleep(0)
            yield item
        if error is not None:
            raise error

    return generate


def test_a_stream_is_recorded_as_it_passes_and_replayed(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        stream = session.stream("model", IDENTITY, words("a", {"b": (1,)}, b"c"))
        assert next(stream) == "a"
        assert list(stream) == [{"b": [1]}, b"c"]
    [record] = archive.open("run").records()
    assert record.attributes == {"stream": "sync"}
    assert record.response["items"] == ["a", {"b": [1]}, b"c"]
    assert record.response["offsets"] == sorted(record.response["offsets"])
    assert record.response["offsets"][-1] <= record.row.duration
    assert record.name == "m"
    with archive.session("run", "replay", strict=True) as session:
        assert list(session.stream("model", IDENTITY, refuse)) == ["a", {"b": [1]}, b"c"]


def test_an_asynchronous_stream_is_recorded_and_replayed(archive: Archive) -> None:
    async def run(mode: str, call: Any) -> list[Any]:
        async with archive.session("run", mode) as session:
            return [item async for item in session.astream("model", IDENTITY, call)]

    assert asyncio.run(run("record", awords(1, 2))) == [1, 2]
    assert asyncio.run(run("replay", refuse)) == [1, 2]
    assert [r.attributes for r in archive.open("run").records()] == [{"stream": "async"}]


def test_what_a_consumer_does_to_an_item_changes_no_record(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        for item in session.stream("model", IDENTITY, words({"a": []})):
            item["a"].append(1)
    [record] = archive.open("run").records()
    assert record.response["items"] == [{"a": []}]


def test_the_value_that_a_generator_returns_is_kept(archive: Archive) -> None:
    def run(session: ReplaySession, call: Any) -> Any:
        with session:
            return (yield from session.stream("model", IDENTITY, call))

    for mode, call in (("record", words(1, value={"n": (1, 2)})), ("replay", refuse)):
        generator = run(archive.session("run", mode), call)
        assert next(generator) == 1
        with pytest.raises(StopIteration) as stop:
            next(generator)
        assert stop.value.value == {"n": [1, 2]}


def _close(stream: Any) -> None:
    stream.close()


def _forget(stream: Any) -> None:
    del stream
    gc.collect()


@pytest.mark.parametrize("end", [_close, _forget, None])
def test_a_consumer_that_stops_early_leaves_a_truncated_record(archive: Archive, end: Any) -> None:
    closed: list[bool] = []

    def generate() -> Iterator[int]:
        try:
            yield from range(5)
        finally:
            closed.append(True)

    with archive.session("run", "record") as session:
        streams = [session.stream("model", IDENTITY, generate)]
        assert [next(streams[0]), next(streams[0])] == [0, 1]
        if end is not None:
            end(streams.pop())
            assert closed == [True]
            session.tool("after", {}, lambda: 1)
    truncated = next(r for r in archive.open("run").records() if r.kind == "model")
    assert truncated.flags == {"truncated"}
    assert truncated.response["items"] == [0, 1]
    assert truncated.seq == 0
    with archive.session("run", "replay") as session:
        with pytest.raises(ReplayMismatch) as caught:
            next(session.stream("model", IDENTITY, refuse))
        assert (caught.value.reason, caught.value.recorded) == ("unanswerable", 0)
    with archive.session("run", "replay", answer_truncated=True) as session:
        assert list(session.stream("model", IDENTITY, refuse)) == [0, 1]


def test_an_asynchronous_consumer_that_stops_early_leaves_a_truncated_record(archive: Archive) -> None:
    async def main() -> None:
        async with archive.session("run", "record") as session:
            stream = session.astream("model", IDENTITY, awords(1, 2, 3))
            async for _ in stream:
                break
            await stream.aclose()

    asyncio.run(main())
    [record] = archive.open("run").records()
    assert (record.flags, record.response["items"]) == ({"truncated"}, [1])


def test_dropped_streams_in_cycles_never_deadlock_the_recorder(archive: Archive) -> None:
    class Holder:
        stream: Any
        me: Any

    with archive.session("run", "record") as session:
        for number in range(300):
            holder = Holder()
            holder.me = holder
            holder.stream = session.stream("model", {"n": number}, words(1, 2))
            next(holder.stream)
            del holder
            session.tool("t", {"n": number}, lambda: [[] for _ in range(50)])
    counts = archive.open("run").manifest.content.counts
    assert counts == {"model": 300, "tool": 300}


def test_a_generator_that_is_never_started_records_nothing_and_plays_nothing(archive: Archive) -> None:
    for mode in ("record", "replay"):
        with archive.session("run", mode, strict=True) as session:
            session.stream("model", IDENTITY, words(1))
            session.tool("t", {}, lambda: 1)
    assert len(archive.open("run")) == 1


def test_an_exception_in_the_middle_keeps_the_prefix_and_comes_back(archive: Archive) -> None:
    for mode, call in (("record", words(1, 2, error=KeyError("k"))), ("replay", refuse)):
        with archive.session("run", mode) as session:
            stream = session.stream("model", IDENTITY, call)
            assert [next(stream), next(stream)] == [1, 2]
            with pytest.raises(KeyError) as caught:
                next(stream)
            assert caught.value.args == ("k",)
    [record] = archive.open("run").records()
    assert record.status == "error"
    assert record.error is not None
    assert record.error["stream"]["items"] == [1, 2]


def test_an_asynchronous_exception_in_the_middle_comes_back(archive: Archive) -> None:
    class Own(Exception):
        pass

    async def run(mode: str, call: Any) -> list[Any]:
        got: list[Any] = []
        async with archive.session("run", mode) as session:
            try:
                async for item in session.astream("model", IDENTITY, call):
                    got.append(item)
            except (Own, ReplayedError) as error:
                got.append(str(error))
        return got

    assert asyncio.run(run("record", awords(1, error=Own("oh")))) == [1, "oh"]
    assert asyncio.run(run("replay", refuse)) == [1, "oh"]


def test_a_cancelled_stream_is_interrupted_and_never_answers(archive: Archive) -> None:
    async def endless() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(3600)

    async def main() -> None:
        async with archive.session("run", "record") as session:
            got = asyncio.Event()

            async def consume() -> None:
                async for _ in session.astream("model", IDENTITY, endless):
                    got.set()

            task = asyncio.create_task(consume())
            await got.wait()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    [record] = archive.open("run").records()
    assert record.status == "interrupted"
    assert record.response["stream"]["items"] == [1]
    with archive.session("run", "replay", answer_truncated=True) as session, pytest.raises(ReplayMismatch):
        next(session.stream("model", IDENTITY, refuse))


def test_an_item_that_cannot_be_recorded_stops_the_stream(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        stream = session.stream("model", IDENTITY, words(1, object(), 3))
        assert next(stream) == 1
        with pytest.raises(ValueEncodingError):
            next(stream)
        assert list(stream) == []
    [record] = archive.open("run").records()
    assert (record.flags, record.response["items"]) == ({"truncated"}, [1])


def test_send_and_throw_reach_a_recorded_generator(archive: Archive) -> None:
    def echo() -> Generator[Any, Any, Any]:
        got = yield "ready"
        while got is not None:
            try:
                got = yield got
            except ValueError as error:
                got = yield f"caught {error}"

    def drive(stream: Any) -> list[Any]:
        items = [next(stream), stream.send(1), stream.throw(ValueError("v")), stream.send(2)]
        assert next(stream, "end") == "end"
        return items

    with archive.session("run", "record") as session:
        assert drive(session.stream("tool", 1, echo)) == ["ready", 1, "caught v", 2]
    with archive.session("run", "replay") as session:
        stream = session.stream("tool", 1, refuse)
        assert [next(stream), stream.send("whatever")] == ["ready", 1]
        with pytest.raises(ValueError, match="v"):
            stream.throw(ValueError("v"))


def test_asend_and_athrow_reach_a_recorded_generator(archive: Archive) -> None:
    async def echo() -> Any:
        got = yield "ready"
        try:
            yield got
        except ValueError as error:
            yield f"caught {error}"

    async def main() -> list[Any]:
        async with archive.session("run", "record") as session:
            stream = session.astream("tool", 1, echo)
            return [await anext(stream), await stream.asend(1), await stream.athrow(ValueError("v"))]

    assert asyncio.run(main()) == ["ready", 1, "caught v"]


def test_an_iterator_that_a_call_returns_is_a_stream(archive: Archive) -> None:
    for mode in ("record", "replay"):
        with archive.session("run", mode) as session:
            assert list(session.call("tool", 1, lambda: iter([1, 2]))) == [1, 2]
            assert list(session.call("tool", 2, words(3))) == [3]

    async def main(mode: str) -> list[Any]:
        async with archive.session("arun", mode) as session:

            async def create() -> AsyncIterator[int]:
                return awords(1, 2)()

            return [item async for item in await session.acall("model", IDENTITY, create)]

    assert asyncio.run(main("record")) == asyncio.run(main("replay")) == [1, 2]


def test_a_stream_that_is_missing_may_be_made_live(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        session.tool("t", {}, lambda: 1)
    with archive.session("run", "replay", on_missing="live") as session:
        assert list(session.stream("model", IDENTITY, words(1, 2))) == [1, 2]
        next(session.stream("model", "other", words(1, 2)))
    assert [sorted(r.flags) for r in archive.open("run").records()] == [
        [],
        ["live_fallback"],
        ["live_fallback", "truncated"],
    ]


def test_a_whole_answer_is_a_stream_of_one_item(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        for number in range(5):
            session.call("model", [IDENTITY, number], lambda number=number: {"text": number})

    async def read(session: ReplaySession, number: int) -> list[Any]:
        return [item async for item in session.astream("model", [IDENTITY, number], refuse)]

    # In recorded order, in which no record is made of most answers, and in another one.
    for speed, order in (("instant", range(5)), ("recorded", range(5)), ("instant", range(4, -1, -1))):
        with archive.session("run", "replay", speed=speed, strict=True) as session:
            for number in order:
                if number % 2:
                    assert asyncio.run(read(session, number)) == [{"text": number}]
                else:
                    assert list(session.stream("model", [IDENTITY, number], refuse)) == [{"text": number}]


@dataclass
class Chunk:
    text: str


def test_items_come_back_as_the_type_asked_for(archive: Archive) -> None:
    for mode, call in (("record", words(Chunk("a"), Chunk("b"))), ("replay", refuse)):
        with archive.session("run", mode) as session:
            assert list(session.stream("model", IDENTITY, call, returns=Chunk)) == [Chunk("a"), Chunk("b")]


def test_recorded_speed_waits_as_long_as_it_took(archive: Archive) -> None:
    def slow() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.05)
            yield number

    with archive.session("run", "record") as session:
        assert list(session.stream("model", IDENTITY, slow)) == [0, 1, 2]
    [record] = archive.open("run").records()

    async def timed() -> list[int]:
        async with archive.session("run", "replay", speed="recorded") as session:
            return [item async for item in session.astream("model", IDENTITY, refuse)]

    with archive.session("run", "replay", speed="recorded") as session:
        begin = time.perf_counter_ns()
        assert list(session.stream("model", IDENTITY, refuse)) == [0, 1, 2]
        assert time.perf_counter_ns() - begin >= record.response["offsets"][-1]
    begin = time.perf_counter_ns()
    assert asyncio.run(timed()) == [0, 1, 2]
    assert time.perf_counter_ns() - begin >= record.response["offsets"][-1]


@pytest.mark.parametrize(
    "response",
    [None, {}, [1], {"items": [1], "offsets": []}, {"items": [1], "offsets": [-1]}, {"items": 1, "offsets": 2}],
)
def test_a_stream_that_is_not_of_its_form_is_refused(archive: Archive, response: Any) -> None:
    with archive.recorder("run") as recorder:
        recorder.append(kind="model", identity=IDENTITY, response=response, attributes={"stream": "sync"})
    with archive.session("run", "replay") as session, pytest.raises(FormatError):
        list(session.stream("model", IDENTITY, refuse))


@pytest.mark.parametrize("offset", [2**61, 2**200])
@pytest.mark.parametrize("of_item", [True, False])
def test_recorded_speed_does_not_wait_as_long_as_an_archive_says(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, offset: int, of_item: bool
) -> None:
    waits: list[float] = []

    async def asleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(asyncio, "sleep", asleep)
    with archive.recorder("s") as recorder:
        for stream in ("sync", "async"):
            recorder.append(
                kind="tool",
                identity={"name": stream},
                response={"items": [1], "offsets": [offset if of_item else 0]},
                attributes={"stream": stream},
                duration=min(offset, 2**62),
            )

    async def collect(items: AsyncIterator[Any]) -> list[Any]:
        return [item async for item in items]

    with archive.session("s", "replay", speed="recorded") as session:
        assert list(session.stream("tool", {"name": "sync"}, refuse)) == [1]
        assert asyncio.run(collect(session.astream("tool", {"name": "async"}, refuse))) == [1]
    assert max(waits) == 3600
