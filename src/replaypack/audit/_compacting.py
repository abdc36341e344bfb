"""One recording, written anew: what `compact` does to each."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from replaypack._read.blobs import blob_ref, is_withheld, read_blob
from replaypack._read.index import Found
from replaypack._read.sequence import in_order
from replaypack._read.tables import TableReader
from replaypack._write.literals import SPLIT
from replaypack._write.merge import finish
from replaypack._write.publish import Progress as State
from replaypack._write.publish import Publisher
from replaypack._write.revisions import commit_behind, point_behind
from replaypack._write.segment import PACK_TARGET, SegmentBuilder
from replaypack._write.shared import SharedLiterals
from replaypack._write.stamps import new_id, now_rfc3339
from replaypack.errors import (
    ConflictError,
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
    ReplaypackError,
)
from replaypack.format.frame import Compressor
from replaypack.format.manifest import Manifest, encode_manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.merkle import MerkleTree, leaf_hash
from replaypack.format.names import revision_key
from replaypack.format.recipe import Op, encode_ops
from replaypack.format.record_frame import MAX_FRAME_RECORDS, Entry, RecordFrame, encode_frame
from replaypack.format.table import BLOBS, INLINE_SPACE, KEYS, TableShape
from replaypack.recording import Recording
from replaypack.storage import Storage
from replaypack.values import decode_payload, payload_pieces

from ._faults import Progress, Report

__all__ = ["Job", "Tools"]

#: Record frames are closed at this many raw bytes: a lookup reads one.
RECORD_FRAME = 1 << 20
_FRAME_RANGES = 1 << 20
_FRAME_PARTS = 1 << 17
#: Raw bytes of a recording that wait to be compressed.
_WAITING = 16 << 20
#: A larger payload is not split.
_SPLIT_MOST = 64 << 20


class Tools(NamedTuple):
    """What the recordings of one run share."""

    storage: Storage
    compressor: Compressor
    threads: ThreadPoolExecutor
    shared: SharedLiterals
    report: Report | None


class Job:
    """One recording that is written anew, holding one record frame and one pack at a time."""

    def __init__(self, tools: Tools, name: str, newest: Manifest, packs: Sequence[PackRef]) -> None:
        self.name, self.newest, self.packs = name, newest, packs
        #: Bytes of the packs that were written.
        self.written = 0
        self._tools = tools
        self._source = Recording(tools.storage, name, newest)
        self.publisher = Publisher(
            tools.storage,
            name,
            writer=new_id(8),
            mode="replace",
            template=newest.content,
            base=None,
            revision=newest.storage.revision,
            previous=newest.digest,
        )
        self.publisher.compressor = tools.compressor
        self.publisher.holds = False  # what is deleted meanwhile was purged, and many recordings wait at a time
        self.publisher.tombstones = newest.storage.tombstones
        self.builder = SegmentBuilder(0, 0)
        self.builder.more = self._entries
        self.user = tools.shared.begin(self.builder)
        #: Whether the revision that it is made of is to go: it was of a group of which not all were committed.
        self.mends = False
        self._made: Manifest | None = None
        self._committed = False
        #: Packs of the revision that is made.
        self.made_packs: list[PackRef] = []
        self._tree = MerkleTree()
        self._inlines = 0
        self._frame: list[Entry] = []
        self._size = self._parts = 0

    def write(self) -> None:
        """Write all but the tables. Raises `FormatError` and `StorageError` where the source cannot be read."""
        try:
            self._write()
        finally:
            self._source.close()  # nothing of it is held while it waits, or is reported

    def _write(self) -> None:
        splitter = self._tools.shared.splitter
        records = len(self._source)
        for found, leaf in _walk(self._source):
            if not self._frame:
                splitter.begin_frame()
                splitter.inlines.begin_frame(INLINE_SPACE + self._inlines)
            if found is None:
                self._frame.append(Entry(b"", b"", None))  # purged: nothing is left of it but its place
            else:
                self._add(found)
            self._tree.add(leaf)
            self._size += 12
            if (
                self._size >= RECORD_FRAME
                or len(self._frame) == MAX_FRAME_RECORDS
                or self._parts >= _FRAME_PARTS
                or splitter.frame_ranges >= _FRAME_RANGES
            ):
                self._close_frame()
            if self._tools.report is not None:
                self._tools.report(Progress(self.name, "records", self._tree.count, records))
        self._close_frame()
        if self._tree.root.hex() != self.newest.content.merkle_root:
            raise FormatError("the rows do not have the Merkle root of the content", where=self._source.locator)
        for shape in (KEYS, BLOBS):  # what is damaged is to be found now, while it concerns no other recording
            deque(self._entries(shape), maxlen=0)

    def give_up(self) -> None:
        """It is not written after all: leave no bytes of it in frames of others, and hold nothing of it."""
        self._tools.shared.give_up(self.user, self.publisher.upload_large)
        self.builder.more = None  # which is a circle

    def _add(self, found: Found) -> None:
        frame = found.frame
        assert isinstance(frame, RecordFrame)  # whole frames are walked, not single records of them
        row, inline = frame.stored(found.number)
        recipes = b""
        for role in _roles(found):
            shared = self._tools.shared
            if is_withheld(self._source.index, found.row, role):
                ops: Sequence[Op] = shared.splitter.empty()
            else:
                ops = shared.recipe(self._pieces(found, role), self.user, self.publisher.upload_large)
            recipes += encode_ops(ops)
            self._parts += len(ops)
        self._frame.append(Entry(row, recipes, inline))
        self._size += len(row) + len(recipes)
        if inline:
            self._size += len(inline)
            self._tools.shared.splitter.inlines.note(INLINE_SPACE + self._inlines, inline)
            self._inlines += len(inline)

    def _pieces(self, found: Found, role: str) -> list[bytes]:
        """A payload, checked against its digest, in the pieces that a recorder would make of it."""
        ref = blob_ref(found.row, role)
        assert ref is not None
        data = read_blob(self._source.index, found, role, limit=self._source.blob_limit)
        if SPLIT <= len(data) <= _SPLIT_MOST:
            try:
                _, pieces = payload_pieces(decode_payload(ref.encoding, data))
            except ReplaypackError:
                return [data]  # made by another writer, who has other ideas of what a payload is
            if b"".join(pieces) == data:
                return pieces
        return [data]

    def _close_frame(self) -> None:
        if not self._frame:
            return
        builder, tools = self.builder, self._tools
        builder.add_record_frame(len(self._frame), encode_frame(self._frame))
        self._frame, self._size, self._parts = [], 0, 0
        if builder.waiting >= _WAITING or builder.size >= PACK_TARGET:
            builder.compress(tools.compressor, tools.threads.map)
        if builder.size >= PACK_TARGET:
            self.publisher.spill(builder)

    def _entries(self, shape: TableShape) -> Iterator[bytes]:
        """The entries of ``keys`` or ``blobs``: they say nothing of where frames lie, and stay."""
        index = self._source.index
        return heapq.merge(*(TableReader(segment, index.reader).rows(shape) for segment in index.segments))

    def prepare(self) -> None:
        """Write the tables, and read everything back. Raises `FormatError`, `StorageError`."""
        publisher, content = self.publisher, self.newest.content
        literals, packs = self._tools.shared.refer(self.user)
        for pack in packs:
            # Without their bytes: a pack that somebody deleted is not to come back.
            publisher.reused.add(pack)
        self.builder.compress(self._tools.compressor, self._tools.threads.map)
        publisher.lives.append(
            finish(
                self.builder, publisher.origin, publisher.upload, publisher.upload_large, publisher.compressor, tier=0
            )
        )
        publisher.keep_summary(self._tools.storage, self.newest)
        manifest = publisher.manifest(
            revision=self.newest.storage.revision + 1,
            cause="compact",
            state=content.state,
            progress=State(self._tree, dict(content.counts), literals, self._inlines),
            error=content.error,
            previous=self.newest.digest,
        )
        old = self.newest.storage
        storage = msgspec.structs.replace(manifest.storage, withheld=old.withheld, source=old.source)
        manifest = encode_manifest(manifest.content, storage)
        if manifest.content_digest != self.newest.content_digest:  # pragma: no cover - the rows gave the same root
            raise FormatError("the content would change", where=self._source.locator)
        with Recording(self._tools.storage, self.name, manifest) as written:
            self._check(written)
            self.made_packs = written.index.packs
        self.written = publisher.uploaded
        self._made = manifest

    @property
    def made(self) -> Manifest:
        """The manifest that `prepare` made."""
        assert self._made is not None
        return self._made

    def commit(self) -> None:
        """Create the revision: from here on it can be seen. Raises `ConflictError`, `StorageError`."""
        self.publisher.ensure(everything=True)
        self._committed = True
        try:
            commit_behind(self._tools.storage, self.name, self.made)
        except ObjectExistsError:
            self._committed = False
            raise self.conflict() from None

    def conflict(self) -> ConflictError:
        """The error for a recording that has another newest revision than the one that was read."""
        return ConflictError(
            f"another writer committed revision {self.newest.storage.revision + 1} of {self.name!r} first; "
            "it is as that writer left it",
            hint="run it again",
        )

    def undo(self) -> bool:
        """Let the revision before be the newest again, under another number, and remove what `commit` created.

        Returns whether nothing is left of it, nor of what others may have made of it. Raises `StorageError`.
        """
        if not self._committed:
            return True
        storage, made = self._tools.storage, self.made
        key = revision_key(self.name, made.storage.revision)
        try:
            if storage.get(key) != made.raw:
                return False
        except ObjectMissingError:
            return False
        section = msgspec.structs.replace(
            self.newest.storage,
            revision=made.storage.revision + 1,
            checkpoint=0,
            cause="compact",
            claim=None,
            writer=made.storage.writer,
            created=now_rfc3339(),
            previous=made.digest,
        )
        manifest = encode_manifest(self.newest.content, section)
        try:
            commit_behind(storage, self.name, manifest)
        except (ObjectExistsError, ConflictError):
            return False  # somebody went on from it
        if not point_behind(storage, self.name, manifest):
            return False  # readers that begin at the hint need each number behind it
        storage.delete(key)
        return True

    def _check(self, written: Recording) -> None:
        """Read everything back. Raises `FormatError`, `StorageError`."""
        tree = MerkleTree()
        for found, leaf in _walk(written):
            if found is not None:
                for role in _roles(found):
                    if not is_withheld(written.index, found.row, role):
                        read_blob(written.index, found, role, limit=self._source.blob_limit)
            tree.add(leaf)
            if self._tools.report is not None:
                self._tools.report(Progress(self.name, "check", tree.count, len(written)))
        if tree.root != self._tree.root:
            raise FormatError("what was written is not what was read", where=written.locator)


def _walk(recording: Recording) -> Iterator[tuple[Found | None, bytes]]:
    """Every record with its leaf, in order; None for those that were purged."""
    index = recording.index
    seq = 0
    for found in in_order(index, 0, where=recording.locator):
        for gone in range(seq, found.row.seq):
            yield None, index.purged[gone][0]
        yield found, leaf_hash(found.row_bytes)
        seq = found.row.seq + 1
    for gone in range(seq, len(recording)):
        yield None, index.purged[gone][0]


def _roles(found: Found) -> list[str]:
    """The payloads that do not stand behind their row, in the order of their recipes."""
    row = found.row
    roles = [role for role in ("request", "identity") if blob_ref(row, role) is not None]
    if found.inline is None and row.response_encoding:
        roles.append("response")
    return roles
