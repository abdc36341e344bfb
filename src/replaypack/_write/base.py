"""What a new recording can reuse of older ones: their last requests, split, and where those bytes lie."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from replaypack.errors import ReplaypackError
from replaypack.format.manifest_members import PackRef
from replaypack.format.recipe import Range
from replaypack.format.table import Location
from replaypack.values import decode_payload, payload_pieces

from .literals import SPLIT

if TYPE_CHECKING:
    from replaypack.recording import Record, Recording

__all__ = ["External", "Seed", "seed_from"]

#: Requests of a base recording that are looked at, from its end, and their bytes.
_MAX_REQUESTS = 16
_MAX_BYTES = 16 << 20


class External(NamedTuple):
    """Literals mapped into the new address space at ``first``: the last ``items`` bytes of a frame of ``raw`` bytes,
    its digest, pack and place."""

    first: int
    raw: int
    items: int
    digest: bytes
    pack: PackRef
    at: Location


class Seed(NamedTuple):
    """Frames to map into the new recording's address space, and blobs (pieces, ranges) to reuse from there."""

    end: int
    external: list[External]
    blobs: list[tuple[list[bytes], list[Range]]]


def _last_requests(recording: Recording) -> list[Record]:
    """The newest records whose request is worth splitting, oldest first; none where requests are withheld."""
    found: list[Record] = []
    if "request" in recording.withheld:
        return found
    size = 0
    frames = list(recording.index.frames(max(0, len(recording) - 512)))
    for entry, _ in reversed(frames[-4:]):
        last = entry.first + entry.items - 1
        for record in reversed(list(recording.records(first=entry.first, last=last))):
            ref = record.row.request
            if ref is None or ref.size < SPLIT:
                continue
            size += ref.size
            if size > _MAX_BYTES or len(found) >= _MAX_REQUESTS:
                return found[::-1]
            found.append(record)
    return found[::-1]


def seed_from(recordings: Sequence[Recording], start: int, *, same_space: bool = False) -> Seed:
    """Take the last requests of ``recordings``; map their frames in from offset ``start`` on.

    With ``same_space`` the new recording continues the address space of the (one) old one: nothing is mapped.
    """
    seed = Seed(start, [], [])
    for recording in recordings:
        records = _last_requests(recording)
        recipes = [record.recipe("request") for record in records]
        shift: dict[int, int] = {}
        sizes: dict[int, int] = {}
        external = list(seed.external)
        end = seed.end
        if not same_space:
            spans = [(item.offset, item.length) for ranges in recipes for item in ranges]
            for entry, frame in recording.index.literal_entries(spans) if spans else ():
                shift[entry.first] = end
                sizes[entry.first] = entry.items
                external.append(External(end, entry.raw, entry.items, entry.digest, frame.pack, frame.at))
                end += entry.items
        blobs = list(seed.blobs)
        for record, ranges in zip(records, recipes, strict=True):
            pieces = _pieces(record)
            if pieces is None:
                continue
            moved = ranges if same_space else _moved(ranges, shift, sizes)
            if moved is not None:
                blobs.append((pieces, moved))
        seed = Seed(end, external, blobs)
    return seed


def _pieces(record: Record) -> list[bytes] | None:
    ref = record.row.request
    assert ref is not None
    data = record.blob_bytes("request")
    try:
        _, pieces = payload_pieces(decode_payload(ref.encoding, data))
    except ReplaypackError:  # pragma: no cover - what was stored can be split again
        return None
    return pieces if b"".join(pieces) == data else None


def _moved(ranges: Sequence[Range], shift: dict[int, int], sizes: dict[int, int]) -> list[Range] | None:
    """The same bytes at their new offsets. A range may cross frames, which lie elsewhere relative to each other."""
    firsts = sorted(shift)
    result: list[Range] = []
    for offset, length, flags in ranges:
        at = bisect_right(firsts, offset) - 1
        first = firsts[at]
        end = offset + length
        covered = first + sizes[first]
        while covered < end and at + 1 < len(firsts) and firsts[at + 1] == covered:
            # Neighbours in the old space were mapped one after another, and are neighbours in the new one.
            at += 1
            covered += sizes[firsts[at]]
        if covered < end:
            return None
        result.append(Range(offset - first + shift[first], length, flags))
    return result
