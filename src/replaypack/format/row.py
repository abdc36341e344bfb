"""Rows: the logical records, as they are stored and hashed (spec chapter 01, "Rows").

A row is one MessagePack array of fixed order. Its last 32 bytes are the digest of the response, so that a
writer that puts the response right behind the row leaves them out and a reader computes them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from replaypack._plain import scan
from replaypack.errors import FormatError

from .digests import DIGEST_SIZE, digest, digests

__all__ = [
    "ABSENT_DIGEST",
    "ENCODINGS",
    "FLAGS",
    "INLINE_LIMIT",
    "ROW_FIELDS",
    "STATUSES",
    "BlobRef",
    "Row",
    "discriminator",
    "encode_row",
    "parse_row",
    "parse_stored_row",
    "parse_stored_rows",
    "parse_whole_rows",
    "with_key",
]

#: Encodings of a blob, by number.
ENCODINGS = ("none", "structured", "text", "bytes")
#: Outcomes of a call, by number.
STATUSES = ("ok", "error", "interrupted")
#: Flags of a record, by bit.
FLAGS = {"redacted": 1, "transformed": 2, "truncated": 4, "live_fallback": 8}
#: Responses below this size (bytes) stand behind their row.
INLINE_LIMIT = 4096
#: The digest of the empty string, which an absent response has.
ABSENT_DIGEST = digest(b"")

ROW_FIELDS = 17
_MAX_SEQ = (1 << 48) - 1
_DIGEST_HEAD = b"\xc4\x20"
_HEAD = b"\xdc\0\x11"
_NO_SCOPE = bytes(8)
_NO_DIGEST = bytes(DIGEST_SIZE)


_Natural = Annotated[int, Meta(ge=0)]
_Digest = Annotated[bytes, Meta(min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]


class BlobRef(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A reference to a blob: BLAKE3-256 of its bytes, its size in bytes, its encoding (index in `ENCODINGS`).

    Encoding 0 is that of an absent response, which is never written as a reference.
    """

    digest: _Digest
    size: _Natural
    encoding: Annotated[int, Meta(ge=1, lt=len(ENCODINGS))]


class Row(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One record as it is hashed. Times are nanoseconds: ``start`` since the Unix epoch, ``duration`` from there."""

    seq: Annotated[int, Meta(ge=0, le=_MAX_SEQ)]
    kind: str
    name: str | None
    key: _Digest
    scheme: str
    scope: str | None
    request: BlobRef | None
    identity: BlobRef | None
    start: int
    duration: _Natural
    status: Annotated[int, Meta(ge=0, lt=len(STATUSES))]
    flags: Annotated[int, Meta(ge=0, le=sum(FLAGS.values()))]
    attributes: dict[str, Any] | None
    salt: Annotated[bytes, Meta(min_length=8, max_length=8)]
    response_size: _Natural
    response_encoding: Annotated[int, Meta(ge=0, lt=len(ENCODINGS))]
    response_digest: _Digest

    @property
    def response(self) -> BlobRef:
        """The response as a blob reference; encoding 0 is an absent one."""
        return BlobRef(self.response_digest, self.response_size, self.response_encoding)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Row)
_many = msgspec.msgpack.Decoder(list[Row])


def encode_row(row: Row) -> bytes:
    """Return the bytes of ``row``, which are hashed and stored and never encoded again."""
    return _encoder.encode(row)


def with_key(data: bytes, old: bytes, new: bytes) -> bytes:
    """The bytes of a row (whole, or as stored) with another key; every other byte stays as it is."""
    # No text before it can hold the head of the key: C4 20 is no UTF-8.
    at = data.index(_DIGEST_HEAD + old) + len(_DIGEST_HEAD)
    return data[:at] + new + data[at + len(new) :]


def discriminator(scope: str | None) -> bytes:
    """Return the 8 bytes that tell apart records of one key: of the scope, zero for none."""
    return _NO_SCOPE if scope is None else digest(scope.encode("utf-8", "surrogatepass"))[:8]


def parse_row(data: bytes, *, where: str = "row") -> Row:
    """Decode and check one whole row; raises `FormatError` (``corrupted``)."""
    return parse_stored_row(data, None, where=where)[0]


def parse_stored_row(stored: bytes, inline: bytes | None, *, where: str = "row") -> tuple[Row, bytes]:
    """Decode and check a row as it stands in a record frame; return it and its whole bytes.

    ``inline`` is the response that stands behind it, or None where the row is stored whole. Raises `FormatError`.
    """
    data = stored if inline is None else stored + digest(inline)
    try:
        row = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise FormatError(f"a row does not parse: {error}", where=where) from None
    if data[:3] != _HEAD or data[-34:-32] != _DIGEST_HEAD:
        raise FormatError("a row is not an array of 17 that ends in a digest", where=where)
    if row.response_encoding == 0 and (row.response_size or row.response_digest != ABSENT_DIGEST):
        raise FormatError("a row has a field out of its bounds", where=where)
    if row.attributes is not None and scan(row.attributes).foreign:
        raise FormatError("the attributes of a row hold an extension type", where=where)
    if inline is not None and (row.response_size != len(inline) or len(inline) >= INLINE_LIMIT):
        raise FormatError(f"a row names a response of {row.response_size} bytes, {len(inline)} follow", where=where)
    return row, data


def parse_stored_rows(stored: list[bytes], inlines: list[bytes | None], *, where: str = "rows") -> list[Row]:
    """Decode several rows, as `parse_stored_row` does, for their fields alone: they have no bytes to be hashed.

    The digests of inline responses are not computed, zeros stand in their place. Raises `FormatError`.
    """
    if None in inlines:
        stored = [data if inline is None else data + _NO_DIGEST for data, inline in zip(stored, inlines, strict=True)]
        whole = b"".join(stored)
    else:
        whole = _NO_DIGEST.join((*stored, b""))
    try:
        rows = _many.decode(b"\xdd" + len(stored).to_bytes(4, "big") + whole)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise FormatError(f"rows do not parse: {error}", where=where) from None
    for row, inline in zip(rows, inlines, strict=True):
        if (
            (inline is not None and (row.response_size != len(inline) or row.response_size >= INLINE_LIMIT))
            or (row.response_encoding == 0 and inline != b"")
            or (row.attributes is not None and scan(row.attributes).foreign)
        ):
            raise FormatError("a row is not as rows are", where=where)
    return rows


def parse_whole_rows(
    stored: Sequence[bytes], inlines: Sequence[bytes | None], *, where: str = "rows"
) -> tuple[list[Row], list[bytes]]:
    """As `parse_stored_row` of several rows; the `FormatError` does not say which of them is none."""
    ends = digests([inline for inline in inlines if inline is not None])
    if len(ends) < len(inlines):
        following = iter(ends)
        ends = [b"" if inline is None else next(following) for inline in inlines]
    whole = list(map(add, stored, ends))
    try:
        rows = list(map(_decoder.decode, whole))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise FormatError(f"a row does not parse: {error}", where=where) from None
    behind = zip(rows, inlines, strict=True)
    # Lists, which take less time than generators: as a rule all of them are empty.
    if (
        [data for data in whole if data[:3] != _HEAD or data[-34:-32] != _DIGEST_HEAD]
        or [row for row, inline in behind if inline is not None and not row.response_size == len(inline) < INLINE_LIMIT]
        or [r for r in rows if not r.response_encoding and (r.response_size or r.response_digest != ABSENT_DIGEST)]
        or [row for row in rows if row.attributes is not None and scan(row.attributes).foreign]
    ):
        raise FormatError("a row is not as rows are", where=where)
    return rows, whole
