"""Local journals that hold records of a recording, or that refer to packs which are about to go."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from replaypack._write.journal import journal_directory, read_head, remove_unnamed, writer_is_alive
from replaypack.errors import FormatError, JournalError, RecordingExistsError
from replaypack.format.journal import JournalHead
from replaypack.format.names import revision_key, sibling_name

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Journals"]


class Journals:
    """The journals of an archive on this machine."""

    def __init__(self, archive: Archive, name: str, id: str) -> None:
        self._archive = archive
        self._name = name
        self._id = id
        self._directory = journal_directory(archive.storage)
        #: Journals of the recording whose records are published, and those that were deleted.
        self.removable: list[Path] = []
        self.removed: list[Path] = []
        #: Those of which nobody can say whose records they hold.
        self.unreadable: list[Path] = []

    def refuse(self, packs: Collection[str]) -> None:
        """Raise `RecordingExistsError` where a journal has unpublished records, or needs one of ``packs``."""
        # Where it was looked for before, the revision behind the claim may be deleted by now.
        known, self.removable, self.unreadable = self.removable, [], []
        for path in sorted(self._directory.glob("*.rpj*")) if self._directory.is_dir() else ():
            try:
                head = read_head(path)
            except FileNotFoundError:
                continue
            except (FormatError, JournalError):
                self.unreadable.append(path)
                continue
            if head.archive != self._archive.url and self._archive.storage.local_path is None:
                continue
            of_it = head.content.get("id") == self._id
            if not of_it and not any(external[4] in packs for external in head.external):
                continue
            if writer_is_alive(self._directory, head.writer):
                raise RecordingExistsError(
                    f"{head.name} is being recorded, and refers to bytes that are to be purged",
                    hint="purge when it is sealed",
                )
            if path.name.endswith(".damaged"):
                raise RecordingExistsError(
                    f"a damaged journal of {head.name} is kept as {path}, and may hold what is to be purged",
                    hint="delete it, or move it out of the archive",
                )
            if path not in known and not self._published(head):
                raise RecordingExistsError(
                    f"a recorder of {head.name} died and left records in {path}",
                    hint=f"run `replaypack recover {self._archive.url}` first",
                )
            if of_it:
                self.removable.append(path)

    def _published(self, head: JournalHead) -> bool:
        """Whether the revision behind the claim is there: only the deletion of the journal was missing."""
        for name, revision in ((head.name, head.revision + 1), (sibling_name(head.name, head.writer), 1)):
            found = self._archive.manifests.get(revision_key(name, revision))
            if found is not None and found.storage.writer == head.writer:
                return True
        return False

    def remove(self) -> None:
        """Delete the journals of the recording, and what recorders left that died before theirs had a name."""
        remove_unnamed(self._directory)
        for path in self.removable:
            path.unlink(missing_ok=True)
        self.removed += self.removable
        self.removable = []
