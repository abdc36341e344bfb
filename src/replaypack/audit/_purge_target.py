"""What is to be purged: records of one recording of an archive."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from replaypack._write.claim import refuse_claimed
from replaypack.errors import UsageError
from replaypack.format.manifest import Manifest
from replaypack.recording import Recording
from replaypack.recover import finish_leftover

from ._faults import Progress, Report
from ._inventory import Held, Inventory

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Records", "Target"]

_CACHE = 16 << 20

#: Sequence numbers by the recording that they are of.
Records = dict[str, list[int]]


class Target:
    """The records ``wanted`` (ascending) of the recording ``name``.

    ``also`` are those of other recordings that are purged in the same run: they may take bytes of these until then.
    ``keep_shared`` says so of all records.
    """

    def __init__(
        self,
        archive: Archive,
        name: str,
        wanted: Sequence[int],
        also: Mapping[str, Collection[int]],
        *,
        keep_shared: bool,
        dry_run: bool,
        report: Report | None,
    ) -> None:
        self.archive = archive
        self.storage = archive.storage
        self.name = name
        self.wanted = wanted
        self.also = also
        self.keep_shared = keep_shared
        self.dry_run = dry_run
        self.report = report

    def has_records(self, held: Held) -> bool:
        """Whether a manifest of the recording's id has some of the records, not purged."""
        return any(seq < held.records and seq not in held.purged for seq in self.wanted)

    def current(self, inventory: Inventory) -> Held:
        """The newest manifest of the recording. Raises `RecordingNotFoundError`."""
        newest = inventory.newest().get(self.name)
        if newest is None:
            raise self.archive.manifests.not_found(self.name)
        return newest

    def open(self, inventory: Inventory, held: Held, manifest: Manifest | None = None) -> Recording:
        """What one manifest shows. Raises as `Inventory.manifest` does."""
        manifest = manifest or inventory.manifest(held)
        return Recording(self.storage, held.name, manifest, cache_bytes=_CACHE)

    def refuse_busy(self, inventory: Inventory, held: Held) -> None:
        """Raise `RecordingExistsError` or `UsageError` where somebody records, or left records behind."""
        manifest = self.archive.manifests.get(held.key) or inventory.manifest(held)
        if held.cause in ("claim", "checkpoint"):
            finish_leftover(self.archive, held.name, "error")
        refuse_claimed(self.storage, held.name, manifest)
        if manifest.content.state == "open":
            raise UsageError(
                f"{self.archive.url}#{held.name} is not finished",
                hint="purge when it is sealed, or finish it with `replaypack recover`",
            )

    def tell(self, stage: str, done: int, total: int, name: str = "") -> None:
        """Report how far it is."""
        if self.report is not None:
            self.report(Progress(name or self.name, stage, done, total))
