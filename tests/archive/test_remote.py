"""Whole archives on S3, GCS, http and in a zip file, through a proxy that counts what is asked."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import replaypack
from replaypack import Archive
from replaypack.audit import gc, verify_archive
from replaypack.errors import AccessDeniedError, PublishError, RecordingNotFoundError, StorageUnsupportedError
from replaypack.recover import recover
from tests.archive.support import calls, check
from tests.storage.conftest import Bucket, make_s3_bucket
from tests.support.proxy import Fault, Proxy
from tests.support.servers import Server

#: Latency (seconds) while rounds are counted: requests that were sent together must overlap on a busy machine too.
SLOW = 0.3


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(params=["s3", "gcs"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    found: Bucket = request.getfixturevalue(f"{request.param}_bucket")
    return found


def record(archive: Archive, name: str, items: list[dict[str, Any]], flush_every: int = 0, **options: Any) -> None:
    with archive.recorder(name, flush_interval=None, **options) as recorder:
        for number, call in enumerate(items, 1):
            recorder.append(**call)
            if flush_every and number % flush_every == 0:
                recorder.flush()


def only_gets(proxy: Proxy) -> bool:
    return all(request.method == "GET" and not request.is_list for request in proxy.requests)


def test_the_whole_life_of_a_recording(bucket: Bucket) -> None:
    archive = Archive("", storage=bucket.open())
    first, more = list(calls(80)), list(calls(30, seed=1))
    record(archive, "runs/a", first, flush_every=30)
    check(Archive("", storage=bucket.open()).open("runs/a"), first)
    record(archive, "runs/a", more, if_exists="append")
    check(Archive("", storage=bucket.open()).open("runs/a"), first + more)
    assert list(archive.recordings()) == ["runs/a"]
    assert [m.storage.cause for m in archive.revisions("runs/a")] == ["claim", "seal", "claim", "append"]
    with pytest.raises(RecordingNotFoundError, match="did you mean runs/a"):
        archive.open("runs/b")
    archive.delete("runs/a")
    assert list(archive.recordings()) == []


def test_garbage_is_collected_by_the_clock_of_the_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive("", storage=bucket.open())
    kept = list(calls(10))
    record(archive, "kept", kept)
    record(archive, "gone", list(calls(10, seed=1)))
    archive.delete("gone")
    # This machine's clock is a month ahead, and says nothing.
    now = time.time
    monkeypatch.setattr(sys.modules["replaypack.audit.gc"], "time", SimpleNamespace(time=lambda: now() + 30 * 86_400))
    before = {info.key for info in archive.storage.list("packs/")}
    for _ in range(2):
        done = gc(archive, apply=True, grace=timedelta(days=7))
        assert done.waiting.objects == len(before) - 1
        assert done.removed["packs"].objects == 0
    done = gc(archive, apply=True, grace=timedelta())
    assert done.removed["packs"].objects == len(before) - 1
    assert list(verify_archive(archive)) == []
    check(Archive("", storage=bucket.open()).open("kept"), kept)


def test_a_cold_lookup_takes_three_gets(bucket: Bucket) -> None:
    payload = "x" * 300
    with Archive("", storage=bucket.open()).recorder("run", flush_interval=None) as recorder:
        for number in range(4000):
            recorder.append(kind="tool", identity=[number, payload, hash(str(number))], response={"n": number})
    bucket.proxy.clear()
    recording = Archive("", storage=bucket.open()).open("run")
    assert recording.manifest.storage.segments[0].near is None
    found = recording.lookup("tool", [1234, payload, hash(str(1234))])
    assert found is not None
    assert found.response == {"n": 1234}
    assert len(bucket.proxy.requests) == 3
    assert only_gets(bucket.proxy)
    assert sum(request.sent for request in bucket.proxy.requests) <= 600_000
    bucket.proxy.clear()
    bucket.proxy.latency = SLOW
    assert found.request[0] == 1234
    bucket.proxy.latency = 0
    assert len(bucket.proxy.requests) <= 17
    assert bucket.proxy.depth() <= 2
    bucket.proxy.clear()
    assert recording.lookup("tool", "never") is None
    assert len(bucket.proxy.requests) <= 1


def test_a_cold_lookup_in_a_small_recording_takes_two_gets(bucket: Bucket) -> None:
    with Archive("", storage=bucket.open()).recorder("run", flush_interval=None) as recorder:
        for number in range(50):
            recorder.append(kind="tool", identity={"n": number}, response={"n": number, "text": "y" * 1000})
    bucket.proxy.clear()
    found = Archive("", storage=bucket.open()).open("run").lookup("tool", {"n": 33})
    assert found is not None
    assert found.response["n"] == 33
    assert len(bucket.proxy.requests) == 2
    assert only_gets(bucket.proxy)


def test_the_nth_of_ten_thousand_equal_keys_takes_one_round_more(bucket: Bucket) -> None:
    with Archive("", storage=bucket.open()).recorder("run", flush_interval=None) as recorder:
        for number in range(10_000):
            recorder.append(kind="tool", identity="poll", response=number)
    bucket.proxy.latency = SLOW
    for nth in (0, 5, 7_777, 9_999):
        bucket.proxy.clear()
        found = Archive("", storage=bucket.open()).open("run").lookup("tool", "poll", nth=nth)
        assert found is not None
        assert found.response == nth
        assert bucket.proxy.depth() <= 4
        assert only_gets(bucket.proxy)
    assert Archive("", storage=bucket.open()).open("run").lookup("tool", "poll", nth=10_000) is None


def test_an_open_recording_is_read_in_three_rounds(s3_bucket: Bucket) -> None:
    expected = list(calls(120))
    recorder = Archive("", storage=s3_bucket.open()).recorder("run", flush_interval=None)
    for number, call in enumerate(expected, 1):
        recorder.append(**call)
        if number % 8 == 0:
            recorder.flush()
    s3_bucket.proxy.clear()
    s3_bucket.proxy.latency = SLOW
    recording = Archive("", storage=s3_bucket.open()).open("run")
    found = recording.lookup("tool", expected[3]["identity"], scope=expected[3].get("scope"))
    s3_bucket.proxy.latency = 0
    assert found is not None
    assert s3_bucket.proxy.depth() <= 3
    assert len(s3_bucket.proxy.requests) <= 20
    assert only_gets(s3_bucket.proxy)
    recorder.seal()


def test_reading_needs_no_listing_and_no_head(s3_bucket: Bucket) -> None:
    """A reader with GET permission alone reads everything."""
    expected = list(calls(60))
    record(Archive("", storage=s3_bucket.open()), "run", expected)
    denied = Fault.s3(403, "AccessDenied")
    s3_bucket.proxy.inject(denied, times=None, when=lambda request: request.is_list or request.method != "GET")
    archive = Archive("", storage=s3_bucket.open())
    check(archive.open("run"), expected)
    with pytest.raises(AccessDeniedError):
        list(archive.recordings())


def test_a_missing_recording_where_missing_keys_are_denied(s3_bucket: Bucket) -> None:
    denied = Fault.s3(403, "AccessDenied")
    s3_bucket.proxy.inject(denied, times=None)
    with pytest.raises(RecordingNotFoundError, match="missing or not permitted"):
        Archive("", storage=s3_bucket.open()).open("run")


def test_lost_replies_and_busy_servers_lose_nothing(bucket: Bucket) -> None:
    expected = list(calls(40))
    busy = Fault.status(503)
    recorder = Archive("", storage=bucket.open()).recorder("run", flush_interval=None)
    for number, call in enumerate(expected, 1):
        recorder.append(**call)
        if number % 10 == 0:
            bucket.proxy.inject(Fault.lost_reply(), times=1, when=lambda r: r.method in ("PUT", "POST"))
            bucket.proxy.inject(busy, times=1)
            recorder.flush()
    bucket.proxy.inject(Fault.lost_reply(), times=2, when=lambda r: r.method in ("PUT", "POST"))
    recorder.seal()
    bucket.proxy.clear()
    bucket.proxy.inject(Fault.truncated(100), times=2, method="GET")
    bucket.proxy.inject(Fault.cut(), times=2, method="GET")
    check(Archive("", storage=bucket.open()).open("run"), expected)


def test_a_store_that_goes_away_keeps_the_journal(s3_bucket: Bucket, tmp_path: Path) -> None:
    storage = s3_bucket.open(own={"retry_seconds": 0.3})
    recorder = Archive("", storage=storage).recorder("run", flush_interval=None)
    expected = list(calls(30))
    for call in expected[:10]:
        recorder.append(**call)
    recorder.flush()
    for call in expected[10:]:
        recorder.append(**call)
    s3_bucket.proxy.inject(Fault.cut(), times=None)
    with pytest.raises(PublishError, match="10 of 30 records"):
        recorder.seal()
    s3_bucket.proxy.clear()
    archive = Archive("", storage=s3_bucket.open())
    check(archive.open("run"), expected[:10])
    assert list((tmp_path / "state").rglob("*.rpj"))
    [result] = recover(archive)
    assert (result.records, result.from_journal, result.error) == (30, 20, None)
    check(archive.open("run"), expected)


def test_coroutines_do_not_block_the_loop(s3_bucket: Bucket) -> None:
    expected = list(calls(12))
    record(Archive("", storage=s3_bucket.open()), "run", expected)
    s3_bucket.proxy.latency = 0.1
    storage = s3_bucket.open()

    async def use() -> tuple[int, float]:
        ticks = 0
        worst = 0.0

        async def tick() -> None:
            nonlocal ticks, worst
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.005)
                worst = max(worst, time.monotonic() - before)
                ticks += 1

        ticking = asyncio.create_task(tick())
        recording = await Archive("", storage=storage).aopen("run")
        found = await recording.alookup("tool", expected[3]["identity"], scope=expected[3].get("scope"))
        assert found is not None
        ticking.cancel()
        return ticks, worst

    ticks, _ = asyncio.run(use())
    # Two round trips of a tenth of a second each went by; a loop that was blocked would not have come round.
    assert ticks > 10


def test_many_readers_at_once(s3_bucket: Bucket) -> None:
    expected = list(calls(60))
    record(Archive("", storage=s3_bucket.open()), "run", expected)
    recording = Archive("", storage=s3_bucket.open()).open("run")
    failure: list[BaseException] = []

    def work() -> None:
        try:
            check(recording, expected)
        except BaseException as error:
            failure.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failure


def test_a_static_web_server_is_a_read_only_archive(static_server: Server) -> None:
    expected = list(calls(60, large=True))
    assert static_server.root is not None
    record(Archive(static_server.root / "remote"), "run", expected)
    with replaypack.open(f"{static_server.url}/remote#run") as recording:
        check(recording, expected)
    with replaypack.open(f"{static_server.url}/remote#run@2") as recording:
        check(recording, expected)
    with pytest.raises(StorageUnsupportedError):
        list(Archive(f"{static_server.url}/remote").recordings())
    with pytest.raises(RecordingNotFoundError):
        replaypack.open(f"{static_server.url}/remote#other")


def test_a_web_server_without_ranges_is_noticed_or_served_right(static_server_without_ranges: Server) -> None:
    expected = list(calls(20))
    assert static_server_without_ranges.root is not None
    record(Archive(static_server_without_ranges.root / "remote"), "run", expected)
    with replaypack.open(f"{static_server_without_ranges.url}/remote#run") as recording:
        check(recording, expected)


def zipped(directory: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(directory).as_posix())
    return target


def test_a_zip_file_is_a_read_only_archive(tmp_path: Path, static_server: Server) -> None:
    expected = list(calls(60))
    record(Archive(tmp_path / "archive"), "run", expected)
    file = zipped(tmp_path / "archive", tmp_path / "run.zip")
    with replaypack.open(f"{file}#run") as recording:
        check(recording, expected)
    assert list(Archive(str(file)).recordings()) == ["run"]
    assert static_server.root is not None
    shutil.copy(file, static_server.root / "run.zip")
    with replaypack.open(f"{static_server.url}/run.zip#run") as recording:
        check(recording, expected)


@pytest.fixture
def seaweed(seaweed_server: Server) -> Iterator[Bucket]:
    bucket = make_s3_bucket(seaweed_server, name="archives")
    yield bucket
    bucket.close()


@pytest.mark.heavy
def test_the_whole_life_on_seaweedfs(seaweed: Bucket) -> None:
    archive = Archive("", storage=seaweed.open())
    expected = list(calls(200, large=True))
    record(archive, "run", expected, flush_every=20)
    check(Archive("", storage=seaweed.open()).open("run"), expected)
    record(archive, "run", expected[:20], if_exists="append")
    check(Archive("", storage=seaweed.open()).open("run"), expected + expected[:20])
    archive.delete("run")
    assert list(archive.recordings()) == []


def test_a_recorder_that_is_discarded_leaves_things_as_they_were(bucket: Bucket) -> None:
    archive = Archive("", storage=bucket.open())
    items = list(calls(20))
    recorder = archive.recorder("run", flush_interval=None)
    for call in items:
        recorder.append(**call)
    recorder.discard()
    recorder.discard()
    assert list(archive.recordings()) == []
    assert archive.leftovers() == []
    record(archive, "run", items)
    for mode in ("append", "replace"):
        recorder = archive.recorder("run", if_exists=mode, flush_interval=None)
        recorder.append(**items[0])
        recorder.discard()
        check(archive.open("run", fresh=True), items)
    record(archive, "run", items, if_exists="append")
    check(archive.open("run"), items + items)
    assert list(archive.verify("run")) == []
