"""The calls that a session takes: each is made and recorded, or answered, as the session decides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterable, Mapping
from inspect import iscoroutine
from typing import Any, NoReturn, TypeVar

from replaypack._arguments import require_type
from replaypack.errors import UsageError
from replaypack.recording import Record

from ._capture import PLAIN, Capture
from ._convert import converter
from ._cursor import Answer
from ._streams import Opened, aplay, atee, is_stream, log_of, opening, play, tee
from .failures import rebuild
from .modes import BoundaryKind

__all__ = ["Calls", "name_of"]

_T = TypeVar("_T")
_TOOL, _MODEL = str(BoundaryKind.TOOL), str(BoundaryKind.MODEL)


class Calls(ABC):
    """What is the same for every call; `ReplaySession` says what is to be done for one."""

    _timed: bool

    @abstractmethod
    def _begin(self, kind: str, identity: Any, name: str | None) -> Record | Answer | Capture | None:
        """What to do for a call: give the answer of a record, or make it and capture it, or (None) just make it."""

    @abstractmethod
    async def _abegin(self, kind: str, identity: Any, name: str | None) -> Record | Answer | Capture | None:
        """`_begin`, without blocking the event loop."""

    def tool(self, name: str, args: Any, call: Callable[[], _T], *, returns: Any = None) -> _T:
        """Call a tool: ``call()``, or its recorded answer. The identity is ``{"name": name, "args": args}``.

        See `call` for everything else.
        """
        _check_tool(name)
        return self.call(_TOOL, {"name": name, "args": args}, call, name=name, returns=returns)

    async def atool(self, name: str, args: Any, call: Callable[[], Awaitable[_T]], *, returns: Any = None) -> _T:
        """`tool` with a function to be awaited."""
        _check_tool(name)
        return await self.acall(_TOOL, {"name": name, "args": args}, call, name=name, returns=returns)

    def model(
        self, identity: str | Mapping[str, Any], request: Any, call: Callable[[], _T], *, returns: Any = None
    ) -> _T:
        """Call a model. ``identity`` is its name, or a mapping of ``model`` and every option besides the request.

        The identity of the call is ``{"model": …, options…, "request": request}``. See `call` for everything else.
        """
        whole = _model_identity(identity, request)
        return self.call(_MODEL, whole, call, name=_name_in(whole, "model"), returns=returns)

    async def amodel(
        self, identity: str | Mapping[str, Any], request: Any, call: Callable[[], Awaitable[_T]], *, returns: Any = None
    ) -> _T:
        """`model` with a function to be awaited."""
        whole = _model_identity(identity, request)
        return await self.acall(_MODEL, whole, call, name=_name_in(whole, "model"), returns=returns)

    def call(
        self, kind: str, identity: Any, call: Callable[[], _T], *, name: str | None = None, returns: Any = None
    ) -> _T:
        """Call what lies behind a boundary: ``call()``, recorded, or the recorded answer.

        ``identity`` is everything that tells one call from another; it is keyed and taken down before the call.
        ``name`` is for people; it comes from the identity's ``"name"`` or ``"model"`` where it has such a text.

        What comes back is plain data by the table of spec chapter 02, the same while recording and replaying
        (tuples as lists, models as maps). ``returns`` is a type to be made of it, or a function of the plain value.
        An iterator that comes back is recorded as it is read. An exception is recorded and raised on.

        Raises `ReplayMismatch` where replay has no answer; `ValueEncodingError` or `CanonicalizationError` (with
        the path) for what cannot be stored, which for a result is after the call; `UsageError` for a kind that does
        not answer; what `Archive.open`, `Archive.recorder` and `Recorder.append` raise.
        """
        if not callable(call):
            _refuse(call)
        step = self._begin(kind, identity, name)
        if type(step) is Answer and returns is None:
            return step.response  # type: ignore[no-any-return]
        if step is None:
            return call()
        if not isinstance(step, Capture):
            return self._answer(step, returns)  # type: ignore[no-any-return]
        try:
            with step:
                result = call()
        except BaseException as error:
            step.failed(error)
            raise
        return self._outcome(step, result, returns)  # type: ignore[no-any-return]

    async def acall(
        self,
        kind: str,
        identity: Any,
        call: Callable[[], Awaitable[_T]],
        *,
        name: str | None = None,
        returns: Any = None,
    ) -> _T:
        """`call` with a function to be awaited."""
        if not callable(call):
            _refuse(call)
        step = await self._abegin(kind, identity, name)
        if step is None:
            return await call()
        if not isinstance(step, Capture):
            return self._answer(step, returns)  # type: ignore[no-any-return]
        try:
            with step:
                result = await call()
        except BaseException as error:
            step.failed(error)
            raise
        return self._outcome(step, result, returns)  # type: ignore[no-any-return]

    def stream(
        self,
        kind: str,
        identity: Any,
        call: Callable[[], Iterable[_T]],
        *,
        name: str | None = None,
        returns: Any = None,
    ) -> Generator[_T, Any, Any]:
        """Iterate over what ``call()`` yields, recording it, or over what was recorded.

        Everything, the key too, waits for the first item to be asked for. ``returns`` is for each item. An answer
        that was recorded whole is a stream of one item.
        """
        if not callable(call):
            _refuse(call)
        step = self._begin(kind, identity, name)
        if step is None:
            return (yield from call())
        convert = converter(returns)
        if not isinstance(step, Capture):
            return (yield from play(step, convert, timed=self._timed))
        try:
            with step:
                source = iter(call())
        except BaseException as error:
            step.failed(error)
            raise
        return (yield from tee(step, source, convert))

    def astream(
        self,
        kind: str,
        identity: Any,
        call: Callable[[], AsyncIterable[_T]],
        *,
        name: str | None = None,
        returns: Any = None,
    ) -> AsyncGenerator[_T, Any]:
        """`stream` for ``async for``."""

        async def opened() -> Opened:
            if not callable(call):
                _refuse(call)
            step = await self._abegin(kind, identity, name)
            if step is None:
                return log_of(None), aiter(call()), None
            convert = converter(returns)
            if not isinstance(step, Capture):
                return log_of(None), aplay(step, convert, timed=self._timed), None
            try:
                with step:
                    source = aiter(call())
            except BaseException as error:
                step.failed(error)
                raise
            return log_of(step), source, convert

        return opening(opened)

    def _answer(self, record: Record | Answer, returns: Any) -> Any:
        if type(record) is not Answer:
            row = record.head
            if row.attributes is not None and (stream := is_stream(record)) is not None:
                return (aplay if stream == "async" else play)(record, converter(returns), timed=self._timed)
            if row.status:
                raise rebuild(record.error or {})
        convert = None if returns is None else converter(returns)
        return record.response if convert is None else convert(record.response)

    def _outcome(self, capture: Capture, result: Any, returns: Any) -> Any:
        convert = None if returns is None else converter(returns)
        cls = type(result)
        if cls not in PLAIN:
            if hasattr(cls, "__anext__"):
                return atee(capture, result, convert)
            if hasattr(cls, "__next__"):
                return tee(capture, result, convert)
            if hasattr(cls, "__await__"):
                if hasattr(result, "close"):
                    result.close()
                raise UsageError("the call returned something to be awaited", hint="use acall, atool or amodel")
        plain = capture.returned(result)
        return plain if convert is None else convert(plain)


def _refuse(call: object) -> NoReturn:
    """Before anything is recorded: what is no function would be taken down as a failure of the tool."""
    if iscoroutine(call):
        call.close()
    raise UsageError(
        f"the call is a function without arguments, not {type(call).__name__}",
        hint="it is made only where nothing answers: write `lambda: f(x)`, not `f(x)`",
    )


def _check_tool(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise UsageError("a tool has a name, which is text")


def _model_identity(identity: str | Mapping[str, Any], request: Any) -> dict[str, Any]:
    if isinstance(identity, str):
        return {"model": identity, "request": request}
    require_type("identity", identity, Mapping, "the name of a model, or a mapping of it and the options")
    if "model" not in identity or "request" in identity:
        raise UsageError("the identity of a model call has the entry 'model', and no entry 'request'")
    return {**identity, "request": request}


def _name_in(identity: Any, entry: str) -> str | None:
    name = identity.get(entry) if type(identity) is dict else None
    return name if type(name) is str else None


def name_of(identity: Any) -> str | None:
    """The name that an identity has for people."""
    return _name_in(identity, "name") or _name_in(identity, "model")
