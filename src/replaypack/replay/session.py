"""`ReplaySession`: calls that are made and recorded, or answered from a recording."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from contextvars import Token, copy_context
from inspect import iscoroutinefunction
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, cast

from replaypack._arguments import require_type
from replaypack._escape import counted
from replaypack._process import process_id
from replaypack._threads import in_thread
from replaypack.archive import Archive
from replaypack.errors import PurgedError, ReplaypackError, SessionClosedError, UnplayedRecordsError, UsageError
from replaypack.format.row import FLAGS, Row
from replaypack.policies.matching import MatchSpec
from replaypack.recording import Record, Recording

from ._calls import Calls, name_of
from ._capture import Capture, Sink, is_empty, is_inside
from ._context import CURRENT, leave, made_by, scope_of, scoped
from ._cursor import Answer, Cursor
from ._functions import wrapped
from ._misses import mismatch
from ._source import Source
from .modes import BoundaryKind, ReplayFallback, ReplayMode, kind_of, member, silent_kinds

if TYPE_CHECKING:
    import asyncio

    from replaypack._learn import LearnedSecret

    from .mismatch import Explanation

__all__ = ["ReplaySession"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")

#: Records that an error about unplayed ones names.
_NAMED = 3
#: Options that say how a recording is opened, for which it is too late where it is open.
_OPENING = ("revision", "storage_options", "expect_digest", "expect_manifest", "match")


class ReplaySession(Calls):
    """One run of a program whose calls are recorded, or answered from a recording. A context manager.

    ``mode`` is a `ReplayMode`. ``archive`` is an `Archive`, or the URL or path of one, with the ``name`` of the
    recording; or a locator, ``URL#name`` or ``URL#name@revision``, without. Without any the session is in memory:
    `replayed` plays it. ``storage_options``, ``expect_digest`` and ``expect_manifest`` are those of `open`;
    ``metadata``, ``base``, ``if_exists`` and further options those of `Archive.recorder`. ``match`` is the match policy
    to record with; a recording that is replayed has its own, which another one given here overrides.

    ``on_missing`` (``"error"`` or ``"live"``) says what happens to a call that was never recorded,
    ``on_exhausted`` (``"error"``, ``"last"``, ``"live"``) to one that was asked more often than recorded. A call
    made live is recorded in a new revision, flagged ``live_fallback``, and never answers in this session.
    ``strict`` fails at the end of a ``with`` block where records were left unplayed. ``answer_truncated`` lets
    streams answer that were not read to their end. ``speed="recorded"`` replays streams as fast as they came.
    ``kinds`` declares user kinds that never answer: ``{"checkpoint": False}``.

    Nothing is opened before the ``with`` block, or the first call. A session may be used from many threads and
    tasks, not in a fork. Leaving the block seals what was recorded; leaving it by an exception seals it as
    ``incomplete``. Inside the block the session is the current one (`current_session`).

    Raises `UsageError` for arguments that contradict each other.
    """

    def __init__(
        self,
        mode: ReplayMode | Literal["live", "record", "replay", "auto"] = ReplayMode.AUTO,
        archive: Archive | str | os.PathLike[str] | None = None,
        name: str | None = None,
        *,
        revision: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        expect_digest: str | None = None,
        expect_manifest: str | None = None,
        on_missing: ReplayFallback | Literal["error", "live"] = ReplayFallback.ERROR,
        on_exhausted: ReplayFallback | Literal["error", "last", "live"] = ReplayFallback.ERROR,
        strict: bool = False,
        answer_truncated: bool = False,
        speed: Literal["instant", "recorded"] = "instant",
        kinds: Mapping[str, bool] | None = None,
        metadata: Mapping[str, Any] | None = None,
        base: str | Collection[str] | None = None,
        if_exists: Literal["error", "append", "replace"] = "error",
        match: MatchSpec = None,
        **recorder: Any,
    ) -> None:
        self._mode = member(ReplayMode, "mode", mode)
        self._on_missing = member(ReplayFallback, "on_missing", on_missing)
        self._on_exhausted = member(ReplayFallback, "on_exhausted", on_exhausted)
        if self._on_missing is ReplayFallback.LAST:
            raise UsageError("on_missing='last': what is missing has no last answer", hint="on_exhausted='last'")
        if speed not in ("instant", "recorded"):
            raise UsageError(f"speed={speed!r} is not 'instant' or 'recorded'")
        self._silent = silent_kinds(kinds)
        self._strict = strict
        self._answer_truncated = answer_truncated
        self._timed = speed == "recorded"
        self._source: Source | None = None
        if archive is not None or self._mode is not ReplayMode.LIVE:
            self._source = Source(
                archive,
                name,
                revision=revision,
                storage_options=storage_options,
                reading={"expect_digest": expect_digest, "expect_manifest": expect_manifest, "match": match},
                recording={"metadata": metadata, "base": base, "if_exists": if_exists, "match": match, **recorder},
            )
            if self._source.in_memory and self._mode is ReplayMode.REPLAY:
                raise UsageError("there is nothing to replay", hint="name a recording, or use `from_recording`")
        self._lock = threading.Lock()
        self._pid = process_id()
        self._ready = False
        self._closed = False
        self._token: Token[ReplaySession | None] | None = None
        self._recording: Recording | None = None
        self._cursor: Cursor | None = None
        self._inside: Cursor | None = None
        self._sink: Sink | None = None
        self._misses: dict[tuple[bytes, str | None], int] = {}
        self._last: Record | Answer | None = None

    @classmethod
    def from_recording(cls, recording: Recording, **options: Any) -> Self:
        """A session that replays a recording that is open already, and stays open.

        Secrets that the one knows are known to the other from then on. Raises `UsageError`, also for an option that
        says how to open a recording.
        """
        require_type("recording", recording, Recording, "a Recording")
        opening = [name for name in _OPENING if options.get(name) is not None]
        if opening:
            raise UsageError(
                f"the recording is open already: {', '.join(opening)} cannot be given", hint="give them to `open`"
            )
        archive = Archive(recording.storage.url, storage=recording.storage)
        session = cls(ReplayMode.REPLAY, archive, recording.name, **options)
        assert session._source is not None
        session._source.share_secrets(recording)
        session._recording = recording
        return session

    def replayed(self, **options: Any) -> Self:
        """A session that replays what this one recorded, which is over."""
        if self._source is None or self.mode is ReplayMode.LIVE:
            raise UsageError("a live session has no recording to replay")
        if not self._closed:
            raise UsageError("the session is not over yet", hint="replay it after its `with` block, or `close()`")
        return type(self)(ReplayMode.REPLAY, self._source.again(), self._source.name, **options)

    def __repr__(self) -> str:
        where = self._source.locator if self._source is not None else "nothing"
        recording = self._recording
        note = f", match policy overridden: {recording.match}" if recording and recording.match_overridden else ""
        return f"<ReplaySession {self.mode.value} of {where}{note}{', closed' if self._closed else ''}>"

    # What it is

    @property
    def mode(self) -> ReplayMode:
        """What it does; ``auto`` until it is open, then what that came to."""
        return self._mode

    @property
    def locator(self) -> str | None:
        """``URL#name`` of the recording; None for a live session without an archive."""
        return self._source.locator if self._source is not None else None

    @property
    def recording(self) -> Recording:
        """The recording that is replayed; in the other modes what was recorded, once the session is over.

        Raises `UsageError` where there is none.
        """
        if self._recording is None:
            if self._source is None or not self._closed:
                raise UsageError("the session has no recording yet", hint="it has one after its `with` block")
            self._recording = self._source.again().open(self._source.name)
        return self._recording

    @property
    def scope_label(self) -> str | None:
        """The scope that a call made here would have."""
        return scope_of(self)

    def note(self, kind: str, name: str | None = None, data: Any = None) -> None:
        """Record an event that answers nothing: an interrupt, a snapshot, the begin or end of something.

        Only a recording session does. The record's identity is ``{"name": name}``, its response ``data``.
        Raises `UsageError` for a kind that answers.
        """
        self._open()
        kind = kind_of(kind)
        if kind not in self._silent:
            raise UsageError(
                f"records of kind {kind!r} answer calls", hint=f"call it, or declare kinds={{{kind!r}: False}}"
            )
        if self._sink is not None and self._cursor is None:
            self._sink.append(kind=kind, name=name, identity={"name": name}, response=data, scope=scope_of(self))

    def wrap(
        self,
        function: Callable[_P, _R],
        *,
        name: str | None = None,
        kind: str = BoundaryKind.TOOL,
        ignore: Collection[str] = (),
        identity: Callable[..., Any] | None = None,
        returns: Any = None,
    ) -> Callable[_P, _R]:
        """A function, coroutine function, generator function or asynchronous one, whose calls go through the session.

        The identity of a call is ``{"name": …, "args": {parameter: value}}``, defaults included, so that ``f(1)`` and
        ``f(x=1)`` are one call. ``name`` is the function's own, with that of its class, by default. A first parameter
        called ``self`` or ``cls`` is left out, and so are those that ``ignore`` names. ``identity``, called as the
        function is, returns what takes the place of ``args``. ``returns`` is that of `call`; a return annotation that
        names a dataclass, a msgspec Struct or a pydantic model is one. Raises `UsageError`.
        """
        return wrapped(function, lambda: self, name=name, kind=kind, ignore=ignore, identity=identity, returns=returns)

    # Scopes and threads

    def scope(self, label: str) -> AbstractContextManager[str]:
        """In the ``with`` block calls carry a label, and are answered by records that carry it.

        Records without a scope answer where none of the scope has such a call. A scope inside of a scope is
        ``outer/inner``. Tasks that are started in the block inherit it; `bind` takes it to a thread.

        Raises `UsageError` for what is no label, and on entry `ValueEncodingError` for one that cannot be stored.
        """
        require_type("scope", label, str, "text")
        if not label:
            raise UsageError("a scope needs a label")
        return scoped(self, label)

    def bind(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """``function`` for another thread: called there, it finds this session, the scope that is set here, and the
        call that this is inside of.

        A coroutine function too, for an event loop that runs there.
        """
        context = copy_context()
        context.run(CURRENT.set, self)
        if iscoroutinefunction(function):

            async def abound(*args: _P.args, **kwargs: _P.kwargs) -> Any:
                from asyncio import create_task  # importing replaypack does not pay for it

                return await create_task(function(*args, **kwargs), context=context.copy())

            return cast("Callable[_P, _R]", abound)

        def bound(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            # A context runs in one thread at a time.
            return context.copy().run(function, *args, **kwargs)

        return bound

    # What is left

    def unplayed(self) -> list[Record]:
        """The records that could have answered and did not yet, in recording order. Empty unless replaying."""
        if not self._closed:
            self._open()
        return list(self._cursor.unplayed()) if self._cursor is not None else []

    def explain(self, kind: str, identity: Any) -> Explanation:
        """What a call is compared with when it has no answer: the nearest recorded requests, and where they differ.

        Nothing is played. Raises `UsageError` unless the session is replaying.
        """
        self._open()
        if self._cursor is None:
            raise UsageError("only a replaying session has recorded calls to compare with")
        scope, kind = scope_of(self), kind_of(kind)
        key = self.recording.key_of(kind, identity)
        return self._explain(kind, identity, name_of(identity), key, scope, self._cursor.played(key, scope))

    def learn_secret(self, *secrets: str | bytes) -> LearnedSecret:
        """Remove these values from here on: from what is recorded, and from calls before they are answered.

        What this session recorded and did not publish yet is written anew without them; of the rest the result and a
        `ReplaypackWarning` tell, as of `Recorder.learn_secret`, which see. Where nothing is recorded there is nothing
        to tell. Raises as that does.
        """
        from replaypack._learn import LearnedSecret

        self._open()
        with self._lock:
            cursor, sink = self._cursor, self._sink
            if self._source is not None:
                self._source.learn_secret(secrets)
            if cursor is not None:
                cursor.learn_secret(*secrets)
        if sink is None:
            return LearnedSecret(0, [], False, [])
        sink.drain()
        return sink.recorder.learn_secret(*secrets)

    # Opening and closing

    def flush(self) -> None:
        """Publish what was recorded so far. Raises as `Recorder.flush` does."""
        if self._sink is not None:
            self._sink.drain()
            self._sink.recorder.flush()

    def close(self) -> None:
        """End the session: what was recorded is sealed. Raises as `Recorder.seal` does."""
        self._close(None, None, None)

    async def aflush(self) -> None:
        """`flush`, without blocking the event loop."""
        await in_thread(self.flush)

    async def aclose(self) -> None:
        """`close`, without blocking the event loop."""
        await in_thread(self.close)

    def __enter__(self) -> Self:
        self._enter()
        self._open()
        self._token = CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            leave(self._token, self)
        self._end(kind, error, trace)

    async def __aenter__(self) -> Self:
        self._enter()
        await in_thread(self._open)
        self._token = CURRENT.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            leave(self._token, self)
        await in_thread(self._end, kind, error, trace)

    def _enter(self) -> None:
        if self._token is not None:
            self._refuse_closed()
            raise UsageError("the session is entered already")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SessionClosedError(f"the session of {self.locator} is over", hint="open another one")

    def _open(self) -> None:
        if self._ready and self._pid == process_id() and not self._closed:
            return
        if self._pid != process_id():
            # Before the lock, which another thread may have held when the process was forked.
            raise SessionClosedError("a session cannot be used in a forked process", hint="open one there")
        with self._lock:
            self._refuse_closed()
            if self._ready:
                return
            source, mode = self._source, self._mode
            if mode is not ReplayMode.LIVE:
                assert source is not None
                if self._recording is None and mode is ReplayMode.AUTO and not source.in_memory:
                    self._recording = source.find()
                elif self._recording is None and mode is ReplayMode.REPLAY:
                    self._recording = source.open()
                if self._recording is not None:
                    self._mode = ReplayMode.REPLAY
                    self._cursor = Cursor(self._recording, answers=self._answers)
                else:
                    self._mode = ReplayMode.RECORD
                    self._sink = Sink(source.record())
            self._ready = True

    def _end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        unplayed: list[Record] = []
        if self._strict and error is None and self._cursor is not None and not self._closed:
            unplayed = list(self._cursor.unplayed())
        self._close(kind, error, trace)
        if unplayed:
            named = ", ".join(f"record {r.seq} ({r.kind} {r.name!r})" for r in islice(unplayed, _NAMED))
            more = f" and {len(unplayed) - _NAMED} more" if len(unplayed) > _NAMED else ""
            hint = None
            if self._misses:
                # An agent's loop may have taken them for failures of its tools.
                hint = f"calls without an answer: {sum(self._misses.values())}; were their errors caught?"
            raise UnplayedRecordsError(
                f"{counted(len(unplayed), 'record')} of {self.locator} not played: {named}{more}",
                count=len(unplayed),
                hint=hint,
            )

    def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid != process_id():
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            if self._sink is not None:
                try:
                    self._sink.finish()
                except ReplaypackError as problem:
                    if error is None:
                        raise
                    # The error that ended the block matters more.
                    error.add_note(f"replaypack: {problem}")
                finally:
                    self._sink.recorder.__exit__(kind, error, trace)
        finally:
            if self._source is not None:
                self._source.close()

    # One call

    def _begin(self, kind: str, identity: Any, name: str | None) -> Record | Answer | Capture | None:
        if not self._ready or self._closed or self._pid != process_id():
            if self._mode is ReplayMode.LIVE:
                return None
            self._open()
        if type(kind) is not str:
            kind = kind_of(kind)
        if kind in self._silent:
            raise UsageError(f"{kind} records answer no calls", hint="record them with `session.note`")
        cursor, sink = self._cursor, self._sink
        scope = scope_of(self)
        if cursor is not None and sink is not None and (outer := made_by(sink)):
            inside = None if any(call.once_more for call in outer) else self._take_inside(kind, identity, scope)
            return inside if inside is not None else sink.begin(kind, identity, name or name_of(identity), scope)
        if cursor is not None:
            record = cursor.take_next(kind, identity, scope)
            if record is None:
                key = cursor.recording.key_of(kind, identity)
                try:
                    record = cursor.take(key, scope)
                except PurgedError as purged:
                    return self._missed(kind, identity, name, key, scope, purged)
                if record is None:
                    return self._missed(kind, identity, name, key, scope)
            self._last = record
            return record
        if sink is None:
            return None
        if name is None:
            name = name_of(identity)
        return sink.begin(kind, identity, name, scope)

    async def _abegin(self, kind: str, identity: Any, name: str | None) -> Record | Answer | Capture | None:
        source = self._source
        if source is not None and source.blocks and (self._cursor is not None or not self._ready):
            import asyncio  # importing replaypack does not pay for it

            step = asyncio.ensure_future(in_thread(self._begin, kind, identity, name))
            try:
                return await asyncio.shield(step)
            except asyncio.CancelledError:
                # The thread goes on. The answer that it takes is for the next call, which must not come before.
                step.add_done_callback(self._give_back)
                while not step.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([step])
                raise
        return self._begin(kind, identity, name)

    def _take_inside(self, kind: str, identity: Any, scope: str | None) -> Record | Answer | None:
        """What answers inside of a call that is made live, because it was never recorded: what was recorded so, too.

        A run that was cut off goes on where it was.
        """
        with self._lock:
            if self._inside is None:
                assert self._recording is not None
                self._inside = Cursor(self._recording, answers=lambda row: is_inside(row) and self._is_whole(row))
        try:
            return self._inside.take(self._inside.recording.key_of(kind, identity), scope)
        except PurgedError:
            return None

    def _give_back(self, step: asyncio.Future[Record | Answer | Capture | None]) -> None:
        if not step.cancelled() and step.exception() is None and isinstance(record := step.result(), Record | Answer):
            cursor = self._inside if is_inside(record.head) else self._cursor
            assert cursor is not None
            cursor.give_back(record)

    def _missed(
        self,
        kind: str,
        identity: Any,
        name: str | None,
        key: bytes,
        scope: str | None,
        purged: PurgedError | None = None,
    ) -> Record | Capture:
        cursor = self._cursor
        assert cursor is not None
        recorded = cursor.recorded(key, scope)
        # What was purged is missing, however many others there are.
        exhausted = bool(recorded) and purged is None
        policy = self._on_exhausted if exhausted else self._on_missing
        if policy is ReplayFallback.LAST and (last := cursor.last(key, scope)) is not None:
            return last
        if name is None:
            name = name_of(identity)
        if policy is ReplayFallback.LIVE:
            return self._live_sink().begin(kind, identity, name, scope, once_more=exhausted)
        if purged is not None:
            explanation = self._explain(kind, identity, name, key, scope, cursor.played(key, scope) - 1, purged)
            raise mismatch(cursor.recording, explanation, recorded=recorded, asked=explanation.played + 1) from purged
        with self._lock:
            misses = self._misses[key, scope] = self._misses.get((key, scope), 0) + 1
        explanation = self._explain(kind, identity, name, key, scope, recorded)
        raise mismatch(cursor.recording, explanation, recorded=recorded, asked=recorded + misses)

    def _live_sink(self) -> Sink:
        with self._lock:
            if self._sink is None:
                assert self._source is not None
                assert self._recording is not None
                self._sink = Sink(self._source.extend(self._recording), flags=("live_fallback",))
            return self._sink

    def _explain(
        self,
        kind: str,
        identity: Any,
        name: str | None,
        key: bytes,
        scope: str | None,
        played: int,
        purged: PurgedError | None = None,
    ) -> Explanation:
        from .mismatch import explain  # only what went wrong needs it

        assert self._cursor is not None
        return explain(
            self._cursor.recording,
            kind,
            identity,
            name=name,
            scope=scope,
            near=self._last.seq if self._last is not None else 0,
            played=played,
            answers=lambda record: self._answers(record.head),
            able=self._cursor.recorded(key, scope),
            purged=purged,
        )

    def _answers(self, row: Row) -> bool:
        return self._is_whole(row) and (row.attributes is None or not is_inside(row))

    def _is_whole(self, row: Row) -> bool:
        if row.status > 1 or row.kind in self._silent or is_empty(row):
            return False
        return self._answer_truncated or not row.flags & _TRUNCATED


_TRUNCATED = FLAGS["truncated"]
