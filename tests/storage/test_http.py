"""Web servers: GET with ranges and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replaypack.errors import AccessDeniedError, ObjectMissingError, StorageError, StorageUnavailableError
from replaypack.storage import Storage, open_storage
from tests.storage.contract import BIG, OBJECTS, ReadContract
from tests.support.proxy import Fault, Proxy
from tests.support.servers import Server

Start = Callable[[Server], Proxy]
OWN = {"replaypack": {"retry_seconds": 20}}


def publish(root: Path, objects: dict[str, bytes]) -> None:
    shutil.rmtree(root / "archive", ignore_errors=True)
    for key, data in objects.items():
        path = root / "archive" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def proxy(static_server: Server, proxied: Start) -> Proxy:
    assert static_server.root
    publish(static_server.root, dict(OBJECTS))
    return proxied(static_server)


@pytest.fixture
def storage(proxy: Proxy) -> Iterator[Storage]:
    with open_storage(f"{proxy.url}/archive", OWN) as opened:
        yield opened


class TestHttp(ReadContract):
    lists = False

    @pytest.fixture
    def reader(self, storage: Storage) -> Storage:
        return storage


class TestHttpWithoutRanges(ReadContract):
    lists = False

    @pytest.fixture(
        params=[("static_server_without_ranges", 20), ("static_server_in_chunks", 1)], ids=["whole", "chunks"]
    )
    def reader(self, request: pytest.FixtureRequest) -> Iterator[Storage]:
        name, seconds = request.param
        server: Server = request.getfixturevalue(name)
        assert server.root
        publish(server.root, dict(OBJECTS))
        with open_storage(f"{server.url}/archive", {"replaypack": {"retry_seconds": seconds}}) as opened:
            yield opened


def test_every_read_is_one_get(storage: Storage, proxy: Proxy) -> None:
    storage.get("packs/ab/big.rpk")
    storage.get_range("packs/ab/big.rpk", 3, 4)
    storage.get_suffix("packs/ab/big.rpk", 4)
    assert [(r.method, r.range) for r in proxy.requests] == [("GET", None), ("GET", "bytes=3-6"), ("GET", "bytes=-4")]
    assert {r.headers["accept-encoding"] for r in proxy.requests} == {"identity"}


def test_of_an_answer_with_the_whole_object_no_more_is_read_than_needed(storage: Storage, proxy: Proxy) -> None:
    proxy.inject(Fault.no_range(), times=None)
    assert storage.get_range("packs/ab/big.rpk", 5, 10) == BIG[5:15]
    assert storage.get_range("packs/ab/big.rpk", len(BIG) - 5, 5) == BIG[-5:]
    # As many bytes as were asked for, but others: the status tells.
    with pytest.raises(StorageError):
        storage.get_range("packs/ab/big.rpk", 7, len(BIG))


@pytest.mark.parametrize("fault", [Fault.status(503), Fault.cut(), Fault.truncated(50), Fault.shortened(50)])
def test_a_passing_fault_is_retried(storage: Storage, proxy: Proxy, fault: Fault) -> None:
    proxy.inject(fault, times=2)
    assert storage.get_range("packs/ab/big.rpk", 3, 4000) == BIG[3:4003]


def test_an_unreachable_server() -> None:
    storage = open_storage("http://127.0.0.1:9/archive", {"replaypack": {"retry_seconds": 0.2}})
    with storage, pytest.raises(StorageUnavailableError):
        storage.get("k")


def test_what_a_403_means(storage: Storage, proxy: Proxy) -> None:
    proxy.inject(Fault.s3(403, "AccessDenied"))
    with pytest.raises(ObjectMissingError, match="missing or not permitted"):
        storage.get("k")
    for fault in (
        Fault.s3(403, "AccessDenied", "Request has expired"),
        Fault.s3(403, "SignatureDoesNotMatch"),
        Fault.s3(403, "AuthenticationFailed"),
        Fault.status(401),
    ):
        proxy.inject(fault)
        with pytest.raises(AccessDeniedError):
            storage.get("k")


def test_the_query_is_sent_with_every_request_and_shown_in_none(proxy: Proxy) -> None:
    address = proxy.url.replace("//", "//user:canary-pass@") + "/archive?sv=1&sig=canary%2Bsig&X-Amz-Signature=canary1"
    with open_storage(address, {"replaypack": {"retry_seconds": 0}}) as storage:
        assert storage.get_range("packs/ab/big.rpk", 0, 3) == BIG[:3]
        request = proxy.requests[-1]
        assert request.path == "/archive/packs/ab/big.rpk?sv=1&sig=canary%2Bsig&X-Amz-Signature=canary1"
        assert request.headers["authorization"].startswith("Basic ")
        shown = [storage.url, repr(storage)]
        for fault in (None, Fault.status(500), Fault.status(400), Fault.cut(), Fault.s3(403, "X", request.path)):
            if fault:
                proxy.inject(fault, times=2)
            with pytest.raises(OSError) as caught:
                storage.get("none")
            assert caught.value.__cause__ is None
            assert caught.value.__context__ is None
            shown += [str(caught.value), repr(caught.value), repr(vars(caught.value))]
    assert "canary" not in " ".join(shown)
    assert "sig=" not in " ".join(shown)
