"""Writing a recording's frames into new packs: the same records, the same address space of literals, the same content.

What becomes of each frame is decided by whoever calls: it is kept as it is in a new pack, it stays in the pack that it
is in, or it is written anew, changed. Tables are written anew; they lead to the new places.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from replaypack._read.packs import Frame, check_frame
from replaypack._read.tables import TableReader
from replaypack.errors import FormatError
from replaypack.format.digests import short_digest
from replaypack.format.frame import Compressor
from replaypack.format.manifest_members import NEAR_LIMIT, Near, PackRef
from replaypack.format.pack import MAX_EXTERNAL, FrameKind, Origin
from replaypack.format.recipe import Range
from replaypack.format.record_frame import RecordFrame
from replaypack.format.table import (
    BLOBS,
    INLINE_SPACE,
    KEYS,
    LITERALS,
    RECORDS,
    FrameEntry,
    FrameRef,
    Location,
    TableShape,
    pack_frame,
    unpack_frame,
)

from .intervals import Intervals
from .merge import Live
from .segment import PACK_TARGET, PackSink, Upload, make_segment

if TYPE_CHECKING:
    from replaypack.recording import Recording

__all__ = ["ROLES", "Fate", "LiteralFate", "RecordFate", "rewrite", "used_literals"]

#: Frames that are read together, and their compressed bytes. Two such batches are in memory at a time.
_FRAMES = 256
_BYTES = 8 << 20
#: Raw bytes of record frames that are read together. They compress to nothing where somebody wants them to.
_RAW = 32 << 20
#: Pages of a table that are read together.
_PAGES = 16

Role = Literal["request", "identity", "response"]
ROLES: tuple[Role, ...] = ("request", "identity", "response")


class Fate(Enum):
    """What becomes of a frame: its bytes go into a new pack, or it stays in the pack that it is in."""

    KEEP = "keep"
    STAY = "stay"


#: Of a frame of literals: intervals of the address space say which of its bytes are kept; the others become zeros,
#: and where none is kept the frame is left out.
LiteralFate = Fate | Sequence[tuple[int, int]]
#: Of a record frame: a function of its raw bytes gives the sections (`encode_frame`) of the one that takes its place,
#: with as many records and as many bytes of inline responses.
RecordFate = Fate | Callable[[bytes], list[bytes]]

_T = TypeVar("_T")
_Item = tuple[FrameEntry, Frame, Any]


def rewrite(
    source: Recording,
    *,
    origin: Origin,
    upload: Upload,
    compressor: Compressor,
    literal: Callable[[FrameEntry, Frame], LiteralFate],
    record: Callable[[FrameEntry, Frame], RecordFate],
    edit: Callable[[TableShape, Iterator[bytes]], Iterator[bytes]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Live | None:
    """Write all records of ``source`` as one segment; ``upload`` gets each new pack. None where there are no records.

    ``literal`` is asked for each entry of the lower half of the address space, ``record`` for each record frame, both
    in order. Literals that are the end of a record frame (of a base recording) and do not stay become a literal frame:
    the rest of that frame is never copied. ``edit`` may change the entries of ``keys`` and ``blobs``, which keep their
    order. ``progress`` is told the compressed bytes of each frame that was read.

    The same source and decisions give the same packs. Every frame that is copied is checked. Memory: the pack that is
    written, two batches of frames, pages of the tables, about 500 bytes for each frame.

    Raises `FormatError` where the source is damaged, `StorageError`, and what ``upload`` raises.
    """
    if not source.index.segments:
        return None
    return _Rewriter(source, origin, upload, compressor, progress).run(literal, record, edit)


class _Rewriter:
    def __init__(
        self,
        source: Recording,
        origin: Origin,
        upload: Upload,
        compressor: Compressor,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._index = source.index
        self._reader = source.index.reader
        self._where = source.locator
        self._tables = [TableReader(segment, self._reader, ahead=_PAGES) for segment in self._index.segments]
        self._compressor = compressor
        self._progress = progress
        self._packs: list[PackRef | None] = []
        self._indexes: dict[str, int] = {}
        self._sink = PackSink(origin, upload, compressor, self._packs)
        #: Where record frames went: what the inline half of the literals refers to.
        self._moved: dict[tuple[str, int], FrameEntry] = {}

    def run(
        self,
        literal: Callable[[FrameEntry, Frame], LiteralFate],
        record: Callable[[FrameEntry, Frame], RecordFate],
        edit: Callable[[TableShape, Iterator[bytes]], Iterator[bytes]] | None,
    ) -> Live:
        sink = self._sink
        lower = ((entry, frame, literal(entry, frame)) for entry, frame in self._entries(LITERALS))
        literals = [row for item, data in self._read(lower) if (row := self._literal(*item, data)) is not None]
        start, pack = sink.builder.size, sink.index
        near = True
        records: list[FrameEntry] = []
        items = ((entry, frame, record(entry, frame)) for entry, frame in self._entries(RECORDS))
        for (entry, frame, fate), data in self._read(items):
            near = near and fate is not Fate.STAY
            records.append(self._record(entry, frame, fate, data))
        refs = [FrameRef(entry.first, entry.frame, entry.digest) for entry in records]
        keys = sink.table(KEYS, self._merged(KEYS, edit), refs)
        size = sink.builder.size - start
        place = (
            Near(pack=pack, offset=start, length=size) if near and sink.index == pack and size <= NEAR_LIMIT else None
        )
        roots = [
            keys,
            sink.table(RECORDS, map(pack_frame, records)),
            sink.table(LITERALS, self._literal_rows(literals)),
            sink.table(BLOBS, self._merged(BLOBS, edit)),
        ]
        sink.close()
        first = self._index.segments[0].segment
        segment = make_segment(first.first, self._index.end, first.inline_first, roots, place)
        packs = [ref for ref in self._packs if ref is not None]
        own = frozenset(ref.digest for ref in sink.written)
        return Live(segment, packs, frozenset(ref.digest for ref in packs), own, sum(ref.size for ref in sink.written))

    # Reading

    def _entries(self, shape: TableShape) -> Iterator[tuple[FrameEntry, Frame]]:
        """The entries of ``records``, or those of the lower half of ``literals``, of all segments in order."""
        last = -1
        for table in self._tables:
            for row in table.rows(shape):
                entry = unpack_frame(row)
                if entry.first >= INLINE_SPACE:
                    break
                if entry.first <= last or not 0 < entry.items <= entry.raw:
                    raise FormatError(f"the entries of {shape.name} are not in order", where=self._where)
                last = entry.first
                yield entry, _frame(table, entry, shape)

    def _read(self, items: Iterable[_Item]) -> Iterator[tuple[_Item, bytes]]:
        """Beside each item the stored bytes of its frame, nothing for what stays."""
        for batch, stored in _ahead(_batches(items), self._fetch):
            bodies = iter(stored)
            for item in batch:
                if item[2] is Fate.STAY:
                    yield item, b""
                    continue
                yield item, next(bodies)
                if self._progress is not None:
                    self._progress(item[1].at.length)

    def _fetch(self, batch: list[_Item]) -> list[bytes]:
        return self._reader.fetch([frame for _, frame, fate in batch if fate is not Fate.STAY])

    def _merged(
        self, shape: TableShape, edit: Callable[[TableShape, Iterator[bytes]], Iterator[bytes]] | None
    ) -> Iterator[bytes]:
        rows = heapq.merge(*(table.rows(shape) for table in self._tables))
        return rows if edit is None else edit(shape, rows)

    # Writing

    def _add(self, kind: int, frame: bytes, raw: int, first: int, count: int, digest: bytes) -> Location:
        if self._sink.builder.size > PACK_TARGET:
            self._sink.next()
        return self._sink.add(kind, frame, raw=raw, first=first, count=count, digest=digest)

    def _stay(self, frame: Frame) -> Location:
        index = self._indexes.get(frame.pack.digest)
        if index is None:
            index = self._indexes[frame.pack.digest] = len(self._packs)
            self._packs.append(frame.pack)
        return frame.at._replace(pack=index)

    def _literal(
        self, entry: FrameEntry, frame: Frame, fate: LiteralFate, data: bytes
    ) -> tuple[FrameEntry, bool] | None:
        """The new entry, and whether its bytes lie in a pack that was there already."""
        if fate is Fate.STAY:
            return entry._replace(frame=self._stay(frame)), True
        raw = check_frame(frame, data)
        size, first = entry.items, entry.first
        if fate is not Fate.KEEP:
            kept = Intervals(fate).between(first, first + size)
            if not kept:
                return None
            if kept != [(first, first + size)]:
                own = memoryview(raw)[len(raw) - size :]
                zeroed = bytearray(size)
                for start, end in kept:
                    zeroed[start - first : end - first] = own[start - first : end - first]
                return self._new_literals(first, zeroed), False
        if size < len(raw):
            return self._new_literals(first, raw[len(raw) - size :]), False
        at = self._add(FrameKind.LITERAL, data, size, first, size, entry.digest)
        return entry._replace(frame=at), False

    def _new_literals(self, first: int, raw: bytes | bytearray) -> FrameEntry:
        size, digest = len(raw), short_digest(raw)
        at = self._add(FrameKind.LITERAL, self._compressor(raw), size, first, size, digest)
        return FrameEntry(first, at, size, size, digest)

    def _record(self, entry: FrameEntry, frame: Frame, fate: RecordFate, data: bytes) -> FrameEntry:
        if isinstance(fate, Fate):
            if fate is Fate.STAY:
                at = self._stay(frame)
            else:
                check_frame(frame, data)
                at = self._add(FrameKind.RECORD, data, entry.raw, entry.first, entry.items, entry.digest)
            new = entry._replace(frame=at)
        else:
            old = check_frame(frame, data)
            sections = fate(old)
            raw = b"".join(sections)
            before, after = RecordFrame(old, where=frame.where), RecordFrame(raw, where=frame.where)
            if (after.count, after.inline_size) != (before.count, before.inline_size):
                raise FormatError("a changed record frame has another number of records or bytes", where=frame.where)
            digest = short_digest(raw)
            stored = self._compressor.sections(sections)
            at = self._add(FrameKind.RECORD, stored, len(raw), entry.first, entry.items, digest)
            new = FrameEntry(entry.first, at, len(raw), entry.items, digest)
        self._moved[frame.pack.digest, frame.at.offset] = new
        return new

    def _literal_rows(self, lower: list[tuple[FrameEntry, bool]]) -> Iterator[bytes]:
        """All entries of ``literals``. What lies in packs that were there is noted, so that packs alone suffice."""
        noted = 0
        for entry, stays in lower:
            if stays:
                if noted == MAX_EXTERNAL:
                    # Pages of this very table are in the pack by now: it is not empty.
                    self._sink.next()
                    noted = 0
                ref = self._packs[entry.frame.pack]
                assert ref is not None
                pack = bytes.fromhex(ref.digest)
                self._sink.builder.add_external(entry.first, pack, entry.frame, entry.raw, entry.items, entry.digest)
                noted += 1
            yield pack_frame(entry)
        for table in self._tables:
            for row in table.rows(LITERALS):
                entry = unpack_frame(row)
                if entry.first < INLINE_SPACE:
                    continue
                frame = _frame(table, entry, LITERALS)
                new = self._moved.get((frame.pack.digest, frame.at.offset))
                if new is None or entry.items > new.raw:
                    raise FormatError("inline responses lie in no record frame of the recording", where=frame.where)
                yield pack_frame(entry._replace(frame=new.frame, raw=new.raw, digest=new.digest))


def _frame(table: TableReader, entry: FrameEntry, shape: TableShape) -> Frame:
    pack = table.segment.pack(entry.frame, where=f"page of {shape.name}")
    return Frame(pack, entry.frame._replace(pack=0), entry.raw, entry.digest)


def _batches(items: Iterable[_Item], raw: int | None = None) -> Iterator[list[_Item]]:
    """Items that are read together; with ``raw`` of at most so many raw bytes, where there are several."""
    batch: list[_Item] = []
    size = total = 0
    for item in items:
        total += item[0].raw
        if raw is not None and total > raw and batch:
            yield batch
            batch, size, total = [], 0, item[0].raw
        batch.append(item)
        size += 0 if item[2] is Fate.STAY else item[1].at.length
        if len(batch) >= _FRAMES or size >= _BYTES:
            yield batch
            batch, size, total = [], 0, 0
    if batch:
        yield batch


def _ahead(batches: Iterator[list[_Item]], read: Callable[[list[_Item]], _T]) -> Iterator[tuple[list[_Item], _T]]:
    """Beside each batch what ``read`` gives for it; the next one is read meanwhile, in a thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="replaypack-read") as pool:
        waiting: tuple[list[_Item], Future[_T]] | None = None
        for batch in batches:
            future = pool.submit(read, batch)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = (batch, future)
        if waiting is not None:
            yield waiting[0], waiting[1].result()


class _Refs(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Of a row whether it has a request and an identity."""

    _seq: msgspec.Raw
    _kind: msgspec.Raw
    _name: msgspec.Raw
    _key: msgspec.Raw
    _scheme: msgspec.Raw
    _scope: msgspec.Raw
    request: msgspec.Raw
    identity: msgspec.Raw


_NIL = b"\xc0"
_refs = msgspec.msgpack.Decoder(_Refs)


def used_literals(
    source: Recording,
    *,
    roles: Collection[str] = ROLES,
    wanted: Callable[[int], bool] | None = None,
    within: Intervals | None = None,
) -> Intervals:
    """The intervals of the literal address space that the recipes of a recording touch; reads all record frames.

    Of the payloads of ``roles`` (``"request"``, ``"identity"``, ``"response"``), and of the records whose sequence
    number ``wanted`` takes (all by default). With ``within`` only what lies inside of it counts. Inline responses have
    no recipe: they count where a recipe quotes them. Memory: a batch of record frames, 16 bytes an interval.

    Raises `FormatError`, `StorageError`.
    """
    found = Intervals(within=within)
    all_roles = wanted is None and set(roles) == set(ROLES)
    index = source.index
    items = ((entry, frame, None) for entry, frame in index.frames())
    for batch, raws in _ahead(_batches(items, _RAW), lambda batch: index.reader.read([frame for _, frame, _ in batch])):
        for (entry, frame, _), raw in zip(batch, raws, strict=True):
            records = RecordFrame(raw, where=frame.where)
            if all_roles:
                for offset, length, _ in records.written_ranges():
                    found.add(offset, offset + length)
            else:
                _add_chosen(found, records, entry.first, roles, wanted)
    return found


def _add_chosen(
    found: Intervals,
    records: RecordFrame,
    first: int,
    roles: Collection[str],
    wanted: Callable[[int], bool] | None,
) -> None:
    # Recipes name the same ranges again and again.
    chosen: set[Range] = set()
    for number, (row, inline) in enumerate(zip(*records.stored_rows(), strict=True)):
        if not row or (wanted is not None and not wanted(first + number)):
            continue
        recipes = records.recipes(number)
        try:
            # A stored row may lack the digest at its end.
            refs = _refs.decode(row if inline is None else row + bytes(32))
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise FormatError(f"a row does not parse: {error}", where=records.where) from None
        given = [role for role, ref in (("request", refs.request), ("identity", refs.identity)) if bytes(ref) != _NIL]
        given.append("response")
        for role, ranges in zip(given, recipes, strict=False):
            if role in roles:
                chosen.update(ranges)
    for offset, length, _ in chosen:
        found.add(offset, offset + length)
