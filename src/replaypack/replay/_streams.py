"""Streams: recorded as they pass, and played again (spec/registry.md, "Streams").

A generator wrapped here takes `send`, `throw` and `close` while it is recorded, and hands them on. A replayed one
yields what was recorded whatever is sent, raises what is thrown, and can be closed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal

from replaypack import values
from replaypack.errors import FormatError, ReplaypackError
from replaypack.recording import Record

from ._capture import SCALARS, Capture, plain_result
from ._cursor import Answer
from .failures import rebuild

__all__ = ["Convert", "Opened", "aplay", "atee", "is_stream", "log_of", "opening", "play", "tee"]

Convert = Callable[[Any], Any]

#: Seconds that replay at recorded speed waits at most for one item: an archive may say anything.
_LONGEST = 3600


class _Log:
    """What a stream yielded so far; ends in one record, whoever ends it first."""

    def __init__(self, capture: Capture, attribute: Literal["sync", "async"]) -> None:
        self._capture = capture
        self._attributes = {"stream": attribute}
        self._items: list[Any] = []
        self._offsets: list[int] = []
        self._done = False
        capture.sink.running.add(self.stopped)

    def making(self) -> AbstractContextManager[None]:
        """The ``with`` block in which the source is asked for an item."""
        return self._capture

    def note(self, item: Any) -> Any:
        """Keep an item; return it as replay will give it. Raises `ValueEncodingError`."""
        try:
            plain, _ = plain_result(item)
            # The consumer may change what it gets.
            kept = plain if type(plain) in SCALARS else values.decode(values.encode(plain))
        except ReplaypackError as problem:
            self._capture.note_lost(problem)
            self.stopped()
            raise
        self._offsets.append(self._capture.elapsed())
        self._items.append(kept)
        return plain

    def _end(self) -> bool:
        done, self._done = self._done, True
        self._capture.sink.running.discard(self.stopped)
        return not done

    @property
    def _so_far(self) -> dict[str, Any]:
        return {"items": self._items, "offsets": self._offsets}

    def finished(self, returned: Any = None) -> Any:
        """The stream ended by itself. Raises as `Capture.returned` does."""
        if not self._end():
            return returned
        try:
            plain, _ = plain_result(returned)
            more = {} if plain is None else {"returned": plain}
            self._capture.append(response={**self._so_far, **more}, attributes=self._attributes)
        except ReplaypackError as problem:
            self._capture.note_lost(problem)
            raise
        return plain

    def failed(self, error: BaseException) -> None:
        """The stream ended by an exception."""
        if self._end():
            self._capture.failed(error, stream=self._so_far, attributes=self._attributes)

    def stopped(self) -> None:
        """The consumer, or the session, ended first. Never blocks: finalizers call it."""
        if self._end():
            self._capture.append_later(response=self._so_far, attributes=self._attributes, flags=("truncated",))


class _Inert:
    """The log of a stream that is not recorded."""

    def making(self) -> AbstractContextManager[None]:
        return nullcontext()

    def note(self, item: Any) -> Any:
        return item

    def finished(self, returned: Any = None) -> Any:
        return returned

    def failed(self, error: BaseException) -> None:
        pass

    def stopped(self) -> None:
        pass


Log = _Log | _Inert
Opened = tuple[Log, AsyncIterator[Any], Convert | None]


def tee(capture: Capture, source: Iterator[Any], convert: Convert | None) -> Generator[Any, Any, Any]:
    """Yield what ``source`` does, recording it."""
    # Not inside of the generator: one that is never started has to end in a record as well.
    return _tee(_Log(capture, "sync"), source, convert)


def _tee(log: _Log, source: Iterator[Any], convert: Convert | None) -> Generator[Any, Any, Any]:
    step: Callable[[], Any] = partial(next, source)
    while True:
        try:
            with log.making():
                item = step()
        except StopIteration as stop:
            return log.finished(stop.value)
        except BaseException as error:
            log.failed(error)
            raise
        try:
            given = log.note(item)
            given = given if convert is None else convert(given)
        except BaseException:
            _end(log, source)
            raise
        try:
            sent = yield given
        except GeneratorExit:
            _end(log, source)
            raise
        except BaseException as thrown:
            step = _thrown(source, "throw", thrown)
        else:
            step = partial(next, source) if sent is None else partial(source.send, sent)  # type: ignore[attr-defined]


def atee(capture: Capture, source: AsyncIterator[Any], convert: Convert | None) -> AsyncGenerator[Any, Any]:
    """Yield what ``source`` does, recording it."""
    log = _Log(capture, "async")

    async def opened() -> Opened:
        return log, source, convert

    return opening(opened)


def log_of(capture: Capture | None) -> Log:
    """The log of an asynchronous stream; one that records nothing without a capture."""
    return _Inert() if capture is None else _Log(capture, "async")


async def opening(opened: Callable[[], Awaitable[Opened]]) -> AsyncGenerator[Any, Any]:
    """Yield what the source does that ``opened`` gives when the first item is asked for."""
    log, source, convert = await opened()
    step: Callable[[], Any] = source.__anext__
    while True:
        try:
            with log.making():
                item = await step()
        except StopAsyncIteration:
            log.finished()
            return
        except BaseException as error:
            log.failed(error)
            raise
        try:
            given = log.note(item)
            given = given if convert is None else convert(given)
        except BaseException:
            await _aend(log, source)
            raise
        try:
            sent = yield given
        except GeneratorExit:
            await _aend(log, source)
            raise
        except BaseException as thrown:
            step = _thrown(source, "athrow", thrown)
        else:
            step = source.__anext__ if sent is None else partial(source.asend, sent)  # type: ignore[attr-defined]


def _thrown(source: Any, method: str, error: BaseException) -> Callable[[], Any]:
    """The step that throws into ``source``, or, where nothing can be thrown, raises."""
    throw = getattr(source, method, None)
    if throw is not None:
        return partial(throw, error)

    def raises() -> Any:
        raise error

    return raises


def _end(log: Log, source: Any) -> None:
    """Close ``source``, which is not read to its end: what that calls is inside of the stream still."""
    close = getattr(source, "close", None)
    try:
        if close is not None:
            with log.making():
                close()
    finally:
        log.stopped()


async def _aend(log: Log, source: Any) -> None:
    """`_end`."""
    # Async generators have aclose, the streams of some clients a coroutine close.
    close = getattr(source, "aclose", None) or getattr(source, "close", None)
    try:
        if close is not None:
            with log.making():
                if hasattr(closing := close(), "__await__"):
                    await closing
    finally:
        log.stopped()


# Replay


def is_stream(record: Record | Answer) -> str | None:
    """``"sync"`` or ``"async"`` for the record of a stream, else None."""
    attributes = record.head.attributes
    return attributes.get("stream") if attributes is not None else None


def _read(record: Record | Answer) -> tuple[list[Any], list[int], Any, Exception | None]:
    """Items, offsets, return value and final exception of a record; a call that was whole is a stream of one."""
    response = record.response
    error = rebuild(record.error or {}) if record.status == "error" else None
    if not is_stream(record):
        return ([], [], None, error) if error is not None else ([response], [record.head.duration], None, None)
    stream = response.get("stream") if error is not None and isinstance(response, dict) else response
    stream = stream if isinstance(stream, dict) else {}
    items, offsets = stream.get("items"), stream.get("offsets")
    if (
        not isinstance(items, list)
        or not isinstance(offsets, list)
        or len(items) != len(offsets)
        or any(type(offset) is not int or offset < 0 for offset in offsets)
    ):
        raise FormatError("the response of a stream has no items with their offsets", where=f"record {record.seq}")
    return items, offsets, stream.get("returned"), error


def play(record: Record | Answer, convert: Convert | None, *, timed: bool) -> Generator[Any, Any, Any]:
    """Yield the items of a record; ``timed`` waits for each as long as it took."""
    begin = time.perf_counter_ns()
    items, offsets, returned, error = _read(record)
    for item, offset in zip(items, offsets, strict=True):
        if timed:
            time.sleep(_until(begin, offset))
        yield item if convert is None else convert(item)
    if timed:
        time.sleep(_until(begin, record.head.duration))
    if error is not None:
        raise error
    return returned


async def aplay(record: Record | Answer, convert: Convert | None, *, timed: bool) -> AsyncGenerator[Any, Any]:
    """`play` for ``async for``."""
    import asyncio  # importing replaypack does not pay for it

    begin = time.perf_counter_ns()
    items, offsets, _, error = _read(record)
    for item, offset in zip(items, offsets, strict=True):
        if timed:
            await asyncio.sleep(_until(begin, offset))
        yield item if convert is None else convert(item)
    if timed:
        await asyncio.sleep(_until(begin, record.head.duration))
    if error is not None:
        raise error


def _until(begin: int, offset: int) -> float:
    # Integers of any size are compared first: they need not fit a float.
    return max(0, min(begin + offset - time.perf_counter_ns(), _LONGEST * 10**9)) / 1e9
