"""What travels with the flow of control: the current session, and the scope of each session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, NamedTuple

from replaypack._write.prepare import check_label

if TYPE_CHECKING:
    from ._capture import Capture, Sink
    from .session import ReplaySession

__all__ = ["CURRENT", "MAKING", "leave", "made_by", "scope_of", "scoped"]


class _Scope(NamedTuple):
    session: ReplaySession
    label: str
    outer: _Scope | None


CURRENT: ContextVar[ReplaySession | None] = ContextVar("replaypack_session", default=None)
_SCOPE: ContextVar[_Scope | None] = ContextVar("replaypack_scope", default=None)
#: The calls that this runs inside of, the outermost first.
MAKING: ContextVar[tuple[Capture, ...]] = ContextVar("replaypack_making", default=())


def made_by(sink: Sink) -> list[Capture]:
    """The calls recorded by ``sink`` in the course of which this runs: a task that outlives one is free again."""
    making = MAKING.get()
    return [call for call in making if call.sink is sink and not call.over] if making else []


def leave(token: Token[ReplaySession | None], session: ReplaySession) -> None:
    """Undo the ``CURRENT.set`` of a session."""
    try:
        CURRENT.reset(token)
    except ValueError:
        # Entered in another context (fixtures of some test frameworks do that), where it is the current one still.
        if CURRENT.get() is session:
            CURRENT.set(None)


def scope_of(session: ReplaySession) -> str | None:
    """The label that calls of a session have here."""
    scope = _SCOPE.get()
    while scope is not None and scope.session is not session:
        scope = scope.outer
    return scope.label if scope is not None else None


@contextmanager
def scoped(session: ReplaySession, label: str) -> Iterator[str]:
    """Have the calls of a session carry a label, behind the one they carry already."""
    outer = scope_of(session)
    path = label if outer is None else f"{outer}/{label}"
    check_label("scope", path)
    token = _SCOPE.set(_Scope(session, path, _SCOPE.get()))
    try:
        yield path
    finally:
        try:
            _SCOPE.reset(token)
        except ValueError:
            pass  # the block ended in another context, which never had the label
