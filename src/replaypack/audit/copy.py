"""`copy`: recordings of one archive, taken to another, wherever either lies.

Only what is missing travels. A pack goes whole where all of it belongs to the recordings that are copied; of others
the frames that do are packed anew. Packs go first, then signatures, then one `put_new` of the next revision makes a
recording visible, all of it at once. Interrupted, it is run again: what has arrived is not sent twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from replaypack._arguments import check_number
from replaypack._read.references import packs_of
from replaypack._write.claim import mark
from replaypack._write.publish import Publisher, create_revision, now_rfc3339, point_behind, progress_of, write_latest
from replaypack._write.reuse import read_marks, renamed
from replaypack._write.rewrite import Fate, LiteralFate, rewrite
from replaypack.errors import (
    AccessDeniedError,
    ConflictError,
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
    StorageUnsupportedError,
    UsageError,
)
from replaypack.format.digests import digest
from replaypack.format.dsse import MAX_ENVELOPE
from replaypack.format.frame import Compressor
from replaypack.format.manifest import Manifest, PackRef, Source, encode_manifest
from replaypack.format.manifest import Storage as StorageSection
from replaypack.format.marks import Marks
from replaypack.format.names import MARKER, check_name, latest_key, pack_key_of, signature_parts
from replaypack.format.pack import HEADER, check_header
from replaypack.format.table import FrameEntry
from replaypack.recording import Recording
from replaypack.storage import Storage

from ._belonging import Belonging
from ._copy_plan import RESPONSES_ONLY, WHOLE, IfExists, Plan, Planner, is_pattern, names_of, withheld_by
from ._faults import Progress, Report
from ._transfer import Stopped, Transfer
from .sign import MAX_OBJECTS

if TYPE_CHECKING:
    from replaypack._read.packs import Frame
    from replaypack.archive import Archive

__all__ = ["Copied", "CopiedRecording", "copy"]

#: Packs below this size (bytes) are packed anew where tables are written anyway: a small recording stays in one pack.
_SMALL = 4 << 20
#: Cache of a recording that is read once (bytes).
_CACHE = 4 << 20
#: How often a recording is committed again because packs that it relied on were collected meanwhile.
_ATTEMPTS = 3
#: zstd has no higher level.
_MAX_LEVEL = 22


class CopiedRecording(NamedTuple):
    """What became of one recording: ``copied``, ``there`` (nothing to do), or ``left out``, with a note why.

    ``name`` and ``revision`` are those at the destination, ``from_name`` and ``from_revision`` those at the source;
    ``signatures`` counts those that were copied.
    """

    name: str
    from_name: str
    state: Literal["copied", "there", "left out"]
    revision: int | None
    from_revision: int | None
    content_digest: str | None
    records: int
    signatures: int = 0
    note: str | None = None


class Copied(NamedTuple):
    """What `copy` did: ``packs`` and ``bytes`` were sent, ``repacked`` and ``repacked_bytes`` of them made anew;
    ``reused`` packs of ``reused_bytes`` were at the destination already; ``notes`` say what holds for all of it."""

    recordings: list[CopiedRecording]
    packs: int
    bytes: int
    repacked: int
    repacked_bytes: int
    reused: int
    reused_bytes: int
    notes: list[str]


def copy(
    source: Archive,
    target: Archive,
    names: str | Iterable[str] | None = None,
    *,
    revision: int | None = None,
    to: str | None = None,
    if_exists: IfExists = "error",
    responses_only: bool = False,
    jobs: int = 8,
    progress: Report | None = None,
    done: Callable[[CopiedRecording], None] | None = None,
) -> Copied:
    """Copy recordings of ``source`` to ``target``: their newest revisions, or ``revision`` of the one named.

    ``names`` are names, or patterns with ``*``, ``?`` and ``[…]``; None stands for all. ``to`` renames one recording.
    With ``responses_only`` the bytes of requests and identities stay behind; their digests do not, so that the copy
    has the same content digest, replays, and says what it lacks.

    A recording that the target has is left alone. One of the same name that this one continues gets a new revision;
    any other is refused, and so is a copy that would bring back what was purged there, or lack requests that are there,
    unless ``if_exists`` is ``"replace"``: then it gets a new revision too, and its older ones stay. Of a recording that
    is being recorded its last finished revision is copied, if it has one.

    ``done`` is told of each recording that is done, in no order, from several threads one after another: what there is
    when the rest fails. ``jobs`` packs and recordings are under way at a time; ``progress`` is told how many
    recordings were looked at, then bytes, from several threads one after another. Memory: about 128 MiB of packs (or
    the largest one), 100 MiB for a recording that is packed anew, some 500 bytes for each of its frames.

    Raises `UsageError`, `RecordingNotFoundError`, `RecordingExistsError`, `ConflictError` (another writer came first),
    `FormatError` (the source is damaged), `StorageError`. What was committed before stays; packs may too.
    """
    check_number("jobs", jobs, "a number from 1 on", least=1)
    if if_exists not in ("error", "replace"):
        raise UsageError(f"if_exists={if_exists!r} is not 'error' or 'replace'")
    target.storage.require_writable("copy")
    patterns = [names] if isinstance(names, str) else None if names is None else list(names)
    explicit = patterns is not None and not any(map(is_pattern, patterns))
    chosen = names_of(source, patterns)
    for label, value in (("revision", revision), ("to", to)):
        if value is not None and (not explicit or len(chosen) != 1):
            raise UsageError(f"{label} is of one recording: name the one that is to be copied")
    if to is not None:
        check_name(to)
    policy = RESPONSES_ONLY if responses_only else WHOLE
    planner = Planner(source, target, policy, if_exists, refuse_open=explicit)
    with ThreadPoolExecutor(jobs, thread_name_prefix="replaypack-plan") as pool:
        try:
            plans = list(pool.map(lambda name: planner.plan(name, revision, to or name), chosen))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return _Copier(source, target, policy, plans, jobs, progress, done).run()


class _Publisher(Publisher):
    """Its packs go the way of all others, in the background."""

    def __init__(self, transfer: Transfer, plan: Plan, manifest: Manifest, policy: str, level: int) -> None:
        """``level`` is that of all frames that it is going to take over as they are; 0 where it is not known."""
        seed = b"copy" + bytes.fromhex(manifest.content_digest) + policy.encode()
        super().__init__(
            transfer.target,
            plan.to,
            # The same again in a second run: it makes the same packs.
            writer=renamed(digest(b"writer" + seed)[:8], transfer.target),
            mode="replace",
            template=manifest.content,
            base=None,
            revision=0,
            previous=None,
        )
        if level:
            self.compressor = Compressor(max(level, self.compressor.level))
            self.compressor.noted = level
        self._transfer = transfer
        #: Packs of the source on their way, and those that were made.
        self.waiting: list[Future[bool]] = []
        self.made: list[tuple[PackRef, Future[bool]]] = []

    def upload(self, ref: PackRef, data: bytes) -> None:
        self.made.append((ref, self._transfer.upload(ref, data)))


class _Copier:
    def __init__(
        self,
        source: Archive,
        target: Archive,
        policy: str,
        plans: list[Plan],
        jobs: int,
        progress: Report | None,
        tell: Callable[[CopiedRecording], None] | None,
    ) -> None:
        self._source = source
        self._target = target
        self._policy = policy
        self._plans = plans
        self._jobs = jobs
        self._report = progress
        self._tell = tell
        self._notes: list[str] = []
        self._lock = threading.Lock()
        self._rewriting = threading.Lock()
        roles = ("response",) if policy == RESPONSES_ONLY else None
        self._belonging = Belonging(source.storage, {plan.id for plan in plans if plan.id}, roles)
        self._missing: dict[str, bool] = {}
        self._sizes: dict[str, int] = {}
        self._reused: dict[str, int] = {}
        self._repacked: dict[str, int] = {}
        self._done = self._total = self._looked = 0

    def run(self) -> Copied:
        moving = [plan for plan in self._plans if plan.action == "copy"]
        storage = self._target.storage
        new = bool(moving) and self._mark()
        # Read before anything is looked for: what is not marked now stays for a whole grace period.
        self._marks = Marks() if new else read_marks(storage)
        with Transfer(self._source.storage, storage, jobs=self._jobs, new=new, moved=self._moved) as transfer:
            self._transfer = transfer
            for _ in self._each(self._look, moving):
                pass
            done = {found.name: found for found in self._each(self._copy, self._plans)}
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
        manifest = self._source.manifests.find(plan.name, plan.revision, fresh=False)
        with Recording(self._source.storage, plan.name, manifest, cache_bytes=_CACHE) as recording:
            if manifest.content_digest != plan.content_digest:
                raise ConflictError(f"{recording.locator} changed while it was copied", hint="copy again")
            yield recording

    def _packs(self, recording: Recording) -> list[PackRef]:
        """All packs that the recording's manifest needs."""
        found = packs_of(recording.manifest, self._source.storage)
        return [PackRef(name, self._size(name) if size is None else size) for name, size in found.items()]

    def _size(self, name: str) -> int:
        """The size of a pack that holds nothing but roots and lists: no manifest says it."""
        if name not in self._sizes:
            self._sizes[name] = len(self._source.storage.get(pack_key_of(name)))
        return self._sizes[name]

    def _level(self, name: str) -> int:
        """The level that a pack of the source says its frames have; 0 where it says none."""
        key = pack_key_of(name)
        try:
            level = check_header(self._source.storage.get_range(key, 0, len(HEADER)), where=key)
        except FormatError:
            return 0  # no frame lies there: those that do are checked
        return level if level <= _MAX_LEVEL else 0

    def _look(self, plan: Plan) -> None:
        """Find out which packs are missing, and which of them may be given away whole."""
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
                        self._total += ref.size if self._missing[ref.digest] else 0
            # Where bytes are withheld, packs that are there may have them too.
            asked = refs if self._policy == RESPONSES_ONLY else [ref for ref in refs if self._missing[ref.digest]]
            if asked:
                self._belonging.look(recording, asked)
        with self._lock:
            self._looked += 1
            if self._report is not None:
                total = sum(plan.action == "copy" for plan in self._plans)
                self._report(Progress(plan.name, "recordings", self._looked, total))

    def _copy(self, plan: Plan) -> CopiedRecording:
        signatures: dict[str, str] = {}
        copied = 0
        revision = plan.newest[0] if plan.action == "there" and plan.newest is not None else None
        note = plan.note
        if plan.action != "left out":
            signatures, copied, problem = self._sign(plan)
            note = note or problem
        if plan.action == "copy":
            with self._open(plan) as recording:
                revision = self._one(plan, recording)
            # Until the revision was there a collector might take them away.
            for key, to in signatures.items():
                try:
                    self._target.storage.get(to)
                except ObjectMissingError:
                    self._target.storage.put_new(to, self._source.storage.get(key))
        elif revision is not None:
            self._point(plan.to, revision)
        found = CopiedRecording(
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
        if self._tell is not None:
            with self._lock:
                self._tell(found)
        return found

    def _one(self, plan: Plan, recording: Recording) -> int:
        newest = plan.newest
        refs = {ref.digest: ref for ref in self._packs(recording)}
        for _ in range(_ATTEMPTS):
            section, named, relied = self._storage(plan, recording, refs)
            if self._gone(recording, refs, [*relied, *filter(self._transfer.long_ago, named)]):
                continue
            number = newest[0] + 1 if newest is not None else 1
            manifest = self._commit(plan, recording, section, number, newest[1] if newest is not None else None)
            # What was there may have been collected before the revision that names it was; or purged, whatever it is.
            if not self._gone(recording, refs, [*relied, *filter(self._transfer.doubtful, named)]):
                point_behind(self._target.storage, plan.to, manifest)
                return number
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
        publisher = _Publisher(self._transfer, plan, recording.manifest, self._policy, min(map(self._level, split)))
        with self._rewriting:  # one at a time: it takes the memory
            section = self._rewritten(recording, publisher, refs, missing, split)
        for future in publisher.waiting:
            future.result()
        found = [ref for ref, future in publisher.made if not future.result()]
        made = [ref for ref, _ in publisher.made]
        with self._lock:
            self._repacked.update({ref.digest: ref.size for ref in made})
        needed = {ref.digest for ref in section.packs} if not section.pack_pages else set(refs)
        staying = {name: refs[name] for name in refs if name in needed}
        return section, [*staying.values(), *made], [*self._note_reused(staying, missing), *found]

    def _rewritten(
        self,
        recording: Recording,
        publisher: _Publisher,
        refs: dict[str, PackRef],
        missing: Collection[str],
        split: Collection[str],
    ) -> StorageSection:
        own = self._belonging.own(recording)
        used = self._belonging.used(recording, own, lambda ref: ref.digest in split)

        sent: set[str] = set()

        def stay(frame: Frame) -> Fate:
            name = frame.pack.digest
            if name in missing and name not in sent:
                sent.add(name)
                publisher.waiting.append(self._transfer.send(refs[name]))
            return Fate.STAY

        def literal(entry: FrameEntry, frame: Frame) -> LiteralFate:
            if frame.pack.digest not in split:
                return stay(frame)
            if own(entry, frame.pack):
                return Fate.KEEP
            return used.between(entry.first, entry.first + entry.items)

        def record(_entry: FrameEntry, frame: Frame) -> Fate:
            return Fate.KEEP if frame.pack.digest in split else stay(frame)

        read = 0

        def progress(size: int) -> None:
            nonlocal read
            read += size
            self._moved(size)

        live = rewrite(
            recording,
            origin=publisher.origin,
            upload=publisher.upload,
            compressor=publisher.compressor,
            literal=literal,
            record=record,
            progress=progress,
        )
        publisher.lives = [live] if live is not None else []
        manifest = recording.manifest
        publisher.keep_summary(recording.storage, manifest)
        section = publisher.manifest(
            revision=1,
            cause="copy",
            state=manifest.content.state,
            progress=progress_of(manifest),
            error=manifest.content.error,
        ).storage
        # What of a pack was not needed counts as done.
        self._moved(max(0, sum(refs[name].size for name in split if name in missing) - read))
        return msgspec.structs.replace(
            section, tombstones=manifest.storage.tombstones, withheld=manifest.storage.withheld
        )

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
            raise FormatError("its content is not canonical", where=recording.locator)
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

    # Signatures

    def _sign(self, plan: Plan) -> tuple[dict[str, str], int, str | None]:
        """Copy the signatures of the content that is copied.

        Return the keys of those that are there now, here and there, how many were copied, and what was in the way.
        """
        storage, target = self._source.storage, self._target.storage
        try:
            listed = storage.list(f"recordings/{plan.name}/{plan.content_digest}.")
            found = [info for info in listed if signature_parts(plan.name, info.key) is not None]
        except (StorageUnsupportedError, AccessDeniedError):
            with self._lock:
                self._notes = [f"{storage.url} cannot be listed: signatures were not looked for"]
            return {}, 0, None
        keys = sorted(info.key for info in found if info.size <= MAX_ENVELOPE)
        there: dict[str, str] = {}
        copied, note = 0, None
        if len(keys) < len(found):
            note = f"signatures of more than {MAX_ENVELOPE} bytes were left out: no reader takes them"
        if len(keys) > MAX_OBJECTS:
            keys, note = keys[:MAX_OBJECTS], f"more than {MAX_OBJECTS} signatures: the others were left out"
        for key in keys:
            to = f"recordings/{plan.to}/{key.rpartition('/')[2]}"
            if _same(storage, target, key, to):
                if self._marks.has(to):
                    target.put(to, storage.get(key))  # written anew it is not marked any more
            else:
                try:
                    target.put_new(to, storage.get(key))
                    copied += 1
                except ObjectExistsError:
                    note = f"the destination has another signature {to}: it was left alone"
                    continue
            there[key] = to
        return there, copied, note


def _same(source: Storage, target: Storage, key: str, to: str) -> bool:
    try:
        return target.get(to) == source.get(key)
    except ObjectMissingError:
        return False
