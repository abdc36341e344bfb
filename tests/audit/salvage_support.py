"""Archives to damage, what of them must survive, and whether it did."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from replaypack import Archive, Recording
from replaypack.audit import Salvage, salvage
from replaypack.format.digests import digest
from replaypack.format.names import pack_key_of
from replaypack.format.row import Row, encode_row
from replaypack.storage import LocalStorage
from tests.archive.support import calls

TINY = Path(__file__).parents[2] / "spec/vectors/valid/archive/tiny"


class Known(NamedTuple):
    """A record: its row, the bytes of its blobs, and the parts of packs (key, begin, end) that hold them."""

    row: Row
    blobs: dict[str, bytes]
    places: frozenset[tuple[str, int, int]]


def build(path: Path, *, large: bool = True) -> Path:
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
        return {name: _known(archive.open(name)) for name in archive.recordings()}


def _known(recording: Recording) -> Records:
    index = recording.index
    frames = list(index.frames())
    result: Records = {}
    for record in recording.records():
        frame = next(f for entry, f in frames if entry.first <= record.seq < entry.first + entry.items)
        used = [frame]
        blobs = {}
        for role in ("request", "identity", "response"):
            ref = getattr(record.row, role)
            if ref is None or ref.encoding == 0:
                continue
            blobs[role] = record.blob_bytes(role)
            if role == "response" and record._found.inline is not None:
                continue
            spans = [(item.offset, item.length) for item in record.recipe(role)]
            used += [other for _, other in index.literal_entries(spans)] if spans else []
        places = frozenset((pack_key_of(f.pack.digest), f.at.offset, f.at.offset + f.at.length) for f in used)
        result.setdefault(ident(record.row), []).append(Known(record.row, blobs, places))
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
    """Every record that no damaged part of a pack holds is in the result, bit for bit; return how many are not.

    Without ``keys`` these may be other ones.
    """
    hits = list(damaged)
    gone = 0
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
            gone += len(items) - len(whole)
            assert len(there) >= len(whole), (name, [item.row.seq for item in whole])
            for item in whole:
                assert any(row.key == item.row.key or not keys for row, _ in there), (name, item.row.seq)
                assert all(blobs == item.blobs for _, blobs in there), (name, item.row.seq)
    return gone


def _has(row: Row, role: str) -> bool:
    ref = getattr(row, role)
    return ref is not None and bool(ref.encoding)


def _touched(item: Known, hits: list[tuple[str, int, int]]) -> bool:
    return any(
        key == hit and begin < stop and start < end for key, begin, end in item.places for hit, start, stop in hits
    )
