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
        # Of calls that had no answer left, which may be asked again and again.
        self._tallies: dict[tuple[bytes, str | None], tuple[int, int]] = {}
        self._lock = threading.Lock()

    def take(self, key: bytes, scope: str | None = None) -> Record | None:
        """Consume the next record of a key (32 bytes) and return it, its response loaded.

        None where there is none: the call was never recorded, or is exhausted (`recorded` tells).
        """
        record: Record | None = None
        while True:
            if self._next and (key, scope) in self._next:
                # The first one is played, and the scope has records of its own: no need to look at them again.
                label, seq = scope, -1
            else:
                record = self.recording.lookup_digest(key, scope=scope)
                if record is None:
                    return None
                label, seq = record.row.scope, record.row.seq
            with self._lock:
                if seq >= 0 and not self._is_played(seq):
                    self._mark(seq)
                    nth = 0
                else:
                    # The number is this call's alone: another thread takes the next one.
                    nth = self._next.get((key, label), 1)
                    self._next[key, label] = nth + 1
            if nth:
                record = self._numbered(key, label, nth)
            if record is None or self._answers(record):
                return record

    def _numbered(self, key: bytes, label: str | None, nth: int) -> Record | None:
        """Play a record that was reserved; None where the place has no such number."""
        record = None
        try:
            record = self.recording.lookup_digest(key, scope=label, nth=nth)
        finally:
            with self._lock:
                if record is not None:
                    self._mark(record.seq)
                else:
                    # Nothing was played: the place ends here, or could not be read this time.
                    self._next[key, label] = min(self._next[key, label], nth)
        return record

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

    def played(self, key: bytes, scope: str | None = None) -> int:
        """How many of the records that a call in this scope is answered by are played."""
        found = self.recording.lookup_digest(key, scope=scope)
        if found is None:
            return 0
        with self._lock:
            return max(self._next.get((key, found.scope), 0), int(self._is_played(found.seq)))

    def recorded(self, key: bytes, scope: str | None = None) -> int:
        """How many records of a key answer a call in this scope, played or not."""
        return self._tally(key, scope)[0]

    def last(self, key: bytes, scope: str | None = None) -> Record | None:
        """The last record that answers a call, played or not, its response loaded."""
        count, seq = self._tally(key, scope)
        if not count:
            return None
        record = self.recording.record(seq)
        record.response  # noqa: B018
        return record

    def unplayed(self) -> Iterator[Record]:
        """Yield the records that could have answered and were not taken, in recording order."""
        first = 8 * (len(self._played) - len(self._played.lstrip(b"\xff")))
        while first < len(self.recording) and self._is_played(first):
            first += 1
        if first >= len(self.recording):
            return
        for record in self.recording.records(first=first):
            if not self._is_played(record.seq) and self._answers(record):
                yield record

    def _tally(self, key: bytes, scope: str | None) -> tuple[int, int]:
        """How many records answer a call, and the number of the last one."""
        known = self._tallies.get((key, scope))
        if known is not None:
            return known
        found = self.recording.lookup_digest(key, scope=scope)
        label = found.scope if found is not None else None
        count = nth = last = 0
        while found is not None:
            if self._answers(found):
                count, last = count + 1, found.seq
            nth += 1
            found = self.recording.lookup_digest(key, scope=label, nth=nth)
        self._tallies[key, scope] = count, last
        return count, last

    def _is_played(self, seq: int) -> bool:
        return bool(self._played[seq >> 3] >> (seq & 7) & 1)

    def _mark(self, seq: int) -> None:
        self._played[seq >> 3] |= 1 << (seq & 7)
