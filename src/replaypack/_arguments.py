"""Arguments of the public API, checked before anything is done with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from .errors import UsageError

__all__ = ["check_digest", "check_number", "check_text", "check_type", "names_of", "require_type"]

_DIGEST = re.compile("[0-9a-f]{64}")


def check_type(label: str, value: object, wanted: type | tuple[type, ...], what: str) -> None:
    """Raises `UsageError` unless ``value`` is None or of a type wanted; ``what`` says which, for people."""
    if value is not None:
        require_type(label, value, wanted, what)


def require_type(label: str, value: object, wanted: type | tuple[type, ...], what: str) -> None:
    """Raises `UsageError` unless ``value`` is of a type wanted; ``what`` says which, for people."""
    if not isinstance(value, wanted):
        raise UsageError(f"{label} is {what}, not {type(value).__name__}")


def check_text(label: str, value: object) -> None:
    """Raises `UsageError` unless ``value`` is None or text."""
    check_type(label, value, str, "text")


def check_number(label: str, value: object, what: str, *, least: int = 0, below: int = 1 << 63) -> None:
    """Raises `UsageError` unless ``value`` is None or an integer (no float, no bool) from ``least`` on."""
    if value is not None and (type(value) is not int or not least <= value < below):
        shown = value if isinstance(value, int | float | str) else type(value).__name__
        raise UsageError(f"{label} is {what}, not {shown!r}")


def check_digest(label: str, value: object) -> None:
    """Raises `UsageError` unless ``value`` is None or a digest: 64 lower-case hex digits."""
    if value is not None and not (isinstance(value, str) and _DIGEST.fullmatch(value)):
        shown = value[:80] if isinstance(value, str) else value
        raise UsageError(
            f"the {label} digest that is expected is not one: {shown!r}", hint="64 lower-case hexadecimal digits"
        )


def names_of(label: str, value: Any, allowed: Iterable[str] | None = None) -> frozenset[str] | None:
    """The names of a filter: one as text, or several; None for no filter.

    Raises `UsageError` for what is neither, and for a name that is not ``allowed``.
    """
    if value is None:
        return None
    if isinstance(value, str):
        value = (value,)
    try:
        names = frozenset(value)
    except TypeError:
        raise UsageError(f"{label} are names, not {type(value).__name__}") from None
    for name in names:
        check_text(f"each of {label}", name)
    unknown = names.difference(allowed) if allowed is not None else ()
    if unknown:
        raise UsageError(f"{label}: {', '.join(map(repr, sorted(unknown)))} is not one of {', '.join(allowed or ())}")
    return names
