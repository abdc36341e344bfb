"""Where a zip file lies: on this machine, or behind any other storage's URL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from replaypack.errors import ObjectMissingError
from replaypack.storage._local import LocalStorage
from replaypack.storage._remote import RemoteStorage

__all__ = ["LocalZip", "RemoteZip"]


class LocalZip:
    """A zip file on this machine."""

    def __init__(self, path: str | Path) -> None:
        whole = Path(path).absolute()
        self.url = str(whole)
        self._storage = LocalStorage(whole.parent, read_only=True)
        self._name = whole.name

    def suffix(self, length: int) -> bytes:
        try:
            return self._storage._read_suffix(self._name, length)
        except ObjectMissingError:
            directory = os.path.isdir(self.url)
            what = "it is a directory, not a zip file" if directory else "there is no such zip file"
            raise ObjectMissingError(what, operation="open", url=self.url) from None

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._storage._read_ranges([(self._name, start, length) for start, length in ranges])

    def close(self) -> None:
        self._storage.close()


class RemoteZip:
    """The object at the very URL of ``storage``, whose key is therefore empty."""

    def __init__(self, storage: RemoteStorage) -> None:
        self.url = storage.url
        self._storage = storage

    def suffix(self, length: int) -> bytes:
        try:
            return self._storage._get_suffix("", length)
        except ObjectMissingError as error:
            what = "there is no such zip file" + " (missing or not permitted)" * error.may_be_denied
            missing = ObjectMissingError(what, operation="open", url=self.url, hint=error.hint)
            missing.may_be_denied = error.may_be_denied
            raise missing from None

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._storage._get_ranges([("", start, length) for start, length in ranges])

    def close(self) -> None:
        self._storage.close()
