"""Captured fields and messages as objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from replaypack import ReplayEntry, ReplayHydrationError
from replaypack.errors import ReplayValueError
from replaypack.replay.keyed import hydrate_answer, hydrate_trace_messages


class StructAnswer(msgspec.Struct):
    city: str
    rank: int = 0


@dataclass
class DataclassAnswer:
    city: str
    rank: int = 0


class DictAnswer(TypedDict):
    city: str


def pydantic_answer() -> Any:
    return pytest.importorskip("pydantic").create_model("Answer", city=(str, ...), rank=(int, 0))


@pytest.fixture(params=[lambda: StructAnswer, lambda: DataclassAnswer, pydantic_answer])
def answer(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_fields_become_an_answer(answer: Any) -> None:
    found = hydrate_answer(ReplayEntry(raw_trace="", parsed_answer_fields={"city": "Paris", "rank": 2}), answer)
    assert type(found) is answer
    assert (found.city, found.rank) == ("Paris", 2)
    assert hydrate_answer({"city": "Rome"}, answer) == answer(city="Rome")


def test_fields_that_do_not_fit_fall_through_with_a_warning(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert hydrate_answer({"city": ["no"]}, answer) is None
    assert "do not fit" in caplog.text


def test_fields_that_do_not_fit_raise_where_strict(answer: Any) -> None:
    with pytest.raises(ReplayHydrationError, match="do not fit") as caught:
        hydrate_answer({"town": "Paris"}, answer, policy="strict")
    assert caught.value.captured_fields == {"town": "Paris"}
    assert isinstance(caught.value.inner, ValueError)
    assert caught.value.__cause__ is caught.value.inner


def test_nothing_captured_is_nothing_by_either_policy(answer: Any) -> None:
    for policy in ("fall_through", "strict"):
        assert hydrate_answer(ReplayEntry(raw_trace="x"), answer, policy=policy) is None  # type: ignore[arg-type]
        assert hydrate_answer(None, answer, policy=policy) is None  # type: ignore[arg-type]
    with pytest.raises(ReplayValueError, match="policy"):
        hydrate_answer({}, answer, policy="loud")  # type: ignore[arg-type]


def test_empty_fields_are_fields() -> None:
    assert hydrate_answer({}, DictAnswer, policy="fall_through") is None
    with pytest.raises(ReplayHydrationError):
        hydrate_answer(ReplayEntry(raw_trace="", parsed_answer_fields={}), StructAnswer, policy="strict")
    assert hydrate_answer({"city": "Paris"}, DictAnswer) == {"city": "Paris"}


def test_messages_become_what_the_factory_makes() -> None:
    raw = [{"city": "Paris"}, {"city": "Rome"}]
    assert hydrate_trace_messages(raw, lambda m: StructAnswer(**m)) == [StructAnswer("Paris"), StructAnswer("Rome")]
    assert hydrate_trace_messages([], StructAnswer) == []
    assert hydrate_trace_messages(None, StructAnswer) is None
    with pytest.raises(ReplayHydrationError, match="trace message 1") as caught:
        hydrate_trace_messages([*raw[:1], {"town": 1}], lambda m: StructAnswer(**m))
    assert caught.value.captured_fields == {"town": 1}
