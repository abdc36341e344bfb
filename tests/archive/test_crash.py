"""Processes that die, disks that fill up, stores that fail, writers that collide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive
from replaypack.errors import (
    ConflictError,
    JournalError,
    PublishError,
    RecorderClosedError,
    RecordingExistsError,
    ReplaypackWarning,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from replaypack.format.names import revision_key
from replaypack.recover import recover
from replaypack.storage import MemoryStorage
from tests.archive.support import calls, check

ROOT = Path(__file__).parents[2]


@pytest.mark.once
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """kill -9 at 200 moments: no acknowledged record is lost, no archive is unreadable."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.archive.kill_loop", str(tmp_path / "archive"), "200", "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    totals = json.loads(done.stdout)
    assert totals["rounds"] == 200
    assert totals["killed"] >= 20
    assert totals["acknowledged"] > 100
    assert totals["recovered"] > 10


class Failing(MemoryStorage):
    """A store that refuses some operations, as a real one on a bad day."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: dict[str, StorageError] = {}
        self.hook: Any = None

    def _maybe(self, operation: str, key: str) -> None:
        if self.hook is not None:
            self.hook(operation, key)
        for prefix, error in self.fails.items():
            if f"{operation} {key}".startswith(prefix):
                raise error

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._maybe("put_new", key)
        super().put_new(key, data, cache_control=cache_control)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._maybe("put", key)
        super().put(key, data, cache_control=cache_control)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Journals of remote archives go to a directory of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


DOWN = StorageUnavailableError("the network is gone", operation="put_new", url="memory://x")
FULL = StorageFullError("no space left", operation="put_new", url="memory://x")


@pytest.mark.parametrize(("operation", "error"), [("put_new packs/", DOWN), ("put recordings/", FULL)])
def test_a_flush_that_fails_says_what_is_safe_and_can_be_repeated(
    state: Path, operation: str, error: StorageError
) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    expected = list(calls(40))
    recorder = archive.recorder("run", flush_interval=None)
    for call in expected[:20]:
        recorder.append(**call)
    recorder.flush()
    storage.fails[operation] = error
    for call in expected[20:30]:
        recorder.append(**call)
    if operation.startswith("put_new"):
        with pytest.raises(PublishError, match="20 of 30 records") as caught, pytest.warns(ReplaypackWarning):
            recorder.flush()
        assert (caught.value.published, caught.value.unpublished) == (20, 10)
        assert caught.value.journal is not None
        assert list(Path(caught.value.journal).glob("*.rpj"))
    check(archive.open("run"), expected[:20])
    for call in expected[30:]:
        recorder.append(**call)
    storage.fails.clear()
    recorder.flush()
    check(archive.open("run", fresh=True), expected)
    recorder.seal()
    check(archive.open("run", fresh=True), expected)
    assert not list(state.rglob("*.rpj"))


def test_a_seal_that_fails_leaves_a_journal_to_recover(state: Path) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    expected = list(calls(30))
    recorder = archive.recorder("run", flush_interval=None)
    for number, call in enumerate(expected):
        recorder.append(**call)
        if number == 10:
            recorder.flush()
    storage.fails["put_new packs/"] = DOWN
    with pytest.raises(PublishError, match="the network is gone"):
        recorder.seal()
    with pytest.raises(RecorderClosedError):
        recorder.append(**expected[0])
    storage.fails.clear()
    [result] = recover(archive)
    assert (result.name, result.records, result.from_journal, result.error) == ("run", 30, 19, None)
    recording = archive.open("run")
    check(recording, expected)
    assert recording.state == "incomplete"
    assert list(recover(archive)) == []
    assert not list(state.rglob("*.rpj"))


def test_a_store_that_stays_away_stops_the_recorder_before_memory_does(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replaypack._write.worker.MAX_STUCK", 100_000)
    storage = Failing()
    archive = Archive("", storage=storage)
    recorder = archive.recorder("run", flush_interval=0.001)
    storage.fails["put_new packs/"] = DOWN
    appended = 0

    def record() -> int:
        count = 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            recorder.append(kind="t", identity=count, response=os.urandom(3000))
            count += 1
        return count

    with pytest.warns(ReplaypackWarning, match="safe in the journal"), pytest.raises(PublishError):
        appended = record()
    appended = recorder.count
    recorder.close()
    storage.fails.clear()
    [result] = recover(archive)
    assert result.records == appended
    assert len(archive.open("run")) == appended


def test_latest_that_cannot_be_written_is_a_warning(state: Path) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1, response=2)
    storage.fails["put recordings/run/latest.json"] = DOWN
    with pytest.warns(ReplaypackWarning, match="fresh=True"):
        recorder.seal()
    assert len(archive.open("run")) == 0
    assert len(archive.open("run", fresh=True)) == 1


def test_a_full_disk_under_the_journal(tmp_path: Path) -> None:
    """The record that does not fit is refused whole, those before it are safe."""
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1, response=2)
    size = recorder._journal._size
    real_write = os.write

    def full(fd: int, data: bytes) -> int:
        if fd == recorder._journal._fd:
            if len(data) > 10:
                return real_write(fd, data[:10])
            raise OSError(28, "No space left on device")
        return real_write(fd, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(JournalError, match="No space left"):
            recorder.append(kind="t", identity=2, response="x" * 1000)
    assert recorder._journal.path.stat().st_size == size
    with pytest.raises(RecorderClosedError, match="No space left"):
        recorder.append(kind="t", identity=3)
    recorder.close()
    [result] = recover(archive)
    assert result.records == 1
    found = archive.open("run").lookup("t", 1)
    assert found is not None
    assert found.response == 2


def test_the_loser_of_a_conflict_keeps_its_records(state: Path) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    first, mine = list(calls(10)), list(calls(12, seed=1))
    with archive.recorder("run", flush_interval=None) as recorder:
        for call in first:
            recorder.append(**call)
    recorder = archive.recorder("run", if_exists="append", flush_interval=None)
    for call in mine:
        recorder.append(**call)
    # Somebody else's revision appears where ours would go.
    storage.put_new(revision_key("run", 4), archive.storage.get(revision_key("run", 2)))
    with pytest.raises(ConflictError) as caught:
        recorder.seal()
    sibling = caught.value.sibling
    assert sibling is not None
    assert sibling.startswith("run.")
    check(archive.open(sibling), first + mine)
    check(archive.open("run", 2), first)
    assert not list(state.rglob("*.rpj"))


def test_two_recorders_of_one_name_find_out_at_once(state: Path) -> None:
    archive = Archive("", storage=MemoryStorage())
    recorder = archive.recorder("run", flush_interval=None)
    for if_exists in ("error", "append", "replace"):
        with pytest.raises(RecordingExistsError, match="is being recorded"):
            archive.recorder("run", if_exists=if_exists)  # type: ignore[arg-type]
    recorder.append(kind="t", identity=1)
    recorder.seal()
    assert len(archive.open("run")) == 1


def test_of_many_that_claim_at_once_one_wins(state: Path) -> None:
    storage = MemoryStorage()
    results: list[Any] = []
    barrier = threading.Barrier(8)

    def claim() -> None:
        barrier.wait()
        try:
            results.append(Archive("", storage=storage).recorder("run", flush_interval=None))
        except (ConflictError, RecordingExistsError) as error:
            results.append(error)

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [result for result in results if not isinstance(result, Exception)]
    assert len(winners) == 1
    winners[0].seal()


def test_a_dead_recorders_claim_is_taken_over_and_its_records_kept(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    old, new = list(calls(7)), list(calls(5, seed=1))
    for call in old:
        recorder.append(**call)
    recorder.close()
    with pytest.raises(RecordingExistsError, match="left records"):
        archive.recorder("run")
    with archive.recorder("run", if_exists="append", flush_interval=None) as recorder:
        for call in new:
            recorder.append(**call)
    check(archive.open("run"), old + new)
    assert [m.storage.cause for m in archive.revisions("run")] == ["claim", "recover", "claim", "append"]


def test_recover_leaves_the_living_alone(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1)
    assert list(recover(archive)) == []
    assert recorder.append(kind="t", identity=2) == 1
    recorder.seal()


def test_a_damaged_journal_gives_what_is_whole(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    expected = list(calls(20))
    for call in expected:
        recorder.append(**call)
    recorder.close()
    [path] = (tmp_path / "journal").glob("*.rpj")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + b"\xff" * 5)
    [result] = recover(archive, keep_journals=True)
    assert (result.records, result.error) == (19, None)
    check(archive.open("run"), expected[:19])
    # Damage with more behind it is no death: what is whole is published, and the journal stays for a closer look.
    archive.delete("run")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(damaged)
    [result] = recover(archive)
    assert result.error is not None
    assert "damaged" in str(result.error)
    assert 0 < result.records < 19
    assert path.with_name(path.name + ".damaged").read_bytes() == damaged
    assert list(recover(archive)) == []
    path.write_bytes(b"RPKJRNL\nnothing")
    [result] = recover(archive)
    assert result.error is not None
    assert path.exists()


def test_a_fork_cannot_use_its_parents_recorder(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    recorder._pid -= 1
    with pytest.raises(RecorderClosedError, match="forked"):
        recorder.append(kind="t", identity=1)
    recorder._pid += 1
    recorder.seal()


def test_an_interrupted_append_stops_the_recorder_and_loses_nothing(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    for number in range(3):
        recorder.append(kind="t", identity=number, response=number)

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("replaypack.recorder.pack_key", interrupt)  # the record is in the journal by then
        with pytest.raises(KeyboardInterrupt):
            recorder.append(kind="t", identity=3, response=3)
    with pytest.raises(RecorderClosedError, match="KeyboardInterrupt"):
        recorder.append(kind="t", identity=4)
    recorder.close()
    [result] = recover(archive)
    assert (result.records, result.error) == (4, None)
    assert [r.response for r in archive.open("run").records()] == [0, 1, 2, 3]


def test_a_base_survives_recovery(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    items = [call for call in calls(60) if call["kind"] == "model"]
    with archive.recorder("first", flush_interval=None) as recorder:
        for call in items:
            recorder.append(**call)
    recorder = archive.recorder("second", base="first", flush_interval=None)
    for call in items:
        recorder.append(**call)
    recorder.close()
    [result] = recover(archive)
    assert result.records == len(items)
    check(archive.open("second"), items)
    first = {pack.digest for pack in archive.open("first").manifest.storage.packs}
    assert first & {pack.digest for pack in archive.open("second").manifest.storage.packs}
