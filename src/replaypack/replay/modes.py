"""The words of a session: what it does, what it does on a miss, and which boundary a call crosses."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["ATTRIBUTION", "BoundaryKind", "ReplayFallback", "ReplayMode"]


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
