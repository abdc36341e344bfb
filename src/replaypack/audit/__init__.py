"""Auditing: is everything there, and is it what was recorded?"""

from __future__ import annotations

from ._faults import FAULTS, LEVELS, Fault, Level, Progress
from .gc import Amount, Collected, Unreadable, gc
from .rekey import Rekeyed, rekey
from .scan import Finding, scan
from .verify import verify_archive, verify_recording, verify_revisions

__all__ = [
    "FAULTS",
    "LEVELS",
    "Amount",
    "Collected",
    "Fault",
    "Finding",
    "Level",
    "Progress",
    "Rekeyed",
    "Unreadable",
    "gc",
    "rekey",
    "scan",
    "verify_archive",
    "verify_recording",
    "verify_revisions",
]
