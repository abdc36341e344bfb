"""The summary of a recording: digests of runs of records, to compare two recordings without reading either.

A *run* ends where the content of a record says so, wherever it stands: two recordings that were made independently
of each other have the same runs where they have the same records (spec chapter 05, "Summary").
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import msgspec
from blake3 import blake3

from replaypack.errors import FormatError

from .digests import SHORT_SIZE, digest
from .row import Row

__all__ = ["MAX_SUMMARY", "RUN_WIDTH", "Run", "RunSum", "Summary", "outcome_bytes", "parse_runs"]

#: Records that a run has at least, and at most; between, it ends behind one in 64.
_LEAST, _MASK, _MOST = 16, 63, 1024
_NO_SALT = bytes(8)
_NO_RUN = bytes(SHORT_SIZE)
_encode = msgspec.msgpack.Encoder().encode
_RUN = Struct(">16sIIQ")
_LONGEST = (1 << 64) - 1
#: Bytes of a run.
RUN_WIDTH = _RUN.size
#: Bytes that a summary has at most: enough for some 20 million records. Those of two are held in memory.
MAX_SUMMARY = 8 << 20


def outcome_bytes(row: Row) -> bytes:
    """The row without its place, times and salt: equal for records that say the same of the same call."""
    return _encode(
        (
            0,
            row.kind,
            row.name,
            row.key,
            row.scheme,
            row.scope,
            row.request,
            row.identity,
            0,
            0,
            row.status,
            row.flags,
            row.attributes,
            _NO_SALT,
            row.response_size,
            row.response_encoding,
            row.response_digest,
        )
    )


class Run(NamedTuple):
    """Records that follow each other: the digest (16 bytes) of what they say, how many they are, how many of them did
    not succeed, and how long they took together (nanoseconds, at most 2⁶⁴−1)."""

    digest: bytes
    records: int
    failed: int
    duration: int


class RunSum:
    """A run while it is summed up."""

    __slots__ = ("_digest", "_duration", "_failed", "records")

    def __init__(self) -> None:
        self._digest, self.records, self._failed, self._duration = _NO_RUN, 0, 0, 0

    def add(self, row: Row) -> None:
        """Add the next record."""
        self._digest = digest(self._digest + outcome_bytes(row))[:SHORT_SIZE]
        self.records += 1
        self._failed += row.status != 0
        self._duration += row.duration

    def add_all(self, rows: Sequence[Row]) -> None:
        """Add the next records."""
        told, hasher = self._digest, blake3()
        for row in rows:
            hasher.update(told + outcome_bytes(row))
            told = hasher.digest(SHORT_SIZE)
            hasher.reset()
        self._digest = told
        self.records += len(rows)
        self._failed += sum([row.status != 0 for row in rows])
        self._duration += sum([row.duration for row in rows])

    def run(self) -> Run:
        """What it is so far."""
        return Run(self._digest, self.records, self._failed, min(self._duration, _LONGEST))


class Summary:
    """Sums records up, one after another. Takes 32 bytes for about 80 of them."""

    __slots__ = ("_packed", "_sum", "records")

    def __init__(self) -> None:
        #: Records so far.
        self.records = 0
        self._packed = bytearray()
        self._sum = RunSum()

    def add(self, row: Row) -> None:
        """Add the next record."""
        self._sum.add(row)
        self.records += 1
        if _ends_run(row, self._sum.records):
            self._end_run()

    def add_all(self, rows: Sequence[Row]) -> None:
        """Add the next records."""
        self.records += len(rows)
        while rows:
            before = self._sum.records
            end = next((end for end, row in enumerate(rows, 1) if _ends_run(row, before + end)), None)
            self._sum.add_all(rows[:end])
            if end is None:
                return
            self._end_run()
            rows = rows[end:]

    def _end_run(self) -> None:
        self._packed += _RUN.pack(*self._sum.run())
        self._sum = RunSum()

    def encode(self) -> bytes:
        """The runs so far, the last one as it is."""
        return bytes(self._packed) + (_RUN.pack(*self._sum.run()) if self._sum.records else b"")


def _ends_run(row: Row, records: int) -> bool:
    """Whether a run of so many records ends behind this one."""
    if records < _LEAST:
        return False
    return records >= _MOST or not (row.key[-1] ^ row.response_digest[-1]) & _MASK


def parse_runs(raw: bytes, records: int, *, where: str = "summary") -> list[Run]:
    """Take a summary apart. Raises `FormatError` where it is not one of so many records."""
    if len(raw) % RUN_WIDTH:
        raise FormatError(f"a summary of {len(raw)} bytes is cut off", where=where)
    runs = [Run(*fields) for fields in _RUN.iter_unpack(raw)]
    if sum(run.records for run in runs) != records or not all(0 < run.records >= run.failed for run in runs):
        raise FormatError(f"the runs of a summary are not those of {records} records", where=where)
    return runs
