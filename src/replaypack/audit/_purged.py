"""Purged records: nothing of them is left but what others say too."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from replaypack._read.index import Index
from replaypack.errors import FormatError
from replaypack.format.recipe import Range
from replaypack.format.record_frame import RecordFrame
from replaypack.format.table import INLINE_SPACE

from ._batch import Batch
from ._faults import Fault, fault

__all__ = ["PurgedChecker"]

#: Inline responses with bytes in them that are held until somebody is found to take those.
_HELD = 4096


class PurgedChecker:
    """Looks at the places of purged records, in recording order."""

    def __init__(self, index: Index) -> None:
        self._index = index
        #: Where the inline section of the next frame begins; None behind one that could not be read.
        self._inlines: int | None = 0
        #: Bytes of purged responses that are not zero, by their offset (ascending): record, frame, bytes.
        self._places: list[int] = []
        self._left: list[tuple[int, str, bytearray]] = []

    def begin_segment(self, inline_first: int) -> None:
        """A segment begins behind so many inline bytes."""
        self._inlines = INLINE_SPACE + inline_first

    def lost_frame(self) -> None:
        """A record frame could not be read."""
        self._inlines = None

    def frame(self, frame: RecordFrame, purged: Mapping[int, int]) -> Iterator[Fault]:
        """Yield a fault where a purged record has a row or recipes; bytes of its response are noted.

        ``purged`` are the sequence numbers of such records by their number in the frame.
        """
        start, self._inlines = self._inlines, None if self._inlines is None else self._inlines + frame.inline_size
        before = at = 0
        for number, seq in purged.items():
            entry = frame.entry(number)
            if entry.row or entry.recipes:
                yield fault("purged.present", frame.where, f"record {seq} was purged, and its row or recipes are there")
            if entry.inline and entry.inline.strip(b"\0") and start is not None and len(self._left) < _HELD:
                before += sum(len(frame.stored(other)[1] or b"") for other in range(at, number))
                at = number
                self._places.append(start + before)
                self._left.append((seq, frame.where, bytearray(entry.inline)))

    def used(self, batch: Batch) -> None:
        """Note what records that were not purged take of them."""
        if not self._left:
            return
        recipes: list[list[Range]] = []
        for number in range(batch.number, batch.number + len(batch.rows)):
            with contextlib.suppress(FormatError):  # a fault of that record
                recipes += self._index.recipes(batch.frame, number)
        for ranges in recipes:
            for offset, length, _ in ranges:
                if offset >= INLINE_SPACE:
                    self._clear(offset, offset + length)

    def _clear(self, start: int, end: int) -> None:
        at = max(0, bisect_right(self._places, start) - 1)
        while at < len(self._places) and (place := self._places[at]) < end:
            data = self._left[at][2]
            low, high = max(0, start - place), min(len(data), end - place)
            if low < high:
                data[low:high] = bytes(high - low)
            if any(data):
                at += 1
            else:
                del self._places[at], self._left[at]

    def left(self) -> Iterator[Fault]:
        """Yield what is left of purged responses and taken by nobody."""
        for seq, where, _ in self._left:
            yield fault("purged.present", where, f"record {seq} was purged, and bytes of its response are there")
