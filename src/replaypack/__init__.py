"""replaypack: a content-addressed archive format for replay recordings of LLM and agent runs."""

from __future__ import annotations

__version__ = "0.1.0"

from .archive import Archive, aopen, open
from .canonical import canonical_json, key_digest
from .errors import ReplaypackError
from .policies.matching import MatchPolicy
from .recorder import Recorder
from .recording import Record, Recording
from .values import ABSENT

__all__ = [
    "ABSENT",
    "Archive",
    "MatchPolicy",
    "Record",
    "Recorder",
    "Recording",
    "ReplaypackError",
    "__version__",
    "aopen",
    "canonical_json",
    "key_digest",
    "open",
]
