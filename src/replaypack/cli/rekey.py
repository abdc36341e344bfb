"""``replaypack rekey``: keys computed anew by another match policy."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from replaypack.errors import UsageError

from ._common import JsonFlag, LocatorArgument, MatchOption, OptionList, located, match_of
from ._output import Output
from ._progress import progress_bar
from ._text import counted, escape


def rekey(
    locator: LocatorArgument,
    match: MatchOption = None,
    to: Annotated[str | None, typer.Option(metavar="NAME", help="Make a recording of this name.")] = None,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Compute the keys of a recording anew by another match policy, without recording again.

    Makes a new revision, or with --to another recording. Records stay as they are, and payloads are not copied.
    The content digest is another one then: signatures, and digests that were cited, hold for the revision before.
    Nothing is visible before the end; interrupted, it can be run again. Where fewer keys come out than there were,
    calls that were told apart are one from then on.
    """
    from replaypack.audit import rekey as compute

    output = Output(json=json)
    policy = match_of(match)
    if policy is None:
        raise UsageError("rekey needs a match policy", hint="--match uuids, for example; --match none undoes another")
    archive, at = located(locator, option)
    with archive, progress_bar(json) as report:
        done = compute(archive, at.name, match=policy, to=to, revision=at.revision, progress=report)
        if to is None:
            print(
                f"note: the content digest changed, {done.derived_from} → {done.content_digest}: "
                f"signatures and cited digests hold for {escape(done.name)}@{done.revision - 1}, the revision before",
                file=sys.stderr,
            )
        if json:
            output.document({**done._asdict(), "locator": f"{archive.url}#{done.name}", "match": policy.to_data()})
            return
        output.line(f"{done.name}@{done.revision}: match policy {policy}, content digest {done.content_digest}")
        kept = f" ({done.kept} are not computed of what is recorded, and stay)" if done.kept else ""
        output.line(f"{counted(done.records, 'record')}, {counted(done.changed, 'key')} changed{kept}")
        output.line(f"different keys: {done.keys_before} before, {done.keys_after} now")
