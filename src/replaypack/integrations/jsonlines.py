"""JSON lines: one record a line, written without loss, and read in that shape and in other common ones.

`docs/interchange.md` describes the shape.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import msgspec

from replaypack._escape import counted
from replaypack._files import atomic_file
from replaypack._plain import on_fresh_stack
from replaypack.archive import Archive
from replaypack.errors import ExportError, FormatError, ImportFormatError, UsageError
from replaypack.policies.matching import MatchPolicy
from replaypack.policies.redaction import RedactionPolicy
from replaypack.recording import Record, Recording
from replaypack.tagged import jsonable, load_json

from ._jsonlines_reader import BOM, MAX_LINE, Reader, Unknown
from .interchange import Summary, as_it_is, exporting, left_out

__all__ = ["JsonLines"]

VERSION = 1
_HEAD = "replaypack"


class JsonLines:
    """The format ``jsonl``. A path of ``-`` is standard input, or output."""

    name = "jsonl"

    def detects(self, head: bytes, path: Path) -> bool:
        """Whether the first line is an object, or as much of it as there is looks like one in a file called so."""
        line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
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
        reader = Reader(path, kind, dict(members or {}), unknown)
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
                options.setdefault("match", head.match)
                options.setdefault("redact", RedactionPolicy.from_data(head.redaction))
                reader.strict = True
            with archive.recorder(recording, on_error="discard", **as_it_is(archive, recording, options)) as recorder:
                before = recorder.count
                if head is None:
                    reader.append(recorder, *first)
                for number, line in lines:
                    reader.append(recorder, number, line)
                    if progress is not None:
                        progress(recorder.count - before)
                count = recorder.count - before
                if head is not None and count + head.purged != head.records:
                    raise ImportFormatError(
                        f"{path} has {count} records, and says that it has {head.records - head.purged}",
                        hint="it was cut off; without its first line the rest can be imported as it is",
                    )
                if head is not None and head.state == "incomplete":
                    manifest = recorder.seal(state="incomplete", error=head.error)
                else:
                    manifest = recorder.seal()
        if head is not None and head.state == "open":
            reader.note("the recording was still being written when it was exported")
        if head is not None and head.purged:
            reader.note(f"{counted(head.purged, 'record')} had been purged before it was exported")
        elif head is not None and not before and manifest.content.merkle_root != head.merkle_root:
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
        if not overwrite and not standard and path.exists():
            raise ExportError(f"{path} is there already", hint="remove it, or say that it may be overwritten")
        count = 0
        target = nullcontext(sys.stdout.buffer) if standard else atomic_file(path, overwrite=overwrite)
        with nullcontext() if standard else exporting(path), target as file:
            file.write(_line(_describe(recording), "the first line"))
            for record in recording.records():
                file.write(_line(_members(record), f"record {record.seq}"))
                count += 1
                if progress is not None:
                    progress(count)
            if standard:
                file.flush()
        return Summary(self.name, count, left_out(recording))


# Writing


class _Head(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
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
    #: Records that were purged: of these there are no lines.
    purged: int = 0


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
        purged=recording.manifest.purged,
    )
    return {_HEAD: msgspec.to_builtins(head)}


def _members(record: Record) -> dict[str, Any]:
    row = record.row
    result: dict[str, Any] = {"seq": record.seq, "kind": record.kind}
    for member, text in (("name", record.name), ("scope", record.scope)):
        if text is not None:
            result[member] = text
    if record.key_scheme != "identity":
        result["key"] = record.row.key.hex()
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
    try:
        RedactionPolicy.from_data(found.redaction)
        MatchPolicy.from_data(found.match)
    except FormatError as error:
        raise ImportFormatError(f"{where}: {error.detail}", hint=error.hint) from None
    return found
