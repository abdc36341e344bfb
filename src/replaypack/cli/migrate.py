"""``replaypack migrate``: recordings of an earlier format version brought up to date."""

from __future__ import annotations

import typer

from ._common import JsonFlag, OptionList, UrlArgument, archive_at
from ._output import Output, exit_code
from ._text import counted


def migrate(url: UrlArgument, json: JsonFlag = False, option: OptionList = None) -> None:
    """Bring recordings of an earlier format version up to date, each as a new revision.

    Version 1 is the first: there is nothing to migrate yet, and what is read is checked for its version. The exit code
    is 1 where a recording is of a newer version, or its manifest is damaged.
    """
    from replaypack.audit import migrate as bring_up

    output = Output(json=json)
    with archive_at(url, option) as archive:
        done = bring_up(archive)
    if json:
        output.document({**done._asdict(), "failed": {name: e.to_dict() for name, e in done.failed.items()}})
    else:
        for name, error in done.failed.items():
            output.line(f"{name}: {error}")
        output.line(f"format {done.version}, {counted(done.recordings, 'recording')}: nothing to migrate")
    if done.failed:
        raise typer.Exit(max(map(exit_code, done.failed.values())))
