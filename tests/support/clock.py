"""A store whose clock a test sets."""

from __future__ import annotations

from replaypack.storage import MemoryStorage

__all__ = ["DAY", "ClockStorage"]

DAY = 86_400.0


class ClockStorage(MemoryStorage):
    """Objects in memory, written at the time that ``now`` (seconds since the epoch) says."""

    def __init__(self, url: str | None = None) -> None:
        super().__init__(url)
        self.now = 2_000_000_000.0

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        new = key not in self._space.objects
        super().put_new(key, data, cache_control=cache_control)
        if new:
            self._space.objects[key] = (data, self.now)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        super().put(key, data, cache_control=cache_control)
        self._space.objects[key] = (data, self.now)

    def under(self, prefix: str = "") -> set[str]:
        return {key for key in self._space.objects if key.startswith(prefix)}
