"""All entries of a segment's tables, one page after another: for what writes tables anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replaypack.errors import FormatError
from replaypack.format.table import KEYS, KeyPage, TableShape, parse_page

from .index import SegmentIndex
from .packs import PackReader

__all__ = ["TableReader"]

#: Byte at which the index of a pack begins in an entry of ``records`` or ``literals``.
_PACK_AT = 6


class TableReader:
    """Reads one segment's tables in order, ``ahead`` pages at a time; none is kept."""

    def __init__(self, segment: SegmentIndex, reader: PackReader, *, ahead: int = 1) -> None:
        self.segment = segment
        self._reader = reader
        self._ahead = ahead

    def pages(self, shape: TableShape) -> Iterator[bytes]:
        """Yield the entries of one page after another, checked."""
        root = self.segment.root(shape)
        for start in range(0, len(root.fences), self._ahead):
            numbers = range(start, min(start + self._ahead, len(root.fences)))
            frames = [self.segment.page_frame(shape, number) for number in numbers]
            for number, frame, raw in zip(numbers, frames, self._reader.read(frames), strict=True):
                count, digest = root.page_count(number), root.digests[number]
                if shape is KEYS:
                    yield KeyPage(raw, count, digest, where=frame.where).rows
                else:
                    yield parse_page(shape, raw, count, digest, where=frame.where)

    def rows(self, shape: TableShape, packs: Sequence[int] | None = None) -> Iterator[bytes]:
        """Yield entries, the indexes of their packs replaced where asked: ``packs[old]`` is the new one."""
        width = shape.width
        same = packs is None or all(old == new for old, new in enumerate(packs))
        for page in self.pages(shape):
            if packs is not None:
                _check_packs(page, _PACK_AT, width, len(packs))
            rows = page if same or packs is None else _renumber(page, _PACK_AT, width, packs)
            for start in range(0, len(rows), width):
                yield rows[start : start + width]


def _check_packs(rows: bytes, at: int, width: int, count: int) -> None:
    """Refuse entries that name a pack beyond the ``count`` that there are: they would name another one's."""
    low = rows[at + 3 :: width]
    if not any(rows[at + byte :: width].strip(b"\0") for byte in range(3)) and max(low, default=0) < count:
        return
    for start in range(at, len(rows), width):
        named = int.from_bytes(rows[start : start + 4], "big")
        if named >= count:
            raise FormatError(f"a table names pack {named} of {count}", where="page")


def _renumber(rows: bytes, at: int, width: int, packs: Sequence[int]) -> bytes:
    out = bytearray(rows)
    if len(packs) <= 256 and max(packs) < 256:
        # One column, translated in one call: nearly always.
        table = bytes(packs) + bytes(256 - len(packs))
        out[at + 3 :: width] = rows[at + 3 :: width].translate(table)
        return bytes(out)
    for start in range(at, len(out), width):
        old = int.from_bytes(out[start : start + 4], "big")
        out[start : start + 4] = packs[old].to_bytes(4, "big")
    return bytes(out)
