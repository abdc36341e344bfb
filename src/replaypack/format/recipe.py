"""Recipes: which literals, concatenated, are a blob (spec chapter 04, "Recipes").

A recipe is a list of *ranges* of the recording's literal address space. Three ways to write one down keep
it short; all say the same list of ranges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from replaypack.errors import FormatError

from .base64 import encode_base64, encoded_length
from .varint import append_uvarint, read_uvarint, uvarint

__all__ = [
    "BASE64",
    "BLOB_LIMIT",
    "BLOB_RATIO",
    "MAX_OFFSET",
    "MAX_RANGES",
    "UNPADDED",
    "URLSAFE",
    "Op",
    "Range",
    "Recipe",
    "Run",
    "cut",
    "encode_ops",
    "materialise",
    "output_length",
    "parse_ops",
    "resolve",
]

#: Flags of a range: its literals are the decoded form of base64 text; url-safe alphabet; no padding.
BASE64, URLSAFE, UNPADDED = 1, 2, 4
_FLAGS = BASE64 | URLSAFE | UNPADDED

#: The most ranges a recipe may have. Writers store bytes anew long before; readers refuse more.
MAX_RANGES = 1 << 16
#: Where the literal address space ends.
MAX_OFFSET = 1 << 48
#: The same literals may stand in a blob as often as it has ranges, and zeros compress to nothing: a few kilobytes can
#: name gigabytes. Readers put a blob together that, like the raw bytes of the frames that it lies in, has at most
#: `BLOB_LIMIT` bytes, or at most `BLOB_RATIO` for each compressed byte of those frames.
BLOB_LIMIT = 64 << 20
BLOB_RATIO = 1024


class Range(NamedTuple):
    """``length`` bytes of literals from ``offset``, put out as they are or as base64 text (``flags``)."""

    offset: int
    length: int
    flags: int


class Run(NamedTuple):
    """Ranges ``start`` … ``start + items`` of the recipe ``back`` recipes earlier in the same stream."""

    back: int
    start: int
    items: int


Op = Range | Run


def output_length(item: Range) -> int:
    """Bytes that a range puts out."""
    return encoded_length(item.length, padded=not item.flags & UNPADDED) if item.flags else item.length


_length_of, _flags_of = itemgetter(1), itemgetter(2)


class Recipe:
    """The ranges of one blob and where each begins in it; can be cut by byte position."""

    __slots__ = ("ends", "ranges")

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = list(ranges)
        plain = not any(map(_flags_of, self.ranges))
        self.ends = list(accumulate(map(_length_of if plain else output_length, self.ranges)))

    @property
    def size(self) -> int:
        """Bytes of the blob."""
        return self.ends[-1] if self.ends else 0

    def whole_quads(self, start: int, end: int) -> tuple[int, int]:
        """Move ``start`` up and ``end`` down so that `cut` finds neither inside of a quad."""
        for forward in (True, False):
            position = start if forward else end
            index = bisect_right(self.ends, position)
            if index < len(self.ranges) and self.ranges[index].flags:
                begin = self.ends[index] - output_length(self.ranges[index])
                if forward:
                    start = min(begin + -(-(position - begin) // 4) * 4, self.ends[index])
                else:
                    end = begin + (position - begin) // 4 * 4
        return start, max(start, end)


def encode_ops(ops: Sequence[Op]) -> bytes:
    """Encode a recipe: the number of parts, then each part.

    Plain range: ``uvarint(length << 2) uvarint(offset)``. Base64 range: ``uvarint(length << 2 | 1) flags
    uvarint(offset)``. Run: ``uvarint(count << 2 | 2) uvarint(back) uvarint(start)``.
    """
    if len(ops) == 1 and type(op := ops[0]) is Range and not op[2]:
        return b"\1" + uvarint(op[1] << 2) + uvarint(op[0])
    out = bytearray()
    append_uvarint(out, len(ops))
    for op in ops:
        if type(op) is Run:
            append_uvarint(out, op.items << 2 | 2)
            append_uvarint(out, op.back)
            append_uvarint(out, op.start)
        else:
            offset, length, flags = op
            if flags:
                append_uvarint(out, length << 2 | 1)
                out.append(flags)
            else:
                append_uvarint(out, length << 2)
            append_uvarint(out, offset)
    return bytes(out)


def parse_ops(data: bytes, pos: int, *, where: str = "recipe") -> tuple[list[Op], int]:
    """Decode a recipe at ``pos``; return its ops and the position behind it. Raises `FormatError`."""
    count, pos = read_uvarint(data, pos)
    if count > min(MAX_RANGES, len(data) - pos):
        raise FormatError(f"a recipe of {count} parts is larger than its frame", where=where)
    ops: list[Op] = []
    for _ in range(count):
        head, pos = read_uvarint(data, pos)
        tag = head & 3
        if tag == 2:
            back, pos = read_uvarint(data, pos)
            start, pos = read_uvarint(data, pos)
            ops.append(Run(back, start, head >> 2))
            continue
        flags = 0
        if tag == 1:
            if pos >= len(data):
                raise FormatError("a recipe is cut off", where=where)
            flags = data[pos]
            pos += 1
            if not flags & BASE64 or flags & ~_FLAGS:
                raise FormatError(f"a recipe has unknown flags {flags}", where=where)
        elif tag:
            raise FormatError("a recipe has an unknown kind of part", where=where)
        offset, pos = read_uvarint(data, pos)
        if not head >> 2 or offset + (head >> 2) > MAX_OFFSET:
            raise FormatError("a range of a recipe is empty or beyond the literal address space", where=where)
        ops.append(Range(offset, head >> 2, flags))
    return ops, pos


def resolve(ops: Sequence[Op], earlier: Sequence[Sequence[Range]], *, where: str = "recipe") -> list[Range]:
    """Replace the runs of ``ops`` by the ranges they name; ``earlier`` are the stream's recipes so far, resolved."""
    ranges: list[Range] = []
    for op in ops:
        if type(op) is Run:
            if not 0 < op.back <= len(earlier):
                raise FormatError(f"a recipe refers {op.back} recipes back, there are {len(earlier)}", where=where)
            source = earlier[-op.back]
            if not op.items or op.start + op.items > len(source):
                raise FormatError("a recipe takes ranges that its source does not have", where=where)
            ranges.extend(source[op.start : op.start + op.items])
        else:
            ranges.append(op)  # type: ignore[arg-type]
        if len(ranges) > MAX_RANGES:
            raise FormatError(f"a recipe has more than {MAX_RANGES} ranges", where=where)
    return ranges


def cut(recipe: Recipe, start: int, end: int) -> list[Range] | None:
    """Return the ranges of bytes ``start`` … ``end`` of the blob, or None where the cut falls inside a quad."""
    ends, ranges = recipe.ends, recipe.ranges
    first = bisect_right(ends, start)
    result: list[Range] = []
    while start < end:
        item = ranges[first]
        begin = ends[first] - output_length(item)
        stop = min(end, ends[first])
        if start == begin and stop == ends[first]:
            result.append(item)
        elif not item.flags:
            result.append(Range(item.offset + start - begin, stop - start, 0))
        else:
            head, tail = start - begin, stop - begin
            if head % 4 or (tail % 4 and stop != ends[first]):
                return None
            offset = head // 4 * 3
            length = item.length - offset if stop == ends[first] else (tail - head) // 4 * 3
            result.append(Range(item.offset + offset, length, item.flags))
        start = stop
        first += 1
    return result


def materialise(
    ranges: Sequence[Range], size: int, fetch: Callable[[int, int], bytes | memoryview], *, where: str = "blob"
) -> bytes:
    """Put a blob of ``size`` bytes together; ``fetch(offset, length)`` returns literals.

    The size is checked before anything is fetched. Raises `FormatError` where the ranges do not add up to it.
    """
    total = sum(map(output_length, ranges))
    if total != size:
        raise FormatError(f"a recipe makes {total} bytes, the row names {size}", where=where)
    parts = [
        encode_base64(fetch(offset, length), urlsafe=bool(flags & URLSAFE), padded=not flags & UNPADDED)
        if flags
        else fetch(offset, length)
        for offset, length, flags in ranges
    ]
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
