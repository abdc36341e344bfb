"""The records of one recording, taken from whichever copies of its frames are sound."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import msgspec

from replaypack._read.blobs import read_blob
from replaypack._read.cache import Cache
from replaypack._read.index import Found, Index, check_proportion
from replaypack._read.packs import Frame
from replaypack.errors import FormatError
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.recipe import Range
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import Row
from replaypack.format.table import INLINE_SPACE, KEYS, LITERALS, RECORDS, FrameEntry, key_seqs, unpack_frame

from ._salvage_catalog import INLINE, LITERAL, RECORD, Catalog, CatalogReader

__all__ = ["FactSource", "Hole", "ManifestSource", "Purged", "Survivor", "records_of"]

_CACHE = 48 << 20
ROLES = ("request", "identity", "response")


class Survivor(NamedTuple):
    """A record whose row is whole: its blobs by role, None where one is lost. A small response is ``inline``."""

    row: Row
    row_bytes: bytes
    inline: bytes | None
    blobs: dict[str, bytes | None]
    why: str


class Hole(NamedTuple):
    """Records (sequence numbers ``first`` to ``last``) without a row; ``purged`` where that was on purpose."""

    first: int
    last: int
    why: str
    purged: bool = False


class Purged(NamedTuple):
    """A record that was purged: its Merkle leaf, and when and why."""

    seq: int
    leaf: bytes
    time: str
    reason: str


class Source(Protocol):
    """Where record frames and literals of a recording are named."""

    index: Index
    #: Only its records before this number are asked for; None for all.
    below: int | None

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the first sequence number, the number of records and the digest of each record frame."""


class _AnyPack(Sequence[PackRef]):
    """Packs where their list is lost: frames are found by digest, whatever pack they are said to be in."""

    def __len__(self) -> int:
        return 1 << 32

    def __getitem__(self, index: object) -> PackRef:  # type: ignore[override]
        return PackRef("0" * 64, (1 << 32) - 1)


class ManifestSource:
    """What a sound manifest names, as far as the pages of its tables are there."""

    def __init__(self, catalog: Catalog, manifest: Manifest, below: int | None = None) -> None:
        self.below = below
        reader, cache = CatalogReader(catalog), Cache(_CACHE)
        try:
            self.index = Index(manifest, reader, cache)
        except FormatError:
            segments = [msgspec.structs.replace(segment, packs=None) for segment in manifest.storage.segments]
            storage = msgspec.structs.replace(manifest.storage, packs=[], pack_pages=[], segments=segments)
            bare = Manifest(
                manifest.content, storage, manifest.raw, manifest.digest, manifest.content_digest, manifest.match
            )
            self.index = Index(bare, reader, cache)
            for segment in self.index.segments:
                segment.packs = _AnyPack()

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        for segment in self.index.segments:
            try:
                pages = len(segment.root(RECORDS).fences)
            except FormatError:
                continue
            for number in range(pages):
                try:
                    [rows] = self.index.pages([(segment, RECORDS, number)])
                except FormatError:
                    continue
                for at in range(0, len(rows), RECORDS.width):
                    entry = unpack_frame(rows, at)
                    yield entry.first, entry.items, entry.digest

    def key_entries(self, wanted: Collection[int]) -> Iterator[bytes]:
        """Yield the entries of ``keys`` for some records, as far as pages are there."""
        for segment in self.index.segments:
            try:
                pages = len(segment.root(KEYS).fences)
            except FormatError:
                continue
            for number in range(pages):
                try:
                    [page] = self.index.key_pages([(segment, number)])
                except FormatError:
                    continue
                for at, seq in zip(range(0, len(page.rows), KEYS.width), key_seqs(page.rows), strict=True):
                    if seq in wanted:
                        yield page.rows[at : at + KEYS.width]

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Yield the shape and the digest of every page of records and literals that it names."""
        for segment in self.index.segments:
            for shape in (RECORDS, LITERALS):
                try:
                    root = segment.root(shape)
                except FormatError:
                    continue
                for short in root.digests:
                    yield shape.number, short


class FactSource:
    """What tables of contents, and pages that no manifest names any more, say of a recording (its id)."""

    def __init__(
        self, catalog: Catalog, recording: bytes, writer: bytes | None = None, below: int | None = None
    ) -> None:
        self.below = below
        self._catalog = catalog
        self._recording = recording
        rows = catalog.db.execute(
            "SELECT id FROM origin WHERE recording=? ORDER BY writer != ?, id", (recording, writer or b"")
        ).fetchall()
        self.origins = [row[0] for row in rows]
        self._writer = writer
        self._cache = Cache(_CACHE)
        self._computed = False
        # It answers what is asked of an index for one blob.
        self.withheld: frozenset[str] = frozenset()
        self.where = f"recording {recording.hex()}"
        self.index = cast(Index, self)

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """As `Source.frames`: with a writer those of this one alone. Those that are not sound too."""
        for origin in self.origins:
            writer = self._catalog.db.execute("SELECT writer FROM origin WHERE id=?", (origin,)).fetchone()[0]
            if self._writer in (None, writer):
                yield from self._frames_of(origin)

    def _frames_of(self, origin: int) -> list[tuple[int, int, bytes]]:
        return self._catalog.db.execute(
            "SELECT first, items, digest FROM place WHERE origin=? AND kind=? ORDER BY first", (origin, RECORD)
        ).fetchall()

    # What `read_blob` asks of an index

    def recipes(self, frame: RecordFrame, number: int) -> list[list[Range]]:
        return frame.recipes(number)

    def literals(self, spans: Sequence[tuple[int, int]], *, size: int, limit: int, where: str) -> list[bytes]:
        plan = [list(self._cuts(offset, length)) for offset, length in spans]
        frames: list[Frame] = []
        for short in {short for cuts in plan for _, _, short, _ in cuts}:
            stored = self._catalog.stored(short)
            if stored is not None:
                frames.append(stored)
        check_proportion(frames, size, limit, where=where)
        return [b"".join(self._cut(*cut) for cut in cuts) for cuts in plan]

    def _cuts(self, offset: int, length: int) -> Iterator[tuple[int, int, bytes, int]]:
        """The pieces of a span: where in the literals of a frame, how many bytes, the frame, its literal bytes."""
        end = offset + length
        while offset < end:
            found = self._find(offset)
            if found is None and offset >= INLINE_SPACE and not self._computed:
                self._compute_inlines()
                found = self._find(offset)
            if found is None:
                large = self._catalog.large(end - offset)
                if not large:
                    raise FormatError(f"the literals at offset {offset} are lost", where=self.where)
                for raw, short in large:
                    yield 0, raw, short, raw
                    offset += raw
                continue
            take = min(end, found.first + found.items) - offset
            yield offset - found.first, take, found.digest, found.items
            offset += take

    def _find(self, offset: int) -> FrameEntry | None:
        kind = INLINE if offset >= INLINE_SPACE else LITERAL
        for origin in self.origins:
            for first, items, raw, short in self._catalog.db.execute(
                "SELECT first, items, raw, digest FROM place WHERE origin=? AND kind=? AND first<=? AND first+items>? "
                "ORDER BY first DESC",
                (origin, kind, offset, offset),
            ):
                stored = self._catalog.stored(short)
                if stored is not None and stored.raw is not None and items <= stored.raw and raw == stored.raw:
                    return FrameEntry(first, stored.at, raw, items, short)
        return None

    def _cut(self, start: int, length: int, short: bytes, items: int) -> bytes:
        raw: bytes | None = self._cache.get(short)
        if raw is None:
            raw = self._catalog.raw(short)
            self._cache.put(short, raw, len(raw))
        begin = len(raw) - items + start
        return raw[begin : begin + length]

    def _compute_inlines(self) -> None:
        """Where the small responses of each record frame stand in the address space: behind all that come before."""
        self._computed = True
        position = offset = 0
        for first, short in sorted(
            (first, short) for origin in self.origins for first, _, short in self._frames_of(origin)
        ):
            if not self._catalog.sound(short):
                continue
            try:
                frame = RecordFrame(self._catalog.raw(short))
            except FormatError:
                continue
            if first > position or first + frame.count <= position:
                if first > position:
                    return  # how many bytes are missing is not known
                continue
            sizes = [len(inline or b"") for inline in frame.stored_rows()[1]]
            begin = offset - sum(sizes[: position - first])
            if sum(sizes):
                self._catalog.db.execute(
                    "INSERT OR IGNORE INTO place VALUES(?, ?, ?, ?, ?, ?)",
                    (self.origins[0], INLINE, INLINE_SPACE + begin, sum(sizes), len(frame.raw), short),
                )
            offset = begin + sum(sizes)
            position = first + frame.count


class _Frames:
    """Record frames by digest, the last few of them kept."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._cache = Cache(32 << 20)
        self._last: tuple[bytes, RecordFrame] | None = None

    def get(self, short: bytes) -> RecordFrame:
        if self._last is not None:
            if self._last[0] == short:
                return self._last[1]
            # It weighs more by the recipes that were resolved since.
            self._cache.put(*self._last, self._last[1].weight)
        frame: RecordFrame | None = self._cache.get(short)
        if frame is None:
            frame = RecordFrame(self._catalog.raw(short), where=f"frame {short.hex()}")
            self._cache.put(short, frame, frame.weight)
        self._last = (short, frame)
        return frame


def records_of(
    catalog: Catalog, sources: Sequence[Source], end: int | None, *, limit: int, rows_only: bool = False
) -> Iterator[Survivor | Hole | Purged]:
    """Yield what is left of a recording, in order; of each record the first source that has it whole.

    ``end`` is the number of its records where that is known. Payloads over ``limit`` bytes are taken in proportion
    only, as in reading; with ``rows_only`` none are read. What the first source says is purged, or withheld, is.
    """
    db = catalog.db
    purged: Mapping[int, tuple[bytes, str, str]] = getattr(sources[0].index, "purged", {})
    skip = frozenset(ROLES) if rows_only else sources[0].index.withheld
    db.execute("DROP TABLE IF EXISTS cand")
    db.execute("CREATE TABLE cand(first INTEGER, items INTEGER, digest BLOB, source INTEGER)")
    told = 0
    for number, source in enumerate(sources):
        for first, items, short in source.frames():
            if source.below is not None and first >= source.below:
                continue
            told = max(told, first + items)
            if catalog.sound(short):
                db.execute("INSERT INTO cand VALUES(?, ?, ?, ?)", (first, items, short, number))
    db.execute("CREATE INDEX cand_first ON cand(first)")
    frames = _Frames(catalog)
    stop = told if end is None else end
    position = 0
    while position < stop:
        found = db.execute(
            "SELECT first, items, digest, source FROM cand WHERE first<=? AND first>? AND first+items>? "
            "ORDER BY source, first DESC LIMIT 1",
            (position, position - (1 << 16), position),
        ).fetchone()
        if position in purged:
            yield Purged(position, *purged[position])
            position += 1
            continue
        if found is None:
            following = db.execute("SELECT min(first) FROM cand WHERE first>?", (position,)).fetchone()[0]
            after = stop if following is None else min(following, stop)
            after = min((seq for seq in purged if position < seq < after), default=after)
            yield Hole(position, after - 1, "no frame that holds them is sound")
            position = after
            continue
        first, items, short, number = found
        for seq in range(position, min(first + items, stop)):
            if seq in purged:
                yield Purged(seq, *purged[seq])
            else:
                yield _record(_candidates(catalog, seq, (first, short, number)), frames, sources, seq, limit, skip)
        position = min(first + items, stop)


def _candidates(catalog: Catalog, seq: int, best: tuple[int, bytes, int]) -> Iterator[tuple[int, bytes, int]]:
    """The frames that should hold a record, the best source first; asked for only where the best is not enough."""
    yield best
    for other in catalog.db.execute(
        "SELECT first, digest, source FROM cand WHERE first<=? AND first>? AND first+items>? "
        "ORDER BY source, first DESC",
        (seq, seq - (1 << 16), seq),
    ).fetchall():
        if other != best:
            yield other


def _record(
    candidates: Iterator[tuple[int, bytes, int]],
    frames: _Frames,
    sources: Sequence[Source],
    seq: int,
    limit: int,
    skip: frozenset[str],
) -> Survivor | Hole:
    row: Found | None = None
    purged = False
    why = reason = ""
    blobs: dict[str, bytes | None] = {}
    missing: list[str] = []
    for first, short, number in candidates:
        try:
            frame = frames.get(short)
            if not frame.stored(seq - first)[0]:
                purged = True
                continue
            found = Found(*frame.record(seq - first), frame, seq - first)
            if found.row.seq != seq:
                raise FormatError(f"the frame has record {found.row.seq} where {seq} should be")
        except FormatError as error:
            why = error.detail
            continue
        if row is None:
            row = found
            missing = [role for role in ("request", "identity") if getattr(found.row, role) is not None]
            if found.inline is None and found.row.response_encoding:
                missing.append("response")
            missing = [role for role in missing if role not in skip]
        elif found.row_bytes != row.row_bytes:
            continue
        for role in list(missing):
            try:
                blobs[role] = read_blob(sources[number].index, found, role, limit=limit)
                missing.remove(role)
            except FormatError as error:
                reason = error.detail
        if not missing:
            break
    if row is None:
        return Hole(seq, seq, "purged" if purged else why, purged)
    return Survivor(row.row, row.row_bytes, row.inline, {**blobs, **dict.fromkeys(missing)}, reason)
