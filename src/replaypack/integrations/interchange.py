"""File formats of other programs: how each is told apart, read into a recording, and written from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import msgspec

from replaypack.archive import Archive
from replaypack.recording import Recording

__all__ = ["Interchange", "Summary"]


class Summary(msgspec.Struct, frozen=True):
    """What an import or export did: the format, the records moved, and what could not be kept, in words."""

    format: str
    records: int
    notes: tuple[str, ...] = ()


class Interchange(Protocol):
    """One file format. Implementations are modules of this package; the command line finds them in its list."""

    #: Its name on the command line.
    name: str

    def detects(self, head: bytes, path: Path) -> bool:
        """Whether a file that begins with ``head`` (up to 64 KiB) is of this format."""

    def load(self, path: Path, archive: Archive, recording: str, **options: Any) -> Summary:
        """Record what the file holds as a new recording. Raises `ImportFormatError` where it cannot be read."""

    def dump(self, recording: Recording, path: Path, **options: Any) -> Summary:
        """Write a recording as a file of this format, atomically. Raises `ExportError` where it cannot be said."""
