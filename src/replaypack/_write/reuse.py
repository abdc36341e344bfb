"""Packs that a manifest is going to name although its writer did not upload them just now (spec chapter 08,
"Deleting"): what a collector might take away meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from replaypack.errors import ObjectMissingError, ObjectTooShortError
from replaypack.format.digests import digest
from replaypack.format.manifest_members import PackRef
from replaypack.format.marks import MARKS, Marks, parse_marks
from replaypack.format.names import pack_key_of
from replaypack.format.pack import TRAILER_SIZE
from replaypack.storage import Storage

__all__ = ["Reused", "read_marks", "renamed"]

#: Bytes of reused packs that are held to upload them again.
_HELD = 32 << 20


def read_marks(storage: Storage) -> Marks:
    """What the collector noted last: a pack that is marked may go at any moment."""
    try:
        return parse_marks(storage.get(MARKS))
    except ObjectMissingError:
        return Marks()


def renamed(writer: bytes, storage: Storage) -> bytes:
    """A writer id for packs that an interrupted run may have left here: another one after each run of a collector.

    The same packs made once more would have names that are marked.
    """
    tag = read_marks(storage).tag
    return digest(b"after" + writer + tag)[:8] if tag else writer


class Reused:
    """Makes sure that reused packs are there, before a manifest names them and after."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._packs: dict[str, tuple[PackRef, bytes | None]] = {}
        self._held = 0

    def add(self, ref: PackRef, data: bytes | None = None) -> None:
        """Note a pack that is reused; with its bytes it can be uploaded again."""
        if data is not None and self._held + len(data) > _HELD:
            data = None
        known = self._packs.get(ref.digest)
        if known is None or known[1] is None:
            self._packs[ref.digest] = (ref, data)
            self._held += len(data or b"")

    def ensure(self, others: Iterable[PackRef] = ()) -> None:
        """Check that all are there, and ``others``; upload again what is not. Two rounds at most, of a few bytes each.

        Raises `ObjectMissingError` where one is gone whose bytes are not held.
        """
        wanted = [(ref, None) for ref in others] + list(self._packs.values())
        ends = [
            (pack_key_of(ref.digest), max(0, ref.size - TRAILER_SIZE), min(ref.size, TRAILER_SIZE)) for ref, _ in wanted
        ]
        try:
            if ends:
                self._storage.get_ranges(ends)
            return
        except (ObjectMissingError, ObjectTooShortError):
            pass  # which of them it is
        for (_, data), end in zip(wanted, ends, strict=True):
            try:
                self._storage.get_range(*end)
            except (ObjectMissingError, ObjectTooShortError) as error:
                if data is None:
                    raise ObjectMissingError(
                        "this pack was about to be named by a manifest, and is gone: it was collected, or deleted",
                        operation="get_range",
                        url=error.url,
                        hint="was gc run with too short a grace period, or a record purged meanwhile? Run it again",
                    ) from None
                self._storage.put_new(end[0], data)

    def clear(self) -> None:
        """Forget them: a manifest names them now."""
        self._packs.clear()
        self._held = 0
