"""The words of a session: what it does, what it does on a miss, and which boundary a call crosses."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from replaypack._arguments import check_type, require_type
from replaypack.errors import UsageError

__all__ = ["ATTRIBUTION", "BoundaryKind", "ReplayFallback", "ReplayMode", "kind_of", "member", "silent_kinds"]

_E = TypeVar("_E", bound=StrEnum)


class ReplayMode(StrEnum):
    """What a session does with a call."""

    LIVE = "live"
    """Makes it, and records nothing."""
    RECORD = "record"
    """Makes it, and records it."""
    REPLAY = "replay"
    """Answers it from the recording."""
    AUTO = "auto"
    """``record`` where the recording does not exist, else ``replay``."""


class ReplayFallback(StrEnum):
    """What a replaying session does with a call that has no answer left."""

    ERROR = "error"
    """Raises `ReplayMismatch`."""
    LAST = "last"
    """Gives the last answer once more; of calls that were recorded at all."""
    LIVE = "live"
    """Makes the call, and records it in a new revision."""


class BoundaryKind(StrEnum):
    """The kinds of records with a meaning of their own. Any other text is a kind as well."""

    TOOL = "tool"
    MODEL = "model"
    HTTP = "http"
    INTERRUPT = "interrupt"
    SNAPSHOT = "snapshot"
    LIFECYCLE = "lifecycle"


#: Kinds that say where a run was and never answer a call.
ATTRIBUTION: Final = frozenset({BoundaryKind.INTERRUPT, BoundaryKind.SNAPSHOT, BoundaryKind.LIFECYCLE})


def member(enum: type[_E], label: str, value: str) -> _E:
    """The member of an enum that ``value`` names. Raises `UsageError`."""
    try:
        return enum(value)
    except ValueError:
        raise UsageError(f"{label}={value!r} is not one of {', '.join(enum)}") from None


def kind_of(kind: str) -> str:
    """A kind as plain text. Raises `UsageError` for what is no text."""
    require_type("kind", kind, str, "text")
    return str(kind)


def silent_kinds(kinds: Mapping[str, bool] | None) -> frozenset[str]:
    """The kinds that never answer: those of the format, and those declared so. Raises `UsageError`."""
    check_type("kinds", kinds, Mapping, "a mapping of kinds to whether they answer")
    silent = set(map(str, ATTRIBUTION))
    for kind, answers in (kinds or {}).items():
        require_type("each of kinds", kind, str, "text")
        if str(kind) in ATTRIBUTION and answers:
            raise UsageError(f"{kind} records are attribution and cannot answer")
        if not answers:
            silent.add(str(kind))
    return frozenset(silent)
