"""Captured fields and messages become objects again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from replaypack.errors import ReplayHydrationError, ReplayValueError

from .entry import ReplayEntry

__all__ = ["hydrate_answer", "hydrate_trace_messages"]

logger = logging.getLogger("replaypack.replay")

_T = TypeVar("_T")


def hydrate_answer(
    captured: ReplayEntry | Mapping[str, Any] | None,
    type_: type[_T],
    *,
    policy: Literal["fall_through", "strict"] = "fall_through",
) -> _T | None:
    """Make a ``type_`` of the ``parsed_answer_fields`` of an entry, or of the fields themselves.

    ``type_`` is a pydantic model (any class with ``model_validate``), a msgspec Struct, a dataclass or a TypedDict.
    None where no fields were captured. Where they do not fit, ``"fall_through"`` returns None, with a warning to
    the log (ask the judge again), ``"strict"`` raises `ReplayHydrationError`.
    """
    if policy not in ("fall_through", "strict"):
        raise ReplayValueError(f"policy is 'fall_through' or 'strict', not {policy!r}")
    fields = getattr(captured, "parsed_answer_fields", None) if not isinstance(captured, Mapping) else captured
    if fields is None:
        return None
    validate = getattr(type_, "model_validate", None)
    try:
        return validate(fields) if callable(validate) else msgspec.convert(fields, type_)
    # A type may refuse with any error: its validators are code of its own.
    except Exception as error:
        message = f"captured fields do not fit {getattr(type_, '__name__', type_)}: {error}"
        if policy == "strict":
            raise ReplayHydrationError(message, captured_fields=dict(fields), inner=error) from error
        logger.warning("%s", message)
        return None


def hydrate_trace_messages(
    messages: Iterable[Mapping[str, Any]] | None, factory: Callable[[dict[str, Any]], _T]
) -> list[_T] | None:
    """Make an object of each captured message by ``factory`` (say ``Message.from_dict``); None where there are none.

    Raises `ReplayHydrationError` where the factory refuses one.
    """
    if messages is None:
        return None
    made = []
    for number, message in enumerate(messages):
        try:
            made.append(factory(dict(message)))
        except Exception as error:
            raise ReplayHydrationError(
                f"trace message {number} does not become an object: {error}", captured_fields=dict(message), inner=error
            ) from error
    return made
