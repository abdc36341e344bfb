"""What every backend must do. A backend's test module subclasses one of these and says how to open it."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from replaypack.errors import (
    ObjectExistsError,
    ObjectMissingError,
    ObjectTooShortError,
    ReadOnlyStorageError,
    StorageError,
    StorageUnsupportedError,
)
from replaypack.storage import Storage

BIG: Final = bytes(i * 7 % 256 for i in range(300_000))

OBJECTS: Final[Mapping[str, bytes]] = {
    "recordings/run/00000001.json": b'{"format":"replaypack"}',
    "recordings/run/latest.json": b"{}",
    "recordings/run.other/latest.json": b"[]",
    "packs/ab/big.rpk": BIG,
    "empty": b"",
}

BAD_KEYS: Final = [
    "",
    "/a",
    "a/",
    "a//b",
    "../a",
    "a/../b",
    "./a",
    "a/.",
    "a\\b",
    "a b",
    "a?b",
    "a#b",
    "a*",
    "é",
    "a\n",
]


class ReadContract:
    """For storage that can be read. Subclasses define the fixture ``reader``: it holds exactly `OBJECTS`."""

    lists = True

    def test_get_returns_the_whole_object(self, reader: Storage) -> None:
        for key, data in OBJECTS.items():
            assert reader.get(key) == data

    def test_get_range_returns_exactly_the_range(self, reader: Storage) -> None:
        for start, length in [(0, 1), (0, len(BIG)), (17, 1000), (len(BIG) - 1, 1), (100_000, 200_000)]:
            assert reader.get_range("packs/ab/big.rpk", start, length) == BIG[start : start + length]

    def test_an_empty_range_is_answered(self, reader: Storage) -> None:
        assert reader.get_range("packs/ab/big.rpk", 5, 0) == b""
        assert reader.get_range("empty", 0, 0) == b""

    def test_a_range_beyond_the_end_is_an_error_and_never_short(self, reader: Storage) -> None:
        for start in (0, 299_999, 300_000, 300_001, 10**12):
            with pytest.raises(ObjectTooShortError) as caught:
                reader.get_range("packs/ab/big.rpk", start, len(BIG) + 1)
            assert caught.value.operation == "get_range"
            assert caught.value.url.endswith("packs/ab/big.rpk")

    def test_a_range_of_an_empty_object_is_beyond_its_end(self, reader: Storage) -> None:
        with pytest.raises(ObjectTooShortError):
            reader.get_range("empty", 0, 1)

    def test_get_suffix_returns_the_end_or_all(self, reader: Storage) -> None:
        assert reader.get_suffix("packs/ab/big.rpk", 10) == BIG[-10:]
        assert reader.get_suffix("packs/ab/big.rpk", len(BIG)) == BIG
        assert reader.get_suffix("recordings/run/latest.json", 1000) == b"{}"
        assert reader.get_suffix("packs/ab/big.rpk", 0) == b""
        assert reader.get_suffix("empty", 10) == b""

    def test_get_ranges_keeps_the_order_asked_for(self, reader: Storage) -> None:
        ranges = [
            ("packs/ab/big.rpk", 250_000, 5),
            ("recordings/run/latest.json", 0, 2),
            ("packs/ab/big.rpk", 0, 70_000),
            ("packs/ab/big.rpk", 0, 0),
            ("packs/ab/big.rpk", 10, 20),
            ("packs/ab/big.rpk", 250_000, 5),
        ]
        assert reader.get_ranges(ranges) == [OBJECTS[key][start : start + length] for key, start, length in ranges]
        assert reader.get_ranges([]) == []

    def test_get_ranges_is_all_or_nothing(self, reader: Storage) -> None:
        good = ("packs/ab/big.rpk", 0, 5)
        with pytest.raises(ObjectMissingError):
            reader.get_ranges([good, ("packs/ab/missing.rpk", 0, 5)])
        with pytest.raises(ObjectTooShortError):
            reader.get_ranges([good, ("packs/ab/big.rpk", len(BIG), 5)])

    def test_what_is_missing_is_said_to_be(self, reader: Storage) -> None:
        calls: list[Callable[[], object]] = [
            lambda: reader.get("recordings/none/latest.json"),
            lambda: reader.get_range("recordings/none/latest.json", 0, 1),
            lambda: reader.get_suffix("recordings/none/latest.json", 1),
        ]
        for call in calls:
            with pytest.raises(FileNotFoundError) as caught:
                call()
            assert isinstance(caught.value, ObjectMissingError)
            assert "recordings/none/latest.json" in str(caught.value)

    def test_a_directory_is_no_object(self, reader: Storage) -> None:
        with pytest.raises(ObjectMissingError):
            reader.get("recordings/run")

    def test_a_bad_key_is_refused_before_anything_is_asked(self, reader: Storage) -> None:
        calls: list[Callable[[str], object]] = [
            reader.get,
            lambda key: reader.get_range(key, 0, 1),
            lambda key: reader.get_suffix(key, 1),
            lambda key: reader.get_ranges([(key, 0, 1)]),
            lambda key: reader.put(key, b""),
            lambda key: reader.put_new(key, b""),
            reader.delete,
        ]
        for key in BAD_KEYS:
            for call in calls:
                with pytest.raises(StorageError, match="not a valid key"):
                    call(key)

    def test_an_impossible_range_is_refused(self, reader: Storage) -> None:
        for start, length in [(-1, 5), (0, -1)]:
            with pytest.raises(StorageError, match="not a range"):
                reader.get_range("packs/ab/big.rpk", start, length)

    def test_list_finds_by_the_beginning_of_the_key(self, reader: Storage) -> None:
        if not self.lists:
            with pytest.raises(StorageUnsupportedError, match="catalog"):
                list(reader.list())
            return

        def keys(prefix: str) -> list[str]:
            return sorted(info.key for info in reader.list(prefix))

        assert keys("") == sorted(OBJECTS)
        assert keys("recordings/") == sorted(key for key in OBJECTS if key.startswith("recordings/"))
        assert keys("recordings/run/") == ["recordings/run/00000001.json", "recordings/run/latest.json"]
        assert keys("recordings/run") == sorted(key for key in OBJECTS if key.startswith("recordings/run"))
        assert keys("recordings/run/0") == ["recordings/run/00000001.json"]
        assert keys("empty") == ["empty"]
        assert keys("nothing/here/") == []
        assert {info.key: info.size for info in reader.list()} == {key: len(data) for key, data in OBJECTS.items()}
        with pytest.raises(StorageError):
            list(reader.list("../"))

    def test_many_threads_may_read_at_once(self, reader: Storage) -> None:
        def read(i: int) -> bool:
            return reader.get_range("packs/ab/big.rpk", i * 1000, 1000) == BIG[i * 1000 : i * 1000 + 1000]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(40)))

    def test_it_works_inside_and_beside_a_running_event_loop(self, reader: Storage) -> None:
        async def main() -> None:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0.0005)

            ticker = asyncio.create_task(tick())
            answers = await asyncio.gather(
                *(asyncio.to_thread(reader.get_range, "packs/ab/big.rpk", i, 10) for i in range(8))
            )
            assert answers == [BIG[i : i + 10] for i in range(8)]
            assert reader.get("recordings/run/latest.json") == b"{}"  # blocks this loop, and must not break it
            assert ticks
            ticker.cancel()

        asyncio.run(main())

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_a_forked_child_may_go_on_using_it(self, reader: Storage) -> None:
        assert reader.get_ranges([("packs/ab/big.rpk", 0, 3), ("recordings/run/latest.json", 0, 2)])
        pid = fork_quietly()
        if pid == 0:
            status = 1
            try:
                ranges = [("packs/ab/big.rpk", 5, 3), ("recordings/run/latest.json", 0, 2)]
                if reader.get_ranges(ranges) == [BIG[5:8], b"{}"] and reader.get("empty") == b"":
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert reader.get("recordings/run/latest.json") == b"{}"

    def test_its_url_and_repr_can_be_shown(self, reader: Storage) -> None:
        assert reader.url in repr(reader)
        assert "?" not in reader.url
        assert "@" not in reader.url

    def test_a_read_only_storage_refuses_writes(self, reader: Storage) -> None:
        if not reader.read_only:
            pytest.skip("it can be written")
        writes: list[Callable[[], None]] = [
            lambda: reader.put("x", b""),
            lambda: reader.put_new("x", b""),
            lambda: reader.delete("empty"),
        ]
        for write in writes:
            with pytest.raises(ReadOnlyStorageError):
                write()


class StorageContract(ReadContract):
    """For storage that can be written. Subclasses define the fixture ``storage``: empty, and nobody else's."""

    atomic_create = True
    """Whether the server decides concurrent creates; where not, the class says why in its docstring."""

    @pytest.fixture
    def reader(self, storage: Storage) -> Storage:
        for key, data in OBJECTS.items():
            storage.put(key, data)
        return storage

    def test_put_replaces(self, storage: Storage) -> None:
        storage.put("a/b", b"one")
        storage.put("a/b", b"two, longer")
        assert storage.get("a/b") == b"two, longer"
        storage.put("a/b", b"3")
        assert storage.get("a/b") == b"3"

    def test_put_new_creates(self, storage: Storage) -> None:
        storage.put_new("a/b", b"one")
        assert storage.get("a/b") == b"one"
        assert [info.key for info in storage.list()] == ["a/b"]

    def test_put_new_refuses_other_bytes_and_keeps_what_is_there(self, storage: Storage) -> None:
        storage.put_new("a/b", b"one")
        with pytest.raises(FileExistsError) as caught:
            storage.put_new("a/b", b"two")
        assert isinstance(caught.value, ObjectExistsError)
        assert caught.value.operation == "put_new"
        assert storage.get("a/b") == b"one"

    def test_put_new_of_the_same_bytes_succeeds_again(self, storage: Storage) -> None:
        storage.put_new("a/b", b"one")
        storage.put_new("a/b", b"one")
        assert storage.get("a/b") == b"one"

    def test_put_new_of_an_empty_object(self, storage: Storage) -> None:
        storage.put_new("a/b", b"")
        storage.put_new("a/b", b"")
        with pytest.raises(ObjectExistsError):
            storage.put_new("a/b", b"x")

    def test_delete_may_be_repeated(self, storage: Storage) -> None:
        storage.put("a/b", b"one")
        storage.put("a/c", b"two")
        storage.delete("a/b")
        storage.delete("a/b")
        storage.delete("never/there")
        with pytest.raises(ObjectMissingError):
            storage.get("a/b")
        assert [info.key for info in storage.list()] == ["a/c"]
        storage.put_new("a/b", b"new life")
        assert storage.get("a/b") == b"new life"

    def test_a_write_is_seen_at_once_by_reads_and_listings(self, storage: Storage) -> None:
        for number in range(5):
            key = f"seen/{number}"
            with pytest.raises(ObjectMissingError):
                storage.get(key)
            storage.put_new(key, b"x")
            assert storage.get(key) == b"x"
            assert sum(1 for _ in storage.list("seen/")) == number + 1

    def test_a_list_is_not_disturbed_by_a_delete(self, storage: Storage) -> None:
        for number in range(6):
            storage.put(f"l/{number}", b"")
        for info in storage.list("l/"):
            storage.delete(info.key)
        assert not list(storage.list("l/"))

    def test_larger_objects_arrive_whole(self, storage: Storage) -> None:
        data = os.urandom(5 << 20)
        storage.put_new("large", data)
        assert storage.get("large") == data
        assert storage.get_range("large", 4 << 20, 1 << 20) == data[4 << 20 :]

    def test_of_many_writers_one_wins(self, storage: Storage) -> None:
        if not self.atomic_create:
            pytest.skip(f"{type(self).__doc__}")
        for round_number in range(5):
            outcome = race(storage, f"race/{round_number}", 12)
            assert len(outcome) == 1
            assert storage.get(f"race/{round_number}") == outcome[0]

    def test_replacing_is_never_seen_half_done(self, storage: Storage) -> None:
        bodies = [bytes([65 + i]) * (50_000 + i) for i in range(4)]
        storage.put("latest", bodies[0])
        stop = threading.Event()
        torn: list[bytes] = []

        def read() -> None:
            while not stop.is_set():
                data = storage.get("latest")
                if data not in bodies:
                    torn.append(data[:100])

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for i in range(24):
                storage.put("latest", bodies[i % 4])
        finally:
            stop.set()
            reader.join()
        assert not torn


def race(storage: Storage, key: str, writers: int) -> list[bytes]:
    """The bytes of every writer that was told it had created ``key``."""
    barrier = threading.Barrier(writers)

    def create(number: int) -> bytes | None:
        data = f"writer {number}".encode() * 50
        barrier.wait()
        try:
            storage.put_new(key, data)
        except ObjectExistsError:
            return None
        return data

    with ThreadPoolExecutor(writers) as pool:
        return [data for data in pool.map(create, range(writers)) if data is not None]


def fork_quietly() -> int:
    """`os.fork`, without Python's warning that this process has threads: that it has is the point of the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


__all__ = ["BIG", "OBJECTS", "ReadContract", "StorageContract", "fork_quietly", "race"]
