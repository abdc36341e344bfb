"""Objects in this process: for tests, for sessions without an archive, and as the plainest reading of the protocol."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from typing import ClassVar

from replaypack.errors import ObjectMissingError, ObjectTooShortError
from replaypack.storage._protocol import ObjectInfo, Storage, check_key, check_prefix, check_range

__all__ = ["MemoryStorage"]


class _Space:
    """The objects under one ``memory://`` URL. They live as long as the process, whoever holds them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, float]] = {}


class MemoryStorage(Storage):
    """Instances of one URL share their objects, as two clients of a bucket do. Without a URL it is private.

    The objects are this library's own, not those of fsspec's ``memory`` filesystem.
    """

    _spaces: ClassVar[dict[str, _Space]] = {}
    _spaces_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, url: str | None = None) -> None:
        # Never the name of another one that is gone: journals lie on disk by what they were for.
        self.url = f"memory://{_name(url)}" if url is not None else f"memory://private-{secrets.token_hex(8)}"
        if url is None:
            self._space = _Space()
            return
        with self._spaces_lock:
            self._space = self._spaces.setdefault(_name(url), _Space())

    def get(self, key: str) -> bytes:
        check_key(key, operation="get", url=self.url)
        return self._read("get", key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_key(key, operation="get_range", url=self.url)
        check_range(start, length, url=self._at(key))
        if not length:
            return b""
        data = self._read("get_range", key)
        if start + length > len(data):
            raise ObjectTooShortError(
                f"the object ends at byte {len(data)}, before byte {start + length}",
                operation="get_range",
                url=self._at(key),
            )
        return data[start : start + length]

    def get_suffix(self, key: str, length: int) -> bytes:
        check_key(key, operation="get_suffix", url=self.url)
        check_range(0, length, url=self._at(key))
        data = self._read("get_suffix", key)
        return data[max(0, len(data) - length) :]

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._check_writable("put_new", key)
        with self._space.lock:
            there = self._space.objects.setdefault(key, (bytes(data), time.time()))
        if there[0] != data:
            self._accept_existing(key, data)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._check_writable("put", key)
        with self._space.lock:
            self._space.objects[key] = (bytes(data), time.time())

    def delete(self, key: str) -> None:
        self._check_writable("delete", key)
        with self._space.lock:
            self._space.objects.pop(key, None)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix, url=self.url)
        with self._space.lock:
            found = [ObjectInfo(k, len(d), t) for k, (d, t) in self._space.objects.items() if k.startswith(prefix)]
        return iter(found)

    def keeps_deleted(self) -> str | None:
        return None

    def _read(self, operation: str, key: str) -> bytes:
        with self._space.lock:
            found = self._space.objects.get(key)
        if found is None:
            raise ObjectMissingError("no such object", operation=operation, url=self._at(key))
        return found[0]


def _name(url: str) -> str:
    return url.removeprefix("memory://").strip("/")
