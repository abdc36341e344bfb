"""Deleting what a purge replaced: older revisions, and packs, in an order that a second run can go on from."""

from __future__ import annotations

from collections.abc import Collection

from replaypack._write.revisions import NO_CACHE, heal_latest
from replaypack.format.names import latest_key, pack_key_of

from ._inventory import Inventory
from ._purge_plan import Plan
from ._purge_target import Target

__all__ = ["delete_replaced", "heal_hints"]


def delete_replaced(target: Target, plan: Plan, planned: Inventory, rewritten: Collection[str]) -> bool:
    """Delete what ``plan`` says, made when the archive was as ``planned``; whether it did.

    A manifest that has the records says what is to be deleted. One of them goes last, but for packs that say
    themselves that they are of the recording; of these those last that have rows of the records, by which `verify`
    tells that something is left. Nothing is deleted where a new manifest names some of it. ``rewritten``
    are the recordings that got a new revision.

    Raises `StorageError`; `FormatError` where a manifest came that cannot be read.
    """
    inventory = Inventory(target.storage, planned)
    packs = set(plan.packs)
    known = {(held.key, held.digest) for held in planned.held}
    newest = inventory.newest()
    if any(held.packs & packs and (held.key, held.digest) not in known for held in inventory.held):
        return False
    hints = {held.name: held for held in inventory.held if held.kind == "latest"}
    for name, held in newest.items():
        hint = hints.get(name)
        # A failure here must be one: what it names is about to go.
        if name in rewritten or (hint is not None and hint.packs & packs):
            target.storage.put(latest_key(name), inventory.manifest(held).raw, cache_control=NO_CACHE)
    own = [held for held in plan.manifests if held.name == target.name and target.has_records(held)]
    last = max(own, key=lambda held: held.revision, default=None)
    total = len(plan.manifests) + len(plan.packs)
    keys = [held.key for held in plan.manifests if held is not last]
    keys += [pack_key_of(pack) for pack in plan.packs if pack not in plan.own]
    keys += [last.key] if last is not None else []
    keys += [pack_key_of(pack) for pack in plan.packs if pack in plan.own and pack not in plan.rows]
    keys += [pack_key_of(pack) for pack in plan.packs if pack in plan.own and pack in plan.rows]
    for number, key in enumerate(keys):
        target.tell("deleting", number, total)
        target.storage.delete(key)
    return True


def heal_hints(target: Target, inventory: Inventory, rewritten: Collection[str]) -> None:
    """Write those hints again that were written while somebody else wrote a newer one."""
    hints = {held.name: held.digest for held in inventory.held if held.kind == "latest"}
    for name, held in inventory.newest().items():
        if name in rewritten and hints.get(name) != held.digest:
            manifest = target.archive.manifests.get(held.key)
            if manifest is not None:
                heal_latest(target.storage, name, manifest)
