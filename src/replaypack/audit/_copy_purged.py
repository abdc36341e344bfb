"""Records that were purged at the destination of a copy, under whatever name it has the recording there."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from replaypack.errors import (
    AccessDeniedError,
    FormatError,
    ObjectMissingError,
    RecordingExistsError,
    StorageUnsupportedError,
)
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import Storage as StorageSection
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


def refuse_purged(source: Archive, target: Archive, plans: Collection[Plan]) -> list[str]:
    """Refuse what would bring records back that were purged in ``target``.

    Looked for are the recordings that have the id of one that comes anew, whatever they are called: of each the newest
    revision. A record that one of them has still does not come back; and where a recording was purged in ``source``,
    which kept another one with the record, that may follow it. Returns what could not be looked at, as notes.

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
            still = [_Kept(other) for _, other in there[plan.id] if other is not manifest]
            gone = {
                record
                for record in purged_records(manifest.storage) - plan.purged
                if record[0] < plan.records and not any(record[0] in kept for kept in still)
            }
            if gone and not gone <= _came_along(source, name, manifest):
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


def _came_along(source: Archive, name: str, there: Manifest) -> set[tuple[int, str]]:
    """The purged records of a copy that the source purged, and the destination did not."""
    try:
        origin = source.manifests.newest(name, fresh=True)
    except FormatError:
        return set()
    if origin is None:
        return set()
    same = {(item.time, item.reason): set(item.records) for item in origin.storage.tombstones}
    return {
        record
        for item in there.storage.tombstones
        for record in same.get((item.time, item.reason), set()) & set(item.records)
    }


class _Kept:
    """The numbers of the records that a recording has and that were not purged."""

    def __init__(self, manifest: Manifest) -> None:
        self._records = manifest.content.records
        self._purged = {seq for seq, _ in purged_records(manifest.storage)}

    def __contains__(self, seq: int) -> bool:
        return seq < self._records and seq not in self._purged
