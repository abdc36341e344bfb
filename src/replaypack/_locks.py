"""Files that are locked while a process writes them: what killed ones left can be told from them."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["create_locked", "lock", "unlocked"]


def lock(descriptor: int) -> bool:
    """Lock a file until it is closed, or its process dies; whether there are locks."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits for those who only look whether it is locked
    except OSError:
        return False
    return True


def create_locked(directory: Path, prefix: str, suffix: str = "") -> tuple[Path, int]:
    """A new file between ``prefix`` and ``suffix``, and its descriptor; locked, where there are locks, before anybody
    can take it for a dead process's. Raises `OSError`.
    """
    while True:
        path = directory / f"{prefix}{secrets.token_hex(6)}{suffix}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if not lock(descriptor) or os.path.lexists(path):
            return path, descriptor
        os.close(descriptor)  # whoever deletes what was left was faster


@contextmanager
def unlocked(path: str | os.PathLike[str]) -> Iterator[bool | None]:
    """Whether no living process holds a file, and none can meanwhile; None where that cannot be told.

    Raises `FileNotFoundError`.
    """
    if sys.platform == "win32":
        yield None
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError:  # another user's
        yield None
        return
    try:
        found: bool | None = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = False
        except OSError:
            found = None
        yield found
    finally:
        os.close(descriptor)
