"""What stays of a recording of which records are purged: of its frames, and of the entries of its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from replaypack._read.packs import Frame
from replaypack._write.rewrite import ROLES, Fate, LiteralFate, RecordFate
from replaypack.format.record_frame import RecordFrame, blank_records
from replaypack.format.table import BLOBS, INLINE_SPACE, KEYS, FrameEntry, TableShape, unpack_blob, unpack_key
from replaypack.recording import Recording

from ._belonging import Belonging
from ._payload import Uses, literal_rows, within

__all__ = ["Remains"]


class Remains:
    """What becomes of the frames and entries of one recording, for `rewrite`.

    ``new`` records are purged now, ``purged`` are all that are; ``bad`` are the packs that nothing stays in. Of frames
    in these that the recording did not record itself only what its recipes name is kept: what is written anew is in
    packs that name the recording, and bytes of others would be taken for its own from there on.
    """

    def __init__(
        self, source: Recording, new: set[int], purged: Collection[int], uses: Uses, bad: Collection[str]
    ) -> None:
        self._new = sorted(new)
        self._purged = frozenset(purged)
        self._ordered = sorted(purged)
        self._uses = uses
        self._bad = bad
        #: Where the inline sections of record frames begin and end.
        self._inlines = {
            (frame.pack.digest, frame.at.offset): (entry.first, entry.first + entry.items)
            for entry, frame in (literal_rows(source) if purged else ())
            if entry.first >= INLINE_SPACE
        }
        roles = [role for role in ROLES if role not in source.withheld] if source.withheld else None
        belonging = Belonging(source.storage, (bytes.fromhex(source.manifest.content.id),), roles)
        self._own = belonging.own(source)
        self._used = belonging.used(source, self._own, lambda ref: ref.digest in bad)

    def literal(self, entry: FrameEntry, frame: Frame) -> LiteralFate:
        """What stays of a frame of literals."""
        if frame.pack.digest not in self._bad:
            return Fate.STAY
        end = entry.first + entry.items
        gone = self._uses.gone(entry.first, end)
        if self._own(entry, frame.pack):
            return list(_without(entry.first, end, gone)) if gone else Fate.KEEP
        used = self._used.between(entry.first, end)
        return [kept for start, stop in used for kept in _without(start, stop, self._uses.gone(start, stop))]

    def record(self, entry: FrameEntry, frame: Frame) -> RecordFate:
        """What stays of a record frame."""
        end = entry.first + entry.items
        numbers = {seq - entry.first for seq in within(self._ordered, entry.first, end)}
        place = self._inlines.get((frame.pack.digest, frame.at.offset))
        gone = self._uses.gone(*place) if place is not None and numbers else []
        if gone or within(self._new, entry.first, end):
            start, stop = place or (0, 0)
            kept = [(low - start, high - start) for low, high in _without(start, stop, gone)]
            return lambda raw: blank_records(RecordFrame(raw), numbers, kept)
        return Fate.KEEP if frame.pack.digest in self._bad else Fate.STAY

    def edit(self, shape: TableShape, rows: Iterator[bytes]) -> Iterator[bytes]:
        """What stays of the entries of ``keys`` and ``blobs``."""
        if shape is BLOBS:
            return (row for row in rows if unpack_blob(row).seq not in self._purged)
        return self._keys(rows) if shape is KEYS else rows

    def _keys(self, rows: Iterator[bytes]) -> Iterator[bytes]:
        """Entries of purged records stay only where a record that is there has the same key."""
        key, waiting, stays = b"", list[bytes](), False
        for row in rows:
            if row[:16] != key:
                key, waiting, stays = row[:16], [], False
            if stays:
                yield row
            elif unpack_key(row).seq in self._purged:
                waiting.append(row)
            else:
                stays = True
                yield from waiting
                yield row


def _without(start: int, end: int, gone: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for low, high in gone:
        if start < low:
            yield start, low
        start = high
    if start < end:
        yield start, end
