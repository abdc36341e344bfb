"""Reading ``keys`` as a keyed store does: the last record of a place, all places of a key, places recorded twice."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby

from replaypack.errors import FormatError
from replaypack.format.row import discriminator
from replaypack.format.table import KEYS, KeyPage, lower_bound, unpack_key

from .index import Found, Index, SegmentIndex, successor

__all__ = ["latest", "repeated"]


#: Entries of a key that are looked through one by one; where there are more, each scope is searched for.
_FEW = 64


def latest(index: Index, key: bytes, scopes: Sequence[str | None]) -> Found | None:
    """The last record of a key in the first of several scopes that has one.

    One page a segment, nearly always, all read together; then one record frame.
    """
    few = _few(index, key[:16])
    if few is not None:
        for scope in scopes if few else ():
            if (place := few.get(discriminator(scope))) is not None:
                segment, page, at = place
                entry = unpack_key(page.rows, at)
                record = index.record(segment, entry, page.frame_of(entry.seq))
                if record.row.key != key or record.row.scope != scope:
                    break  # two share the truncated digests
                return record
        else:
            return None
    return _searched(index, key, scopes)


def _few(index: Index, key: bytes) -> dict[bytes, tuple[SegmentIndex, KeyPage, int]] | None:
    """The last place of each discriminator of a key (16 bytes); None where there are many, or on several pages."""
    wanted = [(segment, root.page_of(key)) for segment in index.segments if (root := segment.root(KEYS)).count]
    found: dict[bytes, tuple[SegmentIndex, KeyPage, int]] = {}
    for (segment, number), page in zip(wanted, index.key_pages(wanted), strict=True):
        rows = page.rows
        at = lower_bound(rows, KEYS.width, key) * KEYS.width
        stop = at + _FEW * KEYS.width
        while rows[at : at + 16] == key:
            if at == stop:
                return None
            found[rows[at + 16 : at + 24]] = (segment, page, at)
            at += KEYS.width
        if at >= len(rows) and number + 1 < len(segment.root(KEYS).fences):
            return None
    return found


def _searched(index: Index, key: bytes, scopes: Sequence[str | None]) -> Found | None:
    prefixes = [key[:16] + discriminator(scope) for scope in scopes]
    index.key_pages(list(dict.fromkeys(page for prefix in prefixes for page in _pages(index, prefix))))
    for prefix, scope in zip(prefixes, scopes, strict=True):
        for segment, page, within in _backwards(index, prefix):
            [found] = index.key_pages([(segment, page)])
            entry = unpack_key(found.rows, within * KEYS.width)
            # Of a purged record the entry is all there is to compare.
            record = index.record(segment, entry, found.frame_of(entry.seq))
            # Another key or scope may share the truncated digests: the row decides.
            if record.row.key == key and record.row.scope == scope:
                return record
    return None


def _pages(index: Index, prefix: bytes) -> Iterator[tuple[SegmentIndex, int]]:
    """The page of each segment in which the run of a prefix ends."""
    for segment in index.segments:
        root = segment.root(KEYS)
        if root.count:
            yield segment, _end(segment, prefix)


def _end(segment: SegmentIndex, prefix: bytes) -> int:
    """The page that has the last entry of a prefix, if there is any."""
    following = successor(prefix)
    root = segment.root(KEYS)
    return len(root.fences) - 1 if following is None else root.page_of(following)


def _backwards(index: Index, prefix: bytes) -> Iterator[tuple[SegmentIndex, int, int]]:
    """Yield the places (segment, page, number in it) of the entries that begin with a prefix, the last first."""
    following = successor(prefix)
    width, size = KEYS.width, len(prefix)
    for segment in reversed(index.segments):
        root = segment.root(KEYS)
        if not root.count:
            continue
        page = _end(segment, prefix)
        [found] = index.key_pages([(segment, page)])
        within = len(found.rows) // width if following is None else lower_bound(found.rows, width, following)
        while True:
            while within:
                within -= 1
                if found.rows[within * width : within * width + size] != prefix:
                    break
                yield segment, page, within
            else:
                # All of the page was of the prefix: the run may begin in the page before.
                if page:
                    page -= 1
                    [found] = index.key_pages([(segment, page)])
                    within = len(found.rows) // width
                    continue
            break


def repeated(index: Index) -> Iterator[list[int]]:
    """Yield, for each key and scope that has several records, their sequence numbers in order.

    One pass over the pages of ``keys``; memory does not grow with them. (Of truncated digests: see `latest`.)
    """
    merged = heapq.merge(*(_rows(index, segment) for segment in index.segments))
    for _, run in groupby(merged, key=lambda row: row[:24]):
        numbers = [unpack_key(row).seq for row in run]
        if numbers[-1] >= index.end:
            raise FormatError(f"the table keys names record {numbers[-1]} of {index.end}", where="keys")
        if len(numbers) > 1:
            yield numbers


def _rows(index: Index, segment: SegmentIndex) -> Iterator[bytes]:
    for page in range(len(segment.root(KEYS).fences)):
        [found] = index.key_pages([(segment, page)])
        for at in range(0, len(found.rows), KEYS.width):
            yield found.rows[at : at + KEYS.width]
