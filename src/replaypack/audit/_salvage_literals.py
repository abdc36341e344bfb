"""Where literal frames belong of which nothing is said any more: found out by the digests of what they make up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from replaypack._write.literals import CUT
from replaypack.errors import FormatError
from replaypack.format.digests import digest
from replaypack.format.recipe import Range, materialise
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import BlobRef
from replaypack.format.table import INLINE_SPACE

__all__ = ["Literal", "addresses"]

_MOST_OFFSETS = 4096
_MOST_CUTS = 32
_TESTS = 6
_MOST_BYTES = 64 << 20
_MOST_BLOBS = 1 << 16
_MOST_RANGES = 1 << 21
#: What is tried out for the literals of one object, in bytes that are read and digested; and what a trial costs more.
_MOST_WORK = 4 << 30
_TRIAL, _RANGE = 512, 64


_Read = Callable[[bytes], bytes]


class Literal(NamedTuple):
    """A frame that may hold literals: its byte offset and length in its object, its digest, its raw bytes."""

    offset: int
    length: int
    digest: bytes
    raw: int


class _Blob(NamedTuple):
    low: int
    high: int
    ref: BlobRef
    ranges: list[Range]


class _Work:
    """How much may still be tried out."""

    def __init__(self) -> None:
        self.left = _MOST_WORK


def addresses(records: Sequence[RecordFrame], literals: Sequence[Literal], read: _Read) -> Iterator[tuple[int, bytes]]:
    """Yield the offset in the address space of literal frames that lie beside ``records``, and their digests.

    Frames that follow each other hold literals that do. Where they begin is tried out: the first literals of a segment
    are the beginning of a range of one of its recipes, and frames are cut at the same sizes.
    """
    blobs = sorted(_blobs(records), key=lambda blob: blob.low)
    if not blobs:
        return
    offsets = sorted({item.offset for blob in blobs for item in blob.ranges})[:_MOST_OFFSETS]
    lows = [blob.low for blob in blobs]
    work = _Work()
    for run in _runs(literals):
        # A page, or whatever else is beside literals, is at an end of the run: it may be shortened.
        for skip in range(len(run)):
            part = run[skip:]
            if work.left <= 0:
                return
            start = _start(part, blobs, lows, offsets, read, work)
            if start is not None:
                for literal in part:
                    yield start, literal.digest
                    start += literal.raw
                break


def _runs(literals: Sequence[Literal]) -> Iterator[list[Literal]]:
    run: list[Literal] = []
    size = 0
    for literal in sorted(literals):
        if run and (run[-1].offset + run[-1].length != literal.offset or size > _MOST_BYTES):
            yield run
            run, size = [], 0
        run.append(literal)
        size += literal.raw
    if run:
        yield run


def _start(
    run: Sequence[Literal],
    blobs: Sequence[_Blob],
    lows: Sequence[int],
    offsets: Sequence[int],
    read: _Read,
    work: _Work,
) -> int | None:
    data = b"".join(read(literal.digest) for literal in run)
    work.left -= len(data)
    first = run[0].raw
    for cuts in range(_MOST_CUTS):
        for offset in offsets:
            start = offset + cuts * CUT
            work.left -= _TRIAL
            if work.left <= 0:
                return None
            inside: list[_Blob] = []
            for at in range(bisect_left(lows, start), len(blobs)):
                if blobs[at].low >= start + first or len(inside) == 4 * _TESTS:
                    break
                if blobs[at].high <= start + len(data):
                    inside.append(blobs[at])
            if inside and all(_fits(blob, start, data, work) for blob in sorted(inside, key=_size)[:_TESTS]):
                return start
    return None


def _size(blob: _Blob) -> int:
    # Those of one byte or two fit anywhere.
    return blob.ref.size if blob.ref.size >= 64 else 1 << 32


def _fits(blob: _Blob, start: int, data: bytes, work: _Work) -> bool:
    work.left -= blob.ref.size + _RANGE * len(blob.ranges)
    if work.left <= 0:
        return False
    try:
        made = materialise(
            blob.ranges, blob.ref.size, lambda offset, length: data[offset - start : offset - start + length]
        )
    except FormatError:
        return False
    return digest(made) == blob.ref.digest


def _blobs(records: Sequence[RecordFrame]) -> Iterator[_Blob]:
    """What recipes make of literals alone."""
    count = total = 0
    for frame in records:
        for number in range(frame.count):
            try:
                row, _, inline = frame.record(number)
                recipes = frame.recipes(number)
            except FormatError:
                continue
            refs = [ref for ref in (row.request, row.identity) if ref is not None]
            if inline is None and row.response_encoding:
                refs.append(row.response)
            for ref, ranges in zip(refs, recipes, strict=False):
                high = max((item.offset + item.length for item in ranges), default=INLINE_SPACE + 1)
                if high <= INLINE_SPACE and ref.size <= _MOST_BYTES:
                    yield _Blob(min(item.offset for item in ranges), high, ref, ranges)
                    count += 1
                    total += len(ranges)
            if count >= _MOST_BLOBS or total >= _MOST_RANGES:
                return
