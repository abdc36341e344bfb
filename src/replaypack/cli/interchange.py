"""``replaypack import`` and ``replaypack export``: files of other programs, and JSON lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from replaypack.errors import ExportError, ImportFormatError, RecordingExistsError, UsageError

from ._common import JsonFlag, LocatorArgument, OptionList, located, recording_at
from ._files import output_to
from ._output import Output
from ._progress import record_counter
from ._text import counted, escape

if TYPE_CHECKING:
    from replaypack.integrations.interchange import Interchange, Summary

_STANDARD = "-"
_SUFFIXES = (".jsonl", ".ndjson")

FormatOption = Annotated[str | None, typer.Option("--format", metavar="NAME", help="jsonl, chassis, karenina.")]


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What to import; - for JSON lines on standard input.")],
    locator: Annotated[str, typer.Argument(metavar="LOCATOR", help="URL#name of the recording to make.")],
    format_: FormatOption = None,
    if_exists: Annotated[
        Literal["error", "append", "replace"], typer.Option(help="What to do where the recording exists.")
    ] = "error",
    kind: Annotated[str | None, typer.Option(help="JSON lines: kind of the lines that name none.")] = None,
    member: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=THEIRS", help="JSON lines: what a member is called there. Repeatable."),
    ] = None,
    skip_unknown: Annotated[bool, typer.Option(help="JSON lines: skip members that are not known.")] = False,
    redact: Annotated[
        bool, typer.Option(help="Remove secrets by the default rules; without, what the file holds is kept as it is.")
    ] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Import a file as a recording. Its format is found out, where it is not named.

    Readers see the recording once it is whole. Where the import fails or is interrupted, the archive is as it was.
    """
    from replaypack.integrations._jsonlines_reader import UNKNOWN_MEMBER
    from replaypack.integrations.interchange import detect, format_named

    output = Output(json=json)
    path = Path(file)
    if file != _STANDARD and not path.is_file():
        raise UsageError(f"{file} is not there, or is not a file")
    if format_ is None and file == _STANDARD:
        format_ = "jsonl"
    format = format_named(format_) if format_ is not None else detect(path)
    if file == _STANDARD and format.name != "jsonl":
        raise UsageError(f"{format.name} is read from a file", hint="only jsonl is read from standard input")
    options = _own(format, kind=kind, members=_members(member), unknown="skip" if skip_unknown else None)
    if redact:
        options["redact"] = "default"
    archive, at = located(locator, option)
    if at.revision is not None:
        raise UsageError("an import makes a new revision: leave out the @revision")
    with archive, record_counter(json or format.name != "jsonl") as progress:
        if progress is not None:
            options["progress"] = progress
        try:
            summary = format.load(path, archive, at.name, if_exists=if_exists, **options)
        except RecordingExistsError as error:
            error.hint = "--if-exists append continues it, --if-exists replace imports it anew"
            raise
        except ImportFormatError as error:
            if error.hint == UNKNOWN_MEMBER:
                error.hint = "--skip-unknown leaves such members out, --member OURS=THEIRS says what one is called"
            raise
        place = f"{archive.url}#{at.name}"
    _report(output, "imported", summary, place, file)


def export(
    locator: LocatorArgument,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Where to; - for JSON lines on standard output.")
    ] = None,
    format_: FormatOption = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that is there.")] = False,
    to: Annotated[
        str | None, typer.Option(metavar="LOCATOR", help="Make a sanitised recording of this URL#name instead.")
    ] = None,
    redact: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="With --to: default, none, or a file with a redaction policy as JSON."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINTER", help="With --to: keep only this (/request/messages/*/role, /response). Repeatable."
        ),
    ] = None,
    secret_env: Annotated[
        list[str] | None,
        typer.Option("--secret-env", metavar="NAME", help="With --to: remove this variable's value. Repeatable."),
    ] = None,
    report: Annotated[
        str | None, typer.Option(metavar="FILE", help="With --to: write what was removed, a JSON object a line.")
    ] = None,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Export a recording as a file, which appears when it is whole. .jsonl and .ndjson are JSON lines.

    Of a recording that is damaged there is no file. With - for FILE the summary goes to standard error. With --to a
    recording is made in place of a file: redacted (--redact, the default policy unless another is named), and with
    --allow of nothing but what is allowed; it names the content digest of its source, and says in its metadata what
    was removed.
    """
    if to is not None:
        if file is not None or format_ is not None:
            raise UsageError("--to makes a recording, not a file", hint="leave FILE and --format out")
        from ._sanitised import export_sanitised

        export_sanitised(
            locator,
            to,
            redact=redact,
            allow=allow,
            secret_env=secret_env,
            report=report,
            overwrite=overwrite,
            json=json,
            option=option,
        )
        return
    if file is None:
        raise UsageError("export needs a FILE", hint="or --to URL#name, for a sanitised recording")
    if redact is not None or allow or secret_env or report is not None:
        raise UsageError("--redact, --allow, --secret-env and --report make a recording", hint="add --to URL#name")
    from replaypack.integrations.interchange import format_named

    path = Path(file)
    standard = file == _STANDARD
    if format_ is None:
        if not standard and path.suffix not in _SUFFIXES:
            raise UsageError(f"{file} does not say which format is wanted", hint="add --format, or call it .jsonl")
        format_ = "jsonl"
    format = format_named(format_)
    if standard and format.name != "jsonl":
        raise UsageError(f"{format.name} is written to a file", hint="only jsonl is written to standard output")
    if standard and json:
        raise UsageError("--json and the recording itself cannot both go to standard output")
    if not standard and path.exists() and not overwrite:
        raise ExportError(f"{file} is there already", hint="--overwrite replaces it")
    output = Output(json=json)
    counter = record_counter(json or format.name != "jsonl")
    with output_to(path), recording_at(locator, option) as recording, counter as progress:
        summary = format.dump(recording, path, **_own(format, overwrite=overwrite, progress=progress))
        place = recording.locator
    if standard:
        for note in summary.notes:
            print(f"note: {escape(note)}", file=sys.stderr)
    else:
        _report(output, "exported", summary, place, file)


def _own(format: Interchange, **options: Any) -> dict[str, Any]:
    """Options that only JSON lines have. Raises `UsageError` where they are given for another format."""
    given = {name: value for name, value in options.items() if value}
    if format.name == "jsonl":
        return given
    given.pop("overwrite", None)  # has been looked at
    if given:
        raise UsageError(f"the format {format.name} has no option {', '.join(sorted(given))}")
    return {}


def _members(pairs: list[str] | None) -> dict[str, str]:
    result = {}
    for pair in pairs or ():
        ours, equals, theirs = pair.partition("=")
        if not equals or not ours or not theirs:
            raise UsageError("a --member is not OURS=THEIRS", hint="write e.g. --member request=prompt")
        result[ours] = theirs
    return result


def _report(output: Output, what: str, summary: Summary, recording: str, file: str) -> None:
    if output.json:
        output.document(
            {
                "format": summary.format,
                "records": summary.records,
                "recording": recording,
                "file": file,
                "notes": list(summary.notes),
            }
        )
        return
    places = f"from {file} as {recording}" if what == "imported" else f"of {recording} as {file}"
    output.line(f"{what} {counted(summary.records, 'record')} {places} ({summary.format})")
    for note in summary.notes:
        output.line(f"note: {note}")
