"""`purge`: what records say is removed from an archive, for good; that they were there stays, and can be proved.

Every pack that holds bytes of them is written anew without, for every recording that uses it, and each of these gets
a new revision. Only then the older revisions that name such packs go, and the packs at once. Interrupted anywhere,
every recording can be read, and the same call again finishes the work. After deleting it looks once more: whoever
wrote meanwhile may have brought some of it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from replaypack.errors import (
    AccessDeniedError,
    ConflictError,
    ObjectMissingError,
    ReadOnlyStorageError,
    StorageUnsupportedError,
    UsageError,
)
from replaypack.format.manifest_members import MAX_PURGED, MAX_REASON
from replaypack.format.names import check_name

from ._faults import Report
from ._inventory import Inventory
from ._journals import Journals
from ._payload import Payload
from ._purge_delete import delete_replaced, heal_hints
from ._purge_find import find_copies, find_payload
from ._purge_plan import Plan, Planner
from ._purge_rewrite import rewrite_without
from ._purge_target import Records, Target

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Purged", "purge"]

#: How often the archive is looked over; three times where nobody else writes.
_ROUNDS = 8


class Purged(NamedTuple):
    """What `purge` did, or, where ``applied`` is false, would do.

    ``records`` are those that were purged now; ``rewritten`` the recordings that got a new revision; ``revisions`` the
    older ones that went, as ``name@revision``; ``packs`` and ``bytes`` the packs that went. ``shared``: records that
    take bytes of them, which therefore stay; ``copies``: records that have a payload of theirs a second time, which is
    not touched. ``journals`` are local journals that went, ``temporary`` the files that writers which were killed left
    beside objects; ``left`` are files that may hold something of the records and stayed: journals that cannot be read,
    and temporary files of which it cannot be told whether a writer is at work on them. ``others`` says the same of the
    other recordings of which records were purged in the same run.
    """

    name: str
    revision: int
    records: list[int]
    content_digest: str
    applied: bool
    rewritten: list[str]
    revisions: list[str]
    packs: int
    bytes: int
    shared: Records
    copies: Records
    journals: list[str]
    temporary: list[str]
    left: list[str]
    others: list[Purged]


def purge(
    archive: Archive,
    name: str,
    records: Iterable[int],
    reason: str,
    *,
    also: Mapping[str, Iterable[int]] | None = None,
    keep_shared: bool = False,
    unchecked_bucket: bool = False,
    dry_run: bool = False,
    progress: Report | None = None,
) -> Purged:
    """Remove what ``records`` (sequence numbers) of a recording say from the whole archive; ``reason`` is noted.

    Of each record a tombstone stays: number, Merkle leaf, time and reason. The content digest does not change, and
    proofs and signatures hold. Requests of an agent run repeat what came before them: bytes that other records take
    stay only with ``keep_shared``; without it nothing is done, and a `SharedBytesError` lists those records. Records of
    other recordings that have such bytes can be purged in the same run: ``also`` has their sequence numbers by name.
    Older revisions, also of other recordings, that name a pack with bytes of the records are deleted. ``dry_run`` only
    says what would be done (with ``also`` of each recording what would be if it came first).

    A bucket that keeps what is deleted (versions, locks, soft delete) is refused, and one that does not say unless
    ``unchecked_bucket``. Nobody may be recording with ``base`` of the recording on another machine.

    Raises `UsageError`, `RecordingNotFoundError`, `RecordingExistsError` (somebody records, or died and left a
    journal), `ConflictError`, `FormatError` (what would have to be rewritten is damaged), `StorageError`.
    """
    if not isinstance(reason, str) or not 0 < len(reason.encode("utf-8", "replace")) <= MAX_REASON:
        raise UsageError(f"a purge needs a reason: text of at most {MAX_REASON} bytes, which stays in the archive")
    wanted = {name: records, **(also or {})}
    if name in (also or {}):
        raise UsageError(f"{name} is the recording itself: name all of its records at once")
    going = {check_name(name): _numbers(records) for name, records in wanted.items()}
    storage = archive.storage
    if storage.read_only:
        raise ReadOnlyStorageError("this storage can only be read", operation="delete", url=storage.url)
    _refuse_keeping(archive, unchecked_bucket)
    runs = []
    for one, numbers in going.items():
        others = {other: frozenset(seqs) for other, seqs in going.items() if other != one}
        target = Target(archive, one, numbers, others, keep_shared=keep_shared, dry_run=dry_run, report=progress)
        runs.append(_Run(target, reason))
    if len(runs) > 1:
        for run in runs:
            run.check()
    # One after another: what a record takes of those before it goes with that record.
    first, *more = [run.run() for run in runs]
    return first._replace(others=more)


def _numbers(records: Iterable[int]) -> list[int]:
    numbers = list(records)
    if not numbers or not all(type(seq) is int and seq >= 0 for seq in numbers):
        raise UsageError("a purge needs the sequence numbers of the records")
    return sorted(set(numbers))


def _refuse_keeping(archive: Archive, unchecked: bool) -> None:
    try:
        why = archive.storage.keeps_deleted()
    except (AccessDeniedError, StorageUnsupportedError) as error:
        if unchecked:
            return
        raise type(error)(
            f"it cannot be told whether {archive.url} keeps what is deleted: {error.message}",
            hint="look at its versions, locks and soft delete yourself, then add unchecked_bucket (--unchecked-bucket)",
        ) from None
    if why is not None:
        raise StorageUnsupportedError(
            f"{archive.url} cannot forget: {why}",
            hint="copy the archive to a bucket that deletes, purge there, and delete this one with all of its versions",
        )


class _Run:
    """The purge of records of one recording."""

    def __init__(self, target: Target, reason: str) -> None:
        self._target = target
        self._reason = reason
        self._planner = Planner(target)
        self._inventory: Inventory
        self._rewritten: dict[str, None] = {}
        self._shared: Records = {}
        self._payload: Payload | None = None
        self._copies: Records | None = None
        self._deleted = False
        #: Revisions and packs (with their bytes) that were deleted.
        self._revisions: list[str] = []
        self._packs: dict[str, int] = {}
        self._temporary: dict[str, None] = {}

    def check(self) -> None:
        """Raise what `run` would raise before it changes anything."""
        _, journals = self._begin()
        payload = find_payload(self._target, self._inventory, None)
        # With a planner of its own: what it looked into it has noted in this payload.
        journals.refuse(Planner(self._target).plan(self._inventory, payload, ()).bad)

    def _begin(self) -> tuple[list[int], Journals]:
        """The records that have no tombstone yet, and the journals of the recording."""
        target = self._target
        self._inventory = Inventory(target.storage)
        current = target.current(self._inventory)
        target.refuse_busy(self._inventory, current)
        if target.wanted[-1] >= current.records:
            raise UsageError(
                f"there is no record {target.wanted[-1]}: {target.name} has {current.records}, counted from 0"
            )
        new = [seq for seq in target.wanted if seq not in current.purged]
        if len(new) + len(current.purged) > MAX_PURGED:
            raise UsageError(f"of one recording at most {MAX_PURGED} records can be purged")
        return new, Journals(target.archive, target.name, current.id)

    def run(self) -> Purged:
        """Do all of it."""
        target = self._target
        new, journals = self._begin()
        plan: Plan | None = None
        for _ in range(_ROUNDS):
            try:
                plan = self._look(journals)
                if target.dry_run or (plan.is_done and (self._deleted or not self._rewritten)):
                    break
                self._work(plan, journals)
            except ObjectMissingError:
                # Another purge may be at work.
                if Inventory(target.storage, self._inventory).held == self._inventory.held:
                    raise
        else:
            raise self._unfinished(plan)
        assert plan is not None
        newest = target.current(self._inventory)  # what came behind it was recorded when all was done
        if target.dry_run:
            self._note(plan)
        else:
            heal_hints(target, self._inventory, self._rewritten)
        self._clear(journals)
        left = [path for path in self._leftovers(sure=False) if path not in self._temporary]
        return Purged(
            target.name,
            newest.revision,
            new,
            newest.content,
            not target.dry_run,
            list(self._rewritten) or [held.name for held in plan.rewrites],
            self._revisions,
            len(self._packs),
            sum(self._packs.values()),
            self._shared,
            self._copies or {},
            [str(path) for path in (*journals.removed, *journals.removable)],
            list(self._temporary),
            [str(path) for path in journals.unreadable] + left,
            [],
        )

    def _look(self, journals: Journals) -> Plan:
        """Look the archive over: what is left to do."""
        target = self._target
        id_ = target.current(self._inventory).id
        self._inventory = Inventory(target.storage, self._inventory)
        if target.current(self._inventory).id != id_:
            raise ConflictError(
                f"{target.name} was recorded anew meanwhile", hint="look whether it is still to be done"
            )
        self._payload = find_payload(target, self._inventory, self._payload)
        if self._copies is None:
            self._copies = find_copies(target, self._inventory, self._payload)
        plan = self._planner.plan(self._inventory, self._payload, self._packs)
        self._shared |= plan.shared
        journals.refuse(plan.bad)
        return plan

    def _work(self, plan: Plan, journals: Journals) -> None:
        """Write recordings anew, or, where that is done, delete."""
        payload = self._payload
        assert payload is not None
        for held in plan.rewrites:
            uses = plan.uses.get(held.name)
            rewrite_without(self._target, self._inventory, held, payload, uses, plan.bad, self._reason)
            self._rewritten[held.name] = None
        if not plan.rewrites:
            payload.keep_pieces()
            # Nothing in the archive tells of these: they go while something tells that the purge is not finished.
            self._clear(journals)
            if delete_replaced(self._target, plan, self._inventory, self._rewritten):
                self._note(plan)
                self._deleted = True

    def _note(self, plan: Plan) -> None:
        """Note what was, or would be, deleted."""
        self._revisions += [held.where for held in plan.manifests]
        self._packs.update((pack, self._inventory.packs[pack]) for pack in plan.packs)

    def _clear(self, journals: Journals) -> None:
        """Delete journals of the recording, and temporary files of writers that were killed."""
        if not self._target.dry_run:
            journals.remove()
        self._temporary.update(dict.fromkeys(self._leftovers(sure=True)))

    def _leftovers(self, *, sure: bool) -> list[str]:
        """Temporary files of writers that were killed, or may have been; those of which it is ``sure`` are deleted."""
        storage, delete = self._target.storage, sure and not self._target.dry_run
        return [f"{storage.url}/{info.key}" for info in storage.leftovers(delete=delete, sure=sure)]

    def _unfinished(self, plan: Plan | None) -> ConflictError:
        parts = []
        if plan is not None and plan.rewrites:
            parts.append(f"recordings to write anew: {', '.join(held.name for held in plan.rewrites)}")
        if plan is not None and plan.manifests:
            parts.append(f"revisions to delete: {', '.join(held.where for held in plan.manifests)}")
        if plan is not None and plan.packs:
            parts.append(f"packs to delete: {', '.join(plan.packs)}")
        return ConflictError(
            f"{self._target.archive.url} is being written all the time, and bytes of the records are there still "
            f"({'; '.join(parts)})",
            hint="run it again when nobody writes",
        )
