"""Record frames: rows with their recipes and small responses, back to back (spec chapter 04, "Record frames")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replaypack.errors import FormatError

from .recipe import Range, parse_ops, resolve
from .row import Row, parse_stored_row
from .varint import read_uvarint, uvarint

__all__ = ["MAX_FRAME_RANGES", "Entry", "RecordFrame", "encode_entry", "split_entry"]

#: The most ranges that the recipes of one record frame may resolve to, all together. Runs multiply: without
#: a limit a frame of a few kilobytes could fill any memory.
MAX_FRAME_RANGES = 1 << 22


class Entry(NamedTuple):
    """One record of a frame: its stored row, the recipes of the blobs not inline, the inline response or None."""

    row: bytes
    recipes: bytes
    inline: bytes | None


def encode_entry(row: bytes, recipes: bytes, inline: bytes | None) -> bytes:
    """Return one entry. ``row`` is the whole row; its response digest is left out where the response is inline."""
    if inline is None:
        return b"".join((uvarint(len(row)), uvarint(len(recipes)), b"\0", row, recipes))
    sizes = (uvarint(len(row) - 32), uvarint(len(recipes)), uvarint(len(inline) + 1))
    return b"".join((*sizes, row[:-32], recipes, inline))


def split_entry(data: bytes, pos: int, *, where: str = "record frame") -> tuple[Entry, int]:
    """Take the entry at ``pos`` apart; return it and the position behind it. Raises `FormatError`."""
    head = data[pos : pos + 5]
    if len(head) == 5 and head[0] > 127 and 0 < head[1] < 128 and head[2] < 128 and head[3] > 127 and 0 < head[4] < 128:
        # The sizes of nearly every small record: two bytes, one byte, two bytes.
        row_size = head[0] & 127 | head[1] << 7
        recipes_size = head[2]
        inline_size = head[3] & 127 | head[4] << 7
        pos += 5
    else:
        row_size, pos = read_uvarint(data, pos)
        recipes_size, pos = read_uvarint(data, pos)
        inline_size, pos = read_uvarint(data, pos)
    body = pos + row_size
    inline = body + recipes_size
    end = inline + max(0, inline_size - 1)
    if end > len(data) or row_size < 34:
        raise FormatError("a record does not fit its frame", where=where)
    return Entry(data[pos:body], data[body:inline], data[inline:end] if inline_size else None), end


class RecordFrame:
    """A decompressed record frame. Records are found by their place (byte offset) or in order."""

    __slots__ = ("_recipes", "_resolved", "_walked", "raw", "where")

    def __init__(self, raw: bytes, *, where: str = "record frame") -> None:
        self.raw = raw
        self.where = where
        # Recipes refer to recipes before them: they are resolved once, in order, as far as needed.
        self._recipes: list[list[Range]] = []
        self._walked: dict[int, list[list[Range]]] = {}
        self._resolved = 0

    def entry(self, place: int) -> tuple[Row, bytes, Entry]:
        """Return the record at byte offset ``place``: row, whole row bytes, entry. Raises `FormatError`."""
        if place >= len(self.raw):
            raise FormatError(f"no record at byte {place} of {len(self.raw)}", where=self.where)
        entry, _ = split_entry(self.raw, place, where=self.where)
        row, data = parse_stored_row(entry.row, entry.inline, where=self.where)
        return row, data, entry

    def places(self) -> Iterator[int]:
        """Yield the places of the records, in order."""
        pos = 0
        while pos < len(self.raw):
            yield pos
            _, pos = split_entry(self.raw, pos, where=self.where)

    def recipes(self, place: int) -> list[list[Range]]:
        """Return the recipes of the record at ``place``, resolved: of its request, identity, response, as present."""
        if place in self._walked:
            return self._walked[place]
        pos = max(self._walked, default=-1)
        if pos < 0:
            pos = 0
        else:
            _, pos = split_entry(self.raw, pos, where=self.where)
        while pos <= place and pos < len(self.raw):
            start = pos
            entry, pos = split_entry(self.raw, pos, where=self.where)
            own: list[list[Range]] = []
            cursor = 0
            while cursor < len(entry.recipes):
                ops, cursor = parse_ops(entry.recipes, cursor, where=self.where)
                ranges = resolve(ops, self._recipes, where=self.where)
                self._resolved += len(ranges)
                if self._resolved > MAX_FRAME_RANGES:
                    raise FormatError(f"the recipes of a frame have over {MAX_FRAME_RANGES} ranges", where=self.where)
                self._recipes.append(ranges)
                own.append(ranges)
            self._walked[start] = own
        if place not in self._walked:
            raise FormatError(f"no record begins at byte {place}", where=self.where)
        return self._walked[place]
