"""``replaypack scan``: are there secrets in what was recorded?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from replaypack.errors import DAMAGED, ReplaypackError, without_frames

from ._common import JsonFlag, OptionList, archive_at, recording_at, say_what_helps, values_of
from ._output import Output, print_error
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

    Of an archive, a recording that is damaged is named on standard error, and the others are scanned. The exit code is
    0 where there are none, 1 where there are some, 2 where not everything could be scanned, whatever was found; with
    --json, findings has what was found, failed the damaged recordings, and error what ended it.
    """
    output = Output(json=json)
    found: list[Finding] = []
    failed: list[tuple[str, ReplaypackError]] = []
    scanned = 0
    failure: ReplaypackError | None = None
    try:
        for finding in _findings(target, secret_env or [], option, json, failed):
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
        result = {
            "recordings": scanned,
            "findings": [finding._asdict() for finding in found],
            "failed": [{"name": name, "error": error.to_dict()} for name, error in failed],
        }
        output.document(result if failure is None else {**result, "error": failure.to_dict()})
    else:
        for name, damage in failed:
            print_error(f"{name}: {damage.message}", damage.hint)
    if failure is not None:
        print_error(failure.message, failure.hint)
        raise typer.Exit(2)
    if not json:
        looked = counted(scanned, "recording") + (f", {len(failed)} could not be scanned" if failed else "")
        output.line(f"{counted(len(found), 'likely secret')} in {looked}" if found else f"no secrets found: {looked}")
    if found or failed:
        raise typer.Exit(2 if failed else 1)


def _findings(
    target: str,
    variables: list[str],
    option: list[str] | None,
    json: bool,
    failed: list[tuple[str, ReplaypackError]],
) -> Iterator[Finding | None]:
    """Yield what is found, and None behind each recording. Of an archive, what is damaged is added to ``failed``."""
    from replaypack.audit.scan import scan as scan_recording

    secrets = values_of(variables)
    if "#" in target:
        with recording_at(target, option) as recording, progress_bar(json) as report:
            yield from scan_recording(recording, secrets=secrets, progress=report)
        yield None
        return
    with archive_at(target, option) as archive, progress_bar(json) as report:
        names = list(archive.recordings())
        if not names:
            archive.require()
        for name in names:
            try:
                with archive.open(name) as recording:
                    yield from scan_recording(recording, secrets=secrets, progress=report)
            except DAMAGED as error:
                say_what_helps(error, archive.url, name)
                failed.append((name, without_frames(error)))
            else:
                yield None
