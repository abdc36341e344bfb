"""``replaypack recover``: finish what dead recorders left."""

from __future__ import annotations

from typing import Annotated

import typer

from ._common import JsonFlag, OptionList, UrlArgument, archive_at
from ._output import Output, error_object, exit_code
from ._text import counted


def recover(
    url: UrlArgument,
    keep_journals: Annotated[bool, typer.Option(help="Leave the journals in place afterwards.")] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Finish the recordings whose recorder died on this machine, from their journals.

    Recorders that are alive are left alone. The exit code is 1 where a journal could not be used, 2 where the store
    could not be asked; the journal is kept.
    """
    from replaypack.recover import recover as recover_all

    output = Output(json=json)
    with archive_at(url, option) as archive:
        if not archive.leftovers():
            archive.require()
        found = []
        for item in recover_all(archive, keep_journals=keep_journals):
            found.append(item)
            if not json:
                output.line(
                    f"{item.name}: {counted(item.records, 'record')}, {item.from_journal} of them from the journal"
                    if item.error is None
                    else f"{item.name}: failed: {item.error} (journal kept: {item.journal})"
                )
        if json:
            output.document(
                [
                    {
                        "name": item.name,
                        "records": item.records,
                        "from_journal": item.from_journal,
                        "journal": item.journal,
                        "error": error_object(item.error) if item.error is not None else None,
                    }
                    for item in found
                ]
            )
        elif not found:
            output.line("nothing to recover")
    codes = [exit_code(item.error) for item in found if item.error is not None]
    if codes:
        raise typer.Exit(max(codes))
