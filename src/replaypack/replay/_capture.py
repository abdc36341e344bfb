"""The recording side of a session: a call is taken down before it is made, and its outcome appended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from replaypack._plain import survey, to_plain
from replaypack._write.prepare import PreparedCall
from replaypack.errors import ReplaypackError
from replaypack.format.row import Row
from replaypack.recorder import Recorder
from replaypack.values import ENCODING_NONE

from ._context import MAKING, made_by
from .failures import describe

__all__ = ["INSIDE", "PLAIN", "SCALARS", "Capture", "Sink", "is_empty", "is_inside", "plain_result"]

#: What comes back from a recording as the very same value, and what may.
SCALARS = frozenset({str, int, float, bool, bytes, type(None)})
PLAIN = SCALARS | {dict, list, tuple}

#: Attributes of a call that was made inside of another one (spec/registry.md): that one answers for both.
INSIDE: Mapping[str, Any] = {"inside": True}


def is_inside(row: Row) -> bool:
    """Whether the call was made inside of another one, which answers for it."""
    return row.attributes is not None and row.attributes.get("inside") is True


def is_empty(row: Row) -> bool:
    """Whether there is nothing to give: not even null was recorded as what the call gave."""
    return row.response_encoding == ENCODING_NONE and not row.status


def plain_result(value: Any) -> tuple[Any, Any]:
    """``value`` as replay will give it, itself if it is plain data and else new, and what to hand to the recorder.

    Raises `ValueEncodingError` for what cannot be stored.
    """
    if type(value) in SCALARS:
        return value, value
    census = survey(value)
    if census.value is value and (_has_tuple(value) if census.tuples is None else census.tuples):
        return to_plain(value), census
    return census.value, census


def _has_tuple(value: Any) -> bool:
    queue = [value]
    for part in queue:
        cls = type(part)
        if cls is dict:
            queue += part.values()
        elif cls is list:
            queue += part
        elif cls is tuple:
            return True
    return False


class Sink:
    """Where outcomes go: a recorder, and what finalizers left for it.

    A generator that is dropped half way is closed by whoever drops it, be it the garbage collector inside of the
    recorder's own lock. So what a stopped stream leaves waits in ``late`` until the next call.
    """

    def __init__(self, recorder: Recorder, flags: tuple[str, ...] = ()) -> None:
        self.recorder = recorder
        self.flags = flags
        self.late: deque[dict[str, Any]] = deque()
        #: Stops each stream that is still running.
        self.running: set[Callable[[], None]] = set()

    def begin(
        self, kind: str, identity: object, name: str | None, scope: str | None, *, once_more: bool = False
    ) -> Capture:
        """Take down a call that is about to be made. Raises as `Recorder.append` does.

        ``once_more``: all that was recorded of it is played.
        """
        if self.late:
            self.drain()
        call = self.recorder.prepare_call(kind, identity, name=name)
        return Capture(self, call, scope, INSIDE if made_by(self) else None, once_more=once_more)

    def append(self, flags: Iterable[str] = (), **outcome: Any) -> None:
        """Append a record, behind those that wait."""
        if self.late:
            self.drain()
        self.recorder.append(flags=(*self.flags, *flags), **outcome)

    def append_later(self, flags: Iterable[str] = (), **outcome: Any) -> None:
        """Have a record appended by whoever comes next. Takes no lock."""
        self.late.append({"flags": (*self.flags, *flags), **outcome})

    def drain(self) -> None:
        """Append what waits."""
        while True:
            try:
                waiting = self.late.popleft()
            except IndexError:
                return
            self.recorder.append(**waiting)

    def finish(self) -> None:
        """Stop the streams that are still running, and append what waits."""
        while self.running:
            self.running.pop()()
        self.drain()


class Capture:
    """One call that is being made and recorded."""

    __slots__ = ("_attributes", "_call", "_clock", "_scope", "_start", "_token", "once_more", "over", "sink")

    def __init__(
        self,
        sink: Sink,
        call: PreparedCall,
        scope: str | None,
        attributes: Mapping[str, Any] | None = None,
        *,
        once_more: bool = False,
    ) -> None:
        self.sink = sink
        self.once_more = once_more
        self.over = False
        self._attributes = attributes
        self._call = call
        self._scope = scope
        self._start = time.time_ns()
        self._clock = time.perf_counter_ns()

    def elapsed(self) -> int:
        """Nanoseconds since the call began."""
        return time.perf_counter_ns() - self._clock

    def __enter__(self) -> None:
        """In the ``with`` block the call is made: what is called there is inside of it."""
        self._token = MAKING.set((*MAKING.get(), self))

    def __exit__(self, *_: object) -> None:
        try:
            MAKING.reset(self._token)
        except ValueError:
            pass  # a coroutine that is driven by hand was taken up in another context, which never had it

    def returned(self, result: Any) -> Any:
        """Record what came back; return it as replay will give it.

        Raises what `Recorder.append` does, noting on the error that the call itself was made.
        """
        self.over = True
        try:
            plain, response = plain_result(result)
            sink = self.sink
            if sink.late:
                sink.drain()
            # What nearly every call does, in as few steps as there can be.
            sink.recorder.append(
                call=self._call,
                response=response,
                scope=self._scope,
                start=self._start,
                duration=time.perf_counter_ns() - self._clock,
                flags=sink.flags,
                attributes=self._attributes,
            )
        except ReplaypackError as problem:
            self.note_lost(problem)
            raise
        return plain

    def failed(self, error: BaseException, *, stream: Mapping[str, Any] | None = None, **outcome: Any) -> None:
        """Record that the call raised; ``stream`` is what it yielded before. The caller goes on raising ``error``.

        Raises what `Recorder.append` does, from ``error``; not in place of an interruption, which gets a note.
        """
        described = describe(error)
        if stream is not None:
            described["stream"] = stream
        status = "error" if isinstance(error, Exception) else "interrupted"
        try:
            self.append(error=described, status=status, **outcome)
        except ReplaypackError as problem:
            self.note_lost(problem)
            if status == "error":
                raise problem from error
            error.add_note(f"replaypack: {problem}")

    def append(self, flags: Iterable[str] = (), **outcome: Any) -> None:
        """Append the record of this call, which is over. Raises as `Recorder.append` does."""
        self.sink.append(flags, **self._outcome(**outcome))

    def append_later(self, flags: Iterable[str] = (), **outcome: Any) -> None:
        """`append` for finalizers, see `Sink`."""
        self.sink.append_later(flags, **self._outcome(**outcome))

    def _outcome(self, attributes: Mapping[str, Any] | None = None, **outcome: Any) -> dict[str, Any]:
        self.over = True
        if self._attributes is not None:
            attributes = {**self._attributes, **(attributes or {})}
        times = {"start": self._start, "duration": self.elapsed()}
        return {"call": self._call, "scope": self._scope, "attributes": attributes, **times, **outcome}

    def note_lost(self, problem: ReplaypackError) -> None:
        """Say on an error of ours which call it kept from being recorded."""
        name = f" {self._call.name!r}" if self._call.name is not None else ""
        problem.add_note(f"replaypack: the {self._call.kind} call{name} was made, but could not be recorded")
