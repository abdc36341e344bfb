"""Which record answers next: consumption per key, in recording order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from replaypack.recording import Record, Recording

__all__ = ["Cursor"]


class Cursor:
    """The position of one replay in a recording. Safe for many threads.

    Each key of each scope is consumed in recording order, one record a call. A scoped call consumes the records of
    its scope; where that has none of this call it shares, with everybody, those without a scope. The recording is
    the one that was opened: what is appended to it meanwhile never answers.

    Memory: one bit a record, and one entry for each key that was asked more than once.
    """

    def __init__(self, recording: Recording, *, answers: Callable[[Record], bool]) -> None:
        self.recording = recording
        self._answers = answers
        self._played = bytearray((len(recording) + 7) // 8)
        # Where to go on, by key and label of the records; only of keys of which the first record is played.
        self._next: dict[tuple[bytes, str | None], int] = {}
        self._lock = threading.Lock()

    def take(self, key: bytes, scope: str | None = None) -> Record | None:
        """Consume the next record of a key (32 bytes) and return it, its response loaded.

        None where there is none: the call was never recorded, or is exhausted (`recorded` tells).
        """
        find = self.recording.lookup_digest
        while True:
            found = find(key, scope=scope)
            if found is None:
                return None
            place = (key, found.scope)
            with self._lock:
                first = not self._is_played(found.seq)
                nth = self._next.get(place, 0)
                if first and nth == 0:
                    self._mark(found.seq)
                else:
                    # The number is this call's alone: another thread takes the next one.
                    nth = max(nth, 1)
                    self._next[place] = nth + 1
            if nth:
                found = find(key, scope=found.scope, nth=nth)
                if found is None:
                    with self._lock:
                        self._next[place] = min(self._next[place], nth)
                    return None
                with self._lock:
                    self._mark(found.seq)
            if self._answers(found):
                return found

    def peek(self, key: bytes, scope: str | None = None) -> Record | None:
        """The record that `take` would return now; nothing is consumed."""
        found = self.recording.lookup_digest(key, scope=scope)
        if found is None:
            return None
        with self._lock:
            nth = max(self._next.get((key, found.scope), 0), int(self._is_played(found.seq)))
        label = found.scope
        while found is not None:
            if nth == 0 and self._answers(found):
                return found
            nth = max(nth, 1)
            found = self.recording.lookup_digest(key, scope=label, nth=nth)
            if found is not None and self._answers(found):
                return found
            nth += 1
        return None

    def recorded(self, key: bytes, scope: str | None = None) -> int:
        """How many records of a key answer a call in this scope, played or not."""
        return sum(1 for _ in self._all(key, scope))

    def last(self, key: bytes, scope: str | None = None) -> Record | None:
        """The last record that answers a call, played or not."""
        record = None
        for record in self._all(key, scope):  # noqa: B007 - the last one is wanted
            pass
        return record

    def unplayed(self) -> Iterator[Record]:
        """Yield the records that could have answered and were not taken, in recording order."""
        for record in self.recording.records():
            if not self._is_played(record.seq) and self._answers(record):
                yield record

    def _all(self, key: bytes, scope: str | None) -> Iterator[Record]:
        found = self.recording.lookup_digest(key, scope=scope)
        label = found.scope if found is not None else None
        nth = 0
        while found is not None:
            if self._answers(found):
                yield found
            nth += 1
            found = self.recording.lookup_digest(key, scope=label, nth=nth)

    def _is_played(self, seq: int) -> bool:
        return bool(self._played[seq >> 3] >> (seq & 7) & 1)

    def _mark(self, seq: int) -> None:
        self._played[seq >> 3] |= 1 << (seq & 7)
