"""The object table of chapter 02: what becomes of objects, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import pathlib
import uuid
from collections import OrderedDict, UserDict, UserList, UserString, defaultdict, deque, namedtuple
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replaypack import _plain
from replaypack.errors import ValueEncodingError
from replaypack.values import decode, encode, encode_payload, encode_pieces, to_plain

from .value_cases import exact


class Colour(str, enum.Enum):  # noqa: UP042 - the older idiom is the one to test
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.Flag):
    A = 1
    B = 2


class Shape(enum.Enum):
    SQUARE = (1, 2.5)
    NESTED = Level.LOW


class Text(str):
    def __str__(self) -> str:
        return "lie"


class Number(int):
    def __int__(self) -> int:
        return 99


class Real(float):
    pass


class Blob(bytes):
    pass


class Point(NamedTuple):
    x: int
    y: int


Untyped = namedtuple("Untyped", "a b")


@dataclasses.dataclass
class Data:
    name: str
    when: dt.date
    _private: int = 3


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    b: int
    a: Any = None


class Plain(msgspec.Struct):
    x: int
    y: Any = msgspec.UNSET


class Tagged(msgspec.Struct, tag="t", rename="camel", omit_defaults=True):
    first_name: str
    other_name: str = "d"


class Arrayed(msgspec.Struct, tag=True, array_like=True):
    x: int
    y: int = 2


class Model:
    """What pydantic models look like from outside."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "python"
        return self.fields


UTC = dt.timezone.utc  # noqa: UP017 - the same object, spelled as users do

TABLE: list[tuple[Any, Any]] = [
    (Colour.RED, "red"),
    (Level.LOW, 1),
    (Mode.A | Mode.B, 3),
    (Shape.SQUARE, [1, 2.5]),
    (Shape.NESTED, 1),
    (Text("a"), "a"),
    (Number(5), 5),
    (Real(1.5), 1.5),
    (Blob(b"a"), b"a"),
    (bytearray(b"a"), b"a"),
    (memoryview(b"abc")[1:], b"bc"),
    (UserString("u"), "u"),
    ((1, 2), [1, 2]),
    (Point(1, 2), [1, 2]),
    (Untyped(1, [2]), [1, [2]]),
    (deque([1, 2]), [1, 2]),
    (UserList([1]), [1]),
    (OrderedDict([("b", 1), ("a", 2)]), {"b": 1, "a": 2}),
    (defaultdict(list, {"a": [1]}), {"a": [1]}),
    (MappingProxyType({"a": Level.LOW}), {"a": 1}),
    (UserDict({"a": 1}), {"a": 1}),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    ({math.nan}, [math.nan]),
    ({math.nan, "z", 1, (math.inf,)}, ["z", 1, [math.inf], math.nan]),
    (Data("n", dt.date(2024, 2, 29)), {"name": "n", "when": "2024-02-29", "_private": 3}),
    (Slotted(1), {"b": 1, "a": None}),
    (Plain(1), {"x": 1}),
    (Tagged("f"), {"type": "t", "firstName": "f", "otherName": "d"}),
    (Arrayed(1), ["Arrayed", 1, 2]),
    (Model(a=Level.LOW, b=Model(c=[1])), {"a": 1, "b": {"c": [1]}}),
    (dt.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02T03:04:05"),
    (dt.datetime(2024, 1, 2, 3, 4, 5, 6, UTC), "2024-01-02T03:04:05.000006+00:00"),
    (dt.datetime(2024, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-5))), "2024-01-02T00:00:00-05:00"),
    (dt.date(1, 1, 1), "0001-01-01"),
    (dt.time(1, 2, 3, 4), "01:02:03.000004"),
    (dt.timedelta(0), "PT0S"),
    (dt.timedelta(days=1), "P1D"),
    (dt.timedelta(days=1, seconds=3661, microseconds=500), "P1DT3661.0005S"),
    (dt.timedelta(microseconds=-1), "-PT0.000001S"),
    (Decimal("1.10"), "1.10"),
    (Decimal("NaN"), "NaN"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (pathlib.PurePosixPath("/a/b"), "/a/b"),
    (pathlib.PureWindowsPath("a\\b"), "a/b"),
    ({Colour.RED: 1, Level.LOW: 2, dt.date(2024, 1, 1): 3}, {"red": 1, 1: 2, "2024-01-01": 3}),
    ({Point(1, 2): 1, frozenset({4, 3}): 2}, {(1, 2): 1, (3, 4): 2}),
]


@pytest.mark.parametrize(("value", "plain"), TABLE, ids=lambda v: type(v).__name__)
def test_object_table(value: Any, plain: Any) -> None:
    assert exact(to_plain(value)) == exact(plain)
    for wrap in (lambda v: v, lambda v: {"a": [v, None]}):
        assert encode(wrap(value)) == encode(wrap(plain))
        assert exact(decode(encode(wrap(value)))) == exact(wrap(plain))


def test_real_models() -> None:
    pydantic = pytest.importorskip("pydantic")
    attrs = pytest.importorskip("attrs")

    class Inner(pydantic.BaseModel):
        when: dt.datetime
        tags: set[str]

    class Outer(pydantic.BaseModel):
        inner: list[Inner]
        level: Level = Level.LOW
        model_config = pydantic.ConfigDict(extra="allow")

    outer = Outer(inner=[Inner(when=dt.datetime(2024, 1, 1), tags={"b", "a"})], more=(1,))
    plain = {"inner": [{"when": "2024-01-01T00:00:00", "tags": ["a", "b"]}], "level": 1, "more": [1]}
    assert exact(decode(encode({"m": outer}))) == exact({"m": plain})

    @attrs.define
    class Attrs:
        x: int
        y: Any

    assert to_plain([Attrs(1, Attrs(2, None))]) == [{"x": 1, "y": {"x": 2, "y": None}}]
    with pytest.raises(ValueEncodingError) as caught:
        encode({"p": Outer(inner=[], secret=pydantic.SecretStr("s"))})
    assert caught.value.path == "/p/secret"
    assert "**" not in str(caught.value)


def test_equal_keys_after_conversion_are_refused() -> None:
    for value in ({Shape.SQUARE: 2, (1, 2.5): 3}, {Shape.NESTED: 1, 1: 2}, {b"a": 1, Blob2(b"a"): 2}):
        with pytest.raises(ValueEncodingError, match="two map keys"):
            encode({"x": value})


class Blob2(bytes):
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Foreign:
    def __repr__(self) -> str:
        return "secret"


class Broken:
    def model_dump(self, mode: str) -> Any:
        raise RuntimeError("no")


class Endless:
    def model_dump(self, mode: str) -> Any:
        return self


class EndlessMap:
    def model_dump(self, mode: str) -> Any:
        return {"again": EndlessMap()}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Foreign(), ""),
        ({"args": {"session": Foreign()}}, "/args/session"),
        ([0, [Foreign()]], "/1/0"),
        ({"a/b": {"~": object}}, "/a~1b/~0"),
        ({"a": Data("n", Foreign())}, "/a/when"),  # type: ignore[arg-type]
        ({"a": {1, Foreign}}, None),
        ({"a": Model(x=Foreign())}, "/a/x"),
        ({1: Foreign()}, "/1"),
        ({"a": {Foreign(): 1}}, "/a/<Foreign>"),
        ({"a": {Slotted(1): 1}}, "/a/<Slotted>"),
        ([Broken()], "/0"),
        ([Endless()], "/0"),
        ([1j], "/0"),
        ([range(3)], "/0"),
        ([iter([])], "/0"),
        ([len], "/0"),
        ([Model], "/0"),
        ([msgspec.Raw(b"1")], "/0"),
        ([msgspec.msgpack.Ext(1, b"")], "/0"),
        ([...], "/0"),
    ],
)
def test_objects_outside_the_table_are_refused(value: Any, path: str | None) -> None:
    for function in (encode, encode_pieces, encode_payload, to_plain):
        with pytest.raises(ValueEncodingError) as caught:
            function(value)
        assert path is None or caught.value.path == path
        assert caught.value.code == "value.unsupported"
        assert "secret" not in str(caught.value)


def test_objects_without_end_are_refused() -> None:
    ring: list[Any] = [{1, 2}]
    ring.append(ring)
    for value in (EndlessMap(), ring):
        with pytest.raises(ValueEncodingError, match="deeper than 256"):
            encode(value)


def test_conversion_is_a_copy() -> None:
    inner = [1]
    plain = to_plain({"a": inner})
    inner.append(2)
    assert plain == {"a": [1]}


@given(
    st.sets(
        st.one_of(st.integers(), st.text(max_size=3), st.floats(allow_nan=False), st.tuples(st.booleans())), max_size=8
    )
)
@example({1.0, 2, (True,), "a"})
def test_sets_are_in_one_order(elements: set[Any]) -> None:
    shuffled: set[Any] = set()
    for element in reversed(list(elements)):
        shuffled.add(element)
    assert encode(elements) == encode(shuffled) == encode(frozenset(elements))
    assert encode({"s": elements}) == encode({"s": to_plain(elements)})


def test_payloads_of_objects() -> None:
    assert encode_payload(bytearray(b"x")) == (3, b"x")
    assert encode_payload(memoryview(b"xyz")[::2]) == (3, b"xz")
    assert encode_payload(Colour.RED) == (2, b"red")
    assert encode_payload(pathlib.PurePosixPath("a/b")) == (2, b"a/b")
    census = _plain.survey({"a": Colour.RED})
    assert encode_payload(None, census=census) == (1, encode({"a": "red"}))
