"""Google Cloud Storage, against fake-gcs-server over a socket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from replaypack.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectMissingError,
    StorageUnavailableError,
    StorageUnsupportedError,
)
from replaypack.storage import Storage
from tests.storage.conftest import Bucket
from tests.storage.contract import BIG, StorageContract
from tests.support.proxy import Fault


class TestGCS(StorageContract):
    @pytest.fixture
    def storage(self, gcs_bucket: Bucket) -> Storage:
        opened: Storage = gcs_bucket.open()
        return opened


def test_each_read_is_one_get(gcs_bucket: Bucket) -> None:
    storage = gcs_bucket.open()
    storage.put("k", BIG)
    for read, asked in [
        (lambda: storage.get("k"), None),
        (lambda: storage.get_range("k", 0, 10), "bytes=0-9"),
        (lambda: storage.get_suffix("k", 7), "bytes=-7"),
        (lambda: storage.get_ranges([("k", 0, 5), ("k", 9, 5)]), "bytes=0-13"),
    ]:
        gcs_bucket.proxy.clear()
        read()
        assert [(r.method, r.range) for r in gcs_bucket.proxy.requests] == [("GET", asked)]


def test_a_create_carries_its_precondition_in_one_request(gcs_bucket: Bucket) -> None:
    gcs_bucket.open().put_new("k", b"x")
    assert [r.method for r in gcs_bucket.proxy.requests] == ["POST"]
    assert "ifGenerationMatch=0" in gcs_bucket.proxy.requests[0].path
    assert "uploadType=multipart" in gcs_bucket.proxy.requests[0].path


def test_what_one_request_cannot_create_is_refused(gcs_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack.storage._gcs.LARGEST_NEW", (1 << 18) - 1)
    monkeypatch.setattr("replaypack.storage._gcs.PART", 1 << 18)
    storage = gcs_bucket.open()
    storage.put_new("below", b"x" * ((1 << 18) - 1))
    gcs_bucket.proxy.clear()
    with pytest.raises(StorageUnsupportedError):
        storage.put_new("above", b"x" * (1 << 18))
    assert gcs_bucket.proxy.requests == []


def test_a_create_that_gcsfs_would_send_in_parts_is_one_request(gcs_bucket: Bucket) -> None:
    storage = gcs_bucket.open(own={"retry_seconds": 0})
    data = bytes(51 << 20)
    storage.put_new("large", data)
    assert [r.method for r in gcs_bucket.proxy.requests] == ["POST"]
    assert "uploadType=multipart" in gcs_bucket.proxy.requests[0].path
    assert "ifGenerationMatch=0" in gcs_bucket.proxy.requests[0].path
    with pytest.raises(ObjectExistsError):
        storage.put_new("large", data + b"x")


def test_cache_control_reaches_the_store(gcs_bucket: Bucket) -> None:
    storage = gcs_bucket.open()
    storage.put("latest.json", b"{}", cache_control="no-cache")
    storage.put_new("new.json", b"{}", cache_control="max-age=60")
    for key, expected in (("latest.json", "no-cache"), ("new.json", "max-age=60")):
        storage.get(key)
        assert gcs_bucket.proxy.requests[-1].response_headers["cache-control"] == expected


def test_gcsfs_answers_416_for_an_empty_object(gcs_bucket: Bucket) -> None:
    """The fact our own reading works around, and `StorageContract` shows that it does."""
    gcsfs = pytest.importorskip("gcsfs")
    storage = gcs_bucket.open()
    storage.put("empty", b"")
    fs = gcsfs.core.GCSFileSystem(token="anon", endpoint_url=gcs_bucket.proxy.url, skip_instance_cache=True)
    path = f"{gcs_bucket.url.removeprefix('gs://')}/empty"
    assert getattr(fs.cat_ranges([path], [0], [5])[0], "code", None) == 416
    with pytest.raises(NotImplementedError):
        fs.cat_ranges([path], [0], [5], max_gap=10)


@pytest.mark.parametrize(
    "fault",
    [Fault.status(503), Fault.status(429), Fault.status(502), Fault.cut(), Fault.truncated(1000)],
    ids=lambda fault: f"{fault.kind}-{fault.value:g}",
)
def test_a_passing_fault_is_retried(gcs_bucket: Bucket, fault: Fault) -> None:
    storage = gcs_bucket.open()
    storage.put("k", BIG)
    gcs_bucket.proxy.inject(fault, times=2)
    assert storage.get("k") == BIG
    gcs_bucket.proxy.inject(fault, times=2)
    assert storage.get_range("k", 100, 200_000) == BIG[100:200_100]


def test_one_attempt_is_one_request(gcs_bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    storage = gcs_bucket.open(own={"retry_seconds": 0})
    gcs_bucket.proxy.inject(Fault.status(503), times=None)
    for call in (lambda: storage.get("k"), lambda: storage.put("k", b""), lambda: list(storage.list())):
        with pytest.raises(StorageUnavailableError):
            call()
    assert len(gcs_bucket.proxy.requests) == 3
    assert not [record for record in caplog.records if record.name == "gcsfs"]


def test_a_lost_reply_of_a_create_is_a_success(gcs_bucket: Bucket) -> None:
    storage = gcs_bucket.open()
    gcs_bucket.proxy.inject(Fault.lost_reply(), method="POST")
    storage.put_new("k", b"mine")
    assert [(r.method, r.status) for r in gcs_bucket.proxy.requests] == [("POST", 0), ("POST", 412), ("GET", 200)]
    gcs_bucket.proxy.inject(Fault.lost_reply(), method="POST")
    with pytest.raises(ObjectExistsError):
        storage.put_new("k", b"other")


def test_a_server_that_ignores_ranges_gives_no_wrong_bytes(gcs_bucket: Bucket) -> None:
    storage = gcs_bucket.open()
    storage.put("k", BIG)
    gcs_bucket.proxy.inject(Fault.no_range(), times=None)
    assert storage.get_range("k", 5, 10) == BIG[5:15]
    assert storage.get_suffix("k", 9) == BIG[-9:]


def test_what_refusals_mean(gcs_bucket: Bucket) -> None:
    def refusal(status: int, message: str) -> Fault:
        return Fault.status(status, json.dumps({"error": {"code": status, "message": message}}).encode())

    storage = gcs_bucket.open()
    unsure = "someone does not have storage.objects.get access (or it may not exist)."
    for fault in (refusal(403, unsure), refusal(401, unsure), refusal(403, "forbidden")):
        gcs_bucket.proxy.inject(fault)
        with pytest.raises(ObjectMissingError, match="missing or not permitted") as caught:
            storage.get("k")
        assert caught.value.may_be_denied
    gcs_bucket.proxy.inject(refusal(401, "Invalid Credentials"))
    with pytest.raises(AccessDeniedError):
        storage.get("k")
    gcs_bucket.proxy.inject(refusal(403, "forbidden"))
    with pytest.raises(AccessDeniedError):
        storage.put("k", b"")


def test_opening_an_emulator_first_thing_does_not_block(gcs_bucket: Bucket) -> None:
    """In a new process, as the variable that matters is read when gcsfs is imported."""
    gcs_bucket.open().put("k", b"v")
    code = (
        "import sys; from replaypack.storage import open_storage\n"
        f"storage = open_storage({gcs_bucket.url!r}, {{'token': 'anon', 'endpoint_url': {gcs_bucket.server.url!r}}})\n"
        "assert storage.get('k') == b'v'\n"
        "import os; assert os.environ['GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT'] == 'false'\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50, env=environment)


def test_nothing_shown_holds_the_credentials(gcs_bucket: Bucket) -> None:
    token: Any = {"refresh_token": "canary-refresh", "client_secret": "canary-client", "client_id": "canary-id"}
    storage = gcs_bucket.open(token=token, own={"retry_seconds": 0})
    storage._filesystem = gcs_bucket.open()._fs()  # the token is no real one, so none is fetched with it
    body = b"refused: canary-refresh canary-client Authorization: Bearer ya29.canary-bearer"
    gcs_bucket.proxy.inject(Fault.status(400, body))
    with pytest.raises(OSError) as caught:
        storage.get("k")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "canary" not in f"{caught.value} {caught.value!r} {storage!r}"


def test_what_a_bucket_keeps(gcs_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = gcs_bucket.open()
    assert storage.keeps_deleted() is None
    said: dict[str, Any] = {}

    async def answer(fs: Any, bucket: str) -> dict[str, Any]:
        return said

    monkeypatch.setattr(type(storage), "_bucket", staticmethod(answer))
    for now, why in [
        ({"versioning": {"enabled": True}}, "keeps versions"),
        ({"retentionPolicy": {"retentionPeriod": "60"}}, "retention policy"),
        ({"softDeletePolicy": {"retentionDurationSeconds": "604800"}}, "for 604800 seconds"),
    ]:
        said.clear()
        said.update(now)
        assert why in storage.keeps_deleted()
    said.clear()
    said.update({"versioning": {"enabled": False}, "softDeletePolicy": {"retentionDurationSeconds": "0"}})
    assert storage.keeps_deleted() is None
