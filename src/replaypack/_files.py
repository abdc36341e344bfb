"""Where files lie on this machine, and writing one whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ._digest import digest
from ._locks import create_locked, unlocked

__all__ = ["atomic_file", "live_directory", "state_directory", "write_hint"]

_SUFFIX = ".part"


def state_directory() -> Path:
    """The user's directory for what outlives a program: ``$XDG_STATE_HOME/replaypack``."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state) / "replaypack"


def live_directory(url: str) -> Path:
    """Where calls made live while replaying are recorded when the archive at ``url`` cannot be written."""
    return state_directory() / "live" / digest(url.encode()).hex()[:32]


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file to write (and read) that appears under ``path`` when the block ends, whole, and not at all where it fails.

    A link stays one: what it points to is replaced; a directory, device or pipe never is. Where the process is killed
    a hidden file ``.NAME.….part`` is left beside it, which the next one for the same path deletes. Raises `OSError`;
    `FileExistsError` where there is a file, unless ``overwrite``.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it is not a file, and a directory, device or pipe is not replaced", str(path))
    prefix = f".{target.name[:40]}."
    _remove_dead(target.parent, prefix)
    temporary, descriptor = create_locked(target.parent, prefix, _SUFFIX)
    # The lock says that the file is somebody's; it holds until the file has its name.
    lock = None if sys.platform == "win32" else os.dup(descriptor)
    try:
        file = os.fdopen(descriptor, "w+b")
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # On a full disk closing fails once more, with what is still to be written, and would hide the reason.
            with contextlib.suppress(OSError):
                file.close()
            raise
        file.close()
        if overwrite:
            os.replace(temporary, target)
        else:
            _create(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if lock is not None:
            os.close(lock)


def write_hint(error: OSError) -> str:
    """What to do where a file cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return "free some space, or name another place"
    return "name a place that can be written"


def _remove_dead(directory: Path, prefix: str) -> None:
    """Delete the files that killed processes left: those that nobody holds the lock of."""
    pattern = re.compile(re.escape(prefix) + "[0-9a-f]{12}" + re.escape(_SUFFIX))
    with contextlib.suppress(OSError):
        for name in filter(pattern.fullmatch, os.listdir(directory)):
            path = directory / name
            with contextlib.suppress(OSError), unlocked(path) as free:
                if free and stat.S_ISREG(os.lstat(path).st_mode):
                    os.unlink(path)


def _create(temporary: Path, target: Path) -> None:
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if target.exists():
            raise FileExistsError(str(target)) from None
        os.replace(temporary, target)
