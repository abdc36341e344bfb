"""Writing one zip file: what comes out is read by our reader, and by another."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from replaypack.errors import ObjectExistsError, ObjectMissingError, StorageError, StorageUnsupportedError
from replaypack.storage import Storage, ZipWriter, open_storage
from replaypack.storage import _zip_writer as module
from tests.storage.contract import OBJECTS, ReadContract


def write(path: Path, **options: bool) -> ZipWriter:
    writer = ZipWriter(path, **options)
    for key, data in OBJECTS.items():
        writer.put_new(key, data)
    return writer


class TestWhatIsWritten(ReadContract):
    """The file, read as any other zip file is."""

    @pytest.fixture
    def reader(self, tmp_path: Path) -> Storage:
        write(tmp_path / "a.zip").finish()
        return open_storage(tmp_path / "a.zip")


class TestBeforeItIsFinished(ReadContract):
    """The writer answers for what it holds."""

    @pytest.fixture
    def reader(self, tmp_path: Path) -> Iterator[Storage]:
        with write(tmp_path / "a.zip") as writer:
            yield writer


class TestHeld(ReadContract):
    @pytest.fixture
    def reader(self, tmp_path: Path) -> Iterator[Storage]:
        with ZipWriter(tmp_path / "a.zip") as writer:
            for key, data in OBJECTS.items():
                writer.put(key, data)
            yield writer


def test_another_reader_finds_the_same_and_no_fault(tmp_path: Path) -> None:
    write(tmp_path / "a.zip").finish()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == OBJECTS
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())


def test_the_same_objects_give_the_same_file(tmp_path: Path) -> None:
    write(tmp_path / "a.zip").finish()
    write(tmp_path / "b.zip").finish()
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_nothing_is_there_before_it_is_finished_and_nothing_is_left_without(tmp_path: Path) -> None:
    with write(tmp_path / "a.zip"):
        assert not (tmp_path / "a.zip").exists()
    assert list(tmp_path.iterdir()) == []


def test_what_may_be_replaced_lies_last_and_once(tmp_path: Path) -> None:
    writer = write(tmp_path / "a.zip")
    writer.put("recordings/a/latest.json", b"one")
    writer.put("recordings/a/latest.json", b"two")
    writer.put("recordings/b/latest.json", b"three")
    writer.delete("recordings/b/latest.json")
    writer.finish()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist()[-1] == "recordings/a/latest.json"
        assert archive.namelist().count("recordings/a/latest.json") == 1
        assert archive.read("recordings/a/latest.json") == b"two"


def test_an_entry_that_is_written_stays_as_it_is(tmp_path: Path) -> None:
    with write(tmp_path / "a.zip") as writer:
        key, data = next((key, data) for key, data in OBJECTS.items() if data)
        writer.put_new(key, data)
        with pytest.raises(ObjectExistsError):
            writer.put_new(key, data + b"!")
        with pytest.raises(StorageUnsupportedError):
            writer.put(key, data)
        with pytest.raises(StorageUnsupportedError):
            writer.delete(key)
        with pytest.raises(ObjectMissingError):
            writer.get("none")


def test_a_file_that_is_there_is_replaced_on_request_alone(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"mine")
    with pytest.raises(StorageError, match="already"):
        write(tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == b"mine"
    write(tmp_path / "a.zip", overwrite=True).finish()
    assert zipfile.is_zipfile(tmp_path / "a.zip")
    with pytest.raises(StorageError):
        write(tmp_path / "no" / "such" / "a.zip")


def test_a_file_that_came_meanwhile_is_kept(tmp_path: Path) -> None:
    writer = write(tmp_path / "a.zip")
    (tmp_path / "a.zip").write_bytes(b"mine")
    with pytest.raises(StorageError, match="already"):
        writer.finish()
    assert (tmp_path / "a.zip").read_bytes() == b"mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_large_files_and_many_entries_get_the_wide_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What takes 4 GiB, at another limit; a reader takes wide numbers where the narrow ones are full.
    count = 70_000
    with ZipWriter(tmp_path / "many.zip") as writer:
        for number in range(count):
            writer.put_new(f"packs/{number}.rpk", struct.pack(">I", number))
        writer.finish()
    with open_storage(tmp_path / "many.zip") as storage:
        assert sum(1 for _ in storage.list()) == count
        assert storage.get(f"packs/{count - 1}.rpk") == struct.pack(">I", count - 1)
    with zipfile.ZipFile(tmp_path / "many.zip") as archive:
        assert len(archive.namelist()) == count


def test_a_file_above_four_gigabytes(tmp_path: Path) -> None:
    """The data is a hole in the file, so that it takes no space."""
    with ZipWriter(tmp_path / "a.zip") as writer:
        writer.put_new("first", b"1")
        # As if an object of 5 GB had been written: its bytes are zeros that nobody stores.
        writer._end += 5 << 30
        writer._entries["large"] = module._Entry(40, 45, 5 << 30, 0)
        writer.put_new("last", b"2")
        writer.finish()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.read("last") == b"2"
        assert archive.getinfo("large").file_size == 5 << 30
