"""The records of a Chassis session that lie in memory. Needs Chassis."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chassis.replay.models import ReplayRecord
from chassis.secrets.redaction import SecretRedactor

from ._chassis_answers import scrubbed

__all__ = ["MemoryRecords"]


class MemoryRecords:
    """A list of records and an index over it. The list may grow or be cut from outside, as Chassis' own may."""

    def __init__(self, records: Iterable[ReplayRecord]) -> None:
        self.records: list[ReplayRecord] = list(records)
        self._index: dict[str, list[int]] = {}
        self._kinds: dict[str, int] = {}
        self._indexed = 0
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        return "in memory"

    def append(self, fields: Mapping[str, Any], *, live: bool) -> ReplayRecord:
        with self._lock:
            record = ReplayRecord(sequence=len(self.records), **fields)
            self.records.append(record)
        return record

    def nth(self, key: str, n: int) -> ReplayRecord | None:
        """Record number ``n`` of a key, of whatever kind."""
        records, positions = self.records, self._positions(key)
        if n < len(positions) and records[positions[n]].key != key:
            self._indexed = len(records) + 1
            positions = self._positions(key)
        return records[positions[n]] if n < len(positions) else None

    def run(self, key: str) -> int:
        """How many records a key has."""
        return len(self._positions(key))

    def _positions(self, key: str) -> Sequence[int]:
        with self._lock:
            records = self.records
            if len(records) < self._indexed:
                self._index, self._kinds, self._indexed = {}, {}, 0
            while self._indexed < len(records):
                record = records[self._indexed]
                self._index.setdefault(record.key, []).append(self._indexed)
                self._kinds[record.kind.value] = self._kinds.get(record.kind.value, 0) + 1
                self._indexed += 1
            return self._index.get(key, ())

    def counts(self) -> dict[str, int]:
        self._positions("")
        return dict(self._kinds)

    def scrub(self, redactor: SecretRedactor) -> None:
        self.records = [scrubbed(record, redactor) for record in self.records]

    def seal(self) -> None:
        """Nothing is kept elsewhere."""

    def close(self, error: BaseException | None) -> None:
        """Nothing is held."""
