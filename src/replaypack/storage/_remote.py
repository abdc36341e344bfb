"""What all network backends share: retries, foreign errors, threads, ranges cut from whatever the server sent."""

from __future__ import annotations

import logging
import math
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from replaypack.errors import ObjectMissingError, ObjectTooShortError, StorageError, StorageUnsupportedError
from replaypack.storage._credentials import CredentialFilter, safe_url
from replaypack.storage._errors import Failure, Kind, ShortBody, build_error, classify
from replaypack.storage._options import StorageOptions
from replaypack.storage._plan import assemble, plan_ranges
from replaypack.storage._protocol import KeyRange, ObjectInfo, Storage, check_key, check_prefix, check_range
from replaypack.storage._retry import Retry

__all__ = ["Body", "RemoteStorage", "content_range"]

logger = logging.getLogger("replaypack.storage")

T = TypeVar("T")
_instances: weakref.WeakSet[RemoteStorage] = weakref.WeakSet()
_inherited: list[Any] = []
Answers = list[bytes]  # inside the class the name is a method's

BYTES_PER_SECOND: Final = 64 * 1024
"""A request may take this much longer than `StorageOptions.request_seconds` for its size: a slow line is no fault."""

PATIENCE: Final = 3.0
"""Seconds for which a store that does not answer is waited for without a word."""

NOTED_EVERY: Final = 30.0
"""Seconds between two such words."""

UNKNOWN_SIZE: Final = 64 << 20
"""Bytes that the time limit of a read of unknown size allows for."""


@dataclass(frozen=True, slots=True)
class Body:
    """An answer: ``data`` begins at byte ``first`` of an object of ``total`` bytes. None: the server did not say."""

    data: bytes
    first: int | None = None
    total: int | None = None


class RemoteStorage(Storage):
    """A backend over an fsspec filesystem. Subclasses say how to make it, and how to send one request.

    The filesystem is private to the instance and made when first needed; a forked child makes its own, since the
    event loop and the connections of its parent do not survive the fork.
    """

    #: The extra of this library that its packages are in.
    extra: str | None = None

    def __init__(self, address: str, options: StorageOptions, foreign: Mapping[str, Any]) -> None:
        self.url = safe_url(address).rstrip("/")
        self.read_only = options.read_only
        self.retry = Retry(options.retry_seconds)
        self._noted = -math.inf
        self._address = address
        self._options = options
        self._foreign = dict(foreign)
        self._credentials = CredentialFilter(address, foreign)
        self._lock = threading.Lock()
        self._filesystem: Any = None
        self._pool: ThreadPoolExecutor | None = None
        _instances.add(self)

    # -- what a subclass defines --------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> Any:
        """A new filesystem, with no cache of listings, shared with nobody."""

    @abstractmethod
    def _read(self, key: str, start: int | None, stop: int | None) -> Body:
        """One request for bytes ``start`` to ``stop``; None and None: all; a negative ``start``: the last ones."""

    @abstractmethod
    def _write(self, key: str, data: bytes, *, create: bool, cache_control: str | None) -> None:
        """One attempt to write; with ``create`` it must fail with something `classify` calls EXISTS."""

    @abstractmethod
    def _remove(self, key: str) -> None:
        """One attempt to delete."""

    @abstractmethod
    def _find(self, prefix: str) -> Sequence[ObjectInfo]:
        """One listing."""

    # -- the protocol -------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        check_key(key, operation="get", url=self.url)
        return self._get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_key(key, operation="get_range", url=self.url)
        check_range(start, length, url=self._at(key))
        return self._get_range(key, start, length)

    def get_suffix(self, key: str, length: int) -> bytes:
        check_key(key, operation="get_suffix", url=self.url)
        check_range(0, length, url=self._at(key))
        return self._get_suffix(key, length)

    def get_ranges(self, ranges: Sequence[KeyRange]) -> list[bytes]:
        for key, start, length in ranges:
            check_key(key, operation="get_range", url=self.url)
            check_range(start, length, url=self._at(key))
        return self._get_ranges(ranges)

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._check_writable("put_new", key)

        def attempt() -> bool:
            try:
                self._write(key, data, create=True, cache_control=cache_control)
            except Exception as error:
                if classify(error, reading=False).kind is not Kind.EXISTS:
                    raise
                return False
            return True

        # "It exists" may speak of our own earlier attempt, whose reply got lost on the way. Only the bytes tell.
        if not self._run("put_new", key, attempt):
            self._accept_existing(key, data)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._check_writable("put", key)
        self._run("put", key, lambda: self._write(key, data, create=False, cache_control=cache_control))

    def delete(self, key: str) -> None:
        self._check_writable("delete", key)
        try:
            self._run("delete", key, lambda: self._remove(key))
        except ObjectMissingError:
            pass

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix, url=self.url)
        return iter(self._run("list", prefix, lambda: self._find(prefix)))

    def close(self) -> None:
        with self._lock:
            pool, self._pool, self._filesystem = self._pool, None, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    # -- the same without checks of keys: the zip backend reads the object at the URL itself, whose key is "" ------

    def _get(self, key: str) -> bytes:
        def attempt() -> bytes:
            body = self._read(key, None, None)
            if body.total is not None and len(body.data) != body.total:
                raise ShortBody(f"{len(body.data)} of {body.total} bytes arrived")
            return body.data

        return self._run("get", key, attempt)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        if not length:
            return b""

        def attempt() -> bytes:
            return self._cut(key, self._read(key, start, start + length), start, length)

        return self._run("get_range", key, attempt)

    def _get_suffix(self, key: str, length: int) -> bytes:
        if not length:
            return b""

        def attempt() -> bytes:
            try:
                body = self._read(key, -length, None)
            except Exception as error:
                # Stores say this of an empty object, which has no last bytes. Ask for all there is, to be sure.
                if classify(error, reading=True).kind is not Kind.TOO_SHORT:
                    raise
                body = self._read(key, None, None)
            data = body.data
            size = body.total
            if size is None and len(data) < length:
                size = self._size(key)
            if size is not None and len(data) < min(length, size - (body.first or 0)):
                raise ShortBody(f"{len(data)} of {length} bytes arrived")
            return data[max(0, len(data) - length) :]

        return self._run("get_suffix", key, attempt)

    def _get_ranges(self, ranges: Sequence[KeyRange]) -> Answers:
        plan = plan_ranges(ranges, max_gap=self._options.max_gap, max_size=self._options.max_fetch)
        if len(plan) <= 1 or self._options.max_concurrency == 1:
            return assemble(ranges, plan, [self._get_range(f.key, f.start, f.length) for f in plan])
        futures = [self._threads().submit(self._get_range, f.key, f.start, f.length) for f in plan]
        try:
            return assemble(ranges, plan, [future.result() for future in futures])
        finally:
            for future in futures:
                future.cancel()

    def _cut(self, key: str, body: Body, start: int, length: int) -> bytes:
        """Exactly the range, whatever part of the object the server sent."""
        first, total, data = body.first, body.total, body.data
        if first is None:
            # The client library does not tell where the answer begins. More than asked for: the whole object.
            first = start if len(data) <= length else 0
            if len(data) < length:
                total = self._size(key)
        if first > start:
            raise ShortBody(f"the answer begins at byte {first}, not at byte {start}")
        if total is not None and total < start + length:
            raise ObjectTooShortError(
                f"the object ends at byte {total}, before byte {start + length}",
                operation="get_range",
                url=self._at(key),
            )
        piece = data[start - first : start - first + length]
        if len(piece) != length:
            raise ShortBody(f"{len(piece)} of {length} bytes arrived")
        return piece

    def _size(self, key: str) -> int | None:
        """The object's size in bytes, when the client library can tell; asked only when an answer was short."""
        return None

    # -- machinery ------------------------------------------------------------------------------------

    def _fs(self) -> Any:
        with self._lock:
            if self._filesystem is None:
                self._filesystem = self._connect()
            return self._filesystem

    def _after_fork(self) -> None:
        """In a forked child: starts over. A lock may have been held by a thread that this process has not."""
        # Never let go of the parent's filesystem: its finalizer would wait for an event loop that is not here.
        _inherited.append((self._filesystem, self._pool))
        self._lock, self._filesystem, self._pool = threading.Lock(), None, None

    def _threads(self) -> ThreadPoolExecutor:
        self._run("open", "", self._fs)  # where it fails, once and not in each thread
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._options.max_concurrency, "replaypack-storage")
            return self._pool

    def _await(self, function: Callable[..., Awaitable[T]], *args: Any, size: int = UNKNOWN_SIZE, **kwargs: Any) -> T:
        """Runs a coroutine on fsspec's own thread, so that the caller's event loop, if any, does not matter.

        ``size``: bytes that will move; the time limit grows with it.
        """
        from fsspec.asyn import sync

        limit = self._options.request_seconds + size / BYTES_PER_SECOND
        answer: T = sync(self._fs().loop, function, *args, timeout=limit, **kwargs)
        return answer

    def _run(self, operation: str, key: str, attempt: Callable[[], T]) -> T:
        """The result of ``attempt``, tried again where that may help; failures as our errors."""
        reading = operation.startswith("get")
        try:
            return self.retry.run(attempt, lambda error: _may_retry(error, reading=reading), self._note_waiting)
        except StorageError as error:
            known: StorageError | None = error
        except Exception as error:
            known = None
            failure = classify(error, reading=reading)
            if isinstance(error, ImportError):
                failure = self._without_package(failure)
            elif failure.kind is Kind.FAILED and self._filesystem is None:
                hint = "check the URL and the storage options"
                failure = Failure(Kind.UNAVAILABLE, f"it cannot be opened: {failure.message}", hint=hint)
        # Raised out here, so that the foreign exception, whose text may hold credentials, is no part of the chain.
        raise known or build_error(
            failure, operation=operation, url=self._at(key), message=self._credentials.clean(failure.message)
        )

    def _note_waiting(self, error: Exception, left: float) -> None:
        """Say, now and then, that a store is waited for: it may take a minute until that is an error."""
        now = self.retry.clock()
        if self.retry.seconds - left < PATIENCE or now - self._noted < NOTED_EVERY:
            return
        self._noted = now
        why = self._credentials.clean(classify(error, reading=True).message)
        logger.warning("%s: %s; trying again for %d s at most", self.url, why, left)

    def _without_package(self, failure: Failure) -> Failure:
        how = f"pip install 'replaypack[{self.extra}]'" if self.extra else "install it with pip"
        return Failure(Kind.UNSUPPORTED, f"{failure.message}; {how}")

    def _unsupported(self, operation: str, key: str, message: str, hint: str | None = None) -> StorageUnsupportedError:
        return StorageUnsupportedError(message, operation=operation, url=self._at(key), hint=hint)

    def _at(self, key: str) -> str:
        return super()._at(key) if key else self.url


def _renew_after_fork() -> None:
    for storage in list(_instances):
        storage._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


def _may_retry(error: Exception, *, reading: bool) -> bool:
    return not isinstance(error, StorageError) and classify(error, reading=reading).retry


def content_range(header: str | None, *, status: int, announced: int | None) -> tuple[int | None, int | None]:
    """First byte and size of the object, from the headers of an answer. A 200 is the whole object."""
    if status != 206:
        return 0, announced
    unit, _, spec = (header or "").partition(" ")
    span, _, total = spec.partition("/")
    first, _, _ = span.partition("-")
    if unit.strip().lower() != "bytes" or not first.strip().isdigit():
        return None, None
    return int(first), int(total) if total.strip().isdigit() else None
