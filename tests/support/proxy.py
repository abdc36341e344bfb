"""A small HTTP/1.1 proxy that counts requests and makes trouble on demand.

    with Proxy(server_url) as proxy:
        ...                                  # talk to proxy.url instead of server_url
        assert proxy.methods() == ["GET"] * 3 and proxy.depth() == 3
        proxy.inject(Fault.status(503), times=2)

Every request goes upstream on a connection of its own; the client's connection is kept alive. ``Host`` reaches
the server as the client sent it, so that signed requests stay valid.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

__all__ = ["Fault", "Proxy", "Request"]


@dataclass(slots=True)
class Request:
    """One request as it was seen. Times are those of `time.monotonic`, in seconds; ``status`` 0: no reply sent."""

    method: str
    path: str
    headers: dict[str, str]
    started: float
    ended: float = 0.0
    status: int = 0
    sent: int = 0
    """Bytes of body sent to the client."""
    response_headers: dict[str, str] = field(default_factory=dict)

    @property
    def range(self) -> str | None:
        return self.headers.get("range")

    @property
    def bare_path(self) -> str:
        return urlsplit(self.path).path

    @property
    def is_list(self) -> bool:
        """Whether it asks an S3 or GCS server for a listing."""
        parts = urlsplit(self.path)
        s3 = "list-type=" in parts.query
        gcs = parts.path.endswith("/o") and "/upload/" not in parts.path
        return self.method == "GET" and (s3 or gcs)


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a request. Make one with the class methods."""

    kind: str
    value: float = 0
    body: bytes = b""
    barrier: threading.Barrier | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def status(cls, status: int, body: bytes = b"", **headers: str) -> Fault:
        """The server is not asked; the client gets ``status``."""
        return cls(
            "status", status, body, headers=tuple((name.replace("_", "-"), text) for name, text in headers.items())
        )

    @classmethod
    def s3(cls, status: int, code: str, message: str = "injected") -> Fault:
        """An error as S3 words it."""
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return cls.status(status, body.encode(), Content_Type="application/xml")

    @classmethod
    def cut(cls) -> Fault:
        """The connection is closed before anything is answered; the server never hears of the request."""
        return cls("cut")

    @classmethod
    def lost_reply(cls) -> Fault:
        """The server does what was asked, and the connection is closed before its reply arrives."""
        return cls("lost_reply")

    @classmethod
    def truncated(cls, length: int) -> Fault:
        """Only ``length`` bytes of the body arrive, and the connection is closed."""
        return cls("truncated", length)

    @classmethod
    def shortened(cls, length: int) -> Fault:
        """Only ``length`` bytes of the body arrive, and ``Content-Length`` pretends that this is all."""
        return cls("shortened", length)

    @classmethod
    def delay(cls, seconds: float) -> Fault:
        """The request waits before it goes upstream."""
        return cls("delay", seconds)

    @classmethod
    def meet(cls, count: int, seconds: float = 20.0) -> Fault:
        """Requests wait until ``count`` of them are under way at once; where that does not happen they get a 599.

        This shows concurrency without measuring time. Inject it for a multiple of ``count`` requests.
        """
        return cls("meet", seconds, barrier=threading.Barrier(count))

    @classmethod
    def no_range(cls) -> Fault:
        """The server does not see the ``Range`` header, so it answers with the whole object and 200."""
        return cls("no_range")


@dataclass(slots=True)
class _Rule:
    fault: Fault
    times: int | None
    when: Callable[[Request], bool]


class Proxy:
    """Forwards to ``upstream`` (an ``http://host:port`` URL), logs every request, injects faults.

    ``latency`` (seconds) delays every request; set it at any time. All methods may be called from any thread.
    """

    def __init__(self, upstream: str, *, latency: float = 0.0) -> None:
        parts = urlsplit(upstream)
        assert parts.hostname
        assert parts.port
        self._upstream = (parts.hostname, parts.port)
        self.latency = latency
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._rules: list[_Rule] = []
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> list[Request]:
        """The requests since the last `clear`, in the order in which they arrived."""
        with self._lock:
            return list(self._requests)

    def clear(self) -> None:
        """Forgets the requests and takes back all faults."""
        with self._lock:
            self._requests.clear()
            self._rules.clear()

    @contextmanager
    def recording(self) -> Iterator[list[Request]]:
        """The requests made inside the block, filled in at its end."""
        found: list[Request] = []
        before = len(self.requests)
        yield found
        found.extend(self.requests[before:])

    def inject(
        self,
        fault: Fault,
        *,
        times: int | None = 1,
        method: str | None = None,
        when: Callable[[Request], bool] | None = None,
    ) -> None:
        """Applies ``fault`` to the next ``times`` requests that match (None: to all)."""

        def matches(request: Request) -> bool:
            return (method is None or request.method == method) and (when is None or when(request))

        with self._lock:
            self._rules.append(_Rule(fault, times, matches))

    def methods(self) -> list[str]:
        return [request.method for request in self.requests]

    def depth(self) -> int:
        """How many of the requests came one after another: the longest chain of which none overlaps the next."""
        depth, free_from = 0, float("-inf")
        for request in sorted(self.requests, key=lambda request: request.ended):
            if request.started >= free_from:
                depth += 1
                free_from = request.ended
        return depth

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, request: Request) -> list[Fault]:
        with self._lock:
            self._requests.append(request)
            faults = []
            for rule in self._rules:
                if rule.times == 0 or not rule.when(request):
                    continue
                if rule.times is not None:
                    rule.times -= 1
                faults.append(rule.fault)
                if rule.fault.kind not in ("delay", "no_range", "meet"):
                    break
            return faults


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    owner: Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _handle(self) -> None:
        body = self._body()
        request = Request(
            self.command, self.path, {name.lower(): text for name, text in self.headers.items()}, time.monotonic()
        )
        faults = self.owner._begin(request)
        try:
            self._answer(request, faults, body)
        finally:
            request.ended = request.ended or time.monotonic()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_OPTIONS = _handle

    def _answer(self, request: Request, faults: list[Fault], body: bytes) -> None:
        by_kind = {fault.kind: fault for fault in faults}
        wait = self.owner.latency + sum(fault.value for fault in faults if fault.kind == "delay")
        if wait:
            time.sleep(wait)
        if meeting := by_kind.get("meet"):
            assert meeting.barrier
            try:
                meeting.barrier.wait(meeting.value)
            except threading.BrokenBarrierError:
                self._send(request, 599, [], b"")
                return
        if "cut" in by_kind:
            self._hang_up()
            return
        if status := by_kind.get("status"):
            self._send(request, int(status.value), list(status.headers), status.body)
            return
        headers = [(name, text) for name, text in self.headers.items() if name.lower() not in _HOP]
        if "no_range" in by_kind:
            headers = [(name, text) for name, text in headers if name.lower() != "range"]
        upstream = http.client.HTTPConnection(*self.owner._upstream, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, text in headers:
                upstream.putheader(name, text)
            if body or self.command in ("PUT", "POST", "PATCH"):
                upstream.putheader("Content-Length", str(len(body)))
            upstream.putheader("Connection", "close")
            upstream.endheaders(body)
            response = upstream.getresponse()
            data = response.read()
            answer = [(name, text) for name, text in response.getheaders() if name.lower() not in _HOP]
            status_code = response.status
        except OSError:
            self._send(request, 502, [], b"")
            return
        finally:
            upstream.close()
        if "lost_reply" in by_kind:
            self._hang_up()
            return
        if cut := by_kind.get("truncated"):
            self._send(request, status_code, answer, data[: int(cut.value)], announced=len(data))
            self._hang_up()
            return
        if short := by_kind.get("shortened"):
            data = data[: int(short.value)]
        self._send(request, status_code, answer, data)

    def _send(
        self,
        request: Request,
        status: int,
        headers: list[tuple[str, str]],
        body: bytes,
        *,
        announced: int | None = None,
    ) -> None:
        # What the client measures ends when the reply leaves, so that a request that follows it counts as later.
        request.status, request.sent = status, len(body)
        request.response_headers = {name.lower(): text for name, text in headers}
        request.ended = time.monotonic()
        self.send_response_only(status)
        lengths = [text for name, text in headers if name.lower() == "content-length"]
        for name, text in headers:
            if name.lower() != "content-length":
                self.send_header(name, text)
        if self.command == "HEAD":
            self.send_header("Content-Length", lengths[0] if lengths else "0")
        elif status not in (204, 304):
            self.send_header("Content-Length", str(len(body) if announced is None else announced))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.wfile.flush()

    def _body(self) -> bytes:
        if "100-continue" in self.headers.get("Expect", "").lower():
            self.send_response_only(100)
            self.end_headers()
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()

    def handle_expect_100(self) -> bool:
        return True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: `Proxy.requests` is the log."""


_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"}
