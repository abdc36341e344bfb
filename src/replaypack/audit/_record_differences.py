"""Where two records differ: in their fields, and inside of their payloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from replaypack._read.blobs import blob_ref
from replaypack.differences import Difference, differences
from replaypack.errors import WithheldError
from replaypack.format.row import FLAGS, STATUSES, Row
from replaypack.recording import Record
from replaypack.values import ABSENT

from ._diff_rows import is_timed
from ._ignore import Ignore

__all__ = ["record_differences"]

#: Differences of one payload that are looked for.
_PER_PAYLOAD = 200
_SAME_VALUE = "the same value in other bytes (the order of members, or a number written otherwise)"

_WITHHELD = "it differs, by its digest; what it is, is withheld"


def record_differences(old: Record, new: Record, ignore: Ignore) -> Iterator[tuple[Difference, str | None]]:
    any_ = False
    timed = is_timed(old.row) or is_timed(new.row)
    for part in ("kind", "name", "scope", "status", "scheme", "flags", "attributes"):
        if ignore.whole(part):
            continue
        before, after = (ignore.strip(part, _field(record.row, part)) for record in (old, new))
        if before != after or part == "attributes":
            for difference in differences(before, after, limit=_PER_PAYLOAD):
                any_ = True
                yield _below(part, difference), None
    for role in ("request", "identity", "response"):
        refs = [blob_ref(record.row, role) for record in (old, new)]
        if refs[0] == refs[1] or ignore.whole(role):
            continue
        if role == "identity" and None in refs:
            continue  # it is the request then, on one side; that the key differs is said below
        try:
            before, after = (ignore.strip(role, _payload(record, role)) for record in (old, new))
        except WithheldError:
            any_ = True
            yield Difference(f"/{role}", "changed"), _WITHHELD
            continue
        if before is ABSENT or after is ABSENT:
            found = [Difference("", "added" if before is ABSENT else "removed", before, after)]
        else:
            found = differences(before, after, limit=_PER_PAYLOAD)
        for difference in found:
            any_ = True
            yield _below(role, difference), None
        unlike = not found and not (timed and role == "response") and not ignore.touches(role)
        if unlike and "encoding" not in ignore.words:
            any_ = True
            yield Difference(f"/{role}", "changed"), _SAME_VALUE
    told = any_ or ignore.touches("request") or ignore.touches("identity") or ignore.whole("key")
    if old.row.key != new.row.key and not told:
        yield Difference("/key", "changed", old.row.key.hex(), new.row.key.hex()), None


def _payload(record: Record, role: str) -> Any:
    """A payload without the times that a stream's items came at: times make no difference."""
    value = getattr(record, role)
    if role != "response" or not is_timed(record.row) or not isinstance(value, dict):
        return value
    value = {name: item for name, item in value.items() if name != "offsets"}
    if isinstance(value.get("stream"), dict):  # of a stream that failed
        value["stream"] = {name: item for name, item in value["stream"].items() if name != "offsets"}
    return value


def _field(row: Row, part: str) -> Any:
    if part == "status":
        return STATUSES[row.status]
    if part == "flags":
        return [name for name, bit in FLAGS.items() if row.flags & bit]
    return getattr(row, part)


def _below(part: str, difference: Difference) -> Difference:
    return msgspec.structs.replace(difference, pointer=f"/{part}{difference.pointer}")
