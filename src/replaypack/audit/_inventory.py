"""What lies in an archive: every manifest, every pack with its table of contents, and what names what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, TypeVar

from replaypack._read.references import packs_of
from replaypack.errors import FormatError, ObjectMissingError
from replaypack.format.manifest import Manifest, PackRef, parse_manifest
from replaypack.format.names import is_name, open_key, pack_key_of
from replaypack.format.pack import TRAILER_SIZE, Toc, parse_toc, parse_trailer
from replaypack.storage import Storage

__all__ = ["Held", "Inventory", "toc_of"]

_MANIFEST = re.compile(r"recordings/(?P<name>.+)/(?:(?P<number>\d{8})(?P<open>\.open)?|latest)\.json")
_PACK = re.compile(r"packs/([0-9a-f]{2})/(\1[0-9a-f]{62})\.rpk")
_WORKERS = 16
#: Bytes at the end of a pack that are read for its table of contents.
_TAIL = 64 << 10

_T = TypeVar("_T")
_R = TypeVar("_R")


class Held(NamedTuple):
    """One manifest: where it lies, of which recording, and the digests of all packs that it names."""

    key: str
    name: str
    kind: Literal["revision", "open", "latest"]
    manifest: Manifest
    packs: frozenset[str]

    @property
    def where(self) -> str:
        """``name@revision``, for people."""
        return f"{self.name}@{self.manifest.revision}" + (" (open)" if self.kind == "open" else "")


class Inventory:
    """The manifests and packs of an archive, as they are at one moment; needs a listing.

    Raises `FormatError` where a manifest or a table of contents cannot be read: nothing could be said of what refers
    to what. `StorageError`.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        keys = sorted(info.key for info in storage.list("recordings/") if _MANIFEST.fullmatch(info.key))
        self.held: list[Held] = [item for item in _each(self._read, keys) if item is not None]
        packs = [(match[2], info.size) for info in storage.list("packs/") if (match := _PACK.fullmatch(info.key))]
        #: Sizes (bytes) by digest.
        self.packs: dict[str, int] = dict(packs)

    def _read(self, key: str) -> Held | None:
        match = _MANIFEST.fullmatch(key)
        assert match is not None
        if not is_name(match["name"]):
            return None
        try:
            manifest = parse_manifest(self.storage.get(key), where=key)
        except ObjectMissingError:
            return None
        kind: Literal["revision", "open", "latest"] = "revision"
        if match["number"] is None:
            kind = "latest"
        elif match["open"]:
            kind = "open"
        try:
            packs = frozenset(packs_of(manifest, self.storage))
        except ObjectMissingError:
            # Its list of packs is gone: of those that are left it names none that can be told.
            packs = frozenset()
        return Held(key, match["name"], kind, manifest, packs)

    def newest(self) -> dict[str, Held]:
        """Of each recording the manifest that readers should see: its highest revision, or the checkpoint of that."""
        found: dict[str, Held] = {}
        for item in self.held:
            if item.kind == "revision":
                before = found.get(item.name)
                if before is None or before.manifest.revision < item.manifest.revision:
                    found[item.name] = item
        for item in self.held:
            claim = found.get(item.name)
            if item.kind != "open" or claim is None or item.key != open_key(item.name, claim.manifest.revision):
                continue
            ours, theirs = claim.manifest.storage, item.manifest.storage
            replaces = ours.claim == "replace"
            if ours.writer == theirs.writer and ours.cause == "claim" and not replaces:
                found[item.name] = item
        return found

    def tocs(self, digests: Iterable[str]) -> Iterator[tuple[str, Toc]]:
        """Yield the tables of contents of packs that are there."""
        wanted = [digest for digest in digests if digest in self.packs]
        for digest, toc in zip(wanted, _each(self._toc, wanted), strict=True):
            if toc is not None:
                yield digest, toc

    def _toc(self, digest: str) -> Toc | None:
        try:
            return toc_of(self.storage, PackRef(digest, self.packs[digest]))
        except ObjectMissingError:
            return None


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


def _each(work: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
    """Yield what ``work`` makes of each item, in order, several at a time."""
    if len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="replaypack-look") as pool:
        # A part at a time, so that what waits to be taken stays bounded.
        for start in range(0, len(items), 4 * _WORKERS):
            yield from pool.map(work, items[start : start + 4 * _WORKERS])
