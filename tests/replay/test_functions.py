"""Wrapped and decorated functions: one key for one call, whatever way it is written, and signatures that survive."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, make_dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

import replaypack
from replaypack import Archive, ReplayMismatch, ReplaySession
from replaypack.errors import UsageError

made: list[str] = []


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made.clear()
    return Archive(tmp_path)


@replaypack.tool
def search(query: str, limit: int = 5, *, exact: bool = False) -> list[str]:
    """Look it up."""
    made.append(query)
    return [query] * limit


@replaypack.tool(name="fetch_page", ignore=("client",))
async def fetch(url: str, client: Any = None) -> str:
    made.append(url)
    await asyncio.sleep(0)
    return f"page of {url}"


@replaypack.tool
def count(to: int) -> Iterator[int]:
    made.append("count")
    yield from range(to)


@replaypack.tool
async def acount(to: int) -> AsyncIterator[int]:
    made.append("acount")
    for number in range(to):
        yield number


def test_without_a_session_decorated_functions_are_as_they_were(archive: Archive) -> None:
    async def asynchronous() -> list[Any]:
        return [await fetch("u", client=object()), [n async for n in acount(2)]]

    assert search("q", limit=2) == ["q", "q"]
    assert list(count(2)) == [0, 1]
    assert asyncio.run(asynchronous()) == ["page of u", [0, 1]]
    assert made == ["q", "count", "u", "acount"]
    assert search.__name__ == "search"
    assert search.__doc__ == "Look it up."
    assert inspect.signature(search) == inspect.signature(search.__wrapped__)  # type: ignore[attr-defined]
    assert inspect.iscoroutinefunction(fetch)
    assert inspect.isgeneratorfunction(count)


def test_all_four_kinds_of_functions_are_recorded_and_replayed(archive: Archive) -> None:
    async def run() -> list[Any]:
        async with archive.session("run", strict=True):
            return [search("q"), await fetch("u", client=object()), list(count(3)), [n async for n in acount(2)]]

    live = asyncio.run(run())
    assert len(made) == 4
    assert asyncio.run(run()) == live == [["q"] * 5, "page of u", [0, 1, 2], [0, 1]]
    assert len(made) == 4
    assert [r.name for r in archive.open("run").records()] == ["search", "fetch_page", "count", "acount"]


def test_one_call_has_one_key_however_it_is_written(archive: Archive) -> None:
    with archive.session("run", "record"):
        search("q")
    for call in (
        lambda: search("q", 5),
        lambda: search(limit=5, query="q"),
        lambda: search(query="q", exact=False),
    ):
        with archive.session("run", "replay"):
            assert call() == ["q"] * 5
    with archive.session("run", "replay"), pytest.raises(ReplayMismatch):
        search("q", 6)
    assert len(made) == 1
    [record] = archive.open("run").records()
    assert record.request == {"name": "search", "args": {"query": "q", "limit": 5, "exact": False}}


def test_arguments_that_the_function_does_not_take_raise_its_own_error(archive: Archive) -> None:
    with archive.session("run", "record"):
        for arguments in ((), ("q", 1, True), ("q", 1, 2, 3)):
            with pytest.raises(TypeError, match="argument"):
                search(*arguments)  # type: ignore[arg-type, call-arg]
        with pytest.raises(TypeError, match="query"):
            search("q", query="q")  # type: ignore[misc]
        with pytest.raises(TypeError, match="colour"):
            search("q", colour=1)  # type: ignore[call-arg]


def test_star_arguments_are_in_the_identity(archive: Archive) -> None:
    with archive.session("run", "record") as session:

        def odd(a: int, /, *rest: int, b: int = 2, **more: int) -> int:
            return 1

        session.wrap(odd)(1, 2, 3, c=4)
    [record] = archive.open("run").records()
    assert record.request == {"name": "odd", "args": {"a": 1, "rest": [2, 3], "b": 2, "more": {"c": 4}}}


class Shop:
    def __init__(self, city: str) -> None:
        self.city = city

    @replaypack.tool
    def price(self, item: str) -> str:
        return f"{item} in {self.city}"

    @replaypack.tool(identity=lambda self, item: [self.city, item])
    def stock(self, item: str) -> str:
        return f"{item} in {self.city}"

    @classmethod
    @replaypack.tool
    def open(cls, day: str) -> str:
        return day


def test_methods_leave_out_their_object_unless_told_otherwise(archive: Archive) -> None:
    for mode in ("record", "replay"):
        with archive.session("run", mode) as session:
            assert Shop("Bern").price("tea") == "tea in Bern"
            assert Shop("Bern").stock("tea") == "tea in Bern"
            assert Shop("Basel").stock("tea") == "tea in Basel"
            assert Shop.open("monday") == "monday"
            assert session.wrap(Shop("Chur").price.__wrapped__, name="p")(Shop("x"), "y") == "y in x"  # type: ignore[attr-defined]
    assert [r.request for r in archive.open("run").records()][:4] == [
        {"name": "Shop.price", "args": {"item": "tea"}},
        {"name": "Shop.stock", "args": ["Bern", "tea"]},
        {"name": "Shop.stock", "args": ["Basel", "tea"]},
        {"name": "Shop.open", "args": {"day": "monday"}},
    ]


def test_bound_methods_lambdas_and_partials(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        with pytest.raises(UsageError, match="name"):
            session.wrap(lambda x: x)
        with pytest.raises(UsageError, match="name"):
            session.wrap(functools.partial(search, "q"))
        assert session.wrap(lambda x: x, name="same")(3) == 3
        assert session.wrap(functools.partial(max, 3), name="max", identity=lambda *a: a)(4) == 4
        with pytest.raises(UsageError, match="classmethod"):
            session.wrap(Shop.__dict__["open"])
        with pytest.raises(UsageError, match="no parameter"):
            session.wrap(search, ignore=("ctx",))


def test_a_kind_of_its_own(archive: Archive) -> None:
    with archive.session("run", "record") as session:
        session.wrap(lambda prompt: "text", name="m-1", kind="model")("p")
    assert archive.open("run").lookup("model", {"name": "m-1", "args": {"prompt": "p"}}) is not None


def test_a_function_that_changes_its_arguments_keeps_its_key(archive: Archive) -> None:
    @replaypack.tool
    def drain(items: list[int]) -> int:
        total = sum(items)
        items.clear()
        return total

    @replaypack.tool
    def adrain(items: list[int]) -> Iterator[int]:
        while items:
            yield items.pop()

    for mode in ("record", "replay"):
        with archive.session("run", mode):
            assert drain([1, 2]) == 3
            assert list(adrain([1, 2])) == [2, 1]


@dataclass
class Point:
    x: int
    tags: set[str]


def point_at(x: int) -> Point:
    return Point(x, {"a"})


class Struct(msgspec.Struct):
    at: Point


def test_annotated_objects_come_back_as_such(archive: Archive) -> None:
    @replaypack.tool
    def point(x: int) -> Point:
        return Point(x, {"a"})

    @replaypack.tool
    def points() -> list[Point] | None:
        return [Point(1, set())]

    @replaypack.tool
    def structs() -> Iterator[Struct]:
        yield Struct(Point(1, {"c"}))

    @replaypack.tool
    def plain() -> tuple[int, str]:
        return 1, "a"

    async def run() -> list[Any]:
        async with archive.session("run"):
            return [point(1), points(), list(structs()), plain()]

    expected = [
        Point(1, {"a"}),
        [Point(1, set())],
        [Struct(Point(1, {"c"}))],
        [1, "a"],
    ]
    assert asyncio.run(run()) == expected
    assert asyncio.run(run()) == expected


def test_what_a_partial_holds_is_in_the_key(archive: Archive) -> None:
    def fetch(region: str, path: str, *, client: object = None) -> str:
        return f"{region}{path}"

    async def afetch(region: str, path: str) -> str:
        return f"{region}{path}"

    def agent(session: ReplaySession, regions: str) -> list[str]:
        found = []
        for region in regions:
            call = functools.partial(functools.partial(fetch, region), client=object())
            found.append(session.wrap(call, name="fetch", ignore=("client",))("/x"))
            found.append(asyncio.run(session.wrap(functools.partial(afetch, path="/y"), name="afetch")(region)))
        return found

    with archive.session("run") as session:
        live = agent(session, "ab")
    assert session.recording.record(0).request == {"name": "fetch", "args": {"region": "a", "path": "/x"}}
    with archive.session("run", strict=True) as session:
        b = agent(session, "b")
        assert agent(session, "a") + b == live


def test_annotated_pydantic_models_come_back_as_such(archive: Archive) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", name=(str, ...), points=(list[Point], ...))

    async def ask() -> Any:
        return model(name="m", points=[Point(1, {"b"})])

    ask.__annotations__["return"] = model

    async def run() -> Any:
        async with archive.session("run") as session:
            return await session.wrap(ask)()

    assert asyncio.run(run()) == asyncio.run(run()) == model(name="m", points=[Point(1, {"b"})])


def test_what_a_partial_returns_is_what_its_function_does(archive: Archive) -> None:
    for _ in range(2):
        with archive.session("run") as session:
            assert session.wrap(functools.partial(point_at, 3), name="point")() == Point(3, {"a"})


def test_models_come_back_whatever_names_and_types_they_want_of_the_outside(archive: Archive) -> None:
    pydantic = pytest.importorskip("pydantic")

    line = pydantic.create_model("Line", unit_price=(Decimal, pydantic.Field(alias="unitPrice")))
    on = pydantic.Field(validation_alias=pydantic.AliasChoices("on", "at"))
    strict = pydantic.ConfigDict(strict=True, extra="forbid")
    model = pydantic.create_model("Order", __config__=strict, day=(date, on), lines=(tuple[line, ...], ...))
    order = model(on=date(2026, 1, 31), lines=(line(unitPrice=Decimal("1.10")),))
    for _ in range(2):
        with archive.session("run") as session:
            assert session.tool("order", {}, lambda: order, returns=model) == order
            assert session.tool("orders", {}, lambda: [order], returns=list[model]) == [order]


def test_dataclasses_with_paths_and_models_come_back(archive: Archive) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", name=(str, ...))

    file_type = make_dataclass("File", [("path", Path), ("pure", PurePosixPath), ("model", model)])
    file = file_type(Path("a") / "b", PurePosixPath("/c"), model(name="m"))
    for _ in range(2):
        with archive.session("run") as session:
            assert session.tool("file", {}, lambda: file, returns=file_type) == file


def test_what_no_type_is_made_of_says_what_to_do(archive: Archive) -> None:
    root = make_dataclass("Root", [("value", complex)])
    with archive.session("run") as session, pytest.raises(UsageError, match="makes a complex") as caught:
        session.tool("root", {}, lambda: {"value": 1}, returns=root)
    assert "function of the plain value" in str(caught.value.hint)


def test_call_and_acall_go_through_the_current_session(archive: Archive) -> None:
    async def answer() -> int:
        made.append("answer")
        return 2

    async def run() -> list[int]:
        return [
            replaypack.call("vote", {"id": 1}, lambda: made.append("call") or 1),  # type: ignore[func-returns-value]
            await replaypack.acall("vote", {"id": 2}, answer, name="v"),
        ]

    async def inside() -> list[int]:
        async with archive.session("run"):
            return await run()

    assert asyncio.run(run()) == [1, 2]
    assert asyncio.run(inside()) == asyncio.run(inside()) == [1, 2]
    assert made == ["call", "answer"] * 2
