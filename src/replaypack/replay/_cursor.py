"""Which record answers next: consumption per key, in recording order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from replaypack._read.ahead import UNREAD, Ahead
from replaypack.canonical import key_digest
from replaypack.errors import CanonicalizationError, PurgedError
from replaypack.format.row import STATUSES, Row
from replaypack.recording import Record, Recording

__all__ = ["Answer", "Cursor"]

#: How many records are parsed together, at first and at most.
_FEW, _MANY = 2, 64


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A plain value that answers a call in recorded order: no `Record` is made of what nobody looks at more closely."""

    head: Row
    response: Any

    @property
    def seq(self) -> int:
        """The number of the record."""
        return self.head.seq

    @property
    def status(self) -> str:
        """That of the record."""
        return STATUSES[self.head.status]

    @property
    def error(self) -> None:
        """None: the call did not fail."""


class Cursor:
    """The position of one replay in a recording. Safe for many threads.

    Each key of each scope is consumed in recording order, one record a call. A scoped call consumes the records of
    its scope; where that has none of this call it shares, with everybody, those without a scope. The recording is
    the one that was opened: what is appended to it meanwhile never answers.

    A run that asks in recorded order, as most do, needs no table: where all records before one are played, that one
    answers its own call and no other could.

    Memory: one bit a record, one entry for each key that was asked more than once, and a frame of records.
    """

    def __init__(self, recording: Recording, *, answers: Callable[[Row], bool]) -> None:
        self.recording = recording
        self._answers = answers
        self._count = len(recording)
        #: All records before this one are played; of those behind it the bits tell.
        self._front = 0
        self._bits = bytearray((self._count + 7) // 8)
        self._scattered = False  # whether any is set
        # While calls come in recorded order: the record before the front, or those parsed around or before it.
        self._before: Record | Ahead | None = None
        self._ahead = Ahead()
        # Where to go on, by key and label of the records; only of keys of which the first record is played. What is
        # played in recorded order is not counted here: the bits tell.
        self._next: dict[tuple[bytes, str | None], int] = {}
        # Of calls that had no answer left, which may be asked again and again.
        self._tallies: dict[tuple[bytes, str | None], tuple[int, int | None]] = {}
        self._lock = threading.Lock()

    def take_next(self, kind: str, identity: object, scope: str | None) -> Record | Answer | None:
        """`take` where the call is the one that was recorded next; None where `take` has to see.

        That such a call holds no secret follows from its key: it is not searched.
        """
        if self._before is None or not self._as_it_is:
            return None
        try:
            key = key_digest(kind, identity)
        except CanonicalizationError:
            return None
        return None if self._next and (key, scope) in self._next else self._take_front(key, scope)

    @cached_property
    def _as_it_is(self) -> bool:
        return self.recording.keys_as_they_are

    def learn_secret(self, *secrets: str | bytes) -> None:
        """Remove these values from calls before they are looked up. Raises `UsageError`."""
        self.recording.learn_secret(*secrets)
        self.__dict__.pop("_as_it_is", None)

    def take(self, key: bytes, scope: str | None = None) -> Record | Answer | None:
        """Consume the next record of a key (32 bytes) and return it, its response loaded.

        None where there is none: the call was never recorded, or is exhausted (`recorded` tells). Raises
        `PurgedError`, once, where it is the turn of a record that was purged.
        """
        # Not where records are counted: another thread may be about to play the one at the front, which is its own.
        if self._before is not None and (key, scope) not in self._next:
            front = self._take_front(key, scope)
            if front is not None:
                return front
            self._before = None
        record: Record | PurgedError | None
        while True:
            if self._next and (key, scope) in self._next:
                # The first one is played, and the scope has records of its own: no need to look at them again.
                label, record = scope, None
            else:
                record = self._at(key, scope)
                if record is None:
                    return None
                label = record.scope
            if record is None or not self._play(record.seq, record):
                record = self._numbered(key, label)
                if record is None:
                    return None
                if not self._play(record.seq, record):
                    continue
            if isinstance(record, PurgedError):
                raise record
            if self._answers(record.head):
                return record

    def _at(self, key: bytes, scope: str | None, nth: int = 0) -> Record | PurgedError | None:
        """A record of a call; the error of one that was purged, which has its number and scope."""
        try:
            record = self.recording.lookup_digest(key, scope=scope, nth=nth)
        except PurgedError as error:
            return error
        # After its tables were exchanged, a recording that is being written may have more than were there.
        return record if record is None or record.seq < self._count else None

    def _take_front(self, key: bytes, scope: str | None) -> Record | Answer | None:
        """The record at the front, if it is the one that is asked for."""
        while (before := self._before) is not None:
            ahead, front = self._ahead, self._front
            at = front - ahead.first
            if not 0 <= at < ahead.count or ahead.index is not self.recording._index:
                ahead, at = self._look_ahead(before), 0
                if ahead.first != front or not ahead.count:
                    break
            row = ahead.rows[at]
            answers = self._answers(row)
            response = UNREAD
            if ahead.keys[at] == key and row.scope == scope:
                response, ahead.responses[at] = ahead.responses[at], UNREAD
            elif answers:
                break
            # One that answers nothing is stepped over, whatever is asked for.
            answer: Record | Answer = Answer(row, response)
            if answers and (response is UNREAD or row.status or row.attributes is not None):
                assert ahead.index is not None
                answer = Record(self.recording, ahead.found(at), ahead.index, response)
                answer.response  # noqa: B018 - what cannot be read is not played
            with self._lock:  # as `_play` does while nothing is played out of order: nearly always
                played = front == self._front and not self._scattered
                if played:
                    self._front, self._before = front + 1, ahead
            if (played or self._play(front, ahead)) and answers:
                return answer
        return None

    def _look_ahead(self, before: Record | Ahead) -> Ahead:
        """Parse the records behind one: more and more together, for it may be that few are asked for in order."""
        last = self._ahead
        first = before.seq + 1 if isinstance(before, Record) else before.first + before.count
        count = 2 * last.count if last.first + last.count == first else 0
        count = min(max(count, _FEW), _MANY, self._count - first)
        self._ahead = ahead = self.recording.ahead(before, count)
        return ahead

    def _numbered(self, key: bytes, label: str | None) -> Record | PurgedError | None:
        """The next record of a place, for this call alone; None where the place has no more."""
        with self._lock:
            nth = self._next.get((key, label), 1)
            self._next[key, label] = nth + 1
        record = None
        try:
            record = self._at(key, label, nth)
        finally:
            if record is None:
                # The place ends here, or could not be read this time.
                with self._lock:
                    self._next[key, label] = min(self._next[key, label], nth)
        return record

    def _play(self, seq: int, record: Record | Ahead | PurgedError) -> bool:
        """Mark a record as played; false where it was."""
        with self._lock:
            if seq != self._front:
                if self._is_played(seq):
                    return False
                self._bits[seq >> 3] |= 1 << (seq & 7)
                self._scattered = True
                return True
            front = seq + 1
            if self._scattered:
                while front < self._count and self._bits[front >> 3] >> (front & 7) & 1:
                    front += 1
            self._front = front
            self._before = record if front == seq + 1 and not isinstance(record, PurgedError) else None
        return True

    def give_back(self, record: Record | Answer) -> None:
        """Undo a `take` whose caller went away: the record answers the next call."""
        seq = record.seq
        with self._lock:
            # Behind the front the bits tell, and the front goes back to this record.
            for later in range(seq, self._front):
                self._bits[later >> 3] |= 1 << (later & 7)
            self._bits[seq >> 3] &= ~(1 << (seq & 7))
            self._scattered = True
            self._front = min(self._front, seq)
            self._before = None
            # Every place is gone through anew.
            self._next = dict.fromkeys(self._next, 0)

    def peek(self, key: bytes, scope: str | None = None) -> Record | None:
        """The record that `take` would return now; nothing is consumed. Raises `PurgedError` as that does."""
        record = next((record for record in self._all(key, scope) if not self._is_played(record.seq)), None)
        if isinstance(record, PurgedError):
            raise record
        return record

    def played(self, key: bytes, scope: str | None = None) -> int:
        """How many of the records that answer a call in this scope are played."""
        return sum(self._is_played(record.seq) for record in self._all(key, scope))

    def recorded(self, key: bytes, scope: str | None = None) -> int:
        """How many records of a key answer a call in this scope, played or not, or did before they were purged."""
        return self._tally(key, scope)[0]

    def last(self, key: bytes, scope: str | None = None) -> Record | None:
        """The last record that answers a call, played or not, its response loaded."""
        _, seq = self._tally(key, scope)
        if seq is None:
            return None
        record = self.recording.record(seq)
        record.response  # noqa: B018
        return record

    def unplayed(self) -> Iterator[Record]:
        """Yield the records that could have answered and were not taken, in recording order."""
        if self._front >= self._count:
            return
        for record in self.recording.records(first=self._front, last=self._count - 1):
            if not self._is_played(record.seq) and self._answers(record.head):
                yield record

    def _tally(self, key: bytes, scope: str | None) -> tuple[int, int | None]:
        """How many records answer a call, and the number of the last one that is not purged."""
        known = self._tallies.get((key, scope))
        if known is None:
            count, last = 0, None
            for record in self._all(key, scope):
                count, last = count + 1, last if isinstance(record, PurgedError) else record.seq
            known = self._tallies[key, scope] = count, last
        return known

    def _all(self, key: bytes, scope: str | None) -> Iterator[Record | PurgedError]:
        found = self._at(key, scope)
        label = found.scope if found is not None else None
        nth = 0
        while found is not None:
            if isinstance(found, PurgedError) or self._answers(found.head):
                yield found
            nth += 1
            found = self._at(key, label, nth)

    def _is_played(self, seq: int) -> bool:
        return seq < self._front or bool(self._bits[seq >> 3] >> (seq & 7) & 1)
