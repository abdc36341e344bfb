"""``replaypack zip`` and ``unzip``: recordings in one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replaypack.errors import UsageError

from ._common import JsonFlag, OptionList, archive_at, located
from ._copied import IfExistsOption, arrivals, document, is_short, show
from ._files import output_to
from ._output import Output
from ._progress import bytes_bar
from ._text import human_size

if TYPE_CHECKING:
    from replaypack import Archive
    from replaypack.audit import Wanted


def zip_(
    locators: Annotated[
        list[str], typer.Argument(metavar="LOCATOR...", help="URL#name[@revision], or the URL of an archive for all.")
    ],
    output_file: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The zip file to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")] = False,
    responses_only: Annotated[
        bool, typer.Option("--responses-only", help="Leave the bytes of requests out: it replays, no more.")
    ] = False,
    json: JsonFlag = False,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="Option of the filesystem behind the URLs. Repeatable."),
    ] = None,
) -> None:
    """Put recordings into one zip file, which is an archive itself.

    It is read where it lies, by ranges: `replaypack show run.zip#name`, also from S3, over http, or through a presigned
    URL. It holds nothing of other recordings of the same archives, and appears when it is whole: where one is damaged
    there is none.
    """
    from replaypack.audit import zip_recordings

    if os.path.exists(output_file) and not overwrite:
        raise UsageError(f"{output_file} is there already", hint="--overwrite replaces it; or choose another name")
    output = Output(json=json)
    wanted = _wanted(locators, option)
    try:
        with output_to(Path(output_file)), bytes_bar(json) as report:
            done = zip_recordings(
                wanted, output_file, overwrite=overwrite, responses_only=responses_only, progress=report
            )
    finally:
        for of in wanted:
            of.archive.close()
    if json:
        output.document({"file": output_file, "bytes": done.size, "copied": [document(one) for one in done.copied]})
    else:
        for one in done.copied:
            show(output, one, total=False)
        output.line(f"{output_file}: {human_size(done.size)}")
    if any(map(is_short, done.copied)):
        raise typer.Exit(1)


def unzip(
    file: Annotated[str, typer.Argument(metavar="ZIP", help="A zip file, or the URL of one.")],
    destination: Annotated[str, typer.Argument(metavar="DST", help="The archive to copy its recordings into.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMES]...", help="Names, or patterns. All by default.")
    ] = None,
    if_exists: IfExistsOption = "error",
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Copy the recordings of a zip file into an archive, checked on the way.

    One that is damaged is named, and the others are copied. The exit code is 1 where one was damaged, or left out
    because it is still being recorded.
    """
    from replaypack.audit import copy

    output = Output(json=json)
    source = archive_at(file, option)
    if not source.url.startswith("zip:"):
        source = archive_at(f"zip::{file}", option)
    with source, archive_at(destination, option) as target, arrivals() as tell, bytes_bar(json) as report:
        done = copy(source, target, names or None, if_exists=if_exists, keep_going=True, progress=report, done=tell)
    if json:
        output.document(document(done))
    else:
        show(output, done)
    if is_short(done):
        raise typer.Exit(1)


def _wanted(locators: list[str], options: list[str] | None) -> list[Wanted]:
    """What is asked for, by archive: recordings that are copied together may share packs."""
    from replaypack.audit import Wanted

    whole: dict[str, Archive] = {}
    some: dict[str, tuple[Archive, list[str]]] = {}
    pinned: list[Wanted] = []
    for locator in locators:
        if "#" not in locator:
            whole.setdefault(locator, archive_at(locator, options))
            continue
        archive, at = located(locator, options)
        if at.revision is not None:
            pinned.append(Wanted(archive, [at.name], at.revision))
        else:
            some.setdefault(at.url, (archive, []))[1].append(at.name)
    for url in whole:
        if url in some:
            raise UsageError(f"{url} is named as a whole, and recordings of it besides", hint="name either")
    together = [Wanted(archive) for archive in whole.values()]
    together += [Wanted(archive, list(dict.fromkeys(names))) for archive, names in some.values()]
    return together + pinned
