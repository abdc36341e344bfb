"""The manifests of a recording: each by itself, their chain, ``latest.json``, and what lies beside them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from replaypack.errors import (
    AccessDeniedError,
    FormatError,
    ObjectMissingError,
    ReplaypackWarning,
    StorageUnsupportedError,
)
from replaypack.format.dsse import MAX_ENVELOPE, parse_envelope, parse_statement
from replaypack.format.manifest import Manifest, parse_manifest
from replaypack.format.names import latest_key, open_key, revision_key, signature_parts

from ._faults import Fault, fault, manifest_fault
from ._unfinished import left_behind

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["check_revisions"]


def check_revisions(archive: Archive, name: str) -> Iterator[Manifest | Fault]:
    """The manifests of a recording, oldest first, and between them what is wrong with them."""
    previous: Manifest | None = None
    numbers, latest, listed = _newest(archive, name)
    if not numbers and latest is None:
        raise archive.manifests.not_found(name)
    if not listed:
        message = f"{archive.url} cannot be listed: older revisions, and signatures without a key, are not looked at"
        warnings.warn(message, ReplaypackWarning, stacklevel=2)
    broken = False
    found: list[tuple[str, Manifest]] = []
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
        found.append((key, item))
        if isinstance(opened, Manifest):
            found.append((open_key(name, number), opened))
        yield item
    yield from left_behind(found)
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
