"""Revisions and their hint ``latest.json``: how a manifest comes to where readers find it (spec chapter 08)."""

from __future__ import annotations

import warnings
from contextlib import suppress

from replaypack.errors import (
    ConflictError,
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
    ReplaypackWarning,
    StorageError,
)
from replaypack.format.manifest import Manifest, parse_manifest
from replaypack.format.names import latest_key, revision_key
from replaypack.storage import Storage

__all__ = [
    "NO_CACHE",
    "commit_behind",
    "create_revision",
    "heal_latest",
    "is_pointed_at",
    "point_behind",
    "write_latest",
]

#: What changes in place is to be asked for anew each time.
NO_CACHE = "no-cache"


def commit_behind(storage: Storage, name: str, manifest: Manifest) -> None:
    """Create a revision of what the one before it holds, unless the recording is deleted meanwhile.

    Raises `ObjectExistsError` where another writer was faster, `ConflictError` where the recording is gone, and
    `StorageError`. Who keeps the archive removes the revision before only where ``latest.json`` names the new one.
    """
    key, before = revision_key(name, manifest.storage.revision), revision_key(name, manifest.storage.revision - 1)
    gone = ConflictError(f"{storage.url}#{name} was deleted meanwhile", hint="nothing of it was written anew")
    try:
        storage.get(before)
    except ObjectMissingError:
        raise gone from None
    storage.put_new(key, manifest.raw)
    try:
        storage.get(before)
    except ObjectMissingError:
        if is_pointed_at(storage, name, manifest.storage.revision):
            return
        storage.delete(key)
        raise gone from None


def is_pointed_at(storage: Storage, name: str, revision: int) -> bool:
    """Whether somebody has seen a revision, and wrote the hint of it or of a later one."""
    key = latest_key(name)
    try:
        return parse_manifest(storage.get(key), where=key).storage.revision >= revision
    except (ObjectMissingError, FormatError):
        return False


def create_revision(storage: Storage, name: str, manifest: Manifest) -> None:
    """Create a revision without a claim, the first of its name or one more (`commit_behind`).

    Raises `ConflictError` where another writer was faster or the recording is gone, and `StorageError`.
    """
    number = manifest.storage.revision
    try:
        if manifest.storage.previous is None:
            storage.put_new(revision_key(name, number), manifest.raw)
        else:
            commit_behind(storage, name, manifest)
    except ObjectExistsError:
        raise ConflictError(
            f"another writer committed revision {number} of {storage.url}#{name} first; nothing was changed",
            hint="run it again",
        ) from None


def point_behind(storage: Storage, name: str, manifest: Manifest) -> bool:
    """`write_latest` behind `commit_behind`: the hint does not stay where the recording is deleted meanwhile."""
    if not write_latest(storage, name, manifest):
        return False
    with suppress(StorageError):
        try:
            storage.get(revision_key(name, manifest.storage.revision))
        except ObjectMissingError:
            if storage.get(latest_key(name)) == manifest.raw:
                _point_on(storage, name, manifest.revision)
    return True


def _point_on(storage: Storage, name: str, revision: int) -> None:
    """Let the hint be of the revision behind ``revision`` that was made of it, or remove it."""
    try:
        storage.put(latest_key(name), storage.get(revision_key(name, revision + 1)), cache_control=NO_CACHE)
    except ObjectMissingError:
        storage.delete(latest_key(name))


def heal_latest(storage: Storage, name: str, newest: Manifest) -> bool:
    """Write ``latest.json`` where it is missing, damaged, or no copy of the ``newest`` revision; return whether it was.

    A writer that is killed behind its commit leaves it like that. That of a newer revision is left alone, and so is
    what belongs to a recorder.
    """
    if newest.storage.cause in ("claim", "checkpoint"):
        return False
    key = latest_key(name)
    try:
        latest = parse_manifest(storage.get(key), where=key)
    except ObjectMissingError:
        latest = None
    except FormatError as error:
        if error.reason != "corrupted":
            return False
        latest = None
    if latest is not None and (latest.digest == newest.digest or latest.storage.revision > newest.storage.revision):
        return False
    point_behind(storage, name, newest)
    return True


def write_latest(storage: Storage, name: str, manifest: Manifest) -> bool:
    """Overwrite the hint of a recording; return whether it worked. That it does not is a warning."""
    try:
        storage.put(latest_key(name), manifest.raw, cache_control=NO_CACHE)
    except StorageError as error:
        warnings.warn(
            f"{name!r} is committed, but latest.json could not be written ({error}); "
            "readers find the new revision with fresh=True",
            ReplaypackWarning,
            stacklevel=3,
        )
        return False
    return True
