"""Any other fsspec filesystem, and Azure, whose client is stood in for."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

import replaypack
from replaypack import Archive
from replaypack.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectTooShortError,
    StorageError,
    StorageUnavailableError,
    StorageUnsupportedError,
    WeakGuaranteeWarning,
)
from replaypack.storage import Storage, open_storage
from replaypack.storage._azure import AzureStorage
from replaypack.storage._options import StorageOptions
from tests.storage.contract import BIG, StorageContract
from tests.support.names import no_invalid_hosts

_numbers = itertools.count()


class PlainFileSystem(LocalFileSystem):
    """Stands for sftp and the like: synchronous, and without a create of its own."""

    protocol = "plaintest"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        assert mode == "overwrite"
        temporary = f"{path}~{next(_numbers)}"
        with open(self._strip_protocol(temporary), "wb") as file:
            file.write(value)
        os.replace(self._strip_protocol(temporary), self._strip_protocol(path))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        text = str(path).removeprefix("plaintest://")
        return super()._strip_protocol(text)


fsspec.register_implementation("plaintest", PlainFileSystem, clobber=True)


@pytest.mark.filterwarnings("ignore::replaypack.errors.WeakGuaranteeWarning")
class TestGeneric(StorageContract):
    """It looks first and writes then, and says so in a warning."""

    atomic_create = False

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return open_storage(f"plaintest://{tmp_path}/a", {"replaypack": {"retry_seconds": 1}})


def test_it_warns_once_and_at_the_first_write(tmp_path: Path) -> None:
    storage = open_storage(f"plaintest://{tmp_path}/a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not list(storage.list())
    with pytest.warns(WeakGuaranteeWarning, match="may both succeed"):
        storage.put_new("k", b"1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        storage.put("k", b"2")
        with pytest.raises(ObjectExistsError):
            storage.put_new("k", b"3")


def test_an_unknown_protocol_is_refused_with_its_name() -> None:
    with pytest.raises(StorageUnsupportedError, match="nosuch://"):
        open_storage("nosuch://user:canary@host/x?sig=canary")
    with pytest.raises(StorageUnsupportedError) as caught:
        open_storage("nosuch://user:canary@host/x?sig=canary")
    assert "canary" not in str(caught.value)


class ObstoreLike(LocalFileSystem):
    protocol = "obstoretest"


ObstoreLike.__module__ = "obstore.fsspec"
fsspec.register_implementation("obstoretest", ObstoreLike, clobber=True)


def test_a_filesystem_that_is_known_to_overwrite_is_refused() -> None:
    with pytest.raises(StorageUnsupportedError, match="overwrites where it is asked to create"):
        open_storage("obstoretest:///x").get("k")


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("s3://b/a", "s3fs", "s3"), ("gs://b/a", "gcsfs.core", "gcs"), ("az://b/a", "adlfs", "azure")],
)
def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    fsspec.registry  # noqa: B018 - resolved before the import fails
    with pytest.raises(StorageUnsupportedError) as caught:
        open_storage(url).get("k")
    assert f"pip install 'replaypack[{extra}]'" in str(caught.value)
    assert caught.value.__cause__ is None


# -- what cannot be reached --------------------------------------------------------------------------------


@contextmanager
def ftp_server(*replies: str) -> Iterator[int]:
    """The port of a server that greets, answers each line with the next reply, and hangs up."""

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("rwb") as file, suppress(OSError):
                    for number, reply in enumerate(("220 here", *replies)):
                        if number and not file.readline():
                            break
                        file.write(f"{reply}\r\n".encode())
                        file.flush()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


class Unopenable(LocalFileSystem):
    protocol = "unopenabletest"

    def __init__(self, **options: Any) -> None:
        raise RuntimeError(f"not with {options}")


fsspec.register_implementation("unopenabletest", Unopenable, clobber=True)


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("ftp://127.0.0.1:9/a", StorageUnavailableError, "Connection refused"),
        ("ftp://nohost.invalid/a", StorageUnavailableError, "its host is not found"),
        ("http://127.0.0.1:9/a", StorageUnavailableError, "Cannot connect to host"),
        ("http://nohost.invalid/a", StorageUnavailableError, "Cannot connect to host"),
        ("sftp://nohost.invalid/a", StorageUnsupportedError, "paramiko"),
        ("unopenabletest://x", StorageUnavailableError, "it cannot be opened: RuntimeError: not with"),
        ("github://x", StorageUnsupportedError, "'org' and 'repo'"),
    ],
)
def test_every_failure_to_reach_it_is_one_of_ours(
    monkeypatch: pytest.MonkeyPatch, url: str, kind: type[StorageError], said: str
) -> None:
    no_invalid_hosts(monkeypatch)
    monkeypatch.setitem(sys.modules, "paramiko", None)
    options: dict[str, Any] = {"replaypack": {"retry_seconds": 0}} | (
        {"password": "canary"} if url.startswith("unop") else {}
    )
    attempts: list[Callable[[], object]] = [
        lambda: open_storage(url, options).get("a/b"),
        lambda: open_storage(url, options).get_ranges([("a", 0, 1), ("b", 0, 1)]),
        lambda: list(Archive(url, options).recordings()),
        lambda: replaypack.open(f"{url}#name", options),
        lambda: open_storage(f"zip::{url}", options).get("k"),
    ]
    for attempt in attempts:
        with pytest.raises(kind) as caught:
            attempt()
        assert said in str(caught.value)
        assert url.partition("://")[0] in str(caught.value)
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        (["331 who", "530 Login incorrect."], AccessDeniedError),
        (["421 too many users"], StorageUnavailableError),
        ([], StorageUnavailableError),
    ],
)
def test_an_ftp_server_that_lets_nobody_in(replies: list[str], kind: type[StorageError]) -> None:
    with ftp_server(*replies) as port:
        storage = open_storage(f"ftp://me:canary@127.0.0.1:{port}/a", {"replaypack": {"retry_seconds": 0}})
        with pytest.raises(kind) as caught:
            list(storage.list())
    assert "canary" not in str(caught.value)


# -- Azure -----------------------------------------------------------------------------------------------


class FakeAzure(AsyncFileSystem):
    """Speaks as adlfs does: no suffix ranges, ``mode="create"``, its own error types."""

    protocol = ("abfs", "az", "abfss")
    cachable = False

    def __init__(self) -> None:
        super().__init__(use_listings_cache=False)
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.fail: Callable[[], BaseException | None] = lambda: None

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        self.calls.append(("cat_file", start, end))
        if error := self.fail():
            raise error
        assert start is None or start >= 0
        if path not in self.objects:
            raise FileNotFoundError(path)
        if start is not None and start >= len(self.objects[path]):
            raise HttpResponseError(416, "InvalidRange")
        return self.objects[path][start:end]

    async def _pipe_file(self, path: str, value: bytes, overwrite: bool = True, **kwargs: Any) -> None:
        self.calls.append(("pipe_file", kwargs))
        if error := self.fail():
            raise error
        if kwargs.get("mode") == "create" and path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = bytes(value)

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        self.calls.append(("info",))
        if path not in self.objects:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.objects[path]), "type": "file"}

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        if self.objects.pop(path, None) is None:
            raise FileNotFoundError(path)

    async def _find(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        top = path.rstrip("/") + "/"
        return {k: {"size": len(d), "type": "file"} for k, d in self.objects.items() if k.startswith(top)}


class HttpResponseError(Exception):
    """As azure.core's: told by its name and shape."""

    def __init__(self, status_code: int, error_code: str, message: str = "") -> None:
        super().__init__(message)
        self.status_code, self.error_code, self.message = status_code, error_code, message


class Azure(AzureStorage):
    def _connect(self) -> Any:
        self._root = "container/a"
        return FakeAzure()


@pytest.fixture
def azure() -> Iterator[Azure]:
    opened = Azure("az://container/a", StorageOptions(retry_seconds=1), {})
    yield opened
    opened.close()


class TestAzure(StorageContract):
    @pytest.fixture
    def storage(self, azure: Azure) -> Storage:
        return azure

    def test_a_forked_child_may_go_on_using_it(self, reader: Storage) -> None:
        pytest.skip("the stand-in keeps its objects in itself")


def test_azure_emulates_suffixes_by_size(azure: Azure) -> None:
    azure.put("k", BIG)
    fs = azure._fs()
    fs.calls.clear()
    assert azure.get_suffix("k", 10) == BIG[-10:]
    assert fs.calls == [("info",), ("cat_file", len(BIG) - 10, len(BIG))]


def test_azure_creates_with_the_servers_word_and_sends_one_request(azure: Azure) -> None:
    azure.put_new("k", b"1")
    assert azure._fs().calls == [("pipe_file", {"mode": "create"})]


def test_what_azure_says(azure: Azure) -> None:
    from replaypack.errors import AccessDeniedError, ObjectMissingError

    fs = azure._fs()
    for error, expected in [
        (HttpResponseError(403, "AuthenticationFailed", "sig=canary"), AccessDeniedError),
        (HttpResponseError(403, "AuthorizationPermissionMismatch"), ObjectMissingError),
        (HttpResponseError(503, "ServerBusy", "AccountKey=canary"), StorageUnavailableError),
        (HttpResponseError(416, "InvalidRange"), ObjectTooShortError),
    ]:
        fs.fail = lambda error=error: error
        with pytest.raises(expected) as caught:
            azure.get_range("k", 0, 1)
        assert "sig=canary" not in str(caught.value)
    errors = iter([HttpResponseError(409, "BlobAlreadyExists"), None])
    fs.fail = lambda: next(errors)
    fs.objects["container/a/k"] = b"mine"
    azure.put_new("k", b"mine")
