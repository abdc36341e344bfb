"""Which frames to read for a look at a part of a recording, so that it takes few rounds and a bounded number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from replaypack.errors import FormatError
from replaypack.format.recipe import Range
from replaypack.format.table import RECORDS, FrameEntry, unpack_frame

from .index import Index, SegmentIndex
from .packs import Frame

__all__ = ["frames_around", "read_literals"]


def frames_around(index: Index, seq: int, count: int) -> list[tuple[FrameEntry, Frame]]:
    """Return the ``count`` record frames nearest to the one that holds record ``seq``, in order."""
    pages: list[tuple[SegmentIndex, int]] = []
    sizes: list[int] = []
    at = 0
    for segment in index.segments:
        root = segment.root(RECORDS)
        if segment.segment.first <= seq:
            at = len(pages) + max(0, root.page_at_or_before(seq.to_bytes(6, "big")))
        pages += ((segment, number) for number in range(len(root.fences)))
        sizes += map(root.page_count, range(len(root.fences)))
    if not pages:
        return []
    # How many entries a page has stands in its root: whole pages are left out before anything is read.
    low, high = at, at + 1
    while low and sum(sizes[low:at]) < count:
        low -= 1
    while high < len(pages) and sum(sizes[at + 1 : high]) < count:
        high += 1
    entries: list[tuple[FrameEntry, Frame]] = []
    rows = index.pages([(segment, RECORDS, number) for segment, number in pages[low:high]])
    for (segment, _), data in zip(pages[low:high], rows, strict=True):
        for offset in range(0, len(data), RECORDS.width):
            entry = unpack_frame(data, offset)
            pack = segment.pack(entry.frame, where="page of records")
            entries.append((entry, Frame(pack, entry.frame, entry.raw, entry.digest)))
    middle = max(0, bisect_right(entries, seq, key=lambda item: item[0].first) - 1)
    first = max(0, min(middle - count // 2, len(entries) - count))
    return entries[first : first + count]


def read_literals(index: Index, recipes: Sequence[Sequence[Range]], frames: int, size: int) -> list[bool]:
    """Read what several recipes are made of into the cache, the first of them first, in two rounds.

    At most ``frames`` frames of ``size`` bytes in all. Return which recipes have all that they need.
    """
    spans = sorted({(item.offset, item.length) for ranges in recipes for item in ranges})
    if not spans:
        return [True] * len(recipes)
    entries = index.literal_entries(spans)
    firsts = [entry.first for entry, _ in entries]
    chosen: dict[int, int] = {}
    fits: list[bool] = []
    for ranges in recipes:
        needed: dict[int, int] = {}
        for offset, length, *_ in ranges:
            end = offset + length
            at = bisect_right(firsts, offset) - 1
            while at < len(entries) and firsts[at] < end:
                if at < 0:
                    raise FormatError(f"no literals at offset {offset}", where="literals")
                needed[at] = entries[at][0].raw
                at += 1
        total = {**chosen, **needed}
        fit = len(total) <= frames and sum(total.values()) <= size
        if fit:
            chosen = total
        fits.append(fit)
    index.literal_frames([entries[at] for at in sorted(chosen)])
    return fits
