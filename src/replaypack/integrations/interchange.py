"""File formats of other programs: how each is told apart, read into a recording, and written from one."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from replaypack.archive import Archive
from replaypack.errors import ExportError, ImportFormatError, UsageError
from replaypack.recording import Recording
from replaypack.tagged import load_json

__all__ = [
    "HEAD",
    "Interchange",
    "Summary",
    "as_it_is",
    "atomic_file",
    "check_replaceable",
    "detect",
    "format_named",
    "formats",
]

#: Bytes at the beginning of a file by which formats are told apart.
HEAD = 64 << 10

#: The formats, most particular first: a module, or what of it, that has the members of `Interchange`.
_FORMATS = {
    "chassis": "replaypack.integrations.chassis_json:ChassisJson",
    "karenina": "replaypack.integrations.karenina_json",
    "jsonl": "replaypack.integrations.jsonlines:JsonLines",
}


def as_it_is(options: dict[str, Any]) -> dict[str, Any]:
    """Options of the recorder of an import: what a file holds is not redacted unless that was asked for.

    A recording that is continued keeps its policy.
    """
    return options if options.get("if_exists") == "append" else {"redact": None, **options}


class Summary(msgspec.Struct, frozen=True):
    """What an import or export did: the format, the records moved, and what could not be kept, in words."""

    format: str
    records: int
    notes: tuple[str, ...] = ()


class Interchange(Protocol):
    """One file format. Implementations are modules of this package, or classes in one; `formats` lists them."""

    #: Its name on the command line.
    name: str

    def detects(self, head: bytes, path: Path) -> bool:
        """Whether a file that begins with ``head`` (up to 64 KiB) is of this format."""

    def load(self, path: Path, archive: Archive, recording: str, **options: Any) -> Summary:
        """Record what the file holds as a new recording. Raises `ImportFormatError` where it cannot be read.

        ``options`` are those of `Archive.recorder`, and what the format has of its own.
        """

    def dump(self, recording: Recording, path: Path, **options: Any) -> Summary:
        """Write a recording as a file of this format, atomically. Raises `ExportError` where it cannot be said."""


def formats() -> dict[str, Interchange]:
    """The formats that there are, by name; the most particular first."""
    found: dict[str, Interchange] = {}
    for name, place in _FORMATS.items():
        module_name, _, member = place.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name != module_name:
                raise
            continue
        found[name] = getattr(module, member)() if member else module
    return found


def format_named(name: str) -> Interchange:
    """The format of a name. Raises `UsageError` where there is none."""
    known = formats()
    if name not in known:
        raise UsageError(f"{name!r} is not a format", hint=f"there are {', '.join(known)}")
    return known[name]


def detect(path: Path) -> Interchange:
    """The format of a file. Raises `ImportFormatError` where it is of none, or cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise ImportFormatError(f"{path} cannot be read: {error.strerror}") from None
    known = formats()
    if _is_lines(head):
        return known["jsonl"]
    for format_ in known.values():
        if format_.detects(head, path):
            return format_
    hint = f"name its format ({', '.join(known)})"
    if head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"PK\x03\x04", b"\xfd7zXZ")):
        hint = "it is compressed: decompress it first"
    raise ImportFormatError(f"{path} is of no format that is known here", hint=hint if head else "it is empty")


def _is_lines(head: bytes) -> bool:
    """Whether it begins with an object on a line of its own and another one: no document goes on like that."""
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    try:
        return rest.lstrip().startswith(b"{") and isinstance(load_json(first), dict)
    except ValueError:
        return False


@contextlib.contextmanager
def atomic_file(path: Path, *, overwrite: bool = False) -> Iterator[IO[bytes]]:
    """A file to write that appears under ``path`` when the block ends, whole, and not at all where it fails.

    Raises `ExportError` where the file is there already, unless ``overwrite``, and where the disk fails.
    """
    if path.exists() and not overwrite:
        raise ExportError(f"{path} is there already", hint="remove it, or say that it may be overwritten")
    check_replaceable(path)
    temporary: str | None = None
    try:
        # Through a link, so that it is the file behind it that is replaced.
        target = Path(os.path.realpath(path))
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        if overwrite:
            os.replace(temporary, target)
            temporary = None
        else:
            _create(Path(temporary), target)
    except FileExistsError:
        raise ExportError(f"{path} is there already", hint="another program wrote it meanwhile") from None
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def check_replaceable(path: Path) -> None:
    """Raise `ExportError` where something that is no file is at a path, which a file would take the place of."""
    if path.exists() and not path.is_file():
        raise ExportError(f"{path} is not a file", hint="a directory, device or pipe is not replaced")


def _create(temporary: Path, target: Path) -> None:
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if target.exists():
            raise FileExistsError(str(target)) from None
        os.replace(temporary, target)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
