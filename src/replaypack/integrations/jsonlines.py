"""JSON lines: one record a line, written without loss, and read in that shape and in other common ones.

`docs/interchange.md` describes the shape.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from replaypack._plain import on_fresh_stack
from replaypack.archive import Archive
from replaypack.errors import ExportError, ImportFormatError, ReplaypackError, StorageError, UsageError
from replaypack.recorder import Recorder
from replaypack.recording import Record, Recording
from replaypack.tagged import jsonable, load_json

from .interchange import Summary, atomic_file

__all__ = ["JsonLines"]

VERSION = 1
#: Bytes of the longest line that is read or written.
MAX_LINE = 1 << 30
_BOM = b"\xef\xbb\xbf"

#: Our members, and what else they are called; the first that is there counts, two are refused.
_NAMES = {
    "request": ("input", "args", "arguments"),
    "response": ("output", "result"),
}
_MEMBERS = frozenset(
    "seq kind name scope identity request response error status key key_scheme start start_ns duration duration_ns "
    "flags attributes salt".split()
)
_HEAD = "replaypack"

Unknown = Literal["refuse", "skip"]


class JsonLines:
    """The format ``jsonl``. A path of ``-`` is standard input, or output."""

    name = "jsonl"

    def detects(self, head: bytes, path: Path) -> bool:
        """Whether the first line is an object, or as much of it as there is looks like one in a file called so."""
        line, newline, _ = head.removeprefix(_BOM).lstrip().partition(b"\n")
        if newline or len(head) < 1 << 16:
            try:
                return isinstance(load_json(line), dict)
            except ValueError:
                return line.startswith(b"{") and path.suffix in (".jsonl", ".ndjson")
        return line.startswith(b"{")

    def load(
        self,
        path: Path,
        archive: Archive,
        recording: str,
        *,
        kind: str | None = None,
        members: Mapping[str, str] | None = None,
        unknown: Unknown = "refuse",
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> Summary:
        """Record the lines of a file, in their order. Nothing of them is left in the archive where one is refused.

        ``kind`` is that of lines which name none. ``members`` says what members are called: ``{"request": "prompt"}``.
        ``unknown`` members are refused, or skipped and counted in the notes. ``progress`` is called with the number of
        records so far. ``options`` go to `Archive.recorder`.

        Raises `ImportFormatError` with the line, and what `Archive.recorder` raises.
        """
        reader = _Reader(path, kind, dict(members or {}), unknown)
        options.setdefault("flush_interval", None)
        with reader.open() as file:
            lines = reader.lines(file)
            first = next(lines, None)
            if first is None:
                raise ImportFormatError(f"{path} is empty")
            head = _head(first[1], reader.where(first[0]))
            if head is not None:
                options["metadata"] = {**head.metadata, **(options.get("metadata") or {})}
                options.setdefault("recorded_by", head.recorded_by)
                reader.strict = True
            recorder = archive.recorder(recording, **options)
            try:
                before = recorder.count
                if head is None:
                    reader.append(recorder, *first)
                for number, line in lines:
                    reader.append(recorder, number, line)
                    if progress is not None:
                        progress(recorder.count - before)
                count = recorder.count - before
                if head is not None and count != head.records:
                    raise ImportFormatError(
                        f"{path} has {count} records, and says that it has {head.records}",
                        hint="it was cut off; without its first line the rest can be imported as it is",
                    )
                if head is not None and head.state == "incomplete":
                    manifest = recorder._finish("incomplete", head.error)
                else:
                    manifest = recorder.seal()
            except BaseException as error:
                _discard(recorder, error)
                raise
            finally:
                recorder.close()
        if head is not None and head.state == "open":
            reader.note("the recording was still being written when it was exported")
        if head is not None and not before and manifest.content.merkle_root != head.merkle_root:
            reader.note("the records are not those that were exported: the file was changed")
        return Summary(self.name, count, tuple(reader.notes()))

    def dump(
        self,
        recording: Recording,
        path: Path,
        *,
        overwrite: bool = False,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> Summary:
        """Write the records of a recording, after a line that describes it. Reading it back gives the same records.

        Raises `ExportError`, and what reading raises.
        """
        if options:
            raise UsageError(f"jsonl has no option {', '.join(sorted(options))}")
        standard = str(path) == "-"
        count = 0
        with nullcontext(sys.stdout.buffer) if standard else atomic_file(path, overwrite=overwrite) as file:
            file.write(_line(_describe(recording), "the first line"))
            for record in recording.records():
                file.write(_line(_members(record), f"record {record.seq}"))
                count += 1
                if progress is not None:
                    progress(count)
            if standard:
                file.flush()
        return Summary(self.name, count)


def _discard(recorder: Recorder, error: BaseException) -> None:
    try:
        recorder.discard()
    except StorageError as problem:
        error.add_note(f"replaypack: the name stays claimed: {problem}")


# Writing


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line: the recording, as far as its records do not say it."""

    version: int
    name: str
    state: Literal["open", "sealed", "incomplete"]
    started: str
    recorded_by: str
    metadata: dict[str, Any]
    match: dict[str, Any]
    redaction: dict[str, Any]
    error: dict[str, Any] | None
    records: int
    merkle_root: str
    content_digest: str


def _describe(recording: Recording) -> dict[str, Any]:
    content = recording.manifest.content
    head = _Head(
        version=VERSION,
        name=recording.name,
        state=content.state,
        started=content.started,
        recorded_by=content.recorded_by,
        metadata=content.metadata,
        match=msgspec.to_builtins(content.match),
        redaction=msgspec.to_builtins(content.redaction),
        error=content.error,
        records=content.records,
        merkle_root=content.merkle_root,
        content_digest=recording.content_digest,
    )
    return {_HEAD: msgspec.to_builtins(head)}


def _members(record: Record) -> dict[str, Any]:
    row = record.row
    result: dict[str, Any] = {"seq": record.seq, "kind": record.kind}
    for member, text in (("name", record.name), ("scope", record.scope)):
        if text is not None:
            result[member] = text
    if record.key_scheme != "identity":
        result["key"] = record.key.hex()
        result["key_scheme"] = record.key_scheme
    if row.identity is not None:
        result["identity"] = record.identity
    if row.request is not None:
        result["request"] = record.request
    if row.status:
        result["status"] = record.status
    if row.response_encoding:
        response = record.response
        failed = row.status != 0 and type(response) is dict
        result["error" if failed else "response"] = response
    result["start_ns"] = record.start
    result["duration_ns"] = row.duration
    if record.flags:
        result["flags"] = sorted(record.flags)
    if row.attributes is not None:
        result["attributes"] = row.attributes
    result["salt"] = row.salt.hex()
    return result


def _line(value: dict[str, Any], where: str) -> bytes:
    try:
        # The members by themselves: an object of one of them is no tagged value.
        tagged = on_fresh_stack(lambda: {name: jsonable(item) for name, item in value.items()})
        text = on_fresh_stack(lambda: json.dumps(tagged, allow_nan=False, separators=(",", ":")))
    except RecursionError:
        raise ExportError(f"{where} is nested too deeply for JSON") from None
    line = text.encode() + b"\n"
    if len(line) > MAX_LINE:
        raise ExportError(f"{where} takes {len(line)} bytes as JSON, more than a line may have ({MAX_LINE})")
    return line


# Reading


def _head(line: bytes, where: str) -> _Head | None:
    try:
        value = load_json(line)
    except ValueError:
        return None  # what is wrong is said when it is read as a record
    if not isinstance(value, dict) or value.keys() != {_HEAD}:
        return None
    head = value[_HEAD]
    version = head.get("version") if isinstance(head, dict) else None
    if type(version) is int and version > VERSION:
        raise ImportFormatError(f"{where} is of version {version}", hint="written by a newer version: upgrade")
    try:
        found = msgspec.convert(head, _Head)
    except msgspec.ValidationError as error:
        raise ImportFormatError(f"{where} does not describe a recording: {error}") from None
    if found.match.get("name") != "none" or found.redaction.get("name") != "none":
        raise ImportFormatError(f"{where} names a match or redaction policy, which cannot be imported yet")
    return found


class _Reader:
    """Lines, checked and recorded."""

    def __init__(self, path: Path, kind: str | None, members: dict[str, str], unknown: Unknown) -> None:
        self.path = path
        self.kind = kind
        self.unknown = unknown
        #: Whether this package wrote the file, so that nothing in it can be unknown.
        self.strict = False
        self._notes: list[str] = []
        self._skipped: dict[str, int] = {}
        # What each member of a line means to us.
        self._meaning = {name: name for name in _MEMBERS}
        for ours, others in _NAMES.items():
            self._meaning.update(dict.fromkeys(others, ours))
        for ours, theirs in members.items():
            if ours not in _MEMBERS:
                raise UsageError(f"{ours!r} is not a member", hint=f"there are {', '.join(sorted(_MEMBERS))}")
            self._meaning[theirs] = ours

    def open(self) -> Any:
        if str(self.path) == "-":
            return nullcontext(sys.stdin.buffer)
        try:
            return self.path.open("rb")
        except OSError as error:
            raise ImportFormatError(f"{self.path} cannot be read: {error.strerror}") from None

    def where(self, number: int) -> str:
        return f"{'standard input' if str(self.path) == '-' else self.path}, line {number}"

    def note(self, text: str) -> None:
        self._notes.append(text)

    def notes(self) -> Iterator[str]:
        yield from self._notes
        for name, count in self._skipped.items():
            yield f"the member {name!r} was skipped in {count} {'line' if count == 1 else 'lines'}"

    def lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, numbered from 1."""
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise ImportFormatError(
                    f"{self.where(number)} has more than {MAX_LINE} bytes", hint="is it JSON lines?"
                )
            if number == 1:
                if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise ImportFormatError(f"{self.where(1)} begins like UTF-16", hint="convert the file to UTF-8")
                if line.startswith(_BOM):
                    line = line[len(_BOM) :]
                    self.note("the file began with a byte order mark")
            if line := line.strip():
                yield number, line

    def append(self, recorder: Recorder, number: int, line: bytes) -> None:
        """Record a line. Raises `ImportFormatError`."""
        where = self.where(number)
        try:
            value = load_json(line)
        except ValueError as error:
            hint = "is it JSON lines, one object a line?" if number == 1 or line in (b"{", b"[", b"}", b"]") else None
            raise ImportFormatError(f"{where} is not a line of JSON: {error}", hint=hint) from None
        if not isinstance(value, dict):
            raise ImportFormatError(f"{where} is {_what(value)}, not an object", hint="one object a line is a record")
        try:
            recorder.append(**self.arguments(value))
        except _Refused as refusal:
            raise ImportFormatError(f"{where}: {refusal}", hint=refusal.hint) from None
        except ReplaypackError as error:
            if not isinstance(error, ValueError | UsageError) or error.code.startswith("archive."):
                raise
            raise ImportFormatError(f"{where}: {error.message}", hint=error.hint) from None

    def arguments(self, value: dict[str, Any]) -> dict[str, Any]:
        """The arguments of `Recorder.append` that a line stands for."""
        found: dict[str, Any] = {}
        called: dict[str, str] = {}
        for name, item in value.items():
            ours = self._meaning.get(name)
            if ours is None:
                self._unknown(name)
            elif ours in found:
                raise _Refused(f"{called[ours]!r} and {name!r} mean the same")
            else:
                found[ours], called[ours] = item, name
        result = {name: found[name] for name in ("kind", "name", "scope", "status") if found.get(name) is not None}
        kind = result.setdefault("kind", self.kind)
        if kind is None:
            raise _Refused("it has no kind", "name the kind of such lines, as with --kind model")
        for name in ("kind", "name", "scope", "status"):
            if not isinstance(result.get(name, ""), str):
                raise _Refused(f"{name} is {_what(result[name])}, not text")
        if called.get("request") in ("args", "arguments") and kind == "tool" and "name" in result:
            # What a session makes of a tool call (spec/registry.md).
            found["request"] = {"name": result["name"], "arguments": found["request"]}
        result.update(_key(found))
        result.update(_outcome(found))
        result.update(_times(found))
        for name in ("flags", "attributes"):
            if found.get(name) is not None:
                if not isinstance(found[name], list if name == "flags" else dict):
                    raise _Refused(f"{name} is {_what(found[name])}")
                result[name] = found[name]
        if "salt" in found:
            result["salt"] = _hex(found["salt"], "salt", 8)
        return result

    def _unknown(self, name: str) -> None:
        if self.unknown == "refuse" or self.strict:
            raise _Refused(f"the member {name!r} is not known", "skip unknown members, or say what they are called")
        self._skipped[name] = self._skipped.get(name, 0) + 1


class _Refused(Exception):
    """Why a line is no record."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def _key(found: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {name: found[name] for name in ("identity", "request") if name in found}
    key, scheme = found.get("key"), found.get("key_scheme")
    if scheme is not None and not isinstance(scheme, str):
        raise _Refused(f"key_scheme is {_what(scheme)}, not text")
    if key is None:
        if scheme not in (None, "identity"):
            raise _Refused(f"a key of the scheme {scheme!r} is not there")
        if not result:
            raise _Refused("it has no request, no identity and no key: nothing would find it")
        result.setdefault("identity", found.get("request"))
        if "identity" not in found:
            del result["request"]
    elif scheme is None:
        if not isinstance(key, str):
            raise _Refused(f"key is {_what(key)}, not text")
        if "identity" in result:
            raise _Refused("it has a key and an identity", "leave one out, or name the key_scheme")
        result["key"] = key
    else:
        result["key_digest"], result["key_scheme"] = _hex(key, "key", 32), scheme
    return result


def _outcome(found: dict[str, Any]) -> dict[str, Any]:
    error = found.get("error")
    if error is None:
        return {"response": found["response"]} if "response" in found else {}
    if found.get("response") is not None:
        raise _Refused("it has a response and an error")
    if not isinstance(error, str | dict):
        raise _Refused(f"error is {_what(error)}, not an object or text")
    return {"error": {"message": error} if isinstance(error, str) else error}


def _times(found: dict[str, Any]) -> dict[str, int]:
    result = {}
    for name, read in (("start", _moment), ("duration", _seconds)):
        exact, other = found.get(name + "_ns"), found.get(name)
        if exact is not None and other is not None:
            raise _Refused(f"it has {name} and {name}_ns")
        if exact is not None:
            if type(exact) is not int or not 0 <= exact < 1 << 63:
                raise _Refused(f"{name}_ns is {_what(exact)}, not nanoseconds")
            result[name] = exact
        elif other is not None:
            result[name] = read(other, name)
    return result


def _moment(value: Any, name: str) -> int:
    if not isinstance(value, str):
        return _seconds(value, name)
    try:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        nanoseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    except (ValueError, OverflowError):
        raise _Refused(f"{name} {value[:40]!r} is not a time", "write e.g. 2026-01-31T12:00:00Z") from None
    if nanoseconds < 0:
        raise _Refused(f"{name} {value[:40]!r} is before 1970")
    return nanoseconds


def _seconds(value: Any, name: str) -> int:
    if type(value) not in (int, float) or not 0 <= value < 1 << 33:
        raise _Refused(f"{name} is {_what(value)}, not seconds", f"write nanoseconds as {name}_ns")
    nanoseconds: int = round(value * 1_000_000_000)
    return nanoseconds


def _hex(value: Any, name: str, size: int) -> bytes:
    try:
        data = bytes.fromhex(value)
    except (TypeError, ValueError):
        data = b""
    if len(data) != size:
        raise _Refused(f"{name} is not {2 * size} hex digits")
    return data


def _what(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"a number ({value!r:.40})" if isinstance(value, float) or value.bit_length() < 100 else "a large number"
    names: dict[type, str] = {str: "text", list: "an array", dict: "an object", bytes: "bytes"}
    return names.get(type(value), type(value).__name__)
