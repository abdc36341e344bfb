"""A directory on this machine. Written with the operating system's own calls, because atomicity and durability
are decided there: fsspec's local filesystem neither creates exclusively nor asks for the disk."""

from __future__ import annotations

import errno
import math
import os
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from replaypack._locks import create_locked, lock, unlocked
from replaypack.errors import (
    AccessDeniedError,
    ObjectMissingError,
    ObjectTooShortError,
    ReadOnlyStorageError,
    StorageError,
    StorageFullError,
    WeakGuaranteeWarning,
)
from replaypack.storage._protocol import KeyRange, ObjectInfo, Storage, check_key, check_prefix, check_range, is_key

__all__ = ["LocalStorage", "translated"]

TEMP_PREFIX: Final = "~tmp-"  # "~" is in no key, so neither temporary nor lock files can be taken for objects
LOCK_NAME: Final = "~lock"
#: How often a file is written that `leftovers` removes before it has its name.
_ATTEMPTS: Final = 10

_T = TypeVar("_T")

_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED: Final = {errno.EACCES, errno.EPERM}
_MISSING: Final = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
_NO_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.EINVAL, errno.EXDEV}


class LocalStorage(Storage):
    """Objects as files under ``path``, which is created by the first write.

    Every write goes to a temporary file in the object's own directory and is fsynced before it gets its name: by
    `os.link` when it must be new (which fails if the name is taken), else by `os.replace`. Then the directory is
    fsynced. A process killed at any point leaves the old object or the whole new one, and perhaps a temporary
    file, which no listing shows, and `leftovers` finds.

    Where the filesystem has no hard links (exFAT, some network mounts), new objects are created under an advisory
    lock on a file ``~lock`` in their directory instead; that is exclusive among processes that the lock reaches.

    ``fsync=False`` gives up durability, not atomicity; it is meant for tests.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = True, read_only: bool = False) -> None:
        self.local_path: Path = Path(os.path.abspath(path))
        self.url = str(self.local_path)
        self.read_only = read_only
        self._fsync = fsync
        self._links = True
        self._warned = False
        self._threads = threading.Lock()

    # -- reading ------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        check_key(key, operation="get", url=self.url)
        with self._open("get", key) as descriptor:
            return _read_exactly(descriptor, 0, os.fstat(descriptor).st_size)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_key(key, operation="get_range", url=self.url)
        check_range(start, length, url=self._at(key))
        return self._read_ranges([(key, start, length)])[0]

    def get_suffix(self, key: str, length: int) -> bytes:
        check_key(key, operation="get_suffix", url=self.url)
        check_range(0, length, url=self._at(key))
        return self._read_suffix(key, length)

    def get_ranges(self, ranges: Sequence[KeyRange]) -> list[bytes]:
        for key, start, length in ranges:
            check_key(key, operation="get_range", url=self.url)
            check_range(start, length, url=self._at(key))
        return self._read_ranges(ranges)

    # The same without a check of keys, for a zip file may have any name.

    def _read_suffix(self, key: str, length: int) -> bytes:
        with self._open("get_suffix", key) as descriptor:
            size = os.fstat(descriptor).st_size
            return _read_exactly(descriptor, max(0, size - length), min(length, size))

    def _read_ranges(self, ranges: Sequence[KeyRange]) -> list[bytes]:
        answers = [b""] * len(ranges)
        by_key: dict[str, list[int]] = {}
        for index, (key, _, length) in enumerate(ranges):
            if length:
                by_key.setdefault(key, []).append(index)
        for key, indexes in by_key.items():
            with self._open("get_range", key) as descriptor:
                size = os.fstat(descriptor).st_size
                for index in indexes:
                    _, start, length = ranges[index]
                    # Checked before reading, so that an absurd length costs no memory.
                    data = _read_exactly(descriptor, start, length) if start + length <= size else b""
                    if len(data) != length:
                        raise ObjectTooShortError(
                            f"the object ends at byte {size}, before byte {start + length}",
                            operation="get_range",
                            url=self._at(key),
                        )
                    answers[index] = data
        return answers

    # -- writing ------------------------------------------------------------------------------------

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._check_writable("put_new", key)
        with self._translated("put_new", key):
            final = self._path(key)
            created = self._write(final, data, self._name_new)
            self._sync_directory(final.parent)
        if not created:
            self._accept_existing(key, data)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._check_writable("put", key)
        with self._translated("put", key):
            final = self._path(key)
            self._write(final, data, os.replace)
            self._sync_directory(final.parent)

    def delete(self, key: str) -> None:
        self._check_writable("delete", key)
        with self._translated("delete", key):
            final = self._path(key)
            with suppress(FileNotFoundError, NotADirectoryError):
                final.unlink()
                self._sync_directory(final.parent)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix, url=self.url)
        with self._translated("list", prefix):
            return iter(list(self._walk(prefix.rpartition("/")[0], prefix)))

    def leftovers(self, before: float = math.inf, *, delete: bool = False, sure: bool = False) -> Iterator[ObjectInfo]:
        if delete and self.read_only:
            raise ReadOnlyStorageError("this storage can only be read", operation="delete", url=self.url)
        with self._translated("list", ""):
            # Where temporary files are made: beside objects. The journals keep their own house.
            for directory, names, files in os.walk(self.local_path):
                names[:] = sorted(name for name in names if is_key(name) and name != "journal")
                for name in files:
                    if not name.startswith(TEMP_PREFIX):
                        continue
                    path = os.path.join(directory, name)
                    with suppress(FileNotFoundError):
                        status = os.lstat(path)
                        if not stat.S_ISREG(status.st_mode) or status.st_mtime >= before:
                            continue
                        with unlocked(path) as abandoned:
                            if abandoned is False or (sure and not abandoned):
                                continue
                            if delete:
                                os.unlink(path)
                        key = os.path.relpath(path, self.local_path).replace(os.sep, "/")
                        yield ObjectInfo(key, status.st_size, status.st_mtime)

    def keeps_deleted(self) -> str | None:
        return None  # what snapshots and backups of the disk hold, the disk does not say

    # -- below the protocol ---------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self.local_path.joinpath(*key.split("/"))

    @contextmanager
    def _open(self, operation: str, key: str) -> Iterator[int]:
        with self._translated(operation, key):
            # A pipe in the directory would keep its reader waiting; files do not care.
            flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
            descriptor = os.open(f"{self.url}/{key}", flags)  # joining paths takes as long as reading a frame
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def _walk(self, directory: str, prefix: str) -> Iterator[ObjectInfo]:
        try:
            entries = list(os.scandir(self.local_path / directory))
        except (FileNotFoundError, NotADirectoryError):
            return  # a listing of what is not there is empty, as on an object store
        for entry in entries:
            key = f"{directory}/{entry.name}" if directory else entry.name
            if not is_key(key):
                continue
            try:
                # Links to directories are not followed: they could lead in circles, and out of the archive.
                if entry.is_dir(follow_symlinks=False):
                    if f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                        yield from self._walk(key, prefix)
                elif key.startswith(prefix) and entry.is_file():
                    status = entry.stat()
                    yield ObjectInfo(key, status.st_size, status.st_mtime)
            except FileNotFoundError:
                continue  # deleted while listing

    def _write(self, final: Path, data: bytes, give_name: Callable[[Path, Path], _T]) -> _T:
        """Let ``give_name`` name a complete and durable file with ``data``."""
        for attempt in count(1):
            with self._temporary(final, data) as temporary:
                try:
                    return give_name(temporary, final)
                except FileNotFoundError:
                    if attempt == _ATTEMPTS or os.path.lexists(temporary):
                        raise  # else `leftovers` came between its end and its name
        raise AssertionError  # pragma: no cover

    @contextmanager
    def _temporary(self, final: Path, data: bytes) -> Iterator[Path]:
        """A complete and durable file with ``data`` beside ``final``, removed afterwards if it is still there.

        It is locked while it is written, where there are locks: so `leftovers` tells it from those of writers that
        were killed. Not when it is named: some filesystems let nobody read what is locked, or name what is open.
        """
        temporary, descriptor = self._create_temporary(final.parent)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield temporary
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def _create_temporary(self, directory: Path) -> tuple[Path, int]:
        try:
            return create_locked(directory, TEMP_PREFIX)
        except FileNotFoundError:
            self._make_directory(directory)
            return create_locked(directory, TEMP_PREFIX)

    def _name_new(self, temporary: Path, final: Path) -> bool:
        """Gives the file its name, unless the name is taken: then False."""
        if self._links:
            try:
                os.link(temporary, final)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._links = False
            else:
                return True
        if sys.platform == "win32":
            try:
                os.rename(temporary, final)  # on Windows a rename never replaces
            except FileExistsError:
                return False
            return True
        with self._threads, _directory_lock(final.parent) as locked:
            if not locked and not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self.url}: this filesystem has neither hard links nor locks, so two writers that create the "
                    "same object at the same moment may both succeed",
                    WeakGuaranteeWarning,
                    stacklevel=4,
                )
            if os.path.lexists(final):
                return False
            os.rename(temporary, final)
            return True

    def _make_directory(self, directory: Path) -> None:
        """Like ``mkdir -p``, and each new name is made durable: fsync of a file does not keep its parents."""
        try:
            os.mkdir(directory)
        except FileExistsError:
            return
        except FileNotFoundError:
            self._make_directory(directory.parent)
            with suppress(FileExistsError):
                os.mkdir(directory)
        self._sync_directory(directory.parent)

    def _sync_directory(self, directory: Path) -> None:
        if not self._fsync or sys.platform == "win32":
            return
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
                raise  # these say that the filesystem has no fsync of directories (some network mounts)
        finally:
            os.close(descriptor)

    @contextmanager
    def _translated(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            url = self._at(key)
            raise translated(error, operation, url) from error


def translated(error: OSError, operation: str, url: str) -> StorageError:
    """What the operating system said, as one of our errors."""
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    if error.errno in _FULL:
        return StorageFullError(f"no space left ({reason})", operation=operation, url=url)
    if error.errno == errno.EROFS:
        return ReadOnlyStorageError(reason, operation=operation, url=url)
    if error.errno in _DENIED:
        if operation.startswith("get") and os.path.isdir(url):  # what Windows says of opening a directory
            return ObjectMissingError("no such object", operation=operation, url=url)
        return AccessDeniedError(reason, operation=operation, url=url)
    if error.errno in _MISSING and operation.startswith("get"):
        return ObjectMissingError("no such object", operation=operation, url=url)
    if error.errno == errno.ENOTDIR:
        return StorageError("a file lies where a directory has to be", operation=operation, url=url)
    return StorageError(reason, operation=operation, url=url)


def _read_exactly(descriptor: int, start: int, length: int) -> bytes:
    """Up to ``length`` bytes, fewer only at the end of the file. The position of the descriptor is of no concern."""
    if not hasattr(os, "pread"):  # Windows; the descriptor is ours alone, so seeking is safe
        os.lseek(descriptor, start, os.SEEK_SET)
    pieces: list[bytes] = []
    while length:
        piece = os.pread(descriptor, length, start) if hasattr(os, "pread") else os.read(descriptor, length)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextmanager
def _directory_lock(directory: Path) -> Iterator[bool]:
    """Excludes other processes from creating names in ``directory``. A killed holder releases it by dying.

    Yields whether there are locks at all.

    The lock file stays: to remove it would let two processes hold locks on two files of the same name.
    """
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield lock(descriptor)
    finally:
        os.close(descriptor)
