"""Auditing: is everything there, and is it what was recorded?"""

from __future__ import annotations

from ._faults import FAULTS, LEVELS, Fault, Level, Progress
from .diff import Diff, assert_same, diff
from .rekey import Rekeyed, rekey
from .scan import Finding, scan
from .stats import ArchiveStats, RecordingStats, stats, stats_archive
from .verify import verify_archive, verify_recording, verify_revisions

__all__ = [
    "FAULTS",
    "LEVELS",
    "ArchiveStats",
    "Diff",
    "Fault",
    "Finding",
    "Level",
    "Progress",
    "RecordingStats",
    "Rekeyed",
    "assert_same",
    "diff",
    "rekey",
    "scan",
    "stats",
    "stats_archive",
    "verify_archive",
    "verify_recording",
    "verify_revisions",
]
