"""Differences by JSON pointer: what they say, that they are all of them, and that the work has a bound."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack.canonical import canonical_json
from replaypack.differences import Difference, differences
from replaypack.values import ABSENT

NAN = float("nan")


def found(old: Any, new: Any) -> list[tuple[str, str]]:
    return [(difference.what, difference.pointer) for difference in differences(old, new)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ([1], (1,), []),
        (1, 1.0, []),
        (0.0, -0.0, []),
        ({"x": NAN}, {"x": float("nan")}, []),
        (True, 1, [("type", "")]),
        (False, 0.0, [("type", "")]),
        (1, "1", [("type", "")]),
        (None, {}, [("type", "")]),
        (10**30, 10**30 + 1, [("changed", "")]),
        (2**53, 2.0**53 + 2, [("changed", "")]),
        (b"\xff", b"\xfe", [("changed", "")]),
        ("\u00e9", "e\u0301", [("changed", "")]),
        ({"a": None}, {}, [("removed", "/a")]),
        ({}, {"a/b~c": {}}, [("added", "/a~1b~0c")]),
        ({1: "x"}, {True: "x"}, [("removed", "/1"), ("added", "/True")]),
        ({1: "x"}, {1.0: "x"}, []),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, [("changed", "/a/1/b")]),
        ([1, 2, 3], [1, True, 3], [("type", "/1")]),
    ],
)
def test_what_differs(old: Any, new: Any, expected: list[tuple[str, str]]) -> None:
    assert found(old, new) == expected


def test_an_element_put_into_a_list_is_one_difference() -> None:
    old = [{"role": "user", "content": f"message {number}"} for number in range(30)]
    new = [*old[:7], {"role": "user", "content": "new"}, *old[7:]]
    assert found({"messages": old}, {"messages": new}) == [("added", "/messages/7")]
    assert found({"messages": new}, {"messages": old}) == [("removed", "/messages/7")]


def test_pointers_after_an_insertion_are_those_of_the_new_value_and_of_removals_those_of_the_old() -> None:
    old = [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3, "t": "a", "gone": 1}, {"n": 4}]
    new = [{"n": -1}, {"n": 0}, {"n": 1}, {"n": 2}, {"n": 3, "t": "b"}, {"n": 4}]
    assert found(old, new) == [("added", "/0"), ("changed", "/4/t"), ("removed", "/3/gone")]


def test_the_first_character_that_differs_is_named() -> None:
    old, new = "x" * 100_000 + "old tail", "x" * 100_000 + "new tail"
    [difference] = differences({"messages": [{"content": old}]}, {"messages": [{"content": new}]})
    assert difference.at == 100_000
    assert str(difference) == (
        '`/messages/0/content` differs at character 100000: …"xxxxxxxxxxxxxxxxxxxxold tail" → '
        '…"xxxxxxxxxxxxxxxxxxxxnew tail"'
    )
    assert differences("abc", "abcd")[0].at == 3
    assert differences(b"abc", b"xbc")[0].at == 0
    long = difference.to_dict()
    assert set(long) == {"pointer", "what", "old_cut", "new_cut", "at"}
    assert len(json.dumps(long)) < 5000


def test_text_is_short_and_safe_to_show() -> None:
    new = {"\x1b[31m": {"\u202e": ["\x07" * 5000] * 5000}}
    [difference] = differences({}, new)
    text = str(difference)
    assert len(text) < 200
    assert text.isprintable()
    assert json.loads(json.dumps(difference.to_dict()))
    assert str(differences({"a": True}, {"a": 1})[0]) == "`/a` is of another type: boolean true → number 1"
    assert str(differences([], [{"b": b"\x00"}])[0]) == '`/0` is new: {"b": {"$bytes": "AA=="}}'
    assert str(Difference("", "changed", 1, 2)) == "the whole value differs: 1 → 2"


def test_a_limit_stops_early() -> None:
    old = {str(number): number for number in range(100)}
    assert [d.pointer for d in differences(old, {}, limit=3)] == ["/0", "/1", "/2"]
    assert differences(old, {}, limit=0) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([{"i": i} for i in range(60_000)], [{"i": i + 1} for i in range(60_000)]),
        (["a", "b"] * 50_000, ["b", "b", "a"] * 40_000),
        ([[i % 7] for i in range(3_000)], [[i % 5] for i in range(3_000)]),
        ({str(i): [i] for i in range(60_000)}, {str(i): [i, 1] for i in range(60_000)}),
    ],
    ids=["shifted", "few tokens", "many equal pairs", "wide map"],
)
@pytest.mark.once
def test_huge_values_are_told_apart_all_the_same(old: Any, new: Any) -> None:
    assert differences(old, copy.deepcopy(old)) == []
    assert differences(old, new)
    assert len(differences(old, new, limit=5)) == 5


def test_nesting_does_not_matter() -> None:
    old: Any = 1
    new: Any = 2
    for _ in range(255):
        old, new = [old, "x" * 5000], [new, "x" * 5000]
    assert found(old, new) == [("changed", "/0" * 255)]


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.0]) | st.sampled_from("abc")
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
)


def resolve(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


@given(documents, documents)
def test_there_are_differences_exactly_where_canonical_json_differs(old: Any, new: Any) -> None:
    result = differences(old, new)
    assert bool(result) == (canonical_json(old) != canonical_json(new))
    for difference in result:
        if difference.what == "removed":
            assert resolve(old, difference.pointer) is difference.old
            assert difference.new is ABSENT
        else:
            assert resolve(new, difference.pointer) is difference.new
            assert (difference.old is ABSENT) == (difference.what == "added")
    assert differences(old, new, limit=1) == result[:1]
