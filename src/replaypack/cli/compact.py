"""``replaypack compact``: recordings written anew, smaller."""

from __future__ import annotations

from typing import Annotated

import typer

from ._common import JsonFlag, OptionList, UrlArgument, archive_at
from ._output import Output, exit_code
from ._progress import progress_bar
from ._text import counted, human_size


def compact(
    url: UrlArgument,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAMES]...", help="Names, or patterns as 'nightly/*'. All by default."),
    ] = None,
    level: Annotated[int, typer.Option(min=1, max=22, help="zstd level")] = 19,
    again: Annotated[bool, typer.Option("--again", help="Write also those anew that are compact already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which would be written anew.")] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Write recordings anew, smaller: larger frames, a high zstd level, bytes in common stored once.

    Records and content digests stay as they are, and so do signatures. Recordings that are compact at that level are
    left alone. Each becomes visible at its end; interrupted, it can be run again. The old packs stay until gc.
    A recording that is damaged, or is being recorded, stays as it is; the exit code is not 0 where one was damaged, or
    named here and not compacted.
    """
    from replaypack.audit import compact as compact_them

    output = Output(json=json)
    with archive_at(url, option) as archive:
        if not dry_run:
            archive.storage.require_writable("compact")
        archive.require()
        with progress_bar(json) as report:
            done = compact_them(archive, names or None, level=level, again=again, dry_run=dry_run, progress=report)
        collect = f"replaypack gc {archive.url} --keep-last 1 --apply"
    left = [item for item in done.recordings if item.error is not None]
    if json:
        recordings = [
            {**item._asdict(), "error": item.error.to_dict() if item.error is not None else None}
            for item in done.recordings
        ]
        output.document(
            {
                "dry_run": dry_run,
                "level": level,
                "written": done.written,
                "freed": done.freed,
                "before": done.before,
                "after": done.after,
                "recordings": recordings,
            }
        )
    else:
        for item in done.recordings:
            if item.error is not None:
                output.line(f"{item.name}: {item.outcome}: {item.error}")
            elif item.outcome == "compacted":
                what = "would be compacted" if dry_run else f"revision {item.revision}"
                output.line(f"{item.name}: {counted(item.records, 'record')}, {what}")
        compact_already = sum(item.outcome == "compact" for item in done.recordings)
        if compact_already:
            output.line(f"{counted(compact_already, 'recording')} compact already at level {level}")
        if done.written:
            # Of single recordings sizes would say little: they share packs.
            which = "all recordings" if not names else "these recordings"
            sizes = f"{human_size(done.before)} before, {human_size(done.after)} now"
            output.line(f"packs of {which}, each counted once: {sizes}")
            output.line(f"{human_size(done.written)} written; {human_size(done.freed)} to be freed by: {collect}")
    codes = [exit_code(item.error) for item in left if item.error is not None and (names or item.outcome == "failed")]
    if codes:
        raise typer.Exit(max(codes))
