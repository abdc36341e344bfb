"""The summary of a recording: digests of runs of records, to compare two recordings without reading either.

A *run* ends where the content of a record says so, wherever it stands: two recordings that were made independently
of each other have the same runs where they have the same records (spec chapter 05, "Summary").
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from replaypack.errors import FormatError

from .digests import digest
from .row import Row, encode_row

__all__ = ["LEAST", "MOST", "RUN_WIDTH", "Run", "Summary", "encode_runs", "outcome_bytes", "parse_runs"]

#: Records that a run has at least (but for the last one), and at most.
LEAST = 16
MOST = 1024
_NO_SALT = bytes(8)
_RUN = Struct(">16sHHQB")
#: A run ends, on the average, after so many records more.
_MASK = 63
_LONGEST = (1 << 64) - 1
#: Bytes of a run.
RUN_WIDTH = _RUN.size


def outcome_bytes(row: Row) -> bytes:
    """The row without its place, times and salt: equal for records that say the same of the same call."""
    return encode_row(
        Row(
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
    """Records that follow each other.

    ``digest`` (16 bytes) is of their outcomes, ``records`` how many they are, ``failed`` how many of them did not
    succeed, ``duration`` how long they took together (nanoseconds, at most 2⁶⁴−1); ``ended`` is 0 for the last run
    of a recording where another record would belong to it.
    """

    digest: bytes
    records: int
    failed: int
    duration: int
    ended: int


class Summary:
    """Collects the runs of a recording, record by record; goes on where ``runs`` end."""

    __slots__ = ("runs",)

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.runs = list(runs)

    def copy(self) -> Summary:
        """The same, independent of what is added later."""
        return Summary(self.runs)

    def add(self, row: Row) -> None:
        """Add the next record."""
        runs = self.runs
        if not runs or runs[-1].ended:
            runs.append(_EMPTY)
        chained, count, failed, duration, _ = runs[-1]
        outcome = digest(outcome_bytes(row))
        count += 1
        runs[-1] = Run(
            digest(chained + outcome)[:16],
            count,
            failed + (row.status != 0),
            min(duration + row.duration, _LONGEST),
            int(count >= MOST or (count >= LEAST and not outcome[0] & _MASK)),
        )


_EMPTY = Run(bytes(16), 0, 0, 0, 0)


def encode_runs(runs: Iterable[Run]) -> bytes:
    """The runs of a summary, raw."""
    return b"".join(_RUN.pack(*run) for run in runs)


def parse_runs(raw: bytes, records: int, *, where: str = "summary") -> list[Run]:
    """Take the runs of a summary apart. Raises `FormatError` where they are not those of so many records."""
    if len(raw) % _RUN.size:
        raise FormatError(f"a summary of {len(raw)} bytes is cut off", where=where)
    runs = [Run(*fields) for fields in _RUN.iter_unpack(raw)]
    sound = all(0 < run.records <= MOST and run.failed <= run.records and run.ended == 1 for run in runs[:-1])
    if runs:
        last = runs[-1]
        sound &= 0 < last.records <= MOST and last.failed <= last.records and last.ended <= 1
    if not sound or sum(run.records for run in runs) != records:
        raise FormatError(f"the runs of a summary are not those of {records} records", where=where)
    return runs
