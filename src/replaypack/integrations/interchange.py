"""File formats of other programs: how each is told apart, read into a recording, and written from one."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from replaypack._escape import counted
from replaypack._files import write_hint
from replaypack.archive import Archive
from replaypack.errors import ExportError, ImportFormatError, RecordingNotFoundError, ReplaypackError, UsageError
from replaypack.recording import Recording
from replaypack.tagged import load_json

__all__ = [
    "HEAD",
    "Interchange",
    "Summary",
    "as_it_is",
    "described",
    "detect",
    "exporting",
    "format_named",
    "formats",
    "left_out",
]

#: Bytes at the beginning of a file by which formats are told apart.
HEAD = 64 << 10

#: The formats, most particular first: a module, or what of it, that has the members of `Interchange`.
_FORMATS = {
    "chassis": "replaypack.integrations.chassis_json:ChassisJson",
    "karenina": "replaypack.integrations.karenina_json",
    "jsonl": "replaypack.integrations.jsonlines:JsonLines",
}


def as_it_is(archive: Archive, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of the recorder of an import: what a file holds is not redacted unless that was asked for.

    A recording that is continued keeps its policy.
    """
    if options.get("if_exists") == "append":
        try:
            with archive.open(name):
                return options
        except RecordingNotFoundError:
            pass
    return {"redact": None, **options}


class Summary(msgspec.Struct, frozen=True):
    """What an import or export did: the format, the records moved, and what could not be kept, in words."""

    format: str
    records: int
    notes: tuple[str, ...] = ()


def left_out(recording: Recording) -> tuple[str, ...]:
    """What an export says of records that were purged."""
    purged = recording.manifest.purged
    if not purged:
        return ()
    return (f"{counted(purged, 'record')} {'was' if purged == 1 else 'were'} purged, and not written",)


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
def exporting(path: Path) -> Iterator[None]:
    """What the disk says while a file is written, as `ExportError`."""
    try:
        yield
    except ReplaypackError:
        raise  # some of ours are of `OSError` too: it is the archive that could not be read
    except FileExistsError:
        raise ExportError(f"{path} is there already", hint="remove it, or say that it may be overwritten") from None
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise ExportError(message, hint=write_hint(error)) from error


def described(value: Any) -> str:
    """What a value of a file is, for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"a number ({value!r:.40})" if isinstance(value, float) or value.bit_length() < 100 else "a large number"
    names: dict[type, str] = {str: "text", list: "an array", dict: "an object", bytes: "bytes"}
    return names.get(type(value), type(value).__name__)
