"""What an archive asks of the place its bytes lie in: nine operations and the guarantees behind them.

Spec chapter 07 says the same without Python. A backend implements the abstract methods; everything above
`replaypack.storage` knows this class and `open_storage` only.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from replaypack.errors import (
    ObjectExistsError,
    ObjectMissingError,
    ReadOnlyStorageError,
    StorageError,
    StorageUnsupportedError,
)

__all__ = ["KeyRange", "ObjectInfo", "Storage", "check_key", "check_prefix", "is_key"]

KeyRange = tuple[str, int, int]
"""A key, the first byte wanted of its object, and how many bytes."""

MAX_KEY_BYTES: Final = 900
"""Below every store's own limit (1,024 bytes on S3, GCS and Azure), with room for the archive's prefix."""

_KEY = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*\Z")
_PREFIX = re.compile(r"[A-Za-z0-9._/-]*\Z")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One line of a listing: ``size`` in bytes, ``modified`` in seconds since the epoch (None: not known)."""

    key: str
    size: int
    modified: float | None = None


def is_key(text: str) -> bool:
    """Whether ``text`` may name an object: ``/``-separated segments of ``[A-Za-z0-9._-]``, none ``.`` or ``..``."""
    return (
        len(text) <= MAX_KEY_BYTES
        and _KEY.match(text) is not None
        and not any(segment in (".", "..") for segment in text.split("/"))
    )


def check_key(key: str, *, operation: str, url: str) -> None:
    """Raises `StorageError` unless ``key`` is one; nothing that is not can leave the archive's prefix."""
    if not is_key(key):
        raise StorageError(f"{key[:80]!r} is not a valid key", operation=operation, url=url)


def check_prefix(prefix: str, *, url: str) -> None:
    """Raises `StorageError` unless some key could begin with ``prefix``."""
    segments = prefix.split("/")
    if (
        len(prefix) > MAX_KEY_BYTES
        or not _PREFIX.match(prefix)
        or any(segment in ("", ".", "..") for segment in segments[:-1])
    ):
        raise StorageError(f"{prefix[:80]!r} is not the beginning of a valid key", operation="list", url=url)


def check_range(start: int, length: int, *, url: str) -> None:
    """Raises `StorageError` for a range that begins before the object or is of negative length."""
    if start < 0 or length < 0:
        raise StorageError(f"{length} bytes from byte {start} is not a range", operation="get_range", url=url)


class Storage(ABC):
    """A flat space of immutable-by-convention objects, named by keys relative to one URL.

    Methods may be called from any thread, at the same time, whether or not an event loop runs elsewhere;
    each blocks its own thread only. A forked child may go on using an instance it inherited.

    All raise `StorageError` or a subclass, with the operation and a URL that is safe to show:
    `AccessDeniedError`, `StorageUnavailableError`, `StorageTimeoutError` from any operation on a network, and
    what each method names besides. No credential is ever part of an error, of ``url``, or of a repr.
    """

    url: str
    """Safe to show and to log: without user, password, query or fragment."""

    read_only: bool = False
    """True where every write raises `ReadOnlyStorageError`."""

    local_path: Path | None = None
    """The directory behind it, when it is one on this machine."""

    # -- reading: all that a reader of an archive needs ---------------------------------------------

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The whole object, in one request. It is one that some writer wrote, never a mixture of two.

        Raises `ObjectMissingError` when it does not exist or, its ``may_be_denied`` being true, may not be seen.
        """

    @abstractmethod
    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from byte ``start``, in one request; never fewer, never others.

        A server that ignores ranges is noticed. An empty range is answered without asking.
        Raises `ObjectMissingError`, and `ObjectTooShortError` when the object ends before the range does.
        """

    @abstractmethod
    def get_suffix(self, key: str, length: int) -> bytes:
        """The last ``length`` bytes, or the whole object when it is shorter.

        One request; two on stores without suffix ranges (Azure). Raises `ObjectMissingError`.
        """

    def get_ranges(self, ranges: Sequence[KeyRange]) -> list[bytes]:
        """Exactly the ranges asked for, in the order asked; fetched concurrently, neighbours in one request.

        All or nothing: the first failure is raised, as by `get_range`.
        """
        return [self.get_range(key, start, length) for key, start, length in ranges]

    # -- writing ------------------------------------------------------------------------------------

    @abstractmethod
    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        """Creates the object atomically, or fails: of any number of concurrent writers one succeeds.

        On return the object is durable, and complete for whoever sees it. Calling it again with equal bytes
        succeeds, since a store's reply can be lost after the write was done.
        Raises `ObjectExistsError` when other bytes are there, `StorageFullError`, `ReadOnlyStorageError`, and
        `StorageUnsupportedError` where the store cannot do it for an object this large.
        """

    @abstractmethod
    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        """Replaces the object atomically: readers get the old bytes or the new ones. Durable on return.

        ``cache_control`` becomes the ``Cache-Control`` header where the store serves one.
        Raises `StorageFullError`, `ReadOnlyStorageError`.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Afterwards the object is gone; that it never was there is no error. Raises `ReadOnlyStorageError`."""

    # -- for those who keep an archive ----------------------------------------------------------------

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key begins with ``prefix`` and that existed throughout the call, in any order.

        Asks the store each time; nothing is cached. Leftovers of interrupted writes are not listed.
        Raises `StorageUnsupportedError` where there is no listing (http).
        """

    def leftovers(self, before: float = math.inf, *, delete: bool = False, sure: bool = False) -> Iterator[ObjectInfo]:
        """What interrupted writes left, in no object's place, last changed before ``before`` (seconds since the epoch).

        What a living writer holds is not among them; where the store cannot tell, it may be, unless ``sure``. With
        ``delete`` each is removed before it is named. Stores whose writes leave nothing have none.
        """
        return iter(())

    def keeps_deleted(self) -> str | None:
        """Why the store keeps bytes that are deleted (versions, locks, soft delete); None where it does not.

        Raises `StorageUnsupportedError` where the store cannot be asked, `AccessDeniedError` where we may not.
        """
        raise StorageUnsupportedError(
            "nothing is known of what this store keeps of deleted objects", operation="keeps_deleted", url=self.url
        )

    def close(self) -> None:  # noqa: B027 - a backend that holds nothing need not say so
        """Releases connections and threads. May be repeated; the instance is of no use afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def require_writable(self, operation: str) -> None:
        """Raise `ReadOnlyStorageError` where nothing can be written: before long work, and without asking the store."""
        if self.read_only:
            scheme = self.url.partition(":")[0]
            what = {"zip": "a zip file", "http": "http", "https": "https"}.get(scheme, "this storage")
            raise ReadOnlyStorageError(f"{what} can only be read", operation=operation, url=self.url)

    # -- shared by the backends -------------------------------------------------------------------------

    def _at(self, key: str) -> str:
        """The URL of an object, for messages."""
        return f"{self.url.rstrip('/')}/{key}"

    def _check_writable(self, operation: str, key: str) -> None:
        check_key(key, operation=operation, url=self.url)
        if self.read_only:
            raise ReadOnlyStorageError("this storage can only be read", operation=operation, url=self._at(key))

    def _accept_existing(self, key: str, data: bytes) -> None:
        """After "exists": our own bytes mean that an earlier attempt of this very write got through."""
        try:
            same = self.get(key) == data
        except ObjectMissingError:  # deleted meanwhile, or not ours to read: either way it was another's
            same = False
        if not same:
            raise ObjectExistsError("other bytes are already there", operation="put_new", url=self._at(key))
