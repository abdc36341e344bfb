"""Auditing: is everything there, and is it what was recorded?"""

from __future__ import annotations

from replaypack.format.proof import MAX_PROOF, Proof, check_payload, check_proof

from ._faults import FAULTS, LEVELS, Fault, Level, Progress
from ._state import Resumed
from .catalog import Cataloged, write_catalog
from .prove import prove
from .rekey import Rekeyed, rekey
from .scan import Finding, scan
from .sign import (
    SignatureObject,
    SignatureState,
    Signed,
    check_signature,
    load_private_key,
    load_public_key,
    new_key,
    sign,
    signatures,
)
from .verify import verify_archive, verify_recording, verify_revisions

__all__ = [
    "FAULTS",
    "LEVELS",
    "Cataloged",
    "MAX_PROOF",
    "Fault",
    "Finding",
    "Level",
    "Progress",
    "Proof",
    "Rekeyed",
    "Resumed",
    "SignatureObject",
    "SignatureState",
    "Signed",
    "check_payload",
    "check_proof",
    "check_signature",
    "load_private_key",
    "load_public_key",
    "new_key",
    "prove",
    "rekey",
    "scan",
    "sign",
    "signatures",
    "verify_archive",
    "verify_recording",
    "verify_revisions",
    "write_catalog",
]
