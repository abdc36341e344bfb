"""What `verify` says of signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from replaypack.errors import (
    DAMAGED,
    AccessDeniedError,
    ArchiveError,
    StorageUnsupportedError,
    UsageError,
)

from ._files import read_file
from ._text import counted

if TYPE_CHECKING:
    from replaypack import Archive

__all__ = ["Seal", "Signers"]

_MAX_KEY = 64 << 10


class Seal(NamedTuple):
    """A signature of a recording: its state, or ``unchecked`` where no key was given."""

    recording: str
    state: str
    object: str
    key_id: str
    detail: str

    def __str__(self) -> str:
        if self.state == "unchecked":
            return f"{self.recording}: signature by key {self.key_id}… (not checked: give its --key); {self.detail}"
        return f"{self.recording}: signature {self.state}: {self.detail}"


class Signers:
    """Checks the signatures of recordings with the key that was given, or lists them."""

    def __init__(self, key: Path | None, envelope: Path | None) -> None:
        self._key = None
        self._envelope = None
        if key is not None:
            from replaypack.audit import load_public_key
            from replaypack.format.dsse import MAX_ENVELOPE

            data = read_file(key, _MAX_KEY)
            try:
                self._key = load_public_key(data)
            except UsageError as error:
                raise UsageError(f"{key}: {error.message}", hint=error.hint) from None
            self._envelope = read_file(envelope, MAX_ENVELOPE + 1) if envelope is not None else None

    def of(self, archive: Archive, name: str, revision: int | None) -> Iterator[Seal]:
        """Yield the one state that a key gives, or all signatures that can be listed."""
        try:
            recording = archive.open(name, revision)
        except (ArchiveError, *DAMAGED) as error:
            if self._key is not None:
                yield Seal(name, "unreadable", "", "", f"the recording cannot be opened: {error}")
            return
        from replaypack.audit import check_signature, signatures
        from replaypack.format.dsse import key_id

        with recording:
            label = name if revision is None else f"{name}@{revision}"
            if self._key is not None:
                found = check_signature(recording, self._key, envelope=self._envelope)
                purged = recording.manifest.purged
                note = f"; {counted(purged, 'record')} purged since" if purged else ""
                own = key_id(self._key.public_bytes_raw())
                yield Seal(label, found.state, found.where, own, found.detail + note)
                return
            try:
                for item in signatures(recording):
                    same = item.content_digest == recording.content_digest
                    detail = "of this content" if same else f"of the content digest {item.content_digest}"
                    yield Seal(label, "unchecked", item.object, item.key_id, detail)
            except (StorageUnsupportedError, AccessDeniedError):
                return  # no listing: without a key nothing says what to look for

    def satisfied(self, seals: Sequence[Seal]) -> bool:
        """Whether every signature that was asked for is valid."""
        return self._key is None or all(seal.state == "valid" for seal in seals)
