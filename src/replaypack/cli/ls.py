"""``replaypack ls``: the recordings of an archive."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import JsonFlag, OptionList, UrlArgument, archive_at, note_dead, size_of
from ._output import Output
from ._text import human_size, missing

if TYPE_CHECKING:
    from replaypack import Archive
    from replaypack.format.catalog import CatalogEntry

_CONCURRENT = 16


def ls(
    url: UrlArgument,
    prefix: Annotated[str, typer.Option(help="Only names that begin with this.")] = "",
    long: Annotated[bool, typer.Option("--long", "-l", help="Also digest, kinds, and who recorded it.")] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """List the recordings of an archive.

    One small object is read for each of them; where the store cannot list (http), the catalog alone, which
    `replaypack catalog` writes. A recording that cannot be read is listed with its fault, and the
    exit code is 1.

    In a pipe a recording is a line without headings: name, state, records, bytes, started, revision, and with --long
    content digest, kinds, recorded by; separated by tabs. A terminal too narrow for them leaves some out, and says
    which.
    """
    output = Output(json=json)
    with archive_at(url, option) as archive:
        listed = archive.manifests.listed(prefix)
        if isinstance(listed, list):
            if not listed:
                archive.require()
            rows = _read(archive, listed)
        else:
            print(f"note: as of {listed.created}, when the catalog was written", file=sys.stderr)
            rows = [_cataloged(entry) for entry in listed.entries]
        note_dead(archive, [row["name"] for row in rows if row["state"] == "open"])
    if json:
        output.document(rows)
    else:
        columns = ["NAME", "STATE", ">RECORDS", ">SIZE", "STARTED", ">REV"]
        output.table(
            columns + (["DIGEST", "KINDS", "RECORDED BY"] if long else []),
            (_cells(row, terminal=output.terminal, long=long) for row in rows),
            drop=["RECORDED BY", "KINDS", "REV", "DIGEST", "STARTED", "SIZE"],
            empty="no recordings",
        )
    if any("fault" in row for row in rows):
        raise typer.Exit(1)


def _read(archive: Archive, names: list[str]) -> list[dict[str, Any]]:
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="replaypack-ls")
    try:
        return list(pool.map(lambda name: _describe(archive, name), names))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _describe(archive: Archive, name: str) -> dict[str, Any]:
    from replaypack.errors import FormatError, ObjectMissingError, RecordingNotFoundError

    try:
        recording = archive.open(name)
    except (FormatError, ObjectMissingError, RecordingNotFoundError) as error:
        return {"name": name, "state": "broken", "fault": {"code": error.code, "message": error.message}}
    content, storage = recording.manifest.content, recording.manifest.storage
    return {
        "name": name,
        "state": content.state,
        "records": content.records,
        "purged": recording.manifest.purged,
        "withheld": storage.withheld,
        "bytes": size_of(recording),
        "started": content.started,
        "revision": storage.revision,
        "cause": storage.cause,
        "content_digest": recording.content_digest,
        "counts": content.counts,
        "recorded_by": content.recorded_by,
        "metadata": content.metadata,
    }


def _cataloged(entry: CatalogEntry) -> dict[str, Any]:
    import msgspec

    row: dict[str, Any] = msgspec.structs.asdict(entry)
    del row["manifest"]
    row["content_digest"] = row.pop("content")
    return row


def _cells(row: dict[str, Any], *, terminal: bool, long: bool) -> list[object]:
    if "fault" in row:
        return [row["name"], "broken", "", "", row["fault"]["message"], "", *([""] * 3 if long else [])]
    size = human_size(row["bytes"]) if terminal else row["bytes"]
    started = row["started"][:19].replace("T", " ") if terminal else row["started"]
    gone = missing(row["purged"], row["withheld"])
    cells: list[object] = [
        row["name"],
        row["state"] + (gone if terminal else ""),
        row["records"],
        size,
        started,
        row["revision"],
    ]
    if long:
        kinds = ", ".join(f"{kind} {count}" for kind, count in row["counts"].items())
        digest = row["content_digest"]
        cells += [f"{digest[:12]}…" if terminal else digest, kinds, row["recorded_by"]]
    return cells
