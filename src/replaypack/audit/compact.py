"""`compact`: recordings written anew, smaller: full frames at a high level, bytes that repeat stored once.

Rows stay as they are, byte for byte, and so does the content digest. Requests and responses are read, checked, split
anew and looked for in everything that was compacted before them in the same run. Each recording gets one new
revision; nothing is visible before that, and the old packs stay until they are collected.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, NamedTuple

from replaypack._read.blobs import blob_ref, read_blob
from replaypack._read.cache import Cache
from replaypack._read.index import Found, Index, SegmentIndex
from replaypack._read.packs import PackReader
from replaypack._read.sequence import in_order
from replaypack._write.claim import refuse_claimed
from replaypack._write.literals import SPLIT
from replaypack._write.merge import finish
from replaypack._write.publish import Progress as State
from replaypack._write.publish import Publisher
from replaypack._write.segment import PACK_TARGET, SegmentBuilder
from replaypack._write.shared import GROUP, SharedLiterals, User
from replaypack.errors import (
    ConflictError,
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
    ObjectTooShortError,
    RecordingExistsError,
    ReplaypackError,
    UsageError,
)
from replaypack.format.digests import digest
from replaypack.format.frame import Compressor
from replaypack.format.manifest import Manifest, PackRef
from replaypack.format.merkle import MerkleTree, leaf_hash
from replaypack.format.names import check_name, pack_key_of, revision_key
from replaypack.format.pack import HEADER, check_header
from replaypack.format.recipe import encode_ops
from replaypack.format.record_frame import Entry, RecordFrame, encode_frame
from replaypack.format.table import INLINE_SPACE, KEYS, TableShape
from replaypack.recording import Recording
from replaypack.recover import finish_leftover
from replaypack.values import decode_payload, payload_pieces

from ._faults import Progress, Report

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Compacted", "Compaction", "compact"]

#: Record frames are closed at this many raw bytes: a lookup reads one.
RECORD_FRAME = 1 << 20
_FRAME_RANGES = 1 << 20
_FRAME_PARTS = 1 << 17
#: Raw bytes for each thread that wait to be compressed.
_WAITING = 8 << 20
_MAX_THREADS = 8
#: A larger payload is not split.
_SPLIT_MOST = 64 << 20


Outcome = Literal["compacted", "compact", "skipped", "failed"]


class Compacted(NamedTuple):
    """What became of one recording.

    ``outcome``: ``compacted`` (or would be, in a dry run), ``compact`` (it is already), ``skipped`` (it is being
    recorded, or empty), ``failed`` (``error`` says why; it is as it was). ``before`` and ``after`` are bytes of the
    packs that its newest revision names; several recordings may name the same pack.
    """

    name: str
    outcome: Outcome
    revision: int
    records: int
    before: int
    after: int
    error: ReplaypackError | None = None


class Compaction(NamedTuple):
    """What `compact` did: each recording; bytes of the packs that it wrote; bytes of the packs that the newest
    revisions of these recordings named before and do not name now, which a collection may free."""

    recordings: list[Compacted]
    written: int
    freed: int


def compact(
    archive: Archive,
    names: Iterable[str] | None = None,
    *,
    level: int = 19,
    again: bool = False,
    dry_run: bool = False,
    progress: Report | None = None,
) -> Compaction:
    """Write recordings anew, smaller, at zstd ``level`` (1 to 22): all of the archive, or those named.

    What they have in common is stored once, also where it was recorded without ``base=``. Content digests do not
    change. Recordings that were compacted at that level are left alone, unless ``again``: then they are written once
    more, so that others may share their bytes. ``dry_run`` only says which would be written.

    Each recording becomes visible on its own, at its end; an interrupted run is run again, and leaves those alone
    that were finished. Payloads are checked as they are read, and each new revision is read back before it is
    committed. A recording that is damaged, or that another writer was faster with, is reported as ``failed``
    and stays as it is; so is one that is being recorded, as ``skipped``.

    Memory: about 300 MiB at level 19 for each thread that compresses (one for each core, at most 8), 300 MiB for what
    is found again, and twice the largest payload.

    Raises `UsageError`, `RecordingNotFoundError`, `StorageError` (recordings finished by then stay finished).
    """
    if type(level) is not int or not 1 <= level <= 22:
        raise UsageError(f"zstd has levels 1 to 22, not {level}")
    chosen = list(archive.recordings()) if names is None else list(dict.fromkeys(map(check_name, names)))
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1), thread_name_prefix="replaypack-zstd") as pool:
        run = _Run(archive, level, pool, progress)
        try:
            for name in chosen:
                run.take(name, again=again, dry_run=dry_run)
            run.flush()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return Compaction([run.results[name] for name in chosen], run.written, run.freed)


class _Run:
    """One run: recordings one after another, and those that wait until the frames that they share are full."""

    def __init__(self, archive: Archive, level: int, pool: ThreadPoolExecutor, report: Report | None) -> None:
        self.archive = archive
        self.storage = archive.storage
        self.report = report
        self.compressor = Compressor(level, noted=True)
        self.threads = pool
        self.shared = SharedLiterals(self.compressor, pool.map)
        self.results: dict[str, Compacted] = {}
        self._left_behind = {leftover.head.name for leftover in archive.leftovers()}
        self._waiting: list[_Job] = []
        #: Levels that packs name, packs of the newest revisions before and after, by digest.
        self._levels: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._after: dict[str, int] = {}
        self.written = 0

    @property
    def freed(self) -> int:
        """Bytes of the packs that none of these recordings names any more."""
        return sum(size for pack, size in self._before.items() if pack not in self._after)

    def take(self, name: str, *, again: bool, dry_run: bool) -> None:
        """Compact one recording, as far as it needs it."""
        newest = self.archive.manifests.newest(name, fresh=True)
        if newest is None:
            raise self.archive.manifests.not_found(name)
        packs = Index(newest, PackReader(self.storage), Cache(0)).packs
        self._before.update(_sizes(packs))
        reason = self._busy(name, newest)
        if reason is not None:
            self._leave(name, newest, packs, "skipped", reason)
        elif not packs or (not again and all(self._level(pack) >= self.compressor.level for pack in packs)):
            self._leave(name, newest, packs, "compact")
        elif dry_run:
            self._leave(name, newest, packs, "compacted")
        else:
            self._write(name, newest, packs)

    def _write(self, name: str, newest: Manifest, packs: Sequence[PackRef]) -> None:
        job = _Job(self, name, newest, packs)
        try:
            job.write()
        except (FormatError, ObjectMissingError, ObjectTooShortError) as error:
            # What was written of it is in no pack, perhaps: nobody may take bytes from there.
            self.shared.forget()
            self._leave(name, newest, packs, "failed", error)
            return
        if self.shared.open_size >= GROUP or job.user.own:
            self.shared.cut(job.user, job.publisher.upload_large)
        if self.shared.ready(job.user):
            self._commit(job)
            return
        self.shared.wait(job.user)
        self._waiting.append(job)
        if self.shared.size + sum(waiting.builder.size for waiting in self._waiting) >= PACK_TARGET:
            self.flush()

    def flush(self) -> None:
        """Finish the recordings that wait."""
        if self._waiting:
            first = self._waiting[0]
            publisher = first.publisher
            self.shared.cut(first.user if len(self._waiting) == 1 else None, publisher.upload_large)
            self.shared.place(publisher.origin, publisher.upload, publisher.upload_large)
            waiting, self._waiting = self._waiting, []
            for job in waiting:
                self._commit(job)

    def _commit(self, job: _Job) -> None:
        try:
            manifest, packs = job.commit()
        except (FormatError, ConflictError) as error:
            self._leave(job.name, job.newest, job.packs, "failed", error)
            return
        self._after.update(_sizes(packs))
        before, after = (sum(pack.size for pack in those) for those in (job.packs, packs))
        self.results[job.name] = Compacted(
            job.name, "compacted", manifest.storage.revision, manifest.content.records, before, after
        )

    def _leave(
        self,
        name: str,
        newest: Manifest,
        packs: Sequence[PackRef],
        outcome: Outcome,
        error: ReplaypackError | None = None,
    ) -> None:
        self._after.update(_sizes(packs))
        size = sum(pack.size for pack in packs)
        revision, records = newest.storage.revision, newest.content.records
        self.results[name] = Compacted(name, outcome, revision, records, size, size, error)

    def _busy(self, name: str, newest: Manifest) -> ReplaypackError | None:
        """Why a recording is not to be touched: somebody records it, or left records of it behind."""
        try:
            if name in self._left_behind:
                finish_leftover(self.archive, name, "error")
            refuse_claimed(self.storage, name, newest)
        except RecordingExistsError as error:
            return error
        if newest.content.state == "open":
            return UsageError(f"{self.archive.url}#{name} is still being recorded", hint="seal it, or recover it")
        return None

    def _level(self, pack: PackRef) -> int:
        """The level that a pack says its frames have; 0 where it cannot be read, which writing it anew then reports."""
        if pack.digest not in self._levels:
            key = pack_key_of(pack.digest)
            try:
                self._levels[pack.digest] = check_header(self.storage.get_range(key, 0, len(HEADER)), where=key)
            except (FormatError, ObjectMissingError, ObjectTooShortError):
                self._levels[pack.digest] = 0
        return self._levels[pack.digest]


class _Job:
    """One recording that is written anew, holding one record frame and one pack at a time."""

    def __init__(self, run: _Run, name: str, newest: Manifest, packs: Sequence[PackRef]) -> None:
        self.name, self.newest, self.packs = name, newest, packs
        self._run = run
        self._source = Recording(run.storage, name, newest)
        level = run.compressor.level
        self.publisher = Publisher(
            run.storage,
            name,
            writer=digest(b"compact" + bytes([level]) + bytes.fromhex(newest.digest))[:8],
            mode="replace",
            template=newest.content,
            base=None,
            revision=newest.storage.revision,
            previous=newest.digest,
        )
        self.publisher.compressor = run.compressor
        self.builder = SegmentBuilder(0, 0)
        self.builder.more = self._entries
        self.user = User(self.builder)
        self._tree = MerkleTree()
        self._inlines = 0
        self._frame: list[Entry] = []
        self._size = self._parts = 0

    def write(self) -> None:
        """Write all but the tables. Raises `FormatError` and `StorageError` where the source cannot be read."""
        splitter = self._run.shared.splitter
        splitter.begin_recording()
        records = len(self._source)
        for found in in_order(self._source.index, 0, where=self._source.locator):
            self._add(found)
            if self._size >= RECORD_FRAME or self._parts >= _FRAME_PARTS or splitter.frame_ranges >= _FRAME_RANGES:
                self._close_frame()
            if self._run.report is not None:
                self._run.report(Progress(self.name, "records", self._tree.count, records))
        self._close_frame()
        if self._tree.root.hex() != self.newest.content.merkle_root:
            raise FormatError("the rows do not have the Merkle root of the content", where=self._source.locator)
        self._source.close()  # nothing of it is held while it waits

    def _add(self, found: Found) -> None:
        splitter = self._run.shared.splitter
        if not self._frame:
            splitter.begin_frame()
            splitter.inlines.begin_frame(INLINE_SPACE + self._inlines)
        frame = found.frame
        assert isinstance(frame, RecordFrame)  # whole frames are walked, not single records of them
        row, inline = frame.stored(found.number)
        recipes = b""
        for role in _roles(found):
            ops = self._run.shared.recipe(self._pieces(found, role), self.user, self.publisher.upload_large)
            recipes += encode_ops(ops)
            self._parts += len(ops)
        self._frame.append(Entry(row, recipes, inline))
        self._size += len(row) + len(recipes) + 12
        if inline:
            self._size += len(inline)
            splitter.inlines.note(INLINE_SPACE + self._inlines, inline)
            self._inlines += len(inline)
        self._tree.add(leaf_hash(found.row_bytes))

    def _pieces(self, found: Found, role: str) -> list[bytes]:
        """A payload, checked against its digest, in the pieces that a recorder would make of it."""
        ref = blob_ref(found.row, role)
        assert ref is not None
        data = read_blob(self._source.index, found, role, limit=self._source.blob_limit)
        if SPLIT <= len(data) <= _SPLIT_MOST:
            try:
                _, pieces = payload_pieces(decode_payload(ref.encoding, data))
            except ReplaypackError:
                return [data]  # made by another writer, who has other ideas of what a payload is
            if b"".join(pieces) == data:
                return pieces
        return [data]

    def _close_frame(self) -> None:
        if not self._frame:
            return
        builder, run = self.builder, self._run
        builder.add_record_frame(len(self._frame), encode_frame(self._frame))
        self._frame, self._size, self._parts = [], 0, 0
        if builder.waiting >= _WAITING or builder.size >= PACK_TARGET:
            builder.compress(run.compressor, run.threads.map)
        if builder.size >= PACK_TARGET:
            self.publisher.spill(builder)

    def _entries(self, shape: TableShape) -> Iterator[bytes]:
        """The entries of ``keys`` or ``blobs``: they say nothing of where frames lie, and stay."""
        index = self._source.index

        def entries(segment: SegmentIndex) -> Iterator[bytes]:
            for page in range(len(segment.root(shape).fences)):
                if shape is KEYS:
                    rows = index.key_pages([(segment, page)])[0].rows
                else:
                    [rows] = index.pages([(segment, shape, page)])
                yield from (rows[at : at + shape.width] for at in range(0, len(rows), shape.width))

        return heapq.merge(*map(entries, index.segments))

    def commit(self) -> tuple[Manifest, list[PackRef]]:
        """Write the tables, read everything back, create the revision: from here on it can be seen.

        Raises `ConflictError`, `FormatError`, `StorageError`.
        """
        publisher, content = self.publisher, self.newest.content
        literals = self._run.shared.refer(self.user)
        self.builder.compress(self._run.compressor, self._run.threads.map)
        publisher.lives.append(
            finish(
                self.builder, publisher.origin, publisher.upload, publisher.upload_large, publisher.compressor, tier=0
            )
        )
        publisher.keep_summary(self._run.storage, self.newest)
        manifest = publisher.manifest(
            revision=self.newest.storage.revision + 1,
            cause="compact",
            state=content.state,
            progress=State(self._tree, dict(content.counts), literals, self._inlines),
            error=content.error,
            previous=self.newest.digest,
        )
        if manifest.content_digest != self.newest.content_digest:  # pragma: no cover - the rows gave the same root
            raise FormatError("the content would change", where=self._source.locator)
        with Recording(self._run.storage, self.name, manifest) as written:
            self._check(written)
            packs = written.index.packs
        self._run.written += publisher.uploaded
        number = manifest.storage.revision
        try:
            self._run.storage.put_new(revision_key(self.name, number), manifest.raw)
        except ObjectExistsError:
            raise ConflictError(
                f"another writer committed revision {number} of {self.name!r} first; it is as that writer left it",
                hint="run it again",
            ) from None
        publisher.write_latest(self.name, manifest)
        return manifest, packs

    def _check(self, written: Recording) -> None:
        """Read everything back. Raises `FormatError`, `StorageError`."""
        tree = MerkleTree()
        for found in in_order(written.index, 0, where=written.locator):
            for role in _roles(found):
                read_blob(written.index, found, role, limit=self._source.blob_limit)
            tree.add(leaf_hash(found.row_bytes))
            if self._run.report is not None:
                self._run.report(Progress(self.name, "check", tree.count, len(written)))
        if tree.root != self._tree.root:
            raise FormatError("what was written is not what was read", where=written.locator)


def _sizes(packs: Iterable[PackRef]) -> dict[str, int]:
    return {pack.digest: pack.size for pack in packs}


def _roles(found: Found) -> list[str]:
    """The payloads that do not stand behind their row, in the order of their recipes."""
    row = found.row
    roles = [role for role in ("request", "identity") if blob_ref(row, role) is not None]
    if found.inline is None and row.response_encoding:
        roles.append("response")
    return roles
