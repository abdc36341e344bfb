"""Readers whose packs are collected under their hands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import replaypack
from replaypack import Archive, Recording
from replaypack._write.base import Seed
from replaypack._write.publish import Publisher, progress_of
from replaypack._write.stamps import new_id
from replaypack.audit import gc
from replaypack.errors import ObjectMissingError
from replaypack.recorder import Recorder

from .support import calls, check

COUNT = 90
EXPECTED = list(calls(COUNT))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "archive")
    with archive.recorder("r", flush_interval=None) as recorder:
        for number, call in enumerate(EXPECTED):
            recorder.append(**call)
            if number % 30 == 29:
                recorder.flush()
    return archive


def rewrite(archive: Archive, name: str = "r") -> None:
    """Another revision of the same content: in other packs, with its payloads at other offsets."""
    old = archive.open(name)
    manifest = old.manifest
    publisher = Publisher(
        archive.storage,
        name,
        writer=new_id(8),
        mode="replace",
        template=msgspec.structs.replace(manifest.content, state="open"),
        base=None,
        revision=manifest.revision,
        previous=manifest.digest,
    )
    recorder = Recorder(publisher, progress=progress_of(None), seed=Seed(5000, [], []), flush_interval=None)
    for record in old.records():
        recorder._append_anew(record)
    assert recorder.seal().content_digest == old.content_digest


def collect(archive: Archive) -> None:
    """All that the newest revision does not need is gone."""
    done = gc(archive, keep_last=1, grace=timedelta(), apply=True)
    assert done.removed["packs"].objects > 0


def rewrite_and_collect(archive: Archive) -> None:
    rewrite(archive)
    collect(archive)


def uses(recording: Recording) -> dict[str, Callable[[], object]]:
    """Every way to read."""
    call = EXPECTED[1]
    key = recording.key_of(call["kind"], call["identity"])
    return {
        "lookup": lambda: recording.lookup(call["kind"], call["identity"], scope=call["scope"]),
        "lookup_digest": lambda: recording.lookup_digest(key, scope=call["scope"]),
        "count": lambda: recording.count(call["kind"], call["identity"]),
        "count_scoped": lambda: recording.count_scoped(key, call["scope"]),
        "count_keys": lambda: recording.count_keys(iter([key])),
        "latest": lambda: recording.latest(key, [call["scope"], None]),
        "repeated": lambda: list(recording.repeated()),
        "record": lambda: recording.record(70).request,
        "around": lambda: [record.response for record in recording.around(50, frames=2)],
        "of_key": lambda: [record.response for record in recording.of_key(key)],
        "find_blob": lambda: recording.find_blob("00" * 32),
        "records": lambda: [record.request for record in recording.records(first=40)],
        "with_requests": lambda: len(recording.with_requests(recording.around(50, frames=2))),
    }


def shown(result: object) -> object:
    return (result.seq, result.response) if isinstance(result, replaypack.Record) else result


def attempt(use: Callable[[], object]) -> object:
    try:
        return shown(use())
    except replaypack.ReplaypackError as error:
        return type(error)


WAYS = (
    "lookup lookup_digest count count_scoped count_keys latest repeated record around of_key find_blob records "
    "with_requests"
)


@pytest.mark.parametrize("name", WAYS.split())
@pytest.mark.once
def test_every_way_to_read_goes_on(archive: Archive, name: str) -> None:
    with archive.open("r") as recording:
        expected = attempt(uses(recording)[name])
    with archive.open("r", cache_bytes=0) as recording:
        rewrite_and_collect(archive)
        assert str(attempt(uses(recording)[name])) == str(expected)
        assert recording.manifest.revision == 3
        check(recording, EXPECTED)


def test_iteration_goes_on_where_it_was(archive: Archive) -> None:
    with archive.open("r", cache_bytes=0) as recording:
        seen = []
        for record in recording.records():
            if record.seq == 10:
                rewrite_and_collect(archive)
            seen.append((record.seq, repr(record.request), repr(record.response)))
        assert [seq for seq, _, _ in seen] == list(range(COUNT))
        again = [(record.seq, repr(record.request), repr(record.response)) for record in recording.records()]
        assert seen == again


def test_keys_recorded_twice_are_told_once_each(archive: Archive) -> None:
    with archive.open("r") as recording:
        expected = list(recording.repeated())
    assert len(expected) > 3
    with archive.open("r", cache_bytes=0) as recording:
        told = recording.repeated()
        seen = [next(told)]
        rewrite_and_collect(archive)
        seen += told
        assert seen == expected


def test_records_that_are_held_are_read_from_the_new_packs(archive: Archive) -> None:
    with archive.open("r", cache_bytes=0) as recording:
        records = list(recording.records())
        rewrite_and_collect(archive)
        requests = recording.with_requests(records[:12])
        assert requests
        for record, call in zip(records, EXPECTED, strict=True):
            assert repr(record.request) == repr(call.get("request", call.get("identity")))


def test_many_threads(archive: Archive) -> None:
    failures: list[BaseException] = []
    recording = archive.open("r", cache_bytes=0)
    started = threading.Barrier(5)

    def read(first: int) -> None:
        try:
            started.wait()
            for _ in range(3):
                for record in recording.records(first=first):
                    call = EXPECTED[record.seq]
                    assert repr(record.request) == repr(call.get("request", call.get("identity")))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(number * 7,)) for number in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    rewrite_and_collect(archive)
    for thread in threads:
        thread.join()
    assert failures == []
    assert recording.manifest.revision == 3 or not recording.lookup("tool", "x")


def test_a_session_that_replays(archive: Archive, tmp_path: Path) -> None:
    with archive.session("s", mode="record") as session:
        for number in range(50):
            session.tool("f", {"n": number}, lambda number=number: "r" * 6000 + str(number))
    with archive.session("s", mode="replay") as session:
        for number in range(50):
            if number == 7:
                rewrite(archive, "s")
                collect(archive)
            assert session.tool("f", {"n": number}, lambda: "live") == "r" * 6000 + str(number)


def test_one_that_was_open_goes_on_with_what_it_became(archive: Archive) -> None:
    recorder = archive.recorder("live", flush_interval=None)
    for number in range(3):
        recorder.append(kind="tool", identity=number, response="x" * 5000 + str(number))
        recorder.flush()
    reader = archive.open("live", cache_bytes=0)
    recorder.append(kind="tool", identity=9, response="y" * 5000)
    recorder.seal()
    collect(archive)
    assert reader.lookup("tool", 1).response == "x" * 5000 + "1"  # type: ignore[union-attr]
    assert (reader.state, len(reader)) == ("sealed", 4)


def test_the_revision_below_a_new_claim(archive: Archive) -> None:
    reader = archive.open("r", cache_bytes=0)
    rewrite(archive)
    with archive.recorder("r", if_exists="append", flush_interval=None) as recorder:
        recorder.append(kind="tool", identity="more", response=1)
        recorder.flush()
        collect(archive)
        check(reader, EXPECTED)
        assert reader.manifest.revision == 3


def test_one_pinned_to_a_revision(archive: Archive) -> None:
    reader = archive.open("r", 2, cache_bytes=0)
    rewrite_and_collect(archive)
    check(reader, EXPECTED)


class TestRefusals:
    """What reads on must be what was opened."""

    def read(self, reader: Recording) -> str:
        with pytest.raises(ObjectMissingError) as caught:
            list(reader.records())
        return str(caught.value)

    def test_other_content(self, archive: Archive) -> None:
        reader = archive.open("r", cache_bytes=0)
        with archive.recorder("r", if_exists="replace") as recorder:
            recorder.append(kind="tool", identity="x", response=1)
        collect(archive)
        assert "the recording is revision 4 now, with other content" in self.read(reader)

    def test_a_recording_that_was_deleted(self, archive: Archive) -> None:
        reader = archive.open("r", cache_bytes=0)
        with archive.recorder("other") as recorder:
            recorder.append(kind="tool", identity="x", response=1)
        archive.delete("r")
        gc(archive, grace=timedelta(), apply=True)
        assert "is not there any more" in self.read(reader)

    def test_a_pack_that_is_simply_lost(self, archive: Archive) -> None:
        reader = archive.open("r", cache_bytes=0)
        for ref in reader.manifest.storage.packs:
            archive.storage.delete(f"packs/{ref.digest[:2]}/{ref.digest}.rpk")
        assert "collected" not in self.read(reader)

    def test_a_manifest_that_was_expected(self, archive: Archive) -> None:
        reader = archive.open("r", expect_manifest=archive.open("r").manifest.digest, cache_bytes=0)
        rewrite_and_collect(archive)
        assert "collected" not in self.read(reader)

    def test_one_whose_tables_were_looked_at(self, archive: Archive) -> None:
        reader = archive.open("r", cache_bytes=0)
        assert reader.index.packs
        rewrite_and_collect(archive)
        self.read(reader)
