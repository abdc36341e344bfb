"""``replaypack catalog``: the list of recordings for places that cannot list."""

from __future__ import annotations

import typer

from ._common import JsonFlag, OptionList, UrlArgument, archive_at
from ._output import Output
from ._progress import steps
from ._text import counted, human_size


def catalog(url: UrlArgument, json: JsonFlag = False, option: OptionList = None) -> None:
    """Write the catalog of an archive anew: what `ls` shows where the store cannot list, as over http.

    It is one small object, catalog.json.zst. Run it before an archive is put on a web server, and after each change.
    A recording that cannot be read is left out and named, and the exit code is 1.
    """
    from replaypack.audit import write_catalog

    output = Output(json=json)
    with archive_at(url, option) as archive, steps(json, "recordings") as report:
        done = write_catalog(archive, progress=report)
    if json:
        output.document(
            {
                "recordings": len(done.catalog.entries),
                "bytes": done.size,
                "created": done.catalog.created,
                "faults": [found._asdict() for found in done.faults],
            }
        )
    else:
        for found in done.faults:
            output.line(f"left out: {found.recording}: {found.message}")
        output.line(f"{counted(len(done.catalog.entries), 'recording')} in catalog.json.zst ({human_size(done.size)})")
    if done.faults:
        raise typer.Exit(1)
