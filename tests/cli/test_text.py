"""Values and text as they are shown."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack.cli._text import counted, dump_json, escape, hexdump, human_size, jsonable, pretty
from replaypack.values import MAX_DEPTH

from .conftest import DANGEROUS, run


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[0m", "\\x1b[0m"),
        ("\u202e\u2066", "\\u202e\\u2066"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("né 漢 👩\u200d🚀", "né 漢 👩\u200d🚀"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_escape_keeps_lines_where_asked() -> None:
    assert escape("a\n\tb\r\x1b", lines=True) == "a\n\tb\\r\\x1b"


#: Lone surrogates too.
texts = st.text() | st.text(st.sampled_from("\ud800\udc00\udfff\\u0d\U0001f600"))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(texts | st.integers(), inner),
    max_leaves=20,
)


@given(values)
def test_every_value_is_shown_as_json_without_anything_that_acts(value: object) -> None:
    for text in (dump_json(jsonable(value)), pretty(value)):
        json.loads(text, parse_constant=pytest.fail)
        assert not any(char in text for char in DANGEROUS)
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # no lone surrogate
    assert dump_json(jsonable(value)).isascii()


@given(
    st.sampled_from(["$bytes", "$$bytes", "$float", "$map", "$int", "$surrogates", "$$surrogates", "bytes"]), st.text()
)
def test_a_map_that_looks_like_a_marker_is_told_from_one(key: str, text: str) -> None:
    assert jsonable({key: text}) != jsonable(text.encode("utf-8", "surrogatepass"))
    assert list(jsonable({key: text})) == [("$" + key) if key.startswith("$") else key]
    assert jsonable({key: text, "other": 1}) == {key: text, "other": 1}


@given(texts)
def test_lone_surrogates_are_spelled_so_that_they_come_back(text: str) -> None:
    shown = jsonable(text)
    if isinstance(shown, dict):
        spelled = shown["$surrogates"].encode("latin-1", "backslashreplace")
        assert spelled.decode("unicode_escape") == text
    else:
        assert shown == text
        text.encode()


def test_lone_surrogates_of_arguments_leave_the_json_of_an_error_readable() -> None:
    assert json.loads(dump_json({"a\udcff": "é\\\ud800\U0001f600"})) == {"a\\udcff": "é\\\\ud800\U0001f600"}
    result = run("ls", "/no/\udcff", "--json")
    assert result.json["error"]["message"] == "there is no archive at /no/\\udcff"


def test_markers() -> None:
    assert jsonable("a\\\ud800é\ud83d\ude00") == {"$surrogates": "a\\\\\\ud800é\\ud83d\\ude00"}
    assert jsonable({"\udfff": 1}) == {"$map": [[{"$surrogates": "\\udfff"}, 1]]}
    assert jsonable([2**100, 1 << 14_000]) == [2**100, {"$int": hex(1 << 14_000)}]
    assert jsonable(math.inf) == {"$float": "inf"}
    assert jsonable({(1, 2): b"\xff"}) == {"$map": [[[1, 2], {"$bytes": "/w=="}]]}
    assert jsonable(-(10**5000)) == {"$int": hex(-(10**5000))}


def test_the_deepest_value() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert pretty(value).count("[") == MAX_DEPTH


def test_hexdump_and_sizes() -> None:
    assert hexdump(b"") == "(no bytes)"
    lines = hexdump(bytes(range(40)), 32).splitlines()
    assert lines[0] == "00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  " + "." * 16
    assert len(lines) == 3
    assert lines[2].startswith("… 8 more bytes")
    assert hexdump(b"abc", 2).splitlines()[1].startswith("… 1 more byte (")
    assert [counted(number, "record") for number in (0, 1, 2)] == ["0 records", "1 record", "2 records"]
    assert hexdump(b"ab~") == "00000000  61 62 7e" + " " * 41 + "ab~"
    assert [human_size(n) for n in (0, 1023, 1024, 5 << 30)] == ["0 B", "1023 B", "1.0 KiB", "5.0 GiB"]
