"""Entries of ``keys`` and ``blobs``: those that rows have to have, and what it means where the tables have others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replaypack.format.row import Row, discriminator
from replaypack.format.table import (
    KEYS,
    BlobEntry,
    FrameEntry,
    FrameRef,
    pack_blob,
    pack_keys,
    unpack_blob,
    unpack_key,
)

from ._faults import Fault, fault

__all__ = ["blob_entries", "blob_faults", "is_response", "key_entries", "key_faults"]

_LISTED = 4096
_RESPONSE = 2


def key_entries(frame: FrameEntry, rows: Sequence[Row]) -> list[bytes]:
    """The entries that rows of a frame have in ``keys``, with the frame behind each."""
    scopes = [row.scope for row in rows]
    known = {scope: discriminator(scope) for scope in set(scopes)}
    ref = FrameRef(frame.first, frame.frame, frame.digest)
    return pack_keys([row.key for row in rows], map(known.__getitem__, scopes), [row.seq for row in rows], ref)


def blob_entries(rows: Sequence[Row]) -> list[bytes]:
    """The entries that rows may have in ``blobs``: those of responses have to be there."""
    return [
        pack_blob(BlobEntry(ref.digest[:16], row.seq, role))
        for row in rows
        if (
            row.response_size >= _LISTED
            or row.identity is not None
            or (row.request is not None and row.request.size >= _LISTED)
        )
        for role, ref in enumerate((row.request, row.identity, row.response))
        if ref is not None and ref.encoding and ref.size >= _LISTED
    ]


def is_response(entry: bytes) -> bool:
    """Whether an entry of ``blobs`` is that of a response."""
    return entry[-1] == _RESPONSE


def key_faults(only_rows: list[bytes], only_table: list[bytes]) -> Iterator[Fault]:
    rows = {unpack_key(entry).seq: entry for entry in only_rows}
    for entry in only_table:
        key = unpack_key(entry)
        where = f"record {key.seq}"
        row = rows.pop(key.seq, None)
        if row is None:
            yield fault("key.index", where, "keys has an entry for it that no row matches")
            continue
        of_row = unpack_key(row)
        fields = [name for name, a, b in zip(key._fields, of_row, key, strict=True) if a != b]
        if row[KEYS.width :] != entry[KEYS.width :]:
            fields.append("frame")
        yield fault("key.index", where, f"its row and its entry in keys differ in {', '.join(fields)}")
    for seq in sorted(rows):
        yield fault("key.index", f"record {seq}", "it is not in keys: no lookup finds it")


def blob_faults(only_rows: list[bytes], only_table: list[bytes]) -> Iterator[Fault]:
    for entries, message in (
        (only_rows, "the digest of its {} is not in blobs"),
        (only_table, "blobs names its {}, which has another digest or is smaller than 4 KiB"),
    ):
        for raw in entries:
            entry = unpack_blob(raw)
            role = ("request", "identity", "response")[entry.role] if entry.role < 3 else f"role {entry.role}"
            yield fault("blob.index", f"record {entry.seq}", message.format(role))
