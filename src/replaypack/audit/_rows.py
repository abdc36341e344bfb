"""Rows: leaves and Merkle root, keys, payloads, and the indexes that find them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from replaypack._read.index import Found
from replaypack._read.packs import Frame
from replaypack.errors import FormatError, ObjectMissingError, ObjectTooShortError
from replaypack.format.merkle import MerkleTree, leaf_hash
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import Row, discriminator
from replaypack.format.table import (
    BLOBS,
    KEYS,
    RECORDS,
    BlobEntry,
    FrameEntry,
    FrameRef,
    TableShape,
    pack_blob,
    pack_key,
    unpack_blob,
    unpack_frame,
    unpack_key,
)
from replaypack.recording import Recording

from ._faults import Fault, fault
from ._multiset import MultisetSum, differences
from ._packs import PackChecker
from ._payloads import PayloadChecker, Spans
from ._purged import PurgedChecker
from ._summary import SummaryChecker
from ._tables import Pages, frame_tail

__all__ = ["RowChecker"]

_GONE = (FormatError, ObjectMissingError, ObjectTooShortError)
_AHEAD = 8
_AHEAD_BYTES = 16 << 20
_LISTED = 4096
_RESPONSE = 2


class RowChecker:
    """Checks every record of one recording, in order, holding one batch of frames at a time."""

    def __init__(
        self, recording: Recording, pages: Pages, packs: PackChecker, progress: Callable[[int, int], None]
    ) -> None:
        self._recording = recording
        self._manifest = recording.manifest
        self._index = pages.index
        self._pages = pages
        self._packs = packs
        self._progress = progress
        self._tree = MerkleTree()
        self._summary = SummaryChecker(self._manifest, self._index)
        self._counts: dict[str, int] = {}
        self._purged = 0
        self._gone = PurgedChecker(pages.index)
        self._lost = Spans()
        self._payloads = PayloadChecker(recording)

    def run(self) -> Iterator[Fault]:
        """Yield what is wrong with the records."""
        content = self._manifest.content
        for number in range(len(self._index.segments)):
            yield from self._segment(number)
        yield from self._payloads.unreadable()
        yield from self._gone.left()
        if not self._lost:
            yield from self._summary.faults()
            if self._tree.root.hex() != content.merkle_root:
                message = f"the rows have the root {self._tree.root.hex()}, the content names {content.merkle_root}"
                yield fault("merkle.mismatch", self._recording.locator, message)
            if self._counts_differ(content.counts):
                message = f"the rows are {self._counts}, the content says {content.counts}"
                yield fault("counts.mismatch", self._recording.locator, message)
        self._progress(content.records, content.records)

    def _counts_differ(self, told: dict[str, int]) -> bool:
        """Whether the rows are others than the content says: of purged ones the kinds are not known."""
        if not self._purged:
            return self._counts != told
        more = any(count > told.get(kind, 0) for kind, count in self._counts.items())
        return more or sum(self._counts.values()) + self._purged != sum(told.values())

    # One segment

    def _segment(self, number: int) -> Iterator[Fault]:
        keys, listed, others = MultisetSum(), MultisetSum(), MultisetSum()
        lost_keys, lost_blobs = self._lost_pages(number, KEYS), self._lost_pages(number, BLOBS)
        yield from self._pages.take_faults()
        expected = self._index.segments[number].segment.first
        place: tuple[FrameEntry | None, bytes] = (None, b"")
        self._gone.begin_segment(self._index.segments[number].segment.inline_first)
        for item in self._rows(number, report=True):
            if isinstance(item, Fault):
                yield item
                continue
            if isinstance(item, _Purged):
                expected = item.seq + 1
                self._tree.add(item.leaf)
                self._purged += 1
                continue
            entry, found = item
            row = found.row
            if row.seq != expected:
                yield fault("row.order", found.frame.where, f"record {row.seq} stands where {expected} should")
            expected = row.seq + 1
            self._tree.add(leaf_hash(found.row_bytes))
            self._summary.add(row)
            self._counts[row.kind] = self._counts.get(row.kind, 0) + 1
            if place[0] is not entry:
                place = (entry, _tail(entry))
            key = _key_entry(place[1], row)
            if not lost_keys(key):
                keys.add(key)
            if (
                row.response_size >= _LISTED
                or row.identity is not None
                or (row.request and row.request.size >= _LISTED)
            ):
                for blob in _blob_entries(row):
                    if not lost_blobs(blob):
                        (listed if blob[-1] == _RESPONSE else others).add(blob)
            faults = self._payloads.check(found)
            if faults:
                yield from faults
            self._gone.used(found)
            if row.seq % 256 == 0:
                self._progress(row.seq, self._manifest.content.records)
        for key_side in self._compare(number, KEYS, keys, lost_keys, _any, self._key_rows):
            yield from _key_faults(*key_side)
        # Large responses have to be listed; requests may be.
        for only_rows, only_table in self._compare(number, BLOBS, listed, lost_blobs, _is_response, self._blob_rows):
            yield from _blob_faults(only_rows, only_table)
        for _, only_table in self._compare(
            number, BLOBS, others, lost_blobs, _is_other, self._blob_rows, optional=True
        ):
            yield from _blob_faults([], only_table)

    def _rows(self, number: int, *, report: bool) -> Iterator[_Item]:
        """Every record of a segment that can be read; with ``report`` also why others cannot."""
        batch: list[FrameEntry] = []
        lost: list[int] = []
        root_sound = self._pages.root_sound(number, RECORDS)
        segment = self._index.segments[number].segment
        if not root_sound and report:
            self._lost.add(segment.first, segment.first + segment.count)
        position = segment.first
        for _, row in self._pages.entries(number, RECORDS, lost.append):
            entry = unpack_frame(row)
            if report and entry.first > position:
                self._lost.add(position, entry.first)
            position = entry.first + entry.items
            batch.append(entry)
            if len(batch) == _AHEAD or sum(item.raw for item in batch) > _AHEAD_BYTES:
                yield from self._batch(number, batch, report)
                batch = []
        yield from self._batch(number, batch, report)
        end = segment.first + segment.count
        if report and root_sound and position < end:
            self._lost.add(position, end)

    def _batch(self, number: int, entries: list[FrameEntry], report: bool) -> Iterator[_Item]:
        segment = self._index.segments[number]
        frames = []
        for entry in entries:
            known = entry.frame.pack < len(segment.packs)
            ref = segment.packs[entry.frame.pack] if known else None
            frames.append(Frame(ref, entry.frame, entry.raw, entry.digest) if ref is not None else None)
        loaded: list[RecordFrame | None]
        try:
            loaded = list(self._index.read_frames([frame for frame in frames if frame is not None]))
            if len(loaded) != len(entries):
                raise FormatError("a table names a pack that the manifest does not")
        except _GONE:
            loaded = [None] * len(entries)
        loaded.reverse()
        for entry, frame in zip(entries, frames, strict=True):
            ready = loaded.pop()
            if ready is not None:
                yield from self._frame(entry, ready, report)
                continue
            try:
                if frame is None:
                    raise FormatError("its pack is not one of the manifest's")
                [one] = self._index.read_frames([frame])
            except _GONE as error:
                if report:
                    self._lost.add(entry.first, entry.first + entry.items)
                    self._gone.lost_frame()
                    yield from self._lost_frame(entry, frame, error)
                continue
            yield from self._frame(entry, one, report)

    def _lost_frame(self, entry: FrameEntry, frame: Frame | None, error: Exception) -> Iterator[Fault]:
        last = entry.first + entry.items - 1
        what = f"record frame with records {entry.first} to {last}"
        if frame is not None:
            at = (frame.pack.digest, frame.at.offset)
            if at in self._packs.bad_frames or self._packs.missing(frame.pack.digest):
                return
            self._packs.bad_frames.add(at)
        detail = error.detail if isinstance(error, FormatError) else str(error)
        yield fault("frame.corrupted", frame.where if frame is not None else "records", f"{what}: {detail}")

    def _frame(self, entry: FrameEntry, frame: RecordFrame, report: bool) -> Iterator[_Item]:
        purged = self._index.purged
        if report and purged:
            gone = {n: entry.first + n for n in range(frame.count) if entry.first + n in purged}
            yield from self._gone.frame(frame, gone)
        first = next((n for n in range(frame.count) if entry.first + n not in purged), 0)
        for number in range(frame.count):
            seq = entry.first + number
            if seq in purged:
                if report:
                    yield _Purged(seq, purged[seq][0])
                continue
            try:
                row, data, inline = frame.record(number)
            except FormatError as error:
                if report:
                    self._lost.add(entry.first + number, entry.first + number + 1)
                    yield fault("row.corrupted", frame.where, f"record {entry.first + number}: {error.detail}")
            else:
                if number == first and row.seq != seq:
                    # Another frame than its table says. It is not looked into: a table can name it any number of times.
                    if report:
                        self._lost.add(entry.first, entry.first + entry.items)
                        self._gone.lost_frame()
                        message = f"the frame begins with record {row.seq}, its table says {entry.first}"
                        yield fault("row.order", frame.where, message)
                    return
                yield entry, Found(row, data, inline, frame, number)
        if report and frame.count != entry.items:
            yield fault("row.order", frame.where, f"the frame has {frame.count} records, its table says {entry.items}")

    # Indexes

    def _lost_pages(self, number: int, shape: TableShape) -> Callable[[bytes], bool]:
        """Read a table once, check its order, and return whether an entry would be in a page that is unreadable."""
        if not self._pages.root_sound(number, shape):
            return lambda entry: True
        lost: set[int] = set()
        fences = self._index.segments[number].root(shape).fences
        previous, last = b"", -1
        for page, row in self._pages.entries(number, shape, lost.add):
            where = f"page {page} of {shape.name}"
            if page != last and row[: shape.key] != fences[page]:
                self._pages.faults.append(fault("page.order", where, "its first entry is not the root's fence"))
            if row[: shape.width] <= previous:
                self._pages.faults.append(fault("page.order", where, "its entries are not in order"))
            previous, last = row[: shape.width], page
        if not lost:
            return lambda entry: False

        def is_lost(entry: bytes) -> bool:
            # Entries that begin alike may lie on both sides of a fence.
            page = bisect_right(fences, entry[: shape.key]) - 1
            return page in lost or page + 1 in lost or page - 1 in lost

        return is_lost

    def _compare(
        self,
        number: int,
        shape: TableShape,
        rows: MultisetSum,
        is_lost: _Test,
        wanted: _Test,
        read_rows: Callable[[int], Iterator[bytes]],
        *,
        optional: bool = False,
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield the entries that only the rows have, and those that only the table has.

        Where they are ``optional`` the former mean nothing, and a table without any is not looked into.
        """
        seq_at = 24 if shape is KEYS else 16
        # Of purged records keys may have entries, which nothing is left to be compared with.
        ignored: Collection[int] = self._index.purged if shape is KEYS else ()

        def from_table() -> Iterator[bytes]:
            for _, entry in self._pages.entries(number, shape):
                seq = int.from_bytes(entry[seq_at : seq_at + 6], "big")
                if wanted(entry) and seq not in self._lost and seq not in ignored and not is_lost(entry):
                    yield entry

        def from_rows() -> Iterator[bytes]:
            return (entry for entry in read_rows(number) if wanted(entry) and not is_lost(entry))

        table = MultisetSum(rows.key)
        for entry in from_table():
            table.add(entry)
        if table.count or (rows.count and not optional):
            yield from differences(rows, table, from_rows, from_table)

    def _key_rows(self, number: int) -> Iterator[bytes]:
        for item in self._rows(number, report=False):
            if not isinstance(item, Fault | _Purged):
                yield _key_entry(_tail(item[0]), item[1].row)

    def _blob_rows(self, number: int) -> Iterator[bytes]:
        for item in self._rows(number, report=False):
            if not isinstance(item, Fault | _Purged):
                yield from _blob_entries(item[1].row)


class _Purged(NamedTuple):
    """A record of which only the leaf is left."""

    seq: int
    leaf: bytes


_Item = tuple[FrameEntry, Found] | _Purged | Fault
_Test = Callable[[bytes], bool]


def _any(entry: bytes) -> bool:
    return True


def _is_response(entry: bytes) -> bool:
    return entry[-1] == _RESPONSE


def _is_other(entry: bytes) -> bool:
    return entry[-1] != _RESPONSE


def _tail(entry: FrameEntry) -> bytes:
    return frame_tail(FrameRef(entry.first, entry.frame, entry.digest))


def _key_entry(tail: bytes, row: Row) -> bytes:
    return pack_key(row.key, discriminator(row.scope), row.seq) + tail


def _blob_entries(row: Row) -> list[bytes]:
    sizes = (row.request.size if row.request else 0, row.identity.size if row.identity else 0, row.response_size)
    if max(sizes) < _LISTED:
        return []
    return [
        pack_blob(BlobEntry(ref.digest[:16], row.seq, role))
        for role, ref in enumerate((row.request, row.identity, row.response))
        if ref is not None and ref.encoding and ref.size >= _LISTED
    ]


def _key_faults(only_rows: list[bytes], only_table: list[bytes]) -> Iterator[Fault]:
    rows = {unpack_key(entry).seq: entry for entry in only_rows}
    for entry in only_table:
        key = unpack_key(entry)
        where = f"record {key.seq}"
        row = rows.pop(key.seq, None)
        if row is None:
            yield fault("key.index", where, "keys has an entry for it that no row matches")
            continue
        of_row = unpack_key(row)
        fields = [name for name, a, b in zip(key._fields, of_row, key, strict=True) if a != b]
        if row[KEYS.width :] != entry[KEYS.width :]:
            fields.append("frame")
        yield fault("key.index", where, f"its row and its entry in keys differ in {', '.join(fields)}")
    for seq in sorted(rows):
        yield fault("key.index", f"record {seq}", "it is not in keys: no lookup finds it")


def _blob_faults(only_rows: list[bytes], only_table: list[bytes]) -> Iterator[Fault]:
    for entries, message in (
        (only_rows, "the digest of its {} is not in blobs"),
        (only_table, "blobs names its {}, which has another digest or is smaller than 4 KiB"),
    ):
        for raw in entries:
            entry = unpack_blob(raw)
            role = ("request", "identity", "response")[entry.role] if entry.role < 3 else f"role {entry.role}"
            yield fault("blob.index", f"record {entry.seq}", message.format(role))
