"""Auditing: is everything there, and is it what was recorded?"""

from __future__ import annotations

from ._faults import FAULTS, LEVELS, Fault, Level, Progress
from .rekey import Rekeyed, rekey
from .salvage import Lost, Salvage, SalvagedRecording, salvage
from .scan import Finding, scan
from .verify import verify_archive, verify_recording, verify_revisions

__all__ = [
    "FAULTS",
    "LEVELS",
    "Fault",
    "Finding",
    "Level",
    "Lost",
    "Progress",
    "Rekeyed",
    "Salvage",
    "SalvagedRecording",
    "rekey",
    "salvage",
    "scan",
    "verify_archive",
    "verify_recording",
    "verify_revisions",
]
