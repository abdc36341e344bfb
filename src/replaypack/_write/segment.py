"""Segments under construction: frames and index entries in, one pack (and its tables) out.

A segment holds its record frames, literal frames and index entries until it is finished; the frames then go
into one pack, literals first, records next, pages last, so that records and keys of a small recording lie side
by side and can be read in one request.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Self

from replaypack.format.digests import digest as digest_of
from replaypack.format.digests import short_digest
from replaypack.format.frame import Compressor
from replaypack.format.manifest_members import NEAR_LIMIT, Near, PackRef, Segment
from replaypack.format.manifest_pages import inline_root
from replaypack.format.pack import FrameKind, Origin, PackBuilder
from replaypack.format.table import (
    BLOBS,
    INLINE_SPACE,
    KEYS,
    LITERALS,
    RECORDS,
    FrameEntry,
    FrameRef,
    Location,
    Root,
    TableShape,
    key_page,
    key_seqs,
    pack_frame,
    pages_of,
    transpose,
)

__all__ = [
    "PACK_TARGET",
    "RECORD_FRAME",
    "LiteralFrame",
    "PackSink",
    "SegmentBuilder",
    "Upload",
    "UploadLarge",
    "make_segment",
    "pack_ref",
    "split_rows",
]

#: Record frames are closed at this many raw bytes, packs at about this many compressed ones.
RECORD_FRAME = 128 << 10
PACK_TARGET = 32 << 20

#: Bytes of entries of keys that are sorted and joined to a run.
_RUN = 30 << 15

#: ``(reference, bytes)``: puts a pack in the store.
Upload = Callable[[PackRef, bytes], None]
#: Puts a large literal in a pack of its own; gives (offset, raw bytes, digest, pack, location) for each frame.
UploadLarge = Callable[[bytes], list[tuple[int, int, bytes, PackRef, Location]]]


class _RecordFrame:
    """One record frame: its sections, or, once compressed, the frame."""

    __slots__ = ("count", "digest", "first", "frame", "inline_first", "inline_size", "placed", "raw", "sections")

    def __init__(self, first: int, count: int, sections: list[bytes], inline_first: int) -> None:
        self.first = first
        self.count = count
        self.raw = sum(map(len, sections))
        self.sections: list[bytes] | None = sections
        self.digest = short_digest(b"".join(sections))
        self.inline_first = inline_first
        self.inline_size = len(sections[-1])
        self.frame = b""
        self.placed: tuple[PackRef, Location] | None = None


class LiteralFrame:
    """Literals of one frame; ``placed`` says where they lie when in a pack already."""

    __slots__ = ("digest", "first", "frame", "items", "placed", "raw")

    def __init__(self, first: int, raw: bytes) -> None:
        self.first = first
        self.raw = self.items = len(raw)
        self.digest = short_digest(raw)
        self.frame = raw
        self.placed: tuple[PackRef, Location] | None = None

    @classmethod
    def elsewhere(cls, first: int, raw: int, items: int, digest: bytes, pack: PackRef, at: Location) -> Self:
        """Literals that lie in another pack: the last ``items`` bytes of a frame of ``raw`` bytes."""
        frame = cls(first, b"")
        frame.raw, frame.items, frame.digest, frame.placed = raw, items, digest, (pack, at)
        return frame

    def blank(self, start: int) -> None:
        """Make zeros of what lies at ``start`` and behind. The frame is neither compressed nor placed."""
        kept = max(0, start - self.first)
        self.frame = self.frame[:kept] + bytes(self.raw - kept)
        self.digest = short_digest(self.frame)


class PackSink:
    """Writes pages, going on in further packs where one is full; keeps the list of packs it made."""

    def __init__(self, origin: Origin, upload: Upload, compressor: Compressor, packs: list[PackRef | None]) -> None:
        self._origin = origin
        self._upload = upload
        self._compressor = compressor
        #: Packs by index, as table entries name them; None is the one being built.
        self.packs = packs
        self.builder = PackBuilder(origin, compressor.noted)
        self.index = len(packs)
        packs.append(None)
        self.written: list[PackRef] = []

    def add(self, kind: int, frame: bytes, *, raw: int, first: int, count: int, digest: bytes) -> Location:
        """Append a frame; return its location."""
        at = self.builder.add(kind, frame, raw=raw, first=first, count=count, digest=digest)
        return at._replace(pack=self.index)

    def table(self, shape: TableShape, rows: Iterable[bytes], frames: Sequence[FrameRef] = ()) -> Root:
        """Write the sorted entries of a table; return its root. ``frames`` are the record frames, for ``keys``."""
        fences: list[bytes] = []
        digests: list[bytes] = []
        locations: list[Location] = []
        total = 0
        firsts = [frame.first for frame in frames]
        for batch in pages_of(shape, rows):
            count = len(batch)
            joined = b"".join(batch)
            if shape is KEYS:
                used = {bisect_right(firsts, seq) - 1 for seq in key_seqs(joined)}
                page = key_page(joined, [frames[index] for index in sorted(used)])
            else:
                page = transpose(joined, shape.width)
            if self.builder.size > PACK_TARGET:
                self.next()
            digest = short_digest(page)
            at = self.add(
                FrameKind.PAGE, self._compressor(page), raw=len(page), first=shape.number, count=count, digest=digest
            )
            fences.append(batch[0][: shape.key])
            digests.append(digest)
            locations.append(at)
            total += count
        return Root(shape, total, fences, digests, locations)

    def next(self) -> None:
        """Close the pack being built and begin another."""
        self.close()
        self.builder = PackBuilder(self._origin, self._compressor.noted)
        self.index = len(self.packs)
        self.packs.append(None)

    def close(self) -> None:
        """Finish and upload the pack being built; without frames there is none."""
        if not len(self.builder):
            if self.packs and self.packs[-1] is None:
                self.packs.pop()
            return
        data = self.builder.finish()
        ref = pack_ref(data)
        self._upload(ref, data)
        self.packs[self.index] = ref
        self.written.append(ref)


def pack_ref(data: bytes) -> PackRef:
    """The reference of a pack's bytes."""
    return PackRef(digest_of(data).hex(), len(data))


class SegmentBuilder:
    """Collects the records of one segment. Not safe for threads: its owner holds a lock, or is the only one."""

    def __init__(self, first: int, inline_first: int) -> None:
        self.first = first
        self.count = 0
        self.inline_first = inline_first
        self._inlines = inline_first
        #: Compressed bytes of the frames in memory (raw bytes of those still to be compressed).
        self.size = 0
        #: Bytes of the entries of keys in memory.
        self.keys_size = 0
        #: Packs of its own that were uploaded before it is finished.
        self.spilled: list[PackRef] = []
        self._records: list[_RecordFrame] = []
        self._literals: list[LiteralFrame] = []
        self._keys: list[bytes] = []
        self._loose = 0
        self._runs: list[bytes] = []
        self._blobs: list[bytes] = []
        self._large: list[tuple[int, bytes]] = []
        self._queue: deque[_RecordFrame | LiteralFrame] = deque()
        #: Raw bytes of the frames that are still to be compressed.
        self.waiting = 0
        #: Gives more entries of ``keys`` and ``blobs``, sorted.
        self.more: Callable[[TableShape], Iterable[bytes]] | None = None

    def add_record_frame(self, count: int, sections: list[bytes]) -> None:
        """Add a closed record frame of ``count`` records, which follows those before."""
        frame = _RecordFrame(self.first + self.count, count, sections, self._inlines)
        self._records.append(frame)
        self._queue.append(frame)
        self.count += count
        self._inlines += frame.inline_size
        self.size += frame.raw
        self.waiting += frame.raw

    def add_keys(self, rows: bytes) -> None:
        """Add entries of ``keys``, one after another, in any order."""
        self._keys.append(rows)
        self._loose += len(rows)
        self.keys_size += len(rows)
        if self._loose >= _RUN:
            # Sorted runs take a third of the memory of entries one by one, and are merged as pages are written.
            self._runs.append(b"".join(split_rows(KEYS, self._keys)))
            self._keys.clear()
            self._loose = 0

    def add_literal_frame(self, first: int, raw: bytes) -> LiteralFrame:
        """Add a closed literal frame of this segment's own pack."""
        frame = LiteralFrame(first, raw)
        self._literals.append(frame)
        self._queue.append(frame)
        self.size += len(raw)
        self.waiting += len(raw)
        return frame

    def add_external(self, first: int, raw: int, items: int, digest: bytes, pack: PackRef, at: Location) -> None:
        """Add literals that lie in another pack: the last ``items`` bytes of a frame of ``raw`` bytes."""
        self._literals.append(LiteralFrame.elsewhere(first, raw, items, digest, pack, at))

    def refer(self, frame: LiteralFrame) -> None:
        """Add literals of another segment, which are in a pack by the time this one is finished."""
        self._literals.append(frame)

    def add_large(self, first: int, data: bytes) -> None:
        """Add a large literal, which gets a pack of its own when the segment is finished."""
        self._large.append((first, data))
        self.size += len(data)

    def add_blob(self, entry: bytes) -> None:
        """Add an entry of ``blobs``."""
        self._blobs.append(entry)

    def compress(self, compressor: Compressor, run: Callable[..., Iterable[bytes]] = map) -> None:
        """Compress what is waiting, by ``run``, which may be the ``map`` of a pool of threads."""
        waiting = tuple(self._queue)
        for frame, data in zip(waiting, run(partial(_compressed, compressor), waiting), strict=True):
            frame.frame = data
            if isinstance(frame, _RecordFrame):
                frame.sections = None
            self.size += len(data) - frame.raw
            self.waiting -= frame.raw
            # Taken off the queue once it is compressed: after a failure it is tried again, not written empty.
            self._queue.popleft()

    def _more(self, shape: TableShape) -> Iterable[bytes]:
        return self.more(shape) if self.more is not None else ()

    def _sorted_keys(self) -> Iterator[bytes]:
        width = KEYS.width
        runs = (
            map(run.__getitem__, map(slice, range(0, len(run), width), range(width, len(run) + 1, width)))
            for run in self._runs
        )
        return heapq.merge(*runs, split_rows(KEYS, self._keys), self._more(KEYS))

    def spill(self, origin: Origin | None, upload: Upload, upload_large: UploadLarge, compressor: Compressor) -> None:
        """Upload the frames in memory as a pack, so that memory stays bounded; tables come when it is finished.

        May be called again after it failed.
        """
        self.compress(compressor)
        self._place_large(upload_large)
        builder = PackBuilder(origin, compressor.noted)
        literals = [frame for frame in self._literals if frame.placed is None]
        records = [frame for frame in self._records if frame.placed is None]
        if not literals and not records:
            return
        places = [_add_literal(builder, literal) for literal in literals]
        places += [_add_record(builder, record) for record in records]
        data = builder.finish()
        ref = pack_ref(data)
        upload(ref, data)
        self.spilled.append(ref)
        frames: list[LiteralFrame | _RecordFrame] = [*literals, *records]
        for frame, at in zip(frames, places, strict=True):
            frame.placed = (ref, at)
            frame.frame = b""
        self.size = 0

    def _place_large(self, upload_large: UploadLarge) -> None:
        while self._large:
            first, data = self._large[0]
            for start, raw, short, pack, at in upload_large(data):
                self.add_external(first + start, raw, raw, short, pack, at)
            self.size -= len(data)
            del self._large[0]

    def finish(
        self, origin: Origin, upload: Upload, upload_large: UploadLarge, compressor: Compressor
    ) -> tuple[Segment, list[PackRef], int]:
        """Make the pack and its tables and upload it. May be called again after it failed.

        Returns the segment, the packs its tables name by index, and the bytes of the data packs (own ones).
        """
        self.compress(compressor)
        self._place_large(upload_large)
        packs: list[PackRef | None] = []
        sink = PackSink(origin, upload, compressor, packs)
        indexes: dict[str, int] = {}

        def placed(pack: PackRef, at: Location) -> Location:
            index = indexes.get(pack.digest)
            if index is None:
                index = indexes[pack.digest] = len(packs)
                packs.append(pack)
            return at._replace(pack=index)

        own = {pack.digest for pack in self.spilled}
        fresh: list[tuple[LiteralFrame, Location]] = []
        literal_rows: list[bytes] = []
        for literal in sorted(self._literals, key=lambda frame: frame.first):
            if literal.placed is None:
                at = _add_literal(sink.builder, literal)._replace(pack=sink.index)
                fresh.append((literal, at))
            else:
                at = placed(*literal.placed)
                if literal.placed[0].digest not in own:
                    pack = bytes.fromhex(literal.placed[0].digest)
                    sink.builder.add_external(literal.first, pack, at, literal.raw, literal.items, literal.digest)
            literal_rows.append(pack_frame(FrameEntry(literal.first, at, literal.raw, literal.items, literal.digest)))
        near_start = sink.builder.size
        near_pack = sink.index
        record_rows: list[bytes] = []
        inline_rows: list[bytes] = []
        refs_: list[FrameRef] = []
        for record in self._records:
            if record.placed is None:
                at = _add_record(sink.builder, record)._replace(pack=sink.index)
            else:
                at = placed(*record.placed)
            record_rows.append(pack_frame(FrameEntry(record.first, at, record.raw, record.count, record.digest)))
            refs_.append(FrameRef(record.first, at, record.digest))
            if record.inline_size:
                first = INLINE_SPACE + record.inline_first
                inline_rows.append(pack_frame(FrameEntry(first, at, record.raw, record.inline_size, record.digest)))
        root = sink.table(KEYS, self._sorted_keys(), refs_)
        near = None
        if not self.spilled and sink.index == near_pack and sink.builder.size - near_start <= NEAR_LIMIT:
            near = Near(pack=near_pack, offset=near_start, length=sink.builder.size - near_start)
        roots = [
            root,
            sink.table(RECORDS, record_rows),
            sink.table(LITERALS, literal_rows + inline_rows),
            sink.table(BLOBS, heapq.merge(sorted(self._blobs), self._more(BLOBS))),
        ]
        sink.close()
        refs = [pack for pack in packs if pack is not None]
        for literal, at in fresh:
            literal.placed, literal.frame = (refs[at.pack], at), b""
        segment = make_segment(self.first, self.count, self.inline_first, roots, near)
        return segment, refs, sum(pack.size for pack in sink.written)


def _compressed(compressor: Compressor, frame: _RecordFrame | LiteralFrame) -> bytes:
    if isinstance(frame, LiteralFrame):
        return compressor(frame.frame)
    return frame.frame if frame.sections is None else compressor.sections(frame.sections)


def _add_literal(builder: PackBuilder, frame: LiteralFrame) -> Location:
    return builder.add(
        FrameKind.LITERAL, frame.frame, raw=frame.raw, first=frame.first, count=frame.raw, digest=frame.digest
    )


def _add_record(builder: PackBuilder, frame: _RecordFrame) -> Location:
    return builder.add(
        FrameKind.RECORD, frame.frame, raw=frame.raw, first=frame.first, count=frame.count, digest=frame.digest
    )


def make_segment(first: int, count: int, inline_first: int, roots: Sequence[Root], near: Near | None) -> Segment:
    """A segment with inline roots; ``packs`` is None until the manifest is put together."""
    keys, records, literals, blobs = map(inline_root, roots)
    return Segment(
        first=first,
        count=count,
        inline_first=inline_first,
        packs=None,
        keys=keys,
        records=records,
        literals=literals,
        blobs=blobs,
        near=near,
    )


def split_rows(shape: TableShape, chunks: Iterable[bytes]) -> list[bytes]:
    """Take runs of entries apart and sort them."""
    width = shape.width
    return sorted(chunk[at : at + width] for chunk in chunks for at in range(0, len(chunk), width))
