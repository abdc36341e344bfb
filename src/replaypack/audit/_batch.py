"""Several records of a frame, behind one another: what is right is seen of all of them at once."""

from __future__ import annotations

from typing import NamedTuple

from replaypack._read.index import Found
from replaypack.errors import FormatError
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import Row, parse_whole_rows
from replaypack.format.table import FrameEntry

__all__ = ["AT_ONCE", "Batch", "read_batch"]

#: The most records of a batch.
AT_ONCE = 512


class Batch(NamedTuple):
    """Records from ``number`` (in the frame) on; their sequence numbers follow each other."""

    entry: FrameEntry
    frame: RecordFrame
    number: int
    rows: list[Row]
    #: The whole bytes of the rows.
    data: list[bytes]
    inlines: list[bytes | None]

    def found(self, at: int) -> Found:
        """Record ``at`` of the batch."""
        return Found(self.rows[at], self.data[at], self.inlines[at], self.frame, self.number + at)


def read_batch(entry: FrameEntry, frame: RecordFrame, number: int) -> Batch | None:
    """The next records of a frame from ``number`` on; None where they have to be looked at one by one."""
    stored, inlines = frame.stored_rows(number, number + AT_ONCE)
    try:
        rows, data = parse_whole_rows(stored, inlines, where=frame.where)
    except FormatError:
        return None
    first = entry.first + number
    if [row.seq for row in rows] != list(range(first, first + len(rows))):
        return None
    return Batch(entry, frame, number, rows, data, inlines)
