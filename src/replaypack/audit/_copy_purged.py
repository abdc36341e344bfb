"""Records that were purged at the destination of a copy, under whatever name it has the recording there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from replaypack.errors import (
    AccessDeniedError,
    FormatError,
    ObjectMissingError,
    RecordingExistsError,
    StorageUnsupportedError,
)
from replaypack.format.manifest import Manifest
from replaypack.format.manifest import Storage as StorageSection
from replaypack.format.names import latest_key

from ._survey import each

if TYPE_CHECKING:
    from replaypack.archive import Archive

    from ._copy_plan import Plan

__all__ = ["purged_records", "refuse_purged"]

_ID = re.compile(rb'"id":"([0-9a-f]{32})"')


def purged_records(storage: StorageSection) -> frozenset[tuple[int, str]]:
    """The purged records: sequence number and leaf, which say which record it was."""
    return frozenset(record for tombstone in storage.tombstones for record in tombstone.records)


def refuse_purged(target: Archive, plans: Collection[Plan]) -> list[str]:
    """Refuse what would bring records back that were purged in ``target``.

    Looked for are the recordings that have the id of one that comes anew, whatever they are called: of each the newest
    revision. A record that one of them has still does not come back. Returns what could not be looked at, as notes.

    Raises `RecordingExistsError`, `StorageError`.
    """
    coming = [plan for plan in plans if plan.action == "copy" and plan.anew]
    if not coming:
        return []
    try:
        names = target.manifests.listing()
    except (StorageUnsupportedError, AccessDeniedError):
        return [f"{target.url} cannot be listed: whether records were purged there under other names is not known"]
    ids = {plan.id.hex().encode() for plan in coming}
    there: dict[bytes, list[tuple[str, Manifest]]] = {}
    notes = []
    for name, found in zip(names, each(lambda name: _newest(target, name, ids), names), strict=True):
        if isinstance(found, FormatError):
            notes.append(f"{target.url}#{name} cannot be read: what was purged of it is not known")
        elif found is not None:
            there.setdefault(bytes.fromhex(found.content.id), []).append((name, found))
    for plan in coming:
        for name, manifest in there.get(plan.id, ()):
            gone = purged_records(manifest.storage) - plan.purged
            others = (other for _, other in there[plan.id] if other is not manifest)
            if any(seq < plan.records and not _has(seq, others) for seq, _ in gone):
                raise RecordingExistsError(
                    f"records of {plan.name!r} were purged in {target.url}, where it is {name!r}",
                    hint="purge them in the source too; --if-exists replace brings them back",
                )
    return notes


def _newest(target: Archive, name: str, ids: set[bytes]) -> Manifest | FormatError | None:
    """The newest manifest of a recording, where it may have one of the ids."""
    try:
        found = _ID.findall(target.storage.get(latest_key(name)))
    except ObjectMissingError:
        found = []
    if found and ids.isdisjoint(found):
        return None
    try:
        return target.manifests.newest(name, fresh=not found)
    except FormatError as error:
        return error


def _has(seq: int, manifests: Iterable[Manifest]) -> bool:
    """Whether one of those recordings has a record of that number that was not purged."""
    return any(
        seq < manifest.content.records and all(seq != gone for gone, _ in purged_records(manifest.storage))
        for manifest in manifests
    )
