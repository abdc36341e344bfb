"""The read planner, without any store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replaypack.storage import Fetch, Part, assemble, plan_ranges

RANGES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 400), st.integers(0, 120)), max_size=30)
KNOBS = {"max_gap": st.integers(0, 60), "max_size": st.integers(1, 300)}


def test_neighbours_share_a_request_and_others_do_not() -> None:
    plan = plan_ranges([("a", 0, 10), ("a", 14, 6), ("a", 100, 5), ("b", 0, 1)], max_gap=4, max_size=1000)
    assert plan == (
        Fetch("a", 0, 20, (Part(0, 0, 10), Part(1, 14, 6))),
        Fetch("a", 100, 5, (Part(2, 0, 5),)),
        Fetch("b", 0, 1, (Part(3, 0, 1),)),
    )


def test_a_gap_above_the_limit_and_a_size_above_the_limit_split() -> None:
    assert len(plan_ranges([("a", 0, 10), ("a", 15, 5)], max_gap=4, max_size=1000)) == 2
    assert len(plan_ranges([("a", 0, 10), ("a", 10, 10)], max_gap=4, max_size=19)) == 2
    assert len(plan_ranges([("a", 0, 10), ("a", 10, 10)], max_gap=4, max_size=20)) == 1


def test_a_range_is_never_split_and_one_inside_it_rides_along() -> None:
    plan = plan_ranges([("a", 50, 10), ("a", 0, 5000)], max_gap=0, max_size=100)
    assert plan == (Fetch("a", 0, 5000, (Part(1, 0, 5000), Part(0, 50, 10))),)


def test_what_is_asked_first_is_fetched_first() -> None:
    plan = plan_ranges([("b", 900, 1), ("a", 500, 1), ("a", 0, 1)], max_gap=0, max_size=10)
    assert [(fetch.key, fetch.start) for fetch in plan] == [("b", 900), ("a", 500), ("a", 0)]


def test_empty_ranges_need_no_request() -> None:
    ranges = [("a", 5, 0), ("a", 900, 0)]
    assert plan_ranges(ranges, max_gap=0, max_size=10) == ()
    assert assemble(ranges, (), []) == [b"", b""]


@given(ranges=RANGES, **KNOBS)
def test_every_byte_is_covered_in_order_and_no_knob_is_exceeded(
    ranges: list[tuple[str, int, int]], max_gap: int, max_size: int
) -> None:
    objects = {"a": bytes(i % 251 for i in range(600)), "b": bytes(i % 241 for i in range(600))}
    plan = plan_ranges(ranges, max_gap=max_gap, max_size=max_size)

    bodies = [objects[fetch.key][fetch.start : fetch.start + fetch.length] for fetch in plan]
    assert assemble(ranges, plan, bodies) == [objects[key][start : start + length] for key, start, length in ranges]

    answered = sorted(part.index for fetch in plan for part in fetch.parts)
    assert answered == [index for index, (_, _, length) in enumerate(ranges) if length]
    firsts = [min(part.index for part in fetch.parts) for fetch in plan]
    assert firsts == sorted(firsts)
    for fetch in plan:
        largest = max(part.length for part in fetch.parts)
        assert fetch.length <= max(max_size, largest)
        covered = [False] * fetch.length
        for part in fetch.parts:
            covered[part.offset : part.offset + part.length] = [True] * part.length
        assert len(covered) == fetch.length
        assert covered[0]
        assert covered[-1]
        gaps = "".join("x" if byte else "." for byte in covered).split("x")
        assert max(len(gap) for gap in gaps) <= max_gap


@given(ranges=RANGES, max_size=st.integers(1, 300))
def test_without_gaps_no_byte_is_fetched_that_nobody_asked_for(
    ranges: list[tuple[str, int, int]], max_size: int
) -> None:
    wanted = {(key, byte) for key, start, length in ranges for byte in range(start, start + length)}
    for fetch in plan_ranges(ranges, max_gap=0, max_size=max_size):
        assert {(fetch.key, byte) for byte in range(fetch.start, fetch.start + fetch.length)} <= wanted
