"""What of a recording cannot go whole, packed anew: frames as they are, or without the bytes of others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from replaypack._write.publish import Publisher, progress_of
from replaypack._write.reuse import renamed
from replaypack._write.rewrite import Fate, LiteralFate, rewrite
from replaypack.errors import FormatError
from replaypack.format.digests import digest
from replaypack.format.frame import Compressor
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.manifest_members import Storage as StorageSection
from replaypack.format.names import pack_key_of
from replaypack.format.pack import HEADER, check_header
from replaypack.format.table import FrameEntry
from replaypack.recording import Recording
from replaypack.storage import Storage

from ._belonging import Belonging
from ._transfer import Transfer, reading

if TYPE_CHECKING:
    from replaypack._read.packs import Frame

__all__ = ["PackedAnew"]

#: zstd has no higher level.
_MAX_LEVEL = 22


class PackedAnew:
    """A recording of which the packs ``split`` are packed anew for ``transfer``, and the others go or stay as they are.

    ``refs`` are all of its packs by digest, ``missing`` those that the target has not; ``moved`` is told the bytes of
    packs that are done with. ``made`` are the packs that were made, each with whether it was sent, or there.
    """

    def __init__(
        self,
        recording: Recording,
        transfer: Transfer,
        belonging: Belonging,
        *,
        to: str,
        policy: str,
        refs: Mapping[str, PackRef],
        missing: Collection[str],
        split: Collection[str],
        moved: Callable[[int], None],
    ) -> None:
        self._recording = recording
        self._transfer = transfer
        self._belonging = belonging
        self._refs = refs
        self._missing = missing
        self._split = split
        self._moved = moved
        with reading():
            level = min(_level(recording.storage, name) for name in split)
        self._publisher = _Publisher(transfer, to, recording.manifest, policy, level)
        self._waiting: list[Future[bool]] = []

    def write(self) -> StorageSection:
        """Write it; return where its bytes lie then. Raises `Damaged`, `StorageError`."""
        with reading():
            return self._write()

    def _write(self) -> StorageSection:
        recording, publisher = self._recording, self._publisher
        own = self._belonging.own(recording)
        used = self._belonging.used(recording, own, lambda ref: ref.digest in self._split)

        def literal(entry: FrameEntry, frame: Frame) -> LiteralFate:
            if frame.pack.digest not in self._split:
                return stay(frame)
            if own(entry, frame.pack):
                return Fate.KEEP
            return used.between(entry.first, entry.first + entry.items)

        def record(_entry: FrameEntry, frame: Frame) -> Fate:
            return Fate.KEEP if frame.pack.digest in self._split else stay(frame)

        sent: set[str] = set()

        def stay(frame: Frame) -> Fate:
            name = frame.pack.digest
            if name in self._missing and name not in sent:
                sent.add(name)
                self._waiting.append(self._transfer.send(self._refs[name]))
            return Fate.STAY

        read = 0

        def progress(size: int) -> None:
            nonlocal read
            read += size
            self._moved(size)

        live = rewrite(
            recording,
            origin=publisher.origin,
            upload=publisher.upload,
            compressor=publisher.compressor,
            literal=literal,
            record=record,
            progress=progress,
        )
        publisher.lives = [live] if live is not None else []
        manifest = recording.manifest
        publisher.keep_summary(recording.storage, manifest)
        section = publisher.manifest(
            revision=1,
            cause="copy",
            state=manifest.content.state,
            progress=progress_of(manifest),
            error=manifest.content.error,
        ).storage
        # What of a pack was not needed counts as done.
        self._moved(max(0, sum(self._refs[name].size for name in self._split if name in self._missing) - read))
        return msgspec.structs.replace(
            section, tombstones=manifest.storage.tombstones, withheld=manifest.storage.withheld
        )

    def wait(self) -> None:
        """Wait until all of it has arrived. Raises what the transfer does."""
        for future in self._waiting:
            future.result()
        for _, future in self._publisher.made:
            future.result()

    @property
    def made(self) -> list[tuple[PackRef, bool]]:
        """The packs that were made, and whether each was sent; else it was there."""
        return [(ref, future.result()) for ref, future in self._publisher.made]


class _Publisher(Publisher):
    """Its packs go the way of all others, in the background."""

    def __init__(self, transfer: Transfer, to: str, manifest: Manifest, policy: str, level: int) -> None:
        """``level`` is that of all frames that it is going to take over as they are; 0 where it is not known."""
        seed = b"copy" + bytes.fromhex(manifest.content_digest) + policy.encode()
        super().__init__(
            transfer.target,
            to,
            # The same again in a second run: it makes the same packs.
            writer=renamed(digest(b"writer" + seed)[:8], transfer.target),
            mode="replace",
            template=manifest.content,
            base=None,
            revision=0,
            previous=None,
        )
        if level:
            self.compressor = Compressor(max(level, self.compressor.level))
            self.compressor.noted = level
        self._transfer = transfer
        self.made: list[tuple[PackRef, Future[bool]]] = []

    def upload(self, ref: PackRef, data: bytes) -> None:
        self.made.append((ref, self._transfer.upload(ref, data)))


def _level(storage: Storage, name: str) -> int:
    """The level that a pack of the source says its frames have; 0 where it says none."""
    key = pack_key_of(name)
    try:
        level = check_header(storage.get_range(key, 0, len(HEADER)), where=key)
    except FormatError:
        return 0  # no frame lies there: those that do are checked
    return level if level <= _MAX_LEVEL else 0
