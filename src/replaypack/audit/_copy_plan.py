"""What `copy` is going to do: which recordings, which revisions of them, and whether anything is in the way."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

from replaypack._read.references import packs_of
from replaypack._write.claim import refuse_case_twin, refuse_claimed
from replaypack.errors import (
    DAMAGED,
    RecordingExistsError,
    RecordingNotFoundError,
    ReplaypackError,
    UsageError,
    without_frames,
)
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import Storage as StorageSection
from replaypack.format.names import check_name, revision_key
from replaypack.recover import finish_leftover

from ._copy_purged import purged_records
from ._survey import each
from ._transfer import Damaged, has_pack, reading

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = [
    "RESPONSES_ONLY",
    "WHOLE",
    "IfExists",
    "Plan",
    "Planner",
    "is_pattern",
    "names_of",
    "withheld_by",
]

IfExists = Literal["error", "replace"]
#: What of a recording is taken: all of it, or what replay needs.
WHOLE, RESPONSES_ONLY = "whole", "responses-only"
_WITHHELD = ["identity", "request"]


def is_pattern(name: str) -> bool:
    """Whether ``name`` stands for several: names have none of these characters."""
    return isinstance(name, str) and re.search(r"[*?[]", name) is not None


def names_of(source: Archive, patterns: list[str] | None) -> list[str]:
    """The recordings that are named, each once, in order."""
    if patterns is not None and not any(map(is_pattern, patterns)):
        return list(dict.fromkeys(map(check_name, patterns)))
    known = list(source.recordings())
    if patterns is None:
        if not known:
            source.require()
        return known
    found: dict[str, None] = {}
    for pattern in patterns:
        matching = (
            [name for name in known if fnmatchcase(name, pattern)] if is_pattern(pattern) else [check_name(pattern)]
        )
        if not matching:
            raise RecordingNotFoundError(f"no recording of {source.url} matches {pattern!r}")
        found.update(dict.fromkeys(matching))
    return list(found)


class Plan(NamedTuple):
    """One recording: the revision to copy, and what the destination has of that name (revision, manifest digest).

    ``purged`` are the records of it that were purged; ``anew`` says that the destination has no state of this recording
    under that name; ``error`` is why it has ``failed``.
    """

    name: str
    to: str
    action: Literal["copy", "there", "left out", "failed"]
    revision: int | None
    id: bytes
    content_digest: str | None
    records: int
    newest: tuple[int, str] | None
    note: str | None
    purged: frozenset[tuple[int, str]] = frozenset()
    anew: bool = False
    error: ReplaypackError | None = None


class Planner:
    """Finds out what to do of each recording, and whether anything is in the way, before anything moves.

    Those in ``named`` were asked for by their names: they have to be there.
    """

    def __init__(
        self,
        source: Archive,
        target: Archive,
        policy: str,
        if_exists: IfExists,
        *,
        named: Collection[str],
        refuse_open: bool,
    ) -> None:
        self._source = source
        self._target = target
        self._policy = policy
        self._if_exists = if_exists
        self._named = named
        self._refuse_open = refuse_open

    def plan(self, name: str, revision: int | None, to: str) -> Plan:
        """What to do of one recording. Raises what is in the way, but for damage of the recording in the source."""
        try:
            return self._plan(name, revision, to)
        except Damaged as damage:
            return Plan(name, to, "failed", None, b"", None, 0, None, None, error=without_frames(damage).error)

    def _plan(self, name: str, revision: int | None, to: str) -> Plan:
        manifest: Manifest | None
        note = None
        with reading():
            manifest = self._find(name, revision)
            if manifest.content.state == "open":
                manifest, note = self._finished(name, manifest, revision)
        if manifest is None:
            return Plan(name, to, "left out", None, b"", None, 0, None, note)
        refuse_case_twin(self._target.storage, to)
        finish_leftover(self._target, to, "error")
        newest = self._target.manifests.newest(to, fresh=True)
        refuse_claimed(self._target.storage, to, newest)
        action: Literal["copy", "there"] = "copy"
        if newest is not None and (newest.content.records or newest.content.state != "open"):
            with reading():
                action = self._compare(name, to, manifest, newest)
        return Plan(
            name,
            to,
            action,
            manifest.storage.revision,
            bytes.fromhex(manifest.content.id),
            manifest.content_digest,
            manifest.content.records,
            (newest.storage.revision, newest.digest) if newest is not None else None,
            note,
            purged_records(manifest.storage),
            newest is None or newest.content.id != manifest.content.id,
        )

    def _find(self, name: str, revision: int | None) -> Manifest:
        try:
            return self._source.manifests.find(name, revision, fresh=True)
        except RecordingNotFoundError as error:
            if name in self._named:
                raise
            raise Damaged(error) from error  # deleted since it was listed, or nothing of it can be read

    def _finished(self, name: str, manifest: Manifest, revision: int | None) -> tuple[Manifest | None, str]:
        """The last finished revision of a recording that is being recorded."""
        if revision is None:
            for older in self._older(name, manifest):
                if older.content.state != "open":
                    number = older.storage.revision
                    return older, f"it is being recorded; copied is revision {number}, the last that is finished"
        if revision is not None:
            raise UsageError(
                f"revision {revision} of {self._source.url}#{name} says that recording began: it is not finished",
                hint="`replaypack log` lists the revisions; one is copied that is sealed or incomplete",
            )
        if self._refuse_open:
            raise UsageError(
                f"{self._source.url}#{name} is still being recorded",
                hint="copy it when it is sealed, or finish it with `replaypack recover`",
            )
        return None, "it is still being recorded"

    def _older(self, name: str, manifest: Manifest) -> Iterator[Manifest]:
        for number in range(manifest.storage.revision, 0, -1):
            older = self._source.manifests.get(revision_key(name, number))
            if older is not None:
                yield older

    def _compare(self, name: str, to: str, manifest: Manifest, newest: Manifest) -> Literal["copy", "there"]:
        """What to do where the destination has a recording of that name."""
        there = newest.storage
        purged, purged_there = purged_records(manifest.storage), purged_records(there)
        withheld, withheld_there = set(withheld_by(manifest.storage, self._policy)), set(there.withheld)
        same = newest.content_digest == manifest.content_digest
        settled = same and purged == purged_there and withheld_there <= withheld
        if self._if_exists == "replace":
            return "there" if settled and self._has_packs(newest) else "copy"
        if settled:
            return "there"
        where = f"{self._target.url}#{to}"
        if not same and not self._continues(name, manifest, newest):
            raise RecordingExistsError(
                f"{where} is another recording, or went on by itself",
                hint="copy to another name (DST#name), or give it a new revision with --if-exists replace",
            )
        # What was purged or is there whole is so in what the recording has become, too.
        if not purged_there <= purged:
            raise RecordingExistsError(
                f"{where} has records that were purged there, and not in {self._source.url}",
                hint="purge them in the source too; --if-exists replace brings them back",
            )
        if not withheld <= withheld_there:
            raise RecordingExistsError(
                f"{where} has requests that the copy would lack",
                hint="copy all of it, or responses only to another name (DST#name); "
                "--if-exists replace adds a revision that lacks them",
            )
        return "copy"

    def _has_packs(self, newest: Manifest) -> bool:
        """Whether all packs are there that what the destination has names."""
        storage = self._target.storage
        try:
            found = packs_of(newest, storage)
        except DAMAGED:
            return False
        return all(each(lambda item: has_pack(storage, *item), list(found.items())))

    def _continues(self, name: str, manifest: Manifest, newest: Manifest) -> bool:
        """Whether the destination has an older state of this very recording."""
        if manifest.content.id != newest.content.id:
            return False
        if newest.content_digest in (manifest.content.extends, manifest.content.derived_from):
            return True
        copied = newest.storage.source
        return any(
            older.content_digest == newest.content_digest or (copied is not None and older.digest == copied.manifest)
            for older in self._older(name, manifest)
        )


def withheld_by(storage: StorageSection, policy: str) -> list[str]:
    """What a copy lacks."""
    return sorted({*storage.withheld, *(_WITHHELD if policy == RESPONSES_ONLY else ())})
