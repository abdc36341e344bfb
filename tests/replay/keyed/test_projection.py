"""Projecting entries of questions onto the nodes of scenarios."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from replaypack import Archive, ProjectionError, ReplayStore, ScenarioReplayBuilder
from replaypack.errors import ReplayValueError, UsageError
from replaypack.replay.keyed import ArchivedReplayStore, OrphanEntry, UnmatchedTarget, model_id_of, question_id_of
from replaypack.storage import MemoryStorage

from .contract import entry, key, trace


def node(question: str, override: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        question=SimpleNamespace(question=question),
        model_override=None if override is None else SimpleNamespace(answering_model=override),
    )


class Benchmark:
    """Scenario s1 asks X, s2 asks Y, s3 asks X of another model and again at a second node."""

    def __init__(self) -> None:
        self.scenarios = {
            name: SimpleNamespace(name=name, nodes=nodes)
            for name, nodes in {
                "s1": {"ask": node("X?")},
                "s2": {"ask": node("Y?")},
                "s3": {"ask": node("X?", model("other")), "again": node("X?")},
            }.items()
        }

    def get_scenarios(self) -> Iterable[Any]:
        return self.scenarios.values()

    def get_scenario(self, name: str) -> Any:
        return self.scenarios[name]


def model(name: str) -> SimpleNamespace:
    return SimpleNamespace(interface="langchain", model_name=name, mcp_urls_dict=None)


CONFIG = SimpleNamespace(answering_models=[model("gpt")])
GPT, OTHER = "langchain:gpt", "langchain:other"
X, Y = question_id_of("X?"), question_id_of("Y?")


def qa(*entries: tuple[str, str | None, str]) -> ReplayStore:
    return ReplayStore(
        entries=[(key(question, answering_model_id=name), entry(text)) for question, name, text in entries]
    )


def builder(**options: Any) -> ScenarioReplayBuilder:
    return ScenarioReplayBuilder(Benchmark(), config=CONFIG, **options)


def test_build_makes_entries_of_scenarios_for_any_visit_and_replicate() -> None:
    made = builder().add_qa(qa((X, GPT, "x"), (Y, GPT, "y")), target_nodes=["ask"], scenarios=["s1", "s2"])
    store = made.build(strict=True)
    assert store.miss_policy == "strict"
    assert [at for at, _ in store.entries] == [
        key(X, scenario_id="s1", scenario_node="ask", answering_model_id=GPT),
        key(Y, scenario_id="s2", scenario_node="ask", answering_model_id=GPT),
    ]
    for replicate in (None, 1, 42):
        found = store.lookup(
            question_id=X,
            scenario_id="s1",
            scenario_node="ask",
            answering_model_id=GPT,
            visit_index=3,
            replicate=replicate,
        )
        assert trace(found) == "x"
    assert builder(miss_policy="fall_through").build().miss_policy == "fall_through"
    assert made.build() is not made.build()


def test_all_scenarios_and_the_model_that_a_node_names() -> None:
    report = builder().add_qa(qa((X, GPT, "x"), (X, OTHER, "o"), (Y, GPT, "y")), target_nodes=["ask"]).validate()
    assert report.matched == 3
    assert [(at.scenario_id, at.answering_model_id) for at in report.projected_keys] == [
        ("s1", GPT),
        ("s2", GPT),
        ("s3", OTHER),
    ]
    assert report.unmatched_targets == report.orphan_qa_entries == report.duplicate_targets == []


def test_unmatched_targets_say_why() -> None:
    report = (
        builder().add_qa(qa((X, GPT, "x")), target_nodes=["ask", "nope"], scenarios=["s1", "s2", "gone"]).validate()
    )
    none = {"question_id": None, "answering_model_id": None}
    assert report.unmatched_targets == [
        UnmatchedTarget(scenario_id="s1", node_id="nope", reason="missing_node", **none),
        UnmatchedTarget(scenario_id="s2", node_id="ask", reason="no_qa_entry", question_id=Y, answering_model_id=GPT),
        UnmatchedTarget(scenario_id="s2", node_id="nope", reason="missing_node", **none),
        UnmatchedTarget(scenario_id="gone", node_id="ask", reason="missing_scenario", **none),
        UnmatchedTarget(scenario_id="gone", node_id="nope", reason="missing_scenario", **none),
    ]
    assert report.matched == 1


def test_orphan_entries_say_why() -> None:
    store = qa((X, GPT, "x"), (X, "langchain:wrong", "w"), ("urn:unasked", GPT, "u"))
    report = builder().add_qa(store, target_nodes=["ask"], scenarios=["s1"]).validate()
    assert report.orphan_qa_entries == [
        OrphanEntry(question_id=X, answering_model_id="langchain:wrong", reason="model_id_never_requested"),
        OrphanEntry(question_id="urn:unasked", answering_model_id=GPT, reason="no_target_scenario"),
    ]


def test_a_wildcard_that_answered_is_no_orphan_and_stores_do_not_mix() -> None:
    made = builder().add_qa(qa((X, None, "x")), target_nodes=["ask"], scenarios=["s1"])
    made.add_qa(qa((Y, GPT, "y")), target_nodes=["ask"], scenarios=["s2"])
    report = made.validate()
    assert report.orphan_qa_entries == []
    assert report.projected_keys[0].answering_model_id == GPT


def test_duplicate_targets_and_the_last_projection_wins(caplog: pytest.LogCaptureFixture) -> None:
    made = builder()
    for text in ("first", "last"):
        made.add_qa(qa((X, GPT, text)), target_nodes=["ask"], scenarios=["s1"])
    assert made.validate().duplicate_targets == [("s1", "ask")]
    with pytest.raises(ProjectionError, match="more than once: s1/ask") as caught:
        made.build(strict=True)
    assert caught.value.report == made.validate()
    store = made.build()
    assert "projection report" in caplog.text
    [(_, what)] = store.entries
    assert what.raw_trace == "last"


def test_strict_build_raises_with_the_report(caplog: pytest.LogCaptureFixture) -> None:
    made = builder().add_qa(qa(("urn:unasked", GPT, "x")), target_nodes=["ask"], scenarios=["s1"])
    with pytest.raises(ProjectionError, match=r"1 unmatched targets: s1/ask \(no_qa_entry\)") as caught:
        made.build(strict=True)
    assert [t.reason for t in caught.value.report.unmatched_targets] == ["no_qa_entry"]  # type: ignore[attr-defined]
    assert not caplog.records
    assert list(made.build(strict=False).entries) == []
    assert "unmatched" in caplog.text


def test_validate_changes_nothing() -> None:
    store = qa((X, GPT, "x"), ("urn:unasked", None, "u"))
    store.miss_policy = "strict"
    made = builder().add_qa(store, target_nodes=["ask"])
    assert made.validate() == made.validate()
    assert store.miss_policy == "strict"
    assert len(store.entries) == 2


def test_add_qa_refuses_integer_replicates_at_once() -> None:
    made = builder()
    store = ReplayStore(entries=[(key(X), entry("x")), (key(X, replicate=1), entry("r"))])
    with pytest.raises(ReplayValueError, match="single replicates") as caught:
        made.add_qa(store, target_nodes=["ask"])
    assert "replicate_selector" in str(caught.value)
    assert made.build().entries == []


def test_add_qa_refuses_what_makes_no_sense(caplog: pytest.LogCaptureFixture) -> None:
    made = builder()
    with pytest.raises(ReplayValueError, match="entries of scenarios"):
        made.add_qa(ReplayStore(entries=[(key(scenario_id="s"), entry("x"))]), target_nodes=["ask"])
    for options in ({"target_nodes": []}, {"target_nodes": "ask"}, {"target_nodes": ["ask"], "scenarios": []}):
        with pytest.raises(ReplayValueError, match="list of names"):
            made.add_qa(qa(), **options)  # type: ignore[arg-type]
    with pytest.raises(ReplayValueError, match="answering_models"):
        made.add_qa(qa(), target_nodes=["ask"], config=SimpleNamespace(answering_models=[]))
    with pytest.raises(TypeError, match="qa_store"):
        made.add_qa(None, target_nodes=["ask"])  # type: ignore[arg-type]
    for benchmark, config in ((None, CONFIG), (Benchmark(), None)):
        with pytest.raises(UsageError):
            ScenarioReplayBuilder(benchmark, config=config)  # type: ignore[arg-type]
    with pytest.raises(ReplayValueError, match="miss_policy"):
        builder(miss_policy="loud")
    assert not caplog.records
    report = made.add_qa(qa((X, GPT, "x")), target_nodes=["ask", "ask"], scenarios=["s1"]).validate()
    assert report.matched == 1
    assert "twice in target_nodes" in caplog.text


def test_an_empty_builder_warns(caplog: pytest.LogCaptureFixture) -> None:
    assert builder().build().entries == []
    assert "empty builder" in caplog.text


def test_a_config_of_its_own_is_looked_at_when_it_is_given() -> None:
    own = SimpleNamespace(answering_models=[model("mcp")])
    made = builder(miss_policy="fall_through").add_qa(
        qa((Y, "langchain:mcp", "y")), target_nodes=["ask"], scenarios=["s2"], config=own
    )
    own.answering_models[0] = model("changed")
    made.add_qa(qa((X, GPT, "x")), target_nodes=["ask"], scenarios=["s1"])
    assert [at.answering_model_id for at, _ in made.build(strict=True).entries] == ["langchain:mcp", GPT]


def test_models_and_questions_are_named_by_functions_that_are_given() -> None:
    made = builder(model_id=lambda m: m.model_name.upper(), question_id=str.lower)
    made.add_qa(qa(("x?", "GPT", "x")), target_nodes=["ask"], scenarios=["s1"])
    assert made.build(strict=True).entries[0][0].question_id == "x?"


def test_models_are_named_as_karenina_names_them() -> None:
    assert model_id_of(model("gpt")) == GPT
    assert model_id_of(SimpleNamespace(interface="i", model_name=None, mcp_urls_dict={"b": 1, "a": 2})) == (
        "i:unknown +[a, b]"
    )
    assert model_id_of({"interface": "i", "model_name": "m", "tools": []}) == "i:m"
    assert model_id_of(SimpleNamespace(display_string="shown")) == model_id_of("shown") == "shown"
    with pytest.raises(ReplayValueError, match="model_id="):
        model_id_of(object())


def test_a_store_in_an_archive_is_projected() -> None:
    archive = Archive("", storage=MemoryStorage())
    qa((X, GPT, "x"), (Y, None, "y"), ("urn:unasked", GPT, "u")).save_to(archive, "qa")
    made = builder().add_qa(
        ArchivedReplayStore(archive=archive, name="qa"), target_nodes=["ask"], scenarios=["s1", "s2"]
    )
    assert [what.raw_trace for _, what in made.build(strict=True).entries] == ["x", "y"]
    assert [orphan.question_id for orphan in made.validate().orphan_qa_entries] == ["urn:unasked"]


def test_what_was_built_saves_and_loads(tmp_path: Any) -> None:
    store = builder().add_qa(qa((X, GPT, "x"), (Y, GPT, "y")), target_nodes=["ask"]).build()
    store.save(tmp_path / "projection.json")
    assert ReplayStore.load(tmp_path / "projection.json").entries == store.entries
