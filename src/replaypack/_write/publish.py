"""Publishing: packs first, then the manifest that names them (spec chapter 08).

One `Publisher` belongs to one claimed revision. It is used by one thread at a time.
"""

from __future__ import annotations

import base64
import math
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from replaypack._read.packs import PackReader
from replaypack._read.summary import summary_of
from replaypack.errors import (
    ConflictError,
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
    ReplaypackWarning,
    StorageError,
)
from replaypack.format.digests import short_digest
from replaypack.format.frame import Compressor
from replaypack.format.manifest import Manifest, encode_manifest, parse_manifest
from replaypack.format.manifest_members import (
    INLINE_LIMIT,
    PACKS_PER_PAGE,
    Cause,
    Content,
    PackRef,
    PageRef,
    Segment,
    State,
    TableRef,
    Tombstone,
)
from replaypack.format.manifest_members import Storage as StorageSection
from replaypack.format.manifest_pages import encode_pack_page
from replaypack.format.merkle import MerkleTree
from replaypack.format.names import latest_key, open_key, pack_key_of, revision_key, sibling_name
from replaypack.format.pack import TRAILER_SIZE, FrameKind, Origin, PackBuilder
from replaypack.format.summary import MAX_SUMMARY, Summary
from replaypack.format.table import TABLES, Location
from replaypack.storage import Storage

from .literals import CUT
from .merge import Live, finish, merge_data, merge_tables
from .reuse import Reused, read_marks
from .revisions import NO_CACHE, create_revision, is_pointed_at, point_behind, write_latest
from .segment import SegmentBuilder, pack_ref
from .stamps import now_rfc3339

__all__ = [
    "UPLOADED_LONG_AGO",
    "ClaimMode",
    "Progress",
    "Publisher",
    "progress_of",
]

ClaimMode = Literal["create", "append", "replace"]

#: Segments that may be live at a time while recording: a lookup reads a page of each.
MAX_LIVE = 16
#: Of those, segments whose packs are not rewritten any more.
MAX_LARGE = 4
#: Records from which on a recording has a summary: fewer are compared by reading them.
SUMMARISED = 2000
#: Packs from this size (bytes) on are not rewritten while recording.
KEEP = 1 << 20
#: A pack that was uploaded this long ago (seconds) and stands in no manifest is looked for before it does.
UPLOADED_LONG_AGO = 3600
#: Inline pack references take about 80 bytes of the manifest each.
_MAX_INLINE_PACKS = 512


class Progress(NamedTuple):
    """How far a recording is: the Merkle tree of its records, their counts by kind, and the sizes (bytes) of the
    two halves of its literal address space.

    ``summary`` is of the records behind those that are continued; None where it is not known.
    """

    tree: MerkleTree
    counts: dict[str, int]
    literals: int
    inlines: int
    summary: Summary | None = None

    def copy(self) -> Progress:
        """The same, independent of what is appended later; without the summary, which a checkpoint has not."""
        return Progress(MerkleTree(self.tree.count, self.tree.edge), dict(self.counts), self.literals, self.inlines)


def progress_of(manifest: Manifest | None) -> Progress:
    """How far the recording of ``manifest`` is; the beginning where there is none."""
    if manifest is None:
        return Progress(MerkleTree(), {}, 0, 0)
    storage = manifest.storage
    return Progress(manifest.merkle, dict(manifest.content.counts), storage.literals, storage.inlines)


class Publisher:
    """Uploads what a recorder made, keeps the list of live segments, and writes manifests."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        *,
        writer: bytes,
        mode: ClaimMode,
        template: Content,
        base: Manifest | None,
        base_packs: Sequence[PackRef] = (),
        revision: int,
        previous: str | None,
        level: int = 6,
        packs_by: bytes | None = None,
    ) -> None:
        """``packs_by`` is the writer id that packs are marked with, where it is not ``writer``."""
        self.storage = storage
        self.name = name
        self.writer = writer
        self.mode: ClaimMode = mode
        self.template = template
        self.base = base
        #: The claimed revision, and the digest of the newest revision before the next one.
        self.revision = revision
        self.previous = previous
        self.compressor = Compressor(level)
        self.origin = Origin(bytes.fromhex(template.id), packs_by or writer, name)
        self.checkpoint = 0
        self.published = base.content.records if base is not None else 0
        self._kept_summary = b""
        self.tombstones: list[Tombstone] = base.storage.tombstones if base is not None else []
        self._lost = False
        self.lives: list[Live] = _base_lives(base, base_packs) if base is not None else []
        self.uploaded = 0
        #: Packs that were uploaded and stand in no manifest yet: their size, when that was (seconds since the epoch),
        #: and whether they name no recording.
        self.loose: dict[str, tuple[int, float, bool]] = {}
        #: Packs that were there already, or that others may have found since.
        self.reused = Reused(storage)
        #: Whether the bytes of large literals are held, to upload them again where they are gone.
        self.holds = True

    def rewind(self, manifest: Manifest | None, packs: Sequence[PackRef]) -> list[str]:
        """Forget what was uploaded and is not in ``manifest``, and delete it; return the keys of what stays.

        Packs of large literals stay: other recordings may share them.
        """
        self.lives = _base_lives(manifest, packs) if manifest is not None else []
        self.published = manifest.content.records if manifest is not None else 0
        staying = []
        for digest, (_, _, shared) in self.loose.items():
            key = pack_key_of(digest)
            try:
                if shared:
                    staying.append(key)
                else:
                    self.storage.delete(key)
            except StorageError:
                staying.append(key)
        self.loose.clear()
        return staying

    # Packs

    def upload(self, ref: PackRef, data: bytes) -> None:
        """Put a pack in the store under its digest."""
        self._put(ref, data, shared=False)

    def _put(self, ref: PackRef, data: bytes, *, shared: bool) -> None:
        self.loose[ref.digest] = (ref.size, time.time(), shared)
        self.storage.put_new(pack_key_of(ref.digest), data)
        self.uploaded += len(data)

    def upload_large(self, data: bytes) -> list[tuple[int, int, bytes, PackRef, Location]]:
        """Put one large literal in a pack of its own that names no recording.

        The same bytes give the same pack in every recording, so it may be there already. Returns for each frame
        (offset in the literal, raw bytes, digest, pack, location).
        """
        cut = CUT
        while True:
            ref, pack, frames = self._large_pack(data, cut)
            if not self._has(ref, pack):
                try:
                    self._put(ref, pack, shared=True)
                except ObjectExistsError:  # what is there is damaged
                    del self.loose[ref.digest]
                else:
                    # Others may name it by now, and a purge of theirs delete it.
                    self.reused.add(ref, pack if self.holds else None)
                    break
            # What is there without a reference may be deleted at any moment once it is marked. What is not marked,
            # and is there still, no collector takes for longer than this lasts.
            elif not read_marks(self.storage).has(pack_key_of(ref.digest)) and self._has(ref, pack):
                self.reused.add(ref, pack if self.holds else None)
                break
            cut = min(cut, len(data)) - 3  # other frames make another pack, which nobody has marked
        return [(start, raw, short, ref, at) for start, raw, short, at in frames]

    def _large_pack(self, data: bytes, cut: int) -> tuple[PackRef, bytes, list[tuple[int, int, bytes, Location]]]:
        builder = PackBuilder(None, self.compressor.noted)
        frames = []
        for start in range(0, len(data), cut):
            raw = data[start : start + cut]
            short = short_digest(raw)
            at = builder.add(
                FrameKind.LITERAL, self.compressor(raw), raw=len(raw), first=start, count=len(raw), digest=short
            )
            frames.append((start, len(raw), short, at))
        pack = builder.finish()
        return pack_ref(pack), pack, frames

    def _has(self, ref: PackRef, pack: bytes) -> bool:
        try:
            return self.storage.get_suffix(pack_key_of(ref.digest), TRAILER_SIZE) == pack[-TRAILER_SIZE:]
        except ObjectMissingError:
            return False

    def ensure(self, *, everything: bool = False) -> None:
        """Before a manifest names them: check that packs are there that were reused, or uploaded long ago.

        With ``everything`` all that were uploaded: where no claim says that somebody is at work, a purge may delete
        them. Raises `ObjectMissingError`.
        """
        old = math.inf if everything else time.time() - UPLOADED_LONG_AGO
        self.reused.ensure(PackRef(name, size) for name, (size, when, _) in self.loose.items() if when < old)

    def named(self, *, everything: bool = False) -> None:
        """After a manifest named them: `look_again`, and forget them. Raises `ObjectMissingError`."""
        self.look_again(everything=everything)
        self.reused.clear()
        self.loose.clear()

    def look_again(self, *, everything: bool = False) -> None:
        """Look again for packs that were reused, and upload again what is gone; with ``everything`` as in `ensure`.

        Raises `ObjectMissingError` where that cannot be done.
        """
        uploaded = [PackRef(name, size) for name, (size, _, _) in self.loose.items()] if everything else []
        try:
            self.reused.ensure(uploaded)
        except ObjectMissingError:
            raise
        except StorageError:
            pass  # they were there a moment ago, and what names them is written

    # Segments

    def spill(self, builder: SegmentBuilder) -> None:
        """Upload what a segment holds in memory; it goes on."""
        builder.spill(self.origin, self.upload, self.upload_large, self.compressor)

    def add_segment(self, builder: SegmentBuilder) -> None:
        """Finish a segment and make it live."""
        self.lives.append(finish(builder, self.origin, self.upload, self.upload_large, self.compressor, tier=0))

    def merge_live(self) -> None:
        """Keep the number of live segments in bounds.

        Small packs are rewritten with their equals in age, newest first, so that a byte moves two or three times
        however many flushes there are. Large ones stay; only their tables are merged, by the same rule.
        """
        while len(self.lives) > MAX_LIVE:
            small = 0
            while small < len(self.lives) and self.lives[-1 - small].mergeable(KEEP):
                small += 1
            large = len(self.lives) - small
            if large > MAX_LARGE:
                self._merge_tables(*_youngest([live.tables for live in self.lives[:large]]))
            else:
                start, stop = _youngest([live.tier for live in self.lives[large:]])
                self._merge_data(large + start, large + stop)

    def _merge_data(self, start: int, stop: int) -> None:
        merged = merge_data(self.storage, self.lives[start:stop], self.origin, self.upload, self.compressor)
        self.lives[start:stop] = [merged]

    def _merge_tables(self, start: int, stop: int) -> None:
        merged = merge_tables(self.storage, self.lives[start:stop], self.origin, self.upload, self.compressor)
        self.lives[start:stop] = [merged]

    def merge_all(self) -> None:
        """Make one segment of all: small packs joined, then one set of tables."""
        index = 0
        while index < len(self.lives):
            stop = index
            size = 0
            while stop < len(self.lives) and self.lives[stop].mergeable(KEEP) and size < 8 * KEEP:
                size += self.lives[stop].size
                stop += 1
            if stop - index > 1:
                self._merge_data(index, stop)
            index += 1
        if len(self.lives) > 1:
            self._merge_tables(0, len(self.lives))

    # Manifests

    def manifest(
        self,
        *,
        revision: int,
        cause: Cause,
        state: State,
        progress: Progress,
        error: dict[str, Any] | None = None,
        claim: ClaimMode | None = None,
        previous: str | None = None,
    ) -> Manifest:
        """Put the manifest of the live segments together."""
        tree = progress.tree
        content = msgspec.structs.replace(
            self.template,
            state=state,
            records=tree.count,
            counts=dict(sorted(progress.counts.items())),
            merkle_root=tree.root.hex(),
            error=error,
        )
        summary = self._summary(progress) if state != "open" else None
        packs: list[PackRef] = []
        indexes: dict[str, int] = {}
        segments: list[Segment] = []
        for live in self.lives:
            mapping = []
            for pack in live.packs:
                if pack.digest not in indexes:
                    indexes[pack.digest] = len(packs)
                    packs.append(pack)
                mapping.append(indexes[pack.digest])
            same = mapping == list(range(len(mapping))) and summary is None
            segments.append(msgspec.structs.replace(live.segment, packs=None if same else mapping))
        if summary is not None:
            packs.append(summary[1])
        pack_pages: list[PageRef] = []
        if len(packs) > _MAX_INLINE_PACKS:
            chunks = [packs[i : i + PACKS_PER_PAGE] for i in range(0, len(packs), PACKS_PER_PAGE)]
            pack_pages = self.pages([encode_pack_page(chunk) for chunk in chunks])
            packs = []
        segments = self._bounded(segments, len(packs) * 80)
        storage = StorageSection(
            revision=revision,
            checkpoint=self.checkpoint,
            cause=cause,
            claim=claim,
            writer=self.writer.hex(),
            created=now_rfc3339(),
            previous=previous,
            packs=packs,
            pack_pages=pack_pages,
            segments=segments,
            literals=progress.literals,
            inlines=progress.inlines,
            merkle_edge=[node.hex() for node in tree.edge],
            tombstones=self.tombstones,
            withheld=[],
            source=None,
            summary=summary[0] if summary is not None else None,
        )
        return encode_manifest(content, storage)

    def keep_summary(self, storage: Storage, manifest: Manifest) -> None:
        """Keep the summary of a recording that is written anew with the same content, where it has one."""
        if manifest.storage.summary is not None:
            with suppress(FormatError, ObjectMissingError):
                self._kept_summary = summary_of(manifest, PackReader(storage), read=0)

    def _summary(self, progress: Progress) -> tuple[PageRef, PackRef] | None:
        """Write the summary of a finished recording that is large enough to have one."""
        own = progress.summary
        if self.tombstones:
            return None
        if self._kept_summary:
            pack, [page] = self._put_pages([self._kept_summary])
            return page, pack
        if own is None or progress.tree.count < SUMMARISED:
            return None
        before = b""
        if self.base is not None and own.records < progress.tree.count:
            try:
                before = summary_of(self.base, PackReader(self.storage), read=SUMMARISED)
            except (FormatError, ObjectMissingError):
                return None  # what cannot be read is no reason not to seal
        raw = before + own.encode()
        if len(raw) > MAX_SUMMARY or (not before and own.records < progress.tree.count):
            return None
        pack, [page] = self._put_pages([raw])
        return page, pack

    def pages(self, raws: Sequence[bytes]) -> list[PageRef]:
        """Put pages that the manifest refers to directly in a pack of their own."""
        return self._put_pages(raws)[1]

    def _put_pages(self, raws: Sequence[bytes]) -> tuple[PackRef, list[PageRef]]:
        """Put pages that the manifest refers to directly in a pack of their own."""
        builder = PackBuilder(self.origin, self.compressor.noted)
        placed = []
        for raw in raws:
            short = short_digest(raw)
            at = builder.add(FrameKind.PAGE, self.compressor(raw), raw=len(raw), first=0, count=0, digest=short)
            placed.append((at, len(raw), short))
        pack = builder.finish()
        ref = pack_ref(pack)
        self.upload(ref, pack)
        return ref, [
            PageRef(pack=ref.digest, offset=at.offset, length=at.length, raw=raw, digest=short.hex())
            for at, raw, short in placed
        ]

    def _bounded(self, segments: list[Segment], used: int) -> list[Segment]:
        """Move roots to pages, the largest first, until what is inline keeps to its limit."""
        sizes = [
            (len(table.root or ""), number, shape.name, table)
            for number, segment in enumerate(segments)
            for shape in TABLES
            for table in [segment.table(shape)]
        ]
        total = used + sum(size for size, *_ in sizes)
        moved: list[tuple[int, str, TableRef]] = []
        for size, number, name, table in sorted(sizes, key=lambda item: item[0], reverse=True):
            if total <= INLINE_LIMIT:
                break
            moved.append((number, name, table))
            total -= size
        if not moved:
            return segments
        pages = self.pages([base64.b64decode(table.root or "") for _, _, table in moved])
        result = list(segments)
        for (number, name, table), page in zip(moved, pages, strict=True):
            ref = TableRef(count=table.count, root=None, page=page)
            result[number] = msgspec.structs.replace(result[number], **{name: ref})
        return result

    def publish_checkpoint(self, progress: Progress) -> Manifest:
        """Write what there is so far to ``.open.json``, and to ``latest.json`` where readers may see it."""
        self.checkpoint += 1
        manifest = self.manifest(
            revision=self.revision,
            cause="checkpoint",
            state="open",
            progress=progress,
            claim=self.mode,
            previous=self.previous,
        )
        self.ensure()
        self.storage.put(open_key(self.name, self.revision), manifest.raw, cache_control=NO_CACHE)
        self.uploaded += len(manifest.raw)
        self.named()
        if self.mode != "replace" and not self._claim_is_lost():
            self.write_latest(self.name, manifest)
        self.published = progress.tree.count
        return manifest

    def _claim_is_lost(self) -> bool:
        """Whether somebody took the claim over: ``latest.json`` is theirs then, and the commit will conflict."""
        if not self._lost:
            try:
                self.storage.get(revision_key(self.name, self.revision + 1))
            except StorageError:
                return False
            self._lost = True
            warnings.warn(
                f"another writer took over the claim of {self.name!r}; what is recorded here goes on, and will be "
                f"kept as {self._sibling!r}",
                ReplaypackWarning,
                stacklevel=2,
            )
        return True

    @property
    def _sibling(self) -> str:
        return sibling_name(self.name, self.writer.hex())

    def commit_revision(self, manifest: Manifest) -> None:
        """Create a revision that takes no claim: the steps of `commit`, in their order.

        Raises as `create_revision` does, and `ObjectMissingError` where packs that it names are gone.
        """
        self.ensure(everything=True)
        create_revision(self.storage, self.name, manifest)
        try:
            self.named(everything=True)
        except ObjectMissingError:
            number = manifest.storage.revision
            if not is_pointed_at(self.storage, self.name, number):  # else what was before it may be gone
                self.storage.delete(revision_key(self.name, number))
            raise
        point_behind(self.storage, self.name, manifest)

    def commit(self, cause: Cause, state: State, progress: Progress, error: dict[str, Any] | None) -> Manifest:
        """Create the revision behind the claimed one: the commit point.

        Raises `ConflictError` where another writer created it first; the records are then in a sibling recording.
        """
        manifest = self.manifest(
            revision=self.revision + 1,
            cause=cause,
            state=state,
            progress=progress,
            error=error,
            previous=self.previous,
        )
        self.ensure()
        try:
            self.storage.put_new(revision_key(self.name, self.revision + 1), manifest.raw)
        except ObjectExistsError:
            sibling = self.commit_sibling(cause, state, progress, error)
            raise ConflictError(
                f"another writer committed revision {self.revision + 1} of {self.name!r} first; "
                f"all {progress.tree.count} records are kept as {sibling!r}",
                sibling=sibling,
            ) from None
        self.uploaded += len(manifest.raw)
        self.named()
        self.published = progress.tree.count
        self.write_latest(self.name, manifest)
        return manifest

    def commit_sibling(self, cause: Cause, state: State, progress: Progress, error: dict[str, Any] | None) -> str:
        """Commit all records, those that they continue included, under a name of this writer's own; return it."""
        sibling = self._sibling
        manifest = self.manifest(revision=1, cause=cause, state=state, progress=progress, error=error)
        self.ensure()
        self.storage.put_new(revision_key(sibling, 1), manifest.raw)
        self.named()
        self.published = progress.tree.count
        self.write_latest(sibling, manifest)
        return sibling

    def withdraw(self) -> None:
        """Give the claimed name up before anything is committed: what was there is there again."""
        key = revision_key(self.name, self.revision)
        claim = parse_manifest(self.storage.get(key), where=key)
        if claim.storage.writer != self.writer.hex() or claim.storage.cause != "claim":
            return  # somebody took it over
        if self.mode == "create" and self.revision == 1:
            # What readers find goes last: an interruption leaves an empty recording that can be removed.
            for gone in (open_key(self.name, 1), key, latest_key(self.name)):
                self.storage.delete(gone)
        else:
            self.restore(claim)

    def restore(self, claim: Manifest) -> None:
        """Create a revision that shows what the claim repeated."""
        content = claim.content
        if content.state == "open":
            content = msgspec.structs.replace(content, state="incomplete")
        storage = msgspec.structs.replace(
            claim.storage,
            revision=claim.storage.revision + 1,
            checkpoint=0,
            cause="recover",
            claim=None,
            created=now_rfc3339(),
            previous=claim.digest,
        )
        manifest = encode_manifest(content, storage)
        with suppress(ObjectExistsError):  # the next recorder has the name already
            self.storage.put_new(revision_key(self.name, storage.revision), manifest.raw)
            self.write_latest(self.name, manifest)

    def write_latest(self, name: str, manifest: Manifest) -> None:
        """Overwrite the hint. The commit is done by then, so that failing is a warning."""
        if write_latest(self.storage, name, manifest):
            self.uploaded += len(manifest.raw)


def _youngest(tiers: Sequence[int]) -> tuple[int, int]:
    """Which of a row of segments to merge: those at the end of the lowest tier, and of the next while it is few."""
    tier = min(tiers)
    while True:
        start = len(tiers)
        while start and tiers[start - 1] <= tier:
            start -= 1
        if len(tiers) - start >= min(3, len(tiers)):
            return start, len(tiers)
        tier += 1


def _base_lives(base: Manifest, packs_: Sequence[PackRef]) -> list[Live]:
    """The segments that an append continues: referred to, never rewritten while recording."""
    lives = []
    for segment in base.storage.segments:
        indexes = range(len(packs_)) if segment.packs is None else segment.packs
        packs = [packs_[index] for index in indexes]
        data = frozenset(pack.digest for pack in packs)
        # From here on its tables' indexes are positions in `packs`, not in the manifest that it came from.
        own_indexes = msgspec.structs.replace(segment, packs=None)
        lives.append(Live(own_indexes, packs, data, frozenset(), sum(pack.size for pack in packs)))
    return lives
