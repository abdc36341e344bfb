"""``replaypack rm``: remove a recording."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from replaypack.errors import FormatError, ObjectMissingError, UsageError

from ._common import JsonFlag, OptionList, located
from ._output import Output
from ._text import counted, escape


def rm(
    locator: Annotated[str, typer.Argument(metavar="LOCATOR", help="URL#name: all of a recording")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Remove a recording, all of its revisions. Asks first.

    Its packs stay in the archive, where other recordings may use them; they are collected later.
    """
    output = Output(json=json)
    archive, at = located(locator, option)
    if at.revision is not None:
        raise UsageError("rm removes a whole recording: leave out the @revision")
    with archive:
        archive.storage.require_writable("rm")
        try:
            what = counted(len(archive.open(at.name)), "record")
        except (FormatError, ObjectMissingError):
            what = "cannot be read"
        if not yes:
            if json or not sys.stdin.isatty():
                raise UsageError("rm asks before it removes anything", hint="--yes removes without asking")
            if not typer.confirm(escape(f"Remove {at.name} ({what}) from {archive.url}?"), err=True):
                print("nothing removed", file=sys.stderr)
                raise typer.Exit(1)
        archive.delete(at.name)
        if json:
            output.document({"removed": at.name})
        else:
            output.line(f"removed {at.name} ({what}); its packs stay until they are collected")
