"""Segments under construction: frames and index entries in, one pack (and its tables) out.

A segment holds its record frames, literal frames and index entries until it is finished; the frames then go
into one pack, literals first, records next, pages last, so that records and keys of a small recording lie side
by side and can be read in one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct

from replaypack.format.digests import digest as digest_of
from replaypack.format.digests import short_digest
from replaypack.format.frame import Compressor
from replaypack.format.manifest import NEAR_LIMIT, Near, PackRef, Segment, inline_root
from replaypack.format.pack import FrameKind, Origin, PackBuilder
from replaypack.format.table import (
    BLOBS,
    KEYS,
    LITERALS,
    RECORDS,
    FrameEntry,
    Location,
    Root,
    TableShape,
    pack_frame,
    pages_of,
)

from .literals import CUT

__all__ = [
    "PACK_TARGET",
    "RECORD_FRAME",
    "PackSink",
    "SegmentBuilder",
    "Upload",
    "UploadLarge",
    "make_segment",
    "pack_ref",
    "pending_key",
    "split_frames",
]

#: Record frames are closed at this many raw bytes, packs at about this many compressed ones.
RECORD_FRAME = 128 << 10
PACK_TARGET = 32 << 20

_LOCATION = Struct(">III")
_LOCATION_AT = 30  # byte at which the frame's location begins in an entry of keys
_PENDING_KEY = Struct(">16s8sHI12xI16s")

#: ``(key of the pack's bytes, bytes)``: puts a pack in the store.
Upload = Callable[[PackRef, bytes], None]
#: Puts a large literal in a pack of its own; gives (offset, raw bytes, digest, pack, location) for each frame.
UploadLarge = Callable[[bytes], list[tuple[int, int, bytes, PackRef, Location]]]


class _RecordFrame:
    """Raw records of one frame, or, once compressed, the frame."""

    __slots__ = ("count", "digest", "first", "frame", "keys", "raw")

    def __init__(self, first: int, count: int, raw: bytes, keys: bytes) -> None:
        self.first = first
        self.count = count
        self.raw = len(raw)
        self.keys = keys
        self.digest = short_digest(raw)
        self.frame = raw  # replaced by the compressed bytes


class _LiteralFrame:
    """Literals of one frame; ``external`` says where they lie when not in this segment's pack."""

    __slots__ = ("digest", "external", "first", "frame", "raw")

    def __init__(self, first: int, raw: bytes) -> None:
        self.first = first
        self.raw = len(raw)
        self.digest = short_digest(raw)
        self.frame = raw
        self.external: tuple[PackRef, Location] | None = None


class PackSink:
    """Writes pages, going on in further packs where one is full; keeps the list of packs it made."""

    def __init__(self, origin: Origin, upload: Upload, compressor: Compressor, packs: list[PackRef | None]) -> None:
        self._origin = origin
        self._upload = upload
        self._compressor = compressor
        #: Packs by index, as table entries name them; None is the one being built.
        self.packs = packs
        self.builder = PackBuilder(origin)
        self.index = len(packs)
        packs.append(None)
        self.written: list[PackRef] = []

    def add(self, kind: int, frame: bytes, *, raw: int, first: int, count: int, digest: bytes) -> Location:
        """Append a frame; return its location."""
        at = self.builder.add(kind, frame, raw=raw, first=first, count=count, digest=digest)
        return at._replace(pack=self.index)

    def table(self, shape: TableShape, rows: Iterable[bytes]) -> Root:
        """Write the sorted entries of a table; return its root."""
        fences: list[bytes] = []
        digests: list[bytes] = []
        locations: list[Location] = []
        total = 0
        for fence, count, page in pages_of(shape, rows):
            if self.builder.size > PACK_TARGET:
                self.next()
            digest = short_digest(page)
            at = self.add(
                FrameKind.PAGE, self._compressor(page), raw=len(page), first=shape.number, count=count, digest=digest
            )
            fences.append(fence)
            digests.append(digest)
            locations.append(at)
            total += count
        return Root(shape, total, fences, digests, locations)

    def next(self) -> None:
        """Close the pack being built and begin another."""
        self.close()
        self.builder = PackBuilder(self._origin)
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

    def __init__(self, first: int) -> None:
        self.first = first
        self.count = 0
        #: Compressed bytes of the frames so far (raw bytes of those still to be compressed).
        self.size = 0
        self._records: list[_RecordFrame] = []
        self._literals: list[_LiteralFrame] = []
        self._blobs: list[bytes] = []
        self._large: list[tuple[int, bytes]] = []
        self._queue: list[_RecordFrame | _LiteralFrame] = []

    def add_record_frame(self, first: int, count: int, raw: bytes, keys: bytes) -> None:
        """Add a closed record frame; ``keys`` are its entries of ``keys`` with an empty location, in order."""
        frame = _RecordFrame(first, count, raw, keys)
        self._records.append(frame)
        self._queue.append(frame)
        self.count += count
        self.size += len(raw)

    def add_literal_frame(self, first: int, raw: bytes) -> None:
        """Add a closed literal frame of this segment's own pack."""
        frame = _LiteralFrame(first, raw)
        self._literals.append(frame)
        self._queue.append(frame)
        self.size += len(raw)

    def add_external(self, first: int, raw: int, digest: bytes, pack: PackRef, at: Location) -> None:
        """Add literals that lie in another pack."""
        frame = _LiteralFrame(first, b"")
        frame.raw, frame.digest, frame.external = raw, digest, (pack, at)
        self._literals.append(frame)

    def add_large(self, first: int, data: bytes) -> None:
        """Add a large literal, which gets a pack of its own when the segment is finished."""
        self._large.append((first, data))
        self.size += len(data)

    def add_blob(self, entry: bytes) -> None:
        """Add an entry of ``blobs``."""
        self._blobs.append(entry)

    def compress(self, compressor: Compressor) -> None:
        """Compress what is waiting."""
        while self._queue:
            frame = self._queue.pop(0)
            compressed = compressor(frame.frame)
            self.size += len(compressed) - len(frame.frame)
            frame.frame = compressed

    def finish(
        self, origin: Origin, upload: Upload, upload_large: UploadLarge, compressor: Compressor
    ) -> tuple[Segment, list[PackRef], int]:
        """Make the pack and its tables and upload it. May be called again after it failed.

        Returns the segment, the packs its tables name by index, and the bytes of the data packs (own ones).
        """
        self.compress(compressor)
        while self._large:
            first, data = self._large[0]
            for start, raw, short, pack, at in upload_large(data):
                self.add_external(first + start, raw, short, pack, at)
            del self._large[0]
        packs: list[PackRef | None] = []
        sink = PackSink(origin, upload, compressor, packs)
        externals: dict[str, int] = {}
        literal_rows: list[bytes] = []
        for literal in sorted(self._literals, key=lambda frame: frame.first):
            if literal.external is not None:
                pack, at = literal.external
                index = externals.get(pack.digest)
                if index is None:
                    index = externals[pack.digest] = len(packs)
                    packs.append(pack)
                at = at._replace(pack=index)
                sink.builder.add_external(literal.first, bytes.fromhex(pack.digest), at, literal.raw, literal.digest)
            else:
                at = sink.add(
                    FrameKind.LITERAL,
                    literal.frame,
                    raw=literal.raw,
                    first=literal.first,
                    count=literal.raw,
                    digest=literal.digest,
                )
            literal_rows.append(pack_frame(FrameEntry(literal.first, at, literal.raw, literal.raw, literal.digest)))
        near_start = sink.builder.size
        near_pack = sink.index
        record_rows: list[bytes] = []
        keys: list[bytes] = []
        for record in self._records:
            at = sink.add(
                FrameKind.RECORD,
                record.frame,
                raw=record.raw,
                first=record.first,
                count=record.count,
                digest=record.digest,
            )
            record_rows.append(pack_frame(FrameEntry(record.first, at, record.raw, record.count, record.digest)))
            keys += _with_location(record.keys, at)
        keys.sort()
        root = sink.table(KEYS, keys)
        near = None
        if sink.index == near_pack and sink.builder.size - near_start <= NEAR_LIMIT:
            near = Near(pack=near_pack, offset=near_start, length=sink.builder.size - near_start)
        roots = [
            root,
            sink.table(RECORDS, record_rows),
            sink.table(LITERALS, literal_rows),
            sink.table(BLOBS, sorted(self._blobs)),
        ]
        sink.close()
        refs = [pack for pack in packs if pack is not None]
        segment = make_segment(self.first, self.count, roots, near)
        return segment, refs, sum(pack.size for pack in sink.written)


def make_segment(first: int, count: int, roots: Sequence[Root], near: Near | None) -> Segment:
    """A segment with inline roots; ``packs`` is None until the manifest is put together."""
    keys, records, literals, blobs = map(inline_root, roots)
    return Segment(
        first=first, count=count, packs=None, keys=keys, records=records, literals=literals, blobs=blobs, near=near
    )


def pending_key(key: bytes, discriminator: bytes, seq: int, place: int, leaf: bytes) -> bytes:
    """An entry of ``keys`` whose frame has no location yet (62 bytes)."""
    return _PENDING_KEY.pack(key[:16], discriminator, seq >> 32, seq & 0xFFFFFFFF, place, leaf[:16])


def _with_location(keys: bytes, at: Location) -> list[bytes]:
    """Split entries of one frame, with its location filled in a column at a time."""
    width = KEYS.width
    count = len(keys) // width
    filled = bytearray(keys)
    for column, byte in enumerate(_LOCATION.pack(*at)):
        if byte:
            filled[_LOCATION_AT + column :: width] = bytes((byte,)) * count
    whole = bytes(filled)
    return [whole[start : start + width] for start in range(0, len(whole), width)]


def split_frames(start: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut literals into (offset, bytes) frames of at most `CUT` bytes."""
    for at in range(0, len(data), CUT):
        yield start + at, data[at : at + CUT]
