"""``replaypack explain``: why a recording answers a call, or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replaypack.errors import CanonicalizationError, UsageError

from ._common import JsonFlag, LocatorArgument, MatchOption, OptionList, recording_at
from ._output import Output

if TYPE_CHECKING:
    from replaypack.replay.mismatch import Explanation

#: Record frames that are looked through where reading them asks nothing of a server.
_LOCAL_FRAMES = 256
_MEMBERS = ("kind", "identity", "name", "scope")


def explain(
    locator: LocatorArgument,
    request: Annotated[
        str, typer.Option("--request", "-r", metavar="FILE", help="JSON of the call's identity; - for standard input.")
    ],
    kind: Annotated[str | None, typer.Option(help="Kind of the call: tool, model, …")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the tool or model.")] = None,
    scope: Annotated[str | None, typer.Option(help="Scope that the call is made in.")] = None,
    played: Annotated[int, typer.Option(min=0, help="How many times the call was answered already.")] = 0,
    near: Annotated[int, typer.Option(min=0, help="Sequence number around which similar calls are searched.")] = 0,
    count: Annotated[int, typer.Option(min=0, help="How many of the nearest calls to show.")] = 3,
    match: MatchOption = None,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Explain why a recording answers a call, or not: the reason, and the nearest calls with what differs.

    FILE holds the identity as JSON (what `cat --identity --json` writes), or an object with the members kind, identity
    and, at will, name and scope. The exit code is 0 where the call would be answered, 1 where it would not.
    """
    from replaypack.replay.mismatch import explain as explain_call

    output = Output(json=json)
    call = _read(request)
    if isinstance(call, dict) and {"kind", "identity"} <= call.keys() <= set(_MEMBERS):
        kind, name, scope = (
            given if given is not None else _text(call, member)
            for member, given in (("kind", kind), ("name", name), ("scope", scope))
        )
        call = call["identity"]
    if kind is None:
        raise UsageError("the kind of the call is not known", hint="add --kind, or write it in the file")
    with recording_at(locator, option, match=match) as recording:
        frames = _LOCAL_FRAMES if recording.storage.local_path is not None else 16
        try:
            found = explain_call(
                recording, kind, call, name=name, scope=scope, near=near, frames=frames, count=count, played=played
            )
        except CanonicalizationError as error:
            raise UsageError(f"{request}: the identity has no key: {error.message}", hint=error.hint) from None
        _show(output, found)
    if not found.answered:
        raise typer.Exit(1)


def _show(output: Output, found: Explanation) -> None:
    if output.json:
        output.document(found.to_dict())
    else:
        output.line(str(found), lines=True)


def _text(call: dict[str, Any], member: str) -> str | None:
    value = call.get(member)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{member} is {type(value).__name__}, not text")
    return value


def _read(path: str) -> Any:
    from replaypack.tagged import load_json

    if path == "-":
        data = sys.stdin.buffer.read()
    else:
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return load_json(data)
    except ValueError as error:
        raise UsageError(f"{'standard input' if path == '-' else path} is not JSON: {error}") from None
