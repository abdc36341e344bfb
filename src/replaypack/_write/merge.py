"""Merging segments: their tables alone, or small packs whole (spec chapter 08, "Flush")."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from replaypack._read.cache import Cache
from replaypack._read.index import SegmentIndex
from replaypack._read.packs import Frame, PackReader
from replaypack._read.tables import TableReader
from replaypack.format.frame import Compressor
from replaypack.format.manifest_members import PackRef, Segment
from replaypack.format.pack import Origin
from replaypack.format.record_frame import MAX_FRAME_RANGES, RecordFrame, join_frames
from replaypack.format.table import (
    BLOBS,
    INLINE_SPACE,
    KEYS,
    LITERALS,
    RECORDS,
    FrameRef,
    Location,
    unpack_frame,
)
from replaypack.storage import Storage

from .literals import CUT
from .segment import RECORD_FRAME, PackSink, SegmentBuilder, Upload, UploadLarge, make_segment

__all__ = ["Live", "finish", "merge_data", "merge_tables"]


class Live(NamedTuple):
    """A segment with the packs that its tables name by index.

    ``data`` are the packs (digests) that hold its frames, as opposed to pages only; ``own`` those of them that
    nobody else refers to; ``size`` the bytes of the latter; ``tier`` and ``tables`` how often its data and its
    tables were merged.
    """

    segment: Segment
    packs: list[PackRef]
    data: frozenset[str]
    own: frozenset[str]
    size: int
    tier: int = 0
    tables: int = 0

    def mergeable(self, limit: int) -> bool:
        """Whether its data may be rewritten: it is its own, and below ``limit`` bytes."""
        return bool(self.own) and self.size < limit


def _reader(storage: Storage, live: Live) -> tuple[TableReader, PackReader]:
    reader = PackReader(storage)
    return TableReader(SegmentIndex(live.packs, live.segment, reader, Cache(0)), reader), reader


def merge_tables(
    storage: Storage, lives: Sequence[Live], origin: Origin, upload: Upload, compressor: Compressor
) -> Live:
    """Make one segment of several that follow each other; their frames stay where they are.

    Memory: a page of each table and segment, the place of each record frame, and the pack that is being written.
    """
    packs: list[PackRef | None] = []
    indexes: dict[str, int] = {}
    maps: list[list[int]] = []
    for live in lives:
        mapping = []
        for pack in live.packs:
            if pack.digest not in live.data:
                mapping.append(0)  # superseded pages alone: no entry names it
                continue
            if pack.digest not in indexes:
                indexes[pack.digest] = len(packs)
                packs.append(pack)
            mapping.append(indexes[pack.digest])
        maps.append(mapping)
    sources = [_reader(storage, live)[0] for live in lives]
    sink = PackSink(origin, upload, compressor, packs)
    frames: list[FrameRef] = []

    def record_rows() -> Iterator[bytes]:
        for source, mapping in zip(sources, maps, strict=True):
            for row in source.rows(RECORDS, mapping):
                entry = unpack_frame(row)
                frames.append(FrameRef(entry.first, entry.frame, entry.digest))
                yield row

    # Keys, blobs, and the two halves of the literals interleave; records of later segments lie behind.
    records = sink.table(RECORDS, record_rows())
    keys = sink.table(KEYS, heapq.merge(*(source.rows(KEYS) for source in sources)), frames)
    streams = [source.rows(LITERALS, mapping) for source, mapping in zip(sources, maps, strict=True)]
    literals = sink.table(LITERALS, heapq.merge(*streams))
    blobs = sink.table(BLOBS, heapq.merge(*(source.rows(BLOBS) for source in sources)))
    sink.close()
    first = lives[0].segment
    count = sum(live.segment.count for live in lives)
    segment = make_segment(first.first, count, first.inline_first, [keys, records, literals, blobs], None)
    kept = [pack for pack in packs if pack is not None]
    own = frozenset().union(*(live.own for live in lives))
    size = sum(live.size for live in lives)
    data = frozenset().union(*(live.data for live in lives))
    return Live(
        segment, kept, data, own, size, max(live.tier for live in lives), max(live.tables for live in lives) + 1
    )


def merge_data(storage: Storage, lives: Sequence[Live], origin: Origin, upload: Upload, compressor: Compressor) -> Live:
    """Rewrite small segments that follow each other as one: their frames are joined to full ones.

    Literals in packs that are not a segment's own (large blobs, a base recording) stay where they are.
    Memory: the raw bytes of one frame of each kind, and the entries of keys of all these segments.
    """
    builder = SegmentBuilder(lives[0].segment.first, lives[0].segment.inline_first)
    records = _RecordJoiner(builder)
    literals = _LiteralJoiner(builder)
    for live in lives:
        source, reader = _reader(storage, live)
        for page in source.pages(KEYS):
            builder.add_keys(page)
        for page in source.pages(RECORDS):
            for start in range(0, len(page), RECORDS.width):
                entry = unpack_frame(page, start)
                pack = source.segment.pack(entry.frame, where="page of records")
                [raw] = reader.read([Frame(pack, entry.frame, entry.raw, entry.digest)])
                records.add(entry.items, raw)
                builder.compress(compressor)
        for page in source.pages(LITERALS):
            for start in range(0, len(page), LITERALS.width):
                entry = unpack_frame(page, start)
                if entry.first >= INLINE_SPACE:
                    break  # they lie in the record frames
                pack = source.segment.pack(entry.frame, where="page of literals")
                if pack.digest in live.own:
                    [raw] = reader.read([Frame(pack, entry.frame, entry.raw, entry.digest)])
                    literals.add(entry.first, raw)
                else:
                    literals.close()
                    builder.add_external(entry.first, entry.raw, entry.items, entry.digest, pack, entry.frame)
                builder.compress(compressor)
        for page in source.pages(BLOBS):
            for start in range(0, len(page), BLOBS.width):
                builder.add_blob(page[start : start + BLOBS.width])
    records.close()
    literals.close()
    return finish(builder, origin, upload, _no_large, compressor, tier=max(live.tier for live in lives) + 1)


def finish(
    builder: SegmentBuilder,
    origin: Origin,
    upload: Upload,
    upload_large: UploadLarge,
    compressor: Compressor,
    *,
    tier: int,
) -> Live:
    """Finish a segment; what it uploaded is its own."""
    uploaded: list[PackRef] = []

    def note(ref: PackRef, data: bytes) -> None:
        upload(ref, data)
        uploaded.append(ref)

    segment, packs, size = builder.finish(origin, note, upload_large, compressor)
    own = frozenset(ref.digest for ref in (*uploaded, *builder.spilled))
    size += sum(ref.size for ref in builder.spilled)
    return Live(segment, packs, frozenset(pack.digest for pack in packs), own, size, tier)


def _no_large(data: bytes) -> list[tuple[int, int, bytes, PackRef, Location]]:
    raise AssertionError("large literals are in packs of their own already")  # pragma: no cover


class _RecordJoiner:
    def __init__(self, builder: SegmentBuilder) -> None:
        self._builder = builder
        self._count = self._size = self._ranges = 0
        self._raws: list[bytes] = []

    def add(self, count: int, raw: bytes) -> None:
        # Readers refuse frames whose recipes resolve to too many ranges, however few bytes they are.
        ranges = RecordFrame(raw).range_count()
        if self._ranges + ranges > MAX_FRAME_RANGES // 4:
            self.close()
        self._ranges += ranges
        self._count += count
        self._raws.append(raw)
        self._size += len(raw)
        if self._size >= RECORD_FRAME:
            self.close()

    def close(self) -> None:
        if self._raws:
            sections = join_frames(self._raws)
            self._builder.add_record_frame(self._count, sections)
        self._count = self._size = self._ranges = 0
        self._raws = []


class _LiteralJoiner:
    def __init__(self, builder: SegmentBuilder) -> None:
        self._builder = builder
        self._start = 0
        self._pending = bytearray()

    def add(self, first: int, raw: bytes) -> None:
        if not self._pending:
            self._start = first
        self._pending += raw
        while len(self._pending) >= CUT:
            self._builder.add_literal_frame(self._start, bytes(self._pending[:CUT]))
            del self._pending[:CUT]
            self._start += CUT

    def close(self) -> None:
        if self._pending:
            self._builder.add_literal_frame(self._start, bytes(self._pending))
            self._pending = bytearray()
