"""What `verify` says of archives with things wrong in them, and that it says nothing of sound ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import replaypack
from replaypack.audit import FAULTS, LEVELS, Fault, Progress, verify_archive, verify_recording
from replaypack.errors import RecordingNotFoundError, StorageUnavailableError, UsageError
from replaypack.format import merkle
from replaypack.format.manifest import Content, Manifest, Storage, encode_manifest, parse_manifest
from replaypack.storage import KeyRange, LocalStorage

from .conftest import fill

NAME = "runs/sealed"


def faults(path: Path, level: str = "full", **options: Any) -> list[Fault]:
    found = list(replaypack.Archive(path).verify(level=level, **options))  # type: ignore[arg-type]
    for fault in found:
        assert fault.code in FAULTS
        assert fault.remedy
        assert fault.message
        assert fault.recording.partition("@")[0] == NAME
    return found


def codes(path: Path, level: str = "full") -> set[str]:
    return {fault.code for fault in faults(path, level)}


def packs(path: Path) -> list[Path]:
    """The packs that the sealed revision uses, largest first."""
    used = {ref.digest for ref in replaypack.Archive(path).open(NAME).manifest.storage.packs}
    found = [pack for pack in path.glob("packs/*/*.rpk") if pack.stem in used]
    return sorted(found, key=lambda pack: -pack.stat().st_size)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x40
    file.write_bytes(data)


def revise(path: Path, storage: dict[str, Any] | None = None, content: dict[str, Any] | None = None) -> Manifest:
    """Rewrite the sealed manifest with some members replaced, its digests made anew."""
    key = path / "recordings" / NAME / "00000002.json"
    old = parse_manifest(key.read_bytes())
    new_content: Content = msgspec.structs.replace(old.content, **(content or {}))
    new_storage: Storage = msgspec.structs.replace(old.storage, **(storage or {}))
    manifest = encode_manifest(new_content, new_storage)
    key.write_bytes(manifest.raw)
    key.with_name("latest.json").write_bytes(manifest.raw)
    return manifest


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


# Packs


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


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data[:10], lambda data: data + b"\0"])
def test_a_pack_of_another_size(archive_path: Path, change: Callable[[bytes], bytes]) -> None:
    pack = packs(archive_path)[0]
    pack.write_bytes(change(pack.read_bytes()))
    assert "pack.size" in codes(archive_path, "structure")


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


# Tables and rows: writers that do it wrong


def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, replacement: Any) -> set[str]:
    with monkeypatch.context() as patch:
        patch.setattr(target, replacement)
        with replaypack.Archive(tmp_path).recorder(NAME, flush_interval=None) as recorder:
            fill(recorder, 0, 150)
    return codes(tmp_path)


def test_a_key_that_is_not_the_identitys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1000))

    def lie(kind: str, canonical: bytes) -> bytes:
        return replaypack.canonical.key_of_canonical("x" if next(calls) == 7 else kind, canonical)

    assert wrong(tmp_path, monkeypatch, "replaypack.recorder.key_of_canonical", lie) == {"key.mismatch"}


def test_a_record_that_keys_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.table import pack_key

    def lie(key: bytes, disc: bytes, seq: int) -> bytes:
        return pack_key(key, disc, 9 if seq == 10 else seq)

    assert wrong(tmp_path, monkeypatch, "replaypack.recorder.pack_key", lie) == {"key.index"}
    assert {fault.where for fault in faults(tmp_path)} == {"record 9", "record 10"}


def test_an_entry_of_keys_in_another_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.table import pack_key

    def lie(key: bytes, disc: bytes, seq: int) -> bytes:
        return pack_key(key, b"12345678" if seq == 9 else disc, seq)

    assert wrong(tmp_path, monkeypatch, "replaypack.recorder.pack_key", lie) == {"key.index"}
    [fault] = faults(tmp_path)
    assert fault.where == "record 9"
    assert fault.message.endswith("differ in discriminator")


def test_keys_whose_frames_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.table import FrameRef, key_page

    def lie(rows: bytes, frames: list[FrameRef]) -> bytes:
        return key_page(rows, [ref._replace(digest=bytes(16)) for ref in frames])

    assert wrong(tmp_path, monkeypatch, "replaypack._write.segment.key_page", lie) == {"key.index"}
    assert len(faults(tmp_path)) == 150


def test_a_payload_that_is_not_what_its_row_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.digests import digest

    def lie(data: bytes) -> bytes:
        return digest(data + b"!") if len(data) > 4096 and data.startswith(b"xxx") else digest(data)

    found = wrong(tmp_path, monkeypatch, "replaypack.recorder.digest", lie)
    assert found == {"blob.mismatch"}
    assert all(fault.where.startswith("request of record ") for fault in faults(tmp_path))


def test_a_tree_over_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Liar(merkle.MerkleTree):
        def add(self, leaf: bytes) -> None:
            super().add(bytes(32) if self.count == 3 else leaf)

    monkeypatch.setattr("replaypack._write.publish.MerkleTree", Liar)
    with replaypack.Archive(tmp_path).recorder(NAME, flush_interval=None) as recorder:
        fill(recorder, 0, 50)
    monkeypatch.undo()
    assert codes(tmp_path) == {"merkle.mismatch"}


def test_a_blob_that_the_index_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.table import BlobEntry, pack_blob

    def lie(entry: BlobEntry) -> bytes:
        return pack_blob(entry._replace(role=1) if entry.role == 2 else entry)

    assert wrong(tmp_path, monkeypatch, "replaypack.recorder.pack_blob", lie) == {"blob.index"}


def test_a_payload_in_another_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack import values

    def pieces(value: object, *, census: Any = None) -> tuple[int, list[bytes]]:
        encoding, parts = values.payload_pieces(value, census=census)
        return (1, parts) if encoding == 3 and len(parts[0]) > 30 else (encoding, parts)

    assert "blob.encoding" in wrong(tmp_path, monkeypatch, "replaypack.recorder.payload_pieces", pieces)


@pytest.mark.parametrize(
    ("content", "code"), [({"counts": {"tool": 300}}, "counts.mismatch"), ({"recorded_by": "else"}, None)]
)
def test_counts_are_compared_with_the_rows(archive_path: Path, content: dict[str, Any], code: str | None) -> None:
    revise(archive_path, content=content)
    assert codes(archive_path) == ({code} if code else set())


def test_literals_that_end_elsewhere(archive_path: Path) -> None:
    literals = replaypack.Archive(archive_path).open(NAME).manifest.storage.literals
    revise(archive_path, {"literals": literals + 1})
    assert codes(archive_path, "structure") == {"literals.gap"}


def test_a_near_range_beyond_its_pack(archive_path: Path) -> None:
    from replaypack.format.manifest import Near

    [segment] = replaypack.Archive(archive_path).open(NAME).manifest.storage.segments
    near = Near(pack=0, offset=(1 << 31), length=1000)
    revise(archive_path, {"segments": [msgspec.structs.replace(segment, near=near)]})
    assert "segment.near" in codes(archive_path, "structure")


def test_tables_that_name_frames_elsewhere(archive_path: Path) -> None:
    import base64

    from replaypack.format.manifest import inline_root
    from replaypack.format.table import KEYS, Root

    [segment] = replaypack.Archive(archive_path).open(NAME).manifest.storage.segments
    root = Root.parse(KEYS, segment.keys.count, base64.b64decode(segment.keys.root or ""))
    moved = Root(
        KEYS, root.count, root.fences, root.digests, [at._replace(offset=at.offset + 1) for at in root.locations]
    )
    revise(archive_path, {"segments": [msgspec.structs.replace(segment, keys=inline_root(moved), near=None)]})
    assert codes(archive_path, "structure") == {"toc.mismatch"}
    assert "page.corrupted" in codes(archive_path)
    fence = Root(KEYS, root.count, [bytes(KEYS.key)], root.digests, root.locations)
    revise(archive_path, {"segments": [msgspec.structs.replace(segment, keys=inline_root(fence))]})
    assert codes(archive_path) == {"page.order"}


def test_records_and_literals_tables_exchanged_gives_gaps(archive_path: Path) -> None:
    import base64

    from replaypack.format.manifest import inline_root
    from replaypack.format.table import RECORDS, Root

    [segment] = replaypack.Archive(archive_path).open(NAME).manifest.storage.segments
    other = Root.parse(RECORDS, segment.literals.count, base64.b64decode(segment.literals.root or ""))
    revise(archive_path, {"segments": [msgspec.structs.replace(segment, records=inline_root(other))]})
    assert codes(archive_path, "structure") & {"records.gap", "toc.mismatch"}


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


def test_a_manifest_under_another_number(archive_path: Path) -> None:
    folder = archive_path / "recordings" / NAME
    shutil.copy(folder / "00000002.json", folder / "00000003.json")
    assert {"manifest.misplaced"} <= codes(archive_path, "manifest")


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
    with pytest.raises(RecordingNotFoundError, match="runs/sealed"):
        list(verify_archive(replaypack.Archive(sound_archive), ["runs/seeled"]))


def test_a_level_that_does_not_exist(sound_archive: Path) -> None:
    with pytest.raises(UsageError, match="structure"):
        list(verify_archive(replaypack.Archive(sound_archive), level="deep"))  # type: ignore[arg-type]


class Counting(LocalStorage):
    """Notes the largest read."""

    largest = 0

    def get_ranges(self, ranges: Any) -> list[bytes]:
        wanted: list[KeyRange] = list(ranges)
        self.largest = max(self.largest, *(length for _, _, length in wanted), 0)
        return super().get_ranges(wanted)


def test_packs_are_read_in_pieces(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    import random

    with archive.recorder(NAME) as recorder:
        recorder.append(kind="tool", identity="a", response=random.Random(1).randbytes(20 << 20))
    storage = Counting(tmp_path)
    assert list(replaypack.Archive(tmp_path, storage=storage).verify()) == []
    assert storage.largest <= 8 << 20
