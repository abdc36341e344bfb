"""Auditing: is everything there, and is it what was recorded?"""

from __future__ import annotations

from ._faults import FAULTS, LEVELS, Fault, Level, Progress
from .catalog import Cataloged, write_catalog
from .purge import Purged, purge
from .rekey import Rekeyed, rekey
from .scan import Finding, scan
from .verify import verify_archive, verify_recording, verify_revisions

__all__ = [
    "FAULTS",
    "LEVELS",
    "Cataloged",
    "Fault",
    "Finding",
    "Level",
    "Progress",
    "Purged",
    "Rekeyed",
    "purge",
    "rekey",
    "scan",
    "verify_archive",
    "verify_recording",
    "verify_revisions",
    "write_catalog",
]
