"""Canonical JSON and keys: the published examples, each extension, every refusal, and the two paths against a model."""

from __future__ import annotations

import enum
import json
import math
import re
import struct
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replaypack import _plain, canonical
from replaypack._plain import survey
from replaypack.canonical import canonical_json, key_digest, key_digests, key_of_canonical
from replaypack.errors import CanonicalizationError
from replaypack.values import decode_plain, encode

from .value_cases import CANONICAL, CLOSE, FINITE, INTS, PLAIN_JSON, TEXT, meaning

PAIRS = [
    # name, a, b, whether they share a key
    ("temperature 0 and 0.0", {"temperature": 0}, {"temperature": 0.0}, True),
    ("1 and 1.0", 1, 1.0, True),
    ("-0.0 and 0", -0.0, 0, True),
    ("-0.0 and 0.0", -0.0, 0.0, True),
    ("map order", {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ("tuple and list", (1, (2,)), [1, [2]], True),
    ("2**68 as int and float", 2**68, 2.0**68, True),
    ("10**21 as int and float", 10**21, 1e21, True),
    ("bytes and bytearray", b"\xff", bytearray(b"\xff"), True),
    ("set order", {"b", "a", "c"}, {"c", "b", "a"}, True),
    ("true and 1", True, 1, False),
    ("false and 0", False, 0, False),
    ("1 and '1'", 1, "1", False),
    ("null and missing", {"a": None}, {}, False),
    ("null and false", None, False, False),
    ("0.1 + 0.2 and 0.3", 0.1 + 0.2, 0.3, False),
    ("NFC and NFD", "\u00e9", "e\u0301", False),
    ("bytes ff and fe", b"\xff", b"\xfe", False),
    ("bytes and their base64", b"\xff", "/w==", False),
    ("bytes and a map like their form", b"\xff", {"$bytes": "/w=="}, False),
    ("a map like the form and the form of that", {"$bytes": "/w=="}, {"$$bytes": "/w=="}, False),
    ("10**30 and 10**30 + 1", 10**30, 10**30 + 1, False),
    ("2**53 and 2**53 + 1", 2**53, 2**53 + 1, False),
    ("2**68 as float and the digits it prints", 2.0**68, 295147905179352830000, False),
    ("lone surrogate and its escape", "\ud800", "\\ud800", False),
    ("empty map and empty array", {}, [], False),
]

# RFC 8785 appendix B.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


def slow(value: Any) -> bytes:
    return canonical._slow(_plain.to_plain(value, CanonicalizationError))


def same_both_ways(value: Any) -> bytes:
    fast = canonical_json(value)
    assert fast == slow(value)
    return fast


@pytest.mark.parametrize(("name", "a", "b", "same"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_awkward_pairs(name: str, a: Any, b: Any, same: bool) -> None:
    for wrap in (lambda v: v, lambda v: [v], lambda v: {"x": {"y": v}}, lambda v: {"m": [{"v": v}] * 40}):
        assert (key_digest("tool", wrap(a)) == key_digest("tool", wrap(b))) is same
        assert (slow(wrap(a)) == slow(wrap(b))) is same


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_rfc_8785_appendix_b(bits: str, text: str) -> None:
    number = struct.unpack(">d", bytes.fromhex(bits))[0]
    assert canonical_json(number) == text.encode()
    assert canonical_json({"a": [number] * 70}) == b'{"a":[%b]}' % b",".join([text.encode()] * 70)


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff8000000000000", "7ff0000000000000", "fff0000000000000"])
def test_not_finite_is_refused_with_its_path(bits: str) -> None:
    number = struct.unpack(">d", bytes.fromhex(bits))[0]
    for value, path in [
        (number, ""),
        ({"a/b": [0, {"~": number}]}, "/a~1b/1/~0"),
        ({"messages": [{"x": 1.5}] * 50, "t": {"u": number}}, "/t/u"),
    ]:
        with pytest.raises(CanonicalizationError) as caught:
            canonical_json(value)
        assert caught.value.path == path
        assert caught.value.code == "canonical.unsupported"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (10**21, "1e+21"),
        (10**20, "100000000000000000000"),
        (2**60, "1152921504606847000"),
        (2**60 + 1, "1152921504606846977e0"),
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740993e0"),
        (2**53 + 2, "9007199254740994"),
        (-(2**53) - 1, "-9007199254740993e0"),
        (2**68, "295147905179352830000"),
        (295147905179352830000, "295147905179352830000e0"),
        (10**30, "1000000000000000000000000000000e0"),
        (10**30 + 1, "1000000000000000000000000000001e0"),
        (2**1023, "8.98846567431158e+307"),
        (10**400, "1" + "0" * 400 + "e0"),
        (-(10**400), "-1" + "0" * 400 + "e0"),
    ],
)
def test_integers_beyond_53_bits(number: int, text: str) -> None:
    assert same_both_ways(number) == text.encode()
    assert same_both_ways({"a": [number, 1]}) == b'{"a":[%b,1]}' % text.encode()


def test_integers_beyond_the_digits_that_python_converts() -> None:
    for number in (10**5000, 10**5000 + 7, -(10**9999), 10**4300 - 1, 3**20000):
        text = canonical_json(number)
        assert text.endswith(b"e0")
        digits = text[:-2].lstrip(b"-")
        value = 0
        for start in range(0, len(digits), 1000):
            part = digits[start : start + 1000]
            value = value * 10 ** len(part) + int(part)
        assert value == abs(number)
        assert not digits.startswith(b"0")


@given(FINITE)
@settings(max_examples=800)
def test_floats_print_as_ecmascript(number: float) -> None:
    text = same_both_ways(number).decode()
    assert canonical_json([number]) == f"[{text}]".encode()
    assert float(text) == number
    if number == 0:
        assert text == "0"
        return
    # Number::toString of ECMA-262, from the shortest digits: s * 10**(n - k), 10**(k-1) <= s < 10**k.
    _, digit_tuple, exponent = Decimal(repr(abs(number))).as_tuple()
    digits = "".join(map(str, digit_tuple)).lstrip("0")
    stripped = digits.rstrip("0")
    n = len(digits) + int(exponent)
    k = len(stripped)
    body = text.removeprefix("-")
    assert text.startswith("-") == (number < 0)
    if k <= n <= 21:
        assert body == stripped + "0" * (n - k)
    elif 0 < n <= 21:
        assert body == stripped[:n] + "." + stripped[n:]
    elif -6 < n <= 0:
        assert body == "0." + "0" * -n + stripped
    else:
        mantissa = stripped if k == 1 else stripped[0] + "." + stripped[1:]
        assert body == f"{mantissa}e{'+' if n > 0 else '-'}{abs(n - 1)}"


@given(st.lists(st.one_of(FINITE, st.floats(1e-5, 1e17), st.floats(-1e3, 1e3)), min_size=1, max_size=30))
@settings(max_examples=500)
def test_floats_that_the_census_passes_print_alike(numbers: list[float]) -> None:
    for number in numbers:
        if _plain._prints_alike([number]):
            assert canonical._encode(number) == canonical._float_text(number).encode()
    assert _plain._prints_alike(numbers) == all(_plain._prints_alike([number]) for number in numbers)


@given(INTS)
def test_integers_print_the_value(number: int) -> None:
    text = same_both_ways(number).decode()
    double = float(number) if abs(number) < 2**1024 - 2**970 else math.inf
    if double == number:
        assert text == canonical_json(double).decode()
        assert float(text) == number
    else:
        assert text == f"{number}e0"


@given(TEXT)
def test_strings_are_escaped_as_rfc_8785_says(text: str) -> None:
    encoded = same_both_ways(text).decode()
    assert json.loads(encoded) == text
    body = encoded[1:-1]
    escapes = re.findall(r"\\(?:u[0-9a-f]{4}|.)", body)
    for escape in escapes:
        assert re.fullmatch(r'\\(["\\bfnrt]|u00[01][0-9a-f]|ud[89a-f][0-9a-f]{2})', escape)
        assert escape not in (r"\u0008", r"\u0009", r"\u000a", r"\u000c", r"\u000d")
    assert not re.search("[\x00-\x1f]", body)


def test_every_control_character() -> None:
    text = "".join(map(chr, range(0x21))) + '"\\/\x7f\x80\u2028\ufeff\U0001f602'
    expected = (
        r'"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f\u0010\u0011\u0012\u0013\u0014'
        r"\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f "
        r"\"\\/" + '\x7f\x80\u2028\ufeff\U0001f602"'
    )
    assert same_both_ways(text) == expected.encode()


def test_lone_surrogates_are_escaped() -> None:
    assert same_both_ways({"\ud800\n": "a\udfff\U0001f602"}) == '{"\\ud800\\n":"a\\udfff\U0001f602"}'.encode()
    assert same_both_ways("\ude00\ud83d") == rb'"\ude00\ud83d"'  # low before high is no pair


def test_two_halves_of_a_pair_are_refused() -> None:
    for value, path in [
        ("\ud83d\ude00", ""),
        ({"a": ["x\ud83d\ude00"]}, "/a/0"),
        ({"\ud83d\ude00": 1}, "/\\ud83d\\ude00"),
    ]:
        with pytest.raises(CanonicalizationError, match="surrogate pair") as caught:
            canonical_json(value)
        assert caught.value.path == path


def test_keys_are_sorted_by_utf_16_code_units() -> None:
    value = {"\ufb33": 1, "\U0001f602": 2, "\u20ac": 3, "a": 4, "": 5}
    assert list(json.loads(same_both_ways(value))) == ["", "a", "\u20ac", "\U0001f602", "\ufb33"]
    nested = {"x": [value] * 80}
    assert canonical_json(nested) == b'{"x":[%b]}' % b",".join([slow(value)] * 80)


@given(st.dictionaries(TEXT, st.just(0), max_size=12))
def test_key_order(value: dict[str, int]) -> None:
    keys = list(json.loads(same_both_ways({**value, "x": 0, "y": 0})))
    assert keys == sorted(keys, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


def test_bytes_marker_and_its_escape() -> None:
    assert same_both_ways(b"") == b'{"$bytes":""}'
    assert same_both_ways(b"\xff\x00") == b'{"$bytes":"/wA="}'
    assert same_both_ways(memoryview(b"\xff\x00")) == b'{"$bytes":"/wA="}'
    assert same_both_ways({"$bytes": 1}) == b'{"$$bytes":1}'
    assert same_both_ways({"$$bytes": b""}) == b'{"$$$bytes":{"$bytes":""}}'
    assert same_both_ways({"$bytes": 1, "a": 2}) == b'{"$bytes":1,"a":2}'
    assert same_both_ways({"$bytes\n": 1}) == b'{"$bytes\\n":1}'
    assert same_both_ways({"bytes": 1}) == b'{"bytes":1}'
    assert same_both_ways({"x$bytes": 1}) == b'{"x$bytes":1}'
    assert same_both_ways([{"$bytes": n} for n in range(99)]).count(b"$$bytes") == 99


def test_sets_are_sorted_by_canonical_bytes() -> None:
    assert (
        canonical_json({10, 9, 1.5, "a", None, b"x", (2, 1), True - 1})
        == b'["a",0,1.5,10,9,[2,1],null,{"$bytes":"eA=="}]'
    )
    assert canonical_json({"s": frozenset({frozenset({2, 1}), frozenset({3})})}) == b'{"s":[[1,2],[3]]}'
    assert key_digest("tool", {1.0, 2}) == key_digest("tool", {1, 2.0})


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    pass


@pytest.mark.parametrize("key", [1, True, None, 1.5, b"a", ("a",), Level.LOW, frozenset({"a"})])
def test_keys_that_are_no_strings_are_refused(key: Any) -> None:
    for value, path in [({key: 1}, ""), ({"a": [{}, {"b": 1, key: 2}]}, "/a/1")]:
        with pytest.raises(CanonicalizationError) as caught:
            canonical_json(value)
        assert caught.value.path == path


def test_keys_that_become_strings() -> None:
    assert same_both_ways({Colour.RED: 1, Text("a"): 2}) == b'{"a":2,"red":1}'
    with pytest.raises(CanonicalizationError, match="two map keys") as caught:
        canonical_json({"x": [_Pairs([(Colour.RED, 1), (Text("red"), 2)])]})
    assert caught.value.path == "/x/0/red"


class _Pairs(OrderedDict[Any, Any]):
    """A mapping that yields what no dict would hold."""

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        super().__init__()
        self.pairs = pairs

    def items(self) -> Any:
        return self.pairs


class Foreign:
    pass


def test_objects_outside_the_table_are_refused() -> None:
    for value, path in [
        (Foreign(), ""),
        ({"args": {"session": Foreign()}}, "/args/session"),
        ([1, Foreign], "/1"),
        (1j, ""),
    ]:
        with pytest.raises(CanonicalizationError, match="<class") as caught:
            canonical_json(value)
        assert caught.value.path == path


@pytest.mark.parametrize("kind", ["list", "map", "tuple", "mixed"])
def test_depth(kind: str) -> None:
    def nest(depth: int) -> Any:
        value: Any = 1
        for level in range(depth):
            which = ("list", "map", "tuple")[level % 3] if kind == "mixed" else kind
            value = {"a": value} if which == "map" else [value] if which == "list" else (value,)
        return value

    assert same_both_ways(nest(_plain.MAX_DEPTH)).count(b"1") == 1
    for depth in (257, 300, 5000):
        with pytest.raises(CanonicalizationError, match="deeper than 256") as caught:
            canonical_json(nest(depth))
        assert caught.value.path.count("/") == _plain.MAX_DEPTH


def test_cycles_are_refused_in_bounded_time() -> None:
    ring: list[Any] = []
    ring.extend([ring] * 3000)
    loop: dict[str, Any] = {"a": 1}
    loop["b"] = [loop, loop]
    odd: list[Any] = [Foreign]
    odd[0] = odd
    odd.append({1, 2})
    for value in (ring, loop, odd):
        with pytest.raises(CanonicalizationError, match="contains itself"):
            canonical_json(value)


def call_at_depth(frames: int, function: Any) -> Any:
    """What a function returns behind so many calls, in a thread: how deep the stack of the tests is does not count."""

    def call(left: int) -> Any:
        return function() if left == 0 else call(left - 1)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, frames).result()


def test_a_deep_stack_changes_nothing() -> None:
    deep: Any = [1.0, b"x", {3, 4}]
    for _ in range(250):
        deep = [deep]
    fast: Any = 1
    for _ in range(250):
        fast = {"a": fast}
    shallow = {"a": [1.0, {"b": {"c": 2.0}}]}
    for value in (deep, fast, shallow):
        expected = canonical_json(value)
        for frames in range(740, 985, 13):
            assert call_at_depth(frames, lambda value=value: canonical_json(value)) == expected


@given(st.one_of(CANONICAL, PLAIN_JSON))
@settings(max_examples=300)
def test_fast_path_and_rules_agree(value: Any) -> None:
    expected = slow(value)
    assert canonical_json(value) == expected
    padded = {"m": [value] * 3, "pad": [[n] for n in range(70)]}  # large enough for the passes in C
    assert canonical_json(padded) == slow(padded)


@given(st.lists(st.one_of(CANONICAL, PLAIN_JSON, CLOSE), max_size=6))
@settings(max_examples=300)
@example([{"a": 2**53}, {"a": 2**53 + 1}])
@example([{"\ue000": 1, "\U0001f600": 2}])
@example([{"$bytes": "x"}])
@example([["x"] * 70, {"a": {"b": 1.0}}])
def test_keys_of_several_are_those_of_each(identities: list[Any]) -> None:
    kinds = [f"kind {at % 2}" for at in range(len(identities))]
    expected = list(map(key_digest, kinds, identities))
    assert key_digests(kinds, identities) == expected
    plain = decode_plain(list(map(encode, identities)))
    if plain is not None:
        assert key_digests(kinds, plain, plain=True) == expected


def test_keys_of_several_are_refused_as_those_of_each() -> None:
    with pytest.raises(CanonicalizationError, match="NaN"):
        key_digests(["t", "t"], [1, {"a": math.nan}])


@given(st.one_of(CANONICAL, PLAIN_JSON))
def test_output_is_json_that_canonicalizes_to_itself(value: Any) -> None:
    text = canonical_json(value)
    if b"$" in text or re.search(rb"\de0[^0-9]|\de0\Z", text):
        return  # the extensions are no JSON that reads back to the same
    assert canonical_json(json.loads(text, parse_int=float)) == text  # a reader whose numbers are doubles


@given(CLOSE, CLOSE)
@settings(max_examples=1200)
@example({"$bytes": ""}, b"")
@example({"$$bytes": ""}, {"$bytes": ""})
def test_equal_bytes_mean_equal_values(a: Any, b: Any) -> None:
    assert (canonical_json(a) == canonical_json(b)) is (meaning(a) == meaning(b))


@given(CANONICAL, CANONICAL)
def test_equal_bytes_mean_equal_values_of_all_kinds(a: Any, b: Any) -> None:
    assert (canonical_json(a) == canonical_json(b)) is (meaning(a) == meaning(b))


def test_key_is_blake3_of_kind_and_identity() -> None:
    identity = {"name": "search", "arguments": {"q": "x"}}
    text = b'["tool",{"arguments":{"q":"x"},"name":"search"}]'
    assert key_digest("tool", identity) == blake3(text).digest()
    assert key_of_canonical("tool", canonical_json(identity)) == blake3(text).digest()
    assert key_digest("tool", identity) == blake3(canonical_json(["tool", identity])).digest()
    assert key_digest("tool", identity) != key_digest("model", identity)
    census = _plain.survey(identity)
    assert key_digest("tool", identity, census=census) == key_digest("tool", identity)
    assert key_digest("$bytes", identity) == blake3(canonical_json(["$bytes", identity])).digest()
    assert key_digest('a"\ud800', 1) == blake3(rb'["a\"\ud800",1]').digest()


@given(st.one_of(CANONICAL, PLAIN_JSON, CLOSE))
def test_keys_do_not_depend_on_the_way_they_are_made(identity: Any) -> None:
    assert key_digest("tool", identity) == key_of_canonical("tool", slow(identity))


class Name(enum.StrEnum):
    A = "a"


@pytest.mark.parametrize(
    "identity",
    [{Name.A: 1, "b": 2}, [Name.A], {"a": (1, None)}, {2, 1}, {"$bytes": "YQ=="}, [2**53 + 2], [1.0], list(range(99))],
)
def test_what_looks_simple_is_keyed_by_the_rules(identity: Any) -> None:
    assert key_digest("tool", identity) == blake3(b'["tool",%b]' % canonical_json(identity)).digest()


def test_names_that_were_seen_before_give_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    class Text(str):
        __slots__ = ()

    monkeypatch.setattr(canonical, "_plain_names", set())
    monkeypatch.setattr(canonical, "_MANY_NAMES", 10)
    names: list[Any] = [
        "a",
        Text("a"),
        enum.StrEnum("E", ["a"]).a,
        "b" * 100,
        "é",
        "$bytes",
        "$a",
        *map(str, range(30)),
    ]
    for _ in range(3):
        for name in names:
            for identity in (
                {name: 1, "args": {"a": [{"z": None, name: "x"}]}},
                {"a": "x", "args": {name: 1, "z": None}},
            ):
                assert key_digest("tool", identity) == key_of_canonical("tool", canonical_json(identity))
        assert len(canonical._plain_names) < 14
    for name in (1, b"a", None, ("a",)):
        with pytest.raises(CanonicalizationError):
            key_digest("tool", {"a": {name: 1}})


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        2**53 - 1,
        2**53,
        2**53 + 1,
        -(2**53) - 1,
        2**80,
        0.5,
        1.0,
        "é",
        "\ud800",
        b"x",
        [],
        [1],
        {},
        {"b": 2.0},
    ],
)
def test_keys_of_flat_calls_are_those_of_their_canonical_json(value: Any) -> None:
    for identity in ({"name": "f", "args": {"a": value, "b": "x"}}, {"name": "f", "args": value}, {"name": value}):
        for _ in range(2):  # the names are new, and known
            key = key_of_canonical("tool", canonical_json(identity))
            assert key_digest("tool", identity) == key == key_digest("tool", identity, census=survey(identity))


def test_long_flat_calls_have_the_same_keys() -> None:
    identity = {"name": "f", "args": {f"a{number}": number for number in range(200)}}
    for _ in range(2):
        assert key_digest("tool", identity) == key_of_canonical("tool", canonical_json(identity))
