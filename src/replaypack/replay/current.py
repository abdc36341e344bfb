"""The current session, and what goes through it without being handed it: nothing is recorded where there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, ParamSpec, TypeVar, overload

from ._context import CURRENT
from ._functions import wrapped
from .modes import BoundaryKind
from .session import ReplaySession

__all__ = ["acall", "call", "current_session", "tool"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


def current_session() -> ReplaySession | None:
    """The session whose ``with`` block this runs in, the innermost of several; None outside of any."""
    return CURRENT.get()


def call(kind: str, identity: Any, call: Callable[[], _T], *, name: str | None = None, returns: Any = None) -> _T:
    """`ReplaySession.call` on the current session; just ``call()`` where there is none."""
    session = CURRENT.get()
    return call() if session is None else session.call(kind, identity, call, name=name, returns=returns)


async def acall(
    kind: str, identity: Any, call: Callable[[], Awaitable[_T]], *, name: str | None = None, returns: Any = None
) -> _T:
    """`ReplaySession.acall` on the current session; just ``await call()`` where there is none."""
    session = CURRENT.get()
    if session is None:
        return await call()
    return await session.acall(kind, identity, call, name=name, returns=returns)


@overload
def tool(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    kind: str = BoundaryKind.TOOL,
    ignore: Collection[str] = (),
    identity: Callable[..., Any] | None = None,
    returns: Any = None,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    kind: str = BoundaryKind.TOOL,
    ignore: Collection[str] = (),
    identity: Callable[..., Any] | None = None,
    returns: Any = None,
) -> Any:
    """Decorate a function so that its calls go through the current session: ``@tool``, or ``@tool(name=…)``.

    Where there is no session the function is called as it is. The options are those of `ReplaySession.wrap`.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        return wrapped(function, CURRENT.get, name=name, kind=kind, ignore=ignore, identity=identity, returns=returns)

    return decorate if function is None else decorate(function)
