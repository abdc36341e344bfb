"""``replaypack copy``: recordings, to another archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from replaypack.errors import UsageError

from ._common import JsonFlag, OptionList, archive_at, located
from ._output import Output
from ._progress import bytes_bar
from ._text import counted, human_size

if TYPE_CHECKING:
    from replaypack.audit import CopiedRecording


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="An archive, or URL#name[@revision].")],
    destination: Annotated[str, typer.Argument(metavar="DST", help="An archive; with #name, what it is to be called.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAMES]...", help="Names, or patterns as 'nightly/*'. All by default."),
    ] = None,
    if_exists: Annotated[
        Literal["error", "replace"],
        typer.Option(help="Where DST has another recording of that name: refuse, or add a revision all the same."),
    ] = "error",
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
    What DST has already is left alone; a recording that went on since becomes a new revision there. The exit code is
    1 where a recording was left out because it is still being recorded.
    """
    from replaypack.audit import copy as copy_all

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
    else:
        target_archive = archive_at(destination, options)
    with source_archive, target_archive, bytes_bar(json) as report:
        done = copy_all(
            source_archive,
            target_archive,
            wanted,
            revision=revision,
            to=to,
            if_exists=if_exists,
            responses_only=responses_only,
            jobs=jobs,
            progress=report,
        )
    if json:
        summary: dict[str, Any] = {name: value for name, value in done._asdict().items() if name != "recordings"}
        output.document({"recordings": [found._asdict() for found in done.recordings], **summary})
    else:
        for found in done.recordings:
            output.line(_line(found))
        anew = f", {done.repacked} of them packed anew" if done.repacked else ""
        reused = (
            f"; {counted(done.reused, 'pack')} ({human_size(done.reused_bytes)}) there already" if done.reused else ""
        )
        output.line(f"{counted(done.packs, 'pack')} ({human_size(done.bytes)}) sent{anew}{reused}")
    if any(found.state == "left out" for found in done.recordings):
        raise typer.Exit(1)


def _line(found: CopiedRecording) -> str:
    of = f" (from {found.from_name})" if found.from_name != found.name else ""
    name = f"{found.name}@{found.revision}" if found.revision is not None else found.name
    what = {
        "copied": f"copied, {counted(found.records, 'record')}",
        "there": "there already",
        "left out": "left out",
    }[found.state]
    signed = f", {counted(found.signatures, 'signature')}" if found.signatures else ""
    return f"{name}{of}: {what}{signed}" + (f" ({found.note})" if found.note else "")
