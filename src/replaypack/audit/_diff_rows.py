"""The rows of two recordings as numbers to be compared: a few bytes a record, whatever it holds."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Container, Iterator

import msgspec
from blake3 import blake3

from replaypack._read.index import Index
from replaypack._read.packs import Frame
from replaypack.errors import FormatError
from replaypack.format.digests import digest
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import Row
from replaypack.format.summary import outcome_bytes
from replaypack.format.table import FrameEntry

__all__ = ["Numbers", "Rows", "is_timed", "rows_between"]

#: Frames that are read together, and their raw bytes where they are several.
_FRAMES, _RAW = 8, 16 << 20
_rows = msgspec.msgpack.Decoder(list[Row])


def rows_between(index: Index, first: int, end: int) -> Iterator[Row]:
    """Yield the rows ``first`` to ``end`` - 1, but for purged ones, reading only the frames they lie in.

    Raises `FormatError`.
    """
    purged = index.purged
    frames = (item for item in index.frames(first))
    expected = first
    while expected < end:
        batch: list[tuple[FrameEntry, Frame]] = []
        size = 0
        while len(batch) < _FRAMES and size < _RAW and (item := next(frames, None)) is not None:
            if item[0].first >= end:
                break
            batch.append(item)
            size += item[0].raw
        if not batch:
            raise FormatError(f"the records end at {expected}, not at {end}", where="records")
        found = index.read_frames([frame for _, frame in batch])
        for (entry, _), records in zip(batch, found, strict=True):
            if not entry.first <= expected <= entry.first + records.count:
                raise FormatError(f"record {expected} is not in its frame", where=records.where)
            for number, row in _rows_of(records, entry.first, purged):
                if row.seq != number:
                    raise FormatError("a record frame is not in order", where=records.where)
                if first <= number < end:
                    yield row
            expected = entry.first + records.count


def _rows_of(frame: RecordFrame, first: int, purged: Container[int]) -> Iterator[tuple[int, Row]]:
    """The rows of a frame that begins with record ``first``, with their numbers."""
    stored, inline = frame.stored_rows()
    numbers = [number for number in range(frame.count) if first + number not in purged]
    whole = [stored[n] if (blob := inline[n]) is None else stored[n] + digest(blob) for n in numbers]
    try:
        parsed = _rows.decode(b"\xdd" + len(whole).to_bytes(4, "big") + b"".join(whole))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise FormatError(f"the rows of a frame do not parse: {error}", where=frame.where) from None
    yield from zip((first + number for number in numbers), parsed, strict=True)


def is_timed(row: Row) -> bool:
    """Whether the response of a record holds times: those of a stream do."""
    return row.attributes is not None and "stream" in row.attributes


class Numbers:
    """Numbers for what two recordings share: equal numbers stand for equal things on either side."""

    def __init__(self) -> None:
        # Under a key that nobody knows: no one can make two records that only look alike.
        self._key = secrets.token_bytes(32)
        self._labels: dict[tuple[str, str | None], int] = {}
        self._scopes: dict[str | None, int] = {}

    def outcome(self, row: Row) -> int:
        """Of all that a record says, apart from its place, times and salt."""
        return int.from_bytes(blake3(outcome_bytes(row), key=self._key).digest(8), "big")

    def label(self, row: Row) -> int:
        """Of its kind and name."""
        return self._labels.setdefault((row.kind, row.name), len(self._labels))

    def scope(self, row: Row) -> int:
        """Of its scope."""
        return self._scopes.setdefault(row.scope, len(self._scopes))


class Rows:
    """The rows of one side that were read, in order; one number of each kind for each record."""

    def __init__(self) -> None:
        self.seq = array("Q")
        self.outcome = array("Q")
        self.key = array("Q")
        self.response = array("Q")
        self.label = array("L")
        self.scope = array("L")
        self.timed = array("b")

    def __len__(self) -> int:
        return len(self.seq)

    def read(
        self,
        index: Index,
        first: int,
        end: int,
        numbers: Numbers,
        wanted: Callable[[Row], bool],
    ) -> None:
        """Add those of the rows ``first`` to ``end`` - 1 that are ``wanted``."""
        for row in rows_between(index, first, end):
            if not wanted(row):
                continue
            self.seq.append(row.seq)
            self.outcome.append(numbers.outcome(row))
            self.key.append(int.from_bytes(row.key[:8], "big"))
            self.response.append(int.from_bytes(row.response_digest[:8], "big"))
            self.label.append(numbers.label(row))
            self.scope.append(numbers.scope(row))
            self.timed.append(is_timed(row))
