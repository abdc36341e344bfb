"""What `verify` says where nothing can be listed: a web server, a bucket without the permission."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.audit import LEVELS, verify_archive, write_catalog
from replaypack.errors import AccessDeniedError, ReplaypackWarning
from replaypack.storage import LocalStorage, ObjectInfo

from .support import NAME, flip, packs

pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be listed")


class _NoList(LocalStorage):
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        raise AccessDeniedError("not permitted", operation="list", url=self.url)


@pytest.fixture(params=["http", "bucket"])
def unlisted(archive_path: Path, request: pytest.FixtureRequest) -> Iterator[Archive]:
    if request.param == "bucket":
        yield Archive(archive_path, storage=_NoList(archive_path))
        return
    pytest.importorskip("aiohttp")
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    handler = functools.partial(quiet, directory=str(archive_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Archive(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def _codes(archive: Archive, **options: object) -> set[str]:
    return {fault.code for fault in verify_archive(archive, [NAME], **options)}  # type: ignore[arg-type]


@pytest.mark.parametrize("level", LEVELS)
def test_a_sound_recording_is_sound_and_what_was_not_looked_at_is_said(unlisted: Archive, level: str) -> None:
    with pytest.warns(ReplaypackWarning, match="older revisions, and signatures without a key, are not looked at"):
        assert _codes(unlisted, level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cut", [0, 100])
def test_a_damaged_latest_is_a_fault_and_not_the_only_one(
    unlisted: Archive, archive_path: Path, level: str, cut: int
) -> None:
    latest = archive_path / "recordings" / NAME / "latest.json"
    latest.write_bytes(latest.read_bytes()[:cut])
    assert _codes(unlisted, level=level) == {"latest.corrupted"}
    packs(archive_path)[0].unlink()
    assert "latest.corrupted" in _codes(unlisted, level=level)
    assert ("pack.missing" in _codes(unlisted, level=level)) is (level != "manifest")


def test_a_missing_latest_is_a_fault(unlisted: Archive, archive_path: Path) -> None:
    (archive_path / "recordings" / NAME / "latest.json").unlink()
    assert _codes(unlisted) == {"latest.missing"}


def test_the_revision_that_latest_repeats_is_looked_at(unlisted: Archive, archive_path: Path) -> None:
    revision = archive_path / "recordings" / NAME / "00000002.json"
    data = revision.read_bytes()
    flip(revision, 200)
    assert _codes(unlisted, level="manifest") == {"manifest.corrupted"}
    revision.write_bytes((revision.parent / "00000001.json").read_bytes())
    assert "manifest.misplaced" in _codes(unlisted, level="manifest")
    revision.unlink()
    assert _codes(unlisted, level="manifest") == {"manifest.missing"}
    revision.write_bytes(data)
    assert _codes(unlisted, level="manifest") == set()


def test_a_recording_that_is_in_the_catalog_alone_is_missing(unlisted: Archive, archive_path: Path) -> None:
    write_catalog(Archive(archive_path))
    assert list(verify_archive(unlisted)) == []
    for manifest in (archive_path / "recordings" / NAME).iterdir():
        manifest.unlink()
    [fault] = verify_archive(unlisted)
    assert (fault.code, fault.recording) == ("manifest.missing", NAME)
