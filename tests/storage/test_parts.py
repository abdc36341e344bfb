"""URLs, options, redaction, retries, classification, and the proxy itself."""

from __future__ import annotations

import errno
import ftplib
import functools
import http.client
import http.server
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectMissingError,
    StorageError,
    StorageUnsupportedError,
)
from replaypack.storage import LocalStorage, MemoryStorage, open_storage
from replaypack.storage._credentials import CredentialFilter, safe_url
from replaypack.storage._errors import Kind, StatusError, build_error, classify
from replaypack.storage._protocol import is_key
from replaypack.storage._remote import content_range
from replaypack.storage._retry import LONGEST_WAIT, Retry
from tests.storage.conftest import Bucket
from tests.support.proxy import Fault, Proxy
from tests.support.servers import Server

# -- opening -----------------------------------------------------------------------------------------------


def test_what_opens_what(tmp_path: Path) -> None:
    (tmp_path / "folder.zip").mkdir()
    for url in (str(tmp_path), tmp_path, f"file://{tmp_path}", f"local://{tmp_path}", "relative/path", "./x"):
        assert type(open_storage(url)) is LocalStorage
    assert open_storage(f"file://{tmp_path}").local_path == tmp_path
    assert open_storage("relative").local_path == Path.cwd() / "relative"
    assert type(open_storage("memory://x")) is MemoryStorage
    names = {
        "s3://b/p": "S3Storage",
        "s3a://b/p": "S3Storage",
        "gs://b/p": "GCSStorage",
        "gcs://b/p": "GCSStorage",
        "az://c/p": "AzureStorage",
        "abfs://c@a.example/p": "AzureStorage",
        "https://h/p": "HttpStorage",
        "sftp://h/p": "FsspecStorage",
        "https://h/p.zip?sig=x": "ZipStorage",
        "zip::https://h/p?sig=x": "ZipStorage",
        "zip://inner::s3://b/p.zip": "ZipStorage",
        f"zip://{tmp_path}/p.zip": "ZipStorage",
        f"{tmp_path}/p.zip": "ZipStorage",
        f"{tmp_path}/folder.zip": "LocalStorage",
    }
    for url, name in names.items():
        assert type(open_storage(url)).__name__ == name, url


def test_a_cache_in_between_is_refused() -> None:
    with pytest.raises(StorageUnsupportedError, match="never sees another writer"):
        open_storage("simplecache::s3://b/p")


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"retry_seconds": "abc"}, "'replaypack.retry_seconds' must be a number, not text"),
        ({"retry_seconds": -1}, "'replaypack.retry_seconds' must be 0 or more"),
        ({"retry_seconds": float("nan")}, "'replaypack.retry_seconds' must be 0 or more"),
        ({"request_seconds": 0}, "'replaypack.request_seconds' must be more than 0"),
        ({"request_seconds": True}, "must be a number, not true or false"),
        ({"max_concurrency": 1.5}, "must be a whole number, not a fraction"),
        ({"max_concurrency": 0}, "must be more than 0"),
        ({"read_only": "yes"}, "must be true or false, not text"),
        ({"fsync": None}, "must be true or false, not null"),
        ({"retry_secs": 3}, "there is no storage option 'replaypack.retry_secs' .did you mean retry_seconds.* known: "),
        ({"zzz": 3}, "there is no storage option 'replaypack.zzz' .known: "),
        (5, "the storage option 'replaypack' is not a mapping"),
        (0, "the storage option 'replaypack' is not a mapping"),
    ],
)
def test_options_of_ours_are_checked(own: object, says: str) -> None:
    for url in ("s3://me:canary@b/p", "memory://b", "b"):
        with pytest.raises(StorageUnsupportedError, match=rf"^opening .*b\S*: .*{says}") as caught:
            open_storage(url, {"replaypack": own})
        assert "canary" not in str(caught.value)


def test_options_of_ours_that_are_fine() -> None:
    assert open_storage("memory://b", {"replaypack": None}).read_only is False
    own = {"retry_seconds": 0, "request_seconds": 1, "max_gap": 0, "max_concurrency": 1, "read_only": True}
    assert open_storage("memory://b", {"replaypack": own}).read_only is True


@pytest.mark.parametrize("url", ["s3://b/p", "gs://b/p", "zip::s3://b/p.zip"])
def test_an_endpoint_has_a_scheme(url: str) -> None:
    for endpoint in ("127.0.0.1:5599", "canary-host", "htp://canary", 5):
        with pytest.raises(StorageUnsupportedError, match="'endpoint_url' does not begin with http://") as caught:
            open_storage(url, {"endpoint_url": endpoint})
        assert "canary" not in str(caught.value)
        assert caught.value.hint == "write e.g. endpoint_url=http://127.0.0.1:9000"
        with pytest.raises(StorageUnsupportedError, match=r"'client_kwargs\.endpoint_url' does not begin with"):
            open_storage(url, {"client_kwargs": {"endpoint_url": endpoint}})
    for fine in ("http://h:1", "HTTPS://h", "", None):
        open_storage(url, {"endpoint_url": fine, "client_kwargs": {"endpoint_url": fine}})


def test_an_option_that_a_filesystem_does_not_have() -> None:
    for name in ("AioSession.__init__", "ClientSession._request", "AioSession.create_client"):
        failure = classify(TypeError(f"{name}() got an unexpected keyword argument 'foo'"), reading=True)
        assert (failure.kind, failure.retry) == (Kind.UNSUPPORTED, False)
        assert failure.message == "the filesystem has no storage option 'foo'"
    assert classify(TypeError("f() got an unexpected keyword argument 'x'"), reading=True).kind is Kind.FAILED
    failure = classify(ValueError("Invalid endpoint: h:1"), reading=True)
    assert failure.kind is Kind.UNSUPPORTED
    assert "http://" in failure.message


def test_a_create_that_cannot_be_read_back_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    storage.put("k", b"theirs")

    def missing(key: str) -> bytes:
        raise ObjectMissingError("missing or not permitted")

    monkeypatch.setattr(storage, "get", missing)
    with pytest.raises(ObjectExistsError):
        storage.put_new("k", b"ours")


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(StorageUnsupportedError, match="retries"):
        open_storage("memory://x", {"replaypack": {"retries": 3}})


def test_the_import_is_cheap() -> None:
    """Neither fsspec nor any client is imported until a URL of theirs is used."""
    code = (
        "import sys; import replaypack.storage as s; s.open_storage('x'); s.open_storage('s3://b/p')\n"
        "loaded = {'fsspec', 's3fs', 'gcsfs', 'botocore', 'aiohttp', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    import os

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


@given(st.text("ab./-_~\\\0 é", max_size=12))
def test_no_key_leads_out_of_the_archive(text: str) -> None:
    if is_key(text):
        assert not text.startswith("/")
        assert ".." not in text.split("/")
        assert "." not in text.split("/")
        assert "" not in text.split("/")
        assert not set(text) & set("\\\0~ é")


# -- redaction ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a", "s3://bucket/a"),
        ("https://user:pw@h/a?X-Amz-Signature=1#x", "https://h/a"),
        ("sftp://me:p%40ss@h:22/a", "sftp://h:22/a"),
        ("sftp://me:p@s s@h:22/a@b", "sftp://h:22/a@b"),
        ("s3://key:a::b@bucket/x", "s3://bucket/x"),
        ("zip::https://me:p@[::1]:8080/x.zip?sig=1", "zip::https://[::1]:8080/x.zip"),
        ("zip://in::https://u:p@h/a.zip?sig=1", "zip://in::https://h/a.zip"),
        ("simplecache::s3://k:s@b/a", "simplecache::s3://b/a"),
        ("/a/path?with#odd", "/a/path?with#odd"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert safe_url(url) == shown


def test_what_a_message_loses() -> None:
    options = {
        "key": "canary-key",
        "secret": "canary/secret+1",
        "client_kwargs": {"aws_session_token": "canary-token", "region_name": "eu-central-1"},
        "headers": {"Authorization": "Bearer canary-bearer"},
        "connection_string": "AccountName=x;AccountKey=canary-account",
        "nested": [{"password": b"canary-bytes"}],
        "endpoint_url": "https://me:canary-pass@minio.example/?t=canary-query",
    }
    credentials = CredentialFilter("https://u:canary-url-pass@h/a?sv=2024&sig=canary%2Fsig", options)
    text = (
        "eu-central-1 minio.example canary-key canary/secret+1 canary%2Fsecret%2B1 canary-token canary-bytes "
        "Bearer canary-bearer AccountName=x;AccountKey=canary-account https://me:canary-pass@minio.example/?t=1 "
        "https://other/x?X-Amz-Signature=canary-presigned&y=1 sig=canary-sig 'X-Amz-Credential': canary-credential "
        "Authorization: AWS4-HMAC-SHA256 canary-auth sig=canary%2Fsig canary-url-pass canary-query"
    )
    cleaned = credentials.clean(text)
    assert "canary" not in cleaned, cleaned
    assert cleaned.startswith("eu-central-1 minio.example")
    assert "canary" not in repr(credentials)
    assert len(credentials.clean("x" * 5000)) < 400


# -- retries ----------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def run(retry_seconds: float, *, jitter: float, failures: int, each: float = 0.0) -> tuple[Clock, int]:
    clock = Clock()
    attempts = 0

    def attempt() -> int:
        nonlocal attempts
        attempts += 1
        clock.now += each
        if attempts <= failures:
            raise ConnectionError
        return attempts

    retry = Retry(retry_seconds, clock=lambda: clock.now, sleep=clock.sleep, jitter=lambda: jitter)
    try:
        retry.run(attempt, lambda error: True)
    except ConnectionError:
        pass
    return clock, attempts


def test_waits_double_up_to_a_limit() -> None:
    clock, attempts = run(1000, jitter=1.0, failures=10)
    assert attempts == 11
    assert clock.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT])


def test_no_attempt_begins_after_the_time_is_up() -> None:
    clock, _ = run(60, jitter=1.0, failures=10**6)
    assert sum(clock.slept) < 60
    clock, attempts = run(60, jitter=0.5, failures=10**6, each=25.0)
    assert attempts == 3  # at 0, about 25 and about 50 seconds
    assert run(0, jitter=0.0, failures=9)[1] == 1


def test_what_will_not_pass_is_not_tried_again() -> None:
    def attempt() -> None:
        calls.append(1)
        raise ValueError

    calls: list[int] = []
    with pytest.raises(ValueError):
        Retry(60).run(attempt, lambda error: False)
    assert len(calls) == 1


# -- classification ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "message", "reading", "kind", "retry"),
    [
        (404, "NoSuchKey", "", True, Kind.MISSING, False),
        (403, "AccessDenied", "", True, Kind.MISSING_OR_DENIED, False),
        (403, "", "", True, Kind.MISSING_OR_DENIED, False),
        (403, "AccessDenied", "", False, Kind.DENIED, False),
        (403, "AccessDenied", "Request has expired", True, Kind.DENIED, False),
        (403, "SignatureDoesNotMatch", "", True, Kind.DENIED, False),
        (403, "", "Rate limit exceeded", True, Kind.UNAVAILABLE, True),
        (401, "", "", True, Kind.DENIED, False),
        (409, "ConditionalRequestConflict", "", False, Kind.UNAVAILABLE, True),
        (409, "BlobAlreadyExists", "", False, Kind.EXISTS, False),
        (412, "", "", False, Kind.EXISTS, False),
        (416, "", "", True, Kind.TOO_SHORT, False),
        (429, "", "", True, Kind.UNAVAILABLE, True),
        (500, "", "", True, Kind.UNAVAILABLE, True),
        (501, "NotImplemented", "", False, Kind.UNSUPPORTED, False),
        (507, "", "", False, Kind.FULL, False),
        (418, "", "", True, Kind.FAILED, False),
    ],
)
def test_what_an_answer_means(status: int, code: str, message: str, reading: bool, kind: Kind, retry: bool) -> None:
    failure = classify(StatusError(status, code, message), reading=reading)
    assert (failure.kind, failure.retry) == (kind, retry)


@pytest.mark.parametrize(
    ("error", "kind", "retry"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), Kind.UNAVAILABLE, True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), Kind.UNAVAILABLE, True),
        (OSError(errno.EHOSTUNREACH, "No route to host"), Kind.UNAVAILABLE, True),
        (ssl.SSLCertVerificationError("self-signed"), Kind.UNAVAILABLE, False),
        (ssl.SSLError("wrong version number"), Kind.UNAVAILABLE, True),
        (TimeoutError("timed out"), Kind.TIMEOUT, True),
        (ftplib.error_perm("530 Login incorrect."), Kind.DENIED, False),
        (ftplib.error_perm("550 x: No such file or directory"), Kind.MISSING, False),
        (ftplib.error_perm("550 x: Permission denied"), Kind.DENIED, False),
        (ftplib.error_perm("550 something else"), Kind.FAILED, False),
        (ftplib.error_perm("552 quota exceeded"), Kind.FULL, False),
        (ftplib.error_perm("502 no such command"), Kind.UNSUPPORTED, False),
        (ftplib.error_temp("421 too many users"), Kind.UNAVAILABLE, True),
        (TypeError("F.__init__() missing 1 required positional argument: 'url'"), Kind.UNSUPPORTED, False),
        (ValueError("Protocol not known: nosuch"), Kind.UNSUPPORTED, False),
    ],
)
def test_what_exceptions_mean(error: Exception, kind: Kind, retry: bool) -> None:
    failure = classify(error, reading=False)
    assert (failure.kind, failure.retry) == (kind, retry)


@pytest.mark.parametrize(
    "url", ["ftp://[x", "http://h:99999/x", "sftp://me:canary@h:port/x", "s3://", "https:///x", "zip::ftp://[x/a.zip"]
)
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(StorageUnsupportedError) as caught:
        open_storage(url)
    assert caught.value.hint is not None
    assert "canary" not in str(caught.value)


def test_an_address_in_brackets_is_no_chain_of_urls(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    (tmp_path / "k").write_bytes(b"value")
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    handler = functools.partial(quiet, directory=str(tmp_path))
    server_type = type("Server", (http.server.ThreadingHTTPServer,), {"address_family": socket.AF_INET6})
    try:
        server = server_type(("::1", 0), handler)
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://[::1]:{server.server_address[1]}"
        with open_storage(url) as storage:
            assert (storage.url, storage.get("k")) == (url, b"value")
        server.shutdown()


def test_an_access_point_is_a_url() -> None:
    assert open_storage("s3://arn:aws:s3:eu-central-1:123456789012:accesspoint/x/a")


def test_every_kind_becomes_its_error() -> None:
    for kind in Kind:
        failure = classify(StatusError(418), reading=True)
        error = build_error(type(failure)(kind, "m"), operation="get", url="s3://b/k", message="cleaned")
        assert isinstance(error, StorageError)
        assert str(error).startswith("reading s3://b/k: ")
        assert isinstance(error, ObjectMissingError) == (kind in (Kind.MISSING, Kind.MISSING_OR_DENIED))
        assert isinstance(error, AccessDeniedError) == (kind is Kind.DENIED)


def test_messages_speak_of_what_is_done_and_not_of_methods(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    seen = []
    for storage in (MemoryStorage(), LocalStorage(tmp_path), open_storage("s3://b/a")):
        storage.read_only = True
        attempts: list[Callable[[], object]] = [
            lambda storage=storage: storage.put_new("k", b""),
            lambda storage=storage: storage.put("k", b""),
            lambda storage=storage: storage.delete("k"),
            lambda storage=storage: storage.get_range("../k", 0, 1),
            lambda storage=storage: storage.get_suffix("../k", 1),
            lambda storage=storage: storage.get("../k"),
        ]
        for attempt in attempts:
            with pytest.raises(StorageError) as caught:
                attempt()
            seen.append(str(caught.value))
    with pytest.raises(StorageError) as caught:
        LocalStorage(tmp_path).get_range("file", 0, 9)
    assert str(caught.value) == f"reading a part of {file}: the object ends at byte 1, before byte 9"
    assert {" ".join(text.split()[:1]) for text in seen} == {"writing", "deleting", "reading"}


def test_content_ranges() -> None:
    assert content_range("bytes 5-9/20", status=206, announced=5) == (5, 20)
    assert content_range("bytes 5-9/*", status=206, announced=5) == (5, None)
    assert content_range(None, status=206, announced=5) == (None, None)
    assert content_range("pages 1-2/3", status=206, announced=5) == (None, None)
    assert content_range(None, status=200, announced=20) == (0, 20)


# -- the proxy ---------------------------------------------------------------------------------------------


def test_the_proxy_counts_depth_and_sees_ranges(static_server: Server) -> None:
    assert static_server.root
    (static_server.root / "f").write_bytes(b"0123456789")
    with Proxy(static_server.url) as proxy:

        def get(spec: str) -> bytes:
            request = urllib.request.Request(f"{proxy.url}/f", headers={"Range": f"bytes={spec}"})
            data: bytes = urllib.request.urlopen(request).read()
            return data

        assert get("2-4") == b"234"
        proxy.inject(Fault.meet(5), times=5)
        threads = [threading.Thread(target=get, args=(f"{i}-{i}",)) for i in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        get("0-0")
        assert len(proxy.requests) == 7
        assert proxy.depth() == 3
        assert proxy.requests[0].range == "bytes=2-4"
        assert proxy.requests[0].status == 206
        proxy.clear()
        with proxy.recording() as seen:
            get("1-1")
        assert [r.bare_path for r in seen] == ["/f"]
        proxy.inject(Fault.cut())
        with pytest.raises((OSError, http.client.HTTPException)):
            get("0-0")
        proxy.inject(Fault.status(503), when=lambda request: request.range == "bytes=9-9")
        assert get("0-0") == b"0"
        with pytest.raises(OSError):
            get("9-9")


def test_logs_hold_no_credentials(s3_bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    """Ours, at any level; other libraries' debug logs are theirs, but they are quiet at INFO."""
    caplog.set_level("INFO")
    storage: Any = s3_bucket.open(own={"retry_seconds": 0.3})
    s3_bucket.proxy.inject(Fault.s3(503, "SlowDown"), times=None)
    with pytest.raises(StorageError):
        storage.get("k")
    assert "canary" not in caplog.text.lower()
