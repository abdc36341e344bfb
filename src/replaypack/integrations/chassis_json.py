"""The JSON of Chassis' replay sessions, and how one of its records lies in a row (`docs/chassis.md`).

Nothing here needs Chassis: its recordings can be read, kept and written on machines that do not have it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from replaypack._files import atomic_file
from replaypack._plain import pointer
from replaypack._read.bulk import BulkRow
from replaypack.archive import Archive
from replaypack.canonical import canonical_json, opaque_key
from replaypack.errors import CanonicalizationError, ExportError, FormatError, ImportFormatError, ValueEncodingError
from replaypack.format.notes import check_metadata
from replaypack.format.row import Row
from replaypack.recording import Record, Recording
from replaypack.values import ABSENT

from .interchange import Summary, as_it_is, described, exporting, left_out

__all__ = ["FORMAT_VERSION", "ChassisJson", "interaction", "interaction_row", "pack_session", "unpack_session"]

#: Version of the JSON that is written; version 0, which names none, is Chassis 0.8.1's.
FORMAT_VERSION = 1

KINDS = ("tool", "model", "interrupt", "snapshot", "lifecycle")
_MODES = ("live", "record", "replay")
_FALLBACKS = ("error", "live")
_REQUIRED = ("mode", "fallback", "metadata", "records")
_FIELDS = ("kind", "sequence", "key", "request", "response", "generation_id", "run_id", "created_at")
_NANO = 10**9
#: Later moments than a row's integer holds are noted as an attribute.
_MAX_START = 1 << 63
_MAX_NAME = 4096
_DETECTED = re.compile(rb'"fallback"\s*:\s*"(?:error|live)"')


def interaction_row(
    number: int,
    *,
    kind: str,
    sequence: int | None,
    key: str,
    request: Mapping[str, Any],
    response: Any,
    generation_id: str | None,
    run_id: str | None,
    created_at: float,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The arguments of `Recorder.append` for one record of a Chassis session, which is to be record ``number``.

    ``created_at`` is seconds since the epoch. ``sequence`` None stands for ``number``. ``extra`` holds fields that
    are none of Chassis'.
    """
    attributes: dict[str, Any] = {"key": key}
    if generation_id is not None:
        attributes["generation_id"] = generation_id
    if run_id is not None:
        attributes["run_id"] = run_id
    if sequence is not None and sequence != number:
        attributes["sequence"] = sequence
    start = _nanoseconds(created_at)
    if start is None:
        start = 0
        attributes["created_at"] = created_at
    if extra:
        attributes["extra"] = dict(extra)
    name = request.get(kind) if kind in ("tool", "model") else None
    return {
        "kind": kind,
        "key": key,
        "name": name if _is_name(name) else None,
        "request": request,
        "response": response,
        "start": start,
        "attributes": attributes,
    }


def _nanoseconds(seconds: float) -> int | None:
    """Nanoseconds that give these seconds back exactly, or None where none do."""
    try:
        numerator, denominator = seconds.as_integer_ratio()
    except (OverflowError, ValueError):
        return None
    start = (numerator * _NANO + denominator // 2) // denominator
    if not 0 <= start < _MAX_START or start / _NANO != seconds or math.copysign(1, seconds) < 0:
        return None  # also for -0.0
    return start


def _is_name(name: object) -> bool:
    if type(name) is not str:
        return False
    try:
        return len(name.encode()) <= _MAX_NAME
    except UnicodeEncodeError:
        return False


def seconds_of(row: Row | BulkRow) -> float:
    """When an interaction was recorded, in seconds since the epoch."""
    noted = (row.attributes or {}).get("created_at")
    return noted if isinstance(noted, float) else row.start / _NANO


def key_of(record: Record) -> str | None:
    """The key that Chassis gave a record; None for a record of something else."""
    key = (record.row.attributes or {}).get("key")
    if record.key_scheme != "opaque" or not isinstance(key, str) or opaque_key(key) != record.key:
        return None
    return key


def text_of(record: Record, name: str) -> str | None:
    """An attribute that is text, or None."""
    value = (record.row.attributes or {}).get(name)
    return value if isinstance(value, str) else None


def interaction(record: Record) -> dict[str, Any]:
    """The fields of a Chassis record, with those that are none of its own behind them.

    Raises `ExportError` where the record was not made by Chassis.
    """
    key = key_of(record)
    if record.kind not in KINDS or key is None:
        raise ExportError(
            f"record {record.seq} (kind {record.kind!r}) was not recorded through Chassis: it has no key of Chassis",
            hint="its JSON holds only records of Chassis sessions",
        )
    # Whoever wrote the archive is not trusted to have written the types that Chassis does.
    attributes = record.attributes
    sequence, extra = attributes.get("sequence"), attributes.get("extra")
    request, response = record.request, record.response
    return {
        **(extra if isinstance(extra, dict) else {}),
        "kind": record.kind,
        "sequence": sequence if type(sequence) is int else record.seq,
        "key": key,
        "request": request if isinstance(request, dict) else {},
        "response": None if response is ABSENT else response,
        "generation_id": text_of(record, "generation_id"),
        "run_id": text_of(record, "run_id"),
        "created_at": seconds_of(record.row),
    }


def pack_session(
    mode: str, fallback: str, metadata: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a session is besides its records, as the metadata of a recording.

    Raises `CanonicalizationError` for metadata that are no JSON.
    """
    session: dict[str, Any] = {"mode": mode, "fallback": fallback}
    for name, value in (("metadata", dict(metadata)), ("extra", dict(extra or {}))):
        fault = _json_fault(value)
        if fault is not None:
            raise CanonicalizationError(f"metadata of a session are JSON values; {fault}", path="/chassis/metadata")
        text = json.dumps(value, sort_keys=True)
        if _reads_back(value, text):
            session[name] = value
        else:
            # Manifests are canonical JSON, which has no 1.0, no NaN and no large integers.
            session[name + "_json"] = text
    if not session.get("extra", True):
        del session["extra"]
    return {"chassis": session}


def _reads_back(value: dict[str, Any], text: str) -> bool:
    try:
        check_metadata(value)
        return json.dumps(msgspec.json.decode(canonical_json(value)), sort_keys=True) == text
    except CanonicalizationError:
        return False


def unpack_session(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``mode``, ``fallback``, ``metadata`` and ``extra`` of the session that wrote a recording.

    Raises `FormatError` where somebody else wrote what is no JSON.
    """
    session = metadata.get("chassis")
    if not isinstance(session, dict):
        return {"mode": "record", "fallback": "error", "metadata": dict(metadata), "extra": {}}
    unpacked: dict[str, Any] = {}
    for name in ("metadata", "extra"):
        text = session.get(name + "_json")
        try:
            value = json.loads(text) if isinstance(text, str) else session.get(name)
        except (ValueError, RecursionError):
            raise FormatError("it is no JSON", where=f"metadata, /chassis/{name}_json") from None
        unpacked[name] = value if isinstance(value, dict) else {}
    for name, allowed, default in (("mode", _MODES, "record"), ("fallback", _FALLBACKS, "error")):
        value = session.get(name)
        unpacked[name] = value if value in allowed else default
    return unpacked


class ChassisJson:
    """Chassis' recordings as `ReplaySession.save` writes them (an `Interchange`)."""

    name = "chassis"

    def detects(self, head: bytes, path: Path) -> bool:
        """Whether a file begins as one of Chassis' recordings does."""
        return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and _DETECTED.search(head) is not None

    def load(self, path: Path, archive: Archive, recording: str, **options: Any) -> Summary:
        """Record what a file holds; ``options`` go to `Archive.recorder`.

        Nothing is left of a file that is refused. The order is that of the file, in which Chassis answers.
        Raises `ImportFormatError`, and what `Archive.recorder` raises.
        """
        where = str(path)
        document = _checked(_read(Path(path)), where)
        extra = {name: document[name] for name in document if name not in (*_REQUIRED, "format_version")}
        try:
            metadata = pack_session(document["mode"], document["fallback"], document["metadata"], extra)
            check_metadata(metadata)
        except CanonicalizationError as error:
            raise ImportFormatError(f"{where}: {error}") from None
        records = [_checked_record(entry, f"{where}: record {i}") for i, entry in enumerate(document["records"])]
        with archive.recorder(
            recording, metadata=metadata, on_error="discard", **as_it_is(archive, recording, options)
        ) as recorder:
            for number, record in enumerate(records):
                try:
                    recorder.append(**interaction_row(recorder.count, **record))
                except ValueEncodingError as error:
                    raise ImportFormatError(f"{where}: record {number} cannot be kept: {error}") from None
        notes = () if "format_version" in document else ("written by Chassis 0.8.1: an export names format version 1",)
        return Summary(self.name, len(records), notes)

    def dump(self, recording: Recording, path: Path, **options: Any) -> Summary:
        """Write a recording of Chassis, byte for byte as Chassis would, one record in memory at a time.

        Raises `ExportError` where a record is not Chassis', or holds what JSON has no form for.
        """
        session = unpack_session(recording.metadata)
        extra = session.pop("extra")
        head = {**extra, "format_version": FORMAT_VERSION, **session}
        with exporting(path):
            count = write_document(path, head, map(interaction, recording.records()))
        return Summary(self.name, count, left_out(recording))


def write_document(path: Path, head: Mapping[str, Any], records: Iterator[Mapping[str, Any]]) -> int:
    """Write a document as `json.dumps` (indent 2, sorted keys) would; the file is replaced when it is whole.

    Returns the number of records. Raises `ExportError`, and `OSError` where the disk fails.
    """
    count = 0
    with atomic_file(path, overwrite=True) as file:

        def write(text: str) -> None:
            file.write(text.encode())

        write("{")
        for number, member in enumerate(sorted({*head, "records"})):
            write(f"{',' if number else ''}\n  {json.dumps(member)}: ")
            if member != "records":
                write(_json(head[member], f"/{member}", 2))
                continue
            write("[")
            for record in records:
                write(f"{',' if count else ''}\n    {_json(record, f'/records/{count}', 4)}")
                count += 1
            write("\n  ]" if count else "]")
        write("\n}")
    return count


def _json(value: Any, where: str, indent: int) -> str:
    """JSON of a value, its lines moved to the right. Text holds no line ends: those are escaped."""
    _require_json(value, where)
    return json.dumps(value, indent=2, sort_keys=True).replace("\n", "\n" + " " * indent)


def _require_json(value: Any, where: str) -> None:
    """Raise `ExportError` for what JSON would lose or change."""
    fault = _json_fault(value)
    if fault is not None:
        raise ExportError(f"{where}{fault}", hint="keep it in the archive")


def _json_fault(value: Any) -> str | None:
    """Where JSON has no form for a value, and what it is there; `json.dumps` makes text of keys that are numbers."""
    stack: list[tuple[Any, Any]] = [(value, None)]
    while stack:
        value, path = stack.pop()
        cls = type(value)
        if cls is dict:
            for key, child in value.items():
                if type(key) is not str:
                    return f"{pointer(path)}: the key {key!r} is {type(key).__name__}, which JSON has no form for"
                stack.append((child, (path, key)))
        elif cls is list or cls is tuple:
            stack.extend((child, (path, index)) for index, child in enumerate(value))
        elif value is not None and cls not in (str, int, float, bool):
            return f"{pointer(path)}: JSON has no form for {cls.__name__}"
    return None


def _read(path: Path) -> Any:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImportFormatError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ImportFormatError(f"{path} is no JSON: {error}", hint="is the file whole?") from None


def _checked(document: Any, where: str) -> dict[str, Any]:
    """The document, where it is one that Chassis would read."""
    if not isinstance(document, dict):
        raise ImportFormatError(f"{where} is no recording of Chassis: it is {described(document)}, not an object")
    version = document.get("format_version", 0)
    if type(version) is not int or version < 0:
        raise ImportFormatError(f"{where}: format_version is {version!r}, not a number from 0 on")
    if version > FORMAT_VERSION:
        raise ImportFormatError(
            f"{where}: format version {version} is newer than {FORMAT_VERSION}, the newest that is known",
            hint="a newer replaypack may read it",
        )
    for member in _REQUIRED:
        if member not in document:
            raise ImportFormatError(f"{where}: {member!r} is missing", hint="is the file whole?")
    for member, allowed in (("mode", _MODES), ("fallback", _FALLBACKS)):
        if document[member] not in allowed:
            raise ImportFormatError(f"{where}: {member} is {document[member]!r}, not one of {', '.join(allowed)}")
    if not isinstance(document["metadata"], dict):
        raise ImportFormatError(f"{where}: metadata is {described(document['metadata'])}, not an object")
    if not isinstance(document["records"], list):
        raise ImportFormatError(f"{where}: records is {described(document['records'])}, not an array")
    return document


def _checked_record(entry: Any, where: str) -> dict[str, Any]:
    """The arguments of `append_interaction` for one record of a document, checked as Chassis checks it."""
    if not isinstance(entry, dict):
        raise ImportFormatError(f"{where} is {described(entry)}, not an object")
    for member in ("kind", "sequence", "key"):
        if member not in entry:
            raise ImportFormatError(f"{where}: {member!r} is missing")
    if entry["kind"] not in KINDS:
        raise ImportFormatError(f"{where}: kind is {entry['kind']!r}, not one of {', '.join(KINDS)}")
    request, created = entry.get("request"), entry.get("created_at", 0.0)
    for member, right in (
        ("sequence", type(entry["sequence"]) is int),
        ("key", isinstance(entry["key"], str)),
        ("request", request is None or isinstance(request, dict)),
        ("generation_id", isinstance(entry.get("generation_id"), str | None)),
        ("run_id", isinstance(entry.get("run_id"), str | None)),
        ("created_at", type(created) in (int, float)),
    ):
        if not right:
            raise ImportFormatError(f"{where}: {member} is {described(entry[member])}")
    try:
        seconds = float(created)
    except OverflowError:
        raise ImportFormatError(f"{where}: created_at is out of range") from None
    return {
        "kind": entry["kind"],
        "sequence": entry["sequence"],
        "key": entry["key"],
        "request": request or {},
        "response": entry.get("response"),
        "generation_id": entry.get("generation_id"),
        "run_id": entry.get("run_id"),
        "created_at": seconds,
        "extra": {member: entry[member] for member in entry if member not in _FIELDS},
    }
