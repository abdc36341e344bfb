"""Packs that no manifest names: a writer's, garbage, or what a purge that was interrupted left."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import suppress

from replaypack._read.packs import PackReader
from replaypack._read.references import packs_of
from replaypack.errors import DAMAGED, FormatError, ObjectMissingError
from replaypack.format.manifest import Manifest, parse_manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import manifest_parts, pack_key_of
from replaypack.format.pack import FrameKind
from replaypack.format.record_frame import RecordFrame
from replaypack.storage import Storage

from ._faults import Fault
from ._inventory import packs_in, toc_of
from ._payload import read_frame
from ._survey import each
from ._unfinished import unfinished

__all__ = ["Unnamed"]


class Unnamed:
    """The packs of an archive that no manifest names which can be read; needs a listing.

    Of each pack some bytes are kept, and of each manifest its number of records; of those with tombstones these too.
    ``named`` are digests of packs of which it is known already that a manifest names them: where these are all there
    are, no manifest is read.

    Raises `StorageError`.
    """

    def __init__(self, storage: Storage, named: Collection[str] = ()) -> None:
        self._storage = storage
        # Packs first: what a manifest names that is read later was uploaded before it.
        self._sizes = {bytes.fromhex(digest): size for digest, size in packs_in(storage) if digest not in named}
        #: By the id of a recording what its manifests show: numbers of records, and which of them are purged.
        self._shown: dict[str, set[tuple[int, frozenset[int]]]] = {}
        #: A name of each recording that has tombstones, by its id.
        self._names: dict[str, str] = {}
        #: By the id of a recording `_purged` of it.
        self._gone: dict[str, list[int]] = {}
        if self._sizes:
            self._read_manifests()

    def _read_manifests(self) -> None:
        keys = [info.key for info in self._storage.list("recordings/") if manifest_parts(info.key) is not None]
        for item in each(self._read, keys):
            if item is None:
                continue
            manifest, packs, name = item
            for pack in packs:
                self._sizes.pop(bytes.fromhex(pack), None)
            purged = manifest.purged_records
            self._shown.setdefault(manifest.content.id, set()).add((manifest.records, purged))
            if purged:
                self._names[manifest.content.id] = name

    @property
    def packs(self) -> int:
        """How many there are."""
        return len(self._sizes)

    @property
    def bytes(self) -> int:
        """Their bytes, all together."""
        return sum(self._sizes.values())

    def _read(self, key: str) -> tuple[Manifest, list[str], str] | None:
        parts = manifest_parts(key)
        assert parts is not None
        try:
            manifest = parse_manifest(self._storage.get(key), where=key)
        except (FormatError, ObjectMissingError):
            return None
        packs: list[str] = []
        with suppress(*DAMAGED):
            packs = list(packs_of(manifest, self._storage))
        return manifest, packs, parts.name

    def faults(self) -> Iterator[Fault]:
        """Yield a fault for each that has rows of records which every manifest says are purged.

        Such packs a purge deletes last. Those that cannot be read are passed over. Raises `StorageError`.
        """
        for pack, size in self._sizes.items() if self._names else ():
            found: dict[str, list[int]] = {}
            with suppress(*DAMAGED):
                found = self._rows(PackRef(pack.hex(), size))
            for id_, seqs in found.items():
                how = "no manifest shows them, and this pack, which none names, still has what they said"
                yield unfinished(pack_key_of(pack.hex()), sorted(set(seqs)), how)._replace(recording=self._names[id_])

    def _rows(self, ref: PackRef) -> dict[str, list[int]]:
        """Which purged records a pack has rows of, by the id of their recording."""
        toc = toc_of(self._storage, ref)
        purged = {
            number: gone for number, origin in enumerate(toc.origins) if (gone := self._purged(origin.recording.hex()))
        }
        reader = PackReader(self._storage)
        found: dict[str, list[int]] = {}
        for info in toc.frames:
            if info.kind != FrameKind.RECORD or info.origin is None or info.origin not in purged:
                continue
            gone = purged[info.origin]
            there = gone[bisect_left(gone, info.first) : bisect_left(gone, info.first + info.count)]
            if there:
                frame = RecordFrame(read_frame(reader, ref, info))
                rows = [seq for seq in there if frame.entry(seq - info.first).row]
                if rows:
                    found.setdefault(toc.origins[info.origin].recording.hex(), []).extend(rows)
        return found

    def _purged(self, id_: str) -> list[int]:
        """The records (ascending) that are purged in a manifest of the recording, and that none shows."""
        if id_ not in self._names:
            return []
        if id_ not in self._gone:
            manifests = self._shown[id_]
            gone: set[int] = set().union(*(purged for _, purged in manifests))
            shown = (seq for seq in gone if any(seq < records and seq not in purged for records, purged in manifests))
            self._gone[id_] = sorted(gone.difference(shown))
        return self._gone[id_]
