"""Sets of byte intervals, kept merged."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

__all__ = ["Intervals"]

#: Intervals that are collected before they are merged with the others.
_FRESH = 1 << 16


class Intervals:
    """A set of bytes, as intervals ``(start, end)`` (the end not included) that neither overlap nor touch.

    Takes 16 bytes for each of them. With ``within`` only what lies inside of those intervals is kept.
    """

    def __init__(self, items: Iterable[tuple[int, int]] = (), *, within: Intervals | None = None) -> None:
        self._starts = array("Q")
        self._ends = array("Q")
        self._fresh: list[tuple[int, int]] = []
        self._within = within
        for start, end in items:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Add the bytes ``start`` … ``end``."""
        if self._within is not None:
            self._fresh += self._within.between(start, end)
        elif start < end:
            self._fresh.append((start, end))
        if len(self._fresh) >= max(_FRESH, len(self._starts) // 2):
            self._merge()

    def _merge(self) -> None:
        starts, ends = array("Q"), array("Q")
        last = -1
        for start, end in sorted(chain(zip(self._starts, self._ends, strict=True), self._fresh)):
            if start > last:
                starts.append(start)
                ends.append(end)
                last = end
            elif end > last:
                ends[-1] = last = end
        self._starts, self._ends = starts, ends
        self._fresh = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        if self._fresh:
            self._merge()
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """How many intervals there are."""
        if self._fresh:
            self._merge()
        return len(self._starts)

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of ``start`` … ``end`` is in the set, in order."""
        if self._fresh:
            self._merge()
        found: list[tuple[int, int]] = []
        at = max(0, bisect_right(self._starts, start) - 1)
        while at < len(self._starts) and self._starts[at] < end:
            low, high = max(start, self._starts[at]), min(end, self._ends[at])
            if low < high:
                found.append((low, high))
            at += 1
        return found

    def covers(self, start: int, end: int) -> bool:
        """Whether all of ``start`` … ``end`` is in the set."""
        return start >= end or self.between(start, end) == [(start, end)]
