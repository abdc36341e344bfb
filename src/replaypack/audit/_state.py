"""What an interrupted `verify` has checked, in a file: one JSON object a line, so that whatever is cut off is the last.

It says what was seen then. The bytes may be others now: a run that goes on looks whether packs are there, with their
sizes, but does not read them again, and says so.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO, Any

import msgspec

from replaypack._files import write_hint
from replaypack.errors import UsageError
from replaypack.format.manifest_members import PackRef

from ._faults import FAULTS, LEVELS, Fault

__all__ = ["Resumed", "State"]

_VERSION = 1


class _Head(msgspec.Struct, forbid_unknown_fields=True, tag="replaypack-verify", tag_field="kind"):
    version: int
    archive: str


class _Pack(msgspec.Struct, forbid_unknown_fields=True, tag="pack", tag_field="kind"):
    """A pack of which every byte was sound."""

    digest: str
    size: int


class _Done(msgspec.Struct, forbid_unknown_fields=True, tag="recording", tag_field="kind"):
    """A revision that was checked to its end: its faults, and the packs that cannot be used."""

    recording: str
    manifest: str
    level: str
    faults: list[Fault]
    lost: list[PackRef]
    untold: list[PackRef]
    bad_frames: list[tuple[str, int]]


class Resumed(msgspec.Struct):
    """How much of a run was done by an earlier one."""

    packs: int = 0
    recordings: int = 0


class State:
    """The file of one run; without a path nothing is kept. A context manager: it removes the file of a whole run."""

    def __init__(self, path: str | os.PathLike[str] | None, archive: str) -> None:
        self.resumed = Resumed()
        self._path = Path(path) if path is not None else None
        self._packs: dict[str, int] = {}
        self._done: dict[tuple[str, str], _Done] = {}
        self._file: IO[bytes] | None = None
        if self._path is None:
            return
        try:
            sound = self._load(archive)
            self._file = self._path.open("r+b" if sound else "wb")
            self._file.truncate(sound)
            self._file.seek(sound)
        except OSError as error:
            message = f"the state file {self._path} cannot be used: {error.strerror or error}"
            raise UsageError(message, hint=write_hint(error)) from None
        if not sound:
            self._write(_Head(_VERSION, archive))

    def _load(self, archive: str) -> int:
        """Read what is there; return how many bytes of it are whole."""
        assert self._path is not None
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and not b'{"kind":"replaypack-verify"'.startswith(data[:27]):
            raise UsageError(f"{self._path} is not a state file of verify", hint="name another file")
        try:
            items = [_decoder.decode(line) for line in whole.splitlines()]
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise UsageError(f"{self._path} is not a state file of verify", hint="name another file") from None
        for number, item in enumerate(items):
            if isinstance(item, _Head) is bool(number) or (isinstance(item, _Head) and item.version != _VERSION):
                raise UsageError(f"{self._path} is a state file of another version", hint="remove it")
            if isinstance(item, _Head) and item.archive != archive:
                raise UsageError(f"{self._path} is the state of verifying {item.archive}", hint="name another file")
            if isinstance(item, _Pack):
                self._packs[item.digest] = item.size
            elif isinstance(item, _Done):
                self._done[item.recording, item.manifest] = item
        return len(whole)

    def _write(self, item: Any) -> None:
        if self._file is not None:
            try:
                self._file.write(_encode(item) + b"\n")
                self._file.flush()
            except OSError as error:
                file, self._file = self._file, None
                with contextlib.suppress(OSError):
                    file.close()  # tries once more to write what it holds
                raise UsageError(
                    f"the state file {self._path} cannot be written: {error.strerror}", hint="name another place for it"
                ) from None

    # Packs

    def has_pack(self, digest: str, size: int) -> bool:
        """Whether an earlier run read the whole pack and found it sound."""
        found = self._packs.get(digest) == size
        self.resumed.packs += found
        return found

    def add_pack(self, digest: str, size: int) -> None:
        """Note a pack that was read whole and is sound."""
        self._write(_Pack(digest, size))

    # Recordings

    def done(self, recording: str, manifest: str, level: str) -> _Done | None:
        """What an earlier run found of a revision; None where it did not come to its end."""
        known = self._done.get((recording, manifest))
        if known is None or known.level not in LEVELS or LEVELS.index(known.level) < LEVELS.index(level):
            return None
        self.resumed.recordings += 1
        known.faults = [fault._replace(remedy=FAULTS.get(fault.code, fault.remedy)) for fault in known.faults]
        return known

    def add_recording(
        self,
        recording: str,
        manifest: str,
        level: str,
        faults: list[Fault],
        lost: set[PackRef],
        untold: set[PackRef],
        bad_frames: set[tuple[str, int]],
    ) -> None:
        """Note a revision that was checked to its end."""
        self._write(_Done(recording, manifest, level, faults, list(lost), list(untold), sorted(bad_frames)))

    def close(self, *, whole: bool) -> None:
        """Close the file, and remove it after a whole run: the next one is to look at everything again."""
        if self._file is not None and self._path is not None:
            self._file.close()
            self._file = None
            if whole:
                with contextlib.suppress(OSError):
                    self._path.unlink()


_decoder = msgspec.json.Decoder(_Head | _Pack | _Done)
_encode = msgspec.json.Encoder().encode
