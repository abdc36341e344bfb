"""What a copy did, for people and machines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ._output import Output
from ._text import counted, escape, human_size

if TYPE_CHECKING:
    from replaypack.audit import Copied, CopiedRecording

__all__ = ["IfExistsOption", "arrivals", "document", "is_short", "show"]

IfExistsOption = Annotated[
    Literal["error", "replace"],
    typer.Option(
        "--if-exists",
        help="Where DST has another recording of that name, or purged records of it: refuse, or add a revision "
        "all the same. With replace, packs that are gone from DST are sent again.",
    ),
]


def document(done: Copied) -> dict[str, Any]:
    """As JSON."""
    summary: dict[str, Any] = {name: value for name, value in done._asdict().items() if name != "recordings"}
    recordings = [
        {**found._asdict(), "error": found.error.to_dict() if found.error is not None else None}
        for found in done.recordings
    ]
    return {"recordings": recordings, **summary}


def is_short(done: Copied) -> bool:
    """Whether something that was asked for did not arrive."""
    return any(found.state in ("left out", "failed") for found in done.recordings)


def show(output: Output, done: Copied, *, total: bool = True) -> None:
    """A line for each recording, and with ``total`` one for what was sent."""
    for found in done.recordings:
        output.line(_line(found))
    if total:
        anew = f", {done.repacked} of them packed anew" if done.repacked else ""
        there = (
            f"; {counted(done.reused, 'pack')} ({human_size(done.reused_bytes)}) there already" if done.reused else ""
        )
        output.line(f"{counted(done.packs, 'pack')} ({human_size(done.bytes)}) sent{anew}{there}")
    for note in done.notes:
        output.line(f"note: {note}")


@contextmanager
def arrivals() -> Iterator[Callable[[CopiedRecording], None]]:
    """What a copy tells of recordings that are done; where it fails or is interrupted, says which of them arrived."""
    arrived: list[CopiedRecording] = []
    try:
        yield arrived.append
    except BaseException:
        for found in sorted(arrived):
            print(escape(_line(found)), file=sys.stderr)
        raise


def _line(found: CopiedRecording) -> str:
    of = f" (from {found.from_name})" if found.from_name != found.name else ""
    if found.error is not None:
        return f"{found.name}{of}: {found.state}: {found.error}"
    name = f"{found.name}@{found.revision}" if found.revision is not None else found.name
    what = {
        "copied": f"copied, {counted(found.records, 'record')}",
        "there": "there already",
        "left out": "left out",
    }[found.state]
    signed = f", {counted(found.signatures, 'signature')}" if found.signatures else ""
    return f"{name}{of}: {what}{signed}" + (f" ({found.note})" if found.note else "")
