"""What is left to do of a purge: which packs hold bytes of the records, who needs them, which manifests name them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from replaypack._escape import counted, ranges
from replaypack._read.packs import PackReader
from replaypack._write.intervals import Intervals
from replaypack.errors import ConflictError, ObjectMissingError, SharedBytesError, UsageError
from replaypack.format.manifest_members import PackRef
from replaypack.format.pack import FrameInfo, FrameKind, Toc

from ._inventory import Held, Inventory
from ._payload import Payload, Uses, is_zero, read_frame
from ._purge_target import Records, Target

__all__ = ["Plan", "Planner"]

#: Characters of a hint that lists what to purge as well.
_HINT = 2000


class Plan(NamedTuple):
    """What is to be done: recordings to rewrite, packs with bytes of the records, manifests and packs to delete."""

    rewrites: list[Held]
    bad: set[str]
    #: Records that take bytes of them, which therefore stay.
    shared: Records
    #: What each recording that was looked into has to do with the payload.
    uses: dict[str, Uses]
    manifests: list[Held]
    packs: list[str]
    #: Packs that hold frames of the recording, by their own table of contents; and record frames of the records.
    own: set[str]
    rows: set[str]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.rewrites or self.manifests or self.packs)


class _Packs(NamedTuple):
    """Packs that may hold bytes of the records, with their tables of contents; those that hold frames of the recording,
    and of these those with record frames of the records; those that some manifest names, or the newest of a
    recording."""

    suspicious: dict[str, Toc]
    own: set[str]
    rows: set[str]
    named: set[str]
    referenced: set[str]


class _Takers(NamedTuple):
    """What records need that stay: of frames, by their digests, (start, end); record frames with the very same rows,
    and packs with the pages of these."""

    uses: dict[str, Uses]
    shared: Records
    taken: dict[bytes, list[tuple[int, int]]]
    rows: set[bytes]
    pages: set[str]


class Planner:
    """Makes one plan after another, and remembers which packs were looked into."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._reader = PackReader(target.storage)
        #: Packs that hold nothing of the records, by what is known of those: so many frames.
        self._clean: set[str] = set()
        self._frames = 0
        #: Packs that name no recording and were looked into.
        self._explored: set[str] = set()

    def plan(self, inventory: Inventory, payload: Payload, deleted: Collection[str]) -> Plan:
        """What is to be done where the archive is as ``inventory``, and packs were ``deleted`` by plans before.

        Raises `SharedBytesError` where others take bytes of the records, `RecordingExistsError`, `ConflictError`,
        `FormatError`, `StorageError`.
        """
        target = self._target
        newest = inventory.newest()
        current = newest[target.name]
        _refuse_lost(newest.values(), deleted)
        # Whoever records it, or a sibling of it, may have uploaded packs that nothing names yet.
        for held in newest.values():
            if held.id == current.id and held.claim is not None:
                target.refuse_busy(inventory, held)
        packs = self._packs(inventory, newest, payload)
        takers = self._takers(inventory, newest, payload, packs)
        bad = self._bad(inventory, current, payload, packs, takers) | set(deleted)
        rewrites = [held for held in newest.values() if held.packs & bad]
        if target.has_records(current) and current not in rewrites:
            rewrites.append(current)
        rewrites.sort(key=lambda held: (held.name == target.name, held.name))
        self._refuse_unready(inventory, newest, rewrites, bad)
        going = self._going(inventory, newest, rewrites, bad)
        gone = {held.key for held in going}
        kept = {held.key for held in newest.values()}
        # A hint repeats a revision, and is written anew, but where it is all that there is.
        stay = (held for held in inventory.held if held.key not in gone and (held.kind != "latest" or held.key in kept))
        still = set().union(*(held.packs for held in stay))
        if target.dry_run:  # what is not bad stays where it is when they are written anew
            still = still.union(*(held.packs for held in rewrites)) - bad
        assert packs.referenced <= still | bad
        old = sorted(pack for pack in inventory.packs if pack in (bad | packs.own) and pack not in still)
        return Plan(rewrites, bad, takers.shared, takers.uses, going, old, packs.own, packs.rows)

    # Packs

    def _packs(self, inventory: Inventory, newest: dict[str, Held], payload: Payload) -> _Packs:
        """Look at the tables of contents of all packs, and into those that no table of the recording explains."""
        referenced = set().union(*(held.packs for held in newest.values()))
        named = set().union(*(held.packs for held in inventory.held))
        explained = set().union(*(held.packs for held in inventory.held if held.name == self._target.name))
        own: set[str] = set()
        rows: set[str] = set()
        suspicious: dict[str, Toc] = {}
        common: dict[str, Toc] = {}
        if self._frames != len(payload.spans):
            self._clean.clear()
        wanted = [pack for pack in inventory.packs if pack not in self._clean]
        for number, (pack, toc) in enumerate(inventory.tocs(wanted)):
            self._target.tell("packs", number, len(wanted))
            origins = {n for n, origin in enumerate(toc.origins) if origin.recording == payload.id}
            unexplained = bool(payload) and pack not in explained
            if any(info.origin in origins for info in toc.frames):
                own.add(pack)
                if any(_has_records(info, self._target.wanted) for info in toc.frames if info.origin in origins):
                    rows.add(pack)
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
            takers = (self._target.open(inventory, held) for held in newest.values() if held.packs & common.keys())
            payload.explore_common(
                self._reader, {PackRef(p, inventory.packs[p]): toc for p, toc in common.items()}, takers
            )
            self._explored |= common.keys()
            for pack, toc in common.items():
                if any(info.digest in payload.spans for info in toc.frames):
                    suspicious[pack] = toc
                    self._clean.discard(pack)
        self._frames = len(payload.spans)
        at_work = _at_work(inventory)
        for pack, toc in list(suspicious.items()):
            # What a recorder uploaded and did not name yet has bytes of its own records, and who they are is known
            # when it has: until then nobody may take them away.
            if pack not in named and pack not in own and at_work(toc):
                del suspicious[pack]
        return _Packs(suspicious, own, rows, named, referenced)

    def _takers(self, inventory: Inventory, newest: dict[str, Held], payload: Payload, packs: _Packs) -> _Takers:
        """Who needs bytes of the records; raises `SharedBytesError` where that is not permitted.

        Only recordings that name a pack with such bytes can.
        """
        target = self._target
        found = _Takers({}, {}, {}, set(), set())
        for name, held in newest.items():
            if not payload or not held.packs & packs.suspicious.keys():
                continue
            with target.open(inventory, held) as recording:
                own = name == target.name
                found.uses[name] = uses = payload.uses(recording, own=own)
                for frame, start, end in payload.taken(recording, uses):
                    found.taken.setdefault(frame, []).append((start, end))
                same = set() if own else payload.own_rows(recording)
                if same:
                    # It has the very same records, and keeps them: its pages say so.
                    found.rows.update(same)
                    found.pages.update(held.packs)
                if len(uses.taken) or same:
                    going = target.also.get(name, ())
                    staying = [seq for seq in payload.sharers(recording, uses, own=own) if seq not in going]
                    if staying:
                        found.shared[name] = staying
        if found.shared and not target.keep_shared:
            raise _shared_error(target, found.shared)
        return found

    def _bad(self, inventory: Inventory, current: Held, payload: Payload, packs: _Packs, takers: _Takers) -> set[str]:
        """The packs that hold something of the records that nobody needs."""
        bad: set[str] = set()
        if not payload:
            return bad
        keys = self._keys_that_go(inventory, current, payload)
        for pack, toc in packs.suspicious.items():
            ref = PackRef(pack, inventory.packs[pack])
            with _collected(pack not in packs.referenced):
                if self._is_bad(payload, ref, toc, takers, keys, pack in packs.named):
                    bad.add(pack)
        return bad

    def _keys_that_go(self, inventory: Inventory, current: Held, payload: Payload) -> set[bytes]:
        """Keys (16 bytes) of the records that no record has which stays."""
        going = set()
        with self._target.open(inventory, current) as recording:
            index = recording.index
            for key in payload.keys:
                entries = (entry.seq for _, entry, _ in index.entries(key))
                if all(seq in payload.seqs or seq in index.purged for seq in entries):
                    going.add(key)
        return going

    def _is_bad(
        self, payload: Payload, pack: PackRef, toc: Toc, takers: _Takers, keys: Collection[bytes], named: bool
    ) -> bool:
        pages = pack.digest not in takers.pages
        for info in toc.frames:
            of_it = pages and info.origin is not None and toc.origins[info.origin].recording == payload.id
            if of_it and info.digest in payload.pages:
                return True
            if info.digest in payload.row_frames and info.digest not in takers.rows:
                return True
            spans = payload.spans.get(info.digest)
            if spans is not None:
                gone = Uses(spans, Intervals(takers.taken.get(info.digest, ()))).gone(0, info.raw)
                # A payload may be zeros itself: then the frame is, and stays, what it is written anew as.
                if gone and not is_zero(read_frame(self._reader, pack, info), gone):
                    return True
            if of_it and named and info.kind == FrameKind.PAGE and payload.in_page(self._reader, pack, info, keys):
                return True
        return False

    # Manifests

    def _refuse_unready(
        self, inventory: Inventory, newest: dict[str, Held], rewrites: Iterable[Held], bad: Collection[str]
    ) -> None:
        """Raise where a recording that is to be written anew cannot be: somebody is at work on it, or was."""
        url = self._target.archive.url
        for held in rewrites:
            self._target.refuse_busy(inventory, held)
            if held.kind == "latest":
                raise ConflictError(
                    f"{url}#{held.name} is half deleted: only latest.json is left of its newest "
                    "revision, and names bytes that are to be purged",
                    hint=f"delete {held.name} (`replaypack rm`), and run it again",
                )
        for held in inventory.held:
            claim = newest.get(held.name)
            if (
                held.kind == "open"
                and not held.packs.isdisjoint(bad)
                and claim is not None
                and claim.revision == held.revision
                and claim.key != held.key
            ):
                self._target.refuse_busy(inventory, claim)
                raise UsageError(
                    f"{url}#{held.name} was being recorded anew, with bytes that are to be purged",
                    hint="finish it with `replaypack recover`, or delete it",
                )

    def _going(
        self, inventory: Inventory, newest: dict[str, Held], rewrites: Iterable[Held], bad: Collection[str]
    ) -> list[Held]:
        """The manifests that go: they have the records, or name a pack that goes. The newest is written anew."""
        target, id_ = self._target, newest[self._target.name].id
        kept = {held.key for held in newest.values()}
        going = [
            held
            for held in inventory.held
            if held.key not in kept
            and held.kind != "latest"
            and (
                not held.packs.isdisjoint(bad)
                or (held.name == target.name and held.id == id_ and target.has_records(held))
            )
        ]
        if target.dry_run:
            going += [held for held in rewrites if held.kind == "revision"]
        return going


def _has_records(info: FrameInfo, wanted: Sequence[int]) -> bool:
    """Whether it is a record frame in which one of the records (ascending) stands."""
    at = bisect_left(wanted, info.first)
    return info.kind == FrameKind.RECORD and at < len(wanted) and wanted[at] < info.first + info.count


def _at_work(inventory: Inventory) -> _AtWork:
    done = {held.writer for held in inventory.held if held.claim is None}
    claims = [held for held in inventory.held if held.claim is not None and held.writer not in done]
    return _AtWork(frozenset(held.writer for held in claims), frozenset(held.name for held in claims))


class _AtWork(NamedTuple):
    """Recorders that have not committed yet, and the names that they record."""

    writers: frozenset[str]
    names: frozenset[str]

    def __call__(self, toc: Toc) -> bool:
        """Whether a pack is of them alone."""
        return bool(toc.origins) and all(
            origin.writer.hex() in self.writers or origin.name in self.names for origin in toc.origins
        )


def _refuse_lost(newest: Iterable[Held], deleted: Collection[str]) -> None:
    """Raise `ConflictError` where somebody committed a revision that names packs which were deleted here."""
    lost = [held.where for held in newest if not held.packs.isdisjoint(deleted)]
    if lost:
        raise ConflictError(
            f"another writer named packs that were being deleted: {', '.join(lost)} cannot be read",
            hint="open the revision before, and delete this one; then run it again",
        )


@contextmanager
def _collected(may_be: bool) -> Iterator[None]:
    """Pass over a pack that is gone where nobody needs it any more: a collector was faster."""
    try:
        yield
    except ObjectMissingError:
        if not may_be:
            raise


def _shared_error(target: Target, shared: Records) -> SharedBytesError:
    parts = []
    for other, numbers in sorted(shared.items()):
        shown = ", ".join(map(str, numbers[:12])) + (f" and {len(numbers) - 12} more" if len(numbers) > 12 else "")
        parts.append(f"{shown} of {other}" if other != target.name else shown)
    total = sum(map(len, shared.values()))
    verb = "takes" if total == 1 else "take"
    return SharedBytesError(
        f"{counted(total, 'other record')} {verb} bytes of what is to be purged: {'; '.join(parts)}",
        shared={name: list(numbers) for name, numbers in sorted(shared.items())},
        hint=f"purge them too: {_with(target, shared)}; or let those bytes stay with keep_shared (--keep-shared)",
    )


def _with(target: Target, shared: Records) -> str:
    """The options of the command that purges those as well."""
    wanted: dict[str, set[int]] = {target.name: set(target.wanted)}
    for records in (target.also, shared):
        for name, numbers in records.items():
            wanted.setdefault(name, set()).update(numbers)
    listed = {name: ",".join(ranges(sorted(numbers))) for name, numbers in wanted.items()}
    text = f"--records {listed.pop(target.name)}"
    text += "".join(f" --also {name}={numbers}" for name, numbers in sorted(listed.items()))
    return text if len(text) <= _HINT else "a dry run with keep_shared lists them"
