"""Giving a recording a revision that names no pack with bytes of the records that are purged."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from replaypack._write.publish import Publisher, progress_of
from replaypack._write.reuse import renamed
from replaypack._write.revisions import commit_behind
from replaypack._write.rewrite import rewrite
from replaypack._write.stamps import now_rfc3339
from replaypack.errors import ConflictError, FormatError, ObjectExistsError
from replaypack.format.digests import digest
from replaypack.format.manifest import Manifest, encode_manifest
from replaypack.format.manifest_members import Tombstone

from ._inventory import Held, Inventory
from ._payload import Payload, Uses
from ._purge_target import Target
from ._remains import Remains
from .verify import verify_recording

__all__ = ["rewrite_without"]


def rewrite_without(
    target: Target,
    inventory: Inventory,
    held: Held,
    payload: Payload,
    uses: Uses | None,
    bad: Collection[str],
    reason: str,
) -> None:
    """Commit the revision behind ``held``, read back before. ``uses`` is what it has to do with the payload, if known.

    Raises `ConflictError` where another writer was faster, `FormatError`, `StorageError`.
    """
    old = inventory.manifest(held)
    own = held.name == target.name
    now = now_rfc3339()
    tombstones = list(old.storage.tombstones)
    gone = {seq for tombstone in tombstones for seq, _ in tombstone.records}
    with target.open(inventory, held, old) as source:
        new = [seq for seq in target.wanted if own and seq not in gone]
        if new:
            leaves = [(seq, payload.leaves[seq].hex()) for seq in new]
            tombstones.append(Tombstone(time=now, reason=reason, records=leaves))
        seed = b"purge" + bytes.fromhex(old.digest) + msgspec.msgpack.encode(target.wanted)
        revision = old.revision + 1
        publisher = Publisher(
            target.storage,
            held.name,
            # The same again in a second run: it makes the same packs.
            writer=digest(seed)[:8],
            packs_by=renamed(digest(seed)[:8], target.storage),
            mode="replace",
            template=old.content,
            base=None,
            revision=old.revision,
            previous=old.digest,
        )
        writer = Remains(source, set(new), gone | set(new), uses or payload.uses(source, own=own), bad)
        total = len(source.index.packs)
        live = rewrite(
            source,
            origin=publisher.origin,
            upload=publisher.upload,
            compressor=publisher.compressor,
            literal=writer.literal,
            record=writer.record,
            edit=writer.edit if own else None,
            progress=lambda _: target.tell("rewriting", 0, total, held.name),
        )
        publisher.lives = [live] if live is not None else []
        if not tombstones:  # runs of records are digests without salts: what is short could be guessed from them
            publisher.keep_summary(target.storage, old)
        made = publisher.manifest(
            revision=revision,
            cause="purge",
            state=old.content.state,
            progress=progress_of(old),
            error=old.content.error,
            previous=old.digest,
        ).storage
    section = msgspec.structs.replace(
        old.storage,
        revision=revision,
        checkpoint=0,
        cause="purge",
        claim=None,
        writer=made.writer,
        created=now,
        previous=old.digest,
        packs=made.packs,
        pack_pages=made.pack_pages,
        segments=made.segments,
        tombstones=tombstones,
        summary=made.summary,
    )
    manifest = encode_manifest(old.content, section)
    _check(target, inventory, held, manifest)
    publisher.ensure(everything=True)
    try:
        commit_behind(target.storage, held.name, manifest)
    except ObjectExistsError:
        raise ConflictError(
            f"another writer committed revision {manifest.revision} of {held.name!r} first", hint="run it again"
        ) from None
    publisher.look_again(everything=True)


def _check(target: Target, inventory: Inventory, held: Held, manifest: Manifest) -> None:
    """What it was made of is about to be deleted: be sure of it before."""
    with target.open(inventory, held, manifest) as recording:
        for fault in verify_recording(recording, progress=target.report):
            raise FormatError(
                f"what would take the place of {held.name} is not sound ({fault}); it is as it was",
                where=recording.locator,
                hint="was it before? `replaypack verify` lists every fault of it",
            )
