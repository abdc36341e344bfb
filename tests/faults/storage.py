"""A store on which one operation goes wrong, in every way that one can."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

from replaypack.errors import StorageError, StorageUnavailableError
from replaypack.storage import KeyRange, ObjectInfo, Storage

__all__ = ["DEAD", "KINDS", "FaultyStorage", "Kind", "Plan"]

Kind = Literal["fail", "down", "cut", "lost", "die", "end"]
#: ``fail``: nothing happens and an error is raised. ``down``: so it is from there on. ``cut``: a part is done, and an
#: error raised. ``lost``: all is done, and the reply lost. ``die``: it is the last thing before the process dies.
#: ``end``: so with operations that change something alone; wherever between two of them a process dies, what it leaves
#: in the store is the same.
KINDS: tuple[Kind, ...] = ("fail", "down", "cut", "lost", "die", "end")
CHANGES = {"put", "put_new", "delete"}
#: How a process says that it died of its fault.
DEAD = 77
_T = TypeVar("_T")


class Plan:
    """Which operation, counted from 0, goes wrong, and how. Shared by all the stores of one run."""

    def __init__(self, kind: Kind | None = None, at: int = -1) -> None:
        self.kind = kind
        self.at = at
        self.count = 0
        self.hit: str | None = None
        #: What is done in place of the fault, where a server does it.
        self.hook: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def next(self, operation: str, key: str) -> Kind | None:
        """The fault of this operation; None for none."""
        if self.kind == "end" and operation not in CHANGES:
            return None
        with self._lock:
            number = self.count
            self.count += 1
            if number == self.at:
                self.hit = f"{operation} {key}"
                if self.hook is not None:
                    self.hook()
                    return None
            return self.kind if number == self.at or (self.kind == "down" and number > self.at >= 0) else None

    @property
    def reached(self) -> bool:
        """Whether the run came to that operation."""
        return self.hit is not None


class FaultyStorage(Storage):
    """``inner``, with the fault of a plan. With a ``url`` it is a store of objects, of which no directory is known."""

    def __init__(self, inner: Storage, plan: Plan, url: str | None = None) -> None:
        self.inner = inner
        self.plan = plan
        self.url = url or inner.url
        self.local_path = inner.local_path if url is None else None
        self.read_only = inner.read_only

    def _do(self, operation: str, key: str, action: Callable[[], _T], part: Callable[[], object] | None = None) -> _T:
        kind = self.plan.next(operation, key)
        if kind is None:
            return action()
        if kind in ("die", "end", "lost"):
            with suppress(StorageError):
                action()
        if kind in ("die", "end"):
            os._exit(DEAD)
        if kind == "cut" and part is not None:
            part()
        raise StorageUnavailableError(f"made to {kind}", operation=operation, url=f"{self.url}/{key}")

    def get(self, key: str) -> bytes:
        return self._do("get", key, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._do("get_range", key, lambda: self.inner.get_range(key, start, length))

    def get_suffix(self, key: str, length: int) -> bytes:
        return self._do("get_suffix", key, lambda: self.inner.get_suffix(key, length))

    def get_ranges(self, ranges: Sequence[KeyRange]) -> list[bytes]:
        return self._do("get_ranges", ranges[0][0] if ranges else "", lambda: self.inner.get_ranges(ranges))

    def put_new(self, key: str, data: bytes, **options: Any) -> None:
        self._do("put_new", key, lambda: self.inner.put_new(key, data, **options), lambda: self._leave(key, data))

    def put(self, key: str, data: bytes, **options: Any) -> None:
        self._do("put", key, lambda: self.inner.put(key, data, **options), lambda: self._leave(key, data))

    def keeps_deleted(self) -> str | None:
        return self._do("keeps_deleted", "", self.inner.keeps_deleted)

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self.inner.delete(key))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(self._do("list", prefix, lambda: list(self.inner.list(prefix))))

    def _leave(self, key: str, data: bytes) -> None:
        """What a write that is cut short leaves: on a disk half of a temporary file, in a store of objects nothing."""
        if self.local_path is not None:
            path = self.local_path / key
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / f"~tmp-{self.plan.at:016x}").write_bytes(data[: len(data) // 2])
