"""Which records of two recordings belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._align import align, gaps
from ._diff_rows import Rows

__all__ = ["Gap", "Pair", "align_scope", "alike", "by_scope", "moved"]

#: Places in the rows that were read, of the old recording and of the new one.
Pair = tuple[int, int]
#: Records of either side between two pairs, in order.
Gap = tuple[list[int], list[int]]


def by_scope(rows: tuple[Rows, Rows], begins: tuple[int, int]) -> list[tuple[Sequence[int], Sequence[int]]]:
    """The records behind ``begins``, as places on either side, by scope: calls of several scopes ran side by side, and
    which of them came first says nothing."""
    sides: list[dict[int, list[int]]] = []
    for side, begin in zip(rows, begins, strict=True):
        places: dict[int, list[int]] = {}
        for at in range(begin, len(side)):
            places.setdefault(side.scope[at], []).append(at)
        sides.append(places)
    return [(sides[0].get(scope, []), sides[1].get(scope, [])) for scope in {**sides[0], **sides[1]}]


def align_scope(
    rows: tuple[Rows, Rows],
    left: Sequence[int],
    right: Sequence[int],
    pairs: list[Pair],
    rest: list[Gap],
) -> None:
    """Pair the records of one scope that are the same, then those of one key; what lies between goes to ``rest``."""
    old, new = rows
    equal = align([old.outcome[at] for at in left], [new.outcome[at] for at in right])
    pairs += ((left[low], right[first]) for low, first in equal)
    for low, high, first, last in gaps(equal, (0, 0), (len(left), len(right))):
        keyed = align([old.key[at] for at in left[low:high]], [new.key[at] for at in right[first:last]])
        pairs += ((left[low + at], right[first + to]) for at, to in keyed)
        for begin, end, start, stop in gaps(keyed, (0, 0), (high - low, last - first)):
            rest.append((list(left[low + begin : low + end]), list(right[first + start : first + stop])))


def moved(rows: tuple[Rows, Rows], rest: list[Gap]) -> list[Pair]:
    """Take out of ``rest`` the pairs that are the same, or of one key and scope, in different places."""
    old, new = rows
    found: list[Pair] = []
    for of_old, of_new in (
        (old.outcome.__getitem__, new.outcome.__getitem__),
        (lambda at: (old.key[at], old.scope[at]), lambda at: (new.key[at], new.scope[at])),
    ):
        waiting: dict[Any, list[int]] = {}
        for _, right in reversed(rest):
            for at in reversed(right):
                waiting.setdefault(of_new(at), []).append(at)
        taken: tuple[set[int], set[int]] = (set(), set())
        for left, _ in rest:
            for at in left:
                places = waiting.get(of_old(at))
                if places:
                    to = places.pop()
                    found.append((at, to))
                    taken[0].add(at)
                    taken[1].add(to)
        if taken[0]:
            for gap in rest:
                for side, gone in zip(gap, taken, strict=True):
                    side[:] = [at for at in side if at not in gone]
    return found


def alike(rows: tuple[Rows, Rows], left: list[int], right: list[int]) -> list[Pair]:
    """Take out of what lies between two anchors the pairs of one kind and name: first those with one response."""
    old, new = rows
    found = align(
        [(old.label[at], old.response[at]) for at in left], [(new.label[at], new.response[at]) for at in right]
    )
    for low, high, first, last in list(gaps(found, (0, 0), (len(left), len(right)))):
        labelled = align([old.label[at] for at in left[low:high]], [new.label[at] for at in right[first:last]])
        found += ((low + at, first + to) for at, to in labelled)
    pairs = [(left[at], right[to]) for at, to in found]
    for side, gone in ((left, {at for at, _ in pairs}), (right, {to for _, to in pairs})):
        side[:] = [at for at in side if at not in gone]
    return pairs
