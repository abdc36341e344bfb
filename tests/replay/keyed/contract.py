"""What every keyed store does, wherever it keeps its entries. Inherited by the tests of each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

from replaypack import ReplayEntry, ReplayKey, ReplayMissError, ReplayStore
from replaypack.errors import ReplayValueError

#: Makes a store with these pairs registered, one after another.
Make = Callable[..., ReplayStore]


def key(question: str = "q", **fields: Any) -> ReplayKey:
    return ReplayKey(question_id=question, **fields)


def entry(trace: str, **fields: Any) -> ReplayEntry:
    return ReplayEntry(raw_trace=trace, **fields)


def trace(found: ReplayEntry | None) -> str | None:
    return None if found is None else found.raw_trace


def register(store: ReplayStore, pairs: Iterable[tuple[ReplayKey, ReplayEntry]]) -> ReplayStore:
    for at, what in pairs:
        store.register(at, what)
    return store


SCENARIO = {"scenario_id": "s", "scenario_node": "ask"}


class StoreContract:
    def test_question_mode_and_scenario_mode_lie_in_one_store(self, make: Make) -> None:
        store = make([(key("q"), entry("question")), (key("q", **SCENARIO), entry("turn"))])
        assert trace(store.lookup(question_id="q")) == "question"
        # In a scenario the question is information only.
        assert trace(store.lookup(question_id="another", **SCENARIO)) == "turn"
        assert store.lookup(question_id="q", scenario_id="s", scenario_node="other") is None
        assert store.lookup(question_id="q", scenario_id="t", scenario_node="ask") is None

    def test_a_scenario_without_a_node_is_one_with_an_empty_one(self, make: Make) -> None:
        store = make([(key(scenario_id="s"), entry("none"))])
        assert trace(store.lookup(question_id="q", scenario_id="s", scenario_node="")) == "none"
        assert trace(store.lookup(question_id="q", scenario_id="s")) == "none"

    def test_the_ladder_goes_by_model_then_visit_then_replicate(self, make: Make) -> None:
        rungs = list(product(("m", None), (0, None), (3, None)))
        pairs = [
            (key(answering_model_id=model, visit_index=visit, replicate=replicate), entry(str(number)))
            for number, (model, visit, replicate) in enumerate(rungs)
        ]
        for first in range(8):
            # Registered in the wrong order: the most specific of those that are left answers.
            store = make(reversed(pairs[first:]))
            found = store.lookup(question_id="q", answering_model_id="m", visit_index=0, replicate=3)
            assert trace(found) == str(first)

    @pytest.mark.parametrize(("axis", "value"), [("answering_model_id", "m"), ("visit_index", 0), ("replicate", 0)])
    def test_an_axis_that_is_none_in_the_request_only_tries_none(self, make: Make, axis: str, value: Any) -> None:
        store = make([(key(**{axis: value}), entry("specific"))])
        assert store.lookup(question_id="q") is None
        assert trace(store.lookup(question_id="q", **{axis: value})) == "specific"

    def test_a_wildcard_answers_every_value(self, make: Make) -> None:
        store = make([(key(**SCENARIO), entry("any"))])
        for model, visit, replicate in product(("a", "b", None), (0, 7, None), (1, None)):
            found = store.lookup(
                question_id="q", answering_model_id=model, visit_index=visit, replicate=replicate, **SCENARIO
            )
            assert trace(found) == "any"

    def test_register_overwrites_with_a_warning(self, make: Make, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            store = make([(key("a"), entry("1")), (key("b"), entry("2"))])
            assert not caplog.records
            store = make([(key("a"), entry("1")), (key("b"), entry("2")), (key("a"), entry("3"))])
        assert len(caplog.records) == 1
        assert "overwritten" in caplog.text
        assert trace(store.lookup(question_id="a")) == "3"
        assert [(at.question_id, what.raw_trace) for at, what in store.entries] == [("b", "2"), ("a", "3")]

    def test_a_turn_of_another_question_at_the_same_place_stays_among_the_entries(self, make: Make) -> None:
        store = make([(key("a", **SCENARIO), entry("1")), (key("b", **SCENARIO), entry("2"))])
        assert trace(store.lookup(question_id="a", **SCENARIO)) == "2"
        assert [at.question_id for at, _ in store.entries] == ["a", "b"]

    def test_entries_are_a_sequence_in_order_of_registration(self, make: Make) -> None:
        pairs = [(key(f"q{n}", replicate=n), entry(str(n), agent_metrics={"n": n})) for n in range(20)]
        store = make([(key("q3", replicate=3), entry("old")), *pairs])
        assert len(store.entries) == 20
        assert list(store.entries) == pairs
        assert store.entries[0] == pairs[0]
        assert store.entries[-1] == pairs[-1]
        assert [store.entries[n] for n in range(20)] == pairs
        assert store.entries[3:9:2] == pairs[3:9:2]
        with pytest.raises(IndexError):
            store.entries[20]

    def test_an_empty_store(self, make: Make) -> None:
        store = make([])
        assert len(store.entries) == 0
        assert store.entries == []
        assert store.lookup(question_id="q") is None
        assert not store.has_any_for(question_id="q")

    def test_has_any_for_asks_the_outer_key_alone(self, make: Make) -> None:
        store = make(
            [
                (key("q", answering_model_id="m", visit_index=4), entry("1")),
                (key("x", replicate=1, **SCENARIO), entry("2")),
            ]
        )
        assert store.has_any_for(question_id="q")
        assert not store.has_any_for(question_id="x")
        assert store.has_any_for(question_id="any", **SCENARIO)
        assert not store.has_any_for(question_id="q", scenario_id="s", scenario_node="no")

    def test_a_strict_miss_raises_with_the_key_and_with_what_there_is(self, make: Make) -> None:
        store = make([(key(answering_model_id=f"m{n}", visit_index=n), entry("x")) for n in range(9)])
        store.miss_policy = "strict"
        with pytest.raises(ReplayMissError) as caught:
            store.lookup(question_id="q", answering_model_id="m0", visit_index=5)
        assert caught.value.key == key(answering_model_id="m0", visit_index=5)
        assert len(caught.value.registered) == 5
        assert "answering_model_id='m1', visit_index=1" in str(caught.value) or "…" in str(caught.value)
        with pytest.raises(ReplayMissError, match="nothing is registered for this question"):
            store.lookup(question_id="nope")
        with pytest.raises(LookupError):
            store.lookup(question_id="nope", scenario_id="s")

    def test_fall_through_misses_return_none(self, make: Make) -> None:
        assert make([]).miss_policy == "fall_through"
        with pytest.raises(ReplayValueError, match="miss_policy"):
            make([]).miss_policy = "loud"  # type: ignore[assignment]

    def test_a_lookup_refuses_what_no_key_can_have(self, make: Make) -> None:
        store = make([(key(visit_index=1), entry("x"))])
        with pytest.raises(ReplayValueError, match="visit_index"):
            store.lookup(question_id="q", visit_index=True)
        with pytest.raises(ValueError, match="question_id"):
            store.lookup(question_id=7)  # type: ignore[arg-type]

    def test_empty_values_are_kept_apart_from_absent_ones(self, make: Make) -> None:
        full = entry(
            "",
            trace_messages=[],
            parsed_answer_fields={},
            verify_result=False,
            usage_metadata={},
            agent_metrics={"none": None, "empty": {}},
            captured_model_id="",
            captured_at="2026-04-08T12:00:00Z",
        )
        store = make([(key("full"), full), (key("bare"), entry("x"))])
        assert store.lookup(question_id="full") == full
        assert store.lookup(question_id="bare") == entry("x")

    def test_keys_of_like_values_are_different_keys(self, make: Make) -> None:
        odd = ["null", "None", "", "é", "e\u0301", '"', "[1]", "q\n", " q"]
        store = make([(key(text, answering_model_id=text), entry(text)) for text in odd])
        for text in odd:
            assert trace(store.lookup(question_id=text, answering_model_id=text)) == text
        assert store.lookup(question_id="null") is None

    def test_many_threads_look_up_and_register(self, make: Make) -> None:
        store = make([(key(f"q{n}"), entry(str(n))) for n in range(50)])
        wrong: list[Any] = []

        def look(offset: int) -> None:
            try:
                for n in range(200):
                    asked = (n * 7 + offset) % 50
                    if trace(store.lookup(question_id=f"q{asked}")) != str(asked):
                        wrong.append(asked)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=look, args=(offset,)) for offset in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_keys_and_entries_of_another_library_are_taken(self, make: Make) -> None:
        pydantic = pytest.importorskip("pydantic")
        key_type = pydantic.create_model("ReplayKey", question_id=(str, ...), replicate=(int | None, None))
        entry_type = pydantic.create_model("ReplayEntry", raw_trace=(str, ...))
        store = make([(key_type(question_id="q", replicate=2), entry_type(raw_trace="x"))])
        assert trace(store.lookup(question_id="q", replicate=2)) == "x"
