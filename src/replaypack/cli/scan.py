"""``replaypack scan``: are there secrets in what was recorded?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from replaypack.errors import ReplaypackError

from ._common import JsonFlag, OptionList, archive_at, located, values_of
from ._output import Output, error_object, print_error
from ._progress import progress_bar
from ._text import counted

if TYPE_CHECKING:
    from replaypack.audit.scan import Finding


def scan(
    target: Annotated[str, typer.Argument(metavar="URL|LOCATOR", help="An archive, or one recording of it.")],
    secret_env: Annotated[
        list[str] | None,
        typer.Option("--secret-env", metavar="NAME", help="Look for the value of this variable too. Repeatable."),
    ] = None,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """List likely secrets, each masked, with the record and the place in it.

    The exit code is 0 where there are none, 1 where there are some, 2 where it could not be scanned.
    """
    output = Output(json=json)
    found: list[Finding] = []
    scanned = 0
    failure: ReplaypackError | None = None
    try:
        for finding in _findings(target, secret_env or [], option, json):
            if finding is None:
                scanned += 1
                continue
            found.append(finding)
            if not json:
                if output.terminal:
                    output.line(str(finding))
                else:
                    output.table((), [finding])
    except ReplaypackError as error:
        failure = error
    if json:
        result = {"recordings": scanned, "findings": [finding._asdict() for finding in found]}
        output.document(result if failure is None else {**result, "error": error_object(failure)})
    if failure is not None:
        print_error(failure.message, failure.hint)
        raise typer.Exit(2)
    if not json:
        looked = counted(scanned, "recording")
        output.line(f"{counted(len(found), 'likely secret')} in {looked}" if found else f"no secrets found: {looked}")
    if found:
        raise typer.Exit(1)


def _findings(target: str, variables: list[str], option: list[str] | None, json: bool) -> Iterator[Finding | None]:
    """Yield what is found, and None behind each recording."""
    from replaypack.audit.scan import scan as scan_recording

    secrets = values_of(variables)
    revision: int | None = None
    if "#" in target:
        archive, at = located(target, option)
        names, revision = [at.name], at.revision
    else:
        archive = archive_at(target, option)
        names = list(archive.recordings())
        if not names:
            archive.require()
    with archive, progress_bar(json) as report:
        for name in names:
            with archive.open(name, revision) as recording:
                yield from scan_recording(recording, secrets=secrets, progress=report)
            yield None
