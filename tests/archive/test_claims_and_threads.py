"""Claims that are lost, recorders that meet, background threads that fail: what `test_crash` does not kill."""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import threading
import time
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from replaypack import Archive, Recorder
from replaypack._write import journal as journal_module
from replaypack._write import worker as worker_module
from replaypack.errors import (
    ConflictError,
    JournalError,
    PublishError,
    RecordingExistsError,
    ReplaypackError,
    ReplaypackWarning,
    StorageUnavailableError,
)
from replaypack.format.manifest import encode_manifest, parse_manifest
from replaypack.format.names import latest_key, open_key, revision_key
from replaypack.recover import recover
from replaypack.storage import MemoryStorage
from tests.archive.support import calls, check
from tests.archive.test_crash import Failing

DOWN = StorageUnavailableError("the network is gone", operation="put", url="memory://")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def elsewhere(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this is another machine, whose state directory has none of the journals."""
    monkeypatch.setenv("XDG_STATE_HOME", f"{state}-elsewhere")


def backdate(storage: MemoryStorage, key: str, hours: float) -> None:
    """Let a manifest be older than it is."""
    manifest = parse_manifest(storage.get(key))
    created = (datetime.now(UTC) - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
    storage.put(key, encode_manifest(manifest.content, msgspec.structs.replace(manifest.storage, created=created)).raw)


def fill(archive: Archive, name: str, items: list[dict[str, Any]]) -> None:
    with archive.recorder(name, flush_interval=None) as recorder:
        for item in items:
            recorder.append(**item)


# Claims


def test_a_recorder_that_lost_its_claim_leaves_latest_to_the_winner(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage()
    archive = Archive("", storage=storage)
    loser = archive.recorder("run", flush_interval=None)
    loser.append(kind="t", identity="loser")
    loser.flush()
    for key in (revision_key("run", 1), open_key("run", 1), latest_key("run")):
        backdate(storage, key, 25)
    with monkeypatch.context() as patch:
        elsewhere(state, patch)
        with archive.recorder("run", if_exists="replace", flush_interval=None) as winner:
            winner.append(kind="t", identity="winner")
        sealed = winner.manifest
    assert sealed is not None
    loser.append(kind="t", identity="more")
    with pytest.warns(ReplaypackWarning, match="took over"):
        loser.flush()
    assert archive.open("run").manifest.digest == sealed.digest
    with pytest.raises(ConflictError) as caught:
        loser.seal()
    assert archive.open("run").manifest.digest == archive.open("run", fresh=True).manifest.digest == sealed.digest
    assert len(archive.open(caught.value.sibling or "")) == 2


def test_a_replacing_recorder_that_publishes_keeps_its_claim(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim is old, what it published is not; readers see neither."""
    storage = MemoryStorage()
    archive = Archive("", storage=storage)
    fill(archive, "run", list(calls(3)))
    recorder = archive.recorder("run", if_exists="replace", flush_interval=None)
    backdate(storage, revision_key("run", 3), 25)
    backdate(storage, latest_key("run"), 25)
    recorder.append(kind="t", identity=1)
    recorder.flush()
    with monkeypatch.context() as patch:
        elsewhere(state, patch)
        with pytest.raises(RecordingExistsError, match="is being recorded"):
            archive.recorder("run", if_exists="replace")
        backdate(storage, open_key("run", 3), 25)
        archive.recorder("run", if_exists="replace").close()


def test_a_claim_whose_latest_cannot_be_written_is_a_warning(state: Path) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    storage.fails["put recordings/run/latest.json"] = DOWN
    with pytest.warns(ReplaypackWarning, match=r"latest\.json"):
        recorder = archive.recorder("run", flush_interval=None)
    storage.fails.clear()
    recorder.append(kind="t", identity=1)
    recorder.seal()
    assert len(archive.open("run")) == 1


def test_a_journal_that_cannot_be_created_leaves_the_name_free(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "journal").write_text("in the way")
    with pytest.raises(JournalError):
        archive.recorder("run")
    (tmp_path / "a" / "journal").unlink()
    fill(archive, "run", list(calls(2)))
    assert len(archive.open("run")) == 2


def test_a_claim_that_fails_leaves_no_journal(state: Path) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    storage.fails["put_new recordings/"] = DOWN
    threads = threading.active_count()
    with pytest.raises(StorageUnavailableError):
        archive.recorder("run")
    assert not list(state.rglob("*.rpj"))
    assert threading.active_count() == threads


# Recovery


def test_two_recoveries_at_once_commit_once(state: Path) -> None:
    """The other one commits while this one is at work: its revision is ours as well."""
    storage = Failing()
    archive = Archive("", storage=storage)
    expected = list(calls(20))
    recorder = archive.recorder("run", flush_interval=None)
    for call in expected:
        recorder.append(**call)
    recorder.close()
    inside = False

    def hook(operation: str, key: str) -> None:
        nonlocal inside
        if operation == "put_new" and key == revision_key("run", 2) and not inside:
            inside = True
            others.extend(recover(archive))

    others: list[Any] = []
    storage.hook = hook
    mine = list(recover(archive))
    assert inside
    assert {result.error for result in mine + others} == {None}
    assert list(archive.recordings()) == ["run"]
    check(archive.open("run"), expected)
    assert not list(state.rglob("*.rpj"))


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_recorder_that_died_before_its_first_record_changes_nothing(tmp_path: Path, mode: Any) -> None:
    archive = Archive(tmp_path)
    expected = list(calls(5))
    fill(archive, "run", expected)
    digest = archive.open("run").content_digest
    archive.recorder("run", if_exists=mode, flush_interval=None).close()
    [result] = recover(archive)
    assert (result.name, result.records, result.from_journal, result.error) == ("run", 5, 0, None)
    check(archive.open("run"), expected)
    assert archive.open("run").content_digest == digest
    assert archive.open("run").state == "sealed"
    assert list(recover(archive)) == []
    assert list(archive.verify()) == []
    with archive.recorder("run", if_exists="append", flush_interval=None) as recorder:
        recorder.append(kind="t", identity=1)
    assert len(archive.open("run")) == 6


def test_recovery_does_not_take_the_place_of_the_next_recorder(tmp_path: Path) -> None:
    """The recording of a dead recorder was deleted and somebody else records under its name."""
    archive = Archive(tmp_path)
    dead = archive.recorder("run", flush_interval=None)
    dead.append(kind="t", identity="dead")
    dead.close()
    [journal] = (tmp_path / "journal").glob("*.rpj")
    away = tmp_path / "away.rpj"
    journal.rename(away)
    archive.delete("run")
    living = archive.recorder("run", flush_interval=None)
    living.append(kind="t", identity="living")
    away.rename(journal)
    [result] = recover(archive)
    assert result.error is None
    assert result.name.startswith("run.")
    assert archive.open(result.name).lookup("t", "dead") is not None
    living.seal()
    assert archive.open("run").lookup("t", "living") is not None


def test_a_flush_and_a_seal_that_fail_leave_journals_that_can_be_recovered_at_once(state: Path) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    expected = list(calls(30))
    recorder = archive.recorder("run", flush_interval=None)
    storage.fails["put_new packs/"] = DOWN
    for number, call in enumerate(expected):
        recorder.append(**call)
        if number in (10, 20):
            with pytest.warns(ReplaypackWarning), pytest.raises(PublishError):
                recorder.flush()
    with pytest.raises(PublishError):
        recorder.seal()
    storage.fails.clear()
    [result] = recover(archive)
    assert (result.records, result.error) == (30, None)
    check(archive.open("run"), expected)
    assert not list(state.rglob("*.rpj"))


def after_a_failed_checkpoint() -> tuple[Failing, Archive, Recorder]:
    """A recorder with two records: the packs of the first are up, the manifest is not."""
    storage = Failing()
    archive = Archive("", storage=storage)
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1)
    storage.fails["put recordings/run/00000001.open.json"] = DOWN
    with pytest.warns(ReplaypackWarning), pytest.raises(PublishError):
        recorder.flush()
    recorder.append(kind="t", identity=2)
    return storage, archive, recorder


def test_journals_of_a_checkpoint_that_failed_are_released(state: Path) -> None:
    """The packs are up, the manifest is not: those journals wait elsewhere than the others."""
    storage, archive, recorder = after_a_failed_checkpoint()
    recorder.close()
    storage.fails.clear()
    [result] = recover(archive)
    assert (result.records, result.error) == (2, None)


def test_a_conflict_leaves_no_journal(state: Path) -> None:
    storage, _, recorder = after_a_failed_checkpoint()
    storage.put_new(revision_key("run", 2), storage.get(revision_key("run", 1)))
    with pytest.raises(ConflictError):
        recorder.seal()
    assert not list(state.rglob("*.rpj"))


def test_a_recorder_that_died_before_it_had_its_claim_left_nothing(state: Path) -> None:
    class Died(BaseException):
        pass

    def die(operation: str, key: str) -> None:
        if key.endswith("00000001.json"):
            raise Died

    storage = Failing()
    archive = Archive("", storage=storage)
    storage.hook = die
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "_abandon", lambda recorder, **_: recorder.close())
        with pytest.raises(Died):
            archive.recorder("run")
    storage.hook = None
    assert len(list(state.rglob("*.rpj"))) == 1
    [result] = recover(archive)
    assert (result.records, result.error) == (0, None)
    assert not list(state.rglob("*.rpj"))
    assert list(archive.recordings()) == []
    fill(archive, "run", list(calls(2)))


def test_a_recorder_does_not_pass_over_a_recovery_that_goes_on(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    dead = archive.recorder("run", flush_interval=None)
    dead.append(kind="t", identity=1)
    dead.close()
    [leftover] = archive.leftovers()
    with leftover.held() as held, pytest.MonkeyPatch.context() as patch:
        assert held
        patch.setattr(Archive, "leftovers", lambda self: [leftover])  # it was found before the lock was taken
        with pytest.raises(RecordingExistsError, match="being recovered"):
            archive.recorder("run", if_exists="append")


def test_a_recorder_of_another_user_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    """Its journal is its user's alone: nobody else can see whether it is locked."""
    archive = Archive(tmp_path)
    fill(archive, "run", list(calls(2)))
    recorder = archive.recorder("run", if_exists="append", flush_interval=None)
    recorder.append(kind="t", identity=1)
    real_open, real_access = os.open, os.access

    def is_theirs(path: Any) -> bool:
        return str(path).endswith(".rpj")

    def refused(path: Any, *rest: Any, **options: Any) -> int:
        if is_theirs(path):
            raise PermissionError(errno.EACCES, "not permitted")
        return real_open(path, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refused)
        patch.setattr(os, "access", lambda path, mode: not is_theirs(path) and real_access(path, mode))
        for if_exists in ("append", "replace"):
            with pytest.raises(RecordingExistsError, match="is being recorded"):
                archive.recorder("run", if_exists=if_exists)
    recorder.seal()
    assert len(archive.open("run")) == 3


def test_a_block_whose_seal_fails_releases_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path)

    def broken(self: Any) -> None:
        raise JournalError("input/output error")

    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1)
    with monkeypatch.context() as patch:
        patch.setattr(journal_module.JournalFile, "sync", broken)
        with pytest.raises(JournalError), recorder:
            pass
    [result] = recover(archive)
    assert (result.records, result.error) == (1, None)


def test_a_timer_that_cannot_rotate_the_journal_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path)
    expected = list(calls(12))
    recorder = archive.recorder("run", flush_interval=3600.0)
    for call in expected[:5]:
        recorder.append(**call)

    def full(path: Path) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_create_locked", full)
        with pytest.warns(ReplaypackWarning, match="No space left"):
            recorder._worker._flush_by_time()
        for call in expected[5:9]:
            recorder.append(**call)
    recorder.flush()
    check(archive.open("run"), expected[:9])
    for call in expected[9:]:
        recorder.append(**call)
    recorder.close()
    [result] = recover(archive)
    assert (result.records, result.from_journal, result.error) == (12, 3, None)
    check(archive.open("run"), expected)


# Journals


def test_looking_at_a_dead_journal_does_not_make_it_look_alive(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1)
    recorder.close()
    [path] = (tmp_path / "journal").glob("*.rpj")
    real = fcntl.flock
    seen: list[bool | None] = []

    def flock(fd: int, how: int) -> None:
        real(fd, how)
        if not seen:  # another process looks at the same moment
            seen.append(None)
            seen[0] = journal_module._locked(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        assert not journal_module._locked(path)
    assert seen == [False]


def test_tidying_up_does_not_take_a_journal_that_is_being_made(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    real = os.open
    tidied = 0

    def opened(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
        nonlocal tidied
        fd = real(path, flags, *arguments, **more)
        if str(path).endswith(".new") and flags & os.O_CREAT and not tidied:
            tidied += 1
            journal_module.remove_unnamed(tmp_path / "journal")
        return fd

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opened)
        fill(archive, "run", list(calls(2)))
    assert tidied
    assert len(archive.open("run")) == 2


def test_a_filesystem_without_locks_is_a_journal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path)

    def no_locks(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(JournalError, match="No locks"):
        archive.recorder("run")


# The background thread


def test_an_error_that_is_not_ours_does_not_go_unnoticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The background thread runs out of memory: `append` says so, and nothing hangs or is lost."""
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)

    def no_memory(self: Any, compressor: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("replaypack._write.segment.SegmentBuilder.compress", no_memory)
        count = 0
        with pytest.raises(PublishError):  # noqa: PT012
            for count in range(2000):
                recorder.append(kind="t", identity=count, response=os.urandom(3000))
                time.sleep(0.0005)
        with pytest.raises(ReplaypackError):
            recorder.flush()
    recorder.close()
    [result] = recover(archive)
    assert (result.records, result.error) == (count, None)


def test_warnings_that_are_errors_do_not_end_the_background_thread(state: Path) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1)
    storage.fails["put_new packs/"] = DOWN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PublishError, match="the network is gone"):
            recorder.flush()
    storage.fails.clear()
    recorder.flush()
    assert recorder.published == 1
    recorder.seal()


def test_an_outage_that_is_over_does_not_stop_a_fast_recorder(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._write.worker.MAX_WAITING", 1000)
    storage = Failing()
    archive = Archive("", storage=storage)
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1)
    storage.fails["put_new packs/"] = DOWN
    with pytest.warns(ReplaypackWarning), pytest.raises(PublishError):
        recorder.flush()
    storage.fails.clear()
    recorder.flush()
    for number in range(300):
        recorder.append(kind="t", identity=number, response=os.urandom(4000))
    recorder.seal()
    assert len(archive.open("run")) == 301


def test_what_could_not_be_published_is_tried_again_in_the_background(state: Path) -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage.fails["put_new packs/"] = DOWN
        recorder = archive.recorder("run", flush_interval=0.02)
        recorder.append(kind="t", identity=1)
        time.sleep(0.1)
        storage.fails.clear()
        deadline = time.monotonic() + 10
        while recorder.published == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert recorder.published == 1
        recorder.seal()


def test_memory_is_bounded_while_the_store_fails_between_flushes(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._write.worker.MAX_STUCK", 200_000)
    monkeypatch.setattr("replaypack._write.worker.PACK_TARGET", 100_000)
    monkeypatch.setattr("replaypack.recorder.RECORD_FRAME", 10_000)
    storage = Failing()
    archive = Archive("", storage=storage)
    recorder = archive.recorder("run", flush_interval=None)
    storage.fails["put_new packs/"] = DOWN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(PublishError):  # noqa: PT012
            for number in range(3000):
                recorder.append(kind="t", identity=number, response=os.urandom(3000))
                time.sleep(0.0002)
        storage.fails.clear()
        recorder.flush()
    recorder.append(kind="t", identity="more")
    recorder.seal()


def test_ctrl_c_during_a_seal_leaves_nothing_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="t", identity=1)
    real = recorder._worker.seal

    def seal(*arguments: Any) -> Any:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder._worker, "seal", seal)
    with pytest.raises(KeyboardInterrupt):
        recorder.seal()
    assert len(archive.open("run")) == 1
    assert not list((tmp_path / "journal").iterdir())


def test_a_flush_that_publishes_nothing_keeps_its_journal_on_the_disk(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a timer could not publish is synced: the journal is all there is of it."""
    storage = Failing()
    archive = Archive("", storage=storage)
    storage.fails["put_new packs/"] = DOWN
    synced: list[str] = []
    real = journal_module.JournalFile.sync

    def sync(self: journal_module.JournalFile) -> None:
        synced.append(self.path.name)
        real(self)

    monkeypatch.setattr(journal_module.JournalFile, "sync", sync)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder = archive.recorder("run", flush_interval=0.02)
        recorder.append(kind="t", identity=1)
        name = recorder._journal.path.name
        deadline = time.monotonic() + 10
        while name not in synced and time.monotonic() < deadline:
            time.sleep(0.01)
        assert name in synced
        storage.fails.clear()
        recorder.seal()


# Reading


def test_times_filter_to_the_nanosecond(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [datetime(2026, 3, 1, 12, 0, 0, 123450 + n, tzinfo=UTC) for n in range(20)]
    starts = [(moment - epoch) // timedelta(microseconds=1) * 1000 for moment in moments]
    with archive.recorder("run", flush_interval=None) as recorder:
        for start in starts:
            recorder.append(kind="t", identity=start, start=start)
    recording = archive.open("run")
    for number, moment in enumerate(moments):
        assert [r.seq for r in recording.records(since=moment)] == list(range(number, 20))
        assert [r.seq for r in recording.records(until=moment)] == list(range(number))


def test_following_a_pinned_revision_ends(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    recorder = archive.recorder("run", flush_interval=None)
    assert archive.open("run", 1).state == "open"
    assert list(archive.open("run", 1).records(follow=True, poll_interval=0.01)) == []
    recorder.seal()


def test_a_recording_that_was_replaced_is_not_mixed_with_what_replaced_it(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    dead = archive.recorder("run", flush_interval=None)
    dead.append(kind="t", identity="old", request="old" * 2000)
    dead.flush()
    recording = archive.open("run")
    record = recording.record(0)
    dead.close()
    with archive.recorder("run", if_exists="replace", flush_interval=None) as recorder:
        for number in range(3):
            recorder.append(kind="t", identity=number)
    with pytest.raises(ReplaypackError, match="replaced"):
        list(recording.records(follow=True, poll_interval=0.01))
    assert record.request == "old" * 2000
    assert len(recording) == 1


def test_readers_while_a_recording_grows(tmp_path: Path) -> None:
    """Iteration, lookups and `refresh` in several threads, on one `Recording`."""
    archive = Archive(tmp_path)
    expected = list(calls(120))
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(**expected[0])
    recorder.flush()
    recording = archive.open("run", cache_bytes=100_000)
    errors: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                count = len(recording)
                assert recording.record(count - 1).seq == count - 1
                seen = [(r.seq, r.request) for r in recording.records()]
                assert [seq for seq, _ in seen] == list(range(len(seen)))
                assert len(seen) >= count
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number, call in enumerate(expected[1:]):
        recorder.append(**call)
        if number % 5 == 0:
            recorder.flush()
            recording.refresh()
    recorder.seal()
    recording.refresh()
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    check(recording, expected)


def test_an_answer_that_comes_as_the_thread_ends_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Archive(tmp_path).recorder("r")
    recorder.append(kind="tool", identity=1, response=2)
    worker = recorder._worker

    class Reply(queue.Queue[Any]):
        waited = False

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if not self.waited:
                self.waited = True
                worker.join(60)
                raise queue.Empty  # as where nothing came for as long as it waits, and then all at once
            return super().get(block, timeout)

    monkeypatch.setattr(worker_module, "queue", SimpleNamespace(Queue=Reply, Empty=queue.Empty))
    assert recorder.seal().content.state == "sealed"
