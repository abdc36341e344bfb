"""Recorded values as JSON and back, bit for bit."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack import values
from replaypack.tagged import dump_json, from_jsonable, jsonable, load_json

#: Text without the two halves of a surrogate pair next to one another, which no value may hold.
texts = st.text(st.characters(exclude_categories=[])).filter(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text
)
markers = st.sampled_from(["$bytes", "$$bytes", "$float", "$int", "$map", "$surrogates", "$$$map", "$other"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=20) | texts
keys = st.none() | st.integers(-9, 9) | texts | markers | st.binary(max_size=3) | st.tuples(st.integers(2, 5), texts)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)


@given(documents)
def test_every_value_reads_back_bit_for_bit(value: Any) -> None:
    data = values.encode(value)
    assert values.encode(load_json(dump_json(jsonable(value)).encode())) == data
    assert values.encode(from_jsonable(json.loads(json.dumps(jsonable(value))))) == data


@pytest.mark.parametrize(
    "value",
    [
        struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0],
        -0.0,
        [10**6000],
        [-(10**6000)],
        5e-324,
        {"$bytes": {"$$bytes": {"$float": 1}}},
        {(1, ("a", b"b")): 1},
        "\\ud800 \ud800 \\\\",
    ],
)
def test_awkward_values_read_back(value: Any) -> None:
    assert values.encode(load_json(dump_json(jsonable(value)).encode())) == values.encode(value)


def test_values_nested_as_deep_as_may_be_read_back() -> None:
    value: Any = 1
    for number in range(256):
        value = {number: value} if number % 2 else [value]
    assert values.encode(load_json(dump_json(jsonable(value)).encode())) == values.encode(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "member 'c' twice"),
        ("[1e999]", "beyond what a double holds"),
        ("1" * 5000, "5000 digits"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "column 2"),
        ("[1,\n2", "line 2"),
        ("", "column 1"),
        ('{"$bytes": "a"}', r"\$bytes"),
        ('{"$bytes": 1}', r"\$bytes"),
        ('{"$float": "1"}', r"\$float"),
        ('{"$float": "nan:7ff0000000000000"}', r"\$float"),
        ('{"$int": "12"}', r"\$int"),
        ('{"$surrogates": "\\\\x"}', r"\$surrogates"),
        ('{"$map": [[1]]}', r"\$map"),
        ('{"$map": [[1, 1], [1, 2]]}', "a key twice"),
        ('{"$map": [[{}, 1]]}', "a map as a key"),
    ],
)
def test_what_is_no_value_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_json(text.encode())


def test_what_is_not_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="byte 3 is not UTF-8"):
        load_json(b'"a\xff"')
