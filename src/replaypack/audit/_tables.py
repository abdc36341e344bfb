"""Tables: every page sound and in order, frames where the packs say they are, nothing left out in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from replaypack._read.index import Index, SegmentIndex
from replaypack.errors import DAMAGED, FormatError, ObjectMissingError, ObjectTooShortError
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import pack_key_of
from replaypack.format.pack import FrameInfo, FrameKind
from replaypack.format.table import (
    INLINE_SPACE,
    KEYS,
    LITERALS,
    RECORDS,
    TABLES,
    FrameEntry,
    Location,
    TableShape,
    unpack_frame,
)

from ._faults import Fault, fault
from ._packs import PackChecker

__all__ = ["Pages", "check_tables"]


class Pages:
    """Reads the pages of one recording's tables; a page that cannot be read is reported once and stepped over."""

    def __init__(self, index: Index, packs: PackChecker) -> None:
        self.index = index
        self._packs = packs
        self.faults: list[Fault] = []
        self._bad_roots: set[tuple[int, str]] = set()
        self._bad_pages: set[tuple[int, str, int]] = set()

    def root_sound(self, number: int, shape: TableShape) -> bool:
        """Whether the root of a table of segment ``number`` can be read."""
        if (number, shape.name) in self._bad_roots:
            return False
        segment = self.index.segments[number]
        try:
            segment.root(shape)
        except DAMAGED as error:
            self._bad_roots.add((number, shape.name))
            ref = segment.segment.table(shape).page
            if ref is not None and isinstance(error, ObjectMissingError | ObjectTooShortError):
                self.faults.append(fault("pack.missing", pack_key_of(ref.pack), f"it holds the root of {shape.name}"))
            else:
                self.faults.append(_page_fault(error, f"root of {shape.name}"))
            return False
        return True

    def read(self, number: int, shape: TableShape, page: int, *, frames: bool = False) -> list[bytes] | None:
        """The entries of a page, or None where it cannot be read (`faults` then has it, unless it did before).

        With ``frames`` to an entry of ``keys`` is added where its frame lies, which the page tells apart from it.
        """
        segment = self.index.segments[number]
        try:
            frame = segment.page_frame(shape, page)
            if self._packs.missing(frame.pack) or (number, shape.name, page) in self._bad_pages:
                return None
            if shape is KEYS:
                [keys] = self.index.key_pages([(segment, page)])
                return keys.entries() if frames else shape.split(keys.rows)
            [rows] = self.index.pages([(segment, shape, page)])
        except DAMAGED as error:
            self._bad_pages.add((number, shape.name, page))
            place = segment.root(shape).locations[page]
            if place.pack < len(segment.packs):
                at = (segment.packs[place.pack].digest, place.offset)
                if at in self._packs.bad_frames:
                    return None
                self._packs.bad_frames.add(at)
            self.faults.append(_page_fault(error, f"page {page} of {shape.name}"))
            return None
        return shape.split(rows)

    def entries(
        self, number: int, shape: TableShape, on_lost: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (page, entry) of every page that can be read; ``on_lost`` is told the others."""
        for page, rows in self.whole(number, shape, on_lost):
            for row in rows:
                yield page, row

    def whole(
        self, number: int, shape: TableShape, on_lost: Callable[[int], None] | None = None, *, frames: bool = False
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (page, its entries) as `entries` does; ``frames`` as for `read`."""
        if not self.root_sound(number, shape):
            return
        for page in range(len(self.index.segments[number].root(shape).fences)):
            rows = self.read(number, shape, page, frames=frames)
            if rows is not None:
                yield page, rows
            elif on_lost is not None:
                on_lost(page)

    def take_faults(self) -> list[Fault]:
        """The faults found since the last call."""
        faults, self.faults = self.faults, []
        return faults


def _page_fault(error: Exception, what: str) -> Fault:
    if isinstance(error, FormatError):
        return fault("page.corrupted", error.where or what, f"{what}: {error.detail}")
    return fault("page.corrupted", what, str(error))


def check_tables(
    manifest: Manifest, pages: Pages, packs: PackChecker, progress: Callable[[int, int], None]
) -> Iterator[Fault]:
    """Check the tables of every segment against themselves and against the tables of contents of the packs."""
    ends: _Ends = (0, 0)
    segments = pages.index.segments
    for number, segment in enumerate(segments):
        progress(number, len(segments))
        yield from _near(segment)
        for shape in TABLES:
            if pages.root_sound(number, shape):
                yield from _root(segment, shape, packs)
            yield from pages.take_faults()
        yield from _records(number, segment, pages, packs)
        ends = yield from _literals(number, segment, pages, packs, ends)
    storage = manifest.storage
    for what, end, told in zip(_SPACES, ends, (storage.literals, storage.inlines), strict=True):
        # Literals that no recipe names may be left out; inline responses are never.
        if end is not None and (end > told or (end < told and what == _SPACES[1])):
            yield fault("literals.gap", what, f"the tables end at byte {end}, the manifest names {told}")
    progress(len(segments), len(segments))


def _near(segment: SegmentIndex) -> Iterator[Fault]:
    near = segment.segment.near
    if near is None:
        return
    where = f"segment from record {segment.segment.first}"
    if near.pack >= len(segment.packs):
        yield fault("segment.near", where, f"the near range names pack {near.pack} of {len(segment.packs)}")
    elif near.offset + near.length > segment.packs[near.pack].size:
        yield fault("segment.near", where, "the near range ends beyond its pack")


def _root(segment: SegmentIndex, shape: TableShape, packs: PackChecker) -> Iterator[Fault]:
    root = segment.root(shape)
    for page, (at, digest) in enumerate(zip(root.locations, root.digests, strict=True)):
        what = f"page {page} of {shape.name}"
        # How large a page of keys is, only the page itself tells.
        raw = None if shape is KEYS else root.page_count(page) * shape.width
        yield from _located(segment, at, what, packs, (FrameKind.PAGE,), digest, raw)


def _located(
    segment: SegmentIndex,
    at: Location,
    what: str,
    packs: PackChecker,
    kinds: tuple[int, ...],
    digest: bytes,
    raw: int | None,
) -> Iterator[Fault]:
    """Whether a frame that a table names is in the pack's table of contents, the same in both."""
    if at.pack >= len(segment.packs):
        yield fault("toc.mismatch", what, f"the table names pack {at.pack} of {len(segment.packs)}")
        return
    ref: PackRef = segment.packs[at.pack]
    if packs.missing(ref) or ref in packs.untold:
        return
    told: FrameInfo | None = packs.frame(ref, at.offset)
    if told is None:
        message = f"{what} is not in the table of contents"
    elif told.kind not in kinds or (told.length, told.digest) != (at.length, digest) or raw not in (None, told.raw):
        message = f"{what} is another frame in the table of contents"
    else:
        return
    yield fault("toc.mismatch", f"{pack_key_of(ref.digest)} at byte {at.offset}", message)


def _frames(number: int, shape: TableShape, pages: Pages) -> Iterator[FrameEntry | Fault | None]:
    """The entries of ``records`` or ``literals``; None stands for a page that cannot be read."""
    lost: list[int] = []
    previous = b""
    last = -1
    fences = pages.index.segments[number].root(shape).fences
    for page, row in pages.entries(number, shape, lost.append):
        if lost:
            lost.clear()
            yield None
        if page != last:
            if row[: shape.key] != fences[page]:
                yield fault("page.order", f"page {page} of {shape.name}", "its first entry is not the root's fence")
            last = page
        if row[: shape.key] <= previous and previous:
            yield fault("page.order", f"page {page} of {shape.name}", "its entries are not in order")
        previous = row[: shape.key]
        yield unpack_frame(row)
    if lost:
        yield None


def _records(number: int, segment: SegmentIndex, pages: Pages, packs: PackChecker) -> Iterator[Fault]:
    if not pages.root_sound(number, RECORDS):
        return
    expected: int | None = segment.segment.first
    for item in _frames(number, RECORDS, pages):
        yield from pages.take_faults()
        if item is None or isinstance(item, Fault):
            if item is None:
                expected = None
            else:
                yield item
            continue
        what = f"record frame from record {item.first}"
        if expected is not None and item.first != expected:
            yield fault("records.gap", "records", f"record {item.first} follows record {expected - 1}")
        expected = item.first + item.items
        yield from _located(segment, item.frame, what, packs, (FrameKind.RECORD,), item.digest, item.raw)
    yield from pages.take_faults()
    end = segment.segment.first + segment.segment.count
    if expected is not None and expected != end:
        yield fault("records.gap", "records", f"the table ends at record {expected}, the segment at {end}")


#: Where the literals, and the inline responses, of the segments so far end; None where a page could not be read.
_Ends = tuple[int | None, int | None]
_SPACES = ("literals", "inline responses")


def _literals(
    number: int, segment: SegmentIndex, pages: Pages, packs: PackChecker, ends: _Ends
) -> Generator[Fault, None, _Ends]:
    if not pages.root_sound(number, LITERALS):
        return None, None
    expected = list(ends)
    if expected[1] is not None and segment.segment.inline_first != expected[1]:
        message = f"the segment begins at byte {segment.segment.inline_first}, the one before ends at {expected[1]}"
        yield fault("literals.gap", _SPACES[1], message)
    for item in _frames(number, LITERALS, pages):
        yield from pages.take_faults()
        if item is None:
            expected = [None, None]
            continue
        if isinstance(item, Fault):
            yield item
            continue
        inline = item.first >= INLINE_SPACE
        first = item.first - INLINE_SPACE if inline else item.first
        what = f"frame of {_SPACES[inline]} from byte {first}"
        end = expected[inline]
        if end is not None and (first < end or (first > end and inline)):
            yield fault("literals.gap", _SPACES[inline], f"byte {first} follows byte {end - 1}")
        if item.items > item.raw or not item.items:
            yield fault("literals.gap", _SPACES[inline], f"{what} has {item.raw} bytes and says {item.items}")
        expected[inline] = first + item.items
        # Literals of a base recording may lie among its inline responses.
        kinds = (FrameKind.RECORD,) if inline else (FrameKind.LITERAL, FrameKind.RECORD)
        yield from _located(segment, item.frame, what, packs, kinds, item.digest, item.raw)
    yield from pages.take_faults()
    return expected[0], expected[1]
