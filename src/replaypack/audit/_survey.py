"""The manifests of an archive, all of them: what a collector keeps, and what refers to what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from replaypack._read.references import packs_of
from replaypack.errors import DAMAGED, FormatError, ObjectMissingError
from replaypack.format.manifest import parse_manifest
from replaypack.format.names import ManifestKey, manifest_parts
from replaypack.storage import ObjectInfo, Storage

from ._faults import Progress, Report

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["GRAIN", "Seen", "Survey", "Unreadable", "each", "survey"]


#: Requests that are under way at a time.
_WORKERS = 16
#: Stores tell times in seconds or parts of them: of two that are closer together nothing follows.
GRAIN = 2.0

_T = TypeVar("_T")
_R = TypeVar("_R")


class Seen(NamedTuple):
    """One manifest: where it lies, what it says of itself, and the digests of the packs that it needs."""

    key: str
    name: str
    kind: Literal["revision", "open", "latest"]
    #: Of the revision in its key; of the revision that it says it is, for ``latest.json``.
    number: int
    info: ObjectInfo
    cause: str
    writer: str
    #: Seconds since the epoch, by the clock of its writer.
    created: float
    content: str
    packs: frozenset[bytes]


class Unreadable(NamedTuple):
    """A manifest that cannot be read: its key, and why."""

    key: str
    message: str


class Survey(NamedTuple):
    """All manifests of one listing by their keys, and what could not be read.

    ``time`` is when the listing began, by the store's clock (seconds since the epoch); None where that is not known.
    """

    time: float | None
    seen: dict[str, Seen]
    unreadable: list[Unreadable]

    @property
    def references(self) -> set[bytes]:
        """The digests of the packs that any of them needs."""
        return set().union(*(item.packs for item in self.seen.values()))

    @property
    def contents(self) -> set[tuple[str, str]]:
        """Name and content digest of each."""
        return {(item.name, item.content) for item in self.seen.values()}


def survey(archive: Archive, before: Survey | None, time: float | None, report: Report | None = None) -> Survey:
    """List the manifests and read those that are not known from the survey ``before``.

    Raises `StorageError` where the store cannot be asked.
    """
    seen: dict[str, Seen] = {}
    wanted: list[tuple[ObjectInfo, ManifestKey]] = []
    for info in archive.storage.list("recordings/"):
        parts = manifest_parts(info.key)
        if parts is None:
            continue
        known = before.seen.get(info.key) if before is not None else None
        if known is not None and before is not None and _unchanged(known, info, before.time):
            seen[info.key] = known
        else:
            wanted.append((info, parts))
    # The same digest is the same object in memory, however many manifests name it.
    interned: dict[bytes, bytes] = {}
    for item in seen.values():
        interned.update((pack, pack) for pack in item.packs)
    unreadable = []

    def tell(done: int) -> None:
        if report is not None:
            report(Progress(archive.url, "manifests", done, len(wanted)))

    for found in each(lambda item: _read(archive.storage, *item, interned), wanted, tell):
        if isinstance(found, Unreadable):
            unreadable.append(found)
        elif found is not None:
            seen[found.key] = found
    return Survey(time, seen, unreadable)


def _unchanged(known: Seen, info: ObjectInfo, listed: float | None) -> bool:
    """Whether what was read of an object is what is there now."""
    if (info.size, info.modified) != (known.info.size, known.info.modified):
        return False
    if known.kind == "revision":
        return True  # created once
    # Whoever wrote it again since then would have given it a later time.
    return info.modified is not None and listed is not None and info.modified < listed - GRAIN


def _read(
    storage: Storage, info: ObjectInfo, parts: ManifestKey, interned: dict[bytes, bytes]
) -> Seen | Unreadable | None:
    try:
        manifest = parse_manifest(storage.get(info.key), where=info.key)
    except ObjectMissingError:
        return None  # deleted since it was listed
    except FormatError as error:
        return Unreadable(info.key, error.message)
    section = manifest.storage
    number = section.revision if parts.revision is None else parts.revision
    if number != section.revision:
        return Unreadable(info.key, f"{info.key}: it is the manifest of revision {section.revision}")
    try:
        digests = [bytes.fromhex(pack) for pack in packs_of(manifest, storage)]
    except DAMAGED as error:
        return Unreadable(info.key, f"{info.key}: its list of packs cannot be read: {error.message}")
    return Seen(
        info.key,
        parts.name,
        parts.kind,
        number,
        info,
        section.cause,
        section.writer,
        datetime.fromisoformat(section.created[:26].rstrip("Z")).replace(tzinfo=UTC).timestamp(),
        manifest.content_digest,
        frozenset(interned.setdefault(digest, digest) for digest in digests),
    )


def each(
    work: Callable[[_T], _R],
    items: Sequence[_T],
    tell: Callable[[int], None] = lambda done: None,
    *,
    few: int = _WORKERS,
) -> Iterator[_R]:
    """Yield what ``work`` makes of each item, in order, several at a time where they are more than ``few``.

    ``tell`` is told how many are done.
    """
    if len(items) <= few:
        for done, item in enumerate(items):
            yield work(item)
            tell(done + 1)
        return
    with ThreadPoolExecutor(_WORKERS) as pool:
        # A part at a time: an interruption waits for no more than that.
        for start in range(0, len(items), 4 * _WORKERS):
            part = items[start : start + 4 * _WORKERS]
            yield from pool.map(work, part)
            tell(start + len(part))
