"""``replaypack purge``: what records say is removed, for good."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replaypack.errors import UsageError

from ._common import JsonFlag, OptionList, located
from ._output import Output
from ._progress import progress_bar
from ._text import counted, escape, human_size, spans

if TYPE_CHECKING:
    from replaypack.audit import Purged

#: Records that one run may name.
_MOST = 65536


def purge(
    locator: Annotated[str, typer.Argument(metavar="LOCATOR", help="URL#name: all of its revisions")],
    records: Annotated[str, typer.Option("--records", metavar="N,N-N,…", help="Sequence numbers, and ranges of them.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why. It stays in the archive.")],
    also: Annotated[
        list[str] | None,
        typer.Option("--also", metavar="NAME=N,N-N,…", help="Records of another recording, which may share bytes."),
    ] = None,
    keep_shared: Annotated[
        bool, typer.Option("--keep-shared", help="Let bytes stay that other records are made of too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    unchecked_bucket: Annotated[
        bool, typer.Option("--unchecked-bucket", help="Also where the bucket does not say what it keeps.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Remove what records say from every pack and revision of the archive. Asks first.

    A tombstone stays: number, digest of the row, time, reason. The content digest does not change, proofs and
    signatures hold, and replay says that the record was purged. Packs are written anew without it, for other
    recordings too that use them; older revisions that name such a pack go, and the packs at once. Interrupted, run it
    again.

    Refused where other records are made of the same bytes (unless --keep-shared, or they are named too), where somebody
    records, and where the bucket keeps what is deleted.
    """
    from replaypack.audit import purge as remove

    output = Output(json=json)
    numbers, others = _numbers(records), _others(also or [])
    archive, at = located(locator, option)
    if at.revision is not None:
        raise UsageError("purge goes through every revision: leave out the @revision")
    with archive:
        if not (yes or dry_run) and (json or not sys.stdin.isatty()):
            raise UsageError("purge asks before it removes anything", hint="--yes removes without asking")

        def work(dry_run: bool) -> Purged:
            with progress_bar(json) as report:
                return remove(
                    archive,
                    at.name,
                    numbers,
                    reason,
                    also=others,
                    keep_shared=keep_shared,
                    unchecked_bucket=unchecked_bucket,
                    dry_run=dry_run,
                    progress=report,
                )

        if not (yes or dry_run):
            _tell(output, work(dry_run=True))
            count = len(numbers) + sum(map(len, others.values()))
            names = ", ".join([f"{archive.url}#{at.name}", *others])
            question = f"Remove what {counted(count, 'record')} of {names} say for good?"
            if not typer.confirm(escape(question), err=True):
                print("nothing removed", file=sys.stderr)
                raise typer.Exit(1)
        done = work(dry_run)
        if json:
            output.document(_document(archive.url, done))
        else:
            _tell(output, done)


def _document(url: str, done: Purged) -> dict[str, Any]:
    others = [_document(url, other) for other in done.others]
    return {**done._asdict(), "locator": f"{url}#{done.name}", "others": others}


def _others(given: list[str]) -> dict[str, list[int]]:
    """What each ``NAME=3,7-9`` names."""
    found: dict[str, list[int]] = {}
    for text in given:
        name, equals, records = text.partition("=")
        if not equals or name in found:
            raise UsageError(
                f"--also {text!r} is not NAME=N,N-N, or names a recording again", hint="write e.g. a=3,7-9"
            )
        found[name] = _numbers(records)
    return found


def _numbers(text: str) -> list[int]:
    """The numbers of ``3,7-9``."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,15})\s*(?:-\s*([0-9]{1,15})\s*)?", part)
        if match is None:
            raise UsageError(f"{text!r} is not a list of sequence numbers", hint="write e.g. 3,7-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST:
            raise UsageError(f"{part.strip()} is no range, or too long a one")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def _tell(output: Output, done: Purged) -> None:
    verb = "purged" if done.applied else "to be purged"
    which = f"{counted(len(done.records), 'record')} ({spans(done.records)})" if done.records else "no further record"
    output.line(f"{done.name}@{done.revision}: {which} {verb}, content digest {done.content_digest}")
    if done.rewritten:
        output.line(f"recordings with a new revision: {', '.join(sorted(done.rewritten))}")
    if done.revisions:
        output.line(f"older revisions {'deleted' if done.applied else 'to be deleted'}: {', '.join(done.revisions)}")
    size = human_size(done.bytes) if output.terminal else f"{done.bytes} bytes"
    output.line(f"{counted(done.packs, 'pack')} {'deleted' if done.applied else 'to be deleted'}, {size}")
    for name, numbers in sorted(done.shared.items()):
        output.line(
            f"bytes of them stay: {spans(numbers)} of {name} {'is' if len(numbers) == 1 else 'are'} made of them"
        )
    for name, numbers in sorted(done.copies.items()):
        output.line(f"note: a payload of theirs stands in {spans(numbers)} of {name} as well, by itself")
    for path in done.journals:
        output.line(f"journal {'deleted' if done.applied else 'to be deleted'}: {path}")
    for path in done.temporary:
        output.line(f"temporary file {'deleted' if done.applied else 'to be deleted'}: {path}")
    for path in done.left:
        output.line(f"note: {path} may hold something of them; where no writer is at work on it, delete it")
    for other in done.others:
        _tell(output, other)
