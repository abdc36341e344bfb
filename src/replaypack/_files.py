"""Where files lie on this machine, and writing one whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ._digest import digest

__all__ = ["atomic_file", "live_directory", "state_directory"]


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

    A link stays one: what it points to is replaced; a directory, device or pipe never is. Raises `OSError`;
    `FileExistsError` where there is a file, unless ``overwrite``.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it is not a file, and a directory, device or pipe is not replaced", str(path))
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(6)}.part")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(temporary, target)
        else:
            _create(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _create(temporary: Path, target: Path) -> None:
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if target.exists():
            raise FileExistsError(str(target)) from None
        os.replace(temporary, target)
