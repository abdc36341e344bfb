"""Small files that commands read and write beside archives: proofs, keys, envelopes, payloads."""

from __future__ import annotations

import sys
from pathlib import Path

from replaypack._files import atomic_file
from replaypack.errors import UsageError

__all__ = ["read_file", "write_file"]


def read_file(path: Path, most: int = -1) -> bytes:
    """The bytes of a file, of standard input for ``-``; at most ``most`` of them. Raises `UsageError`."""
    if str(path) == "-":
        return sys.stdin.buffer.read(most)
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def write_file(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write a file that appears when it is whole. Raises `UsageError`."""
    try:
        with atomic_file(path, overwrite=overwrite) as file:
            file.write(data)
    except FileExistsError:
        raise UsageError(f"{path} is there already", hint="--overwrite replaces it") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
