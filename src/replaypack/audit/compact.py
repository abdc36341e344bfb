"""`compact`: recordings written anew, smaller: full frames at a high level, bytes that repeat stored once.

Rows stay as they are, byte for byte, and so does the content digest. Requests and responses are read, checked, split
anew and looked for in everything that was compacted before them in the same run. Each recording gets one new
revision; nothing is visible before that, and the old packs stay until they are collected.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from replaypack._read.cache import Cache
from replaypack._read.index import Index
from replaypack._read.packs import PackReader
from replaypack._write.claim import refuse_claimed
from replaypack._write.revisions import heal_latest, point_behind
from replaypack._write.segment import PACK_TARGET
from replaypack._write.shared import GROUP, SharedLiterals
from replaypack.errors import (
    DAMAGED,
    ConflictError,
    ObjectMissingError,
    RecordingExistsError,
    ReplaypackError,
    StorageError,
    UsageError,
    without_frames,
)
from replaypack.format.frame import Compressor
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import latest_key, pack_key_of, revision_key
from replaypack.format.pack import HEADER, check_header
from replaypack.recover import finish_leftover

from ._compacting import Job, Tools
from ._copy_plan import names_of
from ._faults import Report
from ._inventory import common_packs

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Compacted", "Compaction", "compact"]

_MAX_THREADS = 8
#: Recordings that wait for each other: each takes about 20 KB, and where one fails, all do.
_MOST_WAITING = 1024


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
    revisions of these recordings named before and do not name now, which a collection may free; bytes of all packs
    that those named ``before``, and name ``after``, each pack counted once."""

    recordings: list[Compacted]
    written: int
    freed: int
    before: int
    after: int


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

    ``names`` are names, or patterns with ``*``, ``?`` and ``[…]``.

    What they have in common is stored once, also where it was recorded without ``base=``. Content digests do not
    change. Recordings that were compacted at that level are left alone, unless ``again``: then they are written once
    more, so that others may share their bytes. ``dry_run`` only says which would be written. Of those that are left
    alone ``latest.json`` is written again where it is behind, as after a run that was killed.

    Recordings that share bytes become visible together, at their end, or not at all. An interrupted run is run again,
    and leaves those alone that were finished. Payloads are checked as they are read, and each new revision is read
    back before it is committed. A recording that is damaged, or that another writer was faster with, is reported as
    ``failed`` and stays as it is, and so do those that would share bytes with the latter; one that is being recorded
    is ``skipped``.

    Memory: about 100 MiB at level 19 for each thread that compresses (one for each core, at most 8), 100 to 300 MiB for
    what is found again, and a few times the largest payload.

    Raises `UsageError`, `RecordingNotFoundError`, `StorageError` (recordings finished by then stay finished;
    `ReadOnlyStorageError` before anything is read).
    """
    if type(level) is not int or not 1 <= level <= 22:
        raise UsageError(f"zstd has levels 1 to 22, not {level}")
    if not dry_run:
        archive.storage.require_writable("compact")
    patterns = [names] if isinstance(names, str) else list(names) if names is not None else None
    chosen = list(archive.recordings()) if patterns is None else names_of(archive, patterns)
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1), thread_name_prefix="replaypack-zstd") as pool:
        run = _Run(archive, level, pool, progress)
        try:
            for name in chosen:
                run.take(name, again=again, dry_run=dry_run, named=patterns is not None and name in patterns)
            run.flush()
            run.mend()
            for name in set(chosen) - run.results.keys():  # it was deleted meanwhile
                run.results[name] = Compacted(name, "failed", 0, 0, 0, 0, archive.manifests.not_found(name))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    before, after = sum(run.before.values()), sum(run.after.values())
    return Compaction([run.results[name] for name in chosen], run.written, run.freed, before, after)


class _Run:
    """One run: recordings one after another, and those that wait until the frames that they share are full."""

    def __init__(self, archive: Archive, level: int, pool: ThreadPoolExecutor, report: Report | None) -> None:
        self.archive = archive
        self.level = level
        compressor = Compressor(level, noted=True)
        self.shared = SharedLiterals(compressor, pool.map)
        self.tools = Tools(archive.storage, compressor, pool, self.shared, report)
        self.results: dict[str, Compacted] = {}
        self._left_behind = {leftover.head.name for leftover in archive.leftovers()}
        self._waiting: list[Job] = []
        #: Packs of groups that a compaction did not finish.
        self._torn: set[str] = set()
        #: Levels that packs name, packs of the newest revisions before and after, by digest.
        self._levels: dict[str, int] = {}
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}
        self.written = 0

    @property
    def freed(self) -> int:
        """Bytes of the packs that none of these recordings names any more."""
        return sum(size for pack, size in self.before.items() if pack not in self.after)

    def take(self, name: str, *, again: bool, dry_run: bool, named: bool) -> None:
        """Compact one recording, as far as it needs it.

        Raises `RecordingNotFoundError` where it was ``named``, and not merely listed before.
        """
        try:
            newest = self.archive.manifests.newest(name, fresh=True)
            if newest is None:
                if named:
                    raise self.archive.manifests.not_found(name)
                return
            packs = Index(newest, PackReader(self.archive.storage), Cache(0)).packs
        except DAMAGED as error:
            self.results[name] = Compacted(name, "failed", 0, 0, 0, 0, without_frames(error))
            return
        self.before.update(_sizes(packs))
        if not self._free(name, newest, packs):
            return
        unfinished = self._unfinished(name, newest)
        wanted = again or unfinished or any(self._level(pack) < self.level for pack in packs)
        if not packs or not wanted:
            if not dry_run:
                heal_latest(self.archive.storage, name, newest)
            self._leave(name, newest, packs, "compact")
        elif dry_run:
            self._leave(name, newest, packs, "compacted")
        elif unfinished:
            self._torn |= unfinished
        else:
            self._write(name, newest, packs)

    def mend(self) -> None:
        """Write those anew that have a pack in common with one of a group which a compaction did not finish.

        Such packs may have bytes of recordings that do not name them. So the revisions that name them go.
        """
        if not self._torn:
            return
        for name in self.archive.recordings():
            try:
                newest = self.archive.manifests.newest(name, fresh=True)
                if newest is None:
                    continue
                packs = Index(newest, PackReader(self.archive.storage), Cache(0)).packs
            except DAMAGED as error:
                self.results.setdefault(name, Compacted(name, "failed", 0, 0, 0, 0, without_frames(error)))
                continue
            if self._torn.isdisjoint(pack.digest for pack in packs):
                continue
            if self._free(name, newest, packs):
                self._write(name, newest, packs, mends=True)
        self.flush()

    def _write(self, name: str, newest: Manifest, packs: Sequence[PackRef], *, mends: bool = False) -> None:
        job = Job(self.tools, name, newest, packs)
        job.mends = mends
        try:
            job.write()
        except DAMAGED as error:
            job.give_up()
            self._leave(name, newest, packs, "failed", without_frames(error))
            return
        if self.shared.open_size >= GROUP or job.user.own:
            self.shared.cut(job.user, job.publisher.upload_large)
        if self.shared.ready(job.user):
            self._commit([job])
            return
        self.shared.wait(job.user)
        self._waiting.append(job)
        held = self.shared.size + sum(waiting.builder.size for waiting in self._waiting)
        if held >= PACK_TARGET or len(self._waiting) >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Finish the recordings that wait."""
        if self._waiting:
            first = self._waiting[0]
            publisher = first.publisher
            alone = first.user if len(self._waiting) == 1 else None
            self.shared.place(alone, publisher.upload, publisher.upload_large)
            waiting, self._waiting = self._waiting, []
            self._commit(waiting)

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Make recordings visible that have bytes in packs of each other: all of them, or none.

        One that was left out would have bytes in packs that only others name. Whoever purges it looks at what it names.
        """
        at = jobs[0]
        try:
            for at in jobs:
                at.prepare()
            for at in jobs:
                newest = self.archive.manifests.newest(at.name, fresh=True)
                if newest is None or newest.digest != at.newest.digest:
                    raise at.conflict()
            for at in jobs:
                at.commit()
            for at in jobs:
                # What others wrote, or have in common with it: a purge of theirs may have deleted it since.
                at.publisher.look_again(everything=True)
        except (*DAMAGED, ConflictError) as error:
            self._drop(jobs)
            for job in jobs:
                why = error
                if job is not at:
                    text = f"{job.name!r} would share bytes with {at.name!r}, which failed; it is as it was"
                    why = ConflictError(text, hint="run it again")
                self._leave(job.name, job.newest, job.packs, "failed", without_frames(why))
            return
        except BaseException:
            with suppress(StorageError):
                self._drop(jobs)
            raise
        for job in jobs:
            if point_behind(self.archive.storage, job.name, job.made) and job.mends:
                self.archive.storage.delete(revision_key(job.name, job.newest.revision))
            self.written += job.written
            self.after.update(_sizes(job.made_packs))
            before, after = (sum(pack.size for pack in those) for those in (job.packs, job.made_packs))
            self.results[job.name] = Compacted(
                job.name, "compacted", job.made.storage.revision, job.made.content.records, before, after
            )

    def _drop(self, jobs: Sequence[Job]) -> None:
        """Undo what was committed of ``jobs``, and delete their packs, which have names that nobody else can know."""
        self.shared.forget()
        undone = True
        failure: StorageError | None = None
        for job in jobs:
            try:
                undone = job.undo() and undone
            except StorageError as error:  # that one is left to the next run; the others need not be
                failure = error
        if failure is not None:
            raise failure
        if undone:
            for job in jobs:
                job.publisher.rewind(None, [])

    def _leave(
        self,
        name: str,
        newest: Manifest,
        packs: Sequence[PackRef],
        outcome: Outcome,
        error: ReplaypackError | None = None,
    ) -> None:
        self.after.update(_sizes(packs))
        size = sum(pack.size for pack in packs)
        revision, records = newest.storage.revision, newest.content.records
        self.results[name] = Compacted(name, outcome, revision, records, size, size, error)

    def _free(self, name: str, newest: Manifest, packs: Sequence[PackRef]) -> bool:
        """Whether a recording may be written anew: nobody records it, or left records of it behind."""
        try:
            if name in self._left_behind:
                finish_leftover(self.archive, name, "error")
            refuse_claimed(self.archive.storage, name, newest)
            if newest.content.state == "open":
                raise UsageError(f"{self.archive.url}#{name} is still being recorded", hint="seal it, or recover it")
        except (RecordingExistsError, UsageError) as error:
            self._leave(name, newest, packs, "skipped", without_frames(error))
        except DAMAGED as error:  # what its recorder published cannot be read
            self._leave(name, newest, packs, "failed", without_frames(error))
        else:
            return True
        return False

    def _unfinished(self, name: str, newest: Manifest) -> set[str]:
        """The packs that may have bytes of recordings which a compaction that died did not come to commit.

        Hints are written when all of a group are committed.
        """
        storage = self.archive.storage
        if newest.storage.cause != "compact":
            return set()
        with suppress(ObjectMissingError):
            if storage.get(latest_key(name)) == newest.raw:
                return set()
        return common_packs(storage, newest)

    def _level(self, pack: PackRef) -> int:
        """The level that a pack says its frames have; 0 where it cannot be read, which writing it anew then reports."""
        if pack.digest not in self._levels:
            key = pack_key_of(pack.digest)
            try:
                self._levels[pack.digest] = check_header(self.archive.storage.get_range(key, 0, len(HEADER)), where=key)
            except DAMAGED:
                self._levels[pack.digest] = 0
        return self._levels[pack.digest]


def _sizes(packs: Iterable[PackRef]) -> dict[str, int]:
    return {pack.digest: pack.size for pack in packs}
