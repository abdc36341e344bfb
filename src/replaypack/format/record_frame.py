"""Record frames: rows, their recipes and small responses, in sections (spec chapter 04, "Record frames").

``uvarint n ‖ sizes ‖ rows ‖ recipes ‖ inlines``: rows and digests do not compress, recipes and responses do,
each in its own way, so that they lie apart. ``sizes`` is the transposed matrix of n entries of three u32: bytes
of the stored row, bytes of its recipes, and 1 + bytes of the inline response (0 where it is not inline).
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from itertools import accumulate, groupby, pairwise
from operator import or_
from struct import Struct, unpack
from typing import NamedTuple

from replaypack.errors import FormatError

from .recipe import MAX_OFFSET, Op, Range, Run, encode_ops, parse_ops, resolve
from .row import Row, parse_stored_row
from .table import transpose
from .varint import read_columns, read_uvarint, uvarint

__all__ = [
    "MAX_FRAME_PARTS",
    "MAX_FRAME_RANGES",
    "MAX_FRAME_RECORDS",
    "Entry",
    "RecordFrame",
    "blank_records",
    "decode_entry",
    "encode_entry",
    "encode_frame",
    "join_frames",
]


#: The most ranges that the recipes of one record frame may resolve to, all together. Runs multiply: without
#: a limit a frame of a few kilobytes could fill any memory.
MAX_FRAME_RANGES = 1 << 22
#: The most parts that those recipes may be written down in, and the most records of a frame. Zeros compress to
#: nothing: without a limit a few kilobytes could hold millions of either.
MAX_FRAME_PARTS = 1 << 19
MAX_FRAME_RECORDS = 1 << 16
#: A record has recipes of its request, its identity and its response at most.
_MAX_RECIPES = 3
#: Of each record its row, its recipes and its inline response, in bytes; the last one more, 0 for none.
_SIZE = Struct(">III")
_SIZES = _SIZE.size
#: The most bytes of a recipe that is one plain range.
_LONGEST_LONE = 1 + 2 * 8
#: Records asked for one by one after which the places of all are computed.
_ASKED = 4


class Entry(NamedTuple):
    """One record: its stored row, the recipes of the blobs not inline, the inline response or None."""

    row: bytes
    recipes: bytes
    inline: bytes | None


def encode_entry(entry: Entry, before: bytes = b"", behind: bytes = b"") -> bytes:
    """One record by itself, as a journal has it: ``uvarint sizes (3) ‖ row ‖ recipes ‖ inline``.

    ``before`` and ``behind`` are put around it.
    """
    row, recipes, inline = entry
    mark = b"\0" if inline is None else uvarint(len(inline) + 1)
    return b"".join((before, uvarint(len(row)), uvarint(len(recipes)), mark, row, recipes, inline or b"", behind))


def stored_row(row: bytes, inline: bytes | None) -> bytes:
    """What is stored of a row: without the digest of its response, where that is inline."""
    return row if inline is None else row[:-32]


def decode_entry(data: bytes, pos: int, *, where: str = "record") -> tuple[Entry, int]:
    """Take the record at ``pos`` apart; return it and the position behind it. Raises `FormatError`."""
    row_size, pos = read_uvarint(data, pos)
    recipes_size, pos = read_uvarint(data, pos)
    inline_mark, pos = read_uvarint(data, pos)
    body = pos + row_size
    inline = body + recipes_size
    end = inline + max(0, inline_mark - 1)
    if end > len(data):
        raise FormatError("a record does not fit its place", where=where)
    return Entry(data[pos:body], data[body:inline], data[inline:end] if inline_mark else None), end


def encode_frame(entries: Iterable[Entry]) -> list[bytes]:
    """Return the sections of a frame, whose concatenation is the frame before compression."""
    sizes: list[bytes] = []
    rows: list[bytes] = []
    recipes: list[bytes] = []
    inlines: list[bytes] = []
    pack = _SIZE.pack
    for row, recipe, inline in entries:
        sizes.append(pack(len(row), len(recipe), 0 if inline is None else len(inline) + 1))
        rows.append(row)
        recipes.append(recipe)
        if inline:
            inlines.append(inline)
    head = uvarint(len(rows)) + transpose(b"".join(sizes), _SIZES)
    return [head, b"".join(rows), b"".join(recipes), b"".join(inlines)]


class RecordFrame:
    """A decompressed record frame. Records are found by their number in it."""

    def __init__(self, raw: bytes, *, where: str = "record frame") -> None:
        self.raw = raw
        self.where = where
        count, pos = read_uvarint(raw, 0)
        if not 0 < count <= min(MAX_FRAME_RECORDS, (len(raw) - pos) // _SIZES):
            raise FormatError(f"a frame of {len(raw)} bytes cannot hold {count} records", where=where)
        self.count = count
        self._matrix = pos
        self._rows = pos + count * _SIZES
        self._recipes = self._rows + self._sum(0, count)
        self._inlines = self._recipes + self._sum(1, count)
        columns = [raw[pos + at * count : pos + (at + 1) * count] for at in range(8, 12)]
        # Not zero for each record that is inline.
        self._inline = reduce(or_, map(int.from_bytes, columns)).to_bytes(count)
        others = self._inline.count(0)
        self.inline_size = self._sum(2, count) - (count - others)
        if self._inlines + self.inline_size != len(raw):
            raise FormatError("the records of a frame do not fill it", where=where)
        #: Where rows and inlines end: made once several records were asked for.
        self._ends: tuple[array[int], array[int]] | None = None
        self._recipe_ends: array[int] | None = None
        self._asked = _ASKED if others else 0
        # Recipes refer to recipes before them: they are resolved once, in order, as far as needed.
        self._walked: list[list[list[Range]]] = []
        self._recipe_ranges: list[list[Range]] = []
        self._resolved = self._parts = 0
        self._broken: str | None = None
        #: What whoever keeps the frame knows it by.
        self.token: object = None
        # Frames are cached and shared between threads; two walks at a time would count recipes twice.
        self._lock = threading.Lock()

    def _sizes(self, which: int) -> tuple[int, ...]:
        """Bytes of all rows (0), of recipes (1), or the marks of inlines (2): what the matrix says."""
        data = bytearray(4 * self.count)
        begin = self._matrix + 4 * which * self.count
        for column in range(4):
            data[column::4] = self.raw[begin + column * self.count : begin + (column + 1) * self.count]
        return unpack(f">{self.count}I", data)

    def _sum(self, which: int, number: int) -> int:
        """The sum of the first ``number`` of `_sizes`, without making them."""
        begin = self._matrix + 4 * which * self.count
        total = 0
        for at in range(begin, begin + 4 * self.count, self.count):
            column = self.raw[at : at + number]
            total = (total << 8) + (sum(column) if column.strip(b"\0") else 0)
        return total

    def _size(self, which: int, number: int) -> int:
        begin = self._matrix + 4 * which * self.count
        return int.from_bytes(self.raw[begin + number : begin + 4 * self.count : self.count], "big")

    def _make_ends(self) -> tuple[array[int], array[int]]:
        inlines = [mark - 1 if mark else 0 for mark in self._sizes(2)]
        self._ends = ends = (
            array("I", accumulate(self._sizes(0), initial=self._rows)),
            array("I", accumulate(inlines, initial=self._inlines)),
        )
        return ends

    def _make_recipe_ends(self) -> array[int]:
        self._recipe_ends = ends = array("I", accumulate(self._sizes(1), initial=self._recipes))
        return ends

    def entry(self, number: int) -> Entry:
        """Return record ``number`` (from 0) of the frame, not parsed. Raises `FormatError`."""
        row, inline = self.stored(number)
        recipes = self._recipe_ends or self._make_recipe_ends()
        return Entry(row, self.raw[recipes[number] : recipes[number + 1]], inline)

    def stored(self, number: int) -> tuple[bytes, bytes | None]:
        """Return the stored row of record ``number`` and its inline response or None."""
        if not 0 <= number < self.count:
            raise FormatError(f"there is no record {number} among {self.count}", where=self.where)
        raw = self.raw
        ends = self._ends
        if ends is None:
            self._asked += 1
            if self._asked < _ASKED:
                # Of a frame that is read for one record the places of the others are not worth computing.
                row = self._rows + self._sum(0, number)
                inline = self._inlines + self._sum(2, number) - number
                return raw[row : row + self._size(0, number)], raw[inline : inline + self._size(2, number) - 1]
            ends = self._make_ends()
        rows, inlines = ends
        stored = raw[rows[number] : rows[number + 1]]
        return stored, raw[inlines[number] : inlines[number + 1]] if self._inline[number] else None

    def stored_rows(self, first: int = 0, last: int | None = None) -> tuple[list[bytes], list[bytes | None]]:
        """Rows ``first`` to ``last`` as they are stored, not parsed, and the responses that stand behind them, or None.

        ``last`` is not included; None stands for all.
        """
        last = self.count if last is None else min(last, self.count)
        rows, inlines = self._ends or self._make_ends()
        raw = self.raw
        stored = [raw[start:end] for start, end in pairwise(rows[first : last + 1])]
        behind: list[bytes | None] = [raw[start:end] for start, end in pairwise(inlines[first : last + 1])]
        marks = self._inline[first:last]
        if 0 in marks:
            behind = [inline if mark else None for inline, mark in zip(behind, marks, strict=True)]
        return stored, behind

    def record(self, number: int) -> tuple[Row, bytes, bytes | None]:
        """Return record ``number``: its row, the whole bytes of the row, its inline response or None."""
        stored, inline = self.stored(number)
        row, data = parse_stored_row(stored, inline, where=self.where)
        return row, data, inline

    def records(self) -> Iterator[tuple[Row, bytes, bytes | None]]:
        """Yield the records in order, as `record` returns them."""
        return map(self.record, range(self.count))

    def resolved(self, number: int) -> list[list[Range]] | None:
        """The recipes of a record where they have been resolved already."""
        return self._walked[number] if 0 <= number < len(self._walked) else None

    def recipes(self, number: int) -> list[list[Range]]:
        """Return the recipes of a record, resolved: of its request, identity, response, as far as it has them."""
        if not 0 <= number < self.count:
            raise FormatError(f"there is no record {number} among {self.count}", where=self.where)
        with self._lock:
            if number >= len(self._walked):
                if self._broken is not None:
                    raise FormatError(self._broken, where=self.where)
                try:
                    self._walk(number)
                except FormatError as error:
                    # What stands behind counts back over this place: it cannot be told, and is not tried again.
                    self._broken = error.detail
                    raise
            return self._walked[number]

    def _walk(self, number: int) -> None:
        ends = self._recipe_ends or self._make_recipe_ends()
        while len(self._walked) <= number:
            at = len(self._walked)
            pos, end = ends[at], ends[at + 1]
            lone = _lone_range(self.raw, pos, end)
            if lone is not None and self._parts < MAX_FRAME_PARTS and self._resolved < MAX_FRAME_RANGES:
                self._parts += 1
                self._resolved += 1
                self._recipe_ranges.append(lone)
                self._walked.append([lone])
                continue
            data = self.raw[pos:end]
            own: list[list[Range]] = []
            cursor = 0
            while cursor < len(data):
                ops, cursor = parse_ops(data, cursor, where=self.where)
                self._parts += len(ops)
                if self._parts > MAX_FRAME_PARTS or len(own) == _MAX_RECIPES:
                    raise FormatError("a frame has more recipes, or parts of recipes, than one may", where=self.where)
                ranges = resolve(ops, self._recipe_ranges, where=self.where)
                self._resolved += len(ranges)
                if self._resolved > MAX_FRAME_RANGES:
                    raise FormatError(f"the recipes of a frame have over {MAX_FRAME_RANGES} ranges", where=self.where)
                self._recipe_ranges.append(ranges)
                own.append(ranges)
            self._walked.append(own)

    def lone_ranges(self) -> tuple[list[int], list[int]] | None:
        """Offset and length of what each record takes, where that is one plain range in one recipe of every record.

        None for other frames, for any in which a recipe may be broken, and where lengths and offsets of different size
        (in bytes) make recipes of one size.
        """
        offsets: list[int] = []
        lengths: list[int] = []
        end = self._recipes
        # Recipes of one size are taken apart together.
        for size, group in groupby(self._sizes(1)):
            start, end = end, end + size * len(list(group))
            if not 3 <= size <= _LONGEST_LONE:
                return None
            numbers = read_columns([self.raw[at:end:size] for at in range(start, start + size)])
            if numbers is None or len(numbers) != 3:
                return None
            parts, heads, places = numbers
            if set(parts) != {1} or 0 in heads or reduce(or_, heads) & 3 or max(places) + max(heads) > MAX_OFFSET:
                return None
            offsets += places
            lengths += [head >> 2 for head in heads]
        return offsets, lengths

    def written_ranges(self) -> Iterator[Range]:
        """Yield every range that the recipes of all records write down. Runs only repeat others of them."""
        pos, end = self._recipes, self._inlines
        recipes = self.raw[pos:end]
        cursor = parts = 0
        while cursor < len(recipes):
            ops, cursor = parse_ops(recipes, cursor, where=self.where)
            parts += len(ops)
            if parts > MAX_FRAME_PARTS:
                raise FormatError("a frame has more parts of recipes than one may", where=self.where)
            yield from (op for op in ops if isinstance(op, Range))

    @property
    def weight(self) -> int:
        """About how many bytes it takes, with the recipes resolved so far."""
        return len(self.raw) + 16 * self.count + 1500 + 8 * self._resolved + 150 * self._parts

    def range_count(self) -> int:
        """How many ranges the recipes of all records resolve to."""
        self.recipes(self.count - 1)
        return self._resolved


def _lone_range(raw: bytes, pos: int, end: int) -> list[Range] | None:
    """The recipe from ``pos`` to ``end`` where it is a single one, and one plain range: most are. None for others."""
    if end - pos < 3 or raw[pos] != 1:
        return None
    try:
        head, pos = read_uvarint(raw, pos + 1)
        offset, pos = read_uvarint(raw, pos)
    except FormatError:
        return None
    if pos != end or head & 3 or not head or offset + head > MAX_OFFSET:
        return None
    return [Range(offset, head >> 2, 0)]


def join_frames(raws: Iterable[bytes]) -> list[bytes]:
    """Return the sections of one frame that holds the records of several, in order.

    Recipes count back from where they stand, and refer to nothing outside of their old frame: they stay as they are.
    """
    entries: list[Entry] = []
    for raw in raws:
        frame = RecordFrame(raw)
        entries += map(frame.entry, range(frame.count))
    return encode_frame(entries)


def blank_records(
    frame: RecordFrame, numbers: Collection[int], kept_bytes: Iterable[tuple[int, int]] = ()
) -> list[bytes]:
    """Return the sections of the frame without what the records ``numbers`` (from 0) say; the others stay as they are.

    Inline responses become zeros, since they have places in the address space; but for ``kept_bytes`` (start, end in
    the inline section), which others take. Recipes of records that stay, and that take ranges from one that goes, get
    those ranges themselves. Raises `FormatError`.
    """
    kept_inlines = bytearray(frame.inline_size)
    inlines = frame.raw[len(frame.raw) - frame.inline_size :]
    for start, end in kept_bytes:
        kept_inlines[start:end] = inlines[start:end]
    place = 0
    entries: list[Entry] = []
    resolved: list[list[Range]] = []
    #: For each recipe its number among those that stay; None for those that go.
    places: list[int | None] = []
    kept = 0
    for number in range(frame.count):
        row, data, inline = frame.entry(number)
        out: list[bytes] = []
        cursor = 0
        while cursor < len(data):
            ops, cursor = parse_ops(data, cursor, where=frame.where)
            ranges = resolve(ops, resolved, where=frame.where)
            if number not in numbers:
                out.append(encode_ops(_moved(ops, resolved, places, kept)))
            resolved.append(ranges)
            places.append(None if number in numbers else kept)
            kept += number not in numbers
        if number in numbers:
            blank = None if inline is None else bytes(kept_inlines[place : place + len(inline)])
            entries.append(Entry(b"", b"", blank))
        else:
            entries.append(Entry(row, b"".join(out), inline))
        place += len(inline or b"")
    return encode_frame(entries)


def _moved(ops: Iterable[Op], resolved: list[list[Range]], places: list[int | None], position: int) -> list[Op]:
    """The parts of a recipe that is number ``position`` of those that stay; runs count back over those alone."""
    moved: list[Op] = []
    for op in ops:
        if not isinstance(op, Run):
            moved.append(op)
        elif (place := places[-op.back]) is not None:
            moved.append(Run(position - place, op.start, op.items))
        else:
            moved += resolved[-op.back][op.start : op.start + op.items]
    return moved
