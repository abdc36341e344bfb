"""``gc.json`` as one run of `gc` reads and writes it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from replaypack._write.revisions import NO_CACHE
from replaypack.errors import ConflictError, ObjectMissingError
from replaypack.format.marks import MARKS, Marks, encode_marks, parse_marks
from replaypack.storage import ObjectInfo, Storage

from ._survey import GRAIN

__all__ = ["MarksFile", "holds"]


def holds(info: ObjectInfo, moment: float | None) -> bool:
    """Whether an object that was marked at a moment was not written at that time, or since; None: it was not marked."""
    return moment is not None and (info.modified is None or info.modified + GRAIN <= moment)


class MarksFile:
    """The marks that are there. ``written`` is when (seconds since the epoch), by the store's clock if it tells."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        # Time first: where another run writes in between, marks seem older by nothing that matters, and it is
        # noticed before this one writes. What cannot be read marks nothing: every object is waited for anew.
        self.written = self._time()
        marks = self._get()
        self._marks = marks if marks.sound else Marks(tag=marks.tag)

    def since(self) -> dict[str, float]:
        """Since when each key is marked (seconds since the epoch)."""
        return self._marks.resolved(self.written)

    def write(self, since: dict[str, float], new: Iterable[str]) -> float:
        """Write marks, and those that are ``new`` by now; return when that was.

        Raises `ConflictError` where another collector is at work, `StorageError`.
        """
        self.refuse_another()
        if not self._timed:
            since, new = {**since, **dict.fromkeys(new, time.time())}, ()
        data = encode_marks(self._marks.run + 1, since, new)
        self._storage.put(MARKS, data, cache_control=NO_CACHE)
        self._marks = parse_marks(data)
        self.written = self._time()
        return self.written

    def refuse_another(self) -> None:
        """Raise `ConflictError` where the object is not the one that was read or written here last."""
        if self._get().tag != self._marks.tag:
            raise ConflictError(
                f"another gc is at work in {self._storage.url}, or was a moment ago",
                hint="run it again when it is done",
            )

    def _get(self) -> Marks:
        try:
            return parse_marks(self._storage.get(MARKS))
        except ObjectMissingError:
            return Marks()

    def _time(self) -> float:
        """When it was written, by the store's clock; by this machine's where the store does not say."""
        written = [info.modified for info in self._storage.list(MARKS) if info.key == MARKS]
        self._timed = written != [None]
        return time.time() if not written or written[0] is None else written[0]
