"""Auditing: is everything there, and is it what was recorded?"""

from __future__ import annotations

from ._faults import FAULTS, LEVELS, Fault, Level, Progress
from .catalog import Cataloged, write_catalog
from .copy import Copied, CopiedRecording, copy
from .rekey import Rekeyed, rekey
from .scan import Finding, scan
from .verify import verify_archive, verify_recording, verify_revisions

__all__ = [
    "FAULTS",
    "LEVELS",
    "Cataloged",
    "Copied",
    "CopiedRecording",
    "Fault",
    "Finding",
    "Level",
    "Progress",
    "Rekeyed",
    "copy",
    "rekey",
    "scan",
    "verify_archive",
    "verify_recording",
    "verify_revisions",
    "write_catalog",
]
