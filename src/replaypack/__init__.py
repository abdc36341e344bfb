"""replaypack: a content-addressed archive format for replay recordings of LLM and agent runs."""

from __future__ import annotations

__version__ = "0.1.0"

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
    "call",
    "canonical_json",
    "current_session",
    "key_digest",
    "open",
    "tool",
]
