"""`prove`: an inclusion proof of one record against the content digest. `check_proof` in `format.proof` checks it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from replaypack.errors import FormatError, UsageError
from replaypack.format.merkle import audit_path, leaf_hash, leaves_needed, root_of_path
from replaypack.format.proof import MAX_PROOF, ROLES, encode_proof

from ._faults import Progress, Report

if TYPE_CHECKING:
    from replaypack.record import Record
    from replaypack.recording import Recording

__all__ = ["prove"]


def prove(recording: Recording, seq: int, *, payloads: bool = False, progress: Report | None = None) -> bytes:
    """Return a document that shows record ``seq`` to be part of what `Recording.content_digest` names.

    It is checked without the archive: `replaypack.audit.check_proof`. With ``payloads`` it carries the bytes of
    request, identity and response as well; of a purged record it shows the leaf alone. Reads the rows of one whole
    subtree, all of them at most, a few frames at a time.

    Raises `UsageError` (no such record, or the proof would be larger than readers take), `FormatError` (the rows are
    not those of the Merkle root: `replaypack verify` says where), `StorageError`.
    """
    content = recording.manifest.content
    record = None if seq in recording.index.purged else recording.record(seq)
    first, end = leaves_needed(seq, content.records)
    edge = [bytes.fromhex(node) for node in recording.manifest.storage.merkle_edge]
    with contextlib.closing(recording.leaves(first)) as leaves:
        counted = _counted(islice(leaves, end - first), end - first, recording.name, progress)
        leaf, path = audit_path(seq, content.records, edge, counted)
    row = None if record is None else record.row_bytes
    if (row is not None and leaf != leaf_hash(row)) or root_of_path(
        leaf, seq, content.records, path
    ).hex() != content.merkle_root:
        raise FormatError("the rows do not have the Merkle root of the content", where=recording.locator)
    return encode_proof(content, seq, leaf, row, path, _payloads(record) if payloads and record is not None else None)


def _payloads(record: Record) -> dict[str, bytes]:
    row = record.row
    refs = {role: getattr(row, role) for role in ROLES}
    refs = {role: ref for role, ref in refs.items() if ref is not None and ref.encoding}
    size = sum(ref.size for ref in refs.values())
    if size > MAX_PROOF * 3 // 4:
        raise UsageError(
            f"the payloads of record {record.seq} take {size} bytes, more than a proof may",
            hint="leave them out, and give them to check-proof as files",
        )
    return {role: record.blob_bytes(role) for role in refs}


def _counted(items: Iterable[bytes], total: int, name: str, progress: Report | None) -> Iterator[bytes]:
    for number, item in enumerate(items):
        if progress is not None and number % 4096 == 0:
            progress(Progress(name, "records", number, total))
        yield item
