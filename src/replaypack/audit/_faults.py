"""What `verify` reports: faults with stable codes, and how far it got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from replaypack.errors import FormatError

__all__ = ["FAULTS", "LEVELS", "Fault", "Level", "Progress", "Report", "fault", "manifest_fault"]

Level = Literal["manifest", "structure", "frames", "full"]
#: How much is checked, least first; each level includes the ones before it.
LEVELS: tuple[Level, ...] = get_args(Level)

_RESTORE = "restore the object from a copy of the archive"
_SALVAGE = "restore the pack from a copy of the archive; what other packs hold can still be read"
_REWRITE = "the writer made this, not the disk: keep the archive and report a bug"

_POINT = "`replaypack compact URL NAME` and `replaypack gc URL --apply` write it again; until then open with fresh=True"
_PURGE = (
    "run the same `replaypack purge` again (LOCATOR, --records and other options as before): it removes what is left"
)

#: Every code that a fault can have, with what to do about it. Codes are only ever added.
FAULTS: dict[str, str] = {
    "manifest.corrupted": _RESTORE,
    "manifest.malformed_version": _RESTORE,
    "manifest.future_version": "upgrade replaypack",
    "manifest.unmigratable": "read it with the version of replaypack that wrote it",
    "manifest.misplaced": "the object was renamed or copied over another: " + _RESTORE,
    "manifest.missing": _RESTORE,
    "digest.unexpected": "it is another recording, or another revision; `replaypack log` lists their digests",
    "revision.chain": "compare with the digests that you have noted or signed; a revision was exchanged",
    "latest.missing": _POINT,
    "latest.stale": _POINT,
    "latest.corrupted": "`replaypack compact URL NAME` writes it again; open the recording as NAME@REVISION until then",
    "signature.missing": _RESTORE,
    "signature.unreadable": "remove it, or restore it from a copy of the archive; who signed can sign again",
    "signature.misplaced": "the object was renamed or copied over another: " + _RESTORE,
    "pack.missing": _SALVAGE,
    "pack.size": _SALVAGE,
    "pack.header": _SALVAGE,
    "pack.digest": _SALVAGE,
    "toc.corrupted": _SALVAGE,
    "toc.mismatch": _REWRITE,
    "segment.near": _REWRITE,
    "page.corrupted": _SALVAGE,
    "page.order": _REWRITE,
    "records.gap": _REWRITE,
    "literals.gap": _REWRITE,
    "frame.corrupted": _SALVAGE,
    "row.corrupted": _REWRITE,
    "row.order": _REWRITE,
    "counts.mismatch": _REWRITE,
    "summary.unreadable": "recordings can be compared without it, only slower; restore the pack from a copy",
    "summary.mismatch": "comparing this recording may miss differences: do not rely on diff; " + _REWRITE,
    "purge.unfinished": _PURGE,
    "purged.present": "purge the record again: what it said can still be read",
    "merkle.mismatch": "the records are not those that the content digest stands for: " + _RESTORE,
    "key.mismatch": "the record answers another call than its key says: do not replay it",
    "key.index": _REWRITE,
    "blob.index": _REWRITE,
    "blob.mismatch": "the payload is not what was recorded: " + _RESTORE,
    "blob.unreadable": "restore the packs named by the other faults",
    "blob.encoding": _REWRITE,
}


class Fault(NamedTuple):
    """One thing that is wrong: a stable code, the object (and place in it), what is wrong, what to do about it.

    ``recording`` is the name, with ``@revision`` where it is not the newest.
    """

    code: str
    where: str
    message: str
    remedy: str
    recording: str = ""

    def __str__(self) -> str:
        of = f"{self.recording}: " if self.recording else ""
        return f"{self.code}: {of}{self.where}: {self.message}"


class Progress(NamedTuple):
    """How far a run is: the recording, what is being checked (``packs``, ``tables``, ``records``), done of total."""

    recording: str
    stage: str
    done: int
    total: int


Report = Callable[[Progress], None]


def fault(code: str, where: str, message: str) -> Fault:
    """A fault with the remedy of its code."""
    return Fault(code, where, message, FAULTS[code])


def manifest_fault(error: FormatError, where: str) -> Fault:
    """A manifest that cannot be used, as a fault; the code tells damage from another version."""
    return fault(f"manifest.{error.reason}", error.where or where, error.detail)
