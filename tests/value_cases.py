"""Strategies and the notation of values that the tests of values, keys and vectors share."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

# Joined surrogates would be refused, so that strings draw either high or low ones.
_BASE = st.characters(exclude_categories=("Cs",))
TEXT = st.one_of(
    st.text(st.sampled_from('ab$/~"\\\n\x00\x1f\x7f\u20ac\ud7ff\ue000\ufb33\uffff\U00010000\U0001f602'), max_size=6),
    st.text(_BASE, max_size=8),
    st.text(st.sampled_from("a\ud800\udbff\U0001f602"), max_size=3),
    st.text(st.sampled_from("a\udc00\udfff"), max_size=3),
)
KEYS = st.one_of(
    st.sampled_from(["$bytes", "$$bytes", "bytes", "$", "role", "content", "", "\uffff", "\U00010000"]), TEXT
)
INTS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([0, 1, 2**53, 2**63, 2**64, 2**68, 10**21, 10**30]).flatmap(
        lambda n: st.integers(-2, 2).map(lambda d: n + d)
    ),
    st.integers(-(2**200), 2**200),
    st.integers(0, 1100).map(lambda n: -(2**n)),
)
FLOATS = st.one_of(
    st.floats(),
    st.sampled_from(
        [0.0, -0.0, 1.0, 0.7, 1e-4, 9.9e-5, 1e-5, 1e-6, 1e-7, 1e15, 1e16, 1e21, 2.0**53, 2.0**68, 0.1 + 0.2]
    ),
)
FINITE = FLOATS.filter(math.isfinite)
BINARY = st.binary(max_size=6)


def nested(scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[Any], leaves: int = 20) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=5),
            st.dictionaries(keys, inner, max_size=5),
            st.lists(inner, max_size=3).map(tuple),
        ),
        max_leaves=leaves,
    )


_ODD_SCALARS = st.one_of(st.none(), st.booleans(), INTS, FLOATS, TEXT, BINARY)
ODD_KEYS = st.one_of(_ODD_SCALARS, st.tuples(_ODD_SCALARS, st.tuples(_ODD_SCALARS)))
VALUES = nested(_ODD_SCALARS, st.one_of(KEYS, ODD_KEYS))
"""Anything that has a structured encoding."""

CANONICAL = nested(st.one_of(st.none(), st.booleans(), INTS, FINITE, TEXT, BINARY), KEYS)
"""Anything that has a canonical form."""

PLAIN_JSON = nested(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(1e-4, 1e9), st.text(_BASE, max_size=9)),
    st.one_of(st.sampled_from(["role", "content", "name"]), st.text(_BASE, max_size=4)),
)
"""What the fast path takes, mostly."""

CLOSE = nested(
    st.sampled_from(
        [None, True, False, 0, 0.0, -0.0, 1, 1.0, "1", "", b"", b"\xff", 2**68, 2.0**68, 295147905179352830000]
    ),
    st.sampled_from(["a", "$bytes", "$$bytes"]),
    leaves=4,
)
"""Few values, so that two of them are often equal or nearly so."""


def meaning(value: Any) -> Any:
    """What a key distinguishes, written down without any text form: an independent model of chapter 03."""
    if value is None or isinstance(value, bool):
        return value is None, value
    if isinstance(value, (int, float)):
        return "number", Fraction(value)
    if isinstance(value, (str, bytes)):
        return type(value).__name__, value
    if isinstance(value, dict):
        return "map", frozenset((key, meaning(child)) for key, child in value.items())
    return "array", tuple(meaning(child) for child in value)


def exact(value: Any) -> Any:
    """Equal for two values only if they are the same to the bit, type by type, map order included."""
    if isinstance(value, float):
        return "float", struct.pack(">d", value)
    if isinstance(value, dict):
        return "map", [(exact(key), exact(child)) for key, child in value.items()]
    if isinstance(value, (list, tuple)):
        return "array", [exact(child) for child in value]
    return type(value).__name__, value


def from_notation(note: Any) -> Any:
    """The value that a vector describes (``spec/vectors/README.md``)."""
    if not isinstance(note, dict):
        return note
    ((kind, body),) = note.items()
    if kind == "int":
        return int(body)
    if kind == "float":
        return struct.unpack(">d", bytes.fromhex(body))[0]
    if kind == "bytes":
        return bytes.fromhex(body)
    if kind == "code_points":
        return "".join(chr(int(point, 16)) for point in body)
    if kind == "array":
        return [from_notation(child) for child in body]
    if kind == "map":
        return {_as_key(from_notation(key)): from_notation(child) for key, child in body}
    if kind == "set":
        return {_as_key(from_notation(child)) for child in body}
    if kind == "nested":
        value = None
        for _ in range(body):
            value = [value]
        return value
    raise AssertionError(f"unknown notation {kind}")


def _as_key(key: Any) -> Any:
    return tuple(_as_key(part) for part in key) if isinstance(key, list) else key
