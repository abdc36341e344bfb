"""``replaypack gc``: delete what nothing refers to any more."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from replaypack.errors import UsageError

from ._common import JsonFlag, OptionList, UrlArgument, archive_at
from ._output import Output
from ._progress import progress_bar
from ._text import counted, human_size

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_NAMES = {
    "revisions": "revisions that are not kept",
    "claims": "claims and checkpoints of recorders that are done",
    "packs": "packs that nothing refers to",
    "signatures": "signatures of what is not kept",
    "leftovers": "temporary files of writers that were killed",
}


def gc(
    url: UrlArgument,
    apply: Annotated[bool, typer.Option("--apply", help="Delete. Without it, only say what would be deleted.")] = False,
    keep_last: Annotated[
        int | None, typer.Option(metavar="N", help="Keep the newest N revisions of each recording, not all.")
    ] = None,
    keep_within: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep the revisions made within this time: 90d, 12w, 36h.")
    ] = None,
    grace: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long a pack must have been unreferenced. 0: nobody writes, I know."),
    ] = "7d",
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Delete what no kept revision of any recording refers to.

    Says what that is; --apply deletes. All revisions are kept unless --keep-last or --keep-within says which; the
    newest is kept always, and so is all that recorders at work have published. A pack goes when an earlier run of
    gc --apply saw it unreferenced, --grace ago or longer. Interrupted, it can be run again.

    The exit code is 1 where a manifest cannot be read (then nothing is deleted: nobody knows what it refers to).
    """
    from replaypack.audit import gc as collect

    output = Output(json=json)
    within = None if keep_within is None else _span("--keep-within", keep_within)
    with archive_at(url, option) as archive, progress_bar(json) as report:
        done = collect(
            archive,
            keep_last=keep_last,
            keep_within=within,
            grace=_span("--grace", grace),
            apply=apply,
            progress=report,
        )
    if json:
        output.document(_document(done))
    else:
        _print(output, done, apply)
    if done.unreadable:
        raise typer.Exit(1)


def _print(output: Output, done: Any, apply: bool) -> None:
    for key, message in done.unreadable:
        output.line(message if key in message else f"{key}: {message}")
    if done.unreadable:
        count = counted(len(done.unreadable), "manifest")
        output.line(f"{count} cannot be read, so nobody knows what is still needed: no pack was deleted")
        output.line("restore or delete them (`replaypack verify` says more), then run this again")
        return
    rows = [
        (_NAMES[kind], amount.objects, human_size(amount.bytes))
        for kind, amount in done.removed.items()
        if amount.objects
    ]
    output.table(["what", ">objects", ">bytes"], rows)
    total = done.total
    verb = "deleted" if done.applied else "would delete"
    output.line(f"{verb} {counted(total.objects, 'object')}, {human_size(total.bytes)}")
    if done.waiting.objects:
        when = datetime.fromtimestamp(done.next, UTC)
        start = "" if apply else ", if --apply marks them now"
        waiting = f"{counted(done.waiting.objects, 'object')}, {human_size(done.waiting.bytes)}"
        output.line(
            f"{waiting}, unreferenced too short a time: the first may go from {when:%Y-%m-%d %H:%M} UTC on{start}"
        )
    output.line(f"{counted(done.kept.objects, 'pack')}, {human_size(done.kept.bytes)}, in use")
    if done.unknown.objects:
        output.line(f"{counted(done.unknown.objects, 'object')} that replaypack did not make, left alone")
    if not done.applied and total.objects:
        output.line("--apply deletes")


def _document(done: Any) -> dict[str, Any]:
    return {
        "applied": done.applied,
        "removed": {kind: amount._asdict() for kind, amount in done.removed.items()},
        "total": done.total._asdict(),
        "kept": done.kept._asdict(),
        "waiting": done.waiting._asdict(),
        "next": None if done.next is None else datetime.fromtimestamp(done.next, UTC).isoformat(),
        "unknown": done.unknown._asdict(),
        "unreadable": [item._asdict() for item in done.unreadable],
    }


def _span(option: str, text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})([smhdw]?)", text)
    if match is None or not (match[2] or match[1].strip("0") == ""):
        raise UsageError(f"{option} {text!r} is no time", hint="write a number and s, m, h, d or w, e.g. 90d")
    return timedelta(**{_UNITS[match[2] or "s"]: int(match[1])})
