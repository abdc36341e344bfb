"""`migrate`: recordings of an earlier format version brought up to date. There is none yet: version 1 is the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replaypack.errors import FormatError, ReplaypackError, without_frames
from replaypack.format.names import MARKER
from replaypack.format.versions import CURRENT_VERSION, parse_document

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Migration", "migrate"]


class Migration(NamedTuple):
    """What `migrate` found: the version that everything is of now, how many recordings were looked at, which were
    written anew, and those that cannot be read, with the reason."""

    version: int
    recordings: int
    migrated: list[str]
    failed: dict[str, ReplaypackError]


def migrate(archive: Archive) -> Migration:
    """Bring all recordings of an archive to the current version of the format, each as a new revision.

    All versions that there are (1) are read as they are, so that nothing is written: each newest manifest is read and
    its version checked. A recording of a newer version is among ``failed`` (``format.future_version``), and so is one
    whose manifest is damaged.

    Raises `FormatError` where the archive's marker is of a newer version, `ObjectMissingError` where there is no
    archive, `StorageError`.
    """
    archive.require()
    parse_document(archive.storage.get(MARKER), where=MARKER)
    names = list(archive.recordings())
    failed: dict[str, ReplaypackError] = {}
    for name in names:
        try:
            archive.manifests.find(name, None, fresh=True)
        except FormatError as error:
            failed[name] = without_frames(error)
    return Migration(CURRENT_VERSION, len(names), [], failed)
