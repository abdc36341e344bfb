"""`zip_recordings`: recordings in one file that is an archive by itself; `copy` takes them out of it again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from replaypack.archive import Archive
from replaypack.errors import RecordingExistsError, RecordingNotFoundError, UsageError
from replaypack.storage import ZipWriter

from .copy import Copied, copy

if TYPE_CHECKING:
    from ._faults import Report

__all__ = ["Wanted", "Zipped", "zip_recordings"]


class Wanted(NamedTuple):
    """Recordings of one archive: names or patterns (None: all), and a revision where there is one name."""

    archive: Archive
    names: list[str] | None = None
    revision: int | None = None


class Zipped(NamedTuple):
    """What `zip_recordings` did: what was copied of each archive, and the size of the file (bytes)."""

    copied: list[Copied]
    size: int


def zip_recordings(
    wanted: Iterable[Wanted],
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    responses_only: bool = False,
    progress: Report | None = None,
) -> Zipped:
    """Write a zip file with the recordings ``wanted``, as `copy` takes them, and nothing of others.

    The file appears whole, or not at all; entries are stored, so that it is read by ranges where it lies, through a
    presigned URL too.

    Raises as `copy` does, `FormatError` or `ObjectMissingError` where one of them is damaged (the hint names all that
    were found by then), `UsageError` for a ``path`` that is a URL, `StorageError` where there is such a
    file and ``overwrite`` is not set; `RecordingNotFoundError` where there is nothing to put in.
    """
    if isinstance(path, str) and "://" in path:
        raise UsageError(f"{path}: zip writes files of this machine only", hint="write it here, then upload it")
    copied: list[Copied] = []
    with ZipWriter(path, overwrite=overwrite) as storage:
        target = Archive(storage.url, storage=storage)
        for of in wanted:
            try:
                done = copy(
                    of.archive,
                    target,
                    of.names,
                    revision=of.revision,
                    responses_only=responses_only,
                    progress=progress,
                )
            except RecordingExistsError as error:
                error.hint = "two different recordings cannot have one name in a zip file: write two files"
                raise
            copied.append(done)
        if not any(found.state == "copied" for done in copied for found in done.recordings):
            raise RecordingNotFoundError("there is no finished recording to put into the zip file")
        storage.finish()
    return Zipped(copied, os.path.getsize(path))
