"""The manifests of an archive's recordings: which there are, and which of them is the newest."""

from __future__ import annotations

import difflib
import warnings
from typing import Protocol

from replaypack.errors import (
    AccessDeniedError,
    FormatError,
    ObjectMissingError,
    RecordingNotFoundError,
    ReplaypackWarning,
    StorageError,
    StorageUnsupportedError,
)
from replaypack.format.catalog import CATALOG, Catalog, parse_catalog
from replaypack.format.manifest import Manifest, parse_manifest
from replaypack.format.names import check_name, latest_key, manifest_parts, open_key, revision_key
from replaypack.storage import Storage

__all__ = ["Manifests", "is_checkpoint_of", "shows_checkpoints"]

#: Revisions behind `latest.json` that a reader tries.
_MAX_PROBES = 10_000


class _Standing(Protocol):
    """What a manifest says of itself."""

    @property
    def cause(self) -> str: ...
    @property
    def claim(self) -> str | None: ...
    @property
    def writer(self) -> str: ...
    @property
    def checkpoint(self) -> int: ...


def shows_checkpoints(newest: _Standing) -> bool:
    """Whether readers see what the recorder published that claimed a revision, rather than the claim."""
    return newest.cause in ("claim", "checkpoint") and newest.claim != "replace"


def is_checkpoint_of(opened: _Standing, newest: _Standing) -> bool:
    """Whether ``.open.json`` of a revision is what readers see: by the same writer, and not older."""
    return shows_checkpoints(newest) and opened.writer == newest.writer and opened.checkpoint >= newest.checkpoint


class Manifests:
    """The manifests in one store. Nothing is kept."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def names(self, prefix: str = "") -> list[str]:
        """The names of the recordings, sorted: of a listing, or where there is none, of the catalog, with a warning."""
        listed = self.listed(prefix)
        if not isinstance(listed, Catalog):
            return listed
        message = f"{self.storage.url} cannot be listed: these are the recordings of its catalog of {listed.created}"
        warnings.warn(message, ReplaypackWarning, stacklevel=3)
        return [entry.name for entry in listed.entries]

    def listed(self, prefix: str = "") -> list[str] | Catalog:
        """The names of the recordings, sorted; where the store cannot list, or will not, its catalog.

        Raises `StorageError` where there is no catalog either, `FormatError` where it is damaged.
        """
        try:
            return self.listing(prefix)
        except (StorageUnsupportedError, AccessDeniedError) as error:
            catalog = self.catalog()
            if catalog is None:
                error.hint = "where recordings can be listed, `replaypack catalog` writes a catalog that is read here"
                raise
            return Catalog(catalog.created, [entry for entry in catalog.entries if entry.name.startswith(prefix)])

    def listing(self, prefix: str = "") -> list[str]:
        """The names of the recordings, sorted, as the store lists them. Raises `StorageError` where it does not."""
        found = (manifest_parts(info.key) for info in self.storage.list("recordings/" + prefix))
        return sorted({parts.name for parts in found if parts is not None and parts.kind != "open"})

    def catalog(self) -> Catalog | None:
        """The catalog of the archive, or None. Raises `FormatError`, `StorageError`."""
        try:
            return parse_catalog(self.storage.get(CATALOG), where=CATALOG)
        except ObjectMissingError:
            return None
        except FormatError as error:
            again = "where recordings can be listed, `replaypack catalog` writes it anew"
            newer = error.reason == "future_version"
            error.hint = error.hint or f"{'upgrade replaypack' if newer else again}; a name can be opened without it"
            raise

    def numbers(self, name: str) -> list[int]:
        """The revisions that a recording has, in no order; needs a listing."""
        found = (manifest_parts(info.key) for info in self.storage.list(f"recordings/{check_name(name)}/"))
        return [
            parts.revision
            for parts in found
            if parts and parts.name == name and parts.kind == "revision" and parts.revision is not None
        ]

    def get(self, key: str) -> Manifest | None:
        """The manifest under a key; None where there is none. Raises `FormatError`, `StorageError`."""
        try:
            return parse_manifest(self.storage.get(key), where=key)
        except ObjectMissingError:
            return None

    def find(self, name: str, revision: int | None, *, fresh: bool) -> Manifest:
        """A revision of a recording, or the newest. Raises `RecordingNotFoundError`, and as `get` does."""
        if revision is not None:
            manifest = self.get(revision_key(name, revision))
            if manifest is not None and manifest.storage.revision != revision:
                raise _misplaced(revision_key(name, revision), manifest)
            if manifest is None:
                raise RecordingNotFoundError(
                    f"{self.storage.url}#{name} has no revision {revision} (missing or not permitted)",
                    hint="`replaypack log` lists the revisions",
                )
            return manifest
        newest = self.newest(name, fresh=fresh)
        if newest is None:
            raise self.not_found(name)
        return newest

    def newest(self, name: str, *, fresh: bool) -> Manifest | None:
        """The newest manifest that readers should see, or None.

        ``latest.json`` is a hint that may be behind or missing; revisions are found by trying the next number,
        which needs no listing.
        """
        fresh = fresh or self.storage.local_path is not None
        try:
            latest = self.get(latest_key(name))
        except FormatError as error:
            if not fresh or error.reason != "corrupted":
                raise
            latest = None  # a damaged hint is as good as none: the revisions themselves can be asked
        if latest is not None and not fresh:
            return latest
        newest = self._probe(name, latest)
        if newest is None:
            return None
        if shows_checkpoints(newest.storage):
            checkpoint = self.get(open_key(name, newest.storage.revision))
            if checkpoint is not None and is_checkpoint_of(checkpoint.storage, newest.storage):
                return checkpoint
        return newest

    def _probe(self, name: str, latest: Manifest | None) -> Manifest | None:
        newest = latest
        if latest is not None:
            start = number = latest.storage.revision
        else:
            # Revisions may be pruned, and only below the one that latest.json named: without it a listing says where
            # the end is, and where there is none, the first gap is taken for it.
            start = number = max(0, self._highest(name) - 1)
        while (following := self.get(revision_key(name, number + 1))) is not None:
            if following.storage.revision != number + 1:
                raise _misplaced(revision_key(name, number + 1), following)
            newest = following
            number += 1
            if number - start > _MAX_PROBES:
                # What answers to any number goes on forever.
                raise FormatError(
                    f"latest.json is more than {_MAX_PROBES} revisions behind, or missing",
                    where=f"{self.storage.url}#{name}",
                    hint=f"open a revision by its number, as {name}@{number}",
                )
        return newest

    def _highest(self, name: str) -> int:
        """The highest revision that a listing shows; 0 where there is none, or no listing."""
        try:
            return max(self.numbers(name), default=0)
        except StorageError:
            return 0

    def not_found(self, name: str) -> RecordingNotFoundError:
        """The error for a name that has no recording, with what is near it."""
        hint = None
        try:
            listed = self.listed()
            known = listed if isinstance(listed, list) else [entry.name for entry in listed.entries]
            near = difflib.get_close_matches(name, known, n=3)
            if name in known:
                hint = "the catalog lists it: it was deleted since, or is lost"
            elif near:
                hint = "did you mean " + " or ".join(near) + "?"
            elif not known:
                hint = "there are no recordings here: is the URL right?"
            else:
                hint = f"`replaypack ls {self.storage.url}` lists what there is"
        except ObjectMissingError as error:
            hint = error.message  # there is no zip file, or no archive, that could have it
        except (StorageError, FormatError):
            pass
        return RecordingNotFoundError(
            f"no recording {name!r} in {self.storage.url} (missing or not permitted)", hint=hint
        )


def _misplaced(key: str, manifest: Manifest) -> FormatError:
    return FormatError(f"it is the manifest of revision {manifest.storage.revision}", where=key)
