"""Which packs hold nothing but what belongs to certain recordings, so that they may be given away whole.

A pack may hold frames of several recordings, frames that no table names any more, and literals of a base recording of
which only some bytes are used. A frame belongs to recordings when tables of one name it that it was recorded by, or
when recipes of them use every byte of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from replaypack._read.index import SegmentIndex
from replaypack._read.tables import TableReader
from replaypack._write.intervals import Intervals
from replaypack._write.rewrite import used_literals
from replaypack.errors import FormatError
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import pack_key_of
from replaypack.format.pack import TRAILER_SIZE, FrameInfo, FrameKind, parse_toc, parse_trailer
from replaypack.format.table import INLINE_SPACE, LITERALS, RECORDS, FrameEntry, TableShape, unpack_frame
from replaypack.recording import Recording
from replaypack.storage import Storage

__all__ = ["Belonging"]

#: Tables of contents that are kept, and bytes at the end of a pack that are read at once.
_TOCS = 64
_TAIL = 64 << 10
_PAGES = 16


class _Toc(NamedTuple):
    """Of a pack: its frames by offset, each with its number and the recording (id) it is from; whose they are; whether
    there are record frames."""

    frames: dict[int, tuple[int, FrameInfo, bytes | None]]
    origins: frozenset[bytes]
    records: bool

    def in_order(self) -> Iterator[tuple[FrameInfo, bytes | None]]:
        """The frames one after another."""
        return ((frame, origin) for _, frame, origin in self.frames.values())


class Belonging:
    """Finds out, looking at one recording after another, which packs belong to them wholly. Safe for threads.

    ``ids`` are the recording ids of all of them. With ``roles`` given, bytes of other payloads do not belong to them.
    Memory: a byte for each frame of the packs that are asked about; 500 bytes for each frame that is named by another
    recording than it is from, or by several, and 16 for each stretch of it that is used.
    """

    def __init__(self, storage: Storage, ids: Collection[bytes], roles: Collection[str] | None = None) -> None:
        self._storage = storage
        self._ids = frozenset(ids)
        self.roles = roles
        #: Which frames belong to them; None where the table of contents alone would tell of another recording.
        self._marks: dict[str, bytearray | None] = {}
        #: Of frames that several may use: which bytes of them, counted from the begin of the frame, are used so far.
        self._parts: dict[tuple[str, int], Intervals] = {}
        self._tocs: OrderedDict[str, _Toc] = OrderedDict()
        self._lock = threading.RLock()

    def whole(self, digest: str) -> bool:
        """Whether every frame of a pack belongs to the recordings that were looked at so far."""
        marks = self._marks.get(digest)
        return marks is not None and all(marks)

    def look(self, recording: Recording, packs: Iterable[PackRef]) -> None:
        """Note what belongs to ``recording`` of those of its packs that are asked about."""
        wanted = {ref.digest: ref for ref in packs}
        for ref in wanted.values():
            self._begin(ref)
        own = Own(self, recording)
        for entry, ref in entries(recording, RECORDS):
            own.packs.add(ref.digest)
            if ref.digest in wanted:
                self._mark(ref, entry)
        foreign: list[tuple[FrameEntry, PackRef]] = []
        for entry, ref in entries(recording, LITERALS):
            if ref.digest not in wanted:
                continue
            if own(entry, ref):
                self._mark(ref, entry)
            elif entry.items == entry.raw:
                foreign.append((entry, ref))
        if foreign:
            used = self._used(recording, Intervals((e.first, e.first + e.items) for e, _ in foreign))
            for entry, ref in foreign:
                self._use(ref, entry, used.between(entry.first, entry.first + entry.items))

    def own(self, recording: Recording) -> Own:
        """Which literal frames a recording recorded itself."""
        own = Own(self, recording)
        own.packs.update(ref.digest for _, ref in entries(recording, RECORDS))
        return own

    def used(self, recording: Recording, own: Own, wanted: Callable[[PackRef], bool]) -> Intervals:
        """Which bytes of literals a recording uses that it did not record, of packs that ``wanted`` takes."""
        return self._used(
            recording,
            Intervals(
                (entry.first, entry.first + entry.items)
                for entry, ref in entries(recording, LITERALS)
                if wanted(ref) and not own(entry, ref)
            ),
        )

    def _used(self, recording: Recording, within: Intervals) -> Intervals:
        if not within:
            return within
        if self.roles is None:
            return used_literals(recording, within=within)
        return used_literals(recording, roles=self.roles, within=within)

    def _begin(self, ref: PackRef) -> None:
        with self._lock:
            if ref.digest in self._marks:
                return
        toc = self.toc(ref)
        marks = None
        if toc.origins <= self._ids:
            # Pages hold keys and places of their recording, and are named no more once they are superseded.
            marks = bytearray(frame.kind == FrameKind.PAGE and origin in self._ids for frame, origin in toc.in_order())
        with self._lock:
            self._marks.setdefault(ref.digest, marks)

    def _mark(self, ref: PackRef, entry: FrameEntry) -> None:
        marks = self._marks[ref.digest]
        if marks is not None:
            found = self.toc(ref).frames.get(entry.frame.offset)
            if found is not None and found[1].length == entry.frame.length:
                marks[found[0]] = 1

    def _use(self, ref: PackRef, entry: FrameEntry, used: list[tuple[int, int]]) -> None:
        """Note which bytes of a frame are used; where all of them are, by whatever recordings, it belongs to them."""
        place = (ref.digest, entry.frame.offset)
        with self._lock:
            parts = self._parts.setdefault(place, Intervals())
            for start, end in used:
                parts.add(start - entry.first, end - entry.first)
            if parts.covers(0, entry.raw):
                self._parts[place] = Intervals([(0, entry.raw)])
                self._mark(ref, entry)

    def toc(self, ref: PackRef) -> _Toc:
        """The table of contents of a pack. Raises `FormatError`, `StorageError`."""
        with self._lock:
            toc = self._tocs.get(ref.digest)
            if toc is not None:
                self._tocs.move_to_end(ref.digest)
                return toc
        toc = read_toc(self._storage, ref)
        with self._lock:
            self._tocs[ref.digest] = toc
            while len(self._tocs) > _TOCS:
                self._tocs.popitem(last=False)
        return toc


class Own:
    """Whether an entry of ``literals`` is a frame that a recording recorded itself, all of whose bytes it may give.

    A sibling of a recording has its id, and is no less another: its packs hold record frames that are not named.
    """

    def __init__(self, belonging: Belonging, recording: Recording) -> None:
        self._belonging = belonging
        self._id = bytes.fromhex(recording.manifest.content.id)
        #: The packs that its record frames are in.
        self.packs: set[str] = set()

    def __call__(self, entry: FrameEntry, ref: PackRef) -> bool:
        if self._belonging.roles is not None or entry.items != entry.raw:
            return False
        toc = self._belonging.toc(ref)
        found = toc.frames.get(entry.frame.offset)
        if found is None or found[1].kind != FrameKind.LITERAL:
            return False
        return (found[2], found[1].first) == (self._id, entry.first) and (ref.digest in self.packs or not toc.records)


def read_toc(storage: Storage, ref: PackRef) -> _Toc:
    """Read the table of contents of a pack. Raises `FormatError`, `StorageError`."""
    key = pack_key_of(ref.digest)
    tail_size = min(_TAIL, ref.size)
    tail = storage.get_range(key, ref.size - tail_size, tail_size)
    length, raw, short = parse_trailer(tail, where=key)
    end = ref.size - TRAILER_SIZE
    if length > end:
        raise FormatError("the table of contents is longer than the pack", where=key)
    if length + TRAILER_SIZE <= tail_size:
        body = tail[-TRAILER_SIZE - length : -TRAILER_SIZE]
    else:
        body = storage.get_range(key, end - length, length)
    toc = parse_toc(body, raw, short, ref.size, where=key)
    ids = [origin.recording for origin in toc.origins]
    frames = {
        frame.offset: (number, frame, ids[frame.origin] if frame.origin is not None else None)
        for number, frame in enumerate(toc.frames)
    }
    return _Toc(frames, frozenset(ids), any(frame.kind == FrameKind.RECORD for frame in toc.frames))


def entries(recording: Recording, shape: TableShape) -> Iterator[tuple[FrameEntry, PackRef]]:
    """The entries of ``records``, or of the lower half of ``literals``, of a recording, each with its pack."""
    for segment in recording.index.segments:
        for row in TableReader(segment, recording.index.reader, ahead=_PAGES).rows(shape):
            entry = unpack_frame(row)
            if entry.first >= INLINE_SPACE:
                break
            yield entry, _pack(segment, entry, shape)


def _pack(segment: SegmentIndex, entry: FrameEntry, shape: TableShape) -> PackRef:
    return segment.pack(entry.frame, where=f"page of {shape.name}")
