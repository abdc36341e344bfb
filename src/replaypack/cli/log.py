"""``replaypack log``: how a recording came to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replaypack.errors import UsageError

from ._common import JsonFlag, LocatorArgument, OptionList, located
from ._output import Output
from ._text import missing

if TYPE_CHECKING:
    from replaypack.format.manifest import Manifest


def log(locator: LocatorArgument, json: JsonFlag = False, option: OptionList = None) -> None:
    """List the revisions of a recording, oldest first: what made each of them, who, when, and what it holds.

    In a pipe a revision is a line without headings: revision, cause, state, records, created, writer, content digest;
    separated by tabs. A terminal too narrow for them leaves some out, and says which.
    """
    output = Output(json=json)
    archive, at = located(locator, option)
    if at.revision is not None:
        raise UsageError("log lists every revision: leave out the @revision")
    with archive:
        rows = map(_row, archive.revisions(at.name))
        if json:
            with output.array():
                for row in rows:
                    output.element(row)
            return
        output.table(
            [">REV", "CAUSE", "STATE", ">RECORDS", "CREATED", "WRITER", "CONTENT DIGEST"],
            (_cells(row, terminal=output.terminal) for row in rows),
            drop=["WRITER", "CREATED", "RECORDS"],
        )


def _row(manifest: Manifest) -> dict[str, Any]:
    content, storage = manifest.content, manifest.storage
    return {
        "revision": storage.revision,
        "cause": storage.cause,
        "claim": storage.claim,
        "state": content.state,
        "records": content.records,
        "purged": manifest.purged,
        "withheld": storage.withheld,
        "created": storage.created,
        "writer": storage.writer,
        "content_digest": manifest.content_digest,
        "manifest_digest": manifest.digest,
        "previous": storage.previous,
    }


def _cells(row: dict[str, Any], *, terminal: bool) -> list[object]:
    created = row["created"][:19].replace("T", " ") if terminal else row["created"]
    digest = row["content_digest"][:12] + "…" if terminal else row["content_digest"]
    gone = missing(row["purged"], row["withheld"]) if terminal else ""
    return [row["revision"], row["cause"], row["state"] + gone, row["records"], created, row["writer"], digest]
