"""``replaypack show``: what a recording is, and its records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from replaypack.errors import UsageError

from ._common import (
    JsonFlag,
    LocatorArgument,
    MatchOption,
    OptionList,
    archive_at,
    note_dead,
    reading,
    recording_at,
    size_of,
)
from ._output import Output
from ._text import counted, dump_json, escape, human_size, jsonable, spans

if TYPE_CHECKING:
    from replaypack import Record, Recording

Many = list[str] | None


def show(
    locator: LocatorArgument,
    records: Annotated[bool, typer.Option("--records", "-r", help="List the records.")] = False,
    kind: Annotated[Many, typer.Option(help="Only records of this kind. Repeatable.")] = None,
    name: Annotated[Many, typer.Option(help="Only records of this tool or model. Repeatable.")] = None,
    scope: Annotated[str | None, typer.Option(help="Only records of this scope.")] = None,
    status: Annotated[Many, typer.Option(help="Only ok, error or interrupted ones. Repeatable.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only from this time on (ISO 8601).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only before this time (ISO 8601).")] = None,
    first: Annotated[int, typer.Option(min=0, help="From this sequence number on.")] = 0,
    last: Annotated[int | None, typer.Option(min=0, help="Up to this sequence number.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on while it is being recorded.")] = False,
    match: MatchOption = None,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Show what a recording is, or with --records (and any filter) list its records.

    Times without an offset are UTC. With --json the records are an array; with --follow one object a line.

    In a pipe a record is a line without headings: seq, time, kind, name, scope, status, duration in seconds, bytes of
    the request, bytes of the response, key, flags; separated by tabs. Flags are those of the record, and "inside" where
    it was recorded inside of another call, which answers for it; a terminal has them beside the status. A terminal too
    narrow for all columns leaves some out, and says which. With --match keys are those of that match policy, computed
    here.
    """
    from replaypack.format.names import parse_locator
    from replaypack.format.row import STATUSES

    output = Output(json=json)
    filtered = any((kind, name, scope is not None, status, since, until, first, last is not None, limit is not None))
    for wanted in status or ():
        if wanted not in STATUSES:
            raise UsageError(f"status {wanted!r} is not one of {', '.join(STATUSES)}")
    low, high = _time("--since", since), _time("--until", until)
    with recording_at(locator, option, match=match) as recording:
        if recording.manifest.content.state == "open" and not follow:
            note_dead(archive_at(parse_locator(locator).url, option), [recording.name])
        if not (records or filtered or follow):
            _summary(output, recording)
            return
        found = recording.records(
            kinds=kind,
            names=name,
            scope=scope,
            since=low,
            until=high,
            statuses=status,
            first=first,
            last=last,
            follow=follow,
        )
        found = _named(parse_locator(locator).url, recording.name, found)
        found = found if limit is None else islice(found, limit)
        noted = filtered and limit != 0
        shown = _list(output, found, follow=follow, empty="" if noted else "no records")
        if noted and not shown:
            print(f"note: {escape(_none(recording, kind))}", file=sys.stderr)


def _named(url: str, name: str, records: Iterator[Record]) -> Iterator[Record]:
    """The records; an error of damage names the recording before it becomes a part of the output."""
    with reading(url, name):
        yield from records


def _none(recording: Recording, kinds: Many) -> str:
    """What to say where a filter leaves no record."""
    there = recording.manifest.content.counts
    if kinds and there and there.keys().isdisjoint(kinds):
        return f"no records of kind {' or '.join(map(repr, kinds))}; there are {', '.join(sorted(there))}"
    return "no records match"


def _time(label: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{label} {text!r} is not a time", hint="write e.g. 2026-01-31T12:00:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _summary(output: Output, recording: Recording) -> None:
    content, storage = recording.manifest.content, recording.manifest.storage
    size = size_of(recording)
    if output.json:
        output.document(
            {
                "name": recording.name,
                "locator": recording.locator,
                "state": content.state,
                "records": content.records,
                "counts": content.counts,
                "purged": recording.manifest.purged,
                "tombstones": [
                    {"time": item.time, "reason": item.reason, "records": [seq for seq, _ in item.records]}
                    for item in storage.tombstones
                ],
                "withheld": storage.withheld,
                "started": content.started,
                "recorded_by": content.recorded_by,
                "id": content.id,
                "content_digest": recording.content_digest,
                "manifest_digest": recording.manifest.digest,
                "merkle_root": content.merkle_root,
                "match": recording.match.to_data(),
                "match_overridden": recording.match_overridden,
                "redaction": msgspec.to_builtins(content.redaction),
                "extends": content.extends,
                "derived_from": content.derived_from,
                "revision": storage.revision,
                "cause": storage.cause,
                "created": storage.created,
                "writer": storage.writer,
                "packs": len(recording.index.packs),
                "bytes": size,
                "segments": len(storage.segments),
                "literal_bytes": storage.literals,
                "metadata": content.metadata,
                "error": content.error,
            }
        )
        return
    kinds = ", ".join(f"{kind} {count}" for kind, count in content.counts.items())
    pairs: list[tuple[str, object]] = [
        ("name", recording.name),
        ("state", content.state),
        ("records", f"{content.records}" + (f" ({kinds})" if kinds else "")),
        *_missing(recording),
        ("started", content.started),
        ("recorded by", content.recorded_by),
        ("match policy", _match(recording)),
        ("redaction", f"{content.redaction.name} {content.redaction.version}"),
        ("content digest", recording.content_digest),
        ("manifest digest", recording.manifest.digest),
        ("revision", f"{storage.revision} ({storage.cause}), {storage.created}"),
        ("packs", f"{len(recording.index.packs)}, {human_size(size) if output.terminal else f'{size} bytes'}"),
        ("segments", len(storage.segments)),
    ]
    if content.extends:
        pairs.append(("extends", content.extends))
    if content.derived_from:
        pairs.append(("derived from", content.derived_from))
    if content.error:
        told = [str(content.error[member]) for member in ("type", "message") if content.error.get(member) is not None]
        pairs.append(("error", ": ".join(told) or "not told"))
    for key, value in content.metadata.items():
        pairs.append((f"metadata {key}", value if isinstance(value, str) else dump_json(jsonable(value))))
    output.pairs(pairs)


def _missing(recording: Recording) -> Iterator[tuple[str, str]]:
    """What was recorded and is not there."""
    for tombstone in recording.tombstones:
        numbers = spans(seq for seq, _ in tombstone.records)
        text = f"{counted(len(tombstone.records), 'record')} ({numbers}), {tombstone.time[:19]}Z: {tombstone.reason}"
        yield "purged", text
    if recording.withheld:
        yield "withheld", ", ".join(sorted(recording.withheld))


def _match(recording: Recording) -> str:
    if not recording.match_overridden:
        return str(recording.match)
    return f"{recording.match} (overridden here; recorded with {recording.manifest.match})"


def describe(record: Record) -> dict[str, Any]:
    """A record without its payloads, as JSON."""
    from replaypack.format.row import ENCODINGS

    row = record.row
    refs = {
        role: {"digest": f"blake3:{ref.digest.hex()}", "bytes": ref.size, "encoding": ENCODINGS[ref.encoding]}
        for role, ref in (("request", row.request), ("identity", row.identity), ("response", row.response))
        if ref is not None and ref.encoding
    }
    return {
        "seq": record.seq,
        "kind": record.kind,
        "name": record.name,
        "scope": record.scope,
        "status": record.status,
        "start": record.time.isoformat().replace("+00:00", "Z"),
        "start_ns": record.start,
        "duration": record.duration,
        "key": record.key.hex(),
        "key_scheme": record.key_scheme,
        "flags": sorted(record.flags),
        "attributes": jsonable(record.attributes),
        "payloads": refs,
    }


def _list(output: Output, records: Iterator[Record], *, follow: bool, empty: str) -> int:
    """List records; return how many."""
    count = 0
    if output.json:
        with nullcontext() if follow else output.array():
            for record in records:
                output.element(describe(record))
                count += 1
        return count
    return output.table(
        [
            ">SEQ",
            "TIME",
            "KIND",
            "NAME",
            "SCOPE",
            "STATUS",
            ">SECONDS",
            ">REQUEST",
            ">RESPONSE",
            "KEY",
            *([] if output.terminal else ["FLAGS"]),
        ],
        (_cells(record, terminal=output.terminal) for record in records),
        chunk=1 if follow else 100,
        drop=["SCOPE", "REQUEST", "RESPONSE", "SECONDS", "KEY", "TIME"],
        empty=empty,
    )


def _cells(record: Record, *, terminal: bool) -> list[object]:
    from replaypack.replay._capture import is_inside

    row = record.row
    flags = sorted(record.flags) + (["inside"] if is_inside(row) else [])
    size: Any = human_size if terminal else str
    time = f"{record.time:%Y-%m-%d %H:%M:%S}" if terminal else record.time.isoformat().replace("+00:00", "Z")
    cells: list[object] = [
        record.seq,
        time,
        record.kind,
        record.name,
        record.scope,
        " ".join([record.status, *flags]) if terminal else record.status,
        f"{record.duration:.3f}",
        size(row.request.size) if row.request is not None else "",
        size(row.response_size) if row.response_encoding else "",
        f"{record.key.hex()[:12]}…" if terminal else record.key.hex(),
    ]
    return cells if terminal else [*cells, ",".join(flags)]
