"""The rows of whole record frames, parsed many at a time.

A replay that takes most of a recording asks for one record after another. Parsing the rows of a frame at once costs a
tenth of parsing them one by one: the loop runs in C, and the digest of a small response, which is not stored, is not
computed. The frame was checked against its digest when it was read, so its records are those that were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from replaypack.errors import FormatError
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import Row
from replaypack.values import ABSENT, ENCODING_NONE, ENCODING_STRUCTURED, MAX_DEPTH, decode_payload

from .index import Index

__all__ = ["BulkRow", "bulk_rows", "bulk_size", "response_behind"]

_NO_DIGEST = bytes(32)
_FRAMES = 8


class BulkRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row, without what stands last and what has no use here."""

    seq: int
    kind: str
    name: str | None
    key: bytes
    scheme: str
    scope: str | None
    _request: msgspec.Raw
    _identity: msgspec.Raw
    start: int
    duration: int
    status: int
    flags: int
    attributes: dict[str, Any] | None
    _salt: msgspec.Raw
    response_size: int
    response_encoding: int


def _refuse(code: int, data: memoryview) -> Any:
    raise FormatError("an extension type is for the whole decoder")


_decode = msgspec.msgpack.Decoder(ext_hook=_refuse).decode
_encode = msgspec.msgpack.Encoder().encode
_rows = msgspec.msgpack.Decoder(list[BulkRow])


def bulk_size(index: Index) -> int:
    """Bytes, not compressed, of the record frames: rows, recipes and small responses."""
    return sum(entry.raw for entry, _ in index.frames())


def bulk_rows(index: Index) -> Iterator[tuple[BulkRow, bytes | None]]:
    """Yield all rows in order, each with the response that stands behind it, or None.

    Raises `FormatError`, and `PurgedError` where there is a record that was purged.
    """
    for seq in index.purged:
        raise index.gone(seq)
    frames = iter(index.frames())
    while batch := [frame for _, frame in islice(frames, _FRAMES)]:
        for records in index.read_frames(batch):
            yield from zip(*_rows_of(records), strict=True)


def _rows_of(frame: RecordFrame) -> tuple[list[BulkRow], list[bytes | None]]:
    stored, inline = frame.stored_rows()
    if None in inline:
        whole = b"".join([row if blob is None else row + _NO_DIGEST for row, blob in zip(stored, inline, strict=True)])
    else:
        whole = _NO_DIGEST.join((*stored, b""))
    try:
        return _rows.decode(b"\xdd" + len(stored).to_bytes(4, "big") + whole), inline
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise FormatError(f"the rows of a frame do not parse: {error}", where=frame.where) from None


def response_behind(row: BulkRow | Row, blob: bytes) -> Any:
    """The response that stands behind a row; `ABSENT` where there is none. Raises `FormatError`."""
    # Too short to be nested too deep, and no timestamp: then it is enough that it is encoded to the same bytes.
    if row.response_encoding == ENCODING_STRUCTURED and len(blob) < MAX_DEPTH and 0xFF not in blob:
        try:
            value = _decode(blob)
            if _encode(value) == blob:
                return value
        except (FormatError, msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
            pass
    return ABSENT if row.response_encoding == ENCODING_NONE else decode_payload(row.response_encoding, blob)
