"""Packs: frames between two zstd skippable frames, the table of contents last (spec chapter 04, "Packs").

``zstd -dc`` decompresses a pack (it passes over skippable frames), ``b3sum`` gives its name, and the table
of contents alone is enough to list, salvage and re-index it.
"""

from __future__ import annotations

from struct import Struct, error
from typing import ClassVar

import msgspec

from replaypack.errors import FormatError

from .digests import DIGEST_SIZE, SHORT_SIZE, short_digest
from .frame import Compressor, decompress
from .table import Location

__all__ = [
    "HEADER",
    "MAX_EXTERNAL",
    "PACK_VERSION",
    "TRAILER_SIZE",
    "External",
    "FrameInfo",
    "FrameKind",
    "Origin",
    "PackBuilder",
    "Toc",
    "check_header",
    "pack_header",
    "decode_toc",
    "parse_pack",
    "parse_toc",
    "parse_trailer",
]

PACK_VERSION = 1

_SKIPPABLE = 0x184D2A5B
_MAGIC = b"RPKPACK\n"
_END = b"RPKEND1\n"
_SKIP = Struct("<II")
_HEAD = Struct("<8sHHI")
_TRAILER = Struct("<II16s8s")
TRAILER_SIZE = _TRAILER.size
_BEGIN = _SKIP.pack(_SKIPPABLE, _HEAD.size)


def pack_header(level: int = 0) -> bytes:
    """The first bytes of a pack. ``level`` is the zstd level of its frames, a hint; 0 says nothing."""
    return _BEGIN + _HEAD.pack(_MAGIC, PACK_VERSION, 0, level)


HEADER = pack_header()
_MAX_TOC = 64 << 20
#: The most external frames that one pack may name.
MAX_EXTERNAL = 1 << 16


class FrameKind:
    """Kinds of frames, as they stand in a table of contents."""

    RECORD, LITERAL, PAGE = 1, 2, 3
    NAMES: ClassVar[dict[int, str]] = {1: "record", 2: "literal", 3: "page"}


class Origin(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The recording that frames come from: id (16 bytes), writer id (8 bytes), its name then, as a hint."""

    recording: bytes
    writer: bytes
    name: str


class FrameInfo(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One frame: kind, byte offset and length in the pack, raw bytes, first item, items, digest, origin.

    ``first`` and ``count`` are sequence numbers of records, offsets and bytes of literals, or the table's
    number and entries of a page. ``digest`` is the first 16 bytes of the BLAKE3 of the raw bytes. ``origin``
    indexes the pack's origins; it is None in a pack that holds one large blob and names no recording.
    """

    kind: int
    offset: int
    length: int
    raw: int
    first: int
    count: int
    digest: bytes
    origin: int | None


class External(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Literals of an origin's address space that lie in another pack: offset, pack (32 bytes), frame there, of which
    the last ``count`` of ``raw`` bytes are meant."""

    origin: int
    first: int
    pack: bytes
    offset: int
    length: int
    raw: int
    count: int
    digest: bytes


class Toc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pack's table of contents."""

    frames: list[FrameInfo]
    origins: list[Origin]
    external: list[External]


class _Counts(msgspec.Struct, frozen=True):
    """A table of contents that is not looked into."""

    frames: msgspec.Raw
    origins: msgspec.Raw
    external: msgspec.Raw


_COUNTS = msgspec.msgpack.Decoder(_Counts)


def _array_length(raw: msgspec.Raw) -> int:
    """How many items a MessagePack array says it has; 0 for anything else, which decoding it then refuses."""
    head = bytes(memoryview(raw)[:5])
    if head[0] & 0xF0 == 0x90:
        return head[0] & 15
    size = {0xDC: 2, 0xDD: 4}.get(head[0], 0)
    return int.from_bytes(head[1 : 1 + size], "big")


class PackBuilder:
    """Collects frames of at most one recording into the bytes of a pack; ``level`` as in `pack_header`."""

    def __init__(self, origin: Origin | None, level: int = 0) -> None:
        self._origin = origin
        self._parts: list[bytes] = [pack_header(level)]
        self._frames: list[FrameInfo] = []
        self._external: list[External] = []
        self.size = len(HEADER)

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, kind: int, frame: bytes, *, raw: int, first: int, count: int, digest: bytes) -> Location:
        """Append a frame; return its place in this pack (pack index 0)."""
        offset = self.size
        origin = None if self._origin is None else 0
        self._frames.append(FrameInfo(kind, offset, len(frame), raw, first, count, digest, origin))
        self._parts.append(frame)
        self.size += len(frame)
        return Location(0, offset, len(frame))

    def add_external(self, first: int, pack: bytes, frame: Location, raw: int, count: int, digest: bytes) -> None:
        """Note that literals from ``first`` on lie in another pack, so that packs alone suffice to re-index."""
        self._external.append(External(0, first, pack, frame.offset, frame.length, raw, count, digest))

    def finish(self) -> bytes:
        """Return the whole pack."""
        origins = [] if self._origin is None else [self._origin]
        raw = msgspec.msgpack.encode(Toc(self._frames, origins, self._external))
        body = Compressor(9)(raw)
        trailer = _TRAILER.pack(len(body), len(raw), short_digest(raw), _END)
        self._parts += (_SKIP.pack(_SKIPPABLE, len(body) + len(trailer)), body, trailer)
        return b"".join(self._parts)


def parse_trailer(tail: bytes, *, where: str = "pack") -> tuple[int, int, bytes]:
    """Read the last `TRAILER_SIZE` bytes of a pack.

    Returns (compressed bytes of the table of contents, its raw bytes, its digest); raises `FormatError`.
    """
    try:
        length, raw, digest, end = _TRAILER.unpack(tail[-TRAILER_SIZE:])
    except error:
        raise FormatError("too short for a pack", where=where) from None
    if end != _END:
        raise FormatError("does not end as a pack", where=where)
    if raw > _MAX_TOC:
        raise FormatError(f"a table of contents of {raw} bytes is over the limit", where=where)
    return length, raw, digest


def check_header(head: bytes, *, where: str = "pack") -> int:
    """Check the first bytes of a pack; return the level that they name (`pack_header`).

    Raises `FormatError` (also ``future_version``).
    """
    if head[:16] != HEADER[:16] or len(head) < len(HEADER):
        raise FormatError("does not begin as a pack", where=where)
    _, version, flags, level = _HEAD.unpack_from(head, _SKIP.size)
    if version > PACK_VERSION:
        raise FormatError(
            f"pack version {version} is newer than {PACK_VERSION}",
            reason="future_version",
            where=where,
            hint="upgrade replaypack",
        )
    if version != PACK_VERSION or flags:
        raise FormatError("the pack header is not one of version 1", reason="malformed_version", where=where)
    return int(level)


def parse_toc(body: bytes, raw_size: int, digest: bytes, pack_size: int, *, where: str = "pack") -> Toc:
    """Decode and check a table of contents (its compressed bytes) of a pack of ``pack_size`` bytes."""
    raw = decompress(body, raw_size, where=where)
    if short_digest(raw) != digest:
        raise FormatError("the table of contents does not match its digest", where=where)
    toc = decode_toc(raw, pack_size, where=where)
    position = len(HEADER)
    for frame in toc.frames:
        if frame.offset != position:
            raise FormatError("the frames of the table of contents do not follow each other", where=where)
        position += frame.length
    if position != pack_size - TRAILER_SIZE - len(body) - _SKIP.size:
        raise FormatError("the frames of the table of contents do not fill the pack", where=where)
    return toc


def decode_toc(raw: bytes, pack_size: int, *, where: str = "pack") -> Toc:
    """Decode and check the raw bytes of a table of contents by themselves: not whether its frames fill the pack.

    Raises `FormatError`.
    """
    try:
        counts = _COUNTS.decode(raw)
        # A frame takes ten bytes of the pack at least; without a check zeros that compress to nothing fill the memory.
        if _array_length(counts.frames) > pack_size // 10 or _array_length(counts.external) > MAX_EXTERNAL:
            raise FormatError("the table of contents has more entries than the pack can", where=where)
        if _array_length(counts.origins) > max(1, _array_length(counts.frames)):
            raise FormatError("the table of contents has more origins than frames", where=where)
        toc = msgspec.msgpack.decode(raw, type=Toc)
    except FormatError:
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise FormatError(f"the table of contents does not parse: {problem}", where=where) from None
    for frame in toc.frames:
        if frame.kind not in FrameKind.NAMES or (frame.origin is not None and not 0 <= frame.origin < len(toc.origins)):
            raise FormatError("the table of contents has an unknown kind of frame or origin", where=where)
        if len(frame.digest) != SHORT_SIZE or frame.first < 0 or frame.count < 0:
            raise FormatError("a frame of the table of contents has a field out of its bounds", where=where)
        if frame.length <= 0 or frame.raw < 0:
            raise FormatError("the frames of the table of contents do not follow each other", where=where)
    if any(len(origin.recording) != 16 or len(origin.writer) != 8 for origin in toc.origins) or any(
        not 0 <= item.origin < len(toc.origins)
        or not 0 < item.count <= item.raw
        or len(item.pack) != DIGEST_SIZE
        or len(item.digest) != SHORT_SIZE
        for item in toc.external
    ):
        raise FormatError("the table of contents has an unsound origin or external frame", where=where)
    return toc


def parse_pack(data: bytes, *, where: str = "pack") -> Toc:
    """Check header, trailer and table of contents of a whole pack; return the latter. Frames are not read."""
    check_header(data[: len(HEADER)], where=where)
    length, raw, digest = parse_trailer(data, where=where)
    start = len(data) - TRAILER_SIZE - length
    if start < len(HEADER) + _SKIP.size:
        raise FormatError("the table of contents is longer than the pack", where=where)
    if data[start - _SKIP.size : start] != _SKIP.pack(_SKIPPABLE, length + TRAILER_SIZE):
        raise FormatError("the table of contents is not a skippable frame", where=where)
    return parse_toc(data[start:-TRAILER_SIZE], raw, digest, len(data), where=where)
