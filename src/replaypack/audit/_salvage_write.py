"""Writing a salvaged recording: rows as they were, or, once something is lost, as near as can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from replaypack._write.literals import LARGE, LiteralStream, Splitter
from replaypack._write.publish import Progress as State
from replaypack._write.publish import Publisher
from replaypack._write.reuse import renamed
from replaypack._write.segment import PACK_TARGET, RECORD_FRAME, SegmentBuilder
from replaypack.errors import CanonicalizationError, ObjectMissingError, ReplaypackError
from replaypack.format.manifest import Manifest, encode_manifest
from replaypack.format.manifest_members import Content, PackRef, Tombstone
from replaypack.format.merkle import MerkleTree, leaf_hash
from replaypack.format.names import pack_key_of
from replaypack.format.pack import TRAILER_SIZE
from replaypack.format.recipe import encode_ops
from replaypack.format.record_frame import Entry, encode_frame, stored_row
from replaypack.format.row import (
    ABSENT_DIGEST,
    ENCODINGS,
    FLAGS,
    INLINE_LIMIT,
    STATUSES,
    Row,
    discriminator,
    encode_row,
    parse_row,
)
from replaypack.format.summary import Summary
from replaypack.format.table import INLINE_SPACE, BlobEntry, pack_blob, pack_key
from replaypack.policies.matching import NONE
from replaypack.storage import Storage
from replaypack.values import decode_payload, payload_pieces

from ._salvage_sources import Purged, Survivor

__all__ = ["RecordingWriter", "mended"]

_KEYS = 4 << 20
_RANGES = 1 << 20


class _Publisher(Publisher):
    """Does not upload what an earlier run did."""

    def upload(self, ref: PackRef, data: bytes) -> None:
        try:
            if self.storage.get_suffix(pack_key_of(ref.digest), TRAILER_SIZE) == data[-TRAILER_SIZE:]:
                self.reused.add(ref, data)
                return
        except ObjectMissingError:
            pass
        super().upload(ref, data)


class RecordingWriter:
    """Writes records in order into packs; no manifest before `commit`. Holds one frame and one pack at a time."""

    def __init__(self, storage: Storage, name: str, template: Content, writer: bytes) -> None:
        self.publisher = _Publisher(
            storage,
            name,
            writer=writer,
            packs_by=renamed(writer, storage),
            mode="replace",
            template=template,
            base=None,
            revision=0,
            previous=None,
        )
        self.tree = MerkleTree()
        self._counts: dict[str, int] = {}
        self._inlines = 0
        self._stream = LiteralStream()
        self._splitter = Splitter(self._stream)
        self._builder = SegmentBuilder(0, 0)
        self._frame: list[Entry] = []
        self._keys = bytearray()
        self._size = 0
        self._summary = Summary()
        self._tombstones: dict[tuple[str, str], list[tuple[int, str]]] = {}

    def purged(self, record: Purged, key: bytes | None) -> None:
        """Add a purged record, with its entry of ``keys`` (16 bytes of the key, discriminator) where it keeps one."""
        seq = self.tree.count
        if not self._frame:
            self._begin_frame()
        self._frame.append(Entry(b"", b"", None))
        self._size += 12
        if key is not None:
            self._keys += pack_key(key[:16], key[16:24], seq)
        self.tree.add(record.leaf)
        self._tombstones.setdefault((record.time, record.reason), []).append((seq, record.leaf.hex()))

    def add(self, record: Survivor) -> None:
        """Add a record; its row must have the next sequence number, and none of its blobs be lost.

        Blobs of which there is nothing at all, not even None, are withheld.
        """
        row, inline, splitter = record.row, record.inline, self._splitter
        blobs = dict(record.blobs)
        if inline is None and row.response_size < INLINE_LIMIT:
            inline = blobs.pop("response", None) or b""
        if not self._frame:
            self._begin_frame()
        recipes = b""
        for role in ("request", "identity", "response"):
            data = blobs.get(role)
            if data is not None:
                ref = row.response if role == "response" else getattr(row, role)
                recipes += encode_ops(splitter.recipe(_pieces(ref.encoding, data)))
            elif role != "response" and getattr(row, role) is not None:
                recipes += encode_ops(splitter.empty())
        entry = Entry(stored_row(record.row_bytes, inline), recipes, inline)
        self._frame.append(entry)
        self._size += len(entry.row) + len(recipes) + len(inline or b"") + 12
        self._keys += pack_key(row.key, discriminator(row.scope), row.seq)
        if inline:
            splitter.inlines.note(INLINE_SPACE + self._inlines, inline)
            self._inlines += len(inline)
        self.tree.add(leaf_hash(record.row_bytes))
        self._summary.add(row)
        self._counts[row.kind] = self._counts.get(row.kind, 0) + 1
        if row.response_size >= INLINE_LIMIT:
            self._builder.add_blob(pack_blob(BlobEntry(row.response_digest[:16], row.seq, 2)))
        self._hand_over()
        if self._size >= RECORD_FRAME or splitter.frame_ranges >= _RANGES:
            self._close_frame()
            if self._builder.size >= PACK_TARGET:
                self.publisher.spill(self._builder)
            if self._builder.keys_size >= _KEYS:
                self._close_segment()
                self.publisher.merge_live()

    def _begin_frame(self) -> None:
        self._splitter.begin_frame()
        self._splitter.inlines.begin_frame(INLINE_SPACE + self._inlines)

    def _hand_over(self) -> None:
        for offset, raw in self._stream.closed:
            if len(raw) >= LARGE:
                self._builder.add_large(offset, raw)
            else:
                self._builder.add_literal_frame(offset, raw)
        if self._stream.closed:
            self._stream.closed.clear()
            self._builder.compress(self.publisher.compressor)
        self._stream.take_fresh()

    def _close_frame(self) -> None:
        if self._frame:
            self._builder.add_record_frame(len(self._frame), encode_frame(self._frame))
            self._builder.add_keys(bytes(self._keys))
            self._builder.compress(self.publisher.compressor)
            self._frame, self._keys, self._size = [], bytearray(), 0

    def _close_segment(self) -> None:
        self._close_frame()
        self._stream.cut()
        self._hand_over()
        if self._builder.count:
            self.publisher.add_segment(self._builder)
        self._builder = SegmentBuilder(self.tree.count, self._inlines)

    def finish(self) -> None:
        """Write what is left in memory, and the tables."""
        self._close_segment()
        self.publisher.merge_all()

    def manifest(self, content: Content, revision: int, previous: str | None, withheld: Sequence[Any]) -> Manifest:
        """The manifest of what was written, with the state, error and origin of ``content``.

        Purged records are of the kinds that ``content`` counts and no other record is.
        """
        publisher, counts = self.publisher, dict(self._counts)
        left = self.tree.count - sum(counts.values())
        for kind, count in content.counts.items():
            take = min(left, max(0, count - counts.get(kind, 0)))
            if take:
                counts[kind] = counts.get(kind, 0) + take
            left -= take
        publisher.template = content
        publisher.tombstones = [Tombstone(*which, records) for which, records in self._tombstones.items()]
        summary = None if self._tombstones else self._summary
        manifest = publisher.manifest(
            revision=revision,
            cause="recover",
            state=content.state,
            progress=State(self.tree, counts, self._stream.end, self._inlines, summary),
            error=content.error,
            previous=previous,
        )
        if not withheld:
            return manifest
        return encode_manifest(manifest.content, msgspec.structs.replace(manifest.storage, withheld=sorted(withheld)))


def _pieces(encoding: int, data: bytes) -> list[bytes]:
    if ENCODINGS[encoding] == "structured":
        try:
            _, pieces = payload_pieces(decode_payload(encoding, data))
        except ReplaypackError:
            return [data]
        if b"".join(pieces) == data:
            return list(pieces)
    return [data]


def mended(record: Survivor, seq: int, *, keys: bool) -> Survivor:
    """The record with another sequence number and without the blobs that are lost.

    A row of which nothing but its number changes keeps its other bytes. A record without its response stays, marked
    truncated, so that it answers nothing, and the n-th call of its key stays the n-th. Where its identity is gone
    its key cannot be computed again: it is said to be opaque. With ``keys`` they are computed anew without a match
    policy, since the one that they were made with is lost.
    """
    row = record.row
    lost = [role for role, data in record.blobs.items() if data is None]
    key = _key(record) if keys and not lost else row.key
    if not lost and key == row.key:
        if row.seq == seq:
            return record
        # The number is the first item of the array: all behind it stays.
        old = len(msgspec.msgpack.encode(row.seq))
        data = record.row_bytes[:3] + msgspec.msgpack.encode(seq) + record.row_bytes[3 + old :]
        if record.row_bytes[3 : 3 + old] == msgspec.msgpack.encode(row.seq):
            return record._replace(row=parse_row(data), row_bytes=data)
    changes: dict[str, Any] = {"seq": seq, "key": key}
    inline = record.inline
    if lost:
        changes["attributes"] = {**(row.attributes or {}), "recovered": {"lost": lost}}
        if row.scheme == "identity" and ("identity" in lost or (row.identity is None and "request" in lost)):
            changes["scheme"] = "opaque"
    for role in ("request", "identity"):
        if role in lost:
            changes[role] = None
    if "response" in lost:
        changes.update(
            response_size=0,
            response_encoding=0,
            response_digest=ABSENT_DIGEST,
            status=STATUSES.index("interrupted"),
            flags=row.flags | FLAGS["truncated"],
        )
        inline = b""
    new: Row = msgspec.structs.replace(row, **changes)
    blobs: dict[str, bytes | None] = {role: data for role, data in record.blobs.items() if data is not None}
    return Survivor(new, encode_row(new), inline, blobs, record.why)


def _key(record: Survivor) -> bytes:
    """The key of what was recorded, without a match policy."""
    row = record.row
    role = "identity" if row.identity is not None else "request"
    ref, data = getattr(row, role), record.blobs.get(role)
    if row.scheme != "identity" or ref is None or data is None or row.flags & FLAGS["redacted"]:
        return row.key
    try:
        return NONE.key(row.kind, decode_payload(ref.encoding, data))
    except (CanonicalizationError, ReplaypackError):
        return row.key
