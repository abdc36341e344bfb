"""Journal files on the local disk: appended to before `append` returns, deleted once published."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from replaypack._files import state_directory
from replaypack.errors import AccessDeniedError, FormatError, JournalError, ReplaypackError, without_frames
from replaypack.format.digests import digest
from replaypack.format.journal import JournalHead, JournalRecord, encode_head, read_journal
from replaypack.storage import Storage

if sys.platform != "win32":
    import fcntl

__all__ = [
    "JournalFile",
    "Leftover",
    "find_leftovers",
    "journal_directory",
    "journals_of",
    "read_head",
    "remove_unnamed",
    "require_readable",
    "writer_is_alive",
    "writers_of",
]

_SUFFIX = ".rpj"
_UNNAMED = ".new"
#: Neither links nor pipes are opened: nothing in the directory leads out of it, or keeps a reader waiting.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def journal_directory(storage: Storage) -> Path:
    """Where the journals of an archive lie: inside of a local one, else in the user's state directory."""
    if storage.local_path is not None:
        return storage.local_path / "journal"
    name = storage.url
    if name.startswith("memory://"):
        # Objects of this process alone: another process's journal belongs to another archive of that name.
        name += f"#{os.getpid()}"
    return state_directory() / "journal" / digest(name.encode()).hex()[:32]


class JournalFile:
    """One journal file, locked while its recorder lives. Mode 0600: it holds what was recorded."""

    def __init__(self, directory: Path, head: JournalHead, *, named: bool = True) -> None:
        self.path = directory / f"{head.writer}-{head.number:06d}{_SUFFIX}"
        # Under its name there is never a journal without a whole head, wherever the process dies.
        unnamed = self.path.with_suffix(_UNNAMED)
        self._fd = -1
        self._size = 0
        self._durable = False
        self._pid = os.getpid()
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = _create_locked(unnamed)
            self.append(encode_head(head))
            if named:
                os.rename(unnamed, self.path)
        except OSError as error:
            if self._fd >= 0:
                unnamed.unlink(missing_ok=True)
            self.close(delete=False)
            raise error if isinstance(error, JournalError) else self._failed("create", error) from None

    def name(self) -> None:
        """Give it its name, after `sync`, where it was made without: from here on it is found and recovered."""
        try:
            os.rename(self.path.with_suffix(_UNNAMED), self.path)
            _sync_directory(self.path.parent)
        except OSError as error:
            raise self._failed("name", error) from None

    def append(self, data: bytes) -> None:
        """Append ``data`` whole or not at all; raises `JournalError`.

        Once this returns the bytes outlive the process, not yet a power failure: `sync` is for that.
        """
        try:
            done = os.write(self._fd, data)
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError as error:
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:  # pragma: no cover - a reader ends at the first entry that is cut off
                pass
            raise self._failed("write", error) from None
        self._size += done

    def sync(self) -> None:
        """Make what was appended outlive a power failure; raises `JournalError`."""
        try:
            os.fsync(self._fd)
            if not self._durable:
                # A file that is on the disk and in no directory there is lost all the same.
                _sync_directory(self.path.parent)
                _sync_directory(self.path.parent.parent)
                self._durable = True
        except OSError as error:
            raise self._failed("sync", error) from None

    def close(self, *, delete: bool) -> None:
        """Release the lock; delete the file where its records are published."""
        if self._fd < 0:
            return
        if delete:
            self.path.unlink(missing_ok=True)
        if sys.platform != "win32" and os.getpid() == self._pid:
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # a forked child that is still there has the lock as well
        os.close(self._fd)
        self._fd = -1

    def _failed(self, verb: str, error: OSError) -> JournalError:
        place = self.path.parent.parent
        if error.errno == errno.ENOTDIR and place.is_file() and state_directory() not in place.parents:
            return JournalError(
                f"{place} is a file, and an archive that is recorded into is a directory",
                hint="name another place: the directory is made",
            )
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "free some space"
            if verb != "create":
                hint += "; what was recorded before is in the journal: `replaypack recover` publishes it"
        elif state_directory() in self.path.parents:
            hint = "set XDG_STATE_HOME to a directory that can be written"
        else:
            hint = "the journal of a local archive lies in the archive, which must be in a place that can be written"
        return JournalError(f"cannot {verb} the journal {self.path}: {error.strerror}", hint=hint)


class Leftover(NamedTuple):
    """The journals of one recorder that is gone, in order."""

    head: JournalHead
    paths: list[Path]

    def records(self) -> Iterator[tuple[JournalHead, Iterator[JournalRecord]]]:
        """Read the journals one after another."""
        for path in self.paths:
            with _mapped(path) as data:
                yield read_journal(data, where=str(path))

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the locks, so that nobody else recovers these journals meanwhile; False where somebody does."""
        fds: list[int] = []
        try:
            for path in self.paths if sys.platform != "win32" else ():
                try:
                    fds.append(os.open(path, os.O_RDWR | _NO_LINK))
                except OSError:
                    break
                if not _take_lock(fds[-1]) or not os.fstat(fds[-1]).st_nlink:
                    break
            else:
                yield True
                return
            yield False
        finally:
            for fd in fds:
                os.close(fd)


def read_head(path: Path) -> JournalHead:
    """The head of one journal; raises `FormatError`, `JournalError`."""
    with _mapped(path) as data:
        return read_journal(data, where=str(path))[0]


def _take_lock(fd: int) -> bool:
    for _ in range(20):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.005)  # perhaps somebody who only looks whether it is locked
        else:
            return True
    return False


def _create_locked(path: Path) -> int:
    """Create a file that is locked before anybody can take it for a dead recorder's."""
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        if sys.platform == "win32":
            return fd
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # waits for those who only look whether it is locked
            if os.fstat(fd).st_nlink:
                return fd
        except OSError:
            path.unlink(missing_ok=True)
            os.close(fd)
            raise
        os.close(fd)  # `remove_unnamed` was faster


def _sync_directory(path: Path) -> None:
    if sys.platform == "win32":
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some filesystems have no fsync of directories
            os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _mapped(path: Path) -> Iterator[bytes]:
    """The bytes of a journal, not read before they are looked at: it may be of any size.

    Raises `JournalError` for what is no plain file of this directory, or unreadable.
    """
    try:
        mode = os.lstat(path).st_mode
    except PermissionError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        # A link could lead anywhere, and a pipe keeps its reader waiting.
        raise JournalError(f"the journal {path} is not a plain file")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}") from None
    with file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data  # type: ignore[misc]


@contextmanager
def _unlocked(path: Path) -> Iterator[bool]:
    """Whether no recorder holds the file; none can take it meanwhile. Others may look at the same time."""
    if sys.platform == "win32":
        yield False  # without locks a living recorder cannot be told from a dead one: nothing is taken from either
        return
    try:
        fd = os.open(path, os.O_RDONLY | _NO_LINK)
    except PermissionError:
        yield False  # another user's
        return
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            free = False
        else:
            free = True
        yield free
    finally:
        os.close(fd)


def _locked(path: Path) -> bool:
    with _unlocked(path) as free:
        return not free


def require_readable(directory: Path) -> None:
    """Raise `AccessDeniedError` where there may be journals in ``directory``, and this user may not look."""
    try:
        names = os.listdir(directory)
        denied = bool(names) and not os.access(directory, os.R_OK | os.X_OK)
    except PermissionError:
        denied = True
    except OSError:
        return  # there is none
    if denied:
        raise _denied("list", directory)


def _denied(operation: str, path: Path) -> AccessDeniedError:
    hint = "journals are for those alone who recorded: run it as that user"
    return AccessDeniedError(os.strerror(errno.EACCES), operation=operation, url=str(path), hint=hint)


def find_leftovers(directory: Path) -> tuple[list[Leftover], list[tuple[Path, ReplaypackError]]]:
    """Return the journals of recorders that are gone, and those that cannot be read."""
    writers: dict[str, Leftover] = {}
    broken: list[tuple[Path, ReplaypackError]] = []
    for path in _files(directory, f"*{_SUFFIX}"):
        if os.path.isfile(path) and not os.path.islink(path) and not os.access(path, os.R_OK):
            broken.append((path, _denied("get", path)))
            continue
        if _locked(path):
            continue
        try:
            with _mapped(path) as data:
                head, _ = read_journal(data, where=str(path))
            if path.name != f"{head.writer}-{head.number:06d}{_SUFFIX}":
                raise FormatError("a journal under another name than its head gives it", where=str(path))
        except FileNotFoundError:
            continue  # recovered meanwhile
        except (FormatError, JournalError) as error:
            broken.append((path, without_frames(error)))
            continue
        writers.setdefault(head.writer, Leftover(head, [])).paths.append(path)
    return list(writers.values()), broken


def _files(directory: Path, pattern: str) -> list[Path]:
    """Sorted; none where there is no such directory, or another user's that may not be looked into."""
    try:
        return sorted(directory.glob(pattern)) if directory.is_dir() else []
    except PermissionError:
        return []


def remove_unnamed(directory: Path) -> None:
    """Remove files of recorders that died before their journal had a head, and so before any `append`."""
    for path in _files(directory, f"*{_UNNAMED}"):
        if path.is_symlink():
            path.unlink(missing_ok=True)
            continue
        with _unlocked(path) as free:
            if free and path.is_file():
                path.unlink(missing_ok=True)


def journals_of(directory: Path, writer: str) -> list[Path]:
    """The journals of ``writer`` (16 hex digits) that are on this machine."""
    return _files(directory, f"{writer}-*{_SUFFIX}")


def writers_of(directory: Path) -> set[str]:
    """The writers (16 hex digits) that have journals on this machine, dead or alive."""
    return {path.name.partition("-")[0] for path in _files(directory, f"*{_SUFFIX}")}


def writer_is_alive(directory: Path, writer: str) -> bool | None:
    """Whether a recorder on this machine holds the journals of ``writer``; None where none here says so."""
    paths = [path for path in journals_of(directory, writer) if os.access(path, os.R_OK)]
    return any(map(_locked, paths)) if paths else None
