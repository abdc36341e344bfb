"""Writing the catalog of an archive, by which stores that cannot list still show what there is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from replaypack._write.revisions import NO_CACHE
from replaypack._write.stamps import now_rfc3339
from replaypack.errors import FormatError, ObjectMissingError, RecordingNotFoundError
from replaypack.format.catalog import CATALOG, Catalog, CatalogEntry, encode_catalog

from ._faults import Fault, fault, manifest_fault

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Cataloged", "write_catalog"]

_CONCURRENT = 16


class Cataloged(NamedTuple):
    """What `write_catalog` did: the catalog as it is written now, its size (bytes), and what could not be read."""

    catalog: Catalog
    size: int
    faults: list[Fault]


def write_catalog(archive: Archive, *, progress: Callable[[int, int], None] | None = None) -> Cataloged:
    """Write ``catalog.json.zst`` anew, from the newest manifest of each recording.

    A recording that cannot be read is left out, and named in ``faults``. ``progress`` is told how many recordings are
    done, and of how many.

    Raises `StorageError` (also where the store has no listing), `ObjectMissingError` where there is no archive,
    `FormatError` where there are too many recordings for a catalog.
    """
    archive.storage.require_writable("catalog")
    created = now_rfc3339()
    names = archive.manifests.listing()
    if not names:
        archive.require()
    entries: list[CatalogEntry] = []
    faults: list[Fault] = []
    pool = ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="replaypack-catalog")
    try:
        for number, made in enumerate(pool.map(lambda name: _entry(archive, name), names), start=1):
            if isinstance(made, CatalogEntry):
                entries.append(made)
            else:
                faults.append(made)
            if progress is not None:
                progress(number, len(names))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    data = encode_catalog(created, entries)
    archive.storage.put(CATALOG, data, cache_control=NO_CACHE)
    return Cataloged(Catalog(created, entries), len(data), faults)


def _entry(archive: Archive, name: str) -> CatalogEntry | Fault:
    try:
        with archive.open(name, fresh=True, cache_bytes=0) as recording:
            content, storage = recording.manifest.content, recording.manifest.storage
            return CatalogEntry(
                name=name,
                revision=storage.revision,
                cause=storage.cause,
                state=content.state,
                started=content.started,
                records=content.records,
                purged=recording.manifest.purged,
                withheld=[*storage.withheld],
                counts=content.counts,
                bytes=sum(pack.size for pack in recording.index.packs),
                content=recording.content_digest,
                manifest=recording.manifest.digest,
                recorded_by=content.recorded_by,
            )
    except FormatError as error:
        return manifest_fault(error, name)._replace(recording=name)
    except (RecordingNotFoundError, ObjectMissingError) as error:
        return fault("manifest.missing", name, error.message)._replace(recording=name)
