"""Aligning two sequences: in order, near a longest common subsequence, and never slow."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from replaypack.audit._align import align, gaps


def lcs(old: list[int], new: list[int]) -> int:
    row = [0] * (len(new) + 1)
    for item in old:
        before = row[:]
        for at, other in enumerate(new):
            row[at + 1] = before[at] + 1 if item == other else max(row[at], before[at + 1])
    return row[-1]


items = st.lists(st.integers(0, 6), max_size=30)


@given(items, items)
def test_pairs_are_equal_and_ascend(old: list[int], new: list[int]) -> None:
    pairs = align(old, new)
    assert all(old[left] == new[right] for left, right in pairs)
    for (left, right), (left2, right2) in pairwise(pairs):
        assert left < left2
        assert right < right2
    assert len(pairs) <= lcs(old, new)
    assert align(old, old) == [(at, at) for at in range(len(old))]


@given(st.lists(st.integers(), unique=True, max_size=40), st.data())
def test_of_different_items_nothing_is_lost(old: list[int], data: st.DataObject) -> None:
    new = [item for item in old if data.draw(st.booleans())]
    for _ in range(data.draw(st.integers(0, 5))):
        new.insert(data.draw(st.integers(0, len(new))), 10**30)
    assert len(align(old, new)) == lcs(old, new)


@given(items, items)
def test_gaps_are_what_lies_between(old: list[int], new: list[int]) -> None:
    pairs = align(old, new)
    left = [at for low, high, _, _ in gaps(pairs, (0, 0), (len(old), len(new))) for at in range(low, high)]
    right = [at for _, _, first, last in gaps(pairs, (0, 0), (len(old), len(new))) for at in range(first, last)]
    assert sorted(left + [pair[0] for pair in pairs]) == list(range(len(old)))
    assert sorted(right + [pair[1] for pair in pairs]) == list(range(len(new)))


def test_repeated_items_around_an_insertion() -> None:
    poll = [1, 1, 1, 2, 1, 1, 3]
    assert len(align(poll, [1, 1, 9, *poll[2:]])) == 7
    assert len(align(poll * 50, poll * 20 + [9] + poll * 30)) == 350


def test_long_sequences_of_any_shape() -> None:
    # What is quadratic would not come to an end here.
    rng = random.Random(1)
    count = 50_000
    assert len(align(list(range(count)), list(range(count, 0, -1)))) == 1
    assert len(align([0] * count, [0] * (count // 2))) == count // 2
    align([rng.randrange(3) for _ in range(count)], [rng.randrange(3) for _ in range(count)])
    align([at % 100 for at in range(count)], [(at * 7) % 101 for at in range(count)])
