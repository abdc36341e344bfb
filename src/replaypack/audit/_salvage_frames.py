"""Finding zstd frames in bytes of which nothing else is known (spec section 4.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from replaypack.errors import FormatError
from replaypack.format.frame import MAX_COMPRESSED, MAX_FRAME, decompress

__all__ = ["Piece", "frames_in"]

_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 4 << 20
_BLOCK = 128 << 10


class Piece(NamedTuple):
    """A sound frame: its byte offset and bytes there, and what it decompresses to."""

    offset: int
    length: int
    raw: bytes


class _Window:
    """The part of an object that is looked at."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self.size = size
        self.start = 0
        self._data = bytearray()

    def has(self, end: int) -> bool:
        """Read on up to ``end``; False where the object ends before."""
        if end > self.size:
            return False
        while self.start + len(self._data) < end:
            at = self.start + len(self._data)
            self._data += self._read(at, min(_CHUNK, self.size - at))
        return True

    def drop(self, at: int) -> None:
        """Forget what is before ``at``."""
        if at - self.start >= _CHUNK or at - self.start >= len(self._data):
            del self._data[: at - self.start]
            self.start = at

    def bytes(self, at: int, length: int) -> bytes:
        return bytes(self._data[at - self.start : at - self.start + length])

    def find(self, at: int) -> int:
        """Where the next frame may begin, from ``at`` on; -1 for nowhere."""
        while True:
            self.drop(at)
            if not self.has(min(self.size, at + len(_MAGIC))) or at + len(_MAGIC) > self.size:
                return -1
            found = self._data.find(_MAGIC, at - self.start)
            if found >= 0:
                return self.start + found
            at = self.start + len(self._data) - len(_MAGIC) + 1
            if at + len(_MAGIC) > self.size:
                return -1
            self.has(min(self.size, at + _CHUNK))


def frames_in(read: Callable[[int, int], bytes], size: int) -> Iterator[Piece]:
    """Yield every sound frame of an object of ``size`` bytes, in order; ``read(offset, length)`` gives its bytes.

    What does not decompress is passed over. Memory: one frame, compressed and not, each at most about 64 MiB.
    """
    window = _Window(read, size)
    at = 0
    while (at := window.find(at)) >= 0:
        length = _length(window, at)
        raw = None
        if length:
            try:
                raw = decompress(window.bytes(at, length))
            except FormatError:
                raw = None
        if raw is None:
            at += 1
            continue
        yield Piece(at, length, raw)
        at += length


def _length(window: _Window, at: int) -> int:
    """How many bytes the frame at ``at`` has by its headers; 0 where it is none that a pack may hold."""
    if not window.has(at + 5):
        return 0
    flags = window.bytes(at + 4, 1)[0]
    single = flags & 0x20
    # No dictionary, no reserved bit, and a size.
    if flags & 0x0B or not (flags >> 6 or single):
        return 0
    head = at + 5 + (0 if single else 1)
    field = (1, 2, 4, 8)[flags >> 6]
    if not window.has(head + field):
        return 0
    content = int.from_bytes(window.bytes(head, field), "little") + (256 if field == 2 else 0)
    if not 0 < content <= MAX_FRAME:
        return 0
    position = head + field
    for _ in range(content // 64 + 16):
        if not window.has(position + 3):
            return 0
        block = int.from_bytes(window.bytes(position, 3), "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind == 3 or size > _BLOCK:
            return 0
        position += 3 + (1 if kind == 1 else size)
        if position - at > MAX_COMPRESSED:
            return 0
        if last:
            position += 4 if flags & 4 else 0
            return position - at if window.has(position) else 0
    return 0
