"""Summaries in recordings: when there is one, what it saves, and what is wrong with one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replaypack import Archive, Recording, diff
from replaypack._read.packs import PackReader
from replaypack._read.summary import read_summary, summary_of
from replaypack._write.publish import Publisher
from replaypack.audit import rekey, verify_recording
from replaypack.format.manifest import encode_manifest
from replaypack.format.pack import parse_pack
from replaypack.format.summary import parse_runs
from replaypack.storage import KeyRange, Storage

COUNT = 6000


def record(
    archive: Archive, name: str, first: int = 0, count: int = COUNT, changed: Any = (), **options: Any
) -> Recording:
    with archive.recorder(name, **{"redact": None, **options}) as recorder:
        for number in range(first, first + count):
            response = f"{number} {random.Random(number).getrandbits(800):x}" + ("!" if number in changed else "")
            recorder.append(
                kind="tool", identity={"n": number}, response=response, status="error" if number % 1000 == 7 else None
            )
            if "flush_interval" not in options and number % 2500 == 0:
                recorder.flush()
    return archive.open(name)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    archive = Archive(tmp_path_factory.mktemp("summaries") / "a")
    record(archive, "a")
    record(archive, "b", changed=(100, 3000, 3001, 5999))
    return archive


class Read:
    """What is read of a recording's packs."""

    def __init__(self, recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        storage: Storage = recording.storage
        get_ranges, get_range = storage.get_ranges, storage.get_range

        def ranges(wanted: list[KeyRange]) -> list[bytes]:
            self.bytes += sum(length for _, _, length in wanted)
            return get_ranges(wanted)

        def one(key: str, start: int, length: int) -> bytes:
            self.bytes += length
            return get_range(key, start, length)

        monkeypatch.setattr(storage, "get_ranges", ranges)
        monkeypatch.setattr(storage, "get_range", one)


def packs_of(recording: Recording) -> int:
    return sum(pack.size for pack in recording.index.packs)


def test_what_is_the_same_is_not_read(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    with archive.open("a") as old, archive.open("b") as new:
        read = Read(old, monkeypatch)  # both have one storage
        found = diff(old, new)
        assert found.counts == {"same": COUNT - 4, "changed": 4, "added": 0, "removed": 0, "moved": 0}
        assert [entry.new.seq for entry in found.entries if entry.new] == [100, 3000, 3001, 5999]
        assert [totals.failed for totals in found.totals] == [6, 6]
        assert read.bytes < 0.6 * (packs_of(old) + packs_of(new))
        assert found.read < 1500


def test_without_summaries_the_same_comes_out(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    with_them = diff(archive.open("a"), archive.open("b"))
    monkeypatch.setattr("replaypack.audit._comparison.read_summary", lambda *_: None)
    without = diff(archive.open("a"), archive.open("b"))
    assert without.to_dict() == with_them.to_dict()
    assert without.read == 2 * COUNT
    assert with_them.read < without.read


def test_an_insertion_and_kinds(tmp_path: Path, archive: Archive) -> None:
    other = Archive(tmp_path / "b")
    with other.recorder("r", redact=None) as recorder:
        for item in archive.open("a").records():
            if item.seq == 2000:
                recorder.append(kind="model", identity="put in", response=1)
            recorder.append(
                kind="tool",
                identity=item.identity,
                response=item.response,
                status=item.status,  # type: ignore[arg-type]
            )
    found = diff(archive.open("a"), other.open("r"))
    assert found.counts == {"same": COUNT, "changed": 0, "added": 1, "removed": 0, "moved": 0}
    assert found.read < 1000
    assert diff(archive.open("a"), other.open("r"), kinds="tool").counts["same"] == COUNT
    assert diff(archive.open("a"), other.open("r"), kinds="tool").same
    assert diff(archive.open("a"), other.open("r"), ignore="kind:tool").counts["added"] == 1


@pytest.mark.once
def test_appends_rekeying_and_small_recordings(tmp_path: Path, archive: Archive) -> None:
    other = Archive(tmp_path / "b")
    assert record(other, "small", count=100).manifest.storage.summary is None
    # What a small recording has no summary of is read when it grows.
    record(other, "r", count=500)
    record(other, "r", 500, 1000, if_exists="append")
    grown = record(other, "r", 1500, COUNT - 1500, if_exists="append")
    assert diff(archive.open("a"), grown).read < 2000
    assert diff(archive.open("a"), grown).same
    more = record(other, "r", COUNT, 100, if_exists="append")
    assert diff(grown, more).counts["added"] == 100
    assert len(more.index.packs) < 12
    rekey(other, "r", match="uuids")
    for recording in (grown, more, other.open("r")):
        assert recording.manifest.storage.summary is not None
        assert list(verify_recording(recording)) == []


def test_one_that_cannot_be_known_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._write.publish.SUMMARISED", 200)
    archive = Archive(tmp_path / "a")
    with archive.recorder("learned") as recorder:
        for number in range(250):
            recorder.append(kind="tool", identity=number, response=number)
        recorder.flush()
        recorder.append(kind="tool", identity="x", response="my-password-is-this")
        recorder.learn_secret("my-password-is-this")
    learned = archive.open("learned")
    assert learned.manifest.storage.summary is None
    assert list(verify_recording(learned)) == []
    grown = record(archive, "learned", 5000, 10, if_exists="append", redact="default")
    assert grown.manifest.storage.summary is None


def revised(archive: Archive, name: str, **storage: Any) -> Recording:
    manifest = archive.open(name).manifest
    section = msgspec.structs.replace(manifest.storage, **storage)
    return Recording(archive.storage, name, encode_manifest(manifest.content, section))


def test_a_pack_that_is_gone(archive: Archive, tmp_path: Path) -> None:
    copy = Archive(tmp_path / "b")
    made = record(copy, "r")
    ref = made.manifest.storage.summary
    assert ref is not None
    path = next((tmp_path / "b").glob(f"packs/*/{ref.pack}.rpk"))
    assert [frame.kind for frame in parse_pack(path.read_bytes()).frames] == [3]
    path.unlink()
    assert diff(archive.open("a"), copy.open("r")).same
    assert {fault.code for fault in verify_recording(copy.open("r"))} == {"pack.missing", "summary.unreadable"}
    # Nor does it keep anybody from going on.
    assert record(copy, "r", COUNT, 10, if_exists="append").manifest.storage.summary is None


def test_one_that_lies(archive: Archive) -> None:
    recording = archive.open("a")
    storage = recording.manifest.storage
    runs = read_summary(recording.manifest, recording.index)
    assert runs is not None
    assert sum(run.records for run in runs) == COUNT
    assert parse_runs(summary_of(recording.manifest, PackReader(archive.storage), read=0), COUNT) == runs
    other = archive.open("b").manifest.storage
    lying = revised(archive, "a", summary=other.summary, packs=[*storage.packs, other.packs[-1]])
    assert {fault.code for fault in verify_recording(lying)} == {"summary.mismatch"}
    nowhere = revised(archive, "a", summary=other.summary)
    assert {fault.code for fault in verify_recording(nowhere)} == {"summary.unreadable"}


def test_recovered_recordings_have_one(tmp_path: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.recover import recover_leftover

    other = Archive(tmp_path / "b")
    monkeypatch.setattr(Publisher, "publish_checkpoint", lambda *_: None)
    recorder = other.recorder("r", redact=None, flush_interval=None)
    for item in archive.open("a").records():
        recorder.append(kind="tool", identity=item.identity, response=item.response, status=item.status)  # type: ignore[arg-type]
    recorder.close()
    [leftover] = other.leftovers()
    recover_leftover(other, leftover)
    found = diff(archive.open("a"), other.open("r"))
    assert found.same
    assert found.read < COUNT


@pytest.mark.once
def test_copies_and_compaction_keep_it(tmp_path: Path) -> None:
    from replaypack.audit import compact

    source = Archive(tmp_path / "a")
    made = record(source, "r")
    record(source, "other", 10_000, 50)
    source.copy_to(str(tmp_path / "whole"), names=["r"])
    source.copy_to(str(tmp_path / "partly"), names=["r"], responses_only=True)
    compact(source, ["r"])
    revision = source.open("r").manifest.revision
    compact(source, ["r"])  # finds nothing to do
    assert source.open("r").manifest.revision == revision
    for recording in (source.open("r"), Archive(tmp_path / "whole").open("r"), Archive(tmp_path / "partly").open("r")):
        assert recording.content_digest == made.content_digest
        assert read_summary(recording.manifest, recording.index) == read_summary(made.manifest, made.index)
        assert list(verify_recording(recording)) == []


@pytest.mark.once
def test_a_purge_leaves_none(tmp_path: Path) -> None:
    from replaypack.audit import purge

    archive = Archive(tmp_path / "a")
    made = record(archive, "r")
    ref = made.manifest.storage.summary
    assert ref is not None
    assert list((tmp_path / "a").glob(f"packs/*/{ref.pack}.rpk"))
    purge(archive, "r", [17], reason="asked for")
    purged = archive.open("r")
    assert purged.manifest.storage.summary is None
    assert not list((tmp_path / "a").glob(f"packs/*/{ref.pack}.rpk"))
    assert list(verify_recording(purged)) == []
    other = record(archive, "other", changed=(3000,))
    found = diff(purged, other)
    assert found.purged == (1, 0)
    assert found.counts == {"same": COUNT - 2, "changed": 1, "added": 1, "removed": 0, "moved": 0}
    assert "purged, and are not compared: 1 → 0" in str(found)
    assert record(archive, "r", COUNT, 10, if_exists="append").manifest.storage.summary is None
