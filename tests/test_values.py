"""The structured encoding, payload encodings, pieces and the object table."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack import _plain, values
from replaypack.errors import FormatError, ValueEncodingError
from replaypack.values import (
    ABSENT,
    MAX_DEPTH,
    decode,
    decode_payload,
    decode_plain,
    decode_together,
    encode,
    encode_payload,
    encode_pieces,
    payload_pieces,
)

from .value_cases import PLAIN_JSON, VALUES, exact


@given(st.one_of(VALUES, PLAIN_JSON))
@settings(max_examples=400)
def test_round_trip(value: Any) -> None:
    data = encode(value)
    again = decode(data)
    assert exact(again) == exact(value)
    assert encode(again) == data
    assert decode(memoryview(data)) is not None or value is None


@given(st.lists(st.one_of(VALUES, PLAIN_JSON), max_size=6))
@settings(max_examples=400)
def test_several_are_decoded_as_each_is(found: list[Any]) -> None:
    data = list(map(encode, found))
    expected = exact(list(map(decode, data)))
    for several in (decode_together(data), decode_plain(data)):
        assert several is None or exact(several) == expected
    cut = [*data, b"\x92\1", b"\2"]  # sound where nothing parts the two
    assert decode_together(cut) is None
    assert decode_plain(cut) is None


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_what_several_may_hold() -> None:
    plain = [{"a": [None, True, 2**53, -(2**53), "é"]}, "x", 1]
    assert decode_plain(list(map(encode, plain))) == plain
    for other in (0.5, b"x", 2**53 + 1, {1: 2}, "\ud800", _nested(9)):
        assert decode_plain([encode(1), encode(other)]) is None
        assert decode_together([encode(1), encode(other)]) in ([1, other], None if other == "\ud800" else [1, other])
    assert decode_together([encode(_nested(255))]) == [_nested(255)]
    whole_time, equal_keys, long_form = b"\xd6\xff\0\0\0\1", b"\x82\xa1a\1\xa1a\1", b"\xcc\1"
    for wrong in (whole_time, b"\x81" + whole_time + b"\1", equal_keys, long_form, b"\x91" * 257 + b"\1", b"", b"\1\1"):
        with pytest.raises(FormatError):
            decode(wrong)
        assert decode_together([b"\1", wrong]) is None
        assert decode_plain([b"\1", wrong]) is None


@given(st.one_of(VALUES, PLAIN_JSON))
@settings(max_examples=400)
def test_fast_path_and_rules_agree(value: Any) -> None:
    assert encode(value) == values._slow(_plain.to_plain(value))
    assert encode(value, census=_plain.survey(value)) == encode(value)


@given(VALUES, VALUES)
def test_different_values_have_different_encodings(a: Any, b: Any) -> None:
    assert (encode(a) == encode(b)) is (exact(a) == exact(b))


@pytest.mark.parametrize(
    "number",
    [
        n * sign + d
        for n in (0, 1, 32, 128, 256, 2**16, 2**32, 2**63, 2**64, 2**71)
        for sign in (1, -1)
        for d in (-1, 0, 1)
    ]
    + [10**30, -(10**5000), 2**2040 - 1, 2**600_000],
    ids=lambda number: f"{number.bit_length()} bits",
)
def test_integers(number: int) -> None:
    data = encode(number)
    assert decode(data) == number
    assert type(decode(data)) is int
    assert decode(encode({number: [number]})) == {number: [number]}
    in_range = -(2**63) <= number < 2**64
    assert (data[0] in (0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8)) is not in_range


def test_map_order_and_types_of_numbers_survive() -> None:
    value = {"b": 1, "a": [1.0, True, -0.0, math.inf, -math.inf, math.nan], 2: {None: b"", (1, ("x", b"y")): ()}}
    again = decode(encode(value))
    assert exact(again) == exact(value)
    assert list(again) == ["b", "a", 2]
    assert next(key for key in again[2] if key) == (1, ("x", b"y"))


def test_nan_keeps_its_bits_and_may_be_a_key() -> None:
    data = bytes.fromhex("82cb7ff800000000000101cb7ff800000000000102")
    assert encode(decode(data)) == data


RAW = """
    c1 c7 cc01 d90161 c403 a2ffff a3eda080 9101ff 92c0 81c0 ca3f800000 d100ff dc0001c0 de0000 c50001ff
"""
REFUSED = {name: name for name in RAW.split()} | {
    "empty": "",
    "timestamp 32": "d6ff00000000",
    "timestamp 64": "d7ff0000000000000000",
    "timestamp in a list": "91d6ff00000001",
    "timestamp as key": "81d6ff00000001c0",
    "another extension": "d40005",
    "another extension, negative": "d48005",
    "big integer that fits": "d70100000000000000ff",
    "big integer 2**64 - 1": "c70901" + "00" + "ff" * 8,
    "big integer -2**63": "d701" + "8000000000000000",
    "big integer with a byte too many": "c70a01" + "0001" + "00" * 8,
    "negative big integer with a byte too many": "c70a01" + "ffff" + "00" * 8,
    "big integer without bytes": "c70001",
    "big integer, fixext length in ext 8": "c71001" + "01" + "00" * 15,
    "surrogate string without one": "d40261",
    "surrogate string without bytes": "c70002",
    "surrogate string with a pair": "c70602eda0bdedb880",
    "surrogate string that is no UTF-8": "d402ff",
    "surrogate string cut short": "d502eda0",
    "surrogate string, overlong": "c70502c080eda080",
    "equal keys": "82a16101a16102",
    "equal keys of other types": "8201c0c3c0",
    "equal keys 0 and -0.0": "8200c0cb8000000000000000c0",
    "map as key": "8180c0",
    "map in an array as key": "819180c0",
    "257 arrays": "91" * 257 + "c0",
    "257 maps": "8101" * 257 + "c0",
    "257 arrays as key": "81" + "91" * 256 + "c0" + "c0",
    "100000 arrays": "91" * 100_000 + "c0",
    "huge array": "ddffffffff",
    "huge map": "dfffffffff",
    "huge string": "dbffffffff",
}


@pytest.mark.parametrize("name", REFUSED)
def test_decoder_refuses(name: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode(bytes.fromhex(REFUSED[name]))
    assert caught.value.reason == "corrupted"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("timestamp 32", "timestamp"),
        ("another extension", "extension type 0"),
        ("big integer that fits", "fits an ordinary one"),
        ("surrogate string without one", "without a lone surrogate"),
        ("surrogate string with a pair", "with a pair in two halves"),
        ("surrogate string that is no UTF-8", "generalized UTF-8"),
        ("equal keys", "equal map keys"),
        ("257 arrays", "deeper than 256"),
        ("100000 arrays", "deeper than 256"),
        ("map as key", "hashable"),
    ],
)
def test_decoder_says_why(name: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode(bytes.fromhex(REFUSED[name]))


@given(st.binary(max_size=40))
@settings(max_examples=400)
def test_decoder_never_raises_anything_else(data: bytes) -> None:
    try:
        value = decode(data)
    except FormatError:
        return
    assert encode(value) == data


@given(VALUES, st.data())
@settings(max_examples=400)
def test_damaged_encodings(value: Any, draw: st.DataObject) -> None:
    data = bytearray(encode(value))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        again = decode(bytes(data))
    except FormatError:
        return
    assert encode(again) == data


def nest(depth: int, kind: str) -> Any:
    value: Any = None
    for level in range(depth):
        which = ("list", "map")[level % 2] if kind == "mixed" else kind
        value = {"k": value} if which == "map" else [value]
    return value


@pytest.mark.parametrize("kind", ["list", "map", "mixed"])
def test_depth(kind: str) -> None:
    value = nest(MAX_DEPTH, kind)
    assert decode(encode(value)) == value
    key = None
    for _ in range(MAX_DEPTH - 1):
        key = (key,)
    assert decode(encode({key: 1})) == {key: 1}
    for bad in (nest(MAX_DEPTH + 1, kind), nest(4000, kind), {(key,): 1}):
        with pytest.raises(ValueEncodingError, match="deeper than 256"):
            encode(bad)
        with pytest.raises(ValueEncodingError, match="deeper than 256"):
            encode_pieces(bad)


@pytest.mark.parametrize("trouble", [None, 2**70, "\ud800", {1, 2}])
def test_a_deep_stack_changes_nothing(trouble: Any) -> None:
    value = trouble
    for level in range(254):
        value = [value] if level % 2 else {"a": value}
    data = encode(value)

    def at(frames: int) -> tuple[bytes, bytes, bytes]:
        if frames:
            return at(frames - 1)
        return encode(value), encode(decode(data)), b"".join(encode_pieces(value))

    # In a thread: how deep the stack of the tests is does not count.
    with ThreadPoolExecutor(1) as pool:
        for frames in range(640, 980, 11):
            assert pool.submit(at, frames).result() == (data, data, data)


def test_two_halves_of_a_pair_are_refused() -> None:
    for value, path in [
        ("\ud83d\ude00", ""),
        ({"a": [2**70, "\ud83d\ude00"]}, "/a/1"),
        ({"\ud83d\ude00": 1}, "/\\ud83d\\ude00"),
    ]:
        for function in (encode, encode_payload, encode_pieces):
            with pytest.raises(ValueEncodingError, match="surrogate pair") as caught:
                function(value)
            assert caught.value.path == path
    with pytest.raises(ValueEncodingError) as caught:
        encode_pieces({"m": [{"r": "x" * 9000}] * 3, "a": [{"c": "\ud83d\ude00"}]})
    assert caught.value.path == "/a/0/c"


# Pieces -------------------------------------------------------------------------------------------------------------


@given(st.one_of(VALUES, PLAIN_JSON), st.sampled_from([1, 60, 700, 3000]))
@settings(max_examples=200)
def test_pieces_are_the_encoding(value: Any, stretch: int) -> None:
    for whole in (
        value,
        {"model": "m", "messages": [value, {"role": "user", "content": "x" * stretch}] * 9, "tools": [value]},
        [{"content": [{"text": "y" * stretch * 5}, value]}, "z" * stretch * 9, value],
        dict.fromkeys(range(100), value),
        {"a": {"b": {"c": {"d": {"e": {"f": {"g": [value] * 80, "h": "x" * stretch}}}}}}},
        ["w" * stretch] * 20,
    ):
        pieces = encode_pieces(whole)
        assert b"".join(pieces) == encode(whole)
        assert all(pieces)
        if sum(map(len, pieces)) < 4096:
            assert len(pieces) == 1


def test_pieces_of_a_request() -> None:
    messages = [{"role": "user", "content": f"{n} " * 1000} for n in range(100)]
    request = {
        "model": "m",
        "temperature": 1.0,
        "messages": messages,
        "tools": [{"name": "t" * 500}] * 10,
        "stop": None,
    }
    pieces = encode_pieces(request)
    assert 100 <= len(pieces) <= 120
    assert set(map(encode, messages)) <= set(pieces)
    longer = encode_pieces({**request, "messages": [*messages, {"role": "tool", "content": "new" * 500}]})
    assert len(set(longer) - set(pieces)) <= 2
    wrapped = encode_pieces({"kind": "model", "request": {"body": request}})
    assert set(map(encode, messages)) <= set(wrapped)
    odd = encode_pieces({**request, "seed": 2**70, "user": "\ud800"})
    assert set(map(encode, messages)) <= set(odd)


def test_large_elements_are_cut_further() -> None:
    parts = [{"type": "text", "text": f"{n}" * 5000} for n in range(20)]
    image = {"type": "image", "source": {"media_type": "image/png", "data": b"\x00\xff" * 50_000}}
    request = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [*parts, image]}]}
    pieces = encode_pieces(request)
    assert b"".join(pieces) == encode(request)
    assert set(map(encode, parts)) <= set(pieces)
    assert encode(image["source"]["data"]) in pieces  # type: ignore[index]


def test_very_many_tiny_elements_come_in_runs() -> None:
    points = [{"x": n} for n in range(5000)]
    pieces = encode_pieces({"points": points})
    assert len(pieces) < 100
    longer = encode_pieces({"points": [*points, {"x": 1}]})
    assert len(set(longer) - set(pieces)) <= 2
    assert b"".join(longer) == encode({"points": [*points, {"x": 1}]})
    assert len(encode_pieces({"names": [f"name {n}" for n in range(5000)]})) < 100


def test_many_small_values_are_not_cut_in_python() -> None:
    assert len(encode_pieces([0.5] * 10_000)) == 1
    assert len(encode_pieces({"embedding": [0.5] * 10_000})) <= 2
    assert len(encode_pieces({n: n for n in range(10_000)})) == 1


# Payloads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number", "data"),
    [
        (ABSENT, 0, b""),
        (None, 1, b"\xc0"),
        ({}, 1, b"\x80"),
        ("", 2, b""),
        ("a\U0001f602", 2, "a\U0001f602".encode()),
        ("\ud800", 1, bytes.fromhex("c70302eda080")),
        (b"", 3, b""),
        (b"\xff", 3, b"\xff"),
        (1, 1, b"\x01"),
        ([b"a"], 1, b"\x91\xc4\x01a"),
    ],
)
def test_payloads(value: Any, number: int, data: bytes) -> None:
    assert encode_payload(value) == (number, data)
    kind, pieces = payload_pieces(value)
    assert (kind, b"".join(pieces)) == (number, data)
    again = decode_payload(number, data)
    assert again == value
    assert type(again) is type(value)
    assert (again is ABSENT) is (value is ABSENT)


@pytest.mark.parametrize(
    ("number", "data"), [(0, b"x"), (2, b"\xff"), (2, b"\xed\xa0\x80"), (1, b""), (4, b""), (-1, b""), (255, b"")]
)
def test_payloads_that_are_refused(number: int, data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_payload(number, data)


def test_absent_is_one_object() -> None:
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT
    assert repr(ABSENT) == "ABSENT"
    assert not ABSENT
    with pytest.raises(ValueEncodingError, match="Absent"):
        encode([ABSENT])
