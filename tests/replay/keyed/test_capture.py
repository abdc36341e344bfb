"""Capturing results and scenarios: as objects, and as the mappings of an exported file."""

from __future__ import annotations

import itertools
import json
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import pytest

from replaypack import Archive, ReplayStore
from replaypack.errors import ReplayValueError
from replaypack.replay.keyed import (
    ArchivedReplayStore,
    capture_from_result_set,
    capture_from_scenario_result,
    question_id_of,
)
from replaypack.storage import MemoryStorage

from .contract import trace
from .corpus import karenina_file


class Category(StrEnum):
    CONTENT = "content"
    TIMEOUT = "timeout"


def as_object(value: Any) -> Any:
    if value is None:
        return None
    return SimpleNamespace(**{k: as_object(v) if k in SHAPED else v for k, v in value.items()})


SHAPED = ("metadata", "template", "answering", "failure")


def result(question: str = "q", raw: str = "x", model: str = "m", **more: Any) -> dict[str, Any]:
    metadata = {
        "question_id": question,
        "scenario_id": None,
        "scenario_node": None,
        "scenario_turn": None,
        "failure": None,
        "answering": {"display_string": model},
        "completed_at": "2026-04-08T12:00:00Z",
    }
    template = {"raw_llm_response": raw, "parsed_llm_response": {"v": 1}, "trace_messages": [], "verify_result": True}
    for name, value in more.items():
        (template if name in (*template, "usage_metadata", "agent_metrics") else metadata)[name] = value
    return {"metadata": metadata, "template": template}


@pytest.fixture(params=["objects", "mappings", "list"])
def results(request: pytest.FixtureRequest) -> Any:
    def make(*items: dict[str, Any]) -> Any:
        if request.param == "objects":
            return SimpleNamespace(results=[as_object(item) for item in items])
        return {"results": list(items)} if request.param == "mappings" else list(items)

    return make


def keys(store: ReplayStore) -> list[tuple[Any, ...]]:
    return [(*at.outer[1:], *at.rung) for at, _ in store.entries]


def test_capture_takes_every_field(results: Any) -> None:
    usage = {"answer_generation": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}
    store = capture_from_result_set(results(result(usage_metadata=usage, agent_metrics={"iterations": 2})))
    assert store.miss_policy == "fall_through"
    [(at, what)] = store.entries
    assert at.model_dump(exclude_none=True) == {"question_id": "q", "answering_model_id": "m"}
    assert what.model_dump() == {
        "raw_trace": "x",
        "trace_messages": [],
        "parsed_answer_fields": {"v": 1},
        "verify_result": True,
        "usage_metadata": {**usage, "total": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}},
        "agent_metrics": {"iterations": 2},
        "captured_model_id": "m",
        "captured_at": "2026-04-08T12:00:00Z",
    }


def test_include_parsed_and_include_agent_traces(results: Any) -> None:
    [(_, what)] = capture_from_result_set(
        results(result(trace_messages=[{"role": "assistant"}])), include_parsed=False, include_agent_traces=False
    ).entries
    assert what.parsed_answer_fields is None
    assert what.trace_messages is None


def test_empty_fields_and_messages_are_kept(results: Any) -> None:
    [(_, what)] = capture_from_result_set(results(result(parsed_llm_response={}, raw_llm_response=None))).entries
    assert what.parsed_answer_fields == {}
    assert what.trace_messages == []
    assert what.raw_trace == ""


def test_only_successful_keeps_content_failures(results: Any) -> None:
    failed = [
        result("ok"),
        result("content", failure={"category": Category.CONTENT}),
        result("timeout", failure={"category": Category.TIMEOUT}),
        result("unknown", failure={"reason": "?"}),
    ]
    assert [at.question_id for at, _ in capture_from_result_set(results(*failed)).entries] == ["ok", "content"]
    assert len(capture_from_result_set(results(*failed), only_successful=False).entries) == 4


def test_answering_model_ids(results: Any) -> None:
    both = results(result(raw="a", model="gpt"), result(raw="b", model="claude"))
    store = capture_from_result_set(both, answering_model_ids={"gpt"})
    assert keys(store) == [("q", "gpt", None, None)]
    with pytest.raises(ReplayValueError, match="answering_model_ids"):
        capture_from_result_set(both, answering_model_ids="gpt")


def test_filters_may_come_from_an_iterator(results: Any) -> None:
    given: Any = iter(["gpt"])
    both = results(*(result(question, model=model) for question in "ab" for model in ("claude", "gpt")))
    store = capture_from_result_set(both, answering_model_ids=given)
    assert keys(store) == [("a", "gpt", None, None), ("b", "gpt", None, None)]


def test_scenario_ids_leave_questions_alone(results: Any) -> None:
    mixed = results(
        result("q"),
        result("a", scenario_id="s", scenario_node="n", scenario_turn=0),
        result("b", scenario_id="t", scenario_node="n", scenario_turn=0),
    )
    store = capture_from_result_set(mixed, scenario_ids={"t"})
    # Turns of scenarios come first, in the order of their names.
    assert keys(store) == [("t", "n", "m", 0, None), ("q", "m", None, None)]


def test_visits_are_counted_by_scenario_node_and_replicate(results: Any) -> None:
    turns = [
        result(
            raw=f"r{replicate}-t{turn}", scenario_id="s", scenario_node=node, scenario_turn=turn, replicate=replicate
        )
        for replicate, (turn, node) in itertools.product((2, 1, None), ((3, "n"), (0, "n"), (1, "other"), (2, "n")))
    ]
    store = capture_from_result_set(results(*turns))
    assert len(store.entries) == 12
    for replicate in (1, 2, None):
        found = [
            trace(
                store.lookup(
                    question_id="q",
                    scenario_id="s",
                    scenario_node="n",
                    answering_model_id="m",
                    visit_index=visit,
                    replicate=replicate,
                )
            )
            for visit in range(4)
        ]
        wildcard = [f"rNone-t{turn}" for turn in (0, 2, 3)]
        assert found == [*([f"r{replicate}-t{turn}" for turn in (0, 2, 3)] if replicate else wildcard), None]


@pytest.mark.parametrize(("selector", "chosen"), [("first", 1), ("last", 3)])
def test_replicate_selector_takes_one_number_of_the_whole_set(results: Any, selector: Any, chosen: int) -> None:
    several = [result(f"q{n % 2}", raw=f"r{n}", replicate=n) for n in (2, 1, 3)] + [result("none", raw="none")]
    store = capture_from_result_set(results(*several), replicate_selector=selector)
    assert [(at.question_id, at.replicate, what.raw_trace) for at, what in store.entries] == [
        ("q1", None, f"r{chosen}")
    ]
    assert keys(store) == [("q1", "m", None, None)]


def test_replicate_selector_all_and_without_numbers(results: Any) -> None:
    several = [result(raw=f"r{n}", replicate=n) for n in (3, 1, 2)]
    assert [at.replicate for at, _ in capture_from_result_set(results(*several)).entries] == [1, 2, 3]
    without = results(result("a"), result("b"))
    assert len(capture_from_result_set(without, replicate_selector="first").entries) == 2
    with pytest.raises(ReplayValueError, match="replicate_selector"):
        capture_from_result_set(without, replicate_selector="middle")  # type: ignore[arg-type]


def test_usage_totals_are_recomputed_from_the_stages(results: Any) -> None:
    usage = {
        "answer_generation": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "model": "m"},
        "parsing": {"input_tokens": 3, "output_tokens": None, "total_tokens": 3},
        "note": "no stage",
        "total": {"input_tokens": 999, "output_tokens": 999, "total_tokens": 999, "cost": 0.5},
    }
    [(_, what)] = capture_from_result_set(results(result(usage_metadata=usage))).entries
    assert what.usage_metadata == {
        **usage,
        "total": {"input_tokens": 13, "output_tokens": 5, "total_tokens": 18, "cost": 0.5},
    }
    for kept in ({}, {"total": {"input_tokens": 7}}, None):
        [(_, what)] = capture_from_result_set(results(result(usage_metadata=kept))).entries
        assert what.usage_metadata == kept


def test_models_without_a_display_string_and_results_without_a_model(results: Any) -> None:
    named = {"interface": "langchain", "model_name": "gpt", "tools": ["a", "b"]}
    store = capture_from_result_set(results(result(answering=named), result(answering=None)))
    assert [at.answering_model_id for at, _ in store.entries] == ["langchain:gpt +[a, b]", "unknown"]


class Message:
    def to_dict(self) -> dict[str, Any]:
        return {"role": "tool"}


def test_messages_become_dictionaries(results: Any) -> None:
    [(_, what)] = capture_from_result_set(results(result(trace_messages=[Message(), {"role": "user"}]))).entries
    assert what.trace_messages == [{"role": "tool"}, {"role": "user"}]
    with pytest.raises(ReplayValueError, match="to_dict"):
        capture_from_result_set(results(result(trace_messages=[object()])))


def turn(node: str, raw: str, **more: Any) -> SimpleNamespace:
    fields = {"parsed_fields": {"ok": True}, "trace_messages": [Message()], "question_text": f"Q {node}?"}
    return SimpleNamespace(node_id=node, raw_response=raw, **{**fields, **more})


def test_capture_from_scenario_result() -> None:
    history = [turn("ask", "1"), turn("retry", "2", verify_result=False), turn("ask", "3", parsed_fields={})]
    scenario = SimpleNamespace(scenario_id="s", history=history)
    store = capture_from_scenario_result(scenario, answering_model_id="m", replicate=5)
    assert keys(store) == [("s", "ask", "m", 0, 5), ("s", "retry", "m", 0, 5), ("s", "ask", "m", 1, 5)]
    assert [at.question_id for at, _ in store.entries] == [question_id_of(f"Q {n}?") for n in ("ask", "retry", "ask")]
    first, second, third = (what for _, what in store.entries)
    assert (first.raw_trace, first.trace_messages, first.captured_model_id) == ("1", [{"role": "tool"}], "m")
    assert first.captured_at is not None
    assert second.verify_result is False
    assert third.parsed_answer_fields == {}


def test_capture_from_scenario_result_options() -> None:
    scenario = {"scenario_id": None, "history": [turn("ask", "1"), turn("retry", "2")]}
    with pytest.raises(ReplayValueError, match="names no scenario"):
        capture_from_scenario_result(scenario, answering_model_id="m")
    store = capture_from_scenario_result(
        scenario,
        answering_model_id="m",
        scenario_id="given",
        nodes={"retry"},
        include_parsed=False,
        include_agent_traces=False,
    )
    assert keys(store) == [("given", "retry", "m", 0, None)]
    [(_, what)] = store.entries
    assert what.parsed_answer_fields is None
    assert what.trace_messages is None
    with pytest.raises(ReplayValueError, match="nodes"):
        capture_from_scenario_result(scenario, answering_model_id="m", scenario_id="s", nodes="retry")


def test_capture_goes_into_a_store_that_is_given(results: Any) -> None:
    archive = Archive("", storage=MemoryStorage())
    with ArchivedReplayStore(archive=archive, name="r", mode="record") as store:
        assert capture_from_result_set(results(result("a"), result("b")), store=store) is store
    assert keys(ArchivedReplayStore(archive=archive, name="r")) == [("a", "m", None, None), ("b", "m", None, None)]


@pytest.mark.corpus
def test_an_exported_run_of_karenina_is_captured() -> None:
    run = json.loads(karenina_file("results_export_full.json"))
    assert len(run["results"]) == 2
    [(at, what)] = capture_from_result_set(run).entries
    assert at.model_dump(exclude_none=True) == {
        "question_id": "q-unicode",
        "answering_model_id": "langchain:gpt-4o",
    }
    assert what.raw_trace == "raw response for q-unicode"
    assert what.captured_at == "2026-04-21T12:00:00+00:00"
    assert len(capture_from_result_set(run, only_successful=False).entries) == 2
