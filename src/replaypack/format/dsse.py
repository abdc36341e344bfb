"""Signatures: a DSSE envelope around an in-toto statement about a content section (spec chapter 09, "Signatures").

Pure: nothing here signs or checks a signature. An envelope is written by anybody, and is read with limits.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from replaypack.canonical import canonical_json
from replaypack.errors import FormatError

from .digests import digest
from .manifest import Manifest

__all__ = [
    "MAX_ENVELOPE",
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "Envelope",
    "Signature",
    "Statement",
    "content_bytes",
    "encode_envelope",
    "encode_statement",
    "key_id",
    "pae",
    "parse_envelope",
    "parse_statement",
    "statement_of",
]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:replaypack:recording:v1"
#: Readers refuse a larger envelope (bytes), and one of more signatures.
MAX_ENVELOPE = 1 << 20
MAX_SIGNATURES = 64


class Signature(NamedTuple):
    """One signature of an envelope; ``key_id`` is a hint that nobody vouches for, or empty."""

    key_id: str
    value: bytes


class Envelope(NamedTuple):
    """An envelope taken apart: what was signed, of what type, and the signatures."""

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]


class Statement(NamedTuple):
    """What a statement says: the content section with this SHA-256 and this BLAKE3-256 (64 hex digits each)."""

    sha256: str
    content_digest: str


def content_bytes(manifest: Manifest) -> bytes:
    """The canonical JSON of the content section: what the content digest is of."""
    return canonical_json(msgspec.to_builtins(manifest.content))


def statement_of(content: bytes) -> Statement:
    """The statement that fits a content section (its canonical bytes)."""
    return Statement(hashlib.sha256(content).hexdigest(), digest(content).hex())


def encode_statement(statement: Statement, recording_id: str) -> bytes:
    """The in-toto statement, as canonical JSON. The recording id (32 hex digits) names its subject."""
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "predicate": {"content_digest": {"blake3": statement.content_digest}},
            "predicateType": PREDICATE_TYPE,
            "subject": [{"digest": {"sha256": statement.sha256}, "name": recording_id}],
        }
    )


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def key_id(public_key: bytes) -> str:
    """The id of a raw Ed25519 public key (32 bytes): its SHA-256, 64 hex digits; object names have the first 16."""
    return hashlib.sha256(public_key).hexdigest()


def encode_envelope(payload: bytes, signatures: Iterable[Signature]) -> bytes:
    """The envelope, as canonical JSON."""
    return canonical_json(
        {
            "payload": b64encode(payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": item.key_id, "sig": b64encode(item.value).decode()} for item in signatures],
        }
    )


def parse_envelope(data: bytes, *, where: str = "envelope") -> Envelope:
    """Take an envelope apart, also one of others. Raises `FormatError`."""
    if len(data) > MAX_ENVELOPE:
        raise FormatError(f"an envelope is over the limit of {MAX_ENVELOPE} bytes", where=where)
    document = _json(data, "envelope", where)
    kind = document.get("payloadType")
    listed = document.get("signatures")
    if not isinstance(kind, str) or not isinstance(listed, list) or not 0 < len(listed) <= MAX_SIGNATURES:
        raise FormatError("an envelope has no payloadType, no signatures, or too many", where=where)
    signatures = []
    for item in listed:
        if not isinstance(item, dict) or not isinstance(item.get("keyid", ""), str):
            raise FormatError("a signature of an envelope is malformed", where=where)
        signatures.append(Signature(item.get("keyid", ""), _base64(item.get("sig"), "sig", where)))
    try:
        kind.encode()
    except UnicodeEncodeError:
        raise FormatError("the payloadType of an envelope is no text", where=where) from None
    return Envelope(_base64(document.get("payload"), "payload", where), kind, tuple(signatures))


def parse_statement(envelope: Envelope, *, where: str = "envelope") -> Statement:
    """What an envelope says of a recording, whoever signed it. Raises `FormatError` where it says something else."""
    if envelope.payload_type != PAYLOAD_TYPE:
        raise FormatError(f"the payloadType {envelope.payload_type[:80]!r} is not {PAYLOAD_TYPE}", where=where)
    document = _json(envelope.payload, "statement", where)
    if document.get("_type") != STATEMENT_TYPE or document.get("predicateType") != PREDICATE_TYPE:
        raise FormatError("it is no in-toto statement about a recording", where=where)
    subjects = document.get("subject")
    digests = _member(document.get("predicate"), "content_digest")
    blake3 = _member(digests, "blake3")
    if not isinstance(subjects, list) or len(subjects) != 1:
        raise FormatError("the statement does not have one subject", where=where)
    sha256 = _member(_member(subjects[0], "digest"), "sha256")
    if not _hex(sha256) or not _hex(blake3):
        raise FormatError("the statement lacks the SHA-256 or the BLAKE3 of a content section", where=where)
    return Statement(sha256, blake3)


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _hex(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and not set(text) - set("0123456789abcdef")


def _json(data: bytes, what: str, where: str) -> dict[str, Any]:
    """A JSON object in which no name stands twice: two readers must not see two statements."""
    try:
        document = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the {what} is not JSON: {str(error)[:80]}", where=where) from None
    if not isinstance(document, dict):
        raise FormatError(f"the {what} is no JSON object", where=where)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member stands in it twice")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _base64(text: Any, what: str, where: str) -> bytes:
    """Decode base64, standard or url-safe, padded: verifiers take both."""
    if isinstance(text, str) and text.isascii():
        try:
            if not set("-_") & set(text):
                return b64decode(text, validate=True)
            if not set("+/") & set(text):
                return b64decode(text.translate({45: 43, 95: 47}), validate=True)
        except (binascii.Error, ValueError):
            pass
    raise FormatError(f"the {what} of an envelope is not base64", where=where)
