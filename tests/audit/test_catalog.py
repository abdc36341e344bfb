"""The catalog: what an archive lists where its store cannot."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack import Archive
from replaypack.audit import write_catalog
from replaypack.errors import (
    AccessDeniedError,
    FormatError,
    ObjectMissingError,
    ReadOnlyStorageError,
    ReplaypackWarning,
    StorageUnsupportedError,
)
from replaypack.format.catalog import CATALOG, CatalogEntry, encode_catalog, parse_catalog
from replaypack.format.frame import Compressor, decompress
from replaypack.storage import LocalStorage, ObjectInfo


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "runs")
    for name in ("b/two", "a", "b/one"):
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", identity={"name": name}, response=name)
    return archive


@pytest.fixture
def web(archive: Archive) -> Iterator[Archive]:
    """The archive behind a web server, which cannot list."""
    pytest.importorskip("aiohttp")
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    handler = functools.partial(quiet, directory=str(archive.storage.local_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Archive(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def test_it_says_of_each_recording_what_its_manifest_says(archive: Archive) -> None:
    done = write_catalog(archive)
    assert [entry.name for entry in done.catalog.entries] == ["a", "b/one", "b/two"]
    assert parse_catalog(archive.storage.get(CATALOG)) == done.catalog
    for entry in done.catalog.entries:
        with archive.open(entry.name) as recording:
            manifest = recording.manifest
            assert (entry.content, entry.manifest) == (manifest.content_digest, manifest.digest)
            assert (entry.records, entry.counts, entry.state) == (1, {"tool": 1}, "sealed")
            assert entry.bytes == sum(pack.size for pack in recording.index.packs)


def test_a_web_server_lists_by_it_and_says_so(archive: Archive, web: Archive) -> None:
    with pytest.raises(StorageUnsupportedError) as caught:
        list(web.recordings())
    assert "catalog" in (caught.value.hint or "")
    write_catalog(archive)
    with pytest.warns(ReplaypackWarning, match="catalog of 20"):
        assert list(web.recordings()) == ["a", "b/one", "b/two"]
    with pytest.warns(ReplaypackWarning):
        assert list(web.recordings("b/")) == ["b/one", "b/two"]
    assert web.open("b/two").lookup("tool", {"name": "b/two"}) is not None


def test_of_a_catalog_that_cannot_be_read_it_is_said_what_to_do(archive: Archive, web: Archive) -> None:
    write_catalog(archive)
    raw = decompress(archive.storage.get(CATALOG))
    newer = Compressor()(raw.replace(b'"version":1', b'"version":2', 1))
    for data, hint in ((archive.storage.get(CATALOG)[:-5], "writes it anew"), (newer, "upgrade replaypack")):
        archive.storage.put(CATALOG, data)
        with pytest.raises(FormatError) as caught:
            list(web.recordings())
        assert hint in (caught.value.hint or "")
    assert len(web.open("b/two")) == 1


def test_a_catalog_is_not_made_where_nothing_is_listed(archive: Archive, web: Archive) -> None:
    write_catalog(archive)
    with pytest.raises(ReadOnlyStorageError):
        write_catalog(web)


def test_a_bucket_that_permits_no_listing_is_listed_by_it(archive: Archive) -> None:
    class NoList(LocalStorage):
        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            raise AccessDeniedError("not permitted", operation="list", url=self.url)

    assert archive.storage.local_path is not None
    readers = Archive("", storage=NoList(archive.storage.local_path))
    for ask in (lambda: list(readers.recordings()), lambda: write_catalog(readers)):
        with pytest.raises(AccessDeniedError):
            ask()
    write_catalog(archive)
    with pytest.raises(AccessDeniedError):  # a catalog is not made of a catalog
        write_catalog(readers)
    with pytest.warns(ReplaypackWarning):
        assert list(readers.recordings()) == ["a", "b/one", "b/two"]


def test_a_recording_that_cannot_be_read_is_left_out_and_named(archive: Archive) -> None:
    root = archive.storage.local_path
    assert root is not None
    for path in (root / "recordings" / "b" / "one").iterdir():
        path.write_bytes(b"{}")
    done = write_catalog(archive)
    assert [entry.name for entry in done.catalog.entries] == ["a", "b/two"]
    [fault] = done.faults
    assert fault.recording == "b/one"
    assert fault.code.startswith("manifest.")


def test_an_empty_place_is_no_archive(tmp_path: Path, archive: Archive) -> None:
    with pytest.raises(ObjectMissingError):
        write_catalog(Archive(tmp_path / "none"))
    assert archive.storage.local_path is not None
    shutil.rmtree(archive.storage.local_path / "recordings")
    assert write_catalog(archive).catalog.entries == []


def entry(name: str) -> CatalogEntry:
    return CatalogEntry(
        name=name, revision=2, cause="seal", state="sealed", started="2026-01-01T00:00:00Z", records=1, purged=0,
        withheld=[], counts={"tool": 1}, bytes=5, content="0" * 64, manifest="1" * 64, recorded_by="t",
    )  # fmt: skip


HEAD = b'{"created":"2026-01-01T00:00:00Z","format":"replaypack-catalog","recordings":1,"version":1}\n'


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"x", "corrupted"),
        (b"[]\n", "corrupted"),
        (HEAD, "corrupted"),
        (HEAD + b"{}\n", "corrupted"),
        (HEAD.replace(b"replaypack-catalog", b"other"), "corrupted"),
        (HEAD.replace(b'"version":1', b'"version":2'), "future_version"),
        (HEAD + b"[" * 100_000 + b"\n", "corrupted"),
    ],
)
def test_what_is_no_catalog_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_catalog(Compressor(3)(raw))
    assert caught.value.reason == reason


@pytest.mark.parametrize("names", [["../x"], ["a", "a"], ["b", "a"]])
def test_names_that_are_none_and_lines_out_of_order_are_refused(names: list[str]) -> None:
    import msgspec

    lines = [msgspec.json.encode(entry(name)) for name in names]
    head = HEAD.replace(b'"recordings":1', b'"recordings":%d' % len(names))
    with pytest.raises(FormatError, match="line"):
        parse_catalog(Compressor(3)(head + b"".join(line + b"\n" for line in lines)))


@given(st.binary(max_size=200) | st.binary(min_size=1, max_size=300).map(Compressor(3)))
def test_any_bytes_are_a_catalog_or_refused(data: bytes) -> None:
    try:
        parse_catalog(data)
    except FormatError:
        pass


@given(st.sets(st.from_regex(r"[a-z]{1,4}(/[a-z0-9]{1,3})?", fullmatch=True), max_size=6))
def test_what_is_written_is_read(names: set[str]) -> None:
    from replaypack.format.names import is_name

    entries = [entry(name) for name in names if is_name(name)]
    assert parse_catalog(encode_catalog("2026-01-01T00:00:00Z", entries)).entries == sorted(
        entries, key=lambda entry: entry.name
    )
