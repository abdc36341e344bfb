"""Inclusion proofs: one record against the content digest (spec chapter 09, "Inclusion proofs").

A proof is one canonical JSON document. It carries the content section of the manifest, whose digest the checker
knows, and the path from the record's row to the Merkle root in it.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from replaypack.canonical import canonical_json
from replaypack.errors import CanonicalizationError, FormatError, ProofError, UsageError

from .digests import DIGEST_SIZE, digest
from .manifest_checks import content_problem
from .manifest_members import Content
from .merkle import leaf_hash, root_of_path
from .row import Row, parse_row
from .versions import CURRENT_VERSION, FORMAT, check_features, parse_document

__all__ = ["MAX_PROOF", "ROLES", "Proof", "check_payload", "check_proof", "encode_proof", "parse_proof"]

#: Readers refuse a larger proof (bytes).
MAX_PROOF = 32 << 20
#: A tree of 2^48 leaves is no deeper.
_MAX_PATH = 48
_KIND = "inclusion-proof"
_MEMBERS = {"content", "features", "format", "kind", "leaf", "path", "payloads", "row", "seq", "version"}
#: The payloads of a record, as a proof names them.
ROLES = ("request", "identity", "response")
_HEX = re.compile(r"[0-9a-f]{64}")


class Proof(msgspec.Struct, frozen=True):
    """A proof that is well formed.

    ``row_bytes`` and ``row`` are None where the record was purged: then the proof shows its leaf alone.
    ``content_digest`` (64 hex digits) is that of the content section in the proof, whatever it is worth.
    """

    content: Content
    content_digest: str
    seq: int
    leaf: bytes
    row_bytes: bytes | None
    row: Row | None
    path: tuple[bytes, ...]
    payloads: dict[str, bytes]


def encode_proof(
    content: Content,
    seq: int,
    leaf: bytes,
    row: bytes | None,
    path: Sequence[bytes],
    payloads: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return the document. Raises `UsageError` where it is larger than a reader takes (`MAX_PROOF`)."""
    document = {
        "content": msgspec.to_builtins(content),
        "features": [],
        "format": FORMAT,
        "kind": _KIND,
        "leaf": leaf.hex(),
        "path": [node.hex() for node in path],
        "payloads": {role: b64encode(data).decode() for role, data in (payloads or {}).items()},
        "row": b64encode(row).decode() if row is not None else None,
        "seq": seq,
        "version": CURRENT_VERSION,
    }
    data = canonical_json(document)
    if len(data) > MAX_PROOF:
        hint = "leave the payloads out; they can be checked as files" if payloads else None
        raise UsageError(f"the proof would take {len(data)} bytes, more than {MAX_PROOF}", hint=hint)
    return data


def parse_proof(data: bytes, *, where: str = "proof") -> Proof:
    """Take a proof apart and check its form; `check_proof` says what it shows.

    Raises `FormatError`; its reason says whether the document is newer, malformed or corrupted.
    """
    if len(data) > MAX_PROOF:
        raise FormatError(f"a proof of {len(data)} bytes is over the limit of {MAX_PROOF}", where=where)
    document = parse_document(data, where=where)
    try:
        canonical = canonical_json(document) == data
        content_digest = digest(canonical_json(document.get("content"))).hex()
    except CanonicalizationError as error:
        raise FormatError(f"not canonical JSON: {error}", where=where) from None
    if not canonical:
        raise FormatError("not canonical JSON", where=where)
    check_features(document, where=where)
    if set(document) != _MEMBERS or document["kind"] != _KIND:
        raise FormatError("no inclusion proof: it has other members than version 1 defines", where=where)
    try:
        content = msgspec.convert(document["content"], Content)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FormatError(f"the content section has an unsound member: {error}", where=where) from None
    problem = content_problem(content)
    if problem:
        raise FormatError(problem, where=where)
    seq = document["seq"]
    if type(seq) is not int or not 0 <= seq < content.records:
        raise FormatError(f"the sequence number is not one of {content.records} records", where=where)
    path = document["path"]
    if not isinstance(path, list) or len(path) > _MAX_PATH:
        raise FormatError("the audit path is no list, or too long", where=where)
    stored = document["row"]
    row_bytes = None if stored is None else _base64(stored, "row", where)
    row = None if row_bytes is None else parse_row(row_bytes, where=where)
    if row is not None and row.seq != seq:
        raise FormatError(f"the row is of record {row.seq}, not of {seq}", where=where)
    payloads = document["payloads"]
    if not isinstance(payloads, dict) or not set(payloads) <= set(ROLES):
        raise FormatError("payloads are request, identity and response", where=where)
    if payloads and row is None:
        raise FormatError("payloads without a row belong to nothing", where=where)
    return Proof(
        content=content,
        content_digest=content_digest,
        seq=seq,
        leaf=_digest(document["leaf"], "leaf", where),
        row_bytes=row_bytes,
        row=row,
        path=tuple(_digest(node, "audit path", where) for node in path),
        payloads={role: _base64(text, role, where) for role, text in payloads.items()},
    )


def check_proof(data: bytes, content_digest: str, *, where: str = "proof") -> Proof:
    """Check that a proof shows one record of the recording with ``content_digest`` (64 hex digits); return it.

    Raises `FormatError` for what is no proof, `ProofError` for one that does not show it.
    """
    if not isinstance(content_digest, str) or not _HEX.fullmatch(content_digest):
        raise UsageError("a content digest is 64 lower-case hexadecimal digits")
    proof = parse_proof(data, where=where)
    if proof.content_digest != content_digest:
        raise ProofError(f"the proof is of the content digest {proof.content_digest}, not of {content_digest}")
    if proof.row_bytes is not None and leaf_hash(proof.row_bytes) != proof.leaf:
        raise ProofError(f"the row of record {proof.seq} does not have the leaf in the proof")
    try:
        root = root_of_path(proof.leaf, proof.seq, proof.content.records, proof.path)
    except FormatError as error:
        raise FormatError(error.detail, where=where) from None
    if root.hex() != proof.content.merkle_root:
        raise ProofError(f"the path leads to the Merkle root {root.hex()}, not to {proof.content.merkle_root}")
    for role, payload in proof.payloads.items():
        check_payload(proof, role, payload)
    return proof


def check_payload(proof: Proof, role: str, data: bytes) -> None:
    """Check that ``data`` are the bytes of the record's ``request``, ``identity`` or ``response``.

    Raises `ProofError`; also where the record has no such payload, or the proof no row.
    """
    if role not in ROLES:
        raise UsageError(f"{role!r} is not one of {', '.join(ROLES)}")
    if proof.row is None:
        raise ProofError(f"the proof has no row of record {proof.seq}, as of a purged one: its payloads are not known")
    ref = getattr(proof.row, role)
    if ref is None or ref.encoding == 0:
        raise ProofError(f"record {proof.seq} has no {role}")
    if len(data) != ref.size or digest(data) != ref.digest:
        raise ProofError(f"these bytes are not the {role} of record {proof.seq}")


def _base64(text: Any, what: str, where: str) -> bytes:
    """Decode padded base64 in its one form."""
    try:
        data = b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or b64encode(data).decode() != text:
        raise FormatError(f"the {what} is not base64", where=where)
    return data


def _digest(text: Any, what: str, where: str) -> bytes:
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        raise FormatError(f"a digest of the {what} is not {2 * DIGEST_SIZE} hexadecimal digits", where=where)
    return bytes.fromhex(text)
