"""Which items of two sequences belong together, in order. Pure, near linear, and bounded for any input."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence

__all__ = ["align", "gaps"]

#: How often what lies between anchors is looked at anew.
_DEEPEST = 64

_Pair = tuple[int, int]


def align(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[_Pair]:
    """Return pairs of places (in ``old``, in ``new``) with equal items, both ascending strictly.

    Common ends first; then the items that are unique on both sides, the most of them that are in one order, and
    again between those; where nothing is unique, the n-th of equal items belongs to the n-th. It takes O(n log n)
    whatever the items are, and finds nearly as many pairs as a longest common subsequence has.
    """
    pairs: list[_Pair] = []
    stack = [(0, len(old), 0, len(new), 0)]
    while stack:
        low, high, first, last, depth = stack.pop()
        while low < high and first < last and old[low] == new[first]:
            pairs.append((low, first))
            low, first = low + 1, first + 1
        while low < high and first < last and old[high - 1] == new[last - 1]:
            high, last = high - 1, last - 1
            pairs.append((high, last))
        if low == high or first == last or depth > _DEEPEST:
            continue
        left, right = range(low, high), range(first, last)
        anchors = _ascending(_unique(old, left, new, right)) or _ascending(_ranked(old, left, new, right))
        if not anchors:
            continue
        pairs += anchors
        stack += ((*gap, depth + 1) for gap in gaps(anchors, (low, first), (high, last)))
    pairs.sort()
    return pairs


def gaps(pairs: Sequence[_Pair], begin: _Pair, end: _Pair) -> Iterator[tuple[int, int, int, int]]:
    """Yield what lies between ascending pairs, as (low, high, first, last); nothing where both sides are empty."""
    low, first = begin
    for left, right in (*pairs, end):
        if low < left or first < right:
            yield low, left, first, right
        low, first = left + 1, right + 1


def _unique(old: Sequence[Hashable], left: range, new: Sequence[Hashable], right: range) -> list[_Pair]:
    """The pairs of items that are there once on either side, in the order of ``old``."""
    places: dict[Hashable, int] = {}
    for place in right:
        places[new[place]] = -1 if new[place] in places else place
    seen: dict[Hashable, int] = {}
    for place in left:
        item = old[place]
        if places.get(item, -1) >= 0:
            seen[item] = -1 if item in seen else place
    return [(place, places[item]) for item, place in seen.items() if place >= 0]


def _ranked(old: Sequence[Hashable], left: range, new: Sequence[Hashable], right: range) -> list[_Pair]:
    """The n-th of equal items on one side with the n-th on the other, in the order of ``old``."""
    places: dict[Hashable, list[int]] = {}
    for place in reversed(right):
        places.setdefault(new[place], []).append(place)
    return [(place, waiting.pop()) for place in left if (waiting := places.get(old[place]))]


def _ascending(pairs: list[_Pair]) -> list[_Pair]:
    """The most of ``pairs``, which ascend in the first place, that ascend in the second too."""
    tails: list[int] = []
    tail_at: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(tails, place)
        before.append(tail_at[at - 1] if at else -1)
        tails[at : at + 1] = [place]
        tail_at[at : at + 1] = [number]
    chosen: list[_Pair] = []
    number = tail_at[-1] if tail_at else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    chosen.reverse()
    return chosen
