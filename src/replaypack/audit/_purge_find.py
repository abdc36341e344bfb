"""Finding the records that are to be purged in every manifest that has them, and their payloads in other records."""

from __future__ import annotations

from replaypack.errors import ConflictError

from ._inventory import Inventory
from ._payload import Payload, same_blobs
from ._purge_target import Records, Target

__all__ = ["find_copies", "find_payload"]

#: Records that are listed of each recording.
_LISTED = 1000


def find_payload(target: Target, inventory: Inventory, before: Payload | None) -> Payload:
    """Where the records are, by every manifest that still has them; and where they were ``before``.

    Raises `FormatError`, `ConflictError`, `StorageError`.
    """
    current = target.current(inventory)
    tombstones = inventory.manifest(current).storage.tombstones
    leaves = {
        seq: bytes.fromhex(leaf) for tombstone in tombstones for seq, leaf in tombstone.records if seq in target.wanted
    }
    payload = Payload(bytes.fromhex(current.id), target.wanted, leaves)
    sources = [held for held in inventory.held if held.name == target.name and held.id == current.id]
    # The newest first: what it says of a record holds.
    sources.sort(key=lambda held: (held.key != current.key, -held.revision))
    seen = set()
    for held in sources:
        if not target.has_records(held):
            continue
        try:
            manifest = inventory.manifest(held)
        except ConflictError:
            if held.key == current.key:
                raise
            continue  # collected meanwhile
        places = manifest.storage
        same = repr((places.packs, places.pack_pages, places.segments))
        if same not in seen:
            seen.add(same)
            payload.add(target.open(inventory, held, manifest))
    if before is not None:
        payload.absorb(before)
    return payload


def find_copies(target: Target, inventory: Inventory, payload: Payload) -> Records:
    """Records that have a payload of theirs as well, by its digest.

    All rows of the archive are read, and not those alone of recordings that name a pack in common with this one: a
    payload that was recorded twice has bytes of its own, in packs that nothing else leads to.

    Raises `FormatError`, `ConflictError`, `StorageError`.
    """
    copies: Records = {}
    blobs = set(payload.blobs)
    newest = inventory.newest() if blobs else {}
    for number, (name, held) in enumerate(sorted(newest.items())):
        target.tell("recordings", number, len(newest))
        with target.open(inventory, held) as recording:
            own = name == target.name
            found = [
                record.seq
                for record in recording.records()
                if not (own and record.seq in payload.seqs) and same_blobs(record, blobs)
            ]
        if found:
            copies[name] = found[:_LISTED]
    return copies
