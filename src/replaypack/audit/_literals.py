"""Literals of a recording that is read in order: neighbouring ranges lie in few frames, which are held."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import add

from replaypack._read.index import Index, check_proportion
from replaypack.errors import FormatError
from replaypack.format.base64 import encode_base64
from replaypack.format.recipe import UNPADDED, URLSAFE, Range, output_length

__all__ = ["LiteralReader"]

#: Frames that are held (bytes), and ranges of a recipe that are looked up together when one is missing.
_HELD = 48 << 20
_TOGETHER = 4096
#: Smaller parts are copied rather than referred to.
_SMALL = 512


class LiteralReader:
    """Gives the bytes of recipes. Looks a frame up in the tables only where it does not hold it."""

    def __init__(self, index: Index, limit: int) -> None:
        self._index = index
        self._limit = limit
        self._firsts: list[int] = []
        #: Frames by their first offset, the oldest first: where they end, and their literals.
        self._frames: dict[int, tuple[int, bytes]] = {}
        self._size = 0
        self._last: tuple[int, int, bytes] = (0, 0, b"")
        self._other = self._last

    def parts(self, ranges: Sequence[Range]) -> list[bytes | memoryview]:
        """The bytes that the ranges of one payload put out, in order.

        Raises `FormatError`, also where the frames are out of proportion to the bytes they are made of, `StorageError`.
        """
        found: list[bytes | memoryview] = []
        first, end, raw = self._last
        other = self._other
        for number, (offset, length, flags) in enumerate(ranges):
            stop = offset + length
            if offset < first or stop > end:
                # Ranges go to and fro between literals and inline responses.
                (first, end, raw), other = other, (first, end, raw)
            if offset < first or stop > end:
                whole = None if flags else found
                cut: list[bytes | memoryview] = [] if whole is None else whole
                while offset < stop:
                    if not first <= offset < end:
                        first, end, raw = self._frame(offset, ranges, number)
                    cut.append(raw[offset - first : min(stop, end) - first])
                    offset = min(stop, end)
                if flags:
                    found.append(_base64(b"".join(cut), flags))
            elif flags:
                found.append(_base64(raw[offset - first : stop - first], flags))
            elif length < _SMALL:
                found.append(raw[offset - first : stop - first])
            else:
                found.append(memoryview(raw)[offset - first : stop - first])
        self._last, self._other = (first, end, raw), other
        return found

    def slices(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """As `blobs`, where each recipe is one plain range."""
        for _ in range(2):
            first, end, raw = self._last
            if first <= min(offsets) and max(map(add, offsets, lengths)) <= end:
                return [raw[start - first : start - first + size] for start, size in zip(offsets, lengths, strict=True)]
            self.parts([Range(offsets[0], lengths[0], 0)])  # the next frame, as a rule
        return self.blobs([[Range(*place, 0)] for place in zip(offsets, lengths, strict=True)], lengths)

    def blobs(self, recipes: Iterable[Sequence[Range]], sizes: Iterable[int]) -> list[bytes]:
        """What each of several recipes makes: so many bytes, which are few. Raises as `parts` does."""
        found: list[bytes] = []
        first, end, raw = self._last
        for ranges, size in zip(recipes, sizes, strict=True):
            if len(ranges) == 1:
                offset, length, flags = ranges[0]
                if length == size and first <= offset and offset + length <= end and not flags:
                    found.append(raw[offset - first : offset - first + length])
                    continue
            if sum(map(output_length, ranges)) != size:
                raise FormatError(f"a recipe makes other than {size} bytes", where="literals")
            found.append(b"".join(self.parts(ranges)))
            first, end, raw = self._last
        return found

    def _frame(self, offset: int, ranges: Sequence[Range], number: int) -> tuple[int, int, bytes]:
        """The frame that holds ``offset``; where it has to be read, those of the ranges behind are read with it."""
        held = self._held(offset)
        if held is not None:
            return held
        spans = [(offset, ranges[number].offset + ranges[number].length - offset)]
        spans += [(item.offset, item.length) for item in islice(ranges, number + 1, number + _TOGETHER)]
        needed = self._index.literal_entries(spans)
        check_proportion([frame for _, frame in needed], 0, self._limit, where="literals")
        missing = [item for item in needed if item[0].first not in self._frames]
        for entry, _ in needed:
            if entry.first in self._frames:
                self._frames[entry.first] = self._frames.pop(entry.first)
        for (entry, _), raw in zip(missing, self._index.literal_frames(missing), strict=True):
            self._frames[entry.first] = (entry.first + entry.items, raw)
            insort(self._firsts, entry.first)
            self._size += len(raw)
        # What these ranges need stays, whatever it takes: or frames would be read again for every range.
        while self._size > _HELD and len(self._frames) > len(needed):
            oldest = next(iter(self._frames))
            self._size -= len(self._frames.pop(oldest)[1])
            del self._firsts[bisect_right(self._firsts, oldest) - 1]
        held = self._held(offset)
        assert held is not None  # literal_entries names a frame for every offset, or raises
        return held

    def _held(self, offset: int) -> tuple[int, int, bytes] | None:
        at = bisect_right(self._firsts, offset) - 1
        if at < 0:
            return None
        first = self._firsts[at]
        end, raw = self._frames[first]
        return (first, end, raw) if offset < end else None


def _base64(data: bytes, flags: int) -> bytes:
    return encode_base64(data, urlsafe=bool(flags & URLSAFE), padded=not flags & UNPADDED)
