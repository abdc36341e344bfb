"""What there is in a damaged archive: sound frames by their digest, and what is said of where they belong.

All references between the parts of an archive are digests, so that it does not matter under which name a frame was
found, or where in which pack. The catalog is a database in a temporary file: memory does not grow with packs, only
with manifests, which are all held (a few kilobytes each; one that lists thousands of packs itself up to half a
megabyte).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from replaypack._read.packs import Frame, PackReader
from replaypack._write.literals import LARGE
from replaypack.errors import FormatError
from replaypack.format.digests import SHORT_SIZE, digest, short_digest
from replaypack.format.frame import decompress
from replaypack.format.manifest import Manifest, parse_manifest
from replaypack.format.manifest_members import MAX_MANIFEST, PackRef
from replaypack.format.names import MARKER, manifest_parts
from replaypack.format.pack import HEADER, TRAILER_SIZE, FrameKind, Toc, decode_toc
from replaypack.format.record_frame import RecordFrame
from replaypack.format.table import INLINE_SPACE, LITERALS, RECORDS, Location, unpack_frame, untranspose

from ._salvage_frames import frames_in
from ._salvage_literals import Literal, addresses
from ._salvage_objects import Objects

__all__ = ["Catalog", "CatalogReader", "Damage", "FoundManifest", "pack_digests_in"]

_TOC = b"\x83\xa6frames"
_PACK_KEY = re.compile(r"[0-9a-f]{64}")
#: Kinds of what a frame holds of a recording; a page says nothing that is needed once it is read.
RECORD, LITERAL, INLINE = 1, 2, 3
#: Bytes before a table of contents.
_SKIP = 8
_MOST_FRAMES = 512
#: Raw bytes of the record frames that are parsed together.
_MOST_RAW = 64 << 20

_SCHEMA = """
CREATE TABLE object(id INTEGER PRIMARY KEY, key TEXT, size INTEGER, told INTEGER);
CREATE TABLE frame(id INTEGER PRIMARY KEY, digest BLOB, object INTEGER, offset INTEGER, length INTEGER, raw INTEGER,
                   first INTEGER, items INTEGER);
CREATE INDEX frame_digest ON frame(digest);
CREATE TABLE origin(id INTEGER PRIMARY KEY, recording BLOB, writer BLOB, name TEXT, UNIQUE(recording, writer, name));
CREATE TABLE place(origin INTEGER, kind INTEGER, first INTEGER, items INTEGER, raw INTEGER, digest BLOB,
                   UNIQUE(origin, kind, first, digest));
CREATE INDEX place_digest ON place(digest);
CREATE TABLE page(origin INTEGER, digest BLOB, shape INTEGER);
CREATE TABLE entry(page BLOB, object INTEGER, first INTEGER, items INTEGER, raw INTEGER, digest BLOB);
CREATE INDEX entry_page ON entry(page);
"""


class Damage(NamedTuple):
    """Bytes of an object that are no sound frame, or an object that is not what its name says."""

    where: str
    offset: int
    length: int
    reason: str


class FoundManifest(NamedTuple):
    """A sound manifest, the name its key gives it (None where it was renamed)."""

    name: str | None
    manifest: Manifest


class Catalog:
    """Sound frames, places that are named for them, manifests."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self.db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-32768;" + _SCHEMA)
        self.db.execute("BEGIN")
        self.manifests: list[FoundManifest] = []
        #: Manifests that cannot be read: name, revision (None: ``latest.json``), what is wrong.
        self.broken: list[tuple[str, int | None, str]] = []
        self.damage: list[Damage] = []
        #: Objects (ids) with damage of which no table of contents of their own says what it was.
        self.untold: set[int] = set()
        #: The origins of packs that manifests name.
        self.packs: dict[str, int] = {}
        self._origins: dict[tuple[bytes, bytes, str], int] = {}

    def close(self) -> None:
        """Remove the temporary file."""
        self.db.close()

    # Looking at objects

    def add(self, key: str, size: int) -> None:
        """Take in one object."""
        head = self.objects.read(key, 0, min(size, 16)) if size else b""
        if head[:1] == b"{":
            self._document(key, size)
        elif key.endswith(".json"):
            self._unsound(key, size, "it is no JSON")
        elif key != "catalog.json.zst":
            self._frames(key, size)

    def _document(self, key: str, size: int) -> None:
        if key == MARKER or key.endswith(".dsse.json"):
            return
        if size > MAX_MANIFEST:
            self._unsound(key, size, f"a manifest of {size} bytes is over the limit")
            return
        try:
            manifest = parse_manifest(self.objects.read(key, 0, size), where=key)
        except FormatError as error:
            self._unsound(key, size, error.detail)
            return
        parts = manifest_parts(key)
        self.manifests.append(FoundManifest(parts.name if parts is not None else None, manifest))

    def _unsound(self, key: str, size: int, reason: str) -> None:
        parts = manifest_parts(key)
        if parts is not None:
            self.broken.append((parts.name, parts.revision, reason))
            self.damage.append(Damage(key, 0, size, reason))

    def _frames(self, key: str, size: int) -> None:
        number = self.db.execute("INSERT INTO object(key, size, told) VALUES(?, ?, 0)", (key, size)).lastrowid
        assert number is not None
        end = 0
        toc: Toc | None = None
        gaps: list[tuple[int, int]] = []
        for piece in frames_in(lambda at, length: self.objects.read(key, at, length), size):
            self._gap(key, end, piece.offset, gaps)
            end = piece.offset + piece.length
            found = self._toc(piece.raw, size)
            if found is not None:
                toc = found
                self._told(found)
                continue
            toc = None  # a payload may hold a pack: the object's own comes last
            self._frame(number, piece.offset, piece.length, piece.raw)
        self._gap(key, end, size, gaps)
        is_pack = bool(_PACK_KEY.search(key)) or bool(end) or toc is not None
        if toc is not None:
            self.db.execute("UPDATE object SET told=1 WHERE id=?", (number,))
        elif is_pack:
            self.damage.append(Damage(key, 0, size, "there is no sound table of contents"))
            self.untold.add(number)
        if is_pack:
            self.damage += [Damage(key, start, stop - start, "no sound frame") for start, stop in gaps]

    def _gap(self, key: str, start: int, stop: int, gaps: list[tuple[int, int]]) -> None:
        """Note what lies between two frames and is neither the header, nor what stands around a table of contents."""
        length = stop - start
        if length <= 0:
            return
        if length in (_SKIP, len(HEADER), TRAILER_SIZE):
            data = self.objects.read(key, start, length)
            usual = {_SKIP: data[:4] == HEADER[:4], len(HEADER): data[:16] == HEADER[:16]}
            if usual.get(length, data.endswith(b"RPKEND1\n")):
                return
        gaps.append((start, stop))

    @staticmethod
    def _toc(raw: bytes, size: int) -> Toc | None:
        if raw[: len(_TOC)] != _TOC:
            return None
        try:
            return decode_toc(raw, size)
        except FormatError:
            return None

    def _told(self, toc: Toc) -> None:
        """Note what a table of contents says."""
        origins = [self._origin(o.recording, o.writer, o.name) for o in toc.origins]
        for frame in toc.frames:
            if frame.kind == FrameKind.PAGE:
                if frame.origin is not None:
                    self.db.execute(
                        "INSERT INTO page VALUES(?, ?, ?)", (origins[frame.origin], frame.digest, frame.first)
                    )
            elif frame.origin is not None:
                kind = RECORD if frame.kind == FrameKind.RECORD else LITERAL
                self._place(origins[frame.origin], kind, frame.first, frame.count, frame.raw, frame.digest)
            else:
                # A large literal, which any recording may use: the origin of nobody, so that it is known at all.
                self._place(0, LITERAL, frame.first, frame.count, frame.raw, frame.digest)
        for item in toc.external:
            self._place(origins[item.origin], LITERAL, item.first, item.count, item.raw, item.digest)

    def _origin(self, recording: bytes, writer: bytes, name: str) -> int:
        known = self._origins.get((recording, writer, name))
        if known is None:
            row = (recording, writer, name)
            known = self.db.execute("INSERT INTO origin(recording, writer, name) VALUES(?, ?, ?)", row).lastrowid
            assert known is not None
            self._origins[row] = known
        return known

    def _place(self, origin: int, kind: int, first: int, items: int, raw: int, short: bytes) -> None:
        if first < 1 << 48 and 0 < items < 1 << 32 and raw < 1 << 32:
            self.db.execute(
                "INSERT OR IGNORE INTO place VALUES(?, ?, ?, ?, ?, ?)", (origin, kind, first, items, raw, short)
            )

    def _frame(self, number: int, offset: int, length: int, raw: bytes) -> None:
        first = items = None
        try:
            records = RecordFrame(raw)
            first, items = records.record(0)[0].seq, records.count
        except FormatError:
            self._page(number, raw)
        row = (short_digest(raw), number, offset, length, len(raw), first, items)
        self.db.execute(
            "INSERT INTO frame(digest, object, offset, length, raw, first, items) VALUES(?,?,?,?,?,?,?)", row
        )

    def _page(self, number: int, raw: bytes) -> None:
        """Note what a page of ``records`` or ``literals`` says; that it is one is seen by the digests in it."""
        if len(raw) % LITERALS.width or len(raw) > LITERALS.width * LITERALS.page_entries:
            return
        rows = untranspose(raw, LITERALS.width)
        entries = [unpack_frame(rows, at) for at in range(0, len(rows), LITERALS.width)]
        if any(not 0 < entry.items <= 1 << 32 for entry in entries):
            return
        if any(a.first >= b.first for a, b in pairwise(entries)):
            return
        short = short_digest(raw)
        self.db.executemany(
            "INSERT INTO entry VALUES(?, ?, ?, ?, ?, ?)",
            [(short, number, entry.first, entry.items, entry.raw, entry.digest) for entry in entries],
        )

    # What belongs where

    def attribute(self) -> None:
        """Give places to frames whose table of contents is gone, once all objects were looked at."""
        db = self.db
        # Pages that a table of contents, or a manifest, gives an origin.
        for origin, page, shape in db.execute("SELECT DISTINCT origin, digest, shape FROM page").fetchall():
            if shape in (RECORDS.number, LITERALS.number):
                self._take_page(origin, page, shape)
        for object_, key in db.execute("SELECT id, key FROM object WHERE told=0").fetchall():
            self._attribute(object_, key)

    def _attribute(self, object_: int, key: str) -> None:
        db = self.db
        origin: int | None = None
        # What lies beside it says most; then a manifest that names a pack of that name.
        for pack in pack_digests_in(key):
            origin = self.packs.get(pack, origin)
        found = db.execute(
            "SELECT place.origin, count(*) AS n FROM frame JOIN place ON place.digest = frame.digest "
            "WHERE frame.object=? AND place.origin != 0 GROUP BY place.origin ORDER BY n DESC, place.origin",
            (object_,),
        ).fetchone()
        if found:
            origin = found[0]
        records = db.execute(
            "SELECT digest, first, items, raw FROM frame WHERE object=? AND first IS NOT NULL ORDER BY offset",
            (object_,),
        ).fetchall()
        if origin is None:
            if not records:
                return
            origin = self._origin(digest(b"recover" + records[0][0])[:16], bytes(8), _hint(key))
        for [page] in db.execute("SELECT DISTINCT page FROM entry WHERE object=?", (object_,)).fetchall():
            self._take_page(origin, page, 0)
        for short, first, items, raw in records:
            if not db.execute("SELECT 1 FROM place WHERE digest=? AND kind=?", (short, RECORD)).fetchone():
                self._place(origin, RECORD, first, items, raw, short)
        literals = db.execute(
            "SELECT offset, length, digest, raw FROM frame WHERE object=? AND first IS NULL AND NOT EXISTS "
            "(SELECT 1 FROM place WHERE place.digest=frame.digest) ORDER BY offset",
            (object_,),
        ).fetchall()
        if literals and records:
            # A pack has at most a few hundred record frames; they are parsed, and need memory, one pack at a time.
            frames: list[RecordFrame] = []
            room = _MOST_RAW
            for row in records[:_MOST_FRAMES]:
                room -= row[3]
                if frames and room < 0:
                    break
                frames.append(RecordFrame(self.raw(row[0])))
            sizes = {row[2]: row[3] for row in literals}
            for offset, short in addresses(frames, [Literal(*row) for row in literals], self.raw):
                self._place(origin, LITERAL, offset, sizes[short], sizes[short], short)

    def _take_page(self, origin: int, page: bytes, shape: int) -> None:
        """Note what a page of records or literals says; without a shape, what may be one, as far as frames bear it."""
        for first, items, raw, short, seq, there in self.db.execute(
            "SELECT entry.first, entry.items, entry.raw, entry.digest, frame.first, frame.id FROM entry "
            "LEFT JOIN frame ON frame.digest = entry.digest WHERE entry.page=? GROUP BY entry.digest, entry.first",
            (page,),
        ).fetchall():
            if not shape and there is None:
                continue
            if shape == RECORDS.number or (not shape and seq == first and items <= 1 << 16):
                self._place(origin, RECORD, first, items, raw, short)
            else:
                self._place(origin, INLINE if first >= INLINE_SPACE else LITERAL, first, items, raw, short)

    def note_packs(self, content_id: bytes, writer: bytes, name: str, packs: Sequence[PackRef]) -> None:
        """Note which packs a manifest names; of those that recordings share the first counts."""
        origin = self._origin(content_id, writer, name)
        for pack in packs:
            self.packs.setdefault(pack.digest, origin)

    def note_page(self, content_id: bytes, writer: bytes, name: str, short: bytes, shape: int) -> None:
        """Note that a manifest names a page of a table."""
        self.db.execute("INSERT INTO page VALUES(?, ?, ?)", (self._origin(content_id, writer, name), short, shape))

    # Reading

    def sound(self, short: bytes) -> bool:
        """Whether there is a frame with this digest of its raw bytes."""
        return self.db.execute("SELECT 1 FROM frame WHERE digest=? LIMIT 1", (short,)).fetchone() is not None

    def stored(self, short: bytes) -> Frame | None:
        """Where a frame lies."""
        row = self.db.execute(
            "SELECT object, offset, length, raw FROM frame WHERE digest=? LIMIT 1", (short,)
        ).fetchone()
        if row is None:
            return None
        return Frame(PackRef(f"{row[0]:064x}", row[1] + row[2]), Location(0, row[1], row[2]), row[3], short)

    def large(self, most: int) -> list[tuple[int, bytes]]:
        """Raw bytes and digests of the frames of a pack that may be a large literal of at most ``most`` bytes.

        Such a pack names no recording. What is made of it is checked by its digest.
        """
        found = self.db.execute(
            "SELECT object, sum(raw) AS n FROM frame "
            "WHERE object NOT IN (SELECT object FROM frame WHERE first IS NOT NULL) "
            "GROUP BY object HAVING n BETWEEN ? AND ? ORDER BY n DESC LIMIT 1",
            (LARGE, most),
        ).fetchone()
        if found is None:
            return []
        return self.db.execute("SELECT raw, digest FROM frame WHERE object=? ORDER BY offset", found[:1]).fetchall()

    def raw(self, short: bytes) -> bytes:
        """The raw bytes of the frame with this digest, checked; raises `FormatError` where there is none."""
        rows = self.db.execute(
            "SELECT object.key, frame.offset, frame.length FROM frame JOIN object ON object.id = frame.object "
            "WHERE frame.digest=?",
            (short,),
        ).fetchall()
        for key, offset, length in rows:
            try:
                raw = decompress(self.objects.read(key, offset, length), where=f"{key} at byte {offset}")
            except FormatError:  # pragma: no cover - it was sound a moment ago
                continue
            if short_digest(raw) == short:
                return raw
        raise FormatError("the frame is lost", where=f"frame {short.hex()}")

    def objects_with_damage(self) -> Iterator[str]:
        """Keys of objects without a table of contents: what is damaged in them may be anything."""
        for number in sorted(self.untold):
            yield self.db.execute("SELECT key FROM object WHERE id=?", (number,)).fetchone()[0]


class CatalogReader(PackReader):
    """Gives frames by their digests, wherever they were found."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def preload(self, ranges: Sequence[tuple[PackRef, int, int]]) -> None:
        """Nothing is read ahead."""

    def read(self, frames: Sequence[Frame]) -> list[bytes]:
        """As `PackReader.read`; raises `FormatError` for a frame that is lost."""
        result = []
        for frame in frames:
            if frame.digest is None or len(frame.digest) != SHORT_SIZE:  # pragma: no cover - tables name digests
                raise FormatError("a frame without a digest cannot be found", where=frame.where)
            raw = self._catalog.raw(frame.digest)
            if len(raw) > frame.most or (frame.raw is not None and len(raw) != frame.raw):
                raise FormatError("a frame is not of the size in its table", where=frame.where)
            result.append(raw)
        return result


def pack_digests_in(key: str) -> list[str]:
    """The digests of packs that stand in a key: one, where it was not renamed."""
    return _PACK_KEY.findall(key)


def _hint(key: str) -> str:
    return "recovered-" + digest(key.encode()).hex()[:8]
