"""The Merkle leaves of a recording, in order: the one place that knows what the leaf of a record is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from replaypack.errors import FormatError
from replaypack.format.merkle import leaf_hash
from replaypack.format.record_frame import RecordFrame

from .index import Index

__all__ = ["leaves"]

_FRAMES = 8


def leaves(index: Index, first: int, end: int) -> Iterator[bytes]:
    """Yield the leaves (32 bytes) of the records from ``first`` up to ``end``, holding a few frames at a time.

    Raises `FormatError`, `StorageError`.
    """
    frames = iter(index.frames(first))
    position = first
    while position < end and (batch := list(islice(frames, _FRAMES))):
        loaded = index.read_frames([frame for _, frame in batch])
        for (entry, _), frame in zip(batch, loaded, strict=True):
            if entry.first > position or frame.count != entry.items:
                raise FormatError(f"the record frames leave out record {position}", where=frame.where)
            for number in range(position - entry.first, min(frame.count, end - entry.first)):
                yield _leaf(frame, number)
            position = entry.first + entry.items
    if position < end:
        raise FormatError(f"the record frames end at record {position}")


def _leaf(frame: RecordFrame, number: int) -> bytes:
    return leaf_hash(frame.record(number)[1])
