"""Frames out of packs: one range request each, neighbours together, checked before use."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from replaypack.errors import FormatError
from replaypack.format.digests import short_digest
from replaypack.format.frame import MAX_COMPRESSED, MAX_FRAME, decompress
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import pack_key_of
from replaypack.format.table import Location
from replaypack.storage import Storage

__all__ = ["Frame", "PackReader", "check_frame"]


class Frame(NamedTuple):
    """A frame to read: its pack, its place there, and what it must decompress to where that is known.

    It may be ``most`` (bytes).
    """

    pack: PackRef
    at: Location
    raw: int | None
    digest: bytes | None
    most: int = MAX_FRAME

    @property
    def where(self) -> str:
        """For messages: the pack and the byte offset in it."""
        return f"{pack_key_of(self.pack.digest)} at byte {self.at.offset}"


class PackReader:
    """Reads and decompresses frames. Holds the bytes of a *near* range once it was asked to."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._near: dict[str, tuple[int, bytes]] = {}
        self._lock = threading.Lock()

    def preload(self, ranges: Sequence[tuple[PackRef, int, int]]) -> None:
        """Read a range (pack, offset, bytes) of each pack, all together; frames inside come from memory."""
        with self._lock:
            missing = [item for item in ranges if item[0].digest not in self._near]
            for pack, offset, length in missing:
                if offset + length > pack.size:
                    where = pack_key_of(pack.digest)
                    raise FormatError(f"a range ends beyond the pack's {pack.size} bytes", where=where)
            wanted = [(pack_key_of(pack.digest), offset, length) for pack, offset, length in missing]
            if len(wanted) == 1:
                bodies = [self._storage.get_range(*wanted[0])]
            else:
                bodies = self._storage.get_ranges(wanted) if wanted else []
            for (pack, offset, _), data in zip(missing, bodies, strict=True):
                self._near[pack.digest] = (offset, data)

    def read(self, frames: Sequence[Frame]) -> list[bytes]:
        """Return the decompressed bytes of ``frames``, in order, fetched concurrently.

        Raises `FormatError` for a frame that lies outside its pack, does not decompress, or does not match the
        digest it should have; `StorageError` where the store fails.
        """
        return [check_frame(frame, data) for frame, data in zip(frames, self.fetch(frames), strict=True)]

    def fetch(self, frames: Sequence[Frame]) -> list[bytes]:
        """Return the bytes of ``frames`` as they are stored, in order, fetched concurrently, not looked at.

        Raises `FormatError` for a frame that lies outside its pack; `StorageError` where the store fails.
        """
        bodies: list[bytes] = [b""] * len(frames)
        ranges, missing = [], []
        for index, frame in enumerate(frames):
            offset, length = frame.at.offset, frame.at.length
            if offset + length > frame.pack.size:
                raise FormatError(f"a frame ends beyond the pack's {frame.pack.size} bytes", where=frame.where)
            if length > MAX_COMPRESSED:
                raise FormatError(f"{length} bytes are more than a frame may have", where=frame.where)
            near = self._near.get(frame.pack.digest)
            if near is not None and near[0] <= offset and offset + length <= near[0] + len(near[1]):
                bodies[index] = near[1][offset - near[0] : offset - near[0] + length]
            else:
                missing.append(index)
                ranges.append((pack_key_of(frame.pack.digest), offset, length))
        if len(ranges) == 1:
            bodies[missing[0]] = self._storage.get_range(*ranges[0])
        elif ranges:
            for index, body in zip(missing, self._storage.get_ranges(ranges), strict=True):
                bodies[index] = body
        return bodies


def check_frame(frame: Frame, data: bytes) -> bytes:
    """Decompress the stored bytes of a frame; raises `FormatError` unless they are what ``frame`` says."""
    raw = decompress(data, frame.raw, most=frame.most, where=frame.where)
    if frame.digest is not None and short_digest(raw) != frame.digest:
        raise FormatError("a frame does not match the digest in its table", where=frame.where)
    return raw
