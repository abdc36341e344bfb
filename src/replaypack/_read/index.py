"""Looking things up in the tables of a recording's segments, page by page.

Every public call plans its reads first and sends them together, so that the depth in round trips does not grow
with the number of segments.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any

import msgspec

from replaypack.errors import FormatError, PurgedError
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import PackRef, PageRef, Segment
from replaypack.format.manifest_pages import parse_pack_page, read_root
from replaypack.format.names import pack_key_of
from replaypack.format.recipe import BLOB_LIMIT, BLOB_RATIO, Range
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import Row, parse_stored_row
from replaypack.format.table import (
    BLOBS,
    INLINE_SPACE,
    KEYS,
    LITERALS,
    RECORDS,
    FrameEntry,
    FrameRef,
    KeyEntry,
    KeyPage,
    Location,
    Root,
    TableShape,
    lower_bound,
    parse_page,
    unpack_blob,
    unpack_frame,
    unpack_key,
    unpack_ref,
)

from .cache import Cache
from .packs import Frame, PackReader, check_frame

__all__ = ["Found", "Index", "SegmentIndex", "successor"]


class Found(msgspec.Struct, frozen=True, gc=False):
    """A record in its frame."""

    row: Row
    #: Empty where the digest of its inline response was not computed, which the row does not have then.
    row_bytes: bytes
    inline: bytes | None
    #: Its frame, or where that lies.
    frame: RecordFrame | Frame
    number: int


#: What a page is kept under: table, pack, offset, length, digest, entries.
PageKey = tuple[str, str, int, int, bytes, int]


#: About what a stored row and response take in the cache besides their bytes.
_STORED = 450

#: The end of an entry in the dictionary of a page of ``keys``: before it stand the first record and the pack.
_PLACE = Struct(">II16s")


def _frame_key(frame: Frame) -> tuple[str, bytes]:
    """What a record frame is kept under: all that it was checked against, so that no other reference finds it."""
    return (frame.pack.digest, _PLACE.pack(frame.at.offset, frame.at.length, frame.digest))


def _raw_key(frame: Frame) -> tuple[str, str, bytes]:
    """The same of the raw bytes of a literal frame."""
    return ("literals", *_frame_key(frame))


def _held_key(frame: Frame) -> tuple[PackRef, bytes]:
    """The same of the raw bytes of any frame, held to be read once."""
    return (frame.pack, _PLACE.pack(frame.at.offset, frame.at.length, frame.digest))


def successor(prefix: bytes) -> bytes | None:
    """The smallest byte string above every one that begins with ``prefix``; None where there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


def check_proportion(frames: Sequence[Frame], size: int, limit: int, *, where: str) -> None:
    """Refuse a blob of ``size`` bytes that is over ``limit`` and out of proportion to the bytes it is made of.

    So are raw bytes of its frames. Raises `FormatError`.
    """
    need = max(size, sum({(frame.pack.digest, frame.at): frame.raw or 0 for frame in frames}.values()))
    if need <= limit:
        return
    stored = 0
    last, end = "", 0
    # Frames may overlap: what is counted are the bytes of the packs that they cover.
    for digest, offset, length in sorted({(f.pack.digest, f.at.offset, f.at.length) for f in frames}):
        if digest != last:
            last, end = digest, 0
        stored += max(0, offset + length - max(offset, end))
        end = max(end, offset + length)
    if need > BLOB_RATIO * stored:
        raise FormatError(
            f"{need} bytes out of {stored} are more than {limit}, and out of all proportion",
            where=where,
            hint="raise `blob_limit` of the recording (bytes) where you trust its writer",
        )


class SegmentIndex:
    """The tables of one segment."""

    def __init__(self, packs: Sequence[PackRef], segment: Segment, reader: PackReader, cache: Cache) -> None:
        self.segment = segment
        self.packs = packs if segment.packs is None else [packs[index] for index in segment.packs]
        self._reader = reader
        self._cache = cache
        self._roots: dict[str, Root] = {}
        self._page_places: dict[tuple[int, int], tuple[Frame, PageKey]] = {}

    def pack(self, at: Location, *, where: str) -> PackRef:
        """The pack that a location in this segment's tables names."""
        if at.pack >= len(self.packs):
            raise FormatError(f"a table names pack {at.pack} of {len(self.packs)}", where=where)
        return self.packs[at.pack]

    def root(self, shape: TableShape) -> Root:
        """The root of one table, read where it does not stand in the manifest."""
        root = self._roots.get(shape.name)
        if root is None:
            ref = self.segment.table(shape)
            page = _read_page_ref(ref.page, self._reader) if ref.page is not None else None
            root = read_root(shape, ref, page, where=f"root of {shape.name}")
            self._roots[shape.name] = root
        return root

    def page_frame(self, shape: TableShape, number: int) -> Frame:
        """What to read for page ``number``."""
        return self.page(shape, number)[0]

    def page(self, shape: TableShape, number: int) -> tuple[Frame, PageKey]:
        """What to read for page ``number``, and what it is kept under: all that it is checked against."""
        known = self._page_places.get((shape.number, number))
        if known is None:
            root = self.root(shape)
            at, digest, count = root.locations[number], root.digests[number], root.page_count(number)
            pack = self.pack(at, where=f"root of {shape.name}")
            # A page of keys ends with a dictionary of frames, whose size only the page itself tells.
            if shape is KEYS:
                frame = Frame(pack, at, None, digest, KeyPage.largest(count))
            else:
                frame = Frame(pack, at, count * shape.width, digest)
            known = (frame, (shape.name, pack.digest, at.offset, at.length, digest, count))
            self._page_places[shape.number, number] = known
        return known

    def near(self) -> tuple[PackRef, int, int] | None:
        """The range (pack, offset, bytes) of all of its record frames and key pages, where they lie together."""
        near = self.segment.near
        if near is None:
            return None
        at = Location(near.pack, near.offset, near.length)
        return self.pack(at, where="near range"), near.offset, near.length


def _read_page_ref(ref: PageRef, reader: PackReader) -> bytes:
    size = ref.offset + ref.length
    frame = Frame(PackRef(ref.pack, size), Location(0, ref.offset, ref.length), ref.raw, bytes.fromhex(ref.digest))
    return reader.read([frame])[0]


class Index:
    """Tables and record frames of a whole recording: its manifest's segments, in order."""

    def __init__(
        self,
        manifest: Manifest,
        reader: PackReader,
        cache: Cache,
        page_cache: Cache | None = None,
        stored: Cache | None = None,
        *,
        where: str = "recording",
    ) -> None:
        self.reader = reader
        self.cache = cache
        #: Stored rows and inline responses that a frame was read for, by themselves: calls that come in no order
        #: come again, and of a frame that was read for one record the others may never be asked for.
        self.stored = stored if stored is not None else Cache(0)
        # Pages are few and asked all the time: frames that are read once must not drive them out.
        self.page_cache = page_cache if page_cache is not None else cache
        storage = manifest.storage
        packs = list(storage.packs)
        for ref in storage.pack_pages:
            packs += parse_pack_page(ref, _read_page_ref(ref, reader), where=pack_key_of(ref.pack))
        for segment in storage.segments:
            if any(index >= len(packs) for index in segment.packs or ()):
                raise FormatError("a segment names a pack that the manifest does not", where="manifest")
        self.packs = packs
        self.where = where
        #: Leaf, time and reason of each purged record, by sequence number.
        self.purged: dict[int, tuple[bytes, str, str]] = {
            seq: (bytes.fromhex(leaf), tombstone.time, tombstone.reason)
            for tombstone in storage.tombstones
            for seq, leaf in tombstone.records
        }
        #: Roles of payloads that are not here.
        self.withheld: frozenset[str] = frozenset(storage.withheld)
        #: The sequence number behind the last record.
        self.end = manifest.content.records
        self.segments = [SegmentIndex(packs, segment, reader, cache) for segment in storage.segments]
        self._inline_starts = [segment.inline_first for segment in storage.segments]
        self._literal_starts: list[tuple[int, SegmentIndex]] | None = None
        self._lock = threading.Lock()

    def gone(self, seq: int) -> PurgedError:
        """The error for a record that was purged."""
        _, time, reason = self.purged[seq]
        return PurgedError(
            f"record {seq} of {self.where} was purged on {time[:10]}: {reason}",
            recording=self.where,
            seq=seq,
            reason=reason,
            time=time,
        )

    def hold(self, frame: Frame, raw: bytes) -> None:
        """Keep the raw bytes of a frame, checked against its digest, to be read once; where there is room for them."""
        if self.cache.size + len(raw) <= self.cache.limit // 2:
            self.cache.put(_held_key(frame), raw, len(raw))

    def _read(self, frames: Sequence[Frame]) -> list[bytes]:
        """As the reader does; what is held need not be read."""
        held: dict[Frame, bytes] = {}
        for frame in frames:
            raw = self.cache.take(_held_key(frame)) if frame.digest is not None else None
            if raw is not None and len(raw) <= frame.most and frame.raw in (None, len(raw)):
                held[frame] = raw
        if not held:
            return self.reader.read(frames)
        missing = [frame for frame in frames if frame not in held]
        read = iter(self.reader.read(missing) if missing else ())
        return [held[frame] if frame in held else next(read) for frame in frames]

    # Pages

    def key_pages(self, wanted: Sequence[tuple[SegmentIndex, int]]) -> list[KeyPage]:
        """Return several pages of ``keys``, those not in the cache read together."""
        return self._pages([(segment, KEYS, number) for segment, number in wanted])

    def pages(self, wanted: Sequence[tuple[SegmentIndex, TableShape, int]]) -> list[bytes]:
        """Return the entries of several pages of other tables, those not in the cache read together."""
        return self._pages(wanted)

    def _pages(self, wanted: Sequence[tuple[SegmentIndex, TableShape, int]]) -> list[Any]:
        result: list[Any] = []
        missing: list[int] = []
        frames: list[Frame] = []
        for segment, shape, number in wanted:
            frame, key = segment.page(shape, number)
            rows = self.page_cache.get(key)
            result.append(rows)
            if rows is None:
                missing.append(len(result) - 1)
                frames.append(frame)
        for index, frame, raw in zip(missing, frames, self._read(frames) if frames else (), strict=True):
            segment, shape, number = wanted[index]
            root = segment.root(shape)
            count, digest = root.page_count(number), root.digests[number]
            page: KeyPage | bytes
            if shape is KEYS:
                page = KeyPage(raw, count, digest, where=frame.where)
                size = page.weight
            else:
                page = parse_page(shape, raw, count, digest, where=frame.where)
                size = len(page)
            self.page_cache.put(segment.page(shape, number)[1], page, size)
            result[index] = page
        if missing:
            self.cache.trim()  # frames have the room that pages leave
        return result

    # Keys

    def _bounds(self, prefixes: Sequence[bytes], *, ends: bool) -> list[list[tuple[SegmentIndex, int, int | None]]]:
        """For each prefix and segment the absolute index of its run's first entry and, on request, of its end.

        The pages where the runs start (and, for counts, end) are read in one go. A prefix that a segment does
        not have gives an empty run; without ``ends`` the end is None, and the start may be that of an empty run.
        """
        plan: list[tuple[SegmentIndex, int]] = []
        queries: list[tuple[int, SegmentIndex, bytes | None, int]] = []
        for number, prefix in enumerate(prefixes):
            after = successor(prefix) if ends else None
            for segment in self.segments:
                root = segment.root(KEYS)
                if not root.count:
                    continue  # all of its records were purged
                queries.append((number, segment, prefix, root.page_of(prefix)))
                if ends:
                    queries.append((number, segment, after, root.page_of(after) if after is not None else -1))
        places: dict[tuple[int, int], int] = {}
        for _, segment, _, page in queries:
            if page >= 0 and (id(segment), page) not in places:
                places[(id(segment), page)] = len(plan)
                plan.append((segment, page))
        rows = [page.rows for page in self.key_pages(plan)]
        answers: list[list[tuple[SegmentIndex, int, int | None]]] = [[] for _ in prefixes]
        step = 2 if ends else 1
        for at in range(0, len(queries), step):
            number, segment, prefix_, page = queries[at]
            start = self._absolute(segment, prefix_, page, rows, places)
            end = self._absolute(segment, queries[at + 1][2], queries[at + 1][3], rows, places) if ends else None
            answers[number].append((segment, start, end))
        return answers

    @staticmethod
    def _absolute(
        segment: SegmentIndex,
        key: bytes | None,
        page: int,
        rows: Sequence[bytes],
        places: dict[tuple[int, int], int],
    ) -> int:
        root = segment.root(KEYS)
        if key is None:
            return root.count
        within = lower_bound(rows[places[(id(segment), page)]], KEYS.width, key)
        return page * KEYS.page_entries + within

    def counts(self, prefixes: Sequence[bytes]) -> list[int]:
        """How many entries of ``keys`` begin with each prefix (16 bytes: a key; 24: with its discriminator)."""
        return [sum((end or 0) - start for _, start, end in runs) for runs in self._bounds(prefixes, ends=True)]

    def first(self, prefix: bytes) -> Found | None:
        """The record of the first entry that begins with ``prefix`` (24 bytes), in recording order.

        It is what nearly every lookup asks, so that what `entries` and `record` do is written out here.
        """
        if len(self.segments) != 1 or not self.segments[0].segment.keys.count:
            at = next(self.entries(prefix), None)
            return self.record(*at) if at is not None else None
        segment = self.segments[0]
        fences = segment.root(KEYS).fences
        number = (bisect_left(fences, prefix) or 1) - 1
        page: KeyPage | None = self.page_cache.get(segment.page(KEYS, number)[1])
        if page is None:
            [page] = self.key_pages([(segment, number)])
        start = page.lower_bound(prefix) * KEYS.width
        if start >= len(page.rows):
            at = next(self.entries(prefix), None)
            return self.record(*at) if at is not None else None
        found = page.rows[start : start + KEYS.width]
        if not found.startswith(prefix):
            return None
        seq = int.from_bytes(found[24:])
        ref = page.ref_of(seq)
        pack = int.from_bytes(ref[6:10])
        frame = self.cache.get((segment.packs[pack].digest, ref[10:])) if pack < len(segment.packs) else None
        if frame is None:
            return self.record(segment, unpack_key(found), unpack_ref(ref))
        within = seq - int.from_bytes(ref[:6])
        return self._checked(frame, frame.stored(within), seq, within, prefix[:16])

    def entries(self, prefix: bytes, nth: int = 0) -> Iterator[tuple[SegmentIndex, KeyEntry, FrameRef]]:
        """Yield the entries that begin with ``prefix``, from number ``nth`` on, with the frames they lie in.

        The order is that of the recording. The pages where the runs start are read together; further ones as the
        iteration reaches them.
        """
        [runs] = self._bounds([prefix], ends=nth > 0)
        size = len(prefix)
        width, per_page = KEYS.width, KEYS.page_entries
        for segment, start, end in runs:
            if end is not None and start + nth >= end:
                nth -= end - start
                continue
            root = segment.root(KEYS)
            position = start + nth
            nth = 0
            while position < root.count:
                page, within = divmod(position, per_page)
                # The first entry of a page stands in the root: no need to read a page to see that a run ended.
                if within == 0 and root.fences[page][:size] != prefix:
                    break
                [found] = self.key_pages([(segment, page)])
                if found.rows[within * width : within * width + size] != prefix:
                    break
                entry = unpack_key(found.rows, within * width)
                yield segment, entry, found.frame_of(entry.seq)
                position += 1

    # Record frames

    def record(self, segment: SegmentIndex, entry: KeyEntry, ref: FrameRef) -> Found:
        """Read the record that an entry of ``keys`` names and check it against the entry.

        Raises `PurgedError`, `FormatError`, `StorageError`.
        """
        pack = segment.pack(ref.frame, where="page of keys")
        at = Frame(pack, ref.frame, None, ref.digest)
        key = _frame_key(at)
        number = entry.seq - ref.first
        frame: RecordFrame | None = self.cache.get(key)
        if frame is not None:
            return self._checked(frame, frame.stored(number), entry.seq, number, entry.key)
        stored: tuple[bytes, bytes | None] | None = self.stored.get((key, number))
        if stored is None:
            [frame] = self.read_frames([at])
            stored = frame.stored(number)
            self.stored.put((key, number), stored, len(stored[0]) + len(stored[1] or b"") + _STORED)
        return self._checked(at, stored, entry.seq, number, entry.key)

    def _checked(
        self, frame: RecordFrame | Frame, stored: tuple[bytes, bytes | None], seq: int, number: int, key: bytes
    ) -> Found:
        """Record ``number`` of a frame, of its stored row and response; it must be the one that ``keys`` says it is."""
        if self.purged and seq in self.purged:
            raise self.gone(seq)
        inline = stored[1]
        row, data = parse_stored_row(stored[0], inline, where=frame.where)
        if row.seq != seq or row.key[:16] != key:
            raise FormatError(f"record {seq} does not match its entry in keys", where=frame.where)
        return Found(row, data, inline, frame, number)

    def frames(self, first: int = 0) -> Iterator[tuple[FrameEntry, Frame]]:
        """Yield the record frames from the one that holds record ``first`` on, in order."""
        for segment in self.segments:
            if segment.segment.first + segment.segment.count <= first:
                continue
            root = segment.root(RECORDS)
            start = max(0, root.page_at_or_before(first.to_bytes(6, "big")))
            for page in range(start, len(root.fences)):
                [rows] = self.pages([(segment, RECORDS, page)])
                for at in range(0, len(rows), RECORDS.width):
                    entry = unpack_frame(rows, at)
                    if entry.first + entry.items > first:
                        pack = segment.pack(entry.frame, where="page of records")
                        yield entry, Frame(pack, entry.frame, entry.raw, entry.digest)

    def read_frames(self, frames: Sequence[Frame], *, most: int | None = None) -> list[RecordFrame]:
        """Return several record frames, those not in the cache read together.

        With ``most`` only as many of them, from the first on, as have so many raw bytes, and one at least.
        """
        found: list[RecordFrame | None] = [self.cache.get(_frame_key(f)) for f in frames]
        missing = [index for index, frame in enumerate(found) if frame is None]
        if not missing:
            return found  # type: ignore[return-value]
        if most is None:
            for index, raw in zip(missing, self._read([frames[i] for i in missing]), strict=True):
                found[index] = self._keep(frames[index], raw)
            return found  # type: ignore[return-value]
        stored = dict(zip(missing, self.reader.fetch([frames[i] for i in missing]), strict=True))
        some: list[RecordFrame] = []
        for index, frame in enumerate(found):
            some.append(frame or self._keep(frames[index], check_frame(frames[index], stored[index])))
            most -= len(some[-1].raw)
            if most <= 0:
                break
        return some

    def _keep(self, at: Frame, raw: bytes) -> RecordFrame:
        frame = RecordFrame(raw, where=at.where)
        frame.token = _frame_key(at)
        self.cache.put(_frame_key(at), frame, frame.weight)
        return frame

    def recipes(self, frame: RecordFrame | Frame, number: int) -> list[list[Range]]:
        """The recipes of a record; what they take in memory counts for the cache."""
        if isinstance(frame, Frame):
            [frame] = self.read_frames([frame])
        known = frame.resolved(number)
        if known is not None:
            return known
        before = frame.weight
        result = frame.recipes(number)
        if frame.weight != before and self.cache.get(frame.token) is frame:
            self.cache.put(frame.token, frame, frame.weight)
        return result

    # Literals

    def _literal_segment(self, offset: int) -> SegmentIndex:
        if offset >= INLINE_SPACE:
            at = bisect_right(self._inline_starts, offset - INLINE_SPACE) - 1
            if at < 0:
                raise FormatError(f"no inline responses at offset {offset}", where="literals")
            return self.segments[at]
        with self._lock:
            if self._literal_starts is None:
                starts = []
                for segment in self.segments:
                    fences = segment.root(LITERALS).fences
                    if fences and int.from_bytes(fences[0], "big") < INLINE_SPACE:
                        starts.append((int.from_bytes(fences[0], "big"), segment))
                self._literal_starts = starts
        position = bisect_right(self._literal_starts, offset, key=lambda item: item[0]) - 1
        if position < 0:
            raise FormatError(f"no literals at offset {offset}", where="literals")
        return self._literal_starts[position][1]

    def literals(
        self, spans: Sequence[tuple[int, int]], *, size: int = 0, limit: int = BLOB_LIMIT, where: str = "literals"
    ) -> list[bytes]:
        """Return the bytes of several (offset, length) spans of the literal address space.

        They are of a blob of ``size`` bytes, which is refused before its frames are read where it is over ``limit``
        (bytes) and out of proportion to them. Two rounds at most: the pages of ``literals`` that are not in the
        cache, then the frames, each together.
        """
        entries = self.literal_entries(spans)
        check_proportion([frame for _, frame in entries], size, limit, where=where)
        firsts = [entry.first for entry, _ in entries]
        raws = self.literal_frames(entries)
        result = []
        for offset, length in spans:
            cuts = []
            end = offset + length
            while offset < end:
                at = bisect_right(firsts, offset) - 1
                begin = offset - firsts[at]
                part = raws[at][begin : begin + end - offset]
                cuts.append(part)
                offset += len(part)
            result.append(cuts[0] if len(cuts) == 1 else b"".join(cuts))
        return result

    def literal_entries(self, spans: Sequence[tuple[int, int]]) -> list[tuple[FrameEntry, Frame]]:
        """Return the literal frames that hold several (offset, length) spans, in order of their offsets.

        Raises `FormatError` where a span is not wholly covered.
        """
        chosen: dict[tuple[int, int], tuple[SegmentIndex, int]] = {}
        # Which pages: an entry may begin before a span, so every page from the one at its start to its end.
        for offset, length in spans:
            first = self._literal_segment(offset)
            last = self._literal_segment(offset + max(length, 1) - 1)
            for segment in self.segments[self.segments.index(first) : self.segments.index(last) + 1]:
                root = segment.root(LITERALS)
                low = max(0, root.page_at_or_before(offset.to_bytes(6, "big")))
                high = root.page_at_or_before((offset + max(length, 1) - 1).to_bytes(6, "big"))
                for page in range(low, high + 1):
                    chosen[(id(segment), page)] = (segment, page)
        wanted = list(chosen.values())
        entries: list[tuple[FrameEntry, SegmentIndex]] = []
        for (segment, _), rows in zip(wanted, self.pages([(s, LITERALS, p) for s, p in wanted]), strict=True):
            entries += ((unpack_frame(rows, at), segment) for at in range(0, len(rows), LITERALS.width))
        entries.sort(key=lambda item: item[0].first)
        firsts = [entry.first for entry, _ in entries]
        needed: set[int] = set()
        for offset, length in spans:
            end = offset + length
            while offset < end:
                at = bisect_right(firsts, offset) - 1
                entry = entries[at][0] if at >= 0 else None
                if entry is None or offset >= entry.first + entry.items or entry.items > entry.raw:
                    raise FormatError(f"no literals at offset {offset}", where="literals")
                offset = entry.first + entry.items
                if at + 1 < len(firsts) and firsts[at + 1] < offset:
                    raise FormatError(f"two frames hold the literals at offset {firsts[at + 1]}", where="literals")
                needed.add(at)
        result = []
        for at in sorted(needed):
            entry, segment = entries[at]
            pack = segment.pack(entry.frame, where="page of literals")
            result.append((entry, Frame(pack, entry.frame, entry.raw, entry.digest)))
        return result

    def literal_frames(self, entries: Sequence[tuple[FrameEntry, Frame]]) -> list[bytes]:
        """The literals of each entry: all of a literal frame, the inline section at the end of a record frame."""
        found: list[bytes] = [b""] * len(entries)
        own = [(index, frame) for index, (entry, frame) in enumerate(entries) if entry.first < INLINE_SPACE]
        inline = [(index, frame) for index, (entry, frame) in enumerate(entries) if entry.first >= INLINE_SPACE]
        # A frame may stand in the table more than once: it is read, and held, once.
        missing: dict[Frame, list[int]] = {}
        for index, frame in own + inline:
            records: RecordFrame | None = self.cache.get(_frame_key(frame))
            cached = self.cache.get(_raw_key(frame)) if records is None else records.raw
            if cached is None:
                missing.setdefault(frame, []).append(index)
            else:
                found[index] = cached
        if missing:
            for (frame, indexes), raw in zip(missing.items(), self._read(list(missing)), strict=True):
                if any(entries[index][0].first >= INLINE_SPACE for index in indexes):
                    self._keep(frame, raw)
                else:
                    self.cache.put(_raw_key(frame), raw, len(raw))
                for index in indexes:
                    found[index] = raw
        for raw, (entry, frame) in zip(found, entries, strict=True):
            if len(raw) != entry.raw:
                raise FormatError(f"a table says {entry.raw} bytes of a frame of {len(raw)}", where=frame.where)
        return [
            raw if entry.items == len(raw) else raw[len(raw) - entry.items :]
            for raw, (entry, _) in zip(found, entries, strict=True)
        ]

    # Blobs

    def blob(self, digest: bytes) -> tuple[int, int] | None:
        """Return (sequence, role) of a record that has the blob of this digest, if it has 4 KiB or more."""
        prefix = digest[:16]
        for segment in self.segments:
            root = segment.root(BLOBS)
            if not root.fences:
                continue
            page = root.page_of(prefix)
            for number in range(page, min(page + 2, len(root.fences))):
                if number > page and root.fences[number][:16] != prefix:
                    break
                [rows] = self.pages([(segment, BLOBS, number)])
                within = lower_bound(rows, BLOBS.width, prefix) * BLOBS.width
                if rows[within : within + 16] == prefix:
                    entry = unpack_blob(rows, within)
                    return entry.seq, entry.role
        return None
