"""A storage that counts: requests, their sequential depth, bytes; over any other storage."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from replaypack.errors import ObjectMissingError
from replaypack.storage import KeyRange, ObjectInfo, Storage, plan_ranges

__all__ = ["Counting", "Seen"]


class Seen(NamedTuple):
    """What a reader asked for: ``depth`` counts rounds, requests sent together being one."""

    gets: int
    depth: int
    bytes: int
    missing: int
    lists: int


class Counting(Storage):
    """Passes everything on. Not local, whatever is behind it: a reader acts as on an object store."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.url = inner.url
        self._lock = threading.Lock()
        #: Bytes put, of packs and of everything else.
        self.packs = self.manifests = 0
        self.reset()

    def reset(self) -> None:
        """Forget what was read."""
        self._gets = self._depth = self._bytes = self._missing = self._lists = 0

    @property
    def seen(self) -> Seen:
        """What was read since the last `reset`."""
        return Seen(self._gets, self._depth, self._bytes, self._missing, self._lists)

    def _count(self, gets: int, size: int) -> None:
        with self._lock:
            self._gets += gets
            self._depth += 1
            self._bytes += size

    def get(self, key: str) -> bytes:
        try:
            data = self.inner.get(key)
        except ObjectMissingError:
            self._count(1, 0)
            self._missing += 1
            raise
        self._count(1, len(data))
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data = self.inner.get_range(key, start, length)
        self._count(1, len(data))
        return data

    def get_suffix(self, key: str, length: int) -> bytes:
        data = self.inner.get_suffix(key, length)
        self._count(1, len(data))
        return data

    def get_ranges(self, ranges: Sequence[KeyRange]) -> list[bytes]:
        data = self.inner.get_ranges(ranges)
        # As an object store's backend does: neighbours in one request, all requests at once.
        fetches = plan_ranges(ranges, max_gap=256 << 10, max_size=8 << 20)
        self._count(len(fetches), sum(map(len, data)))
        return data

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self.inner.put_new(key, data, cache_control=cache_control)
        self._put(key, len(data))

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self.inner.put(key, data, cache_control=cache_control)
        self._put(key, len(data))

    def _put(self, key: str, size: int) -> None:
        with self._lock:
            if key.startswith("packs/"):
                self.packs += size
            else:
                self.manifests += size

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._lists += 1
        return self.inner.list(prefix)
