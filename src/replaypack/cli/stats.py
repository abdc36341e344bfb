"""``replaypack stats``: calls, errors, bytes, times and tokens by kind and name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import JsonFlag, OptionList, archive_at, recording_at, say_what_helps
from ._output import Output, print_error
from ._progress import progress_bar
from ._text import counted, human_size

if TYPE_CHECKING:
    from replaypack.audit.stats import ArchiveStats, Group, RecordingStats

_COLUMNS = "KIND NAME >CALLS >ERRORS >BYTES >UNIQUE >P50 >P90 >P99 >MAX >INPUT >OUTPUT >CACHED".split()


def stats(
    target: Annotated[str, typer.Argument(metavar="LOCATOR|URL", help="One recording, or an archive.")],
    tokens: Annotated[bool, typer.Option(help="Sum up the tokens that responses name; reads them.")] = True,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Sum up a recording by kind and name, or the recordings of an archive.

    Durations are in seconds, in 50, 90, 99 % of the calls at most so much (to within 3 %). Tokens are those that
    responses in the shapes of OpenAI, Anthropic and LangChain name; input includes what came from a cache. UNIQUE are
    bytes of payloads that no record before had. In a pipe a line is: kind, name, calls, errors, bytes, unique bytes,
    p50, p90, p99, max, tokens in, out, cached; separated by tabs. Of an archive, a recording that is damaged is named
    on standard error (in JSON under failed) and not counted; the exit code is 1 then.
    """
    from replaypack.audit.stats import stats as of_recording
    from replaypack.audit.stats import stats_archive

    output = Output(json=json)
    if "#" in target:
        with recording_at(target, option) as recording, progress_bar(json) as progress:
            found = of_recording(recording, tokens=tokens, progress=progress)
        if json:
            output.document(found.to_dict())
        else:
            _recording(output, found)
        return
    with archive_at(target, option) as archive, progress_bar(json) as progress:
        whole = stats_archive(archive, tokens=tokens, progress=progress, keep_going=True)
        if not whole.recordings and not whole.failed:
            archive.require()
    for name, error in whole.failed:
        say_what_helps(error, archive.url, name)
    if json:
        output.document(whole.to_dict())
    else:
        _archive(output, whole)
        for name, error in whole.failed:
            print_error(f"{name}: {error.message}", error.hint)
    if whole.failed:
        raise typer.Exit(1)


def _recording(output: Output, found: RecordingStats) -> None:
    output.table(
        _COLUMNS,
        (_cells(group, output) for group in found.groups),
        drop=["CACHED", "P90", "UNIQUE", "MAX", "OUTPUT", "INPUT", "P99"],
        empty="no records",
    )
    if output.terminal:
        for line in _sums(found, counted(found.records, "record"), found.errors):
            output.line(line)


def _archive(output: Output, whole: ArchiveStats) -> None:
    size = _size(output)
    output.table(
        ["NAME", ">RECORDS", ">ERRORS", ">BYTES", ">UNIQUE", ">STORED", ">SECONDS", ">INPUT", ">OUTPUT", ">CACHED"],
        (
            [
                found.locator.rpartition("#")[2],
                found.records,
                found.errors,
                size(found.bytes),
                size(found.unique_bytes),
                size(found.stored_bytes),
                f"{found.duration:.3f}",
                *(found.tokens or ("", "", "")),
            ]
            for found in whole.recordings
        ),
        drop=["CACHED", "SECONDS", "ERRORS"],
        empty="" if whole.failed else "no recordings",
    )
    if output.terminal:
        what = f"{counted(len(whole.recordings), 'recording')}, {counted(whole.records, 'record')}"
        for line in _sums(whole, what, sum(found.errors for found in whole.recordings)):
            output.line(line)


def _cells(group: Group, output: Output) -> list[object]:
    size = _size(output)
    times = [f"{seconds:.3f}" if output.terminal else f"{seconds:.6f}" for seconds in group.percentiles]
    tokens = group.tokens or ("", "", "")
    return [
        group.kind,
        group.name,
        group.calls,
        group.errors,
        size(group.bytes),
        size(group.unique_bytes),
        *times,
        *tokens,
    ]


def _size(output: Output) -> Any:
    return human_size if output.terminal else str


def _sums(found: RecordingStats | ArchiveStats, what: str, errors: int) -> Iterator[str]:
    from replaypack.audit.stats import ratios

    about = "about " if found.estimated else ""
    yield f"{what}, {counted(errors, 'error')}" + (
        f", tokens {found.tokens.input} in ({found.tokens.cached} cached), {found.tokens.output} out"
        if found.tokens
        else ""
    )
    ratio = ratios(found.bytes, found.unique_bytes, found.stored_bytes)
    yield (
        f"{human_size(found.bytes)} of payloads, {about}{human_size(found.unique_bytes)} of them different "
        f"({ratio['dedup'] or '-'} : 1), stored in {human_size(found.stored_bytes)} ({ratio['total'] or '-'} : 1)"
    )
