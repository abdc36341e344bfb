"""Whether the members of a manifest are sound by themselves and fit each other (spec chapter 06)."""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import datetime
from itertools import pairwise

import msgspec

from .manifest_members import (
    MAX_PACK_PAGES,
    MAX_PURGED,
    MAX_REASON,
    MAX_ROOT,
    NEAR_LIMIT,
    PACK_ENTRY,
    PACKS_PER_PAGE,
    Content,
    PageRef,
    Storage,
)
from .merkle import MerkleTree
from .summary import MAX_SUMMARY, RUN_WIDTH
from .table import INLINE_SPACE, TABLES

__all__ = ["content_problem", "storage_problem"]

#: Sequence numbers have 48 bits, and so have offsets of literals, half of them for inline responses.
_MAX_RECORDS = 1 << 48
#: Keys of revisions have eight digits.
_MAX_REVISION = 10**8 - 1

_HEX32 = re.compile(r"[0-9a-f]{64}")
_HEX16 = re.compile(r"[0-9a-f]{32}")
_HEX8 = re.compile(r"[0-9a-f]{16}")
_POLICY = re.compile(r"[a-z0-9-]{1,64}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z", re.ASCII)


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1])
    except ValueError:
        return False
    return True


def content_problem(content: Content) -> str | None:
    """What is wrong with the members of ``content`` by themselves."""
    if not _HEX16.fullmatch(content.id) or not _HEX32.fullmatch(content.merkle_root):
        return "the recording id or the Merkle root is not a digest"
    for reference in (content.extends, content.derived_from):
        if reference is not None and not _HEX32.fullmatch(reference):
            return "a reference to another recording is not a content digest"
    if not _is_time(content.started):
        return f"the start {content.started!r} is not a time"
    if not 0 <= content.records <= _MAX_RECORDS or any(count <= 0 for count in content.counts.values()):
        return "a count is negative, zero or beyond its limit"
    if sum(content.counts.values()) != content.records:
        return "the counts by kind do not add up to the records"
    if content.redaction.rules is not msgspec.UNSET and not content.redaction.name.startswith("x-"):
        return "a redaction policy that is not private has rules"
    return None


def storage_problem(content: Content, storage: Storage) -> str | None:
    """What is wrong with the members of ``storage``, or with how they fit ``content``."""
    if not 0 < storage.revision <= _MAX_REVISION or min(storage.checkpoint, storage.literals, storage.inlines) < 0:
        return "a number is out of its bounds"
    if max(storage.literals, storage.inlines) > INLINE_SPACE:
        return "the literals end beyond their address space"
    if not _HEX8.fullmatch(storage.writer) or not _is_time(storage.created):
        return "the writer id or the time of writing is malformed"
    if (storage.claim is not None) != (storage.cause in ("claim", "checkpoint")):
        return "a claim is named by a revision that is none, or the reverse"
    if storage.previous is not None and not _HEX32.fullmatch(storage.previous):
        return "the digest of the previous revision is malformed"
    source = storage.source
    if source is not None and not (_HEX32.fullmatch(source.manifest) and _POLICY.fullmatch(source.policy)):
        return "what it was copied from is malformed"
    for pack in storage.packs:
        if not _HEX32.fullmatch(pack.digest) or not 0 < pack.size < 1 << 32:
            return "a pack is malformed"
    if storage.pack_pages and storage.packs:
        return "packs stand both in the manifest and in pages"
    if len(storage.pack_pages) > MAX_PACK_PAGES:
        return f"there are more than {MAX_PACK_PAGES} pages of packs"
    if any(not _page_sound(page) or page.raw > PACKS_PER_PAGE * PACK_ENTRY.size for page in storage.pack_pages):
        return "a page of packs is malformed"
    if len(storage.merkle_edge) != content.records.bit_count() or any(
        not _HEX32.fullmatch(node) for node in storage.merkle_edge
    ):
        return "the Merkle edge does not fit the number of records"
    if MerkleTree(content.records, [bytes.fromhex(n) for n in storage.merkle_edge]).root.hex() != content.merkle_root:
        return "the Merkle edge does not give the Merkle root"
    summary = storage.summary
    if summary is not None and (
        not _page_sound(summary) or not 0 < summary.raw <= MAX_SUMMARY or summary.raw % RUN_WIDTH
    ):
        return "the reference to the summary is malformed"
    if summary is not None and storage.tombstones:
        return "a recording of which records were purged has a summary"
    if storage.withheld != sorted(set(storage.withheld)):
        return "what is withheld is not in order"
    return _tombstones_problem(content, storage) or _segments_problem(content, storage)


def _tombstones_problem(content: Content, storage: Storage) -> str | None:
    seen: set[int] = set()
    total = 0
    for tombstone in storage.tombstones:
        if not _is_time(tombstone.time) or not 0 < len(tombstone.reason.encode("utf-8", "replace")) <= MAX_REASON:
            return "the time or the reason of a tombstone is malformed"
        numbers = [seq for seq, _ in tombstone.records]
        total += len(numbers)
        if not numbers or total > MAX_PURGED:
            return f"a tombstone has no records, or all have more than {MAX_PURGED}"
        if numbers[0] < 0 or numbers[-1] >= content.records or any(a >= b for a, b in pairwise(numbers)):
            return "the records of a tombstone are not in order, or not of the recording"
        if not all(_HEX32.fullmatch(leaf) for _, leaf in tombstone.records):
            return "the leaf of a purged record is malformed"
        seen.update(numbers)
    return None if len(seen) == total else "a record has two tombstones"


#: Entries of a table for each record of its segment, at most. Literals may be any number: a blob may have many frames.
_MOST_ENTRIES = {"keys": 1, "records": 1, "literals": _MAX_RECORDS, "blobs": 3}


def _segments_problem(content: Content, storage: Storage) -> str | None:
    packs = len(storage.packs)
    purged = sorted(seq for tombstone in storage.tombstones for seq, _ in tombstone.records)
    seq = inlines = 0
    for segment in storage.segments:
        if segment.first != seq or segment.count <= 0 or not inlines <= segment.inline_first <= storage.inlines:
            return "the segments do not follow each other"
        seq += segment.count
        inlines = segment.inline_first
        # How many packs the pages hold is known once they are read.
        if any(index < 0 or (index >= packs and not storage.pack_pages) for index in segment.packs or ()):
            return "a segment names a pack that the manifest does not"
        gone = bisect_left(purged, seq) - bisect_left(purged, segment.first)
        if not segment.count - gone <= segment.keys.count <= segment.count:
            return "a segment's keys are not as many as its records"
        for shape in TABLES:
            table = segment.table(shape)
            if table.count < 0 or (table.root is None) == (table.page is None):
                return f"the table {shape.name} is malformed"
            if table.count > _MOST_ENTRIES[shape.name] * segment.count:
                return f"the table {shape.name} has more entries than the segment can have"
            if table.page is not None and not _page_sound(table.page):
                return f"the root page of {shape.name} is malformed"
        near = segment.near
        if near is not None and (min(near.pack, near.offset) < 0 or not 0 < near.length <= NEAR_LIMIT):
            return "a segment's near range is malformed"
    return None if seq == content.records else "the segments do not hold the records that the content names"


def _page_sound(page: PageRef) -> bool:
    return (
        bool(_HEX32.fullmatch(page.pack))
        and bool(_HEX16.fullmatch(page.digest))
        and 0 <= page.offset < 1 << 32
        and 0 < page.length < 1 << 32
        and 0 <= page.raw <= MAX_ROOT
    )
