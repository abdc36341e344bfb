"""What lies in an archive: every manifest, every pack with its table of contents, and what names what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from replaypack._read.manifests import is_checkpoint_of
from replaypack._read.references import packs_of
from replaypack.errors import DAMAGED, ConflictError, FormatError, ObjectMissingError
from replaypack.format.manifest import Manifest, parse_manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import manifest_parts, open_key, pack_key_of, pack_of_key, revision_key
from replaypack.format.pack import TRAILER_SIZE, Toc, parse_toc, parse_trailer
from replaypack.storage import Storage

from ._survey import each

__all__ = ["Held", "Inventory", "packs_in", "toc_of"]

#: Bytes at the end of a pack that are read for its table of contents.
_TAIL = 64 << 10


class Held(NamedTuple):
    """What one manifest says: where it lies, of which recording, and the digests of all packs that it names.

    ``id`` is that of the recording, ``content`` the digest of its content, ``purged`` are the records with a tombstone.
    """

    key: str
    name: str
    kind: Literal["revision", "open", "latest"]
    digest: str
    id: str
    content: str
    records: int
    revision: int
    checkpoint: int
    cause: str
    claim: str | None
    writer: str
    purged: frozenset[int]
    packs: frozenset[str]

    @property
    def where(self) -> str:
        """``name@revision``, for people."""
        return f"{self.name}@{self.revision}" + (" (open)" if self.kind == "open" else "")


class Inventory:
    """The manifests and packs of an archive, as they are at one moment; needs a listing.

    Of each manifest a few hundred bytes are kept, and a reference for each pack that it names. Revisions are created
    once: those that were there ``before``, and have the time and size that they had, are not read again.

    Raises `FormatError` where a manifest or a table of contents cannot be read: nothing could be said of what refers
    to what. `StorageError`.
    """

    def __init__(self, storage: Storage, before: Inventory | None = None) -> None:
        self.storage = storage
        #: Sizes (bytes) by digest.
        self.packs: dict[str, int] = dict(packs_in(storage))
        # The same digest is the same object in memory, however many manifests name it.
        self._interned: dict[str, str] = {digest: digest for digest in self.packs}
        #: Of each manifest its size (bytes), and when it was written.
        listed = self._listed = {
            info.key: (info.size, info.modified)
            for info in storage.list("recordings/")
            if manifest_parts(info.key) is not None
        }
        known = {
            held.key: held
            for held in (before.held if before is not None else ())
            if held.kind == "revision" and before is not None and before._same(held.key, listed)
        }
        keys = sorted(listed.keys() - known.keys())
        self.held: list[Held] = [*known.values(), *(item for item in each(self._read, keys, few=1) if item is not None)]
        self.held.sort(key=lambda held: held.key)
        # A hint may name what was committed since the listing.
        hinted = (revision_key(held.name, held.revision) for held in self.held if held.kind == "latest")
        missed = [key for key in hinted if key not in listed]
        self.held += [item for item in each(self._read, missed, few=1) if item is not None]

    def _same(self, key: str, listed: dict[str, tuple[int, float | None]]) -> bool:
        was = self._listed.get(key)
        return was is not None and was[1] is not None and was == listed.get(key)

    def _read(self, key: str) -> Held | None:
        parts = manifest_parts(key)
        assert parts is not None
        try:
            manifest = parse_manifest(self.storage.get(key), where=key)
        except ObjectMissingError:
            return None
        try:
            packs = frozenset(self._interned.setdefault(pack, pack) for pack in packs_of(manifest, self.storage))
        except ObjectMissingError:
            # Its list of packs is gone: of those that are left it names none that can be told.
            packs = frozenset()
        content, section = manifest.content, manifest.storage
        return Held(
            key,
            parts.name,
            parts.kind,
            manifest.digest,
            content.id,
            manifest.content_digest,
            content.records,
            section.revision,
            section.checkpoint,
            section.cause,
            section.claim,
            section.writer,
            manifest.purged_records,
            packs,
        )

    def manifest(self, held: Held) -> Manifest:
        """The manifest itself, read again.

        Raises `ConflictError` where it is gone, or was written again since; `FormatError`, `StorageError`.
        """
        try:
            manifest = parse_manifest(self.storage.get(held.key), where=held.key)
        except ObjectMissingError:
            manifest = None
        if manifest is None or manifest.digest != held.digest:
            raise ConflictError(
                f"{self.storage.url}#{held.where} was {'deleted' if manifest is None else 'written again'} meanwhile",
                hint="run it again",
            )
        return manifest

    def newest(self) -> dict[str, Held]:
        """Of each recording the manifest that readers see, as `Manifests.newest` finds it."""
        found: dict[str, Held] = {}
        # A revision counts before the hint that repeats it; the hint may be a checkpoint of it, and it alone is what an
        # interrupted deletion leaves.
        for item in sorted(self.held, key=lambda item: item.kind == "latest"):
            before = found.get(item.name)
            if item.kind != "open" and (
                before is None
                or before.revision < item.revision
                or (before.revision == item.revision and before.digest != item.digest)
            ):
                found[item.name] = item
        for item in self.held:
            claim = found.get(item.name)
            if (
                item.kind == "open"
                and claim is not None
                and item.key == open_key(item.name, claim.revision)
                and is_checkpoint_of(item, claim)
            ):
                found[item.name] = item
        return found

    def tocs(self, digests: Iterable[str]) -> Iterator[tuple[str, Toc]]:
        """Yield the tables of contents of packs that are there."""
        wanted = [digest for digest in digests if digest in self.packs]
        for digest, toc in zip(wanted, each(self._toc, wanted, few=1), strict=True):
            if toc is not None:
                yield digest, toc

    def _toc(self, digest: str) -> Toc | None:
        try:
            return toc_of(self.storage, PackRef(digest, self.packs[digest]))
        except ObjectMissingError:
            return None


def packs_in(storage: Storage) -> Iterator[tuple[str, int]]:
    """Yield the digest and size (bytes) of each pack that is listed. Raises `StorageError`."""
    for info in storage.list("packs/"):
        digest = pack_of_key(info.key)
        if digest is not None and pack_key_of(digest) == info.key:
            yield digest, info.size


def toc_of(storage: Storage, pack: PackRef) -> Toc:
    """The table of contents of a pack, checked. Raises `FormatError`, `StorageError`."""
    key = pack_key_of(pack.digest)
    tail = storage.get_suffix(key, min(pack.size, _TAIL))
    length, raw, digest = parse_trailer(tail, where=key)
    end = pack.size - TRAILER_SIZE
    if length > end:
        raise FormatError("the table of contents is longer than the pack", where=key)
    if length + TRAILER_SIZE <= len(tail):
        body = tail[len(tail) - TRAILER_SIZE - length : len(tail) - TRAILER_SIZE]
    else:
        body = storage.get_range(key, end - length, length)
    return parse_toc(body, raw, digest, pack.size, where=key)


def common_packs(storage: Storage, manifest: Manifest) -> set[str]:
    """The packs of a recording that name none: their bytes may be those of several. What cannot be read is left out.

    Raises `StorageError`.
    """
    found = set()
    with suppress(*DAMAGED):
        for pack, size in packs_of(manifest, storage).items():
            with suppress(*DAMAGED):
                if size is not None and not toc_of(storage, PackRef(pack, size)).origins:
                    found.add(pack)
    return found
