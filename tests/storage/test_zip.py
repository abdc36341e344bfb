"""One zip file, local and behind a URL. It is untrusted."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from replaypack.errors import FormatError, ObjectMissingError, ReplaypackError, StorageUnsupportedError
from replaypack.storage import Storage, open_storage
from tests.storage.conftest import Bucket
from tests.storage.contract import BIG, OBJECTS, ReadContract
from tests.support.proxy import Proxy
from tests.support.servers import Server


def packed(objects: Mapping[str, bytes], *, method: int = zipfile.ZIP_STORED, streamed: bool = False) -> bytes:
    class Pipe(io.RawIOBase):
        """Not seekable: sizes then follow the data."""

        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            self.data += bytes(data)  # type: ignore[call-overload]
            return len(data)  # type: ignore[arg-type]

    target = Pipe() if streamed else io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in objects.items():
            archive.writestr(name, data)
    return bytes(target.data) if isinstance(target, Pipe) else target.getvalue()


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[bytes], Storage]:
    def write(data: bytes) -> Storage:
        (tmp_path / "a b.zip").write_bytes(data)
        return open_storage(str(tmp_path / "a b.zip"))

    return write


class TestZip(ReadContract):
    @pytest.fixture
    def reader(self, opened: Callable[[bytes], Storage]) -> Storage:
        return opened(packed(OBJECTS))


class TestStreamedZip(ReadContract):
    """Written to a pipe: sizes stand behind the data, so the data is not where it is first looked for."""

    @pytest.fixture
    def reader(self, opened: Callable[[bytes], Storage]) -> Storage:
        return opened(packed(OBJECTS, streamed=True))


class TestZipOverHttp(ReadContract):
    @pytest.fixture
    def reader(self, static_server: Server) -> Iterator[Storage]:
        assert static_server.root
        (static_server.root / "a.zip").write_bytes(packed(OBJECTS))
        with open_storage(f"{static_server.url}/a.zip") as storage:
            yield storage


def test_over_http_it_takes_gets_alone_and_few(static_server: Server, proxied: Callable[[Server], Proxy]) -> None:
    assert static_server.root
    objects = {f"packs/{i}.rpk": bytes([i]) * 300_000 for i in range(5)}
    (static_server.root / "one.zip").write_bytes(packed(objects))
    proxy = proxied(static_server)
    with open_storage(f"zip::{proxy.url}/one.zip?X-Amz-Signature=canary") as storage:
        assert storage.get("packs/3.rpk") == objects["packs/3.rpk"]
        assert [r.method for r in proxy.requests] == ["GET", "GET"]
        assert storage.get_range("packs/1.rpk", 7, 9) == bytes([1]) * 9
        assert storage.get_range("packs/1.rpk", 9, 9) == bytes([1]) * 9
        assert len(proxy.requests) == 4
        assert all(r.path.endswith("?X-Amz-Signature=canary") for r in proxy.requests)
        assert "canary" not in repr(storage)


def test_on_s3(s3_bucket: Bucket) -> None:
    s3_bucket.open().put("shared.zip", packed(OBJECTS))
    options = {**s3_bucket.options, "endpoint_url": s3_bucket.proxy.url}
    s3_bucket.proxy.clear()
    with open_storage(f"{s3_bucket.url}/shared.zip", options) as storage:
        assert storage.get("packs/ab/big.rpk") == BIG
    assert s3_bucket.proxy.methods() == ["GET", "GET"]


def test_an_archive_in_a_folder_of_it(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(packed({f"my/runs/{key}": data for key, data in OBJECTS.items()} | {"my/x": b""}))
    with open_storage(f"zip://my/runs::{tmp_path}/x.zip") as storage:
        assert storage.get("recordings/run/latest.json") == b"{}"
        assert sorted(info.key for info in storage.list()) == sorted(OBJECTS)


def test_entries_that_are_no_keys_are_passed_over(opened: Callable[[bytes], Storage]) -> None:
    storage = opened(packed({"../evil": b"1", "/abs": b"2", "a b": b"3", "dir/": b"", "good": b"4"}))
    assert [info.key for info in storage.list()] == ["good"]
    with pytest.raises(ObjectMissingError):
        storage.get("evil")


def test_a_zip64_directory(opened: Callable[[bytes], Storage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    data = packed({"a": b"x" * 5000, "b": b"y" * 5000})
    assert b"PK\x06\x06" in data
    storage = opened(data)
    assert storage.get("b") == b"y" * 5000
    assert storage.get_range("a", 4990, 10) == b"x" * 10


def test_a_directory_larger_than_the_first_read(opened: Callable[[bytes], Storage]) -> None:
    storage = opened(packed({f"recordings/{'r' * 50}{i}/latest.json": b"%d" % i for i in range(2000)}))
    assert storage.get(f"recordings/{'r' * 50}1234/latest.json") == b"1234"
    assert sum(1 for _ in storage.list()) == 2000


def test_compressed_and_encrypted_entries_are_refused(opened: Callable[[bytes], Storage]) -> None:
    with pytest.raises(StorageUnsupportedError, match="compressed"):
        opened(packed({"k": b"x" * 1000}, method=zipfile.ZIP_DEFLATED)).get("k")
    data = bytearray(packed({"k": b"x"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(StorageUnsupportedError, match="encrypted"):
        opened(bytes(data)).get("k")


def patched(data: bytes, signature: bytes, offset: int, layout: str, value: int | bytes) -> bytes:
    at = data.rindex(signature) + offset
    size = struct.calcsize(layout)
    return data[:at] + struct.pack(layout, value) + data[at + size :]


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "not a zip file": lambda data: b"no zip at all",
    "empty": lambda data: b"",
    "cut": lambda data: data[:-5],
    "bytes before": lambda data: b"#!" + data,
    "bytes behind": lambda data: data + b"x",
    "too many entries": lambda data: patched(
        patched(data, b"PK\x05\x06", 8, "<H", 60000), b"PK\x05\x06", 10, "<H", 60000
    ),
    "huge directory": lambda data: patched(data, b"PK\x05\x06", 12, "<L", 0xFFFFFFF0),
    "directory elsewhere": lambda data: patched(data, b"PK\x05\x06", 16, "<L", 5),
    "second disk": lambda data: patched(data, b"PK\x05\x06", 4, "<H", 1),
    "size beyond the file": lambda data: patched(
        patched(data, b"PK\x01\x02", 20, "<L", 9999), b"PK\x01\x02", 24, "<L", 9999
    ),
    "offset beyond the file": lambda data: patched(data, b"PK\x01\x02", 42, "<L", 1 << 30),
    "overlap": lambda data: patched(data, b"PK\x01\x02", 42, "<L", 0),
    "local header elsewhere": lambda data: patched(data, b"PK\x03\x04", 0, "<4s", b"XXXX"),
    "local header of another name": lambda data: patched(data, b"PK\x03\x04", 30, "<4s", b"evil"),
    "local header compressed": lambda data: patched(data, b"PK\x03\x04", 8, "<H", 8),
    "local header of another size": lambda data: patched(data, b"PK\x03\x04", 22, "<L", 1),
    "local header into the data": lambda data: patched(data, b"PK\x03\x04", 28, "<H", 60000),
    "local header moves the data": lambda data: patched(data, b"PK\x03\x04", 28, "<H", 3),
    "wrong checksum": lambda data: data.replace(b"secondsecond", b"secondSecond"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_faulty_file_is_refused(opened: Callable[[bytes], Storage], what: str) -> None:
    data = HOSTILE[what](packed({"first.json": b"first" * 10, "second.json": b"second" * 10}))
    with pytest.raises(FormatError):
        opened(data).get("second.json")


def test_two_entries_of_one_name_are_refused(opened: Callable[[bytes], Storage]) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("k", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("k", b"2")
    with pytest.raises(FormatError, match="two entries"):
        opened(target.getvalue()).get("k")


def test_random_damage_is_an_error_of_ours_or_no_damage(opened: Callable[[bytes], Storage]) -> None:
    objects = {"a": b"1" * 50, "dir/b": b"2" * 50}
    data = packed(objects)
    source = random.Random(7)
    for _ in range(1500):
        damaged = bytearray(data)
        for _ in range(source.randint(1, 3)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        storage = opened(bytes(damaged))
        for key, expected in objects.items():
            try:
                assert storage.get(key) == expected
            except ReplaypackError:
                pass


def test_an_empty_zip_file_holds_nothing(opened: Callable[[bytes], Storage]) -> None:
    storage = opened(packed({}))
    assert list(storage.list()) == []
    with pytest.raises(ObjectMissingError):
        storage.get("replaypack.json")
