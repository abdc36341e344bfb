"""A cache bounded in bytes, safe to share between threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

__all__ = ["Cache"]


class Cache:
    """Keeps the most recently used values up to ``limit`` bytes in all (as their owners count them).

    What is in the cache ``beside`` it counts for the limit as well.
    """

    def __init__(self, limit: int, beside: Cache | None = None) -> None:
        self.limit = limit
        self._beside = beside
        self.size = 0
        self._items: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any:
        """Return the value of ``key``, or None."""
        found = self._items.get(key)
        if found is None:
            return None
        try:
            self._items.move_to_end(key)
        except KeyError:
            pass  # another thread evicted it in between
        return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep ``value``, which takes ``size`` bytes; others make room for it. The newest always stays."""
        with self._lock:
            old = self._items.pop(key, None)
            if old is not None:
                self.size -= old[1]
            self._items[key] = (value, size)
            self.size += size
        self.trim()

    def take(self, key: Hashable) -> Any:
        """Return the value of ``key`` and forget it; None where there is none."""
        with self._lock:
            found = self._items.pop(key, None)
            if found is None:
                return None
            self.size -= found[1]
        return found[0]

    def trim(self) -> None:
        """Forget what is over the limit, the oldest first."""
        with self._lock:
            limit = self.limit - (self._beside.size if self._beside is not None else 0)
            while self.size > limit and len(self._items) > 1:
                _, (_, freed) = self._items.popitem(last=False)
                self.size -= freed

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._items.clear()
            self.size = 0
