"""replaypack: a content-addressed archive format for replay recordings of LLM and agent runs."""

from __future__ import annotations

__version__ = "0.1.0"

from .archive import Archive, aopen, open
from .canonical import canonical_json, key_digest
from .errors import (
    ProjectionError,
    ReplayHydrationError,
    ReplayMissError,
    ReplaypackError,
    ReplayPersistenceError,
)
from .recorder import Recorder
from .recording import Record, Recording
from .replay.keyed import ProjectionReport, ReplayEntry, ReplayKey, ReplayStore, ScenarioReplayBuilder
from .values import ABSENT

__all__ = [
    "ABSENT",
    "Archive",
    "ProjectionError",
    "ProjectionReport",
    "Record",
    "Recorder",
    "Recording",
    "ReplayEntry",
    "ReplayHydrationError",
    "ReplayKey",
    "ReplayMissError",
    "ReplayPersistenceError",
    "ReplayStore",
    "ReplaypackError",
    "ScenarioReplayBuilder",
    "__version__",
    "aopen",
    "canonical_json",
    "key_digest",
    "open",
]
