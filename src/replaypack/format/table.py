"""Sorted tables: fixed-width entries in leaf pages under a root of fences (spec chapter 05).

An entry is ``sort key ‖ payload``, all integers big-endian, so that entries compare as bytes. A page is the
matrix of its entries, transposed (the first byte of every entry, then the second, …): neighbouring entries
agree in most columns, and zstd sees that only when the columns lie together.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import add, and_
from struct import Struct
from typing import NamedTuple

from replaypack.errors import FormatError

from .digests import SHORT_SIZE, short_digest

__all__ = [
    "INLINE_SPACE",
    "BLOBS",
    "KEYS",
    "LITERALS",
    "PAGE_SIZE",
    "RECORDS",
    "TABLES",
    "BlobEntry",
    "FrameEntry",
    "FrameRef",
    "KeyEntry",
    "KeyPage",
    "key_page",
    "key_seqs",
    "Location",
    "Root",
    "TableShape",
    "lower_bound",
    "pack_blob",
    "pack_frame",
    "pack_key",
    "pack_keys",
    "pages_of",
    "parse_page",
    "transpose",
    "unpack_blob",
    "unpack_frame",
    "unpack_key",
    "unpack_ref",
    "untranspose",
]

#: Bytes of a full page before compression, rounded down to whole entries.
PAGE_SIZE = 65536


class Location(NamedTuple):
    """Where a frame lies: index into the segment's packs, byte offset in that pack, compressed bytes."""

    pack: int
    offset: int
    length: int


class TableShape:
    """The shape of one table: its number, name, width of an entry and of its sort key (bytes)."""

    def __init__(self, number: int, name: str, width: int, key: int) -> None:
        self.number = number
        self.name = name
        self.width = width
        self.key = key
        self.page_entries = PAGE_SIZE // width
        self.fence = Struct(f">{key}s{SHORT_SIZE}sIII")

    def split(self, rows: bytes) -> list[bytes]:
        """Entries one after another, as a list."""
        return [rows[at : at + self.width] for at in range(0, len(rows), self.width)]

    def __repr__(self) -> str:
        return f"<table {self.name}>"


class FrameRef(NamedTuple):
    """A record frame in the dictionary of a page of ``keys``: the sequence number of its first record, its
    location, the first 16 bytes of the BLAKE3 of its raw bytes."""

    first: int
    frame: Location
    digest: bytes


class KeyEntry(NamedTuple):
    """``keys``: key (first 16 bytes), discriminator (8), sequence number. An entry is its sort key."""

    key: bytes
    discriminator: bytes
    seq: int


class FrameEntry(NamedTuple):
    """``records`` and ``literals``: first sequence number or offset, frame, its raw bytes and items, its digest.

    ``items`` is the number of records of a record frame, or of literal bytes: those are the last of the frame,
    all of a literal frame, the inline section of a record frame. ``digest`` is the first 16 bytes of the BLAKE3
    of the decompressed frame.
    """

    first: int
    frame: Location
    raw: int
    items: int
    digest: bytes


class BlobEntry(NamedTuple):
    """``blobs``: first 16 bytes of a blob's digest, sequence of a record that has it, its role there
    (0 request, 1 identity, 2 response)."""

    digest: bytes
    seq: int
    role: int


KEYS = TableShape(1, "keys", 30, 30)
RECORDS = TableShape(2, "records", 42, 6)
LITERALS = TableShape(3, "literals", 42, 6)
BLOBS = TableShape(4, "blobs", 23, 22)
TABLES = (KEYS, RECORDS, LITERALS, BLOBS)

_KEY = Struct(">16s8sHI")
_KEY_SEQ = Struct(">22xQ")  # and the end of the discriminator
_SEQ_MASK = (1 << 48) - 1
_REF = Struct(">HIIII16s")
_KEY_AND_REF = Struct(f"{_KEY.format}{_REF.size}s")
_FIRST = Struct(">HI28x")
#: Where inline responses begin in the literal address space.
INLINE_SPACE = 1 << 47
_FRAME = Struct(">HIIIIII16s")
_BLOB = Struct(">16sHIB")


def pack_key(key: bytes, discriminator: bytes, seq: int) -> bytes:
    """Encode an entry of ``keys`` (30 bytes); of ``key`` the first 16 bytes are taken."""
    return _KEY.pack(key, discriminator, seq >> 32, seq & 0xFFFFFFFF)


def unpack_key(data: bytes, at: int = 0) -> KeyEntry:
    """Decode the entry of ``keys`` at byte ``at``."""
    key, disc, high, low = _KEY.unpack_from(data, at)
    return KeyEntry(key, disc, high << 32 | low)


def pack_keys(
    keys: Iterable[bytes], discriminators: Iterable[bytes], seqs: Sequence[int], ref: FrameRef
) -> list[bytes]:
    """`pack_key` of several entries, each with that of their frame in the dictionary behind it."""
    high, low = [seq >> 32 for seq in seqs], [seq & 0xFFFFFFFF for seq in seqs]
    return list(map(_KEY_AND_REF.pack, keys, discriminators, high, low, repeat(pack_ref(ref))))


def pack_ref(ref: FrameRef) -> bytes:
    """Encode an entry of the dictionary of a page of ``keys`` (34 bytes)."""
    first, at, digest = ref
    return _REF.pack(first >> 32, first & 0xFFFFFFFF, *at, digest)


def key_seqs(rows: bytes) -> Iterator[int]:
    """The sequence numbers of entries of ``keys``, one after another."""
    return map(and_, chain.from_iterable(_KEY_SEQ.iter_unpack(rows)), repeat(_SEQ_MASK))


def unpack_ref(data: bytes, at: int = 0) -> FrameRef:
    """Decode the entry at byte ``at`` of the dictionary of a page of ``keys`` (34 bytes)."""
    high, low, pack, offset, length, short = _REF.unpack_from(data, at)
    return FrameRef(high << 32 | low, Location(pack, offset, length), short)


def pack_frame(entry: FrameEntry) -> bytes:
    """Encode an entry of ``records`` or ``literals`` (42 bytes)."""
    first, (pack, offset, length), raw, count, digest = entry
    return _FRAME.pack(first >> 32, first & 0xFFFFFFFF, pack, offset, length, raw, count, digest)


def unpack_frame(data: bytes, at: int = 0) -> FrameEntry:
    """Decode the entry of ``records`` or ``literals`` at byte ``at``."""
    high, low, pack, offset, length, raw, count, digest = _FRAME.unpack_from(data, at)
    return FrameEntry(high << 32 | low, Location(pack, offset, length), raw, count, digest)


def pack_blob(entry: BlobEntry) -> bytes:
    """Encode an entry of ``blobs`` (23 bytes)."""
    digest, seq, role = entry
    return _BLOB.pack(digest, seq >> 32, seq & 0xFFFFFFFF, role)


def unpack_blob(data: bytes, at: int = 0) -> BlobEntry:
    """Decode the entry of ``blobs`` at byte ``at``."""
    digest, high, low, role = _BLOB.unpack_from(data, at)
    return BlobEntry(digest, high << 32 | low, role)


def transpose(rows: bytes, width: int) -> bytes:
    """Turn entries one after another into columns."""
    return b"".join(rows[column::width] for column in range(width))


def untranspose(page: bytes, width: int) -> bytes:
    """Turn columns back into entries one after another."""
    count = len(page) // width
    rows = bytearray(len(page))
    for column in range(width):
        rows[column::width] = page[column * count : (column + 1) * count]
    return bytes(rows)


def pages_of(shape: TableShape, rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut sorted entries into pages: every one but the last is full."""
    batch: list[bytes] = []
    for row in rows:
        batch.append(row)
        if len(batch) == shape.page_entries:
            yield batch
            batch = []
    if batch:
        yield batch


def parse_page(shape: TableShape, raw: bytes, count: int, digest: bytes, *, where: str = "page") -> bytes:
    """Check a decompressed page against its digest and count; return its entries one after another."""
    if len(raw) != count * shape.width or short_digest(raw) != digest:
        raise FormatError(f"a page of {shape.name} does not match its digest", where=where)
    return untranspose(raw, shape.width)


def key_page(rows: bytes, frames: Iterable[FrameRef]) -> bytes:
    """Return a page of ``keys`` before compression: its entries, then the frames they lie in, both transposed."""
    return transpose(rows, KEYS.width) + transpose(b"".join(map(pack_ref, frames)), _REF.size)


class KeyPage:
    """A page of ``keys``: its entries (``rows``, one after another) and the record frames that they lie in."""

    __slots__ = ("_heads", "_refs", "firsts", "rows", "where")

    def __init__(self, raw: bytes, count: int, digest: bytes, *, where: str = "page") -> None:
        split = count * KEYS.width
        if len(raw) <= split or (len(raw) - split) % _REF.size or short_digest(raw) != digest:
            raise FormatError("a page of keys does not match its digest", where=where)
        self.where = where
        self.rows = untranspose(raw[:split], KEYS.width)
        if (len(raw) - split) // _REF.size > count:
            raise FormatError(f"a page of {count} keys names more frames than that", where=where)
        self._heads = array("Q", untranspose(raw[: 8 * count], 8))
        if sys.byteorder == "little":
            self._heads.byteswap()
        self._refs = untranspose(raw[split:], _REF.size)
        self.firsts = array("Q", [high << 32 | low for high, low in _FIRST.iter_unpack(self._refs)])
        if any(a >= b for a, b in zip(self.firsts, self.firsts[1:], strict=False)):
            raise FormatError("the frames of a page of keys are not in order", where=where)

    @staticmethod
    def largest(count: int) -> int:
        """The most bytes that a page of ``count`` entries can have: each in another frame."""
        return count * (KEYS.width + _REF.size)

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return len(self.rows) + 8 * len(self._heads) + len(self._refs) + 8 * len(self.firsts)

    def lower_bound(self, prefix: bytes) -> int:
        """Index of the first entry whose beginning is not below ``prefix`` (8 bytes at least)."""
        # Keys are digests: the first eight bytes tell nearly all apart, and numbers are searched in C.
        within = bisect_left(self._heads, int.from_bytes(prefix[:8], "big"))
        start = within * KEYS.width
        found = self.rows[start : start + len(prefix)]
        if found < prefix and found:
            return lower_bound(self.rows, KEYS.width, prefix, within)
        return within

    def ref_of(self, seq: int) -> bytes:
        """The entry of the dictionary for the frame that holds record ``seq``; see `unpack_ref`."""
        at = bisect_right(self.firsts, seq) * _REF.size
        if not at:
            raise FormatError(f"no frame of the page holds record {seq}", where=self.where)
        return self._refs[at - _REF.size : at]

    def frame_of(self, seq: int) -> FrameRef:
        """The frame that holds record ``seq``."""
        return unpack_ref(self.ref_of(seq))

    def entries(self) -> list[bytes]:
        """The entries, each with that of its frame in the dictionary behind it (nothing where it has none)."""
        refs = [b"", *(self._refs[at : at + _REF.size] for at in range(0, len(self._refs), _REF.size))]
        places = map(bisect_right, repeat(list(self.firsts)), key_seqs(self.rows))
        return list(map(add, KEYS.split(self.rows), map(refs.__getitem__, places)))

    @property
    def frames(self) -> list[FrameRef]:
        """All frames of the dictionary, in order."""
        return [unpack_ref(self._refs, at) for at in range(0, len(self._refs), _REF.size)]


class Root:
    """The root of one table: for each page its first sort key, digest and location; ``count`` entries in all."""

    __slots__ = ("count", "digests", "fences", "locations", "shape")

    def __init__(
        self,
        shape: TableShape,
        count: int,
        fences: Sequence[bytes],
        digests: Sequence[bytes],
        locations: Sequence[Location],
    ) -> None:
        self.shape = shape
        self.count = count
        self.fences = fences
        self.digests = digests
        self.locations = locations

    def encode(self) -> bytes:
        """Return the root's bytes: one entry of ``sort key ‖ page digest ‖ location`` a page."""
        pack = self.shape.fence.pack
        return b"".join(pack(f, d, *at) for f, d, at in zip(self.fences, self.digests, self.locations, strict=True))

    @classmethod
    def parse(cls, shape: TableShape, count: int, data: bytes, *, where: str = "root") -> Root:
        """Decode a root; the number of its pages must be what ``count`` entries take. Raises `FormatError`."""
        pages = -(-count // shape.page_entries)
        if len(data) != pages * shape.fence.size:
            raise FormatError(f"a root of {len(data)} bytes does not fit {count} entries of {shape.name}", where=where)
        fences: list[bytes] = []
        digests, locations = [], []
        last = b""
        for fence, digest, *location in shape.fence.iter_unpack(data):
            # Looked at one by one: a root that repeats itself compresses to nothing, and would fill the memory.
            if fence <= last and fences:
                raise FormatError(f"the fences of {shape.name} are not in order", where=where)
            last = fence
            fences.append(fence)
            digests.append(digest)
            locations.append(Location(*location))
        if len(set(digests)) != len(digests):
            # Pages begin with different fences, so that no two are the same.
            raise FormatError(f"a page of {shape.name} stands in its root twice", where=where)
        return cls(shape, count, fences, digests, locations)

    def page_count(self, page: int) -> int:
        """Entries in page number ``page``; every page but the last is full."""
        return min(self.shape.page_entries, self.count - page * self.shape.page_entries)

    def page_of(self, key: bytes) -> int:
        """The page in which the first entry not below ``key`` stands, or before whose end it would (0 at least).

        That entry may be the first of the following page: then nothing in this page is ``>= key``.
        """
        return max(0, bisect_left(self.fences, key) - 1)

    def page_at_or_before(self, key: bytes) -> int:
        """The page that holds the last entry whose sort key is not above ``key``; -1 where there is none."""
        return bisect_right(self.fences, key) - 1


def lower_bound(rows: bytes, width: int, key: bytes, low: int = 0) -> int:
    """Index of the first entry in ``rows``, from number ``low`` on, whose beginning is not below ``key``."""
    size = len(key)
    high = len(rows) // width
    while low < high:
        middle = (low + high) // 2
        at = middle * width
        if rows[at : at + size] < key:
            low = middle + 1
        else:
            high = middle
    return low
