"""A copy that is under way: what is missing is found out, sent, and made visible, one recording after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from replaypack._read.references import packs_of
from replaypack._write.claim import mark
from replaypack._write.reuse import read_marks
from replaypack._write.revisions import create_revision, point_behind, write_latest
from replaypack._write.stamps import now_rfc3339
from replaypack.errors import (
    ConflictError,
    FormatError,
    ObjectMissingError,
    StorageError,
    without_frames,
)
from replaypack.format.digests import digest
from replaypack.format.manifest import Manifest, encode_manifest
from replaypack.format.manifest_members import PackRef, Source
from replaypack.format.manifest_members import Storage as StorageSection
from replaypack.format.marks import Marks
from replaypack.format.names import MARKER, latest_key, pack_key_of, revision_key
from replaypack.recording import Recording

from ._belonging import Belonging
from ._copy_anew import PackedAnew
from ._copy_plan import RESPONSES_ONLY, WHOLE, Plan, withheld_by
from ._copy_result import Copied, CopiedRecording
from ._copy_signatures import SignatureCopier
from ._faults import Progress, Report
from ._transfer import Damaged, Stopped, Transfer, reading

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["CopyRun"]

#: Packs below this size (bytes) are packed anew where tables are written anyway: a small recording stays in one pack.
_SMALL = 4 << 20
#: Cache of a recording that is read once (bytes).
_CACHE = 4 << 20
#: How often a recording is committed again because packs that it relied on were collected meanwhile.
_ATTEMPTS = 3
#: Names of damaged recordings that one error has room for.
_MOST_NAMED = 10


class CopyRun:
    """Copies what ``plans`` say, ``jobs`` packs and recordings at a time; ``keep_going``: all but what is damaged."""

    def __init__(
        self,
        source: Archive,
        target: Archive,
        policy: str,
        plans: list[Plan],
        jobs: int,
        progress: Report | None,
        tell: Callable[[CopiedRecording], None] | None,
        notes: list[str],
        *,
        keep_going: bool,
    ) -> None:
        self._source = source
        self._target = target
        self._policy = policy
        self._plans = plans
        self._jobs = jobs
        self._report = progress
        self._tell = tell
        self._notes = notes
        self._keep_going = keep_going
        #: What is damaged in the source, by the name at the destination.
        self._failed = {plan.to: plan.error for plan in plans if plan.error is not None}
        self._lock = threading.Lock()
        self._rewriting = threading.Lock()
        self._missing: dict[str, bool] = {}
        #: The packs that are missing of what is copied: their bytes are the total.
        self._coming: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._reused: dict[str, int] = {}
        self._repacked: dict[str, int] = {}
        self._done = self._total = self._looked = 0

    def run(self) -> Copied:
        self._refuse()
        moving = [plan for plan in self._plans if plan.action == "copy"]
        storage = self._target.storage
        new = bool(moving) and self._mark()
        # Read before anything is looked for: what is not marked now stays for a whole grace period.
        self._marks = Marks() if new else read_marks(storage)
        self._signatures = SignatureCopier(self._source.storage, storage, self._marks)
        with Transfer(self._source.storage, storage, jobs=self._jobs, new=new, moved=self._moved) as transfer:
            self._transfer = transfer
            self._look_at(moving)
            try:
                done = {found.name: found for found in self._each(self._copy, self._plans)}
            except Damaged:
                self._refuse()
                raise
        if self._signatures.unlisted:
            self._notes.append(f"{self._source.url} cannot be listed: signatures were not looked for")
        return Copied(
            [done[plan.to] for plan in self._plans],
            transfer.packs,
            transfer.bytes,
            len(self._repacked),
            sum(self._repacked.values()),
            len(self._reused),
            sum(self._reused.values()),
            self._notes,
        )

    def _refuse(self) -> None:
        """Where damage ends it: raise the error of the first that is damaged, with the names of all known to be."""
        failed = [plan for plan in self._plans if plan.to in self._failed] if not self._keep_going else []
        if failed:
            error = self._failed[failed[0].to]
            listed = ", ".join(repr(plan.name) for plan in failed[:_MOST_NAMED])
            more = f" and {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
            error.hint = f"cannot be copied: {listed}{more}; {error.hint}"
            raise error from None

    def _fail(self, plan: Plan, damage: Damaged) -> None:
        with self._lock:
            self._failed[plan.to] = without_frames(damage).error

    def _mark(self) -> bool:
        """Make sure that the destination is an archive; return whether it was none."""
        try:
            self._target.storage.get(MARKER)
            new = False
        except ObjectMissingError:
            new = True
        mark(self._target.storage)
        return new

    def _each(self, work: Callable[[Plan], CopiedRecording | None], plans: list[Plan]) -> Iterator[CopiedRecording]:
        """Do it for several recordings at a time."""
        with ThreadPoolExecutor(self._jobs, thread_name_prefix="replaypack-copy") as pool:
            futures = [pool.submit(work, plan) for plan in plans]
            try:
                for future in as_completed(futures):
                    try:
                        found = future.result()
                    except Stopped:
                        continue  # what stopped it comes
                    if found is not None:
                        yield found
            except BaseException:
                self._transfer.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _moved(self, size: int) -> None:
        with self._lock:
            self._done += size
            if self._report is not None:
                self._report(Progress("", "bytes", self._done, max(self._done, self._total)))

    @contextmanager
    def _open(self, plan: Plan) -> Iterator[Recording]:
        assert plan.revision is not None
        with reading():
            manifest = self._source.manifests.get(revision_key(plan.name, plan.revision))
        if manifest is None or manifest.content_digest != plan.content_digest:
            where = f"{self._source.url}#{plan.name}@{plan.revision}"
            what = "deleted" if manifest is None else "changed"
            raise Damaged(ConflictError(f"{where} was {what} while it was copied", hint="copy again"))
        with reading():
            opened = Recording(self._source.storage, plan.name, manifest, cache_bytes=_CACHE)
        with opened as recording:
            yield recording

    def _packs(self, recording: Recording) -> list[PackRef]:
        """All packs that the recording's manifest needs."""
        with reading():
            found = packs_of(recording.manifest, self._source.storage)
            return [PackRef(name, self._size(name) if size is None else size) for name, size in found.items()]

    def _size(self, name: str) -> int:
        """The size of a pack that holds nothing but roots and lists: no manifest says it."""
        if name not in self._sizes:
            self._sizes[name] = len(self._source.storage.get(pack_key_of(name)))
        return self._sizes[name]

    def _look_at(self, moving: list[Plan]) -> None:
        """Look at all, and where one fails, at the others again: what belongs to it alone is of no recording then."""
        roles = ("response",) if self._policy == RESPONSES_ONLY else None
        failed = -1
        while failed < len(self._failed):
            failed = len(self._failed)
            left = [plan for plan in self._plans if plan.to not in self._failed]
            self._belonging = Belonging(self._source.storage, {plan.id for plan in left if plan.id}, roles)
            self._coming.clear()
            self._looked = self._total = 0
            self._looking = [plan for plan in moving if plan.to not in self._failed]
            for _ in self._each(self._look, self._looking):
                pass
            self._refuse()

    def _look(self, plan: Plan) -> None:
        """Find out which packs are missing, and which of them may be given away whole."""
        try:
            self._look_into(plan)
        except Damaged as damage:
            self._fail(plan, damage)
        with self._lock:
            self._looked += 1
            if self._report is not None:
                self._report(Progress(plan.name, "recordings", self._looked, len(self._looking)))

    def _look_into(self, plan: Plan) -> None:
        with self._open(plan) as recording:
            refs = self._packs(recording)
            fresh = [ref for ref in refs if ref.digest not in self._missing]
            missing = self._transfer.missing(fresh)
            missing |= self._transfer.unproven([ref for ref in fresh if ref.digest not in missing])
            with self._lock:
                for ref in refs:
                    if ref.digest not in self._missing:
                        # What a collector has marked may go at any moment, and what is sent under its name too.
                        self._missing[ref.digest] = ref.digest in missing or self._doomed(ref.digest)
                    if self._missing[ref.digest] and ref.digest not in self._coming:
                        self._coming.add(ref.digest)
                        self._total += ref.size
            # Where bytes are withheld, packs that are there may have them too.
            asked = refs if self._policy == RESPONSES_ONLY else [ref for ref in refs if self._missing[ref.digest]]
            if asked:
                with reading():
                    self._belonging.look(recording, asked)

    def _copy(self, plan: Plan) -> CopiedRecording:
        found = None
        if plan.to not in self._failed:
            try:
                found = self._bring(plan)
            except Damaged as damage:
                self._fail(plan, damage)
                if not self._keep_going:
                    raise
        if found is None:
            error = self._failed[plan.to]
            about = (plan.revision, plan.content_digest, plan.records)
            found = CopiedRecording(plan.to, plan.name, "failed", None, *about, error=error)
        if self._tell is not None:
            with self._lock:
                self._tell(found)
        return found

    def _bring(self, plan: Plan) -> CopiedRecording:
        assert plan.action != "failed"
        signatures: dict[str, str] = {}
        copied = 0
        revision = plan.newest[0] if plan.action == "there" and plan.newest is not None else None
        note = plan.note
        if plan.action != "left out":
            signatures, copied, problem = self._signatures.copy(plan)
            note = note or problem
        if plan.action == "copy":
            with self._open(plan) as recording:
                revision = self._one(plan, recording)
            self._signatures.ensure(signatures)
        elif revision is not None:
            self._point(plan.to, revision)
        return CopiedRecording(
            plan.to,
            plan.name,
            "copied" if plan.action == "copy" else plan.action,
            revision,
            plan.revision,
            plan.content_digest,
            plan.records,
            copied,
            note,
        )

    def _one(self, plan: Plan, recording: Recording) -> int:
        newest = plan.newest
        refs = {ref.digest: ref for ref in self._packs(recording)}
        lacking: list[int] = []
        for _ in range(_ATTEMPTS):
            section, named, relied = self._storage(plan, recording, refs)
            if self._gone(recording, refs, [*relied, *filter(self._transfer.long_ago, named)]):
                continue
            number = newest[0] + 1 if newest is not None else 1
            manifest = self._commit(plan, recording, section, number, newest[1] if newest is not None else None)
            # What was there may have been collected before the revision that names it was; or purged, whatever it is.
            if not self._gone(recording, refs, [*relied, *filter(self._transfer.doubtful, named)]):
                if point_behind(self._target.storage, plan.to, manifest):
                    with suppress(StorageError):  # nobody was pointed to them
                        for before in lacking:
                            self._target.storage.delete(revision_key(plan.to, before))
                return number
            lacking.append(number)
            newest = (number, manifest.digest)
        raise ConflictError(
            f"packs of {self._target.url}#{plan.to} are deleted while they are copied",
            hint="run `replaypack gc` at another time, and copy again with --if-exists replace",
        )

    def _gone(self, recording: Recording, refs: dict[str, PackRef], asked: list[PackRef]) -> bool:
        """Whether packs are not at the destination any more; then they are missing from here on."""
        gone = self._transfer.gone(asked) if asked else set()
        again = [refs[name] for name in gone if name in refs]  # the others are made anew in any case
        if again:
            with self._lock:
                self._missing.update((ref.digest, True) for ref in again)
            with reading():
                self._belonging.look(recording, again)
        return bool(gone)

    def _storage(
        self, plan: Plan, recording: Recording, refs: dict[str, PackRef]
    ) -> tuple[StorageSection, list[PackRef], list[PackRef]]:
        """Send what is missing; return where its bytes lie then, in which packs, and which of these were there."""
        whole = self._policy == WHOLE
        missing = {name for name in refs if self._missing[name]}
        split = {name for name in (missing if whole else refs) if not self._belonging.whole(name) or self._doomed(name)}
        if not split:
            sent = [self._transfer.send(refs[name]) for name in refs if name in missing]
            for future in sent:
                future.result()
            return recording.manifest.storage, list(refs.values()), self._note_reused(refs, missing)
        split |= {name for name in missing if refs[name].size < _SMALL}
        anew = PackedAnew(
            recording,
            self._transfer,
            self._belonging,
            to=plan.to,
            policy=self._policy,
            refs=refs,
            missing=missing,
            split=split,
            moved=self._moved,
        )
        with self._rewriting:  # one at a time: it takes the memory
            section = anew.write()
        anew.wait()
        found = [ref for ref, sent in anew.made if not sent]
        made = [ref for ref, _ in anew.made]
        with self._lock:
            self._repacked.update({ref.digest: ref.size for ref in made})
        needed = {ref.digest for ref in section.packs} if not section.pack_pages else set(refs)
        staying = {name: refs[name] for name in refs if name in needed}
        return section, [*staying.values(), *made], [*self._note_reused(staying, missing), *found]

    def _doomed(self, name: str) -> bool:
        return self._marks.has(pack_key_of(name))

    def _note_reused(self, refs: dict[str, PackRef], missing: Collection[str]) -> list[PackRef]:
        relied = [ref for name, ref in refs.items() if name not in missing]
        with self._lock:
            self._reused.update({ref.digest: ref.size for ref in relied})
        return relied

    def _commit(
        self, plan: Plan, recording: Recording, section: StorageSection, number: int, previous: str | None
    ) -> Manifest:
        source = recording.manifest
        manifest = encode_manifest(
            source.content,
            msgspec.structs.replace(
                section,
                revision=number,
                checkpoint=0,
                cause="copy",
                claim=None,
                writer=digest(bytes.fromhex(source.digest) + self._policy.encode())[:8].hex(),
                created=now_rfc3339(),
                previous=previous,
                withheld=withheld_by(source.storage, self._policy),
                source=Source(manifest=source.digest, policy=self._policy),
            ),
        )
        if manifest.content_digest != source.content_digest:
            raise Damaged(FormatError("its content is not canonical", where=recording.locator))
        create_revision(self._target.storage, plan.to, manifest)
        return manifest

    def _point(self, name: str, revision: int) -> None:
        """Write ``latest.json`` where it is behind what is there: an earlier run may have ended before it did."""
        try:
            latest = self._target.manifests.get(latest_key(name))
        except FormatError:
            latest = None
        if latest is None or latest.storage.revision < revision:
            write_latest(self._target.storage, name, self._target.manifests.find(name, revision, fresh=False))
