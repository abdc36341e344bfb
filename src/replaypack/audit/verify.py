"""`verify`: every fault of a recording or an archive, listed; none of them stops the run.

A store that cannot be reached, or refuses the credentials, is no fault of the archive: then nothing can be said,
and the `StorageError` goes to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from replaypack._arguments import check_digest
from replaypack.errors import (
    DAMAGED,
    AccessDeniedError,
    FormatError,
    ObjectTooShortError,
    RecordingNotFoundError,
    StorageError,
    StorageUnsupportedError,
    UsageError,
)
from replaypack.format.manifest import Manifest, parse_manifest
from replaypack.format.names import revision_key

from ._faults import FAULTS, LEVELS, Fault, Level, Progress, Report, fault, manifest_fault
from ._packs import PackChecker
from ._revisions import check_revisions
from ._state import Resumed, State
from ._tables import Pages, check_tables
from ._unfinished import UNFINISHED
from ._unnamed import Unnamed

if TYPE_CHECKING:
    from replaypack.archive import Archive
    from replaypack.recording import Recording

__all__ = [
    "FAULTS",
    "LEVELS",
    "Fault",
    "Level",
    "Progress",
    "unexpected",
    "unopened",
    "verify_archive",
    "verify_recording",
    "verify_revisions",
]

_CACHE = 96 << 20


def verify_recording(recording: Recording, *, level: Level = "full", progress: Report | None = None) -> Iterator[Fault]:
    """Yield every fault of an opened recording, as it is found.

    ``level``: ``manifest`` (it parses and its digests agree), ``structure`` (every pack there with its size,
    tables in order and in agreement with the packs' tables of contents), ``frames`` (every byte of every pack read,
    every frame decompressed and checked), ``full`` (every row: leaf and Merkle root, key, payloads, and both
    indexes in both directions). Memory is bounded whatever the size of the recording.

    Raises `StorageError` where the store cannot be asked.
    """
    for found in _verify(recording, level, progress, PackChecker(recording.storage)):
        yield found._replace(recording=recording.name)


def _verify(recording: Recording, level: Level, progress: Report | None, packs: PackChecker) -> Iterator[Fault]:
    depth = _depth(level)
    manifest = recording.manifest
    try:
        parse_manifest(manifest.raw, where=recording.locator)
    except FormatError as error:  # pragma: no cover - opening it checked as much
        yield manifest_fault(error, recording.locator)
        return
    if depth == 0:
        return

    def report(stage: str) -> Callable[[int, int], None]:
        return _stage(recording.name, stage, progress)

    # What the rows are made of need not be read twice.
    hold = recording.index.hold if depth >= 3 else None
    yield from packs.check_all(recording.index.packs, frames=depth >= 2, progress=report("packs"), hold=hold)
    pages = Pages(recording.index, packs)
    yield from check_tables(manifest, pages, packs, report("tables"))
    if depth >= 3:
        from ._rows import RowChecker

        yield from RowChecker(recording, pages, packs, report("records")).run()


def _stage(name: str, stage: str, progress: Report | None) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(Progress(name, stage, done, total))

    return tell


def verify_revisions(archive: Archive, name: str) -> Iterator[Fault]:
    """Yield the faults of a recording's manifests: of each revision, of their chain, and of ``latest.json``.

    Where there is no listing (http, a bucket without the permission), what can be reached is ``latest.json`` and the
    revision that it repeats; a `ReplaypackWarning` says so. Raises `RecordingNotFoundError` and `StorageError`.
    """
    for item in check_revisions(archive, name):
        if isinstance(item, Fault):
            yield item._replace(recording=name)


def verify_archive(
    archive: Archive,
    names: Iterable[str] | None = None,
    *,
    listed: bool = False,
    level: Level = "full",
    revisions: bool = True,
    progress: Report | None = None,
    state: str | os.PathLike[str] | None = None,
    on_resume: Callable[[Resumed], None] | None = None,
    on_unnamed: Callable[[Unnamed], None] | None = None,
) -> Iterator[Fault]:
    """Yield every fault of the recordings named, of all by default; each `Fault` names its recording.

    A name of which there is no recording is a fault. Where ``names`` is a listing (``listed``; so by default) it was
    deleted since, and is left out; not, however, where the listing is a catalog.
    With ``revisions`` every revision that differs in content or storage is checked, not the newest alone. A pack
    that several of them use is checked once. Where all are checked, from ``structure`` on, packs that no manifest names
    are looked at too: what an interrupted purge left in them is a fault. Else they are none, a writer's or for `gc`;
    ``on_unnamed`` is told at the end how many ``packs`` with how many ``bytes`` there are. Where the store cannot be
    listed, it is not told.

    ``state`` is a file in which a run notes what it has checked, and which it removes at its end. After an
    interruption the same call goes on: it repeats the faults of recordings that were finished, and does not read
    again the packs that were sound *then* (it looks whether they are there, with their sizes, and their tables of
    contents). ``on_resume`` is told at the end how much that was. A recording that was not finished begins anew, but
    for its packs.

    Raises `UsageError` for a file that is something else or the state of another archive, `StorageError` where the
    store cannot be asked, `ObjectMissingError` where there is no archive at all: what was not checked must not look
    sound.
    """
    depth = _depth(level)
    if names is None:
        names, listed = list(archive.recordings()), True
        if not names:
            archive.require()
    kept = State(state, archive.url)
    packs = PackChecker(archive.storage, kept)
    whole = False
    try:
        for name in names:
            try:
                for found in _recording(archive, name, level, revisions, progress, packs, kept):
                    yield found if found.recording else found._replace(recording=name)
            except RecordingNotFoundError as error:
                if not (listed and _deleted(archive, name)):
                    yield fault("manifest.missing", name, str(error))._replace(recording=name)
        if listed and depth:
            with suppress(AccessDeniedError, StorageUnsupportedError):  # no listing
                unnamed = Unnamed(archive.storage, packs.named())
                yield from unnamed.faults()
                if on_unnamed is not None:
                    on_unnamed(unnamed)
        if on_resume is not None:
            on_resume(kept.resumed)
        whole = True
    finally:
        kept.close(whole=whole)


def _deleted(archive: Archive, name: str) -> bool:
    """Whether a listing has the recording no more; a catalog may be behind, and says nothing."""
    try:
        return name not in archive.manifests.listing(name)
    except (StorageUnsupportedError, AccessDeniedError):
        return False


def unexpected(
    archive: Archive, name: str, revision: int | None, *, content_digest: str | None, manifest_digest: str | None
) -> Iterator[Fault]:
    """Yield a fault for each digest (64 hex digits) that is not that of the recording; None is not compared.

    Raises `RecordingNotFoundError`, `StorageError`, `UsageError` for what is no digest.
    """
    check_digest("content", content_digest)
    check_digest("manifest", manifest_digest)
    if content_digest is None and manifest_digest is None:
        return
    label = name if revision is None else f"{name}@{revision}"
    try:
        manifest = archive.manifests.find(name, revision, fresh=False)
    except FormatError as error:
        yield fault("digest.unexpected", label, f"nothing can be compared: {error}")._replace(recording=label)
        return
    for what, wanted, digest in (
        ("content", content_digest, manifest.content_digest),
        ("manifest", manifest_digest, manifest.digest),
    ):
        if wanted is not None and wanted != digest:
            message = f"the {what} digest is {digest}, not the {wanted} that was expected"
            yield fault("digest.unexpected", f"{name}@{manifest.storage.revision}", message)._replace(recording=label)


def _once(
    recording: Recording, label: str, level: Level, progress: Report | None, packs: PackChecker, state: State
) -> Iterator[Fault]:
    """The faults of one revision, those that an earlier run found where that came to its end."""
    before = state.done(label, recording.manifest.digest, level)
    if before is not None:
        packs.lost.update(before.lost)
        packs.untold.update(before.untold)
        packs.bad_frames.update(before.bad_frames)
        bad = {digest for digest, _ in before.bad_frames}
        packs.seen([*before.lost, *before.untold, *(ref for ref in recording.index.packs if ref.digest in bad)], level)
        yield from before.faults
        if _depth(level) > 0:
            told = {(found.code, found.where) for found in before.faults}
            for found in packs.check_all(
                recording.index.packs, frames=False, progress=_stage(label, "packs", progress)
            ):
                if (found.code, found.where) not in told:
                    yield found._replace(recording=label)
        return
    lost, untold, frames = set(packs.lost), set(packs.untold), set(packs.bad_frames)
    faults = []
    for found in _verify(recording, level, progress, packs):
        faults.append(found._replace(recording=label))
        yield faults[-1]
    state.add_recording(
        label,
        recording.manifest.digest,
        level,
        faults,
        packs.lost - lost,
        packs.untold - untold,
        packs.bad_frames - frames,
    )


def _recording(
    archive: Archive,
    name: str,
    level: Level,
    revisions: bool,
    progress: Report | None,
    packs: PackChecker,
    state: State,
) -> Iterator[Fault]:
    manifests: list[Manifest] = []
    going: set[str] = set()
    for item in check_revisions(archive, name):
        if isinstance(item, Fault):
            yield item
            if item.code == UNFINISHED:
                going.add(item.where)
        else:
            manifests.append(item)
    newest: list[Recording] = []
    told: Fault | None = None
    try:
        newest = [archive.open(name, cache_bytes=_CACHE)]
    except RecordingNotFoundError:
        if not manifests:
            raise
    except DAMAGED as error:
        if not isinstance(error, FormatError) or "recordings/" not in (error.where or ""):
            told = unopened(error, name)
            yield told
        if not manifests:
            return
    seen: set[tuple[str, str]] = set()
    for recording in newest:
        seen.add(_identity(recording.manifest))
        yield from _once(recording, name, level, progress, packs, state)
        recording.close()
    for manifest in reversed(manifests if revisions or not newest else ()):
        if _identity(manifest) in seen or revision_key(name, manifest.storage.revision) in going:
            continue  # of one that a purge is to delete packs may be gone already
        seen.add(_identity(manifest))
        try:
            recording = archive.open(name, manifest.storage.revision, cache_bytes=_CACHE)
        except DAMAGED as error:
            found = unopened(error, f"{name}@{manifest.storage.revision}")
            if found != told:
                yield found
            continue
        except RecordingNotFoundError:
            continue  # collected since it was read
        yield from _once(recording, f"{name}@{manifest.storage.revision}", level, progress, packs, state)
        recording.close()
        if not revisions:
            break


def unopened(error: StorageError | FormatError, where: str) -> Fault:
    """Why a recording cannot be opened: its manifest, or a page with the list of its packs."""
    if isinstance(error, FormatError):
        code = "page.corrupted" if "packs/" in (error.where or "") else f"manifest.{error.reason}"
        return fault(code, error.where or where, error.detail)
    _, pack, key = (error.url or "").rpartition("packs/")
    code = "pack.size" if isinstance(error, ObjectTooShortError) else "pack.missing"
    return fault(code, pack + key or where, f"the list of packs cannot be read: {error}")


def _identity(manifest: Manifest) -> tuple[str, str]:
    """Two revisions that agree in this say the same of the same records in the same places."""
    storage = manifest.storage
    places = (storage.packs, storage.pack_pages, storage.segments, storage.literals, storage.inlines, storage.summary)
    return manifest.content_digest, repr((places, storage.tombstones, storage.withheld))


def _depth(level: str) -> int:
    if level not in LEVELS:
        raise UsageError(f"level {level!r} is not one of {', '.join(LEVELS)}")
    return LEVELS.index(level)
