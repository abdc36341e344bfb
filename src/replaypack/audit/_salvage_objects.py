"""The objects of a damaged archive, whatever they are called, read and never written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from replaypack.errors import ObjectMissingError, ObjectTooShortError, StorageError
from replaypack.storage import Storage
from replaypack.storage._protocol import is_key

__all__ = ["Objects"]

#: Where a disk does not give the bytes of a range, those of its halves are asked for, down to this size.
_BLOCK = 64 << 10


class Objects:
    """What there is under a URL. On this machine also files that cannot be keys: one may have been renamed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._local: Path | None = storage.local_path
        #: Ranges (key, offset, length) that the disk did not give; they are read as zeros.
        self.unreadable: list[tuple[str, int, int]] = []
        self._sizes: dict[str, int] = {}
        #: Files whose names are no text, by what they are called here.
        self._unnamed: dict[str, Path] = {}

    def list(self) -> Iterator[tuple[str, int]]:
        """Yield keys and sizes (bytes), sorted. Journals are not part of the archive."""
        self._sizes = dict(self._list())
        yield from sorted(self._sizes.items())

    def _list(self) -> Iterator[tuple[str, int]]:
        if self._local is None:
            for info in self._storage.list(""):
                # Of other keys no store gives an object.
                if not info.key.startswith("journal/") and is_key(info.key):
                    yield info.key, info.size
            return
        if not self._local.is_dir():
            raise ObjectMissingError("there is no such directory", operation="list", url=self._storage.url)
        for directory, names, files in os.walk(self._local, followlinks=False):
            if Path(directory) == self._local and "journal" in names:
                names.remove("journal")
            for file in files:
                path = Path(directory, file)
                if path.is_file() and not path.is_symlink():
                    yield self._key(path), path.stat().st_size

    def _key(self, path: Path) -> str:
        assert self._local is not None
        name = path.relative_to(self._local).as_posix()
        key = name.encode(errors="backslashreplace").decode()
        if key != name:
            while key in self._unnamed or (self._local / key).exists():
                key += "~"
            self._unnamed[key] = path
        return key

    def read(self, key: str, offset: int, length: int) -> bytes:
        """Bytes of an object; zeros where the disk has none. Raises `StorageError` where a store cannot be asked."""
        try:
            return self._read(key, offset, length)
        except (ObjectMissingError, ObjectTooShortError):
            pass  # it was changed meanwhile: what is not there is damage like any other
        except StorageError:
            if self._local is None:
                raise
        if length > _BLOCK:
            half = length // 2 // _BLOCK * _BLOCK or length // 2
            return self.read(key, offset, half) + self.read(key, offset + half, length - half)
        self.unreadable.append((key, offset, length))
        return bytes(length)

    def whole(self, key: str, most: int = 1 << 20) -> bytes | None:
        """A small object; None where it is gone, or has more than ``most`` bytes."""
        size = self._sizes.get(key, most + 1)
        return self.read(key, 0, size) if size <= most else None

    def _read(self, key: str, offset: int, length: int) -> bytes:
        if self._local is None:
            return self._storage.get_range(key, offset, length)
        url = f"{self._local}/{key}"
        try:
            with open(self._unnamed.get(key, self._local / key), "rb") as file:
                file.seek(offset)
                data = file.read(length)
        except OSError as error:
            raise StorageError(error.strerror or "it cannot be read", operation="get_range", url=url) from None
        if len(data) != length:
            raise ObjectTooShortError("the object is shorter than it was", operation="get_range", url=url)
        return data
