"""Record frames: rows, their recipes and small responses, in sections (spec chapter 04, "Record frames").

``uvarint n ‖ sizes ‖ rows ‖ recipes ‖ inlines``: rows and digests do not compress, recipes and responses do,
each in its own way, so that they lie apart. ``sizes`` is the transposed matrix of n entries of three u32: bytes
of the stored row, bytes of its recipes, and 1 + bytes of the inline response (0 where it is not inline).
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from replaypack.errors import FormatError

from .recipe import Range, parse_ops, resolve
from .row import Row, parse_stored_row
from .table import transpose, untranspose
from .varint import read_uvarint, uvarint

__all__ = [
    "MAX_FRAME_PARTS",
    "MAX_FRAME_RANGES",
    "MAX_FRAME_RECORDS",
    "Entry",
    "RecordFrame",
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
_SIZES = 12


class Entry(NamedTuple):
    """One record: its stored row, the recipes of the blobs not inline, the inline response or None."""

    row: bytes
    recipes: bytes
    inline: bytes | None


def encode_entry(entry: Entry) -> bytes:
    """One record by itself, as a journal has it: ``uvarint sizes (3) ‖ row ‖ recipes ‖ inline``."""
    row, recipes, inline = entry
    if inline is None:
        return b"".join((uvarint(len(row)), uvarint(len(recipes)), b"\0", row, recipes))
    return b"".join((uvarint(len(row)), uvarint(len(recipes)), uvarint(len(inline) + 1), row, recipes, inline))


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


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def encode_frame(entries: Iterable[Entry]) -> list[bytes]:
    """Return the sections of a frame, whose concatenation is the frame before compression."""
    sizes: list[bytes] = []
    rows: list[bytes] = []
    recipes: list[bytes] = []
    inlines: list[bytes] = []
    for row, recipe, inline in entries:
        sizes.append(_u32(len(row)) + _u32(len(recipe)) + _u32(0 if inline is None else len(inline) + 1))
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
        numbers = array("I", untranspose(raw[pos : pos + count * _SIZES], _SIZES))
        if sys.byteorder == "little":
            numbers.byteswap()
        marks = numbers[2::3]
        start = pos + count * _SIZES
        row_ends = list(accumulate(numbers[0::3], initial=start))
        recipe_ends = list(accumulate(numbers[1::3], initial=row_ends[-1]))
        inline_ends = list(accumulate([mark - 1 if mark else 0 for mark in marks], initial=recipe_ends[-1]))
        if inline_ends[-1] != len(raw):
            raise FormatError("the records of a frame do not fill it", where=where)
        self.count = count
        self.inline_size = inline_ends[-1] - inline_ends[0]
        self._ends = (row_ends, recipe_ends, inline_ends, marks)
        # Recipes refer to recipes before them: they are resolved once, in order, as far as needed.
        self._walked: list[list[list[Range]]] = []
        self._recipe_ranges: list[list[Range]] = []
        self._resolved = self._parts = 0
        self._broken: str | None = None
        #: What whoever keeps the frame knows it by.
        self.token: object = None
        # Frames are cached and shared between threads; two walks at a time would count recipes twice.
        self._lock = threading.Lock()

    def entry(self, number: int) -> Entry:
        """Return record ``number`` (from 0) of the frame, not parsed. Raises `FormatError`."""
        if not 0 <= number < self.count:
            raise FormatError(f"there is no record {number} among {self.count}", where=self.where)
        rows, recipes, inlines, marks = self._ends
        raw = self.raw
        return Entry(
            raw[rows[number] : rows[number + 1]],
            raw[recipes[number] : recipes[number + 1]],
            raw[inlines[number] : inlines[number + 1]] if marks[number] else None,
        )

    def stored_rows(self) -> tuple[list[bytes], list[bytes | None]]:
        """All rows as they are stored, not parsed, and beside them the responses that stand behind them, or None."""
        rows, _, inlines, marks = self._ends
        raw = self.raw
        return (
            [raw[start:end] for start, end in pairwise(rows)],
            [raw[start:end] if mark else None for (start, end), mark in zip(pairwise(inlines), marks, strict=True)],
        )

    def record(self, number: int) -> tuple[Row, bytes, bytes | None]:
        """Return record ``number``: its row, the whole bytes of the row, its inline response or None."""
        entry = self.entry(number)
        row, data = parse_stored_row(entry.row, entry.inline, where=self.where)
        return row, data, entry.inline

    def records(self) -> Iterator[tuple[Row, bytes, bytes | None]]:
        """Yield the records in order, as `record` returns them."""
        return map(self.record, range(self.count))

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
        _, ends, _, _ = self._ends
        while len(self._walked) <= number:
            at = len(self._walked)
            pos, end = ends[at], ends[at + 1]
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

    @property
    def weight(self) -> int:
        """About how many bytes it takes, with the recipes resolved so far."""
        return len(self.raw) + 160 * self.count + 8 * self._resolved + 150 * self._parts

    def range_count(self) -> int:
        """How many ranges the recipes of all records resolve to."""
        self.recipes(self.count - 1)
        return self._resolved


def join_frames(raws: Iterable[bytes]) -> list[bytes]:
    """Return the sections of one frame that holds the records of several, in order.

    Recipes count back from where they stand, and refer to nothing outside of their old frame: they stay as they are.
    """
    entries: list[Entry] = []
    for raw in raws:
        frame = RecordFrame(raw)
        entries += map(frame.entry, range(frame.count))
    return encode_frame(entries)
