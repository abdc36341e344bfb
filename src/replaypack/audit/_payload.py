"""Where the bytes lie that records to be purged are made of, and who else uses them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from replaypack._read.blobs import is_withheld
from replaypack._read.index import Index
from replaypack._read.packs import Frame, PackReader
from replaypack._write.intervals import Intervals
from replaypack._write.rewrite import ROLES, used_literals
from replaypack.errors import FormatError, ObjectMissingError
from replaypack.format.manifest_members import PackRef
from replaypack.format.merkle import leaf_hash
from replaypack.format.pack import FrameInfo, FrameKind, Toc
from replaypack.format.recipe import Range
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import BlobRef, Row
from replaypack.format.table import (
    BLOBS,
    INLINE_SPACE,
    KEYS,
    LITERALS,
    FrameEntry,
    KeyPage,
    Location,
    parse_page,
    unpack_blob,
    unpack_frame,
    unpack_key,
)
from replaypack.recording import Record, Recording

__all__ = ["Payload", "Uses", "is_zero", "literal_rows", "read_frame", "same_blobs", "within"]

#: Pieces of literals shorter than this (bytes) are not looked for in frames that no table explains, and more pieces
#: than this are not looked for one by one: such a frame is then taken to hold them.
_SHORT, _MANY = 8, 4096
#: Longer ones are looked for in parts of this many bytes.
_PART = 16 << 10
#: Where frames are of several recordings: so many bytes in a row say that they are of the records (twice as many where
#: there are more than a few bytes), and about so many such windows are held at most.
_WINDOW, _WINDOWS, _FEW = 32, 1 << 17, 1 << 16


class Uses(NamedTuple):
    """What a recording has to do with a payload: what of its address space it is, what of that its records take."""

    there: Intervals
    taken: Intervals

    def gone(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of ``start`` … ``end`` has to go."""
        found = []
        for low, high in self.there.between(start, end):
            for begin, stop in self.taken.between(low, high):
                if low < begin:
                    found.append((low, begin))
                low = stop
            if low < high:
                found.append((low, high))
        return found


class Payload:
    """The bytes of the records ``seqs`` of the recording ``id`` (16 bytes), by the frames that they lie in."""

    def __init__(self, id: bytes, seqs: Collection[int], leaves: dict[int, bytes]) -> None:
        self.id = id
        self.seqs = frozenset(seqs)
        self._ordered = sorted(seqs)
        #: Their Merkle leaves, and their salts, which stay where a record is rekeyed.
        self.leaves = dict(leaves)
        self._salts: dict[int, bytes] = {}
        #: By digest of a frame: which of its raw bytes.
        self.spans: dict[bytes, Intervals] = {}
        #: Record frames with rows of them.
        self.row_frames: set[bytes] = set()
        #: Pages with digests that their rows went into.
        self.pages: set[bytes] = set()
        #: Their keys (16 bytes), and digests (32) of their payloads with the record and role.
        self.keys: set[bytes] = set()
        self.blobs: dict[bytes, tuple[int, str]] = {}
        self._sources: list[tuple[Recording, Intervals]] = []
        self._pieces: list[bytes] | None = None
        self._before: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self.row_frames)

    def add(self, recording: Recording) -> None:
        """Take in where a revision of the recording has them; the newest first.

        Raises `FormatError`, `StorageError`.
        """
        index = recording.index
        summary = recording.manifest.storage.summary
        if summary is not None:
            self.pages.add(bytes.fromhex(summary.digest))
        literals = Intervals()
        wanted = sorted(seq for seq in self.seqs if seq < len(recording) and seq not in index.purged)
        position = 0
        while position < len(wanted):
            entry, records = _frame_of(index, wanted[position])
            sizes = [len(inline or b"") for inline in records.stored_rows()[1]]
            start = len(records.raw) - records.inline_size
            while position < len(wanted) and (number := wanted[position] - entry.first) < entry.items:
                row, data, inline = records.record(number)
                if row.seq != wanted[position]:
                    raise FormatError(f"record {wanted[position]} is stored as {row.seq}", where=records.where)
                position += 1
                self.leaves.setdefault(row.seq, leaf_hash(data))
                self._salts.setdefault(row.seq, row.salt)
                self.row_frames.add(entry.digest)
                self.keys.add(row.key[:16])
                self._note_blobs(row)
                if inline:
                    at = start + sum(sizes[:number])
                    self._span(entry.digest, at, at + len(inline))
                roles = [role for role in ROLES if _by_recipe(row, role, inline)]
                recipes = index.recipes(records, number)
                if len(recipes) != len(roles):
                    raise FormatError(f"record {row.seq} has another number of recipes than blobs", where=records.where)
                for role, ranges in zip(roles, recipes, strict=True):
                    if not is_withheld(index, row, role):
                        for item in set(ranges):
                            literals.add(item.offset, item.offset + item.length)
        for entry, _ in index.literal_entries(list(_spans(literals))) if len(literals) else ():
            shift = entry.raw - entry.items - entry.first
            for low, high in literals.between(entry.first, entry.first + entry.items):
                self._span(entry.digest, low + shift, high + shift)
        self._sources.append((recording, literals))

    def absorb(self, before: Payload) -> None:
        """Take in what was known of the same records when more manifests had them."""
        for seq, leaf in before.leaves.items():
            self.leaves.setdefault(seq, leaf)
        for seq, salt in before._salts.items():
            self._salts.setdefault(seq, salt)
        for digest, spans in before.spans.items():
            for start, end in spans:
                self._span(digest, start, end)
        self.row_frames |= before.row_frames
        self.pages |= before.pages
        self.keys |= before.keys
        self.blobs = before.blobs | self.blobs
        self._before = before._pieces or before._before

    def _note_blobs(self, row: Row) -> None:
        for role, ref in (("request", row.request), ("identity", row.identity), ("response", row.response)):
            if ref is not None and ref.encoding and ref.size >= _SHORT:
                self.blobs[ref.digest] = (row.seq, role)

    def _span(self, digest: bytes, start: int, end: int) -> None:
        self.spans.setdefault(digest, Intervals()).add(start, end)

    # Frames that no table of the recording leads to any more

    def explore(self, reader: PackReader, pack: PackRef, toc: Toc) -> None:
        """Look into a pack of the recording that its tables do not name: an older place of the same bytes."""
        for info in toc.frames:
            if info.origin is None or toc.origins[info.origin].recording != self.id or info.digest in self.spans:
                continue
            if info.kind == FrameKind.RECORD and within(self._ordered, info.first, info.first + info.count):
                self._explore_records(info, RecordFrame(read_frame(reader, pack, info)))
            elif info.kind == FrameKind.LITERAL:
                self._explore_literals(info, read_frame(reader, pack, info))

    def _explore_records(self, info: FrameInfo, records: RecordFrame) -> None:
        at = len(records.raw) - records.inline_size
        for number in range(records.count):
            row, inline = records.stored(number)
            seq = info.first + number
            if seq in self.seqs and row and records.record(number)[0].salt == self._salts.get(seq):
                self.row_frames.add(info.digest)
                if inline:
                    self._span(info.digest, at, at + len(inline))
            at += len(inline or b"")

    def _explore_literals(self, info: FrameInfo, raw: bytes) -> None:
        pieces = self._all_pieces()
        if len(pieces) > _MANY:
            self._span(info.digest, 0, len(raw))
            return
        for piece in pieces:
            at = raw.find(piece)
            while at >= 0:
                self._span(info.digest, at, at + len(piece))
                at = raw.find(piece, at + 1)

    def keep_pieces(self) -> None:
        """Read their literals before they are deleted, to be told again. At most 64 MiB."""
        self._all_pieces()

    def _all_pieces(self) -> list[bytes]:
        """The literals, piece by piece; where their frames are gone, none of those but what was read before."""
        if self._pieces is None:
            found = dict.fromkeys(self._before)
            for recording, literals in self._sources:
                for start, end in literals:
                    with suppress(ObjectMissingError, FormatError):
                        for entry, _ in recording.index.literal_entries([(start, end - start)]):
                            at, stop = max(start, entry.first), min(end, entry.first + entry.items)
                            while stop - at >= _SHORT and len(found) <= _MANY:
                                size = _PART if stop - at >= _PART + _SHORT else stop - at
                                found[recording.index.literals([(at, size)])[0]] = None
                                at += size
            self._pieces = list(found)
        return self._pieces

    # Frames of several recordings, which name none

    def may_be_in(self, toc: Toc) -> bool:
        """Whether a pack has literals that name no recording, in frames that are not known."""
        return any(_is_common(info) and info.digest not in self.spans for info in toc.frames)

    def explore_common(self, reader: PackReader, packs: Mapping[PackRef, Toc], takers: Iterable[Recording]) -> None:
        """Look into packs that name no recording, for bytes that none of ``takers`` takes.

        Where several recordings were compacted together, and this one was not after all, its literals are there.
        Whatever somebody takes is theirs: a second copy. Raises `FormatError`, `StorageError`.
        """
        whole = Payload(self.id, (), {})
        for toc in packs.values():
            for info in toc.frames:
                if _is_common(info) and info.digest not in self.spans:
                    whole._span(info.digest, 0, info.raw)
        taken: dict[bytes, Intervals] = {}
        for recording in takers:
            with recording:
                for digest, low, high in whole.taken(recording, whole.uses(recording, own=False)):
                    taken.setdefault(digest, Intervals()).add(low, high)
        tells: Callable[[bytes], bool] | None = None
        for pack, info in ((pack, info) for pack, toc in packs.items() for info in toc.frames):
            if info.digest not in whole.spans:
                continue
            left = Uses(whole.spans[info.digest], taken.get(info.digest, Intervals())).gone(0, info.raw)
            if not left:
                continue
            tells = tells or self._tells()
            try:
                raw = read_frame(reader, pack, info)
            except ObjectMissingError:
                continue  # an older revision named it, and both were collected
            if any(tells(raw[low:high]) for low, high in left):
                for low, high in left:
                    self._span(info.digest, low, high)

    def _tells(self) -> Callable[[bytes], bool]:
        """What says of bytes whether some of them are of the records."""
        pieces = self._all_pieces()
        if len(pieces) > _MANY:
            return lambda raw: raw.count(0) < len(raw)
        short = [piece for piece in pieces if _WINDOW // 2 <= len(piece) < _WINDOW]
        # Windows of the pieces at each offset, looked for at every 32nd byte: a few million bytes a second if it were
        # the other way round. Of more than can be held it is every `step`th, which has no divisor in common with
        # the 8 bytes that are advanced then: so a run of 8 steps shows, wherever it begins.
        step = sum(map(len, pieces)) // _WINDOWS
        step += 1 - step % 2
        starts = ((piece, at) for piece in pieces for at in range(0, len(piece) - _WINDOW + 1, step))
        windows = {piece[at : at + _WINDOW] for piece, at in starts} - {bytes(_WINDOW)}

        def tells(raw: bytes) -> bool:
            stride = 1 if len(raw) <= _FEW else _WINDOW if step == 1 else 8
            ends = range(_WINDOW, len(raw) + 1, stride)
            return any(piece in raw for piece in short) or any(raw[at - _WINDOW : at] in windows for at in ends)

        return tells

    # Tables

    def in_page(self, reader: PackReader, pack: PackRef, info: FrameInfo, keys: Collection[bytes]) -> bool:
        """Whether a page has entries of ``keys`` (16 bytes, of keys that go), or names blobs of the records."""
        if info.first == KEYS.number:
            page = KeyPage(read_frame(reader, pack, info), info.count, info.digest)
            entries = (unpack_key(page.rows, at) for at in range(0, len(page.rows), KEYS.width))
            return any(entry.seq in self.seqs and entry.key in keys for entry in entries)
        if info.first == BLOBS.number:
            rows = parse_page(BLOBS, read_frame(reader, pack, info), info.count, info.digest)
            blobs = (unpack_blob(rows, at) for at in range(0, len(rows), BLOBS.width))
            mine = {digest[:16] for digest in self.blobs}
            return any(blob.seq in self.seqs and blob.digest in mine for blob in blobs)
        if info.first == 0:
            raw = read_frame(reader, pack, info)
            return any(key in raw for key in keys) or any(digest[:16] in raw for digest in self.blobs)
        return False

    # Who uses them

    def uses(self, recording: Recording, *, own: bool) -> Uses:
        """What ``recording`` has of them and takes of them; with ``own`` the records themselves do not count.

        Reads the pages of its literals, and, where it has any, all of its record frames.
        """
        there = Intervals()
        for entry, _ in literal_rows(recording):
            spans = self.spans.get(entry.digest)
            if spans is not None:
                shift = entry.first - (entry.raw - entry.items)
                for low, high in spans.between(entry.raw - entry.items, entry.raw):
                    there.add(low + shift, high + shift)
        if not len(there):
            return Uses(there, Intervals())
        roles = [role for role in ROLES if role not in recording.withheld]
        wanted = (lambda seq: seq not in self.seqs) if own else None
        taken = used_literals(recording, roles=roles, wanted=wanted, within=there)
        for seq, start, end in self._inlines(recording):
            if not (own and seq in self.seqs):
                taken.add(start, end)
        return Uses(there, taken)

    def _inlines(self, recording: Recording) -> Iterator[tuple[int, int, int]]:
        """Where the responses of records lie that stand in a frame with bytes of them: (record, start, end)."""
        places = {entry.digest: entry.first for entry, _ in literal_rows(recording) if entry.first >= INLINE_SPACE}
        for entry, frame in recording.index.frames():
            if entry.digest not in self.spans or entry.digest not in places:
                continue
            [records] = recording.index.read_frames([frame])
            at = places[entry.digest]
            for number, (row, inline) in enumerate(zip(*records.stored_rows(), strict=True)):
                end = at + len(inline or b"")
                if row and at < end:
                    yield entry.first + number, at, end
                at = end

    def own_rows(self, recording: Recording) -> set[bytes]:
        """Digests of record frames that another recording has as its own: its records are the very same."""
        return {entry.digest for entry, _ in recording.index.frames() if entry.digest in self.row_frames}

    def taken(self, recording: Recording, uses: Uses) -> Iterator[tuple[bytes, int, int]]:
        """Yield (digest of a frame, start, end in its raw bytes) of what a recording takes."""
        for entry, _ in literal_rows(recording) if len(uses.taken) else ():
            shift = entry.raw - entry.items - entry.first
            for low, high in uses.taken.between(entry.first, entry.first + entry.items):
                yield entry.digest, low + shift, high + shift

    def sharers(self, recording: Recording, uses: Uses, *, own: bool) -> list[int]:
        """The records of ``recording`` that take bytes of them, or that are the very same records."""
        index = recording.index
        found = {
            seq
            for seq, start, end in self._inlines(recording)
            if not (own and seq in self.seqs) and uses.taken.between(start, end)
        }
        for entry, frame in index.frames():
            same = not own and entry.digest in self.row_frames
            if not same and not len(uses.taken):
                continue
            [records] = index.read_frames([frame])
            # Recipes name the same ranges again and again: each is looked at once.
            clear: set[Range] = set()
            for number in range(records.count):
                seq = entry.first + number
                if (own and seq in self.seqs) or not records.stored(number)[0]:
                    continue
                ranges = set[Range]().union(*index.recipes(records, number)) - clear
                if (same and seq in self.seqs) or any(
                    uses.taken.between(item.offset, item.offset + item.length) for item in ranges
                ):
                    found.add(seq)
                else:
                    clear |= ranges
        return sorted(found)


def within(numbers: Sequence[int], first: int, end: int) -> Sequence[int]:
    """Those of ascending ``numbers`` that are from ``first`` on and below ``end``."""
    return numbers[bisect_left(numbers, first) : bisect_left(numbers, end)]


def literal_rows(recording: Recording) -> Iterator[tuple[FrameEntry, Frame]]:
    """The entries of ``literals`` of all segments, of both halves."""
    index = recording.index
    for segment in index.segments:
        for page in range(len(segment.root(LITERALS).fences)):
            [rows] = index.pages([(segment, LITERALS, page)])
            for at in range(0, len(rows), LITERALS.width):
                entry = unpack_frame(rows, at)
                pack = segment.pack(entry.frame, where="page of literals")
                yield entry, Frame(pack, entry.frame, entry.raw, entry.digest)


def _is_common(info: FrameInfo) -> bool:
    return info.kind == FrameKind.LITERAL and info.origin is None


def read_frame(reader: PackReader, pack: PackRef, info: FrameInfo) -> bytes:
    """The raw bytes of a frame that a table of contents names. Raises `FormatError`, `StorageError`."""
    return reader.read([Frame(pack, Location(0, info.offset, info.length), info.raw, info.digest)])[0]


def is_zero(raw: bytes, spans: Iterable[tuple[int, int]]) -> bool:
    """Whether all bytes of those intervals are zero."""
    return all(raw.count(0, low, high) == high - low for low, high in spans)


def _frame_of(index: Index, seq: int) -> tuple[FrameEntry, RecordFrame]:
    """The record frame with record ``seq``, and its entry. Raises `FormatError`, `StorageError`."""
    for entry, frame in index.frames(seq):
        [records] = index.read_frames([frame])
        if not entry.first <= seq < entry.first + records.count or records.count != entry.items:
            break
        return entry, records
    raise FormatError(f"no record frame holds record {seq}", where="table records")


def _by_recipe(row: Row, role: str, inline: bytes | None) -> bool:
    if role == "response":
        return inline is None and row.response_encoding != 0
    return getattr(row, role) is not None


def _spans(literals: Intervals) -> Iterator[tuple[int, int]]:
    for start, end in literals:
        yield start, end - start


def same_blobs(record: Record, blobs: Collection[bytes]) -> Iterable[str]:
    """Roles of a record's payloads that are among ``blobs`` (digests)."""
    row = record.row
    refs: list[tuple[str, BlobRef | None]] = [("request", row.request), ("identity", row.identity)]
    refs.append(("response", row.response))
    return [role for role, ref in refs if ref is not None and ref.encoding and ref.digest in blobs]
