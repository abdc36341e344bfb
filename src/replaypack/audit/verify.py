"""`verify`: every fault of a recording or an archive, listed; none of them stops the run.

A store that cannot be reached, or refuses the credentials, is no fault of the archive: then nothing can be said,
and the `StorageError` goes to the caller.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from replaypack.errors import (
    AccessDeniedError,
    FormatError,
    ObjectMissingError,
    ObjectTooShortError,
    RecordingNotFoundError,
    ReplaypackWarning,
    StorageError,
    StorageUnsupportedError,
    UsageError,
)
from replaypack.format.dsse import MAX_ENVELOPE, parse_envelope, parse_statement
from replaypack.format.manifest import Manifest, parse_manifest
from replaypack.format.names import latest_key, open_key, revision_key, signature_parts

from ._faults import FAULTS, LEVELS, Fault, Level, Progress, Report, fault, manifest_fault
from ._packs import PackChecker
from ._state import Resumed, State
from ._tables import Pages, check_tables

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
_UNOPENED = (FormatError, ObjectMissingError, ObjectTooShortError)


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
    for item in _revisions(archive, name):
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
) -> Iterator[Fault]:
    """Yield every fault of the recordings named, of all by default; each `Fault` names its recording.

    A name of which there is no recording is a fault. Where ``names`` is a listing (``listed``; so by default) it was
    deleted since, and is left out; not, however, where the listing is a catalog.
    With ``revisions`` every revision that differs in content or storage is checked, not the newest alone. A pack
    that several of them use is checked once.

    ``state`` is a file in which a run notes what it has checked, and which it removes at its end. After an
    interruption the same call goes on: it repeats the faults of recordings that were finished, and does not read
    again the packs that were sound *then* (it looks whether they are there, with their sizes, and their tables of
    contents). ``on_resume`` is told at the end how
    much that was. A recording that was not finished begins anew, but for its packs.

    Raises `UsageError` for a file that is something else or the state of another archive, `StorageError` where the
    store cannot be asked, `ObjectMissingError` where there is no archive at all: what was not checked must not look
    sound.
    """
    _depth(level)
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

    Raises `RecordingNotFoundError`, `StorageError`.
    """
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
    for item in _revisions(archive, name):
        if isinstance(item, Fault):
            yield item
        else:
            manifests.append(item)
    newest: list[Recording] = []
    told: Fault | None = None
    try:
        newest = [archive.open(name, cache_bytes=_CACHE)]
    except RecordingNotFoundError:
        if not manifests:
            raise
    except _UNOPENED as error:
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
        if _identity(manifest) in seen:
            continue
        seen.add(_identity(manifest))
        try:
            recording = archive.open(name, manifest.storage.revision, cache_bytes=_CACHE)
        except _UNOPENED as error:
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


def _revisions(archive: Archive, name: str) -> Iterator[Manifest | Fault]:
    """The manifests of a recording, oldest first, and between them what is wrong with them."""
    previous: Manifest | None = None
    numbers, latest, listed = _newest(archive, name)
    if not numbers and latest is None:
        raise archive.manifests.not_found(name)
    if not listed:
        message = f"{archive.url} cannot be listed: older revisions, and signatures without a key, are not looked at"
        warnings.warn(message, ReplaypackWarning, stacklevel=2)
    broken = False
    for number in numbers:
        key = revision_key(name, number)
        item = _read(archive, key)
        if item is None and listed and number not in archive.manifests.numbers(name):
            previous = None
            continue  # collected since it was listed
        if not isinstance(item, Manifest):
            broken = True
            previous = None
            named = "it is listed" if listed else "latest.json is of this revision"
            yield item if item is not None else fault("manifest.missing", key, f"{named}, and it cannot be read")
            continue
        if item.storage.revision != number:
            yield fault("manifest.misplaced", key, f"it is the manifest of revision {item.storage.revision}")
        opened = _read(archive, open_key(name, number)) if item.storage.cause == "claim" else None
        if isinstance(opened, Fault):
            yield opened
        elif opened is not None and (opened.storage.revision != number or not _checkpoint_of(opened, item)):
            yield fault("manifest.misplaced", open_key(name, number), "it is not of the recorder that has this claim")
        if (
            previous is not None
            and previous.storage.revision == number - 1
            and _chain_broken(archive, name, previous, item)
        ):
            message = f"it names {item.storage.previous} as the manifest before it, which is {previous.digest}"
            yield fault("revision.chain", key, message)
        previous = item
        yield item
    yield from _latest(name, numbers, previous, latest, broken)
    if listed:
        yield from _signatures(archive, name)


def _signatures(archive: Archive, name: str) -> Iterator[Fault]:
    """Whether the signatures are such by their form; who signed, only `check_signature` tells."""
    for info in archive.storage.list(f"recordings/{name}/"):
        parts = signature_parts(name, info.key)
        if parts is None:
            continue
        try:
            envelope = parse_envelope(archive.storage.get_suffix(info.key, MAX_ENVELOPE + 1), where=info.key)
            statement = parse_statement(envelope, where=info.key)
        except ObjectMissingError:
            yield fault("signature.missing", info.key, "it is listed and cannot be read")
            continue
        except FormatError as error:
            yield fault("signature.unreadable", info.key, error.detail)
            continue
        if statement.content_digest != parts[0]:
            yield fault("signature.misplaced", info.key, f"it is about the content digest {statement.content_digest}")


def _newest(archive: Archive, name: str) -> tuple[list[int], Manifest | Fault | None, bool]:
    """The revisions there are and ``latest.json``, of one moment: both again where a writer came in between.

    The third is whether the revisions were listed. Where the store does not list, they are the one that
    ``latest.json`` is of, or where that is no help the one that is found by trying numbers.
    """
    for _ in range(3):
        latest = _read(archive, latest_key(name))
        try:
            numbers = sorted(archive.manifests.numbers(name))
        except (StorageUnsupportedError, AccessDeniedError):
            found = latest if isinstance(latest, Manifest) else None
            with contextlib.suppress(FormatError):
                found = found or archive.manifests.newest(name, fresh=True)
            return [found.storage.revision] if found is not None else [], latest, False
        if isinstance(latest, Manifest) and numbers and latest.storage.revision == numbers[-1]:
            break
    return numbers, latest, True


def _chain_broken(archive: Archive, name: str, previous: Manifest, manifest: Manifest) -> bool:
    if manifest.storage.previous == previous.digest:
        return False
    # A claim that was taken over is continued from its last checkpoint.
    opened = _read(archive, open_key(name, previous.storage.revision))
    return not (isinstance(opened, Manifest) and opened.digest == manifest.storage.previous)


def _latest(
    name: str, numbers: list[int], newest: Manifest | None, latest: Manifest | Fault | None, broken: bool
) -> Iterator[Fault]:
    key = latest_key(name)
    if isinstance(latest, Fault):
        # Of another version it is no damage, and nothing to be written again.
        yield fault("latest.corrupted", key, latest.message) if latest.code == "manifest.corrupted" else latest
    elif latest is None:
        yield fault("latest.missing", key, "there is no latest.json: each reader has to look for the newest revision")
    elif numbers and latest.storage.revision < numbers[-1]:
        yield fault("latest.stale", key, f"it names revision {latest.storage.revision}, the newest is {numbers[-1]}")
    elif numbers and latest.storage.revision > numbers[-1]:
        message = f"it is of revision {latest.storage.revision}, which is not there; the newest is {numbers[-1]}"
        yield fault("manifest.missing", revision_key(name, latest.storage.revision), message)
    elif not numbers:
        yield fault("manifest.missing", revision_key(name, latest.storage.revision), "only latest.json is left of it")
    elif newest is not None and not broken and latest.digest != newest.digest and not _checkpoint_of(latest, newest):
        yield fault("latest.stale", key, f"it differs from revision {numbers[-1]}, which it should repeat")


def _checkpoint_of(latest: Manifest, claim: Manifest) -> bool:
    return (
        claim.storage.cause == "claim"
        and latest.storage.cause == "checkpoint"
        and latest.storage.writer == claim.storage.writer
    )


def _read(archive: Archive, key: str) -> Manifest | Fault | None:
    try:
        return parse_manifest(archive.storage.get(key), where=key)
    except ObjectMissingError:
        return None
    except FormatError as error:
        return manifest_fault(error, key)


def _depth(level: str) -> int:
    if level not in LEVELS:
        raise UsageError(f"level {level!r} is not one of {', '.join(LEVELS)}")
    return LEVELS.index(level)
