"""The keyed store in an archive: what it does as every store, and what only it does."""

from __future__ import annotations

import copy
import itertools
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import replaypack
from replaypack import Archive, ReplayEntry, ReplayMissError, ReplayPersistenceError, ReplayStore
from replaypack.errors import RecordingExistsError, RecordingNotFoundError, UsageError
from replaypack.replay.keyed import ArchivedReplayStore
from replaypack.replay.keyed import archived as module

from .contract import SCENARIO, Make, StoreContract, entry, key, register, trace


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive", {"replaypack": {"fsync": False}})


class TestOpenedFromAnArchive(StoreContract):
    @pytest.fixture
    def make(self, archive: Archive) -> Make:
        numbers = itertools.count()

        def make(pairs):  # type: ignore[no-untyped-def]
            name = f"store-{next(numbers)}"
            with ArchivedReplayStore(archive=archive, name=name, mode="record") as store:
                register(store, pairs)
            return ReplayStore.open(f"{archive.url}#{name}")

        return make


class TestWhileRecording(StoreContract):
    """Entries that are not published yet, with those that are."""

    @pytest.fixture(params=[1, 2, 7, 4096])
    def make(self, archive: Archive, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
        monkeypatch.setattr(module, "_FRESH", request.param)
        stores = []

        def make(pairs):  # type: ignore[no-untyped-def]
            name = f"store-{len(stores)}"
            stores.append(ArchivedReplayStore(archive=archive, name=name, mode="record", flush_interval=None))
            return register(stores[-1], pairs)

        yield make
        for store in stores:
            store.close()


def test_save_to_keeps_the_policy_and_the_entries(archive: Archive) -> None:
    store = ReplayStore(miss_policy="strict", entries=[(key("q"), entry("x")), (key(**SCENARIO), entry("y"))])
    manifest = store.save_to(archive, "runs/1", metadata={"suite": "smoke"})
    assert manifest.content.counts == {"trace": 2}
    opened = ReplayStore.open(f"{archive.url}#runs/1@2")
    assert isinstance(opened, ReplayStore)
    assert opened.miss_policy == "strict"
    assert opened.entries == store.entries
    assert opened.recording.metadata["suite"] == "smoke"
    with pytest.raises(ReplayMissError):
        opened.lookup(question_id="nope")
    assert ReplayStore.open(f"{archive.url}#runs/1", miss_policy="fall_through").lookup(question_id="nope") is None
    with pytest.raises(RecordingExistsError):
        store.save_to(archive, "runs/1")
    assert not list(archive.verify("runs/1"))


def test_append_continues_a_store_and_its_policy(archive: Archive, caplog: pytest.LogCaptureFixture) -> None:
    ReplayStore(miss_policy="strict", entries=[(key("a"), entry("1")), (key("b"), entry("2"))]).save_to(archive, "r")
    with ArchivedReplayStore(archive=archive, name="r", mode="append") as store:
        assert store.miss_policy == "strict"
        store.register(key("c"), entry("3"))
        assert not caplog.records
        store.register(key("a"), entry("4"))
        assert "overwritten" in caplog.text
        assert [trace(store.lookup(question_id=q)) for q in "abc"] == ["4", "2", "3"]
    opened = ReplayStore.open(f"{archive.url}#r")
    assert opened.miss_policy == "strict"
    assert [what.raw_trace for _, what in opened.entries] == ["2", "3", "4"]
    # The overwritten entry is in the recording still.
    assert len(opened.recording) == 4


def test_sealing_goes_on_reading_and_writes_no_more(archive: Archive) -> None:
    store = ArchivedReplayStore(archive=archive, name="r", mode="record")
    store.register(key(), entry("x"))
    assert store.seal().content.state == "sealed"
    assert store.seal().content.records == 1
    assert trace(store.lookup(question_id="q")) == "x"
    with pytest.raises(UsageError, match="open for reading"):
        store.register(key(), entry("y"))
    store.close()


def test_a_block_that_fails_leaves_an_incomplete_recording(archive: Archive) -> None:
    def fail() -> None:
        with ArchivedReplayStore(archive=archive, name="r", mode="record") as store:
            store.register(key(), entry("x"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    opened = ReplayStore.open(f"{archive.url}#r")
    assert opened.recording.state == "incomplete"
    assert trace(opened.lookup(question_id="q")) == "x"


def test_what_was_registered_survives_the_death_of_the_process(archive: Archive) -> None:
    code = (
        "import os, sys; from replaypack import *; from replaypack.replay.keyed import *\n"
        "store = ArchivedReplayStore(archive=Archive(sys.argv[1]), name='r', mode='record', flush_interval=None)\n"
        "store.register(ReplayKey(question_id='q'), ReplayEntry(raw_trace='kept'))\n"
        "os._exit(9)"
    )
    source = str(Path(replaypack.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", code, archive.url], env={"PYTHONPATH": source}, timeout=60)
    assert done.returncode == 9
    with ArchivedReplayStore(archive=archive, name="r", mode="append") as store:
        assert trace(store.lookup(question_id="q")) == "kept"


def test_entries_read_back_as_plain_data_before_and_after_publication(archive: Archive) -> None:
    given = ReplayEntry(
        raw_trace="x", agent_metrics={"pair": (1, 2), "big": 1 << 80, "none": None, "inf": float("inf")}
    )
    with ArchivedReplayStore(archive=archive, name="r", mode="record") as store:
        store.register(key(), given)
        before = store.lookup(question_id="q")
        assert given.agent_metrics is not None
        given.agent_metrics["pair"] = None
    after = ReplayStore.open(f"{archive.url}#r").lookup(question_id="q")
    assert before == after
    assert after is not None
    assert after.agent_metrics == {"pair": [1, 2], "big": 1 << 80, "none": None, "inf": float("inf")}


def test_hosts_may_copy_their_configuration_deeply(archive: Archive) -> None:
    ReplayStore(entries=[(key(), entry("x"))]).save_to(archive, "r")
    store = ReplayStore.open(f"{archive.url}#r")
    config = copy.deepcopy({"replay_store": store})
    assert config["replay_store"] is store
    assert copy.copy(store) is store


def test_a_store_goes_to_other_processes(archive: Archive) -> None:
    ReplayStore(entries=[(key(), entry("x"))]).save_to(archive, "r")
    store = ReplayStore.open(f"{archive.url}#r", miss_policy="strict")
    other = pickle.loads(pickle.dumps(store))
    assert (other.miss_policy, trace(other.lookup(question_id="q"))) == ("strict", "x")
    with pytest.raises(UsageError, match="another process"):
        pickle.dumps(ArchivedReplayStore(archive=archive, name="r"))


def test_other_records_of_the_recording_are_no_entries(archive: Archive) -> None:
    with archive.recorder("mixed") as recorder:
        for number in range(3):
            recorder.append(kind="tool", identity="t", response=number)
            module._append(recorder, key(f"q{number % 2}"), entry(str(number)))
    store = ReplayStore.open(f"{archive.url}#mixed")
    assert [what.raw_trace for _, what in store.entries] == ["1", "2"]
    assert store.entries[1] == (key("q0"), entry("2"))
    assert len(store.entries) == 2


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"identity": {"question_id": "q"}, "response": {"raw_trace": "x"}}, "no entry of a keyed store"),
        ({"identity": "other", "response": {"raw_trace": "x"}, "attributes": {"question_id": "q"}}, "another key"),
        (
            {"identity": {"question_id": "q"}, "response": {"bogus": 1}, "attributes": {"question_id": "q"}},
            "unknown field",
        ),
    ],
)
def test_a_record_that_is_no_entry_is_refused(archive: Archive, fields: dict, says: str) -> None:  # type: ignore[type-arg]
    with archive.recorder("odd") as recorder:
        recorder.append(kind="trace", **fields)
    store = ReplayStore.open(f"{archive.url}#odd")
    with pytest.raises(ReplayPersistenceError, match=says):
        list(store.entries)
    if fields["identity"] != "other":
        with pytest.raises(ReplayPersistenceError, match=f"record 0 of .*{says}"):
            store.lookup(question_id="q")


def test_a_policy_that_does_not_exist_is_refused(archive: Archive) -> None:
    with archive.recorder("odd", metadata={"replay_store": {"miss_policy": "loud"}}):
        pass
    with pytest.raises(ReplayPersistenceError, match="miss_policy"):
        ReplayStore.open(f"{archive.url}#odd")


def test_arguments_that_contradict_each_other(archive: Archive) -> None:
    ReplayStore().save_to(archive, "r")
    with pytest.raises(UsageError, match="locator, or an archive"):
        ArchivedReplayStore()
    with pytest.raises(UsageError, match="locator, or an archive"):
        ArchivedReplayStore(archive=archive)
    with pytest.raises(UsageError, match="mode is"):
        ArchivedReplayStore(f"{archive.url}#r", mode="write")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="can only be read"):
        ArchivedReplayStore(f"{archive.url}#r@1", mode="append")
    with pytest.raises(RecordingNotFoundError):
        ReplayStore.open(f"{archive.url}#nope")
    with pytest.raises(RecordingExistsError):
        ArchivedReplayStore(f"{archive.url}#r", mode="record")


def test_threads_register_and_look_up_at_once(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FRESH", 16)
    store = ArchivedReplayStore(archive=archive, name="r", mode="record", flush_interval=None)
    wrong: list[object] = []

    def run(thread: int) -> None:
        try:
            for number in range(40):
                store.register(key(f"q{thread}-{number}"), entry(f"{thread}-{number}"))
                for back in (number, number // 2, 0):
                    if trace(store.lookup(question_id=f"q{thread}-{back}")) != f"{thread}-{back}":
                        wrong.append((thread, number, back))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert not wrong
    assert len(ReplayStore.open(f"{archive.url}#r").entries) == 160


def test_a_recording_of_something_else_is_not_a_store_without_entries(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "other")
    with archive.session("session") as session:
        session.tool("t", {}, lambda: 1)
    ReplayStore().save_to(archive, "empty")
    for make in (
        lambda name: ArchivedReplayStore(f"{archive.url}#{name}"),
        lambda name: ArchivedReplayStore.of(archive.open(name)),
    ):
        with pytest.raises(UsageError, match="no entries of a replay store, but records of kind tool"):
            make("session")
        assert make("empty").lookup(question_id="q") is None
