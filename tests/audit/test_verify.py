"""What `verify` says of archives with things wrong in them, and that it says nothing of sound ones."""

from __future__ import annotations

import base64
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import replaypack
from replaypack import Archive
from replaypack.audit import LEVELS, Fault, Level, Progress, _literals, verify_archive, verify_recording
from replaypack.errors import AccessDeniedError, ObjectMissingError, StorageUnavailableError, UsageError
from replaypack.format.manifest import encode_manifest, parse_manifest
from replaypack.format.manifest_members import PackRef, Tombstone
from replaypack.format.names import pack_key_of
from replaypack.format.recipe import Range
from replaypack.storage import KeyRange, LocalStorage

from .conftest import fill
from .support import NAME, codes, faults, flip, packs, revise

# Sound ones


@pytest.mark.parametrize("level", LEVELS)
def test_a_sound_recording_has_no_faults(sound_archive: Path, level: str) -> None:
    assert faults(sound_archive, level) == []


def test_recordings_of_every_history_are_sound(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    with archive.recorder("appended") as recorder:
        fill(recorder, 0, 60, 25)
    with archive.recorder("appended", if_exists="append") as recorder:
        fill(recorder, 60, 80, 25)
    with archive.recorder("replaced") as recorder:
        fill(recorder, 0, 60, 25)
    with archive.recorder("replaced", if_exists="replace") as recorder:
        fill(recorder, 0, 20)
    with archive.recorder("empty"):
        pass
    with pytest.raises(ZeroDivisionError), archive.recorder("incomplete") as recorder:  # noqa: PT012
        fill(recorder, 0, 20)
        _ = 1 / 0
    living = archive.recorder("living", flush_interval=None)
    fill(living, 0, 100, 20)
    assert len(archive.open("living").manifest.storage.segments) > 1
    assert list(archive.verify()) == []
    living.close()
    assert list(archive.verify()) == []


def test_a_large_payload_in_a_pack_of_its_own_is_sound(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    media = bytes(range(256)) * 20_000
    with archive.recorder("a") as recorder:
        recorder.append(kind="tool", identity="a", response=media)
        recorder.append(kind="tool", identity="b", request=media, response=media + b"!")
    assert list(archive.verify()) == []


def test_a_recording_on_the_base_of_another_that_quotes_its_small_responses(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    messages: list[object] = [{"role": "user", "content": "start " * 300}]
    with archive.recorder("first", flush_interval=None) as recorder:
        for turn in range(60):
            answer = {"out": f"{turn} " + "".join(chr(97 + (turn * i) % 26) for i in range(3000))}
            recorder.append(kind="tool", identity=turn, response=answer)
            messages.append({"role": "tool", "content": answer})
            recorder.append(kind="model", identity=list(messages), response=turn)
    with archive.recorder("second", base="first") as recorder:
        for turn in range(5):
            messages.append(turn)
            recorder.append(kind="model", identity=list(messages), response=turn)
    assert list(archive.verify()) == []
    assert [record.request for record in archive.open("second").records()][-1] == messages


def test_an_opened_recording_is_verified_with_progress(sound_archive: Path) -> None:
    seen: list[Progress] = []
    recording = replaypack.open(f"{sound_archive}#{NAME}")
    assert list(verify_recording(recording, progress=seen.append)) == []
    assert {report.stage for report in seen} == {"packs", "tables", "records"}
    assert (seen[-1].done, seen[-1].total) == (300, 300)


# Packs that no recording names


def test_packs_of_writers_and_collectors_are_counted_where_they_can_be_listed(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with archive.recorder("kept") as recorder:
        fill(recorder, 0, 40)

    def unnamed(archive: Archive, names: Any = None, level: Level = "structure") -> list[tuple[int, int]]:
        told: list[tuple[int, int]] = []
        found = verify_archive(archive, names, level=level, on_unnamed=lambda it: told.append((it.packs, it.bytes)))
        assert list(found) == []
        return told

    assert unnamed(archive) == [(0, 0)]
    with archive.recorder("gone") as recorder:
        fill(recorder, 0, 40)
    packs = archive.open("gone").index.packs
    assert unnamed(archive) == [(0, 0)]
    archive.delete("gone")
    assert unnamed(archive) == [(len(packs), sum(pack.size for pack in packs))]
    assert unnamed(archive, ["kept"]) == unnamed(archive, None, "manifest") == []
    denied = LocalStorage(tmp_path / "a")
    real = denied.list

    def refusing(prefix: str = "") -> Any:
        if prefix == "packs/":
            raise AccessDeniedError("not permitted", operation="list", url=denied.url)
        return real(prefix)

    denied.list = refusing  # type: ignore[method-assign]
    assert unnamed(Archive("", storage=denied)) == []


# Packs


@pytest.mark.once
def test_every_flipped_byte_of_a_pack_is_noticed(archive_path: Path) -> None:
    for pack in packs(archive_path):
        size = pack.stat().st_size
        for at in {*range(0, size, max(1, size // 60)), 3, 20, size - 1, size - 5, size - 40}:
            flip(pack, at)
            assert faults(archive_path, "frames"), f"{pack} byte {at}"
            flip(pack, at)
    assert faults(archive_path, "frames") == []


def test_a_missing_pack_is_missing_and_never_corrupt(archive_path: Path) -> None:
    for pack in packs(archive_path):
        pack.rename(pack.with_suffix(".away"))
        for level in LEVELS[1:]:
            found = faults(archive_path, level)
            assert {fault.code for fault in found} <= {"pack.missing", "blob.unreadable"}
            assert [fault.where for fault in found if fault.code == "pack.missing"] == [
                f"packs/{pack.stem[:2]}/{pack.name}"
            ]
        pack.with_suffix(".away").rename(pack)


@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-1], lambda data: data[:10], lambda data: data + b"\0", lambda data: data + data],
)
def test_a_pack_of_another_size(archive_path: Path, change: Callable[[bytes], bytes]) -> None:
    pack = packs(archive_path)[0]
    pack.write_bytes(change(pack.read_bytes()))
    assert "pack.size" in codes(archive_path, "structure")


@pytest.mark.parametrize("name", ["a/first", "z/last"])
@pytest.mark.parametrize("more", [1, -1])
def test_a_size_that_only_one_of_two_recordings_names(archive_path: Path, name: str, more: int) -> None:
    """Both use the same packs; that of the other is no excuse, and no blame."""
    sound = parse_manifest((archive_path / "recordings" / NAME / "00000002.json").read_bytes())
    wrong = [PackRef(ref.digest, ref.size + more) for ref in sound.storage.packs]
    storage = msgspec.structs.replace(sound.storage, revision=1, cause="copy", previous=None, packs=wrong)
    (archive_path / "recordings" / name).mkdir(parents=True)
    for key in ("00000001.json", "latest.json"):
        (archive_path / "recordings" / name / key).write_bytes(encode_manifest(sound.content, storage).raw)
    flip(archive_path / "packs" / wrong[0].digest[:2] / f"{wrong[0].digest}.rpk", 60)
    found = list(Archive(archive_path).verify(level="frames"))
    assert {fault.code for fault in found if fault.recording == name} >= {"pack.size"}
    assert {fault.code for fault in found if fault.recording != name} == {"frame.corrupted"}


def test_a_pack_with_bytes_taken_out_of_its_middle(archive_path: Path) -> None:
    pack = packs(archive_path)[0]
    data = pack.read_bytes()
    pack.write_bytes(data[:500] + data[600:])
    assert "pack.size" in codes(archive_path, "structure")


def test_damage_of_a_frame_is_told_with_its_place_and_what_it_held(archive_path: Path) -> None:
    pack = packs(archive_path)[0]
    flip(pack, 60)
    assert codes(archive_path, "structure") == set()
    [frame] = faults(archive_path, "frames")
    assert frame.code == "frame.corrupted"
    assert frame.where == f"packs/{pack.stem[:2]}/{pack.name} at byte 24"
    assert "literal frame with" in frame.message
    found = faults(archive_path)
    assert {fault.code for fault in found} == {"frame.corrupted", "blob.unreadable"}
    [unreadable] = [fault for fault in found if fault.code == "blob.unreadable"]
    assert unreadable.where.startswith("records ")


def test_records_behind_damaged_ones_are_not_out_of_order(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with archive.recorder(NAME, flush_interval=None) as recorder:
        for number in range(300):
            recorder.append(kind="tool", identity=number, response=random.Random(number).randbytes(1500).hex())
    frames = [frame for _, frame in archive.open(NAME).index.frames()]
    assert len(frames) > 4
    for frame in frames:
        pack = tmp_path / "a" / pack_key_of(frame.pack.digest)
        flip(pack, frame.at.offset + frame.at.length // 2)
        assert codes(tmp_path / "a") - {"blob.unreadable"} == {"frame.corrupted"}
        flip(pack, frame.at.offset + frame.at.length // 2)


def test_damage_in_several_places_is_all_listed(archive_path: Path) -> None:
    first, second = packs(archive_path)[:2]
    flip(first, 60)
    second.unlink()
    (archive_path / "recordings" / NAME / "latest.json").unlink()
    assert {"frame.corrupted", "pack.missing", "latest.missing"} <= codes(archive_path)


def test_header_table_of_contents_and_padding(archive_path: Path) -> None:
    pack = packs(archive_path)[0]
    size = pack.stat().st_size
    for at, code in ((9, "pack.header"), (size - 45, "toc.corrupted"), (size - 3, "toc.corrupted")):
        flip(pack, at)
        assert code in codes(archive_path, "structure"), at
        flip(pack, at)


def test_a_sound_pack_under_another_name(archive_path: Path) -> None:
    large, small = packs(archive_path)[0], packs(archive_path)[-1]
    shutil.copy(large, small)
    assert codes(archive_path, "frames") & {"pack.size", "toc.corrupted"}


# Manifests


def test_a_damaged_manifest(archive_path: Path) -> None:
    folder = archive_path / "recordings" / NAME
    flip(folder / "00000002.json", 100)
    assert codes(archive_path, "manifest") == {"manifest.corrupted"}
    flip(folder / "latest.json", 100)
    assert codes(archive_path, "manifest") == {"manifest.corrupted", "latest.corrupted"}


def test_a_manifest_of_a_newer_version(archive_path: Path) -> None:
    folder = archive_path / "recordings" / NAME
    newer = (folder / "00000002.json").read_bytes().replace(b'"version":1}', b'"version":2}')
    (folder / "00000002.json").write_bytes(newer)
    assert codes(archive_path, "manifest") == {"manifest.future_version"}


@pytest.mark.parametrize(("text", "code"), [("true", "malformed_version"), ("0", "unmigratable")])
def test_a_manifest_of_no_version(archive_path: Path, text: str, code: str) -> None:
    file = archive_path / "recordings" / NAME / "00000002.json"
    file.write_bytes(file.read_bytes().replace(b'"version":1}', f'"version":{text}}}'.encode()))
    assert codes(archive_path, "manifest") == {f"manifest.{code}"}


def test_latest_that_is_missing_stale_or_ahead(archive_path: Path) -> None:
    folder = archive_path / "recordings" / NAME
    sealed = (folder / "latest.json").read_bytes()
    (folder / "latest.json").unlink()
    assert codes(archive_path, "manifest") == {"latest.missing"}
    shutil.copy(folder / "00000001.json", folder / "latest.json")
    assert codes(archive_path, "manifest") == {"latest.stale"}
    (folder / "latest.json").write_bytes(sealed)
    (folder / "00000002.json").unlink()
    assert codes(archive_path, "manifest") == {"manifest.missing"}


@pytest.mark.parametrize(
    ("version", "code"), [("2", "future_version"), ("0", "unmigratable"), ("true", "malformed_version")]
)
def test_a_latest_of_another_version_is_not_damaged(archive_path: Path, version: str, code: str) -> None:
    folder = archive_path / "recordings" / NAME
    other = (folder / "latest.json").read_bytes().replace(b'"version":1}', b'"version":%b}' % version.encode())
    for key in ("latest.json", "00000003.json"):
        (folder / key).write_bytes(other)
    found = faults(archive_path, "manifest")
    assert [(fault.code, fault.where.rpartition("/")[2]) for fault in found] == [
        (f"manifest.{code}", "00000003.json"),
        (f"manifest.{code}", "latest.json"),
    ]


def test_a_manifest_under_another_number(archive_path: Path) -> None:
    folder = archive_path / "recordings" / NAME
    shutil.copy(folder / "00000002.json", folder / "00000003.json")
    assert {"manifest.misplaced"} <= codes(archive_path, "manifest")


def test_a_checkpoint_of_another_recorder(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    recorders = [archive.recorder(name, flush_interval=None) for name in (NAME, "other")]
    for recorder in recorders:
        fill(recorder, 0, 10)
        recorder.flush()
    assert codes(tmp_path, "manifest") == set()
    other = (tmp_path / "recordings/other/00000001.open.json").read_bytes()
    for wrong in (other, (tmp_path / "recordings" / NAME / "00000001.json").read_bytes()):
        (tmp_path / "recordings" / NAME / "00000001.open.json").write_bytes(wrong)
        assert codes(tmp_path, "manifest") == {"manifest.misplaced"}
    for recorder in recorders:
        recorder.close()


def test_a_chain_with_an_exchanged_link(archive_path: Path) -> None:
    revise(archive_path, {"previous": "0" * 64})
    assert codes(archive_path, "manifest") == {"revision.chain"}


def test_older_revisions_are_checked_too(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    with archive.recorder(NAME) as recorder:
        fill(recorder, 0, 30)
    [old] = tmp_path.glob("packs/*/*.rpk")
    with archive.recorder(NAME, if_exists="replace") as recorder:
        fill(recorder, 0, 10)
    old.unlink()
    found = faults(tmp_path)
    assert {fault.code for fault in found} >= {"pack.missing"}
    assert all(fault.recording.startswith(f"{NAME}@") for fault in found)
    assert faults(tmp_path, revisions=False) == []


def test_an_older_revision_that_says_something_else_of_the_same_rows(archive_path: Path) -> None:
    """It lies in the same packs as the newest, which is sound."""
    folder = archive_path / "recordings" / NAME
    sealed = parse_manifest((folder / "00000002.json").read_bytes())
    leaf = next(replaypack.Archive(archive_path).open(NAME).leaves(0)).hex()
    counts = dict(sealed.content.counts, tool=sealed.content.counts["tool"] - 1, other=1)
    tombstones = [Tombstone("2026-01-01T00:00:00Z", "test", [(0, leaf)])]
    for content, storage, code in (
        ({"counts": counts}, {}, "counts.mismatch"),
        ({}, {"tombstones": tombstones}, "purged.present"),
    ):
        wrong = revise(archive_path, storage, content)
        again = msgspec.structs.replace(sealed.storage, revision=3, cause="compact", previous=wrong.digest)
        for key in ("00000003.json", "latest.json"):
            (folder / key).write_bytes(encode_manifest(sealed.content, again).raw)
        # The last checkpoint before it is older than those tombstones.
        found = [fault for fault in faults(archive_path) if fault.code != "purge.unfinished"]
        assert code in {fault.code for fault in found}
        assert {fault.recording for fault in found} == {f"{NAME}@2"}


# What is no fault


class Flaky(LocalStorage):
    """A store that stops answering after a number of reads."""

    left = 5

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StorageUnavailableError("no route to host", operation="get", url=self.url)

    def get_ranges(self, ranges: Any) -> list[bytes]:
        self._count()
        return super().get_ranges(ranges)

    def get(self, key: str) -> bytes:
        self._count()
        return super().get(key)


@pytest.mark.parametrize("left", range(9))
def test_a_store_that_cannot_be_reached_is_no_fault(sound_archive: Path, left: int) -> None:
    storage = Flaky(sound_archive)
    storage.left = left
    found: list[Fault] = []
    with pytest.raises(StorageUnavailableError):
        found.extend(replaypack.Archive(sound_archive, storage=storage).verify())
    assert found == []


def test_a_name_that_is_not_there(sound_archive: Path) -> None:
    archive = replaypack.Archive(sound_archive)
    [fault] = verify_archive(archive, ["runs/seeled", "runs/sealed"])
    assert (fault.code, fault.recording) == ("manifest.missing", "runs/seeled")
    assert "did you mean runs/sealed?" in fault.message
    assert list(verify_archive(archive, ["runs/seeled", "runs/sealed"], listed=True)) == []


def test_a_recording_that_is_deleted_since_the_listing(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    for name in "abc":
        with archive.recorder(name) as recorder:
            recorder.append(kind="t", identity=1)
    names = list(archive.recordings())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "recordings", lambda: names)
        archive.delete("b")
        assert list(verify_archive(archive)) == []
    assert [fault.recording for fault in verify_archive(archive, names)] == ["b"]


def test_a_level_that_does_not_exist(sound_archive: Path) -> None:
    with pytest.raises(UsageError, match="structure"):
        list(verify_archive(replaypack.Archive(sound_archive), level="deep"))  # type: ignore[arg-type]


class Counting(LocalStorage):
    """Notes the largest read, and how much was read of packs."""

    largest = total = 0

    def get_ranges(self, ranges: Any) -> list[bytes]:
        wanted: list[KeyRange] = list(ranges)
        self.largest = max(self.largest, *(length for _, _, length in wanted), 0)
        self.total += sum(length for _, _, length in wanted)
        return super().get_ranges(wanted)


def test_packs_are_read_in_pieces(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    import random

    with archive.recorder(NAME) as recorder:
        recorder.append(kind="tool", identity="a", response=random.Random(1).randbytes(20 << 20))
    storage = Counting(tmp_path)
    assert list(replaypack.Archive(tmp_path, storage=storage).verify()) == []
    assert storage.largest <= 8 << 20


def test_what_was_read_to_check_the_packs_is_not_read_again(tmp_path: Path) -> None:
    with Archive(tmp_path).recorder(NAME) as recorder:
        for n in range(2000):
            recorder.append(kind="tool", identity={"n": n}, response=random.Random(n).randbytes(100).hex())
    read = []
    for level in ("frames", "full"):
        storage = Counting(tmp_path)
        assert list(Archive(tmp_path, storage=storage).verify(level=level)) == []
        read.append(storage.total)
    assert read[0] == read[1]


def test_where_there_is_no_archive_nothing_is_called_sound(tmp_path: Path) -> None:
    with pytest.raises(ObjectMissingError, match="there is no archive"):
        list(Archive(tmp_path / "typo").verify())
    with Archive(tmp_path / "empty").recorder("run") as recorder:
        recorder.append(kind="t", identity=1)
    archive = Archive(tmp_path / "empty")
    archive.delete("run")
    assert list(archive.verify()) == []


def test_frames_that_ranges_jump_between_are_read_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = replaypack.Archive(tmp_path)
    parts = [random.Random(seed).randbytes(1 << 20) for seed in range(4)]
    with archive.recorder("r", redact=None) as recorder:
        for part in parts:
            recorder.append(kind="tool", identity=0, response=part)
    monkeypatch.setattr(_literals, "_HELD", 3 << 20)
    with archive.open("r", cache_bytes=0) as recording:
        reader = _literals.LiteralReader(recording.index, 64 << 20)
        begins = [recording.record(seq).recipe("response")[0].offset for seq in range(4)]
        ranges = [Range(begins[at % 4] + at, 100, 0) for at in range(2000)]
        read: list[int] = []
        whole = recording.index.literal_frames
        monkeypatch.setattr(recording.index, "literal_frames", lambda wanted: read.append(len(wanted)) or whole(wanted))
        found = reader.parts(ranges)
        assert [bytes(part) for part in found] == [parts[at % 4][at : at + 100] for at in range(2000)]
        assert len(read) == 1
        # A range over the border of two frames, and one in base64 over it.
        edge = [Range(begins[1] - 6, 12, 0), Range(begins[1] - 6, 12, 1)]
        text = parts[0][-6:] + parts[1][:6]
        if begins[1] == begins[0] + (1 << 20):
            assert b"".join(reader.parts(edge)) == text + base64.b64encode(text)
