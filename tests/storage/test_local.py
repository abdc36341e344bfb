"""A directory on this machine."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replaypack.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectMissingError,
    ReadOnlyStorageError,
    StorageError,
    StorageFullError,
    WeakGuaranteeWarning,
)
from replaypack.storage import LocalStorage, Storage, open_storage
from tests.storage.contract import BIG, StorageContract, race


class TestLocal(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return open_storage(str(tmp_path / "deep" / "er"), {"replaypack": {"fsync": False}})


class TestLocalDurable(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return LocalStorage(tmp_path)


class TestLocalWithoutLinks(StorageContract):
    """A filesystem without hard links: new names are given under a lock."""

    @pytest.fixture
    def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
        monkeypatch.setattr(os, "link", no_links)
        return LocalStorage(tmp_path, fsync=False)


def no_links(source: Any, target: Any) -> None:
    raise OSError(errno.EPERM, "no links here")


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob("~*")]


def _create(path: str, number: int, links: bool, results: Any) -> None:
    if not links:
        os.link = no_links  # type: ignore[assignment]
    storage = LocalStorage(path)
    for round_number in range(20):
        try:
            storage.put_new(f"race/{round_number}", f"writer {number}".encode())
            results.put((round_number, number))
        except ObjectExistsError:
            pass


@pytest.mark.parametrize("links", [True, False])
def test_of_many_processes_one_wins(tmp_path: Path, links: bool) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    writers = [context.Process(target=_create, args=(str(tmp_path), n, links, results)) for n in range(4)]
    for writer in writers:
        writer.start()
    winners = dict(results.get(timeout=60) for _ in range(20))
    for writer in writers:
        writer.join()
    assert results.empty()
    assert sorted(winners) == list(range(20))
    storage = LocalStorage(tmp_path)
    for round_number, number in winners.items():
        assert storage.get(f"race/{round_number}") == f"writer {number}".encode()


WRITER = """
import sys
from replaypack.storage import LocalStorage
storage = LocalStorage(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    number += 1
    storage.put_new(f"new/{number}", b"n%d" % number * 40_000)
    storage.put("latest", b"l%d" % number * 40_000)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_killed_writer_leaves_whole_objects_or_none(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    seen = 0
    for delay in range(8):
        root = tmp_path / str(delay)
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, env=environment)
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.005 * delay)
        process.kill()
        process.wait()
        process.stdout.close()
        storage = LocalStorage(root)
        for info in storage.list():
            data = storage.get(info.key)
            expected = info.key.replace("new/", "n") if info.key != "latest" else data[: data.index(b"l", 1)].decode()
            assert data == expected.encode() * 40_000
            seen += 1
        storage.put_new("new/another", b"goes on")
    assert seen


def test_no_key_is_like_a_temporary_file(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "~tmp-123").write_bytes(b"left by a killed writer")
    (tmp_path / "~lock").write_bytes(b"")
    storage.put("a", b"1")
    assert [info.key for info in storage.list()] == ["a"]
    with pytest.raises(StorageError, match="not a valid key"):
        storage.get("~tmp-123")


@pytest.mark.parametrize("step", ["write", "fsync", "link", "replace"])
def test_every_failing_step_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("there", b"before")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "injected")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        if step != "link":
            with pytest.raises(StorageFullError) as caught:
                storage.put("there", b"after")
            assert caught.value.operation == "put"
        if step != "replace":
            with pytest.raises(StorageFullError):
                storage.put_new("new", b"x")
    assert storage.get("there") in (b"before", b"after") if step == "fsync" else storage.get("there") == b"before"
    with pytest.raises(ObjectMissingError):
        storage.get("new")
    assert leftovers(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root may mount a small filesystem")
    target = tmp_path / "disk"
    target.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", target], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    yield target
    subprocess.run(["umount", target], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    storage = LocalStorage(small_disk)
    storage.put("latest", b"old")
    for write in (storage.put, storage.put_new):
        with pytest.raises(StorageFullError, match="no space left"):
            write("big" if write == storage.put_new else "latest", BIG * 4)
    assert storage.get("latest") == b"old"
    assert leftovers(small_disk) == []
    storage.put("latest", b"new")
    assert storage.get("latest") == b"new"


def test_a_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    """Needs no root: the system refuses to let the file grow."""
    pytest.importorskip("resource")
    code = (
        "import resource, signal, sys\n"
        "from replaypack.errors import StorageFullError\n"
        "from replaypack.storage import LocalStorage\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "storage = LocalStorage(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    storage.put_new('k', bytes(5000))\nexcept StorageFullError:\n    sys.exit(0)\nsys.exit(1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment).returncode == 0
    assert leftovers(tmp_path) == []
    assert not list(LocalStorage(tmp_path).list())


def _stop_in_the_middle(path: str, at: Any) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            at.set()
            signal.pause()

    os.fsync = fsync
    LocalStorage(path).put_new("a/b", b"what was to be written")


def test_what_killed_writers_left_and_what_living_ones_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    context = multiprocessing.get_context("spawn")
    at = context.Event()
    process = context.Process(target=_stop_in_the_middle, args=(str(tmp_path), at))
    process.start()
    assert at.wait(60)
    storage = LocalStorage(tmp_path)
    assert list(storage.leftovers()) == list(storage.leftovers(sure=True, delete=True)) == []
    assert len(leftovers(tmp_path)) == 1
    process.kill()
    process.join()
    [found] = storage.leftovers()
    assert found.size == 22
    with monkeypatch.context() as patch:  # a filesystem that knows no locks

        def flock(*_: Any) -> None:
            raise OSError(errno.ENOTSUP, "no locks here")

        patch.setattr(fcntl, "flock", flock)
        assert list(storage.leftovers(sure=True, delete=True)) == []
        assert list(storage.leftovers()) == [found]
        storage.put("c", b"3")
    assert list(storage.leftovers(before=found.modified or 0)) == []
    assert list(storage.leftovers(sure=True, delete=True)) == [found]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("step", ["link", "replace"])
def test_what_is_removed_before_it_has_its_name_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """By whoever removes what killed writers left: nobody holds it at that moment."""
    pytest.importorskip("fcntl")
    storage = LocalStorage(tmp_path, fsync=False)
    real, removed = getattr(os, step), []

    def name(source: Any, target: Any) -> None:
        if len(removed) < 2:
            removed.extend(storage.leftovers(sure=True, delete=True))
        real(source, target)

    monkeypatch.setattr(os, step, name)
    (storage.put_new if step == "link" else storage.put)("a/b", b"data")
    assert len(removed) == 2
    assert storage.get("a/b") == b"data"
    assert leftovers(tmp_path) == []


def test_removing_leftovers_is_in_no_writers_way(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    storage = LocalStorage(tmp_path, fsync=False)
    done = threading.Event()

    def remove() -> None:
        while not done.is_set():
            list(storage.leftovers(sure=True, delete=True))

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        for number in range(300):
            storage.put_new(f"a/{number}", b"new")
            storage.put("a/again", b"again")
    finally:
        done.set()
        thread.join()
    assert len(list(storage.list("a/"))) == 301
    assert leftovers(tmp_path) == []


def test_the_file_and_every_new_directory_are_fsynced_before_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    real_fsync, real_link, real_replace = os.fsync, os.link, os.replace

    def fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        events.append(("fsync", "file" if "~tmp-" in path else str(Path(path).relative_to(tmp_path))))
        real_fsync(descriptor)

    def link(source: Any, target: Any) -> None:
        events.append(("link", str(Path(target).relative_to(tmp_path))))
        real_link(source, target)

    def replace(source: Any, target: Any) -> None:
        events.append(("replace", str(Path(target).relative_to(tmp_path))))
        real_replace(source, target)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("descriptors have no readable names here")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "replace", replace)
    storage = LocalStorage(tmp_path)
    storage.put_new("a/b/c", b"x")
    assert events == [("fsync", "."), ("fsync", "a"), ("fsync", "file"), ("link", "a/b/c"), ("fsync", "a/b")]
    events.clear()
    storage.put("a/b/c", b"y")
    assert events == [("fsync", "file"), ("replace", "a/b/c"), ("fsync", "a/b")]
    events.clear()
    LocalStorage(tmp_path, fsync=False).put("a/b/c", b"z")
    assert events == [("replace", "a/b/c")]


@pytest.mark.skipif(sys.platform == "win32", reason="modes mean something else there")
def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        LocalStorage(tmp_path).put_new("k", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o640


def test_without_links_and_locks_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    storage = LocalStorage(tmp_path)
    with pytest.warns(WeakGuaranteeWarning, match="neither hard links nor locks"):
        storage.put_new("k", b"1")
    with pytest.raises(ObjectExistsError):
        storage.put_new("k", b"2")


def test_permissions_and_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("k", b"")
    real_open = os.open

    def refuse(number: int) -> None:
        def fail(*args: Any, **kwargs: Any) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "open", fail)

    refuse(errno.EACCES)
    with pytest.raises(AccessDeniedError):
        storage.get("k")
    refuse(errno.EROFS)
    with pytest.raises(ReadOnlyStorageError):
        storage.put("k", b"")
    monkeypatch.setattr(os, "open", real_open)
    with pytest.raises(ReadOnlyStorageError):
        open_storage(str(tmp_path), {"replaypack": {"read_only": True}}).put("k", b"")


def test_an_absurd_range_costs_no_memory(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("k", b"abc")
    with pytest.raises(StorageError, match="ends at byte 3"):
        storage.get_range("k", 0, 1 << 60)


def test_listings_do_not_follow_links_to_directories(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"")
    storage = LocalStorage(tmp_path / "archive")
    storage.put("k", b"")
    try:
        (tmp_path / "archive" / "loop").symlink_to(tmp_path / "archive", target_is_directory=True)
        (tmp_path / "archive" / "out").symlink_to(tmp_path / "outside", target_is_directory=True)
    except OSError:
        pytest.skip("links are not permitted here")
    assert [info.key for info in storage.list()] == ["k"]


def test_threads_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    assert len(race(LocalStorage(tmp_path, fsync=False), "k", 16)) == 1
