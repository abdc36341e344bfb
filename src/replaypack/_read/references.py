"""Which packs a manifest refers to: what a collector must leave alone, and a copy must bring."""

from __future__ import annotations

from replaypack.format.manifest import Manifest
from replaypack.storage import Storage

from .cache import Cache
from .index import Index
from .packs import PackReader

__all__ = ["packs_of"]


def packs_of(manifest: Manifest, storage: Storage) -> dict[str, int | None]:
    """The digests (64 hex digits) of every pack that ``manifest`` needs, with their sizes (bytes).

    They are those of its list, be it in pages, and those that pages of its own lie in, whose size (None) it does not
    say unless they are in the list too. Reads those pages.

    Raises `FormatError`, and `StorageError` (`ObjectMissingError` where a page's pack is gone).
    """
    storage_section = manifest.storage
    found: dict[str, int | None] = {page.pack: None for page in storage_section.pack_pages}
    if storage_section.summary is not None:
        found[storage_section.summary.pack] = None
    for segment in storage_section.segments:
        for table in (segment.keys, segment.records, segment.literals, segment.blobs):
            if table.page is not None:
                found[table.page.pack] = None
    if storage_section.pack_pages:
        packs = Index(manifest, PackReader(storage), Cache(0)).packs
    else:
        packs = storage_section.packs
    found.update((pack.digest, pack.size) for pack in packs)
    return found
