"""Coroutine twins: the same call in a thread, so that no event loop is blocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["in_thread"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
    """Return ``function(*arguments, **options)``, called in a thread."""
    import asyncio  # importing replaypack does not pay for it

    return await asyncio.to_thread(function, *arguments, **options)
