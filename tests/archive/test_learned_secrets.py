"""A secret that is learned while recording: gone from the journal and from what is not published, listed elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive, _learn
from replaypack.errors import RecorderClosedError, ReplaypackWarning, UsageError
from replaypack.recover import recover
from replaypack.storage import MemoryStorage
from tests.archive.support import calls, check
from tests.policies.canaries import leaks_in

ROOT = Path(__file__).parents[2]
SECRET = "canary-4f1c9a7be2"
QUIET = {"flush_interval": None}


def holding(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file() and list(leaks_in(path.read_bytes()))]


def with_secret(number: int) -> dict[str, Any]:
    return {"kind": "tool", "name": "t", "identity": {"n": number, "q": f"a {SECRET}"}, "response": "x " + SECRET * 3}


def without(call: dict[str, Any]) -> dict[str, Any]:
    number = call["identity"]["n"]
    return {
        **call,
        "identity": {"n": number, "q": "a __redacted__"},
        "response": "x " + "__redacted__" * 3,
        "flags": ["redacted"],
    }


@pytest.mark.parametrize("flush_at", [None, 0, 30])
@pytest.mark.once
def test_what_is_not_published_is_written_anew(tmp_path: Path, flush_at: int | None) -> None:
    archive = Archive(tmp_path / "a", {"replaypack": {"fsync": False}})
    plain = list(calls(60, large=True))
    expected: list[dict[str, Any]] = []
    recorder = archive.recorder("r", redact=None, **QUIET)  # type: ignore[arg-type]
    with recorder:
        for number, call in enumerate(plain):
            recorder.append(**call)
            expected.append(call)
            if number == flush_at:
                recorder.flush()
        for number in range(5):
            recorder.append(**with_secret(number))
            expected.append(without(with_secret(number)))
        assert holding(tmp_path)
        before = len(expected)
        learned = recorder.learn_secret(SECRET)
        assert learned == (before - (0 if flush_at is None else flush_at + 1), [], False, [])
        assert not holding(tmp_path)
        recorder.append(**with_secret(9))
        expected.append(without(with_secret(9)))
        recorder.flush()
        assert not holding(tmp_path)
        for call in plain[:20]:
            recorder.append(**call)
            expected.append(call)
    assert not holding(tmp_path)
    check(archive.open("r"), expected)
    assert not list(archive.verify("r"))


def test_what_is_published_is_listed_loudly(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with archive.recorder("r", metadata={"note": SECRET}, **QUIET) as recorder:  # type: ignore[arg-type]
        recorder.append(kind="tool", identity=1, response=2)
        recorder.append(**with_secret(1))
        recorder.flush()
        recorder.append(**with_secret(2))
        with pytest.warns(ReplaypackWarning, match="published already, in records 1, in the metadata of 'r'"):
            learned = recorder.learn_secret(SECRET)
        assert (learned.rewritten, learned.published, learned.metadata) == (1, [1], True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert recorder.learn_secret(SECRET).published == []
    recording = archive.open("r")
    assert SECRET in recording.record(1).response
    assert SECRET not in recording.record(2).response
    assert recording.metadata == {"note": "__redacted__"}


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_recordings_that_continue_others(tmp_path: Path, mode: Any) -> None:
    archive = Archive(tmp_path / "a", {"replaypack": {"fsync": False}})
    first, more = list(calls(40, seed=1)), list(calls(40, seed=1))[20:]
    for name in ("r", "base"):
        with archive.recorder(name) as recorder:
            for call in first:
                recorder.append(**call)
    with archive.recorder("r", if_exists=mode, base="base", **QUIET) as recorder:  # type: ignore[arg-type]
        for call in more:
            recorder.append(**call)
        recorder.append(**with_secret(1))
        assert recorder.learn_secret(SECRET).published == []
        assert not holding(tmp_path)
    expected = [*(first if mode == "append" else []), *more, without(with_secret(1))]
    check(archive.open("r"), expected)
    assert not list(archive.verify("r"))


def test_on_an_object_store_what_was_uploaded_and_not_published_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("replaypack._write.worker.PACK_TARGET", 20_000)
    storage = MemoryStorage()
    archive = Archive("memory://", storage=storage)
    noise = os.urandom(60_000)
    with archive.recorder("r", redact=None, **QUIET) as recorder:  # type: ignore[arg-type]
        for number in range(40):
            part = noise[number * 1500 : number * 1500 + 1500].hex()
            recorder.append(kind="tool", identity={"n": number, "q": part}, response=f"{SECRET} {part * 2}")
        deadline = threading.Event()
        for _ in range(200):
            if any(info.key.startswith("packs/") for info in storage.list()):
                break
            deadline.wait(0.05)
        recorder.append(kind="tool", identity="large", response=SECRET.encode() * 300_000)
        learned = recorder.learn_secret(SECRET)
        assert learned.rewritten == 41
        for info in storage.list():
            assert info.key in learned.packs or not list(leaks_in(storage.get(info.key)))
    assert len(archive.open("r")) == 41
    assert not list(archive.verify("r"))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_process_that_dies_behind_it_is_recovered_without_the_secret(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, signal, sys
        from replaypack import Archive
        from replaypack._write.journal import JournalFile
        from tests.archive.support import calls
        from tests.archive.test_learned_secrets import SECRET, with_secret
        moment = sys.argv[2]
        def die(*_a, **_k): os.kill(os.getpid(), signal.SIGKILL)
        recorder = Archive(sys.argv[1]).recorder("r", redact=None, flush_interval=None)
        for number, call in enumerate(calls(30)):
            recorder.append(**call)
            if number == 10:
                recorder.flush()
        recorder.append(**with_secret(1))
        if moment == "before":
            JournalFile.name = die
        elif moment == "between":
            close = JournalFile.close
            JournalFile.close = lambda self, *, delete: die() if delete else close(self, delete=delete)
        recorder.learn_secret(SECRET)
        recorder.append(**with_secret(2))
        die()
        """
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    for moment in ("before", "between", "after"):
        url = tmp_path / moment
        command = [sys.executable, "-c", script, str(url), moment]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        archive = Archive(url)
        assert [result.error for result in recover(archive)] == [None]
        expected = list(calls(30))
        if moment == "before":  # nothing had been written anew: as if it had not been learned
            expected.append(with_secret(1))
        else:
            expected.append(without(with_secret(1)))
            assert not holding(url)
        if moment == "after":
            expected.append(without(with_secret(2)))
        check(archive.open("r"), expected)
        assert not list((url / "journal").iterdir())


def test_appends_and_flushes_of_other_threads_go_on(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a", {"replaypack": {"fsync": False}})
    problems: list[BaseException] = []
    with archive.recorder("r", flush_interval=0.05) as recorder:

        def work(number: int) -> None:
            try:
                for step in range(60):
                    recorder.append(kind="tool", identity={"n": number, "s": step}, response=f"secret-{step // 20}-x")
                    if step % 20 == 19:
                        recorder.flush()
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReplaypackWarning)
            for number in range(3):
                learned = recorder.learn_secret(f"secret-{number}-x")
                listed = set(learned.published)
                seen = {r.seq for r in archive.open("r").records() if f"secret-{number}-x" in r.response}
                assert seen <= listed
        for thread in threads:
            thread.join()
    assert not problems
    assert len(archive.open("r")) == 180
    assert not list(archive.verify("r"))


def test_a_flush_waits_while_a_secret_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked the thread that is ended for it, and no other has taken over yet."""
    asked, ended, moved = threading.Event(), threading.Event(), threading.Event()
    problems: list[BaseException] = []
    with Archive(tmp_path / "a").recorder("r", redact=None, **QUIET) as recorder:  # type: ignore[arg-type]
        recorder.append(kind="tool", identity=1, response=2)
        drain, lock, read_back = recorder._worker.drain, recorder._lock, _learn.ReadBack

        def late() -> None:
            asked.set()
            assert ended.wait(60)
            drain()

        class Lock:
            def __enter__(self) -> None:
                if ended.is_set() and threading.current_thread() is thread:
                    moved.set()
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()

        def read(*arguments: Any) -> Any:
            ended.set()
            assert moved.wait(60)
            return read_back(*arguments)

        def flush() -> None:
            try:
                recorder.flush()
            except BaseException as error:
                problems.append(error)
            moved.set()

        thread = threading.Thread(target=flush)
        monkeypatch.setattr(recorder._worker, "drain", late)
        monkeypatch.setattr(recorder, "_lock", Lock())
        monkeypatch.setattr(_learn, "ReadBack", read)
        thread.start()
        assert asked.wait(60)
        recorder.learn_secret(SECRET)
        thread.join(60)
        assert not problems
    assert len(Archive(tmp_path / "a").open("r")) == 1


def test_a_journal_that_cannot_be_read_back_stops_the_recorder(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    recorder = archive.recorder("r", **QUIET)  # type: ignore[arg-type]
    recorder.append(**with_secret(1))
    with pytest.raises(UsageError):
        recorder.learn_secret("abc")
    recorder.append(**with_secret(2))
    [journal] = (tmp_path / "a" / "journal").glob("*.rpj")
    journal.write_bytes(b"damaged")
    with pytest.raises(Exception, match="journal"):
        recorder.learn_secret(SECRET)
    with pytest.raises(RecorderClosedError, match="could not be removed"):
        recorder.append(**with_secret(3))
    recorder.close()
