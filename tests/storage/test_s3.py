"""S3, against moto over a socket, with a proxy in between that counts and disturbs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from replaypack import Archive
from replaypack.audit import purge
from replaypack.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectMissingError,
    StorageFullError,
    StorageTimeoutError,
    StorageUnavailableError,
    StorageUnsupportedError,
)
from replaypack.storage import Storage
from replaypack.storage._retry import Retry
from tests.storage.conftest import S3_KEY, S3_SECRET, Bucket, make_s3_bucket
from tests.storage.contract import BIG, OBJECTS, StorageContract, race
from tests.support.proxy import Fault
from tests.support.servers import Server


class TestS3(StorageContract):
    """moto looks whether the key exists and stores then, without a lock; SeaweedFS is raced instead (heavy)."""

    atomic_create = False

    @pytest.fixture
    def storage(self, s3_bucket: Bucket) -> Storage:
        opened: Storage = s3_bucket.open()
        return opened


@pytest.mark.heavy
class TestSeaweed(StorageContract):
    @pytest.fixture
    def storage(self, seaweed_server: Server) -> Any:
        # One bucket for all: each is a collection of its own there, for which disk is set aside.
        bucket = make_s3_bucket(seaweed_server, name="shared")
        yield bucket.open()
        bucket.close()

    def test_a_multi_part_create_is_conditional(self, storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("replaypack.storage._s3.PART", 5 << 20)
        storage.put_new("large", b"a" * (11 << 20))
        with pytest.raises(ObjectExistsError):
            storage.put_new("large", b"b" * (11 << 20))
        assert storage.get("large")[:1] == b"a"
        assert len(race(storage, "raced", 6)) == 1


# -- requests ------------------------------------------------------------------------------------------


def test_each_read_is_one_get(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    storage.put("k", BIG)
    for read, asked in [
        (lambda: storage.get("k"), None),
        (lambda: storage.get_range("k", 0, 10), "bytes=0-9"),
        (lambda: storage.get_range("k", 5, 10), "bytes=5-14"),
        (lambda: storage.get_suffix("k", 7), "bytes=-7"),
    ]:
        s3_bucket.proxy.clear()
        read()
        assert [(r.method, r.range) for r in s3_bucket.proxy.requests] == [("GET", asked)]


def test_a_listing_is_one_request_and_asks_for_no_object(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    for key, data in OBJECTS.items():
        storage.put(key, data)
    for prefix in ("", "recordings/", "recordings/ru", "nothing/"):
        s3_bucket.proxy.clear()
        list(storage.list(prefix))
        assert [(r.method, r.is_list) for r in s3_bucket.proxy.requests] == [("GET", True)]


def test_neighbours_are_coalesced_and_the_rest_is_concurrent(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open(own={"max_gap": 100, "retry_seconds": 0})
    storage.put("k", BIG)
    s3_bucket.proxy.clear()
    s3_bucket.proxy.inject(Fault.meet(12), times=24)  # botocore alone opens ten connections
    ranges = [("k", 0, 10), ("k", 50, 10)] + [("k", 1000 * i, 10) for i in range(1, 24)]
    assert storage.get_ranges(ranges) == [BIG[start : start + length] for _, start, length in ranges]
    assert len(s3_bucket.proxy.requests) == 24


def test_another_writer_is_seen(s3_bucket: Bucket) -> None:
    ours, theirs = s3_bucket.open(), s3_bucket.open()
    ours.put("a/1", b"")
    assert [info.key for info in ours.list("a/")] == ["a/1"]
    theirs.put("a/2", b"")
    assert [info.key for info in ours.list("a/")] == ["a/1", "a/2"]
    assert ours._fs() is not theirs._fs()


def test_cache_control_reaches_the_store(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    storage.put("latest.json", b"{}", cache_control="no-cache")
    storage.put_new("new.json", b"{}", cache_control="max-age=60")
    storage.get("latest.json")
    assert s3_bucket.proxy.requests[-1].response_headers["cache-control"] == "no-cache"
    storage.get("new.json")
    assert s3_bucket.proxy.requests[-1].response_headers["cache-control"] == "max-age=60"


# -- s3fs as it is: why the requests above are not left to it -----------------------------------------------


def test_what_s3fs_does_by_itself(s3_bucket: Bucket) -> None:
    s3fs = pytest.importorskip("s3fs")
    options = {**s3_bucket.options, "endpoint_url": s3_bucket.proxy.url}
    fs = s3fs.S3FileSystem(**options, skip_instance_cache=True)
    path = f"{s3_bucket.name}/k"
    fs.pipe_file(path, BIG)
    proxy = s3_bucket.proxy

    def methods(call: Any) -> list[str]:
        proxy.clear()
        call()
        return proxy.methods()

    assert methods(lambda: fs.cat_file(path)) == ["HEAD", "GET"]
    assert methods(lambda: fs.cat_file(path, start=0)) == ["GET"]
    assert methods(lambda: fs.cat_file(path, start=1, end=9)) == ["GET"]

    def read_by_open() -> None:
        with fs.open(path) as file:
            file.read(10)

    assert methods(read_by_open) == ["HEAD", "GET"]
    assert proxy.requests[-1].sent == len(BIG)
    with pytest.raises(NotImplementedError):
        fs.cat_ranges([path], [0], [10], max_gap=10)
    assert isinstance(fs.cat_ranges([f"{s3_bucket.name}/none"], [0], [10])[0], FileNotFoundError)

    fs.ls(s3_bucket.name)
    s3fs.S3FileSystem(**options, skip_instance_cache=True).pipe_file(f"{s3_bucket.name}/other", b"")
    assert len(fs.ls(s3_bucket.name)) == 1  # its cache has not heard of the second object


# -- trouble ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Fault.status(500),
        Fault.s3(503, "SlowDown"),
        Fault.s3(503, "ServiceUnavailable"),
        Fault.status(429),
        Fault.s3(400, "RequestTimeout"),
        Fault.cut(),
        Fault.truncated(1000),
        Fault.truncated(0),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.value:g}",
)
def test_a_passing_fault_is_retried(s3_bucket: Bucket, fault: Fault) -> None:
    storage = s3_bucket.open()
    storage.put("k", BIG)
    s3_bucket.proxy.clear()
    s3_bucket.proxy.inject(fault, times=2)
    assert storage.get("k") == BIG
    assert len(s3_bucket.proxy.requests) == 3
    s3_bucket.proxy.inject(fault, times=2)
    assert storage.get_range("k", 100, 200_000) == BIG[100:200_100]
    assert len(s3_bucket.proxy.requests) == 6


def test_a_body_shorter_than_the_range_is_noticed_by_its_length(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    storage.put("k", BIG)
    s3_bucket.proxy.inject(Fault.shortened(100), times=2)
    assert storage.get_range("k", 0, 2000) == BIG[:2000]
    s3_bucket.proxy.inject(Fault.shortened(100), times=2)
    assert storage.get_suffix("k", 2000) == BIG[-2000:]


def test_a_server_that_ignores_ranges_gives_no_wrong_bytes(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    storage.put("k", BIG)
    s3_bucket.proxy.inject(Fault.no_range(), times=None)
    assert storage.get_range("k", 5, 10) == BIG[5:15]
    assert storage.get_range("k", len(BIG) - 3, 3) == BIG[-3:]
    assert storage.get_suffix("k", 9) == BIG[-9:]
    assert storage.get_ranges([("k", 200_000, 9), ("k", 1, 2)]) == [BIG[200_000:200_009], BIG[1:3]]
    with pytest.raises(Exception, match="ends at byte 300000"):
        storage.get_range("k", 5, len(BIG))  # as long as the whole answer: told apart by its headers


def test_a_lost_reply_of_a_create_is_a_success(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    s3_bucket.proxy.inject(Fault.lost_reply(), method="PUT")
    storage.put_new("k", b"mine")
    assert [(r.method, r.status) for r in s3_bucket.proxy.requests] == [("PUT", 0), ("PUT", 412), ("GET", 200)]
    s3_bucket.proxy.inject(Fault.lost_reply(), method="PUT")
    with pytest.raises(ObjectExistsError):
        storage.put_new("k", b"other")
    assert storage.get("k") == b"mine"


def test_a_conflict_of_two_creates_is_retried(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    s3_bucket.proxy.inject(Fault.s3(409, "ConditionalRequestConflict"), method="PUT")
    storage.put_new("k", b"mine")
    assert [r.status for r in s3_bucket.proxy.requests] == [409, 200]


def test_retries_end_with_the_time_they_have(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open(own={"retry_seconds": 0.5})
    s3_bucket.proxy.inject(Fault.status(503), times=None)
    with pytest.raises(StorageUnavailableError) as caught:
        storage.get("k")
    assert "503" in str(caught.value)


def test_one_attempt_is_one_request(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open(own={"retry_seconds": 0})
    # aiohttp by itself sends a request again when a kept-alive connection turns out to be gone.
    for fault, most in ((Fault.status(500), 3), (Fault.s3(503, "SlowDown"), 3), (Fault.cut(), 6)):
        s3_bucket.proxy.clear()
        s3_bucket.proxy.inject(fault, times=None)
        for call in (lambda: storage.get("k"), lambda: storage.put("k", b""), lambda: list(storage.list())):
            with pytest.raises(StorageUnavailableError):
                call()
        assert 3 <= len(s3_bucket.proxy.requests) <= most


def test_waits_are_drawn_from_the_injected_clock(s3_bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    storage = s3_bucket.open()
    now, slept = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(seconds)

    storage.retry = Retry(10, clock=lambda: now, sleep=sleep, jitter=lambda: 1.0)
    s3_bucket.proxy.inject(Fault.status(503), times=None)
    with pytest.raises(StorageUnavailableError):
        storage.get("k")
    assert slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])  # 6.4 more would pass the ten seconds
    # Nobody waits for a minute without a word.
    [said] = caplog.messages
    assert said.startswith(f"{storage.url}: ")
    assert said.endswith("; trying again for 6 s at most")


def test_a_server_that_does_not_answer_is_a_timeout(s3_bucket: Bucket) -> None:
    # 64 KiB a second are allowed for on top, so the object is small and its size known.
    storage = s3_bucket.open(own={"retry_seconds": 0, "request_seconds": 0.3})
    s3_bucket.proxy.inject(Fault.delay(2), times=None)
    with pytest.raises(TimeoutError) as caught:
        storage.get_range("k", 0, 1)
    assert isinstance(caught.value, StorageTimeoutError)


def test_a_403_may_mean_missing_and_wrong_credentials_do_not(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    s3_bucket.proxy.inject(Fault.s3(403, "AccessDenied"))
    with pytest.raises(ObjectMissingError, match="missing or not permitted") as caught:
        storage.get("k")
    assert caught.value.may_be_denied
    with pytest.raises(ObjectMissingError) as missing:
        storage.get("k")
    assert not missing.value.may_be_denied

    for code in ("SignatureDoesNotMatch", "InvalidAccessKeyId", "RequestTimeTooSkewed"):
        s3_bucket.proxy.inject(Fault.s3(403, code))
        with pytest.raises(AccessDeniedError, match=code):
            storage.get("k")
    s3_bucket.proxy.inject(Fault.s3(400, "ExpiredToken"))
    with pytest.raises(AccessDeniedError):
        storage.get("k")
    for write in (lambda: storage.put("k", b""), lambda: storage.put_new("k", b""), lambda: list(storage.list())):
        s3_bucket.proxy.inject(Fault.s3(403, "AccessDenied"))
        with pytest.raises(AccessDeniedError):
            write()
    assert len(s3_bucket.proxy.requests) == 9  # nothing of this is tried twice


def test_missing_credentials_and_buckets(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(AccessDeniedError, match="no usable credentials"):
        s3_bucket.open(key=None, secret=None).get("k")

    from replaypack.storage import open_storage

    options = {**s3_bucket.options, "endpoint_url": s3_bucket.server.url}
    with open_storage("s3://no-such-bucket-here/a", options) as storage:
        with pytest.raises(ObjectMissingError, match="no such bucket"):
            storage.get("k")
        with pytest.raises(ObjectMissingError, match="no such bucket"):
            storage.put("k", b"")


def test_a_full_store(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    s3_bucket.proxy.inject(Fault.s3(507, "XMinioStorageFull"))
    with pytest.raises(StorageFullError):
        storage.put("k", b"")


def test_a_multi_part_create_carries_its_condition(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto does not check it on completion, so the request is looked at; SeaweedFS decides it (heavy)."""
    monkeypatch.setattr("replaypack.storage._s3.PART", 5 << 20)
    s3_bucket.open().put_new("large", b"a" * (11 << 20))
    completion = [r for r in s3_bucket.proxy.requests if r.method == "POST" and "uploadId=" in r.path]
    assert [r.headers.get("if-none-match") for r in completion] == ["*"]


def test_nothing_shown_holds_the_credentials(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open(own={"retry_seconds": 0}, token="canary-session-token-42")
    echo = f"you sent {S3_KEY} {S3_SECRET} canary-session-token-42 X-Amz-Signature=abcdef0123"
    shown = [repr(storage), str(storage), storage.url]
    for status, code in ((403, "SignatureDoesNotMatch"), (503, "SlowDown"), (418, "Teapot")):
        s3_bucket.proxy.inject(Fault.s3(status, code, echo))
        with pytest.raises(OSError) as caught:
            storage.put("k", b"")
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        shown += [str(caught.value), repr(caught.value), repr(vars(caught.value))]
    for text in shown:
        for canary in (S3_KEY, S3_SECRET, "canary-session-token-42", "abcdef0123"):
            assert canary not in text


def test_threads_that_start_together_share_one_filesystem(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    storage.put("k", b"v")
    fresh = s3_bucket.open()
    seen: list[int] = []
    barrier = threading.Barrier(8)

    def read() -> None:
        barrier.wait()
        fresh.get("k")
        seen.append(id(fresh._fs()))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len(set(seen)) == 1


# -- what is kept of deleted objects -----------------------------------------------------------------


def _versioning(bucket: Bucket, storage: Any, status: str) -> None:
    said = {"Status": status}
    storage._await(storage._fs()._call_s3, "put_bucket_versioning", Bucket=bucket.name, VersioningConfiguration=said)


def test_what_a_bucket_keeps(s3_bucket: Bucket) -> None:
    storage = s3_bucket.open()
    assert storage.keeps_deleted() is None
    _versioning(s3_bucket, storage, "Enabled")
    assert "keeps versions" in storage.keeps_deleted()
    _versioning(s3_bucket, storage, "Suspended")
    assert "kept versions" in storage.keeps_deleted()
    s3_bucket.proxy.inject(Fault.s3(403, "AccessDenied"))
    with pytest.raises(AccessDeniedError):
        storage.keeps_deleted()


def test_a_bucket_with_object_lock(s3_bucket: Bucket) -> None:
    """It can be written and read, and cannot forget."""
    other = s3_bucket.open()
    name = f"{s3_bucket.name}-locked"
    lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}}
    for method, more in (
        ("create_bucket", {"ObjectLockEnabledForBucket": True}),
        ("put_object_lock_configuration", {"ObjectLockConfiguration": lock}),
    ):
        other._await(other._fs()._call_s3, method, Bucket=name, **more)
    s3_bucket.url = f"s3://{name}/archive"
    archive = Archive("", storage=s3_bucket.open())
    with archive.recorder("r") as recorder:
        recorder.append(kind="tool", identity=1, response="an answer")
    assert list(archive.verify()) == []
    with pytest.raises(StorageUnsupportedError, match=r"cannot forget: .* keeps versions"):
        purge(archive, "r", [0], "asked to")
    assert [record.response for record in archive.open("r", fresh=True).records()] == ["an answer"]
