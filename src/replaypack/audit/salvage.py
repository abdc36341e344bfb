"""`salvage`: an archive anew out of what is whole of a damaged one (spec section 4.9).

The source is read and never written. Frames are found by scanning, whatever the objects are called; manifests that
are sound say what they belong to, else the packs' tables of contents do. All that can be read is recorded again in
another place, and that is verified.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from replaypack._write.claim import mark
from replaypack.archive import nearby
from replaypack.canonical import canonical_json
from replaypack.errors import ObjectMissingError, StorageError, UsageError
from replaypack.format.digests import digest
from replaypack.format.names import MARKER
from replaypack.format.recipe import BLOB_LIMIT

from ._faults import Fault, Progress, Report
from ._salvage_catalog import Catalog, Damage
from ._salvage_objects import Objects
from ._salvage_plan import Salvager
from ._salvage_target import Target

if TYPE_CHECKING:
    from replaypack.archive import Archive
    from replaypack.storage import Storage

__all__ = ["Lost", "Salvage", "SalvagedRecording", "salvage"]

#: The object that says what a salvage did, beside what it made.
REPORT = "recovery.json"


class Lost(NamedTuple):
    """Something that is not in the result. ``first`` and ``last`` are sequence numbers in the source.

    ``what``: ``records`` (nothing of them is left), ``request``, ``identity``, ``response`` (of records that are kept
    without them), ``manifest`` (metadata, policies and state are unknown), ``unknown`` (what bytes of a pack were).
    """

    recording: str
    what: Literal["records", "request", "identity", "response", "manifest", "unknown"]
    first: int | None
    last: int | None
    reason: str


class SalvagedRecording(NamedTuple):
    """A recording in the result. ``exact``: all of ``source`` (a content digest), and it has the same content digest.

    ``source`` is None where there was no manifest. ``purged`` records were removed on purpose before.
    """

    name: str
    revision: int
    records: int
    content_digest: str
    source: str | None
    exact: bool
    purged: int


class Salvage(NamedTuple):
    """What `salvage` did: recordings made, what is lost, where the source is damaged, faults of the result."""

    recordings: list[SalvagedRecording]
    lost: list[Lost]
    damage: list[Damage]
    faults: list[Fault]
    notes: list[str]

    @property
    def whole(self) -> bool:
        """Whether nothing is lost, and the result is sound."""
        return not self.lost and not self.faults


def salvage(
    source: Storage, target: Archive, *, progress: Report | None = None, blob_limit: int = BLOB_LIMIT
) -> Salvage:
    """Make an archive anew in ``target`` of what is whole in ``source``: an archive, or any directory of packs.

    ``target`` is empty, or was begun by an earlier run of the same source, which is gone on with. A recording of
    which nothing is lost has the same content digest there. Of others the records that are left are numbered anew in
    their order, and state (``incomplete``), ``error`` and ``derived_from`` say so. A record whose request is lost
    keeps its response, and answers; one whose response is lost stays, and answers nothing. Recordings without a
    manifest get the name that their packs hint at. Payloads over ``blob_limit`` bytes are taken where they are in
    proportion to the bytes that they are made of.

    Memory is bounded; a database in a temporary file holds a few hundred bytes for each frame of the source.

    Raises `UsageError` (the target is the source, or in use), `ObjectMissingError` (there is no such source),
    `StorageError`, `ConflictError` (the target holds another result).
    """
    report = progress or _quiet
    _check(source, target)
    objects = Objects(source)
    listed = list(objects.list())  # before anything is written: what there is none of leaves nothing behind
    mine = {"format": "replaypack-recovery", "source": digest(source.url.encode()).hex(), "version": 1}
    _begin(target, mine)
    catalog = Catalog(objects)
    try:
        total, done = sum(size for _, size in listed), 0
        for key, size in listed:
            report(Progress("", "objects", done, total))
            if key != REPORT:
                catalog.add(key, size)
            done += size
        made = Target(target, objects, [key for key, _ in listed], report, blob_limit)
        Salvager(catalog, made, report, blob_limit).run()
        damage = [*catalog.damage]
        damage += [Damage(key, offset, length, "the disk gave no bytes") for key, offset, length in objects.unreadable]
        recordings = [SalvagedRecording(*item) for item in made.made]
        lost = [Lost(*item) for item in made.lost]
        notes = made.notes
    finally:
        catalog.close()
    if any(key.startswith("journal/") for key in _journals(source)):
        notes.append("there are journals: `replaypack recover URL` finishes what their recorders left")
    faults = list(target.verify(progress=progress)) if recordings else []
    result = Salvage(recordings, lost, damage, faults, notes)
    if not (recordings or lost or damage):
        # A source of another name may be meant, and its place is to be as empty as it was.
        for key in (REPORT, MARKER):
            target.storage.delete(key)
        return result
    target.storage.put(REPORT, canonical_json({**mine, "done": True, **_plain(result)}))
    return result


def _quiet(progress: Progress) -> None:
    """Nobody listens."""


def _plain(result: Salvage) -> dict[str, Any]:
    return {
        "recordings": [item._asdict() for item in result.recordings],
        "lost": [item._asdict() for item in result.lost],
        "faults": [item._asdict() for item in result.faults],
    }


def _check(source: Storage, target: Archive) -> None:
    """Refuse a source that is not there, and a target that is the source, or lies in it, or the reverse."""
    a, b = source.local_path, target.storage.local_path
    if a is not None and not os.path.isdir(a):
        raise ObjectMissingError(f"there is no directory {source.url}", hint=nearby(source))
    if a is not None and b is not None:
        one, other = Path(a).resolve(), Path(b).resolve()
        same = one == other or one in other.parents or other in one.parents
    else:
        one_url, other_url = source.url.rstrip("/") + "/", target.url.rstrip("/") + "/"
        same = one_url.startswith(other_url) or other_url.startswith(one_url)
    if same:
        raise UsageError(
            f"{target.url} is where the damaged archive lies, or in it",
            hint="nothing is written there: give another place",
        )


def _begin(target: Archive, mine: dict[str, Any]) -> None:
    try:
        found = msgspec.json.decode(target.storage.get(REPORT))
        theirs = {name: found.get(name) for name in mine} if isinstance(found, dict) else {}
    except ObjectMissingError:
        theirs = None
    except msgspec.DecodeError:
        theirs = {}
    if theirs is None:
        there = next(iter(target.storage.list("")), None)
        if there is not None:
            raise UsageError(
                f"{target.url} is not empty: there is {there.key}", hint="recover into a place where there is nothing"
            )
    elif theirs != mine:
        raise UsageError(f"{target.url} holds what was recovered of something else", hint="give another place")
    target.storage.put(REPORT, canonical_json({**mine, "done": False}))
    mark(target.storage)


def _journals(source: Storage) -> Iterator[str]:
    if source.local_path is not None:
        try:
            yield from (f"journal/{path.name}" for path in (source.local_path / "journal").glob("*.rpj"))
        except OSError:  # pragma: no cover
            return
        return
    try:
        yield from (info.key for info in source.list("journal/"))
    except StorageError:  # pragma: no cover
        return
