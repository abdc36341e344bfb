"""Reading the summary of a recording."""

from __future__ import annotations

from replaypack.errors import FormatError, ObjectMissingError
from replaypack.format.manifest import Manifest
from replaypack.format.summary import Run, Summary, parse_runs
from replaypack.format.table import Location

from .cache import Cache
from .index import Index
from .packs import Frame, PackReader
from .sequence import in_order

__all__ = ["read_summary", "summary_frame", "summary_of"]


def summary_frame(manifest: Manifest, index: Index) -> Frame | None:
    """What to read for the summary of a recording; None where there is none.

    Raises `FormatError` where it lies in a pack that the manifest does not list.
    """
    ref = manifest.storage.summary
    if ref is None:
        return None
    for pack in index.packs:
        if pack.digest == ref.pack:
            return Frame(pack, Location(0, ref.offset, ref.length), ref.raw, bytes.fromhex(ref.digest))
    raise FormatError("the summary lies in a pack that the manifest does not list", where="summary")


def read_summary(manifest: Manifest, index: Index) -> list[Run] | None:
    """The runs of a recording's records; None where it has none, or where its pack is gone: rows tell the same.

    Raises `FormatError`, `StorageError`.
    """
    frame = summary_frame(manifest, index)
    if frame is None:
        return None
    try:
        [raw] = index.reader.read([frame])
    except ObjectMissingError:
        return None
    return parse_runs(raw, manifest.content.records, where=frame.where)


def summary_of(manifest: Manifest, reader: PackReader, *, read: int) -> bytes:
    """The summary of a recording, encoded; made of its rows where it has none and fewer records than ``read``.

    Empty where that is too much. Raises `FormatError`, `StorageError`.
    """
    index = Index(manifest, reader, Cache(0))
    frame = summary_frame(manifest, index)
    if frame is not None:
        [raw] = reader.read([frame])
        parse_runs(raw, manifest.content.records, where=frame.where)
        return raw
    made = Summary()
    if manifest.content.records < read:
        for found in in_order(index, 0, where="records"):
            made.add(found.row)
    return made.encode()
