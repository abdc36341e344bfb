"""The place where salvaged recordings are made: under which names, as which revisions, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from replaypack._write.claim import refuse_case_twin
from replaypack.archive import Archive
from replaypack.errors import ConflictError, InvalidNameError, ObjectExistsError
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import Content
from replaypack.format.names import is_name, revision_key, signature_parts
from replaypack.recording import Recording
from replaypack.storage import Storage

from ._faults import Fault, Report
from ._salvage_losses import Losses, damaged
from ._salvage_objects import Objects
from ._salvage_write import RecordingWriter
from .verify import verify_recording

__all__ = ["Target", "Written"]

#: Faults that a recording had when it was recorded: the same content has them too.
_INHERITED = {"key.mismatch", "counts.mismatch", "blob.encoding"}


class Written(NamedTuple):
    """A recording whose packs are written: its content, that of ``source`` (a content digest) where it is ``exact``."""

    writer: RecordingWriter
    losses: Losses
    content: Content
    source: str | None
    exact: bool
    withheld: Sequence[Any] = ()


class Target:
    """Commits recordings to ``archive``; signatures come from ``keys`` of the ``objects`` of the source.

    ``made`` and ``lost`` say what came of it, ``names`` what recordings of the source are called here.
    """

    def __init__(self, archive: Archive, objects: Objects, keys: Sequence[str], report: Report, limit: int) -> None:
        self._archive = archive
        self._objects = objects
        self._keys = keys
        self._report = report
        self._limit = limit
        self.made: list[tuple[str, int, int, str, str | None, bool, int]] = []
        self.lost: list[tuple[str, Any, int | None, int | None, str]] = []
        self.notes: list[str] = []
        self.names: dict[str, str] = {}
        self._revisions: dict[str, Manifest] = {}

    @property
    def storage(self) -> Storage:
        """The store that packs go to."""
        return self._archive.storage

    def name(self, wanted: str, recording: bytes | None = None) -> str:
        """The name to use in the target: the one wanted, unless another recording has it, or one like it."""
        if recording is None and wanted in self.names:
            return self.names[wanted]
        taken = {name.lower() for name in self.names.values()}
        candidates = [wanted, *(f"{wanted[:480]}-{number}" for number in range(2, len(taken) + 3))]
        for name in candidates:
            if name.lower() in taken or not is_name(name):
                continue
            try:
                refuse_case_twin(self._archive.storage, name)
            except InvalidNameError:
                continue
            break
        if name != wanted:
            self.notes.append(f"{wanted!r} is taken: a recording of that name is {name!r} here")
        self.names[wanted if recording is None else f"{wanted}\0{recording.hex()}\0{len(self.names)}"] = name
        return name

    def commit(self, name: str, written: Written) -> None:
        """Make it the next revision of ``name``; what was written as exact is verified before.

        Raises `ConflictError`, `StorageError`.
        """
        storage = self._archive.storage
        before = self._revisions.get(name)
        revision = before.storage.revision + 1 if before is not None else 1
        publisher = written.writer.publisher
        previous = before.digest if before is not None else None
        manifest = written.writer.manifest(written.content, revision, previous, written.withheld)
        publisher.ensure()  # packs of an earlier run may be gone by now, which is no fault of what was written
        if written.exact and (found := self._unsound(name, manifest)) is not None:
            losses = written.losses
            losses.add("records", 0, written.content.records - 1, f"what was written is not sound: {found}")
            written = written._replace(content=damaged(written.content, written.source, losses), exact=False)
            manifest = written.writer.manifest(written.content, revision, previous, written.withheld)
        key = revision_key(name, revision)
        publisher.ensure()
        try:
            storage.put_new(key, manifest.raw)
        except ObjectExistsError:
            there = self._archive.manifests.get(key)
            if there is None or there.content_digest != manifest.content_digest:
                raise ConflictError(
                    f"{storage.url}#{name}@{revision} is there already, and is another", hint="give another place"
                ) from None
            manifest = there
        if written.exact:
            self._copy_signatures(name, manifest.content_digest)
        publisher.named()
        publisher.write_latest(name, manifest)
        self._revisions[name] = manifest
        losses = written.losses
        for what, ranges in losses.ranges.items():
            self.lost += [(name, what, first, last, reason) for first, last, reason in ranges]
        self.made.append(
            (
                name,
                revision,
                manifest.content.records,
                manifest.content_digest,
                written.source,
                written.exact,
                losses.purged,
            )
        )

    def _unsound(self, name: str, manifest: Manifest) -> Fault | None:
        """The first fault of what was written that its rows do not bring along."""
        with Recording(self._archive.storage, name, manifest) as recording:
            recording.blob_limit = self._limit
            found = verify_recording(recording, progress=self._report)
            return next((fault for fault in found if fault.code not in _INHERITED), None)

    def _copy_signatures(self, name: str, content_digest: str) -> None:
        """Signatures are of the content, and hold for what has the same. One beside a recording of that name counts."""
        found: dict[str, str] = {}
        for key in self._keys:
            to = f"recordings/{name}/{key.rpartition('/')[2]}"
            parts = signature_parts(name, to)
            if parts is not None and parts[0] == content_digest and (key == to or to not in found):
                found[to] = key
        for to, key in found.items():
            data = self._objects.whole(key)
            if data is not None:
                self._archive.storage.put(to, data)
