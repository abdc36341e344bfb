"""Fixtures of the storage tests."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from replaypack.storage import Storage, open_storage
from tests.support.proxy import Proxy
from tests.support.servers import Server

_numbers = itertools.count()

S3_KEY, S3_SECRET = "AKIACANARYKEYID00000", "canary-secret-key-0123456789"
QUICK = {"retry_seconds": 20, "request_seconds": 20}


class Bucket:
    """A bucket of its own behind a proxy. ``open`` gives a new client; ``direct`` bypasses the proxy."""

    def __init__(self, scheme: str, name: str, proxy: Proxy, server: Server, options: dict[str, Any]) -> None:
        self.url = f"{scheme}://{name}/archives/{next(_numbers)}"
        self.name = name
        self.proxy = proxy
        self.server = server
        self.options = options
        self._opened: list[Storage] = []

    def open(self, *, direct: bool = False, own: dict[str, Any] | None = None, **options: Any) -> Any:
        endpoint = self.server.url if direct else self.proxy.url
        merged = {**self.options, "endpoint_url": endpoint, "replaypack": {**QUICK, **(own or {})}, **options}
        self._opened.append(open_storage(self.url, merged))
        return self._opened[-1]

    def close(self) -> None:
        for storage in self._opened:
            storage.close()
        self.proxy.close()


def make_s3_bucket(server: Server, name: str = "") -> Bucket:
    """A new bucket, or a place of its own in the bucket named."""
    pytest.importorskip("s3fs")
    new = name or f"bucket-{next(_numbers)}"
    options = {"key": S3_KEY, "secret": S3_SECRET, "client_kwargs": {"region_name": "us-east-1"}}
    # Neither server asks for a signature here, and a client of its own for one request takes its time.
    try:
        urllib.request.urlopen(urllib.request.Request(f"{server.url}/{new}", method="PUT")).close()
    except urllib.error.HTTPError as error:
        if not name or error.code != 409:
            raise
    return Bucket("s3", new, Proxy(server.url), server, options)


@pytest.fixture
def s3_bucket(moto_server: Server) -> Iterator[Bucket]:
    bucket = make_s3_bucket(moto_server)
    yield bucket
    bucket.close()


@pytest.fixture
def gcs_bucket(gcs_server: Server) -> Iterator[Bucket]:
    pytest.importorskip("gcsfs")
    name = f"bucket-{next(_numbers)}"
    request = urllib.request.Request(
        f"{gcs_server.url}/storage/v1/b",
        json.dumps({"name": name}).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).close()
    bucket = Bucket("gs", name, Proxy(gcs_server.url), gcs_server, {"token": "anon"})
    yield bucket
    bucket.close()


@pytest.fixture
def proxied() -> Iterator[Callable[[Server], Proxy]]:
    """Makes proxies that are closed at the end of the test."""
    opened: list[Proxy] = []

    def start(server: Server) -> Proxy:
        opened.append(Proxy(server.url))
        return opened[-1]

    yield start
    for proxy in opened:
        proxy.close()
