"""The records behind one another in a frame, several parsed at once: what a replay in recorded order asks for next.

Parsing rows and small responses together costs half of parsing them one by one, and the digest of a response that
stands behind its row is computed only where it is asked for. The frame was checked against its digest when it was read.
"""

from __future__ import annotations

from typing import Any

from replaypack.errors import FormatError
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import Row, parse_stored_rows
from replaypack.values import ENCODING_STRUCTURED, decode_together

from .index import Found, Index

__all__ = ["UNREAD", "Ahead"]

#: Stands for a response that was not decoded.
UNREAD: Any = object()


class Ahead:
    """Up to ``count`` records of a frame, from ``number`` on, which are ``first`` and following of the recording.

    It is empty where they have to be looked at one by one, and where there are none. Purged records are not asked for.
    """

    __slots__ = ("_inlines", "count", "first", "frame", "index", "keys", "number", "responses", "rows")

    def __init__(
        self,
        index: Index | None = None,
        frame: RecordFrame | None = None,
        number: int = 0,
        first: int = 0,
        count: int = 0,
    ) -> None:
        #: The tables that the frame was read with.
        self.index = index
        self.frame = frame
        self.number = number
        self.first = first
        #: How many there are.
        self.count = 0
        #: Where a response stands behind its row, the digest of it is not there: zeros are.
        self.rows: list[Row] = []
        self.keys: list[bytes] = []
        #: Or `UNREAD`. Each is given once, for whoever gets it may change it: whoever takes one puts `UNREAD` there.
        self.responses: list[Any] = []
        if frame is None or number >= frame.count or not count:
            return
        stored, inlines = frame.stored_rows(number, number + count)
        if not all(stored):
            return  # purged, and nothing says so
        try:
            rows = parse_stored_rows(stored, inlines, where=frame.where)
        except FormatError:
            return  # looked at one by one, it is told which
        if [row.seq for row in rows] == list(range(first, first + len(rows))):
            self.count = len(rows)
            self.rows = rows
            self.keys = [row.key for row in rows]
            self._inlines = inlines
            responses = None
            if None not in inlines and {row.response_encoding for row in rows} == {ENCODING_STRUCTURED}:
                responses = decode_together(inlines)  # type: ignore[arg-type]
            self.responses = responses or [UNREAD] * len(rows)

    def found(self, at: int) -> Found:
        """Where one of them lies."""
        assert self.frame is not None
        return Found(self.rows[at], b"", self._inlines[at], self.frame, self.number + at)
