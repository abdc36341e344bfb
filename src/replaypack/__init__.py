"""replaypack: a content-addressed archive format for replay recordings of LLM and agent runs."""

from __future__ import annotations

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

from .archive import Archive, aopen, open
from .canonical import canonical_json, key_digest
from .errors import (
    ProjectionError,
    ReplayedError,
    ReplayHydrationError,
    ReplayMismatch,
    ReplayMissError,
    ReplaypackError,
    ReplayPersistenceError,
)
from .policies.matching import MatchPolicy
from .recorder import Recorder
from .recording import Record, Recording
from .replay.current import acall, call, current_session, tool
from .replay.keyed import ProjectionReport, ReplayEntry, ReplayKey, ReplayStore, ScenarioReplayBuilder
from .replay.modes import BoundaryKind, ReplayFallback, ReplayMode
from .replay.session import ReplaySession
from .values import ABSENT

if TYPE_CHECKING:
    from .audit.diff import assert_same, diff

__all__ = [
    "ABSENT",
    "Archive",
    "BoundaryKind",
    "MatchPolicy",
    "Record",
    "Recorder",
    "Recording",
    "ReplayFallback",
    "ReplayMismatch",
    "ReplayMode",
    "ReplaySession",
    "ReplayedError",
    "ProjectionError",
    "ProjectionReport",
    "ReplayEntry",
    "ReplayHydrationError",
    "ReplayKey",
    "ReplayMissError",
    "ReplayPersistenceError",
    "ReplayStore",
    "ReplaypackError",
    "ScenarioReplayBuilder",
    "__version__",
    "acall",
    "aopen",
    "assert_same",
    "call",
    "canonical_json",
    "current_session",
    "diff",
    "key_digest",
    "open",
    "tool",
]


def __getattr__(name: str) -> Any:
    # What a program that records or replays does not need is imported when it is asked for.
    if name in ("assert_same", "diff"):
        from .audit import assert_same, diff

        globals().update(assert_same=assert_same, diff=diff)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
