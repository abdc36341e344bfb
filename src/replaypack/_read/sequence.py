"""The records of a recording in order, frame after frame, read ahead."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from replaypack.errors import FormatError
from replaypack.format.record_frame import RecordFrame
from replaypack.format.table import FrameEntry

from .index import Found, Index
from .packs import Frame

__all__ = ["found_in", "in_order"]

#: Record frames that iteration reads ahead, in one batch, and their raw bytes.
_AHEAD = 8
_AHEAD_BYTES = 16 << 20


def in_order(index: Index, first: int, *, where: str) -> Iterator[Found]:
    """Yield the records from number ``first`` on, in order, reading ahead in a thread; ``where`` is for errors.

    Those that were purged are left out.

    Raises `FormatError` where the frames do not hold all of them, `StorageError`.
    """
    frames = iter(index.frames(first))
    expected: int | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="replaypack-read") as pool:
        batch = _take(frames, 1)
        ahead: Future[list[RecordFrame]] | None = None
        records = index.read_frames([frame for _, frame in batch])
        while batch:
            next_batch = _take(frames, _AHEAD)
            if next_batch:
                ahead = pool.submit(index.read_frames, [frame for _, frame in next_batch])
            records.reverse()
            for entry, frame in batch:
                if entry.first != expected and (expected is not None or entry.first > first):
                    raise FormatError(f"record {entry.first} follows others than it should", where=frame.where)
                expected = entry.first + entry.items
                # Taken out of the list, so that what its recipes resolve to is not held longer than needed.
                ready = records.pop()
                if ready.count != entry.items:
                    message = f"a record frame has {ready.count} records, not {entry.items}"
                    raise FormatError(message, where=frame.where)
                for found in found_in(index, entry.first, ready):
                    if found.row.seq >= first:
                        yield found
            batch = next_batch
            records = ahead.result() if ahead is not None and batch else []
        if first < index.end and expected != index.end:
            raise FormatError(f"the records end at {expected}, the manifest names {index.end}", where=where)


def _take(frames: Iterator[tuple[FrameEntry, Frame]], count: int) -> list[tuple[FrameEntry, Frame]]:
    taken: list[tuple[FrameEntry, Frame]] = []
    size = 0
    while len(taken) < count and size < _AHEAD_BYTES and (item := next(frames, None)) is not None:
        taken.append(item)
        size += item[0].raw
    return taken


def found_in(index: Index, first: int, frame: RecordFrame) -> Iterator[Found]:
    """Yield the records of a frame that begins with record ``first``, but for those that were purged.

    Raises `FormatError`.
    """
    purged = index.purged
    for number in range(frame.count):
        if first + number in purged:
            if frame.stored(number)[0]:
                raise FormatError(f"record {first + number} was purged, and its row is there", where=frame.where)
            continue
        row, data, inline = frame.record(number)
        if row.seq != first + number:
            raise FormatError("a record frame is not in order", where=frame.where)
        yield Found(row, data, inline, frame, number)
