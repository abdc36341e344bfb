"""Auditing: is everything there, and is it what was recorded?"""

from __future__ import annotations

from replaypack.format.proof import MAX_PROOF, Proof, check_payload, check_proof

from ._faults import FAULTS, LEVELS, Fault, Level, Progress
from ._state import Resumed
from ._unnamed import Unnamed
from .catalog import Cataloged, write_catalog
from .compact import Compacted, Compaction, compact
from .copy import Copied, CopiedRecording, copy
from .diff import Diff, assert_same, diff
from .gc import Amount, Collected, Unreadable, gc
from .migrate import Migration, migrate
from .prove import prove
from .purge import Purged, purge
from .rekey import Rekeyed, rekey
from .salvage import Lost, Salvage, SalvagedRecording, salvage
from .sanitise import Removal, Sanitised, sanitise
from .scan import Finding, scan
from .sign import (
    SignatureObject,
    SignatureState,
    Signed,
    check_signature,
    detached_signature,
    load_private_key,
    load_public_key,
    new_key,
    sign,
    signatures,
)
from .stats import ArchiveStats, FailedRecording, RecordingStats, stats, stats_archive
from .verify import verify_archive, verify_recording, verify_revisions
from .zips import Wanted, Zipped, zip_recordings

__all__ = [
    "Wanted",
    "Zipped",
    "zip_recordings",
    "FAULTS",
    "LEVELS",
    "Cataloged",
    "Copied",
    "CopiedRecording",
    "MAX_PROOF",
    "ArchiveStats",
    "Diff",
    "Amount",
    "Collected",
    "Compacted",
    "Compaction",
    "FailedRecording",
    "Fault",
    "Finding",
    "Level",
    "Lost",
    "Progress",
    "Proof",
    "Rekeyed",
    "Resumed",
    "copy",
    "Salvage",
    "SalvagedRecording",
    "SignatureObject",
    "SignatureState",
    "Signed",
    "check_payload",
    "check_proof",
    "check_signature",
    "detached_signature",
    "load_private_key",
    "load_public_key",
    "new_key",
    "prove",
    "Unnamed",
    "Unreadable",
    "gc",
    "Purged",
    "purge",
    "Migration",
    "compact",
    "migrate",
    "rekey",
    "salvage",
    "sanitise",
    "scan",
    "sign",
    "signatures",
    "RecordingStats",
    "Removal",
    "Sanitised",
    "assert_same",
    "diff",
    "stats",
    "stats_archive",
    "verify_archive",
    "verify_recording",
    "verify_revisions",
    "write_catalog",
]
