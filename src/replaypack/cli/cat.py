"""``replaypack cat``: what one record says."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replaypack.errors import UsageError

from ._common import JsonFlag, LocatorArgument, OptionList, recording_at
from ._output import NOT_FOUND, Output
from ._text import hexdump, jsonable, pretty

if TYPE_CHECKING:
    from replaypack import Record

_DIGEST = re.compile(r"(?:blake3:)?([0-9a-fA-F]{64})")


def cat(
    locator: LocatorArgument,
    seq: Annotated[str, typer.Argument(metavar="SEQ|blake3:HEX", help="Sequence number, or a payload's digest.")],
    request: Annotated[bool, typer.Option("--request", help="The request alone.")] = False,
    response: Annotated[bool, typer.Option("--response", help="The response alone.")] = False,
    identity: Annotated[bool, typer.Option("--identity", help="What the key was made of, alone.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The stored bytes of one payload, as they are.")] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Show the request and the response of a record, or one payload by its digest.

    What JSON cannot say is written {"$bytes": base64}, {"$float": "nan"}, {"$map": [[key, value], …]} (keys that are
    not text), {"$surrogates": text} (text with lone surrogates, each as \\udXXX, and each backslash twice) or
    {"$int": "0x…"} (more than 14000 bits; smaller integers are plain numbers). A recorded map that looks like one of
    these gets one more $.

    Control characters are shown escaped, unless --raw writes the stored bytes (MessagePack for structured values).
    The exit code is 1 where there is no such record or payload, or where it was purged or is withheld.
    """
    output = Output(json=json)
    chosen = [role for role, wanted in (("request", request), ("response", response), ("identity", identity)) if wanted]
    if raw and json:
        raise UsageError("--raw and --json exclude each other")
    if len(chosen) > 1:
        raise UsageError("give one of --request, --response and --identity, or none")
    number, digest = _which(seq)
    with recording_at(locator, option) as recording:
        if digest is not None and chosen:
            raise UsageError("a digest names one payload already")
        try:
            if digest is not None:
                record, role = recording.find_blob(digest)
                chosen = [role]
            else:
                record = recording.record(number)
        except UsageError as error:
            error.add_note(NOT_FOUND)
            raise
        if raw:
            if len(chosen) != 1:
                raise UsageError("--raw writes one payload", hint="add --request, --response or --identity")
            _raw(record, chosen[0])
        elif json:
            _json(output, record, chosen, by_digest=digest is not None)
        else:
            _text(output, record, chosen)


def _which(text: str) -> tuple[int, str | None]:
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text), None
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is neither a sequence number nor a digest", hint="write e.g. 42 or blake3: and 64 hex digits"
        )
    return -1, match[1].lower()


def _encoding(record: Record, role: str) -> str | None:
    """How a payload is encoded; None where the record has none."""
    from replaypack.format.row import ENCODINGS

    row = record.row
    if role == "identity" and row.identity is None and record.key_scheme != "opaque":
        role = "request"
    ref = {"request": row.request, "identity": row.identity, "response": row.response}[role]
    return None if ref is None or not ref.encoding else ENCODINGS[ref.encoding]


def _raw(record: Record, role: str) -> None:
    if _encoding(record, role) is None:
        raise UsageError(f"record {record.seq} has no {role}")
    if role == "identity" and record.row.identity is None:
        role = "request"
    if sys.stdout.isatty():
        raise UsageError("--raw would write unescaped bytes to the terminal", hint="redirect it to a file")
    sys.stdout.flush()
    sys.stdout.buffer.write(record.blob_bytes(role))
    sys.stdout.buffer.flush()


def _json(output: Output, record: Record, chosen: list[str], *, by_digest: bool) -> None:
    if chosen and not by_digest:
        if _encoding(record, chosen[0]) is None:
            raise UsageError(f"record {record.seq} has no {chosen[0]}")
        output.document(jsonable(getattr(record, chosen[0])))
        return
    if by_digest:
        output.document(jsonable(getattr(record, chosen[0])))
        return
    from .show import describe

    document: dict[str, Any] = describe(record)
    for role in ("request", "identity", "response"):
        if _encoding(record, role) is not None and (role != "identity" or record.row.identity is not None):
            if role in record.withheld:
                document.setdefault("withheld", []).append(role)
                continue
            document[role] = jsonable(getattr(record, role))
    output.document(document)


def _text(output: Output, record: Record, chosen: list[str]) -> None:
    if len(chosen) == 1:
        if _encoding(record, chosen[0]) is None:
            raise UsageError(f"record {record.seq} has no {chosen[0]}")
        _payload(output, getattr(record, chosen[0]))
        return
    name = f" {record.name}" if record.name is not None else ""
    scope = f", scope {record.scope}" if record.scope is not None else ""
    flags = f", {', '.join(sorted(record.flags))}" if record.flags else ""
    output.line(f"# record {record.seq}: {record.kind}{name}, {record.status}{scope}{flags}")
    output.line(f"# {record.time.isoformat()}, {record.duration:.3f} s, key {record.key.hex()} ({record.key_scheme})")
    if record.attributes:
        output.line("# attributes " + pretty(record.attributes), lines=True)
    roles = ["request", *(["identity"] if record.row.identity is not None else []), "response"]
    for role in roles:
        encoding = _encoding(record, role)
        if encoding is None:
            output.line(f"# {role}: none")
            continue
        if role in record.withheld:
            output.line(f"# {role} ({encoding}): withheld in this copy")
            continue
        output.line(f"# {role} ({encoding})")
        _payload(output, getattr(record, role))


def _payload(output: Output, value: Any) -> None:
    if isinstance(value, str):
        output.line(value, lines=True)
    elif isinstance(value, bytes) and output.terminal:
        output.line(hexdump(value), lines=True)
    else:
        sys.stdout.write(pretty(value) + "\n")
