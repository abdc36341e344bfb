"""`purge`: what records say is removed from an archive, for good; that they were there stays, and can be proved.

Every pack that holds bytes of them is written anew without, for every recording that uses it, and each of these gets
a new revision. Only then the older revisions that name such packs go, and the packs at once. Interrupted anywhere,
every recording can be read, and the same call again finishes the work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from replaypack._escape import counted
from replaypack._read.packs import PackReader
from replaypack._write.claim import refuse_claimed
from replaypack._write.intervals import Intervals
from replaypack._write.publish import Publisher, commit_behind, now_rfc3339, progress_of
from replaypack._write.reuse import renamed
from replaypack._write.rewrite import rewrite
from replaypack.errors import (
    AccessDeniedError,
    ConflictError,
    FormatError,
    ObjectExistsError,
    ReadOnlyStorageError,
    StorageUnsupportedError,
    UsageError,
)
from replaypack.format.digests import digest
from replaypack.format.manifest import MAX_PURGED, MAX_REASON, Manifest, PackRef, Tombstone, encode_manifest
from replaypack.format.names import check_name, latest_key, pack_key_of
from replaypack.format.pack import FrameKind, Toc
from replaypack.recording import Recording
from replaypack.recover import finish_leftover

from ._faults import Progress, Report
from ._inventory import Held, Inventory
from ._journals import Journals
from ._payload import Payload, Uses, is_zero, read_frame, same_blobs
from ._remains import Remains
from .verify import verify_recording

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Purged", "purge"]

_CACHE = 16 << 20
#: How often the archive is looked over again because somebody wrote to it meanwhile.
_ROUNDS = 4
#: Records that are listed of each recording.
_LISTED = 1000

#: Sequence numbers by the recording that they are of.
Records = dict[str, list[int]]


class Purged(NamedTuple):
    """What `purge` did, or, where ``applied`` is false, would do.

    ``records`` are those that were purged now; ``rewritten`` the recordings that got a new revision; ``revisions`` the
    older ones that went, as ``name@revision``; ``packs`` and ``bytes`` the packs that went. ``shared``: records that
    take bytes of them, which therefore stay; ``copies``: records that have a payload of theirs a second time, which is
    not touched. ``journals`` are local journals that went.
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


def purge(
    archive: Archive,
    name: str,
    records: Iterable[int],
    reason: str,
    *,
    keep_shared: bool = False,
    unchecked_bucket: bool = False,
    dry_run: bool = False,
    progress: Report | None = None,
) -> Purged:
    """Remove what ``records`` (sequence numbers) of a recording say from the whole archive; ``reason`` is noted.

    Of each record a tombstone stays: number, Merkle leaf, time and reason. The content digest does not change, and
    proofs and signatures hold. Requests of an agent run repeat what came before them: bytes that other records take
    stay only with ``keep_shared``; without it nothing is done, and the error lists those records. Older revisions, also
    of other recordings, that name a pack with bytes of the records are deleted. ``dry_run`` only says what would be
    done.

    A bucket that keeps what is deleted (versions, locks, soft delete) is refused, and one that does not say unless
    ``unchecked_bucket``. Nobody may be recording with ``base`` of the recording on another machine.

    Raises `UsageError`, `RecordingNotFoundError`, `RecordingExistsError` (somebody records, or died and left a
    journal), `ConflictError`, `FormatError` (what would have to be rewritten is damaged), `StorageError`.
    """
    check_name(name)
    if not isinstance(reason, str) or not 0 < len(reason.encode("utf-8", "replace")) <= MAX_REASON:
        raise UsageError(f"a purge needs a reason: text of at most {MAX_REASON} bytes, which stays in the archive")
    wanted = sorted(set(records))
    if not wanted or not all(type(seq) is int and seq >= 0 for seq in wanted):
        raise UsageError("a purge needs the sequence numbers of the records")
    storage = archive.storage
    if storage.read_only:
        raise ReadOnlyStorageError("this storage can only be read", operation="delete", url=storage.url)
    _refuse_keeping(archive, unchecked_bucket)
    return _Purge(archive, name, wanted, reason, keep_shared, dry_run, progress).run()


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


class _Plan(NamedTuple):
    """What is to be done: recordings to rewrite, packs that hold bytes of the records, manifests to delete."""

    rewrites: list[Held]
    bad: set[str]
    shared: Records
    manifests: list[Held]
    packs: list[str]
    #: Packs that hold frames of the recording, by their own table of contents.
    own: set[str]


class _Purge:
    def __init__(
        self,
        archive: Archive,
        name: str,
        wanted: list[int],
        reason: str,
        keep_shared: bool,
        dry_run: bool,
        progress: Report | None,
    ) -> None:
        self._archive = archive
        self._storage = archive.storage
        self._name = name
        self._wanted = wanted
        self._reason = reason
        self._keep_shared = keep_shared
        self._dry_run = dry_run
        self._report = progress
        self._reader = PackReader(self._storage)
        self._rewritten: dict[str, None] = {}
        self._shared: Records = {}

    def run(self) -> Purged:
        """Do all of it."""
        target = self._target()
        content = target.manifest.content
        done = {seq for tombstone in target.manifest.storage.tombstones for seq, _ in tombstone.records}
        if self._wanted[-1] >= content.records:
            raise UsageError(
                f"there is no record {self._wanted[-1]}: {self._name} has {content.records}, counted from 0"
            )
        new = [seq for seq in self._wanted if seq not in done]
        if len(new) + len(done) > MAX_PURGED:
            raise UsageError(f"of one recording at most {MAX_PURGED} records can be purged")
        journals = Journals(self._archive, self._name, content.id)
        payload = copies = None
        for _ in range(_ROUNDS):
            inventory = Inventory(self._storage)
            payload = self._payload(inventory)
            if copies is None:
                copies = self._copies(inventory, payload)
            plan = self._plan(inventory, payload)
            journals.refuse(plan.bad)
            if self._dry_run or not plan.rewrites:
                break
            for held in plan.rewrites:
                self._rewrite(held, payload, plan.bad)
        else:
            raise ConflictError(
                f"{self._archive.url} is being written all the time", hint="run it again when it is not"
            )
        if not self._dry_run:
            self._delete(plan)
            journals.remove()
        newest = self._archive.manifests.newest(self._name, fresh=True)
        assert newest is not None
        assert newest.content_digest == target.manifest.content_digest
        assert copies is not None
        return Purged(
            self._name,
            newest.revision,
            new,
            newest.content_digest,
            not self._dry_run,
            list(self._rewritten) or [held.name for held in plan.rewrites],
            [held.where for held in plan.manifests if held.kind != "latest"],
            len(plan.packs),
            sum(inventory.packs[pack] for pack in plan.packs),
            self._shared,
            copies,
            [str(path) for path in journals.removable],
        )

    def _target(self) -> Held:
        newest = Inventory(self._storage).newest().get(self._name)
        if newest is None:
            raise self._archive.manifests.not_found(self._name)
        self._refuse_busy(newest)
        return newest

    def _refuse_busy(self, held: Held) -> None:
        if held.manifest.storage.cause in ("claim", "checkpoint"):
            finish_leftover(self._archive, held.name, "error")
        refuse_claimed(self._storage, held.name, held.manifest)
        if held.manifest.content.state == "open":
            raise UsageError(
                f"{self._archive.url}#{held.name} is not finished",
                hint="purge when it is sealed, or finish it with `replaypack recover`",
            )

    def _open(self, held: Held) -> Recording:
        return Recording(self._storage, held.name, held.manifest, cache_bytes=_CACHE)

    def _tell(self, stage: str, done: int, total: int, name: str = "") -> None:
        if self._report is not None:
            self._report(Progress(name or self._name, stage, done, total))

    # Where the bytes are

    def _payload(self, inventory: Inventory) -> Payload:
        """Where the records are, by every manifest that still has them."""
        target = inventory.newest()[self._name]
        id_ = target.manifest.content.id
        leaves = {
            seq: bytes.fromhex(leaf)
            for tombstone in target.manifest.storage.tombstones
            for seq, leaf in tombstone.records
            if seq in self._wanted
        }
        payload = Payload(bytes.fromhex(id_), self._wanted, leaves)
        sources = [held for held in inventory.held if held.name == self._name and _same(held, target)]
        # The newest first: what it says of a record holds.
        sources.sort(key=lambda held: (held.key != target.key, -held.manifest.revision))
        seen = set()
        for held in sources:
            places = held.manifest.storage
            same = repr((places.packs, places.pack_pages, places.segments))
            if same not in seen and self._has_records(held):
                seen.add(same)
                payload.add(self._open(held))
        return payload

    def _has_records(self, held: Held) -> bool:
        """Whether a manifest of the recording's id has some of the records, not purged."""
        gone = {seq for tombstone in held.manifest.storage.tombstones for seq, _ in tombstone.records}
        return any(seq < held.manifest.content.records and seq not in gone for seq in self._wanted)

    def _copies(self, inventory: Inventory, payload: Payload) -> Records:
        """Records that have a payload of theirs as well, by its digest."""
        copies: Records = {}
        blobs = set(payload.blobs)
        newest = inventory.newest() if blobs else {}
        for number, (name, held) in enumerate(sorted(newest.items())):
            self._tell("recordings", number, len(newest))
            with self._open(held) as recording:
                own = name == self._name
                found = [
                    record.seq
                    for record in recording.records()
                    if not (own and record.seq in payload.seqs) and same_blobs(record, blobs)
                ]
            if found:
                copies[name] = found[:_LISTED]
        return copies

    def _plan(self, inventory: Inventory, payload: Payload) -> _Plan:
        newest = inventory.newest()
        target = newest[self._name]
        id_ = payload.id
        # Whoever records it, or a sibling of it, may have uploaded packs that nothing names yet.
        for held in newest.values():
            if _same(held, target) and held.manifest.storage.claim is not None:
                self._refuse_busy(held)
        keys = self._keys_that_go(target, payload)
        # A manifest goes where it has the records, or names a pack that goes; the newest is written anew.
        referenced = set().union(*(held.packs for held in newest.values()))
        named = set().union(*(held.packs for held in inventory.held))
        explained = set().union(*(held.packs for held in inventory.held if held.name == self._name))
        own: set[str] = set()
        suspicious: dict[str, Toc] = {}
        for number, (pack, toc) in enumerate(inventory.tocs(inventory.packs)):
            self._tell("packs", number, len(inventory.packs))
            origins = {n for n, origin in enumerate(toc.origins) if origin.recording == id_}
            if any(info.origin in origins for info in toc.frames):
                own.add(pack)
                if pack in named and pack not in explained and payload:
                    payload.explore(self._reader, PackRef(pack, inventory.packs[pack]), toc)
            if pack in own or any(info.digest in payload.spans for info in toc.frames):
                suspicious[pack] = toc
        uses: dict[str, Uses] = {}
        taken: dict[bytes, list[tuple[int, int]]] = {}
        rows_kept: set[bytes] = set()
        shared: Records = {}
        # Packs of recordings that have the very same records, and keep them: their pages say so.
        kept_pages: set[str] = set()
        for name, held in newest.items():
            if not payload or not held.packs & suspicious.keys():
                continue
            with self._open(held) as recording:
                is_own = name == self._name
                uses[name] = found = payload.uses(recording, own=is_own)
                for frame, start, end in payload.taken(recording, found):
                    taken.setdefault(frame, []).append((start, end))
                same = set() if is_own else payload.own_rows(recording)
                rows_kept |= same
                if same:
                    kept_pages |= held.packs
                if len(found.taken) or same:
                    shared[name] = payload.sharers(recording, found, own=is_own)
        if shared and not self._keep_shared:
            raise _shared_error(self._name, shared)
        self._shared |= shared
        self._uses = uses
        bad = {
            pack
            for pack, toc in suspicious.items()
            if self._is_bad(
                payload,
                PackRef(pack, inventory.packs[pack]),
                toc,
                taken,
                rows_kept,
                keys,
                pack in named,
                pack not in kept_pages,
            )
        }
        rewrites = [held for held in newest.values() if held.packs & bad]
        if self._has_records(target) and target not in rewrites:
            rewrites.append(target)
        rewrites.sort(key=lambda held: (held.name == self._name, held.name))
        for held in rewrites:
            self._refuse_busy(held)
        kept = {held.key for held in newest.values()}
        for held in inventory.held:
            claim = newest.get(held.name)
            if (
                held.kind == "open"
                and held.packs & bad
                and claim is not None
                and claim.manifest.revision == held.manifest.revision
                and claim.key != held.key
            ):
                self._refuse_busy(claim)
                raise UsageError(
                    f"{self._archive.url}#{held.name} was being recorded anew, with bytes that are to be purged",
                    hint="finish it with `replaypack recover`, or delete it",
                )
        going = [
            held
            for held in inventory.held
            if held.key not in kept
            and held.kind != "latest"
            and (held.packs & bad or (held.name == self._name and _same(held, target) and self._has_records(held)))
        ]
        if self._dry_run:
            going += [held for held in rewrites if held.kind == "revision"]
        gone = {held.key for held in going}
        still = set().union(*(held.packs for held in inventory.held if held.key not in gone and held.kind != "latest"))
        if self._dry_run:
            still -= bad
        packs = sorted(pack for pack in inventory.packs if pack in bad - still or pack in own - still)
        assert referenced <= still | bad
        return _Plan(rewrites, bad, shared, going, packs, own)

    def _keys_that_go(self, target: Held, payload: Payload) -> set[bytes]:
        """Keys (16 bytes) of the records that no record has which stays."""
        going = set()
        with self._open(target) as recording:
            index = recording.index
            for key in payload.keys:
                entries = (entry.seq for _, entry, _ in index.entries(key))
                if all(seq in payload.seqs or seq in index.purged for seq in entries):
                    going.add(key)
        return going

    def _is_bad(
        self,
        payload: Payload,
        pack: PackRef,
        toc: Toc,
        taken: dict[bytes, list[tuple[int, int]]],
        rows_kept: Collection[bytes],
        keys: Collection[bytes],
        named: bool,
        pages: bool,
    ) -> bool:
        """Whether a pack holds something of the records that nobody takes; with ``pages``, its pages too."""
        if not payload:
            return False
        for info in toc.frames:
            of_it = pages and info.origin is not None and toc.origins[info.origin].recording == payload.id
            if of_it and info.digest in payload.pages:
                return True
            if info.digest in payload.row_frames and info.digest not in rows_kept:
                return True
            spans = payload.spans.get(info.digest)
            if spans is not None:
                gone = Uses(spans, Intervals(taken.get(info.digest, ()))).gone(0, info.raw)
                # A payload may be zeros itself: then the frame is, and stays, what it is written anew as.
                if gone and not is_zero(read_frame(self._reader, pack, info), gone):
                    return True
            if of_it and named and info.kind == FrameKind.PAGE and payload.in_page(self._reader, pack, info, keys):
                return True
        return False

    # Writing anew

    def _rewrite(self, held: Held, payload: Payload, bad: Collection[str]) -> None:
        """Give a recording a revision that names no pack with bytes of the records."""
        old = held.manifest
        own = held.name == self._name
        now = now_rfc3339()
        tombstones = list(old.storage.tombstones)
        gone = {seq for tombstone in tombstones for seq, _ in tombstone.records}
        with self._open(held) as source:
            new = [seq for seq in self._wanted if own and seq not in gone]
            if new:
                leaves = [(seq, payload.leaves[seq].hex()) for seq in new]
                tombstones.append(Tombstone(time=now, reason=self._reason, records=leaves))
            seed = b"purge" + bytes.fromhex(old.digest) + msgspec.msgpack.encode(self._wanted)
            revision = old.revision + 1
            publisher = Publisher(
                self._storage,
                held.name,
                # The same again in a second run: it makes the same packs.
                writer=digest(seed)[:8],
                packs_by=renamed(digest(seed)[:8], self._storage),
                mode="replace",
                template=old.content,
                base=None,
                revision=old.revision,
                previous=old.digest,
            )
            uses = self._uses.get(held.name) or payload.uses(source, own=own)
            writer = Remains(source, set(new), gone | set(new), uses, bad)
            total = len(source.index.packs)
            live = rewrite(
                source,
                origin=publisher.origin,
                upload=publisher.upload,
                compressor=publisher.compressor,
                literal=writer.literal,
                record=writer.record,
                edit=writer.edit if own else None,
                progress=lambda _: self._tell("rewriting", 0, total, held.name),
            )
            publisher.lives = [live] if live is not None else []
            if not tombstones:  # runs of records are digests without salts: what is short could be guessed from them
                publisher.keep_summary(self._storage, old)
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
        self._check(held.name, manifest)
        publisher.ensure()
        self._commit(held.name, manifest)
        publisher.named()

    def _check(self, name: str, manifest: Manifest) -> None:
        """What it was made of is about to be deleted: be sure of it before."""
        with Recording(self._storage, name, manifest, cache_bytes=_CACHE) as recording:
            for fault in verify_recording(recording, progress=self._report):
                raise FormatError(
                    f"what would take the place of {name} is not sound ({fault}); nothing was deleted",
                    where=recording.locator,
                    hint="was it before? `replaypack verify` lists every fault of it",
                )

    def _commit(self, name: str, manifest: Manifest) -> None:
        try:
            commit_behind(self._storage, name, manifest)
        except ObjectExistsError:
            raise ConflictError(
                f"another writer committed revision {manifest.revision} of {name!r} first; nothing was deleted",
                hint="run it again",
            ) from None
        self._rewritten[name] = None

    # Deleting

    def _delete(self, plan: _Plan) -> None:
        """Delete in an order in which a second run always finds what is left.

        A manifest that has the records says what is to be deleted. One of them goes last, but for packs that say
        themselves that they are of the recording.
        """
        inventory = Inventory(self._storage)
        for name, held in inventory.newest().items():
            for item in inventory.held:
                # A failure here must be one: what it names is about to go.
                if item.name == name and item.kind == "latest" and item.packs & set(plan.packs):
                    self._storage.put(latest_key(name), held.manifest.raw, cache_control="no-cache")
            if name in self._rewritten:
                self._storage.put(latest_key(name), held.manifest.raw, cache_control="no-cache")
        own = [held for held in plan.manifests if held.name == self._name and self._has_records(held)]
        last = max(own, key=lambda held: held.manifest.revision, default=None)
        total = len(plan.manifests) + len(plan.packs)
        keys = [held.key for held in plan.manifests if held is not last]
        keys += [pack_key_of(pack) for pack in plan.packs if pack not in plan.own]
        keys += [last.key] if last is not None else []
        keys += [pack_key_of(pack) for pack in plan.packs if pack in plan.own]
        for number, key in enumerate(keys):
            self._tell("deleting", number, total)
            self._storage.delete(key)


def _same(held: Held, target: Held) -> bool:
    return held.manifest.content.id == target.manifest.content.id


def _shared_error(name: str, shared: Records) -> UsageError:
    parts = []
    for other, numbers in sorted(shared.items()):
        shown = ", ".join(map(str, numbers[:12])) + (f" and {len(numbers) - 12} more" if len(numbers) > 12 else "")
        parts.append(f"{shown} of {other}" if other != name else shown)
    total = sum(map(len, shared.values()))
    verb = "takes" if total == 1 else "take"
    return UsageError(
        f"{counted(total, 'other record')} {verb} bytes of what is to be purged: {'; '.join(parts)}",
        hint="name them too, or let those bytes stay with keep_shared (--keep-shared)",
    )
