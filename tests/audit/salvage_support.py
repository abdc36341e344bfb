"""Archives to damage, what of them must survive, and whether it did."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgspec

from replaypack import Archive, Recording
from replaypack._read.packs import Frame
from replaypack.audit import Salvage, salvage
from replaypack.format.digests import digest
from replaypack.format.names import pack_key_of
from replaypack.format.pack import TRAILER_SIZE, FrameKind, parse_pack, parse_trailer
from replaypack.format.row import Row, encode_row
from replaypack.format.table import LITERALS, unpack_frame
from replaypack.storage import LocalStorage
from tests.archive.support import calls

TINY = Path(__file__).parents[2] / "spec/vectors/valid/archive/tiny"


#: Part of a pack: key, begin, end.
Place = tuple[str, int, int]


class Known(NamedTuple):
    """A record: its row, the bytes of its blobs, and the parts of packs that hold them.

    ``told`` are, of each of its literal frames, the parts of packs that say at what offset it lies: where all of them
    are damaged, the bytes are there, and nobody knows what they are.
    """

    row: Row
    blobs: dict[str, bytes]
    places: frozenset[Place]
    told: frozenset[frozenset[Place]]


def build(path: Path, *, large: bool = True) -> Path:
    """The sample archive, the same bytes each time."""
    rng, times = random.Random(5), count(1_700_000_000_000_000_000, 1_000_003)
    with (
        mock.patch("secrets.token_bytes", rng.randbytes),
        mock.patch("os.urandom", rng.randbytes),
        mock.patch("time.time_ns", times.__next__),
    ):
        return _build(path, large=large)


def _build(path: Path, *, large: bool) -> Path:
    """Every kind of recording: several flushes, appended, with a base, replaced, with a large payload, still open."""
    archive = Archive("", storage=LocalStorage(path, fsync=False))
    with archive.recorder("run", flush_interval=None) as recorder:
        for number, call in enumerate(calls(40)):
            recorder.append(**call)
            if number % 12 == 11:
                recorder.flush()
    with archive.recorder("run", if_exists="append", flush_interval=None) as recorder:
        for call in calls(14, seed=1):
            recorder.append(**call)
    with archive.recorder("based", base="run", flush_interval=None) as recorder:
        for call in calls(12):
            recorder.append(**call)
    with archive.recorder("large", flush_interval=None) as recorder:
        for call in calls(2, large=large):
            recorder.append(**call)
    with archive.recorder("replaced", flush_interval=None) as recorder:
        for call in calls(6, seed=2):
            recorder.append(**call)
    with archive.recorder("replaced", if_exists="replace", flush_interval=None) as recorder:
        for call in calls(8, seed=3):
            recorder.append(**call)
    living = archive.recorder("living", flush_interval=None)
    for number, call in enumerate(calls(30, seed=4)):
        living.append(**call)
        if number % 10 == 9:
            living.flush()
    living.close()
    shutil.rmtree(path / "journal")
    return path


#: The records of a recording by all of their rows but number and key.
Records = dict[bytes, list[Known]]
Everything = dict[str, Records]


def ident(row: Row) -> bytes:
    """What a row is, whatever its number and key."""
    return encode_row(msgspec.structs.replace(row, seq=0, key=bytes(32)))


def known(path: Path) -> Everything:
    """The records of each recording."""
    with Archive(path) as archive:
        names = list(archive.recordings())
        told = _told(archive, names)
        return {name: _known(archive.open(name), told) for name in names}


#: By the id of a recording and the digest of a literal frame.
Told = dict[tuple[str, bytes], set[Place]]


def _told(archive: Archive, names: list[str]) -> Told:
    """The tables of contents and pages, of all revisions, that say at what offset of a recording a frame lies."""
    told: Told = {}
    revisions = [(name, manifest.revision) for name in names for manifest in archive.revisions(name)]
    for info in archive.storage.list("packs/"):
        data = archive.storage.get(info.key)
        begin = len(data) - TRAILER_SIZE - parse_trailer(data)[0]
        toc = parse_pack(data)
        for frame in toc.frames:
            if frame.kind == FrameKind.LITERAL and frame.origin is not None:
                of = toc.origins[frame.origin].recording.hex(), frame.digest
                told.setdefault(of, set()).add((info.key, begin, len(data)))
    for recording in (archive.open(name, number) for name, number in [*revisions, *((name, None) for name in names)]):
        for segment in recording.index.segments:
            for number in range(len(segment.root(LITERALS).fences)):
                page = segment.page_frame(LITERALS, number)
                [rows] = recording.index.pages([(segment, LITERALS, number)])
                for at in range(0, len(rows), LITERALS.width):
                    of = recording.manifest.content.id, unpack_frame(rows, at).digest
                    told.setdefault(of, set()).add(_place(page))
    return told


def _place(frame: Frame) -> Place:
    return pack_key_of(frame.pack.digest), frame.at.offset, frame.at.offset + frame.at.length


def _known(recording: Recording, told: Told) -> Records:
    index = recording.index
    frames = list(index.frames())
    result: Records = {}
    for record in recording.records():
        frame = next(f for entry, f in frames if entry.first <= record.seq < entry.first + entry.items)
        used, digests = [frame], set[bytes]()
        blobs = {}
        for role in ("request", "identity", "response"):
            ref = getattr(record.row, role)
            if ref is None or ref.encoding == 0:
                continue
            blobs[role] = record.blob_bytes(role)
            if role == "response" and record._found.inline is not None:
                continue
            spans = [(item.offset, item.length) for item in record.recipe(role)]
            for entry, other in index.literal_entries(spans) if spans else ():
                used.append(other)
                digests.add(entry.digest)
        places = frozenset(map(_place, used))
        tells = frozenset(frozenset(told[recording.manifest.content.id, digest]) for digest in digests)
        result.setdefault(ident(record.row), []).append(Known(record.row, blobs, places, tells))
    return result


def tree(path: Path) -> dict[str, str]:
    """Every file and its digest."""
    return {
        file.relative_to(path).as_posix(): digest(file.read_bytes()).hex() for file in path.rglob("*") if file.is_file()
    }


def run(source: Path, target: Path) -> Salvage:
    """Salvage, checked for what must hold whatever the damage: the input is as it was, the result is sound."""
    before = tree(source)
    with Archive(target) as archive:
        result = salvage(LocalStorage(source, fsync=False), archive)
        assert tree(source) == before
        assert result.faults == []
        if result.recordings:
            assert list(archive.verify()) == []
    return result


def check(
    target: Path, everything: Everything, damaged: Iterable[tuple[str, int, int]] = (), *, keys: bool = True
) -> int:
    """Every record that no damaged part of a pack holds is in the result, bit for bit; return how many others are not.

    Without ``keys`` these may be other ones.
    """
    hits = list(damaged)
    missing = 0
    with Archive(target) as archive:
        made: dict[bytes, list[tuple[Row, dict[str, bytes]]]] = {}
        for name in archive.recordings():
            for manifest in archive.revisions(name):
                with archive.open(name, manifest.revision) as recording:
                    for number, record in enumerate(recording.records()):
                        assert record.seq == number
                        roles = [role for role in ("request", "identity", "response") if _has(record.row, role)]
                        blobs = {role: record.blob_bytes(role) for role in roles}
                        made.setdefault(ident(record.row), []).append((record.row, blobs))
    for name, records in everything.items():
        for which, items in records.items():
            there = made.get(which, [])
            whole = [item for item in items if not _touched(item, hits)]
            missing += max(0, len(items) - sum(blobs == items[0].blobs for _, blobs in there))
            assert len(there) >= len(whole), (name, [item.row.seq for item in whole])
            for item in whole:
                assert any(row.key == item.row.key or not keys for row, _ in there), (name, item.row.seq)
                assert all(blobs == item.blobs for _, blobs in there), (name, item.row.seq)
    return missing


def _has(row: Row, role: str) -> bool:
    ref = getattr(row, role)
    return ref is not None and bool(ref.encoding)


def _touched(item: Known, hits: list[Place]) -> bool:
    def damaged(place: Place) -> bool:
        return any(place[0] == hit and place[1] < stop and start < place[2] for hit, start, stop in hits)

    return any(map(damaged, item.places)) or any(all(map(damaged, places)) for places in item.told)
