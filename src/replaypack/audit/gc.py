"""`gc`: what no kept manifest refers to any more, deleted once it has been like that for a whole grace period.

Interrupted anywhere, it leaves a sound archive, and another run goes on. Times are the store's: when it says that
objects were written, ``gc.json`` of this very run included, so that the clocks of machines do not count.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from replaypack._write.journal import journal_directory, writers_of
from replaypack._write.revisions import heal_latest
from replaypack.errors import (
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
    StorageFullError,
    UsageError,
)
from replaypack.format.dsse import MAX_ENVELOPE
from replaypack.format.manifest import parse_manifest
from replaypack.format.marks import MARKS
from replaypack.format.names import (
    MARKER,
    latest_key,
    manifest_parts,
    pack_of_key,
    revision_key,
    sibling_name,
    signature_of,
)
from replaypack.storage import ObjectInfo

from ._faults import Progress, Report
from ._gc_marks import MarksFile, holds
from ._inventory import common_packs
from ._keep import Keep, superseded
from ._survey import Seen, Survey, Unreadable, each, survey

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Amount", "Collected", "Unreadable", "gc"]

#: A revision younger than this (seconds) may be one that its writer is about to point to.
_POINTED = 3600.0
#: What a collector has nothing to say about, besides manifests, signatures and packs.
_KNOWN = re.compile(rf"{re.escape(MARKER)}|{re.escape(MARKS)}|catalog\.json\.zst|recovery\.json|journal/.*")
#: Bytes of signatures that are held until it is sure that they may go.
_HELD = 16 << 20


class Amount(NamedTuple):
    """How many objects, and their bytes."""

    objects: int = 0
    bytes: int = 0

    def plus(self, size: int) -> Amount:
        """One object more."""
        return Amount(self.objects + 1, self.bytes + size)


class Collected(NamedTuple):
    """What `gc` deleted, or (``applied`` false) would delete now.

    ``removed`` by kind: ``revisions``, ``claims`` (with their checkpoints), ``packs``, ``signatures``, ``leftovers``
    (temporary files of writers that were killed). ``waiting``: unreferenced, and not for long enough; ``next`` is when
    the first of them may go (seconds since the epoch; None for none). ``kept``: packs that kept manifests refer to.
    ``unknown``: objects that are none of an archive, left alone. ``unreadable``: manifests that cannot be read; where
    there are any, nothing was deleted, since nobody can say what they refer to.
    """

    applied: bool
    removed: dict[str, Amount]
    kept: Amount
    waiting: Amount
    next: float | None
    unknown: Amount
    unreadable: list[Unreadable]

    @property
    def total(self) -> Amount:
        """All of ``removed`` together."""
        return Amount(*map(sum, zip(*self.removed.values(), strict=True)))


def gc(
    archive: Archive,
    *,
    keep_last: int | None = None,
    keep_within: timedelta | None = None,
    grace: timedelta = timedelta(days=7),
    apply: bool = False,
    progress: Report | None = None,
) -> Collected:
    """Delete what nothing in the archive needs; only say what that is unless ``apply`` is true.

    Kept are the committed revisions of every recording (with ``keep_last`` the newest of each, a number from 1 on;
    with ``keep_within`` those made since then; with both, those that either keeps; the newest in any case), what
    recorders that are at work have claimed and published, and every pack that one of these refers to. A pack goes
    when it was seen unreferenced by a run of `gc` at least ``grace`` ago, has not been written again since, and is
    unreferenced still: the first run that sees it marks it only. With a ``grace`` of zero it goes at once: for those
    who know that nobody writes.

    Where there is no space left to note that, packs go first that earlier runs marked long enough ago, by the time of
    the newest object.

    ``latest.json`` of a recording is written again where it is missing or behind: at the end of a run, and where the
    newest revision is an hour old, or as old as ``grace``.

    A recording pinned elsewhere (``URL#name@3``, a manifest digest noted in a paper) is not known here: keep all
    revisions, or those.

    Raises `UsageError`; `ReadOnlyStorageError`; `ConflictError` where another collector is at work;
    `ObjectMissingError` where there is no archive; `StorageUnsupportedError` where there is no listing,
    `StorageError` where the store fails: what is left can be collected by another run.
    """
    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise UsageError(f"keep_last is a number of revisions from 1 on, not {keep_last!r}")
    for label, span in (("keep_within", keep_within), ("grace", grace)):
        if span is not None and (not isinstance(span, timedelta) or span < timedelta()):
            raise UsageError(f"{label} is a timedelta that is not negative, not {span!r}")
    if apply:
        archive.storage.require_writable("gc")
    if next(iter(archive.storage.list("recordings/")), None) is None:
        archive.require()
    return _Collector(archive, keep_last, keep_within, grace.total_seconds(), progress).run(apply)


class _Collector:
    def __init__(
        self, archive: Archive, last: int | None, within: timedelta | None, grace: float, progress: Report | None
    ) -> None:
        self._archive = archive
        self._storage = archive.storage
        self._last = last
        self._within = within
        self._grace = grace
        self._progress = progress
        self._marks = MarksFile(archive.storage)
        self._removed = dict.fromkeys(("revisions", "claims", "packs", "signatures", "leftovers"), Amount())
        self._unknown = Amount()
        self._packs: dict[str, ObjectInfo] = {}
        self._candidates: dict[str, ObjectInfo] = {}

    def run(self, apply: bool) -> Collected:
        since = self._marks.since()
        # Before anything else: when this object was written is what time it is.
        now = self._write_marks(since) if apply else max(time.time(), self._marks.written)
        first = survey(self._archive, None, now if apply else None, self._progress)
        if first.unreadable:
            return self._result(False, first, now, since, first.unreadable)
        gone = self._drop(first, now, apply)
        listed = list(self._storage.list())
        last = first._replace(seen={key: item for key, item in first.seen.items() if key not in gone})
        if apply:
            last = survey(self._archive, last, now, self._progress)
            if last.unreadable:
                return self._result(True, last, now, since, last.unreadable)
        self._sort(listed, last)
        since = {key: moment for key, moment in since.items() if self._marked(key, moment)}
        if apply:
            now = self._write_marks(since, self._candidates.keys() - since.keys())
            since = self._marks.since()
        ripe = {key: info for key, info in self._candidates.items() if self._is_ripe(key, since, now)}
        if apply and ripe:
            # Read after the time was: whoever did not see the marks has committed by now.
            last = survey(self._archive, last, now, self._progress)
            if last.unreadable:
                return self._result(True, last, now, since, last.unreadable)
            references, contents = last.references, last.contents
            ripe = {key: info for key, info in ripe.items() if not _referenced(key, references, contents)}
        self._delete(ripe, apply, last)
        for info in self._storage.leftovers(now - self._grace, delete=apply):
            self._count("leftovers", info.size)
        for key in ripe:
            del self._candidates[key]
        if apply and ripe:
            self._write_marks({key: moment for key, moment in since.items() if key in self._candidates})
        if apply:
            self._heal(last, now)
        return self._result(apply, last, now, since, [])

    # Marks

    def _write_marks(self, since: dict[str, float], new: Iterable[str] = ()) -> float:
        """Write ``gc.json``, after making room for it where there is none; return when that was."""
        try:
            return self._marks.write(since, new)
        except StorageFullError as error:
            if not self._make_room():
                error.hint = (
                    "gc notes what it sees before it deletes: free a few kilobytes, or, where nobody writes, give it a "
                    "grace of zero (--grace 0)"
                )
                raise
        return self._marks.write(since, new)

    def _make_room(self) -> bool:
        """Delete, where nothing can be written, packs that are ripe by the marks that are there; whether any was.

        It is later than the newest object is old, which is all that is known of the time then.
        """
        listed = list(self._storage.list())
        newest = max((info.modified for info in listed if info.modified is not None), default=0.0)
        now, since = min(newest, time.time()), self._marks.since()
        # Read after the time was, as in a run.
        found = survey(self._archive, None, None, self._progress)
        if found.unreadable:
            return False
        self._marks.refuse_another()
        references = found.references
        ripe = {
            info.key: info
            for info in listed
            if pack_of_key(info.key) is not None
            and not _referenced(info.key, references, set())
            and (self._grace == 0 or holds(info, since.get(info.key)))
            and self._is_ripe(info.key, since, now)
        }
        self._delete(ripe, True, found)
        return bool(ripe)

    def _marked(self, key: str, moment: float) -> bool:
        """Whether a mark still holds: the object is a candidate, and was not written again since."""
        info = self._candidates.get(key)
        return info is not None and holds(info, moment)

    def _is_ripe(self, key: str, since: dict[str, float], now: float) -> bool:
        if self._grace == 0:
            return True
        return key in since and now - since[key] >= self._grace

    # Manifests

    def _drop(self, found: Survey, now: float, apply: bool) -> set[str]:
        """Delete the manifests that are not kept; return their keys."""
        keep = Keep(self._last, None if self._within is None else now - self._within.total_seconds())
        journals = writers_of(journal_directory(self._storage))
        plan: list[tuple[str, list[Seen]]] = []
        ordered = sorted(found.seen.values(), key=lambda item: item.name)
        for name, items in groupby(ordered, key=lambda item: item.name):

            def has_sibling(writer: str, name: str = name) -> bool:
                sibling = found.seen.get(revision_key(sibling_name(name, writer), 1))
                return sibling is not None and sibling.writer == writer

            going = superseded(list(items), keep, journals, has_sibling)
            if going:
                plan.append((name, going))
        gone: set[str] = set()

        def drop(item: tuple[str, list[Seen]]) -> list[Seen]:
            name, going = item
            if not apply:
                return going
            newest = self._newest(name)
            allowed = [manifest for manifest in going if manifest.number < newest]
            for manifest in allowed:
                self._storage.delete(manifest.key)
            return allowed

        for dropped in each(drop, plan, lambda done: self._tell("superseded", done, len(plan))):
            for manifest in dropped:
                gone.add(manifest.key)
                kind = "claims" if manifest.cause in ("claim", "checkpoint") else "revisions"
                self._count(kind, manifest.info.size)
        return gone

    def _newest(self, name: str) -> int:
        """The revision that ``latest.json`` names now; 0 where that cannot be told."""
        key = latest_key(name)
        try:
            return parse_manifest(self._storage.get(key), where=key).storage.revision
        except (ObjectMissingError, FormatError):
            return 0

    def _heal(self, found: Survey, now: float) -> None:
        """Write ``latest.json`` where a writer that was killed did not.

        Not before that writer must have: whoever commits relies on the revision before, until it is pointed past.
        """
        newest: dict[str, Seen] = {}
        pointed: dict[str, int] = {}
        for item in found.seen.values():
            if item.kind == "latest":
                pointed[item.name] = item.number
            elif item.kind == "revision" and (item.name not in newest or newest[item.name].number < item.number):
                newest[item.name] = item
        for name, item in newest.items():
            written = item.created if item.info.modified is None else item.info.modified
            if pointed.get(name, 0) < item.number and written <= now - min(self._grace, _POINTED):
                manifest = self._archive.manifests.newest(name, fresh=True)
                if manifest is None or manifest.storage.revision != item.number:
                    continue
                # The next compaction looks whether all that were compacted with it are there.
                if manifest.storage.cause != "compact" or not common_packs(self._storage, manifest):
                    heal_latest(self._storage, name, manifest)

    # Objects

    def _sort(self, listed: list[ObjectInfo], found: Survey) -> None:
        references, contents = found.references, found.contents
        for info in listed:
            if pack_of_key(info.key) is not None:
                self._packs[info.key] = info
            elif signature_of(info.key) is None:
                if manifest_parts(info.key) is None and not _KNOWN.fullmatch(info.key):
                    self._unknown = self._unknown.plus(info.size)
                continue
            if not _referenced(info.key, references, contents):
                self._candidates[info.key] = info

    def _delete(self, ripe: dict[str, ObjectInfo], apply: bool, found: Survey) -> None:
        groups = [
            (directory, list(keys))
            for directory, keys in groupby(sorted(ripe), key=lambda key: key.rpartition("/")[0] + "/")
        ]
        done = 0
        held: dict[str, bytes] = {}
        for directory, keys in groups:
            # Looked at again right before: who writes an object anew gives it a time of its own.
            now_there = {info.key: info for info in self._storage.list(directory)} if apply else ripe
            same = [key for key in keys if key in now_there and now_there[key].modified == ripe[key].modified]
            for key in same:
                self._count("packs" if key.startswith("packs/") else "signatures", ripe[key].size)
            if apply and directory.startswith("packs/"):
                for _ in each(self._storage.delete, same):
                    pass
            elif apply:
                for key, data in zip(same, each(lambda key: self._take(key, ripe[key]), same), strict=True):
                    if data:
                        held[key] = data
                    if sum(map(len, held.values())) > _HELD:
                        self._put_back(held, found)
            done += len(keys)
            self._tell("deleting", done, len(ripe))
        self._put_back(held, found)

    def _take(self, key: str, info: ObjectInfo) -> bytes:
        """Delete a signature; return it, or nothing where it cannot be one."""
        data = b""
        with suppress(ObjectMissingError):
            if info.size <= MAX_ENVELOPE:
                data = self._storage.get(key)
        self._storage.delete(key)
        return data

    def _put_back(self, held: dict[str, bytes], found: Survey) -> None:
        """Put signatures back whose content came meanwhile: unlike packs they have no other name to come under.

        Who committed it before now may have found them still there; who does so later finds that they are not.
        """
        if not held:
            return
        last = survey(self._archive, found, found.time, self._progress)
        for key, data in held.items():
            if last.unreadable or _referenced(key, set(), last.contents):
                with suppress(ObjectExistsError):
                    self._storage.put_new(key, data)
                    before = self._removed["signatures"]
                    self._removed["signatures"] = Amount(before.objects - 1, before.bytes - len(data))
        held.clear()

    def _count(self, kind: str, size: int) -> None:
        self._removed[kind] = self._removed[kind].plus(size)

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(Progress(self._archive.url, stage, done, total))

    def _result(
        self,
        applied: bool,
        found: Survey,
        now: float,
        since: dict[str, float],
        unreadable: list[Unreadable],
    ) -> Collected:
        references = found.references
        kept = waiting = Amount()
        for key, info in self._packs.items():
            if _referenced(key, references, set()):
                kept = kept.plus(info.size)
        for info in self._candidates.values():
            waiting = waiting.plus(info.size)
        ends = [since.get(key, now) + self._grace for key in self._candidates]
        return Collected(applied, self._removed, kept, waiting, min(ends, default=None), self._unknown, unreadable)


def _referenced(key: str, references: set[bytes], contents: set[tuple[str, str]]) -> bool:
    pack = pack_of_key(key)
    if pack is not None:
        return bytes.fromhex(pack) in references
    signature = signature_of(key)
    return signature is None or (signature.name, signature.content) in contents
