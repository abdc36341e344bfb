"""``replaypack copy``: recordings, to another archive."""

from __future__ import annotations

from typing import Annotated

import typer

from replaypack.errors import UsageError

from ._common import JsonFlag, OptionList, archive_at, located, note_dead
from ._copied import IfExistsOption, arrivals, document, is_short, show
from ._output import Output
from ._progress import bytes_bar


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="An archive, or URL#name[@revision].")],
    destination: Annotated[str, typer.Argument(metavar="DST", help="An archive; with #name, what it is to be called.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAMES]...", help="Names, or patterns as 'nightly/*'. All by default."),
    ] = None,
    if_exists: IfExistsOption = "error",
    responses_only: Annotated[
        bool, typer.Option("--responses-only", help="Leave the bytes of requests behind: it replays, no more.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Packs and recordings under way at a time.")] = 8,
    json: JsonFlag = False,
    option: OptionList = None,
    to_option: Annotated[
        list[str] | None, typer.Option("--to-option", metavar="KEY=VALUE", help="The same for DST alone.")
    ] = None,
) -> None:
    """Copy recordings to another archive. Only what is missing travels, and nothing of other recordings.

    Everything is checked on the way. A recording can be seen when all of it has arrived; interrupted, run it again.
    What DST has already is left alone; a recording that went on since becomes a new revision there. One that is
    damaged in SRC is named, and the others are copied. The exit code is 1 where one was damaged, or left out because
    it is still being recorded.
    """
    from replaypack.audit import copy as copy_all
    from replaypack.audit._copy_plan import is_pattern

    output = Output(json=json)
    revision: int | None = None
    wanted: list[str] | None = list(names) if names else None
    if "#" in source:
        if wanted:
            raise UsageError("SRC names a recording: no other names can be given")
        source_archive, at = located(source, option)
        wanted, revision = [at.name], at.revision
    else:
        source_archive = archive_at(source, option)
    to: str | None = None
    options = [*(option or ()), *(to_option or ())]
    if "#" in destination:
        target_archive, place = located(destination, options)
        if place.revision is not None:
            raise UsageError("a copy gets the next revision: DST cannot name one")
        to = place.name
        if wanted is None or len(wanted) != 1 or is_pattern(wanted[0]):
            raise UsageError("DST names a recording, so SRC must name one", hint="SRC#name, or one of [NAMES]")
    else:
        target_archive = archive_at(destination, options)
    with source_archive, target_archive, arrivals() as tell, bytes_bar(json) as report:
        done = copy_all(
            source_archive,
            target_archive,
            wanted,
            revision=revision,
            to=to,
            if_exists=if_exists,
            responses_only=responses_only,
            jobs=jobs,
            keep_going=True,
            progress=report,
            done=tell,
        )
    if json:
        output.document(document(done))
    else:
        show(output, done)
    note_dead(source_archive, {found.from_name for found in done.recordings if found.state == "left out"})
    if is_short(done):
        raise typer.Exit(1)
