"""One file that is an archive: read where it lies, and nothing of others in it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive
from replaypack import open as open_recording
from replaypack.audit import Wanted, copy, zip_recordings
from replaypack.errors import RecordingExistsError, RecordingNotFoundError, StorageError, StorageFullError
from replaypack.storage import ZipWriter
from tests.storage.conftest import Bucket, proxied, s3_bucket
from tests.support.proxy import Proxy
from tests.support.servers import Server

__all__ = ["proxied", "s3_bucket"]

CANARY = "canary-of-another-recording"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "runs")
    with archive.recorder("other", redact=None) as recorder:
        for number in range(3):
            request = {"prompt": f"{CANARY} {number} " * 400}
            recorder.append(kind="model", identity=request, request=request, response=CANARY * 300)
    with archive.recorder("ours", base="other", redact=None) as recorder:
        for number in range(20):
            request = {"prompt": "what every request begins with " * 200 + str(number)}
            recorder.append(kind="model", identity=request, request=request, response={"answer": number})
    return archive


def answers(recording: Any) -> list[Any]:
    return [recording.record(number).response for number in range(len(recording))]


def test_the_file_is_an_archive(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    done = zip_recordings([Wanted(archive, ["ours"])], path)
    assert done.size == path.stat().st_size
    zipped = Archive(path)
    assert list(zipped.recordings()) == ["ours"]
    assert list(zipped.verify()) == []
    with zipped.open("ours") as recording, archive.open("ours") as original:
        assert recording.content_digest == original.content_digest
        assert answers(recording) == answers(original)
    with zipfile.ZipFile(path) as other:
        assert other.testzip() is None
        assert all(info.compress_type == zipfile.ZIP_STORED for info in other.infolist())
        assert other.namelist()[-1] == "recordings/ours/latest.json"


def test_nothing_of_another_recording_is_in_it(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    zip_recordings([Wanted(archive, ["ours"])], path)
    zipped = Archive(path)
    raw = path.read_bytes()
    import zstandard

    for info in zipped.storage.list("packs/"):
        raw += zstandard.ZstdDecompressor().stream_reader(zipped.storage.get(info.key), read_across_frames=True).read()
    assert CANARY.encode() not in raw


def test_there_and_back(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    zip_recordings([Wanted(archive)], path)
    back = Archive(tmp_path / "back")
    copy(Archive(path), back)
    for name in ("ours", "other"):
        assert back.open(name).content_digest == archive.open(name).content_digest
    assert list(back.verify()) == []


def test_recordings_of_several_archives_and_a_revision(archive: Archive, tmp_path: Path) -> None:
    second = Archive(tmp_path / "second")
    with second.recorder("theirs") as recorder:
        recorder.append(kind="tool", identity=1, response="one")
    with second.recorder("theirs", if_exists="append") as recorder:
        recorder.append(kind="tool", identity=2, response="two")
    path = tmp_path / "run.zip"
    zip_recordings([Wanted(archive, ["o*"]), Wanted(second, ["theirs"], 2)], path)
    zipped = Archive(path)
    assert list(zipped.recordings()) == ["other", "ours", "theirs"]
    assert answers(zipped.open("theirs")) == ["one"]
    with second.recorder("ours") as recorder:
        recorder.append(kind="tool", identity=1, response="another")
    with pytest.raises(RecordingExistsError):
        zip_recordings([Wanted(archive, ["ours"]), Wanted(second, ["ours"])], tmp_path / "twice.zip")
    assert not (tmp_path / "twice.zip").exists()


def test_nothing_is_left_where_it_fails(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RecordingNotFoundError):
        zip_recordings([Wanted(archive, ["none"])], tmp_path / "run.zip")

    def full(self: ZipWriter, operation: str, *parts: bytes) -> None:
        raise StorageFullError("no space left", operation=operation, url=self.url)

    with monkeypatch.context() as patch:
        patch.setattr(ZipWriter, "_write", full)
        with pytest.raises(StorageFullError):
            zip_recordings([Wanted(archive)], tmp_path / "run.zip")
    (tmp_path / "there.zip").write_bytes(b"mine")
    with pytest.raises(StorageError, match="already"):
        zip_recordings([Wanted(archive)], tmp_path / "there.zip")
    assert (tmp_path / "there.zip").read_bytes() == b"mine"
    assert sorted(set(tmp_path.iterdir()) - {tmp_path / "there.zip"}) == before


def test_without_the_requests(archive: Archive, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.zip", tmp_path / "part.zip"
    zip_recordings([Wanted(archive, ["other"])], whole)
    zip_recordings([Wanted(archive, ["other"])], part, responses_only=True)
    with Archive(part).open("other") as recording, Archive(whole).open("other") as original:
        assert recording.content_digest == original.content_digest
        assert answers(recording) == answers(original)


@pytest.fixture
def served(archive: Archive, static_server: Server, proxied: Callable[[Server], Proxy]) -> Iterator[Proxy]:
    pytest.importorskip("aiohttp")
    assert static_server.root
    zip_recordings([Wanted(archive, ["ours"])], static_server.root / "run.zip", overwrite=True)
    return proxied(static_server)


def test_a_small_one_is_read_over_http_with_one_get(archive: Archive, served: Proxy) -> None:
    with open_recording(f"{served.url}/run.zip#ours") as recording:
        assert answers(recording) == answers(archive.open("ours"))
    assert [request.method for request in served.requests] == ["GET"]


def test_through_a_presigned_url_with_get_alone(archive: Archive, s3_bucket: Bucket, tmp_path: Path) -> None:
    boto3 = pytest.importorskip("boto3")
    path = tmp_path / "run.zip"
    with archive.recorder("large", redact=None) as recorder:
        import random

        noise = random.Random(1)
        for number in range(4):
            recorder.append(kind="tool", identity=number, response=noise.randbytes(300_000))
    zip_recordings([Wanted(archive, ["large", "ours"])], path)
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=s3_bucket.server.url, **keys).upload_file(
        str(path), s3_bucket.name, "shared/run.zip"
    )
    client = boto3.client("s3", endpoint_url=s3_bucket.proxy.url, **keys)
    url = client.generate_presigned_url("get_object", {"Bucket": s3_bucket.name, "Key": "shared/run.zip"})
    with Archive(f"zip::{url}") as zipped, zipped.open("large") as recording:
        assert recording.record(2).response == archive.open("large").record(2).response
        assert "Signature" not in repr(recording)
    assert {request.method for request in s3_bucket.proxy.requests} == {"GET"}
    assert sum(1 for request in s3_bucket.proxy.requests) <= 5
