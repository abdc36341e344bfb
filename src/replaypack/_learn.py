"""A secret that is learned while recording: what is not published yet is written anew without it.

The journal has all of it. It is read back through the same code that recovers a dead recorder's, into memory, and
appended again; what is published already is only listed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ._read.cache import Cache
from ._read.index import Index
from ._read.packs import PackReader
from ._write.journal import Leftover, read_head
from .archive import Archive
from .errors import ReplaypackWarning
from .format.manifest import Manifest
from .format.manifest_members import PackRef
from .policies.redaction import VALUES_ONLY, Redactor
from .recording import Record, Recording
from .recover import published_of, rebuild
from .storage import MemoryStorage, Storage

__all__ = ["LearnedSecret", "ReadBack", "find_published", "warn_of"]


class LearnedSecret(NamedTuple):
    """What became of records that hold a secret learned later.

    ``rewritten``: records in the journal that were written anew (all that were not published). ``published``:
    sequence numbers of records of this recorder that others can read and that hold it. ``metadata``: whether the
    recording's metadata do. ``packs``: keys of objects that were uploaded, that no manifest names, and that could not
    be deleted.
    """

    rewritten: int
    published: list[int]
    metadata: bool
    packs: list[str]


class _Overlay(MemoryStorage):
    """A store that is read through; what is written stays in memory."""

    def __init__(self, under: Storage) -> None:
        super().__init__()
        self._under = under
        self.url = under.url

    def get(self, key: str) -> bytes:
        return super().get(key) if key in self._space.objects else self._under.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if key in self._space.objects:
            return super().get_range(key, start, length)
        return self._under.get_range(key, start, length)

    def get_suffix(self, key: str, length: int) -> bytes:
        return super().get_suffix(key, length) if key in self._space.objects else self._under.get_suffix(key, length)


class ReadBack:
    """What a recorder published, and the records that are in its journals alone.

    ``base`` is the manifest that continues to hold; None where nothing is published. Raises `FormatError`,
    `JournalError`, `StorageError`.
    """

    def __init__(self, storage: Storage, paths: list[Path]) -> None:
        paths = sorted(paths)
        leftover = Leftover(read_head(paths[0]), paths)
        archive = Archive(storage.url, storage=_Overlay(storage))
        self.base: Manifest | None = published_of(archive, leftover)
        self.packs: list[PackRef] = []
        if self.base is not None:
            self.packs = Index(self.base, PackReader(storage), Cache(0)).packs
        rebuilt, damage = rebuild(archive, leftover)
        if damage is not None:
            raise damage
        name, revision = rebuilt.commit(sibling=False)
        self._recording: Recording = archive.open(name, revision)

    def records(self) -> Iterator[Record]:
        """The records that are not published, in order."""
        return self._recording.records(first=self.base.content.records if self.base is not None else 0)


def find_published(
    storage: Storage, name: str, base: Manifest | None, first: int, secrets: Iterable[str | bytes]
) -> list[int]:
    """The sequence numbers from ``first`` on of published records that hold one of the secrets."""
    if base is None:
        return []
    redactor = Redactor(VALUES_ONLY, secrets)
    found = []
    for record in Recording(storage, name, base).records(first=first):
        row = record.row
        parts = [row.kind, row.name, row.scope, row.attributes, record.request, record.identity, record.response]
        if any(redactor.process(part)[1] for part in parts):
            found.append(record.seq)
    return found


def warn_of(name: str, learned: LearnedSecret) -> None:
    """Say loudly what can be read by others already."""
    said = []
    if learned.published:
        shown = ", ".join(map(str, learned.published[:20]))
        more = f" and {len(learned.published) - 20} more" if len(learned.published) > 20 else ""
        said.append(f"in records {shown}{more}")
    if learned.metadata:
        said.append("in the metadata")
    if learned.packs:
        said.append(f"in uploaded objects that nothing names ({', '.join(learned.packs)})")
    if said:
        warnings.warn(
            f"a secret that was learned later is published already, {', '.join(said)} of {name!r}: "
            "replace the secret itself",
            ReplaypackWarning,
            stacklevel=4,
        )
