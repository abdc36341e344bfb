"""``replaypack prove`` and ``check-proof``: one record shown to be part of a recording."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replaypack.errors import ProofError, UsageError

from ._common import JsonFlag, LocatorArgument, recording_at
from ._files import read_file, write_file
from ._output import NOT_FOUND, Output
from ._progress import progress_bar
from ._text import counted, jsonable

if TYPE_CHECKING:
    from replaypack.audit import Proof

LongOptionList = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Option of the filesystem behind the URL. Repeatable."),
]


def prove(
    locator: LocatorArgument,
    seq: Annotated[int, typer.Argument(metavar="SEQ", min=0, help="Sequence number of the record.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the proof to a file.")] = None,
    with_payloads: Annotated[bool, typer.Option("--with-payloads", help="Put request and response into it.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that is there.")] = False,
    option: LongOptionList = None,
) -> None:
    """Write a proof that one record is part of what the content digest names. `check-proof` checks it offline.

    The proof holds the content section of the manifest (with the metadata), the record's row (its names, key, times,
    attributes, and the digests of its payloads), and some digests; payloads only when asked for.
    """
    from replaypack.audit import prove as compute

    with recording_at(locator, option) as recording, progress_bar(False) as report:
        try:
            data = compute(recording, seq, payloads=with_payloads, progress=report)
        except UsageError as error:
            if seq >= len(recording):
                error.add_note(NOT_FOUND)
            raise
        place, digest = recording.locator, recording.content_digest
    if out is None:
        sys.stdout.write(data.decode() + "\n")
        return
    write_file(out, data, overwrite=overwrite)
    Output(json=False).line(f"{out}: record {seq} of {place}, content digest {digest}")


def check_proof(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="The proof; - for standard input.")],
    digest: Annotated[str, typer.Option(metavar="HEX", help="The content digest that you trust.")],
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Bytes that must be the row of the record."),
    ] = None,
    request: Annotated[Path | None, typer.Option(metavar="FILE", help="Bytes that must be the request.")] = None,
    identity: Annotated[Path | None, typer.Option(metavar="FILE", help="Bytes that must be the identity.")] = None,
    response: Annotated[Path | None, typer.Option(metavar="FILE", help="Bytes that must be the response.")] = None,
    json: JsonFlag = False,
) -> None:
    """Check a proof without the archive: that its record is part of the recording with this content digest.

    Payloads are those that `cat --raw` writes. The exit code is 0 where everything is shown, else 1.
    """
    from replaypack.audit import MAX_PROOF, check_payload
    from replaypack.audit import check_proof as check

    output = Output(json=json)
    data = read_file(proof, MAX_PROOF + 1)
    checked = check(data.removesuffix(b"\n"), digest, where=str(proof))
    if record is not None and read_file(record) != checked.row_bytes:
        raise ProofError(f"{record} is not the row of record {checked.seq}")
    files = {"request": request, "identity": identity, "response": response}
    for role, file in files.items():
        if file is not None:
            check_payload(checked, role, read_file(file))
    shown = [role for role, file in files.items() if file is not None or role in checked.payloads]
    if json:
        output.document(_describe(checked, shown))
        return
    content = checked.content
    output.line(f"proven: record {checked.seq} of {counted(content.records, 'record')}")
    pairs: list[tuple[str, object]] = [("content digest", checked.content_digest), ("recording id", content.id)]
    row = checked.row
    if row is None:
        output.line("the proof holds its leaf alone, as of a purged record: nothing else of the record is shown")
    else:
        pairs += [("kind", row.kind), ("name", row.name), ("key", row.key.hex()), ("scope", row.scope)]
        for role in files:
            ref = getattr(row, role)
            if ref is not None and ref.encoding:
                checked_too = "checked" if role in shown else "not looked at"
                pairs.append((role, f"{ref.digest.hex()}, {counted(ref.size, 'byte')} ({checked_too})"))
    output.pairs(pairs)


def _describe(proof: Proof, shown: list[str]) -> dict[str, Any]:
    from replaypack.format.row import ENCODINGS, STATUSES

    row = proof.row
    document: dict[str, Any] = {
        "proven": True,
        "content_digest": proof.content_digest,
        "recording_id": proof.content.id,
        "records": proof.content.records,
        "seq": proof.seq,
        "leaf": proof.leaf.hex(),
        "leaf_only": row is None,
        "checked_payloads": shown,
    }
    if row is not None:
        document |= {
            "kind": row.kind,
            "name": row.name,
            "key": row.key.hex(),
            "scheme": row.scheme,
            "scope": row.scope,
            "start": row.start,
            "duration": row.duration,
            "status": STATUSES[row.status],
            "attributes": jsonable(row.attributes),
        }
        for role in ("request", "identity", "response"):
            ref = getattr(row, role)
            document[role] = (
                {"digest": ref.digest.hex(), "size": ref.size, "encoding": ENCODINGS[ref.encoding]}
                if ref is not None and ref.encoding
                else None
            )
    return document
