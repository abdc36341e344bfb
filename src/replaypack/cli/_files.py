"""Small files that commands read and write beside archives: proofs, keys, envelopes, payloads."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from replaypack._files import atomic_file, write_hint
from replaypack.errors import ExportError, ReplaypackError, StorageError, UsageError

from ._output import NO_ANSWER

__all__ = ["new_file", "output_to", "read_file", "unwritable", "write_file"]


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
    with new_file(path, overwrite=overwrite) as file:
        file.write(data)


@contextlib.contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file to write that appears when the block ends. Raises `UsageError` for what the disk says."""
    try:
        with atomic_file(path, overwrite=overwrite) as file:
            yield file
    except ReplaypackError:
        raise  # some of ours are of `OSError` too: it is about something else
    except FileExistsError:
        raise UsageError(f"{path} is there already", hint="--overwrite replaces it") from None
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> UsageError:
    """What the disk says of a file that is to be written."""
    return UsageError(f"{path} cannot be written: {error.strerror or error}", hint=write_hint(error))


@contextlib.contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Where the library cannot write the file at ``path``, the command ends with exit code 2."""
    try:
        yield
    except StorageError as error:
        if Path(error.url) == path:
            error.add_note(NO_ANSWER)
        raise
    except ExportError as error:
        if isinstance(error.__cause__, OSError):
            error.add_note(NO_ANSWER)
        raise
