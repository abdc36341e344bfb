"""`purge`: what records say is removed from an archive, for good; that they were there stays, and can be proved.

Every pack that holds bytes of them is written anew without, for every recording that uses it, and each of these gets
a new revision. Only then the older revisions that name such packs go, and the packs at once. Interrupted anywhere,
every recording can be read, and the same call again finishes the work. After deleting it looks once more: whoever
wrote meanwhile may have brought some of it back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from replaypack._escape import counted
from replaypack._read.packs import PackReader
from replaypack._write.claim import refuse_claimed
from replaypack._write.intervals import Intervals
from replaypack._write.publish import Publisher, commit_behind, heal_latest, now_rfc3339, progress_of
from replaypack._write.reuse import renamed
from replaypack._write.rewrite import rewrite
from replaypack.errors import (
    AccessDeniedError,
    ConflictError,
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
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
#: How often the archive is looked over; three times where nobody else writes.
_ROUNDS = 8
#: Records that are listed of each recording.
_LISTED = 1000

#: Sequence numbers by the recording that they are of.
Records = dict[str, list[int]]


class Purged(NamedTuple):
    """What `purge` did, or, where ``applied`` is false, would do.

    ``records`` are those that were purged now; ``rewritten`` the recordings that got a new revision; ``revisions`` the
    older ones that went, as ``name@revision``; ``packs`` and ``bytes`` the packs that went. ``shared``: records that
    take bytes of them, which therefore stay; ``copies``: records that have a payload of theirs a second time, which is
    not touched. ``journals`` are local journals that went, ``temporary`` the files that writers which were killed left
    beside objects; ``left`` are files that may hold something of the records and stayed: journals that cannot be read,
    and temporary files of which it cannot be told whether a writer is at work on them.
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

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.rewrites or self.manifests or self.packs)


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
        self._inventory = Inventory(self._storage)
        #: Revisions and packs (with their bytes) that were deleted.
        self._revisions: list[str] = []
        self._packs: dict[str, int] = {}
        #: Packs that hold nothing of the records, by what is known of those: so many frames.
        self._clean: set[str] = set()
        self._frames = 0
        #: Packs that name no recording and were looked into.
        self._explored: set[str] = set()

    def run(self) -> Purged:
        """Do all of it."""
        target = self._current()
        self._refuse_busy(target)
        if self._wanted[-1] >= target.records:
            raise UsageError(
                f"there is no record {self._wanted[-1]}: {self._name} has {target.records}, counted from 0"
            )
        new = [seq for seq in self._wanted if seq not in target.purged]
        if len(new) + len(target.purged) > MAX_PURGED:
            raise UsageError(f"of one recording at most {MAX_PURGED} records can be purged")
        journals = Journals(self._archive, self._name, target.id)
        payload = copies = None
        deleted = False
        for _ in range(_ROUNDS):
            self._inventory = Inventory(self._storage)
            if self._current().id != target.id:
                raise ConflictError(
                    f"{self._name} was recorded anew meanwhile", hint="look whether it is still to be done"
                )
            payload = self._payload(payload)
            if copies is None:
                copies = self._copies(payload)
            plan = self._plan(payload)
            journals.refuse(plan.bad)
            if self._dry_run or (plan.is_done and (deleted or not self._rewritten)):
                break
            if plan.rewrites:
                for held in plan.rewrites:
                    self._rewrite(held, payload, plan.bad)
            else:
                payload.keep_pieces()
                deleted = self._delete(plan) or deleted
        else:
            raise self._unfinished(plan)
        newest = self._current()  # what came behind it was recorded when all was done
        if self._dry_run:
            self._note(plan)
        else:
            self._point()
            journals.remove()
        temporary = self._leftovers(sure=True)
        left = [path for path in self._leftovers(sure=False) if path not in temporary]
        return Purged(
            self._name,
            newest.revision,
            new,
            newest.content,
            not self._dry_run,
            list(self._rewritten) or [held.name for held in plan.rewrites],
            self._revisions,
            len(self._packs),
            sum(self._packs.values()),
            self._shared,
            copies,
            [str(path) for path in journals.removable],
            temporary,
            [str(path) for path in journals.unreadable] + left,
        )

    def _leftovers(self, *, sure: bool) -> list[str]:
        """Temporary files of writers that were killed, or may have been; those of which it is ``sure`` are deleted."""
        delete = sure and not self._dry_run
        return [f"{self._storage.url}/{info.key}" for info in self._storage.leftovers(delete=delete, sure=sure)]

    def _note(self, plan: _Plan) -> None:
        """Note what was, or would be, deleted."""
        self._revisions += [held.where for held in plan.manifests]
        self._packs.update((pack, self._inventory.packs[pack]) for pack in plan.packs)

    def _unfinished(self, plan: _Plan) -> ConflictError:
        parts = [f"recordings to write anew: {', '.join(held.name for held in plan.rewrites)}"] if plan.rewrites else []
        parts += [f"revisions to delete: {', '.join(held.where for held in plan.manifests)}"] if plan.manifests else []
        parts += [f"packs to delete: {', '.join(plan.packs)}"] if plan.packs else []
        return ConflictError(
            f"{self._archive.url} is being written all the time, and bytes of the records are there still "
            f"({'; '.join(parts)})",
            hint="run it again when nobody writes",
        )

    def _current(self) -> Held:
        newest = self._inventory.newest().get(self._name)
        if newest is None:
            raise self._archive.manifests.not_found(self._name)
        return newest

    def _refuse_busy(self, held: Held) -> None:
        manifest = self._archive.manifests.get(held.key) or self._inventory.manifest(held)
        if held.cause in ("claim", "checkpoint"):
            finish_leftover(self._archive, held.name, "error")
        refuse_claimed(self._storage, held.name, manifest)
        if manifest.content.state == "open":
            raise UsageError(
                f"{self._archive.url}#{held.name} is not finished",
                hint="purge when it is sealed, or finish it with `replaypack recover`",
            )

    def _open(self, held: Held, manifest: Manifest | None = None) -> Recording:
        manifest = manifest or self._inventory.manifest(held)
        return Recording(self._storage, held.name, manifest, cache_bytes=_CACHE)

    def _tell(self, stage: str, done: int, total: int, name: str = "") -> None:
        if self._report is not None:
            self._report(Progress(name or self._name, stage, done, total))

    # Where the bytes are

    def _payload(self, before: Payload | None) -> Payload:
        """Where the records are, by every manifest that still has them; and where they were ``before``."""
        target = self._current()
        tombstones = self._inventory.manifest(target).storage.tombstones
        leaves = {
            seq: bytes.fromhex(leaf)
            for tombstone in tombstones
            for seq, leaf in tombstone.records
            if seq in self._wanted
        }
        payload = Payload(bytes.fromhex(target.id), self._wanted, leaves)
        sources = [held for held in self._inventory.held if held.name == self._name and held.id == target.id]
        # The newest first: what it says of a record holds.
        sources.sort(key=lambda held: (held.key != target.key, -held.revision))
        seen = set()
        for held in sources:
            if not self._has_records(held):
                continue
            try:
                manifest = self._inventory.manifest(held)
            except ConflictError:
                if held.key == target.key:
                    raise
                continue  # collected meanwhile
            places = manifest.storage
            same = repr((places.packs, places.pack_pages, places.segments))
            if same not in seen:
                seen.add(same)
                payload.add(self._open(held, manifest))
        if before is not None:
            payload.absorb(before)
        return payload

    def _has_records(self, held: Held) -> bool:
        """Whether a manifest of the recording's id has some of the records, not purged."""
        return any(seq < held.records and seq not in held.purged for seq in self._wanted)

    def _copies(self, payload: Payload) -> Records:
        """Records that have a payload of theirs as well, by its digest."""
        copies: Records = {}
        blobs = set(payload.blobs)
        newest = self._inventory.newest() if blobs else {}
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

    def _plan(self, payload: Payload) -> _Plan:
        inventory = self._inventory
        newest = inventory.newest()
        target = newest[self._name]
        self._refuse_lost(newest.values())
        id_ = payload.id
        # Whoever records it, or a sibling of it, may have uploaded packs that nothing names yet.
        for held in newest.values():
            if held.id == target.id and held.claim is not None:
                self._refuse_busy(held)
        keys = self._keys_that_go(target, payload)
        # A manifest goes where it has the records, or names a pack that goes; the newest is written anew.
        referenced = set().union(*(held.packs for held in newest.values()))
        named = set().union(*(held.packs for held in inventory.held))
        explained = set().union(*(held.packs for held in inventory.held if held.name == self._name))
        own: set[str] = set()
        suspicious: dict[str, Toc] = {}
        common: dict[str, Toc] = {}
        if self._frames != len(payload.spans):
            self._clean.clear()
        wanted = [pack for pack in inventory.packs if pack not in self._clean]
        for number, (pack, toc) in enumerate(inventory.tocs(wanted)):
            self._tell("packs", number, len(wanted))
            origins = {n for n, origin in enumerate(toc.origins) if origin.recording == id_}
            unexplained = bool(payload) and pack not in explained
            if any(info.origin in origins for info in toc.frames):
                own.add(pack)
                if unexplained and pack in named:
                    with _collected(pack not in referenced):
                        payload.explore(self._reader, PackRef(pack, inventory.packs[pack]), toc)
            elif unexplained and pack not in self._explored and payload.may_be_in(toc):
                # Also one that nothing names: a compaction may have died before it named it.
                common[pack] = toc
            if pack in own or any(info.digest in payload.spans for info in toc.frames):
                suspicious[pack] = toc
            else:
                self._clean.add(pack)
        if common:
            takers = (self._open(held) for held in newest.values() if held.packs & common.keys())
            payload.explore_common(
                self._reader, {PackRef(p, inventory.packs[p]): toc for p, toc in common.items()}, takers
            )
            self._explored |= common.keys()
            for pack, toc in common.items():
                if any(info.digest in payload.spans for info in toc.frames):
                    suspicious[pack] = toc
                    self._clean.discard(pack)
        # What a recorder has uploaded and not named yet is of its records: who they are is known when it has.
        done = {held.writer for held in inventory.held if held.claim is None}
        at_work = [held for held in inventory.held if held.claim is not None and held.writer not in done]
        writers, names = {held.writer for held in at_work}, {held.name for held in at_work}
        for pack, toc in list(suspicious.items()):
            theirs = toc.origins and all(o.writer.hex() in writers or o.name in names for o in toc.origins)
            if theirs and pack not in named and pack not in own:
                del suspicious[pack]
        self._frames = len(payload.spans)
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
        bad: set[str] = set()
        for pack, toc in suspicious.items():
            ref, pages = PackRef(pack, inventory.packs[pack]), pack not in kept_pages
            with _collected(pack not in referenced):
                if self._is_bad(payload, ref, toc, taken, rows_kept, keys, pack in named, pages):
                    bad.add(pack)
        bad |= self._packs.keys()
        rewrites = [held for held in newest.values() if held.packs & bad]
        if self._has_records(target) and target not in rewrites:
            rewrites.append(target)
        rewrites.sort(key=lambda held: (held.name == self._name, held.name))
        for held in rewrites:
            self._refuse_busy(held)
            if held.kind == "latest":
                raise ConflictError(
                    f"{self._archive.url}#{held.name} is half deleted: only latest.json is left of its newest "
                    "revision, and names bytes that are to be purged",
                    hint=f"delete {held.name} (`replaypack rm`), and run it again",
                )
        kept = {held.key for held in newest.values()}
        for held in inventory.held:
            claim = newest.get(held.name)
            if (
                held.kind == "open"
                and held.packs & bad
                and claim is not None
                and claim.revision == held.revision
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
            and (held.packs & bad or (held.name == self._name and held.id == target.id and self._has_records(held)))
        ]
        if self._dry_run:
            going += [held for held in rewrites if held.kind == "revision"]
        gone = {held.key for held in going}
        # A hint repeats a revision, and is written anew, but where it is all that there is.
        stay = (held for held in inventory.held if held.key not in gone and (held.kind != "latest" or held.key in kept))
        still = set().union(*(held.packs for held in stay))
        if self._dry_run:
            still -= bad
        packs = sorted(pack for pack in inventory.packs if pack in (bad | own) and pack not in still)
        assert referenced <= still | bad
        return _Plan(rewrites, bad, shared, going, packs, own)

    def _refuse_lost(self, newest: Iterable[Held]) -> None:
        """Raise `ConflictError` where somebody committed a revision that names packs which were deleted here."""
        lost = [held.where for held in newest if held.packs & self._packs.keys()]
        if lost:
            raise ConflictError(
                f"another writer named packs that were being deleted: {', '.join(lost)} cannot be read",
                hint="open the revision before, and delete this one; then run it again",
            )

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
        old = self._inventory.manifest(held)
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
        publisher.ensure(everything=True)
        self._commit(held.name, manifest)
        publisher.look_again(everything=True)

    def _check(self, name: str, manifest: Manifest) -> None:
        """What it was made of is about to be deleted: be sure of it before."""
        with Recording(self._storage, name, manifest, cache_bytes=_CACHE) as recording:
            for fault in verify_recording(recording, progress=self._report):
                raise FormatError(
                    f"what would take the place of {name} is not sound ({fault}); it is as it was",
                    where=recording.locator,
                    hint="was it before? `replaypack verify` lists every fault of it",
                )

    def _commit(self, name: str, manifest: Manifest) -> None:
        try:
            commit_behind(self._storage, name, manifest)
        except ObjectExistsError:
            raise ConflictError(
                f"another writer committed revision {manifest.revision} of {name!r} first",
                hint="run it again",
            ) from None
        self._rewritten[name] = None

    # Deleting

    def _point(self) -> None:
        """Write hints again that were written while somebody else wrote a newer one."""
        hints = {held.name: held.digest for held in self._inventory.held if held.kind == "latest"}
        for name, held in self._inventory.newest().items():
            if name in self._rewritten and hints.get(name) != held.digest:
                manifest = self._archive.manifests.get(held.key)
                if manifest is not None:
                    heal_latest(self._storage, name, manifest)

    def _delete(self, plan: _Plan) -> bool:
        """Delete in an order in which a second run always finds what is left; whether it did.

        A manifest that has the records says what is to be deleted. One of them goes last, but for packs that say
        themselves that they are of the recording. Nothing is deleted where a new manifest names some of it.
        """
        inventory = Inventory(self._storage)
        packs = set(plan.packs)
        known = {(held.key, held.digest) for held in self._inventory.held}
        newest = inventory.newest()
        if any(held.packs & packs and (held.key, held.digest) not in known for held in inventory.held):
            return False
        hints = {held.name: held for held in inventory.held if held.kind == "latest"}
        for name, held in newest.items():
            hint = hints.get(name)
            # A failure here must be one: what it names is about to go.
            if name in self._rewritten or (hint is not None and hint.packs & packs):
                self._storage.put(latest_key(name), inventory.manifest(held).raw, cache_control="no-cache")
        own = [held for held in plan.manifests if held.name == self._name and self._has_records(held)]
        last = max(own, key=lambda held: held.revision, default=None)
        total = len(plan.manifests) + len(plan.packs)
        keys = [held.key for held in plan.manifests if held is not last]
        keys += [pack_key_of(pack) for pack in plan.packs if pack not in plan.own]
        keys += [last.key] if last is not None else []
        keys += [pack_key_of(pack) for pack in plan.packs if pack in plan.own]
        for number, key in enumerate(keys):
            self._tell("deleting", number, total)
            self._storage.delete(key)
        self._note(plan)
        return True


@contextmanager
def _collected(may_be: bool) -> Iterator[None]:
    """Pass over a pack that is gone where nobody needs it any more: a collector was faster."""
    try:
        yield
    except ObjectMissingError:
        if not may_be:
            raise


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
