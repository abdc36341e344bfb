"""``replaypack diff``: how two recordings differ."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ._common import JsonFlag, OptionList, opened
from ._output import Output, checking
from ._progress import progress_bar

_Locator = Annotated[str, typer.Argument(metavar="LOCATOR", help="URL#name or URL#name@revision")]


def diff(
    a: _Locator,
    b: _Locator,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="WHAT",
            help="Leave out: a JSON pointer into records (/request/messages/*/id, /response/**/created, /attributes), "
            "kind:NAME, name:NAME, added, removed, moved, encoding. Repeatable.",
        ),
    ] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Compare records of this kind only. Repeatable.")] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Counts, errors and time only.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Records that differ to look into; all are counted.")] = 1000,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Compare two recordings, of one archive or of two: records added, removed, moved and changed, and what changed.

    Records are aligned by what they say, by key, and in order within their scope. Times never make a difference. A
    difference that later requests only repeat is shown once, and counted. The exit code is 0 where nothing differs,
    1 where something does, 2 where they could not be compared.
    """
    from replaypack.audit.diff import diff as compare

    output = Output(json=json)
    with (
        checking(),
        opened(a, option) as old,
        opened(b, option) as new,
        progress_bar(json) as progress,
    ):
        found = compare(old, new, ignore=ignore or (), kinds=kind, limit=0 if stat else limit, progress=progress)
    if json:
        output.document(found.to_dict())
    else:
        for line in found.footer() if stat else found.lines(_width()):
            output.line(line)
    if found:
        raise typer.Exit(1)


def _width() -> int:
    """Characters that a value may take: more in a file than on a screen."""
    return 60 if sys.stdout.isatty() else 200
