"""Comparing two long streams of entries as multisets, in bounded memory.

Short streams are held and compared. Longer ones are summed up by a hash under a random key, in buckets. Equal sums mean
equal multisets, and nobody who does not know the key can make unequal ones look equal. Where buckets differ, the
streams are read again and only the entries of those buckets are held.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from blake3 import blake3

__all__ = ["MultisetSum", "differences"]

_BUCKETS = 1024
_MASK = (1 << 128) - 1
#: Entries held at a time when two streams differ.
_HELD = 200_000
#: Entries up to which a stream is held from the beginning.
_FEW = 100_000


class MultisetSum:
    """The sum of one stream of entries, or the entries themselves while they are few (``held``)."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key if key is not None else secrets.token_bytes(32)
        self.held: list[bytes] | None = []
        self.sums = [0] * _BUCKETS
        self.count = 0
        self._hasher = blake3(key=self.key)

    def place(self, entry: bytes) -> tuple[int, int]:
        """The bucket of an entry, and its hash."""
        self._hasher.reset()
        value = int.from_bytes(self._hasher.update(entry).digest(18), "big")
        return (value >> 128) % _BUCKETS, value & _MASK

    def add(self, entries: Sequence[bytes]) -> None:
        """Add entries."""
        self.count += len(entries)
        if self.held is not None:
            self.held += entries
            if self.count > _FEW:
                self.fold()
        else:
            self._add(entries)

    def fold(self) -> None:
        """Hold no entries any more."""
        held, self.held = self.held, None
        self._add(held or ())

    def _add(self, entries: Sequence[bytes]) -> None:
        for bucket, value in map(self.place, entries):
            self.sums[bucket] = (self.sums[bucket] + value) & _MASK


def differences(
    left: MultisetSum,
    right: MultisetSum,
    read_left: Callable[[], Iterable[bytes]],
    read_right: Callable[[], Iterable[bytes]],
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield (entries only on the left, entries only on the right), a group of buckets at a time; nothing if equal."""
    if left.held is not None and right.held is not None:
        if not _equal(left.held, right.held):
            yield _only(Counter(left.held), Counter(right.held))
        return
    left.fold()
    right.fold()
    bad = [number for number in range(_BUCKETS) if left.sums[number] != right.sums[number]]
    per_pass = max(1, _HELD * _BUCKETS // max(left.count, right.count, 1))
    for start in range(0, len(bad), per_pass):
        buckets = set(bad[start : start + per_pass])
        sides: list[Counter[bytes]] = []
        for read in (read_left, read_right):
            sides.append(Counter(entry for entry in read() if left.place(entry)[0] in buckets))
        yield _only(*sides)


def _equal(left: list[bytes], right: list[bytes]) -> bool:
    if len(left) != len(right):
        return False
    # So many different entries, none of which is missing among as many: they are the same.
    different = set(left)
    if len(different) == len(left):
        return not different.difference(right)
    return sorted(left) == sorted(right)


def _only(left: Counter[bytes], right: Counter[bytes]) -> tuple[list[bytes], list[bytes]]:
    return sorted((left - right).elements()), sorted((right - left).elements())
