"""Rows: leaves and Merkle root, keys, payloads, and the indexes that find them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from operator import ge
from typing import NamedTuple

from replaypack._read.packs import Frame
from replaypack.errors import DAMAGED, FormatError
from replaypack.format.merkle import MerkleTree, leaf_hashes
from replaypack.format.record_frame import RecordFrame
from replaypack.format.table import (
    BLOBS,
    KEYS,
    RECORDS,
    FrameEntry,
    TableShape,
    unpack_frame,
)
from replaypack.recording import Recording

from ._batch import AT_ONCE, Batch, read_batch
from ._entries import blob_entries, blob_faults, is_response, key_entries, key_faults
from ._faults import Fault, fault
from ._multiset import MultisetSum, differences
from ._packs import PackChecker
from ._payloads import PayloadChecker, Spans
from ._purged import PurgedChecker
from ._summary import SummaryChecker
from ._tables import Pages

__all__ = ["RowChecker"]

_AHEAD = 8
_AHEAD_BYTES = 16 << 20


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
        told = expected
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
            rows = item.rows
            if rows[0].seq != expected and not self._lost.covers(expected, rows[0].seq):
                message = f"record {rows[0].seq} stands where {expected} should"
                yield fault("row.order", item.frame.where, message)
            expected = rows[-1].seq + 1
            self._tree.add_all(leaf_hashes(item.data))
            self._summary.add(rows)
            for kind, count in Counter([row.kind for row in rows]).items():
                self._counts[kind] = self._counts.get(kind, 0) + count
            keys.add(_kept(key_entries(item.entry, rows), lost_keys))
            blobs = _kept(blob_entries(rows), lost_blobs)
            if blobs:
                listed.add([blob for blob in blobs if is_response(blob)])
                others.add([blob for blob in blobs if not is_response(blob)])
            yield from self._payloads.check_all(item)
            self._gone.used(item)
            if expected - told >= 256:
                told = expected
                self._progress(told, self._manifest.content.records)
        for key_side in self._compare(number, KEYS, keys, lost_keys, None, self._key_rows):
            yield from key_faults(*key_side)
        # Large responses have to be listed; requests may be.
        for only_rows, only_table in self._compare(number, BLOBS, listed, lost_blobs, is_response, self._blob_rows):
            yield from blob_faults(only_rows, only_table)
        for _, only_table in self._compare(
            number, BLOBS, others, lost_blobs, lambda blob: not is_response(blob), self._blob_rows, optional=True
        ):
            yield from blob_faults([], only_table)

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
        except DAMAGED:
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
            except DAMAGED as error:
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
            if at in self._packs.bad_frames or self._packs.missing(frame.pack):
                return
            self._packs.bad_frames.add(at)
        detail = error.detail if isinstance(error, FormatError) else str(error)
        yield fault("frame.corrupted", frame.where if frame is not None else "records", f"{what}: {detail}")

    def _frame(self, entry: FrameEntry, frame: RecordFrame, report: bool) -> Iterator[_Item]:
        purged = self._index.purged
        gone = {n: entry.first + n for n in range(frame.count) if entry.first + n in purged} if purged else {}
        if report and purged:
            yield from self._gone.frame(frame, gone)
        first = next((n for n in range(frame.count) if n not in gone), 0)
        ahead = 0
        for number in range(frame.count):
            if number < ahead:
                continue
            if not gone and not number % AT_ONCE and (batch := read_batch(entry, frame, number)) is not None:
                ahead = number + len(batch.rows)
                yield batch
                continue
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
                yield Batch(entry, frame, number, [row], [data], [inline])
        if report and frame.count != entry.items:
            yield fault("row.order", frame.where, f"the frame has {frame.count} records, its table says {entry.items}")

    # Indexes

    def _lost_pages(self, number: int, shape: TableShape) -> _Test | None:
        """Read a table once, check its order, and return whether an entry would be in a page that is unreadable.

        None where there is no such page.
        """
        if not self._pages.root_sound(number, shape):
            return lambda entry: True
        lost: set[int] = set()
        fences = self._index.segments[number].root(shape).fences
        previous = b""
        for page, rows in self._pages.whole(number, shape, lost.add):
            where = f"page {page} of {shape.name}"
            if rows[0][: shape.key] != fences[page]:
                self._pages.faults.append(fault("page.order", where, "its first entry is not the root's fence"))
            wrong = (rows[0] <= previous) + sum(map(ge, rows, rows[1:]))
            self._pages.faults += [fault("page.order", where, "its entries are not in order")] * wrong
            previous = rows[-1]
        if not lost:
            return None

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
        is_lost: _Test | None,
        wanted: _Test | None,
        read_rows: Callable[[int], Iterator[list[bytes]]],
        *,
        optional: bool = False,
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield the entries that only the rows have, and those that only the table has.

        Where they are ``optional`` the former mean nothing, and a table without any is not looked into.
        """
        seq_at = 24 if shape is KEYS else 16
        # Of purged records keys may have entries, which nothing is left to be compared with.
        ignored: Collection[int] = self._index.purged if shape is KEYS else ()

        def is_told(entry: bytes) -> bool:
            seq = int.from_bytes(entry[seq_at : seq_at + 6], "big")
            return seq not in self._lost and seq not in ignored

        def kept(entries: list[bytes]) -> list[bytes]:
            return _kept(entries if wanted is None else list(filter(wanted, entries)), is_lost)

        def from_table() -> Iterator[list[bytes]]:
            for _, entries in self._pages.whole(number, shape, frames=True):
                yield list(filter(is_told, kept(entries))) if self._lost or ignored else kept(entries)

        def from_rows() -> Iterator[list[bytes]]:
            return map(kept, read_rows(number))

        table = MultisetSum(rows.key)
        for entries in from_table():
            table.add(entries)
        if table.count or (rows.count and not optional):
            yield from differences(
                rows, table, lambda: chain.from_iterable(from_rows()), lambda: chain.from_iterable(from_table())
            )

    def _key_rows(self, number: int) -> Iterator[list[bytes]]:
        for item in self._rows(number, report=False):
            if isinstance(item, Batch):
                yield key_entries(item.entry, item.rows)

    def _blob_rows(self, number: int) -> Iterator[list[bytes]]:
        for item in self._rows(number, report=False):
            if isinstance(item, Batch):
                yield blob_entries(item.rows)


class _Purged(NamedTuple):
    """A record of which only the leaf is left."""

    seq: int
    leaf: bytes


_Item = Batch | _Purged | Fault
_Test = Callable[[bytes], bool]


def _kept(entries: list[bytes], is_lost: _Test | None) -> list[bytes]:
    return entries if is_lost is None else [entry for entry in entries if not is_lost(entry)]
