"""A store that does something else before one of its operations, or fails from one of them on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from replaypack.errors import StorageUnavailableError
from replaypack.storage import KeyRange, ObjectInfo, Storage

__all__ = ["Between"]


class Between(Storage):
    """Passes operations on to ``under``, counting them; before number ``at`` (from 0) it calls ``action``.

    Without an ``action`` that operation and all later ones fail, as for a process that has died. With ``changes`` only
    operations that change something are counted: wherever between two of them a process dies, the store is the same.
    """

    def __init__(
        self, under: Storage, at: int, action: Callable[[], object] | None = None, *, changes: bool = False
    ) -> None:
        self.under = under
        self.url = under.url
        self.count = 0
        self._number = at
        self._action = action
        self._changes = changes
        self._turn = threading.RLock()
        self._inside = False

    @property
    def reached(self) -> bool:
        """Whether there was an operation of that number."""
        return self.count > self._number

    def _step(self, *, change: bool = False) -> Storage:
        with self._turn:
            if not self._inside:
                counts = change or not self._changes
                number = self.count - (not counts)
                self.count += counts
                if self._action is None:
                    if number >= self._number:
                        raise StorageUnavailableError("the process died", url=self.url)
                elif number == self._number:
                    self._inside = True
                    try:
                        self._action()
                    finally:
                        self._inside = False
        return self.under

    def get(self, key: str) -> bytes:
        return self._step().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._step().get_range(key, start, length)

    def get_suffix(self, key: str, length: int) -> bytes:
        return self._step().get_suffix(key, length)

    def get_ranges(self, ranges: Sequence[KeyRange]) -> list[bytes]:
        return self._step().get_ranges(ranges)

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._step(change=True).put_new(key, data, cache_control=cache_control)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._step(change=True).put(key, data, cache_control=cache_control)

    def delete(self, key: str) -> None:
        self._step(change=True).delete(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._step().list(prefix)

    def keeps_deleted(self) -> str | None:
        return self.under.keeps_deleted()
