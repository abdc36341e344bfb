"""The keyed store in memory."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from replaypack import ReplayStore
from replaypack.errors import ReplayValueError
from replaypack.replay.keyed import question_id_of

from .contract import SCENARIO, Make, StoreContract, entry, key, register, trace


class TestInMemory(StoreContract):
    @pytest.fixture
    def make(self) -> Make:
        return lambda pairs: register(ReplayStore(), pairs)


def test_entries_given_to_the_constructor_are_indexed_and_all_kept() -> None:
    pairs = [(key("a"), entry("1")), (key("a"), entry("2")), (key(**SCENARIO), entry("3"))]
    store = ReplayStore(miss_policy="strict", entries=pairs)
    assert list(store.entries) == pairs
    assert trace(store.lookup(question_id="a")) == "2"
    store.register(key("a"), entry("4"))
    assert [trace(what) for _, what in store.entries] == ["3", "4"]
    with pytest.raises(ReplayValueError, match="miss_policy is"):
        ReplayStore(miss_policy="never")  # type: ignore[arg-type]


def test_entries_are_changed_by_register_alone() -> None:
    store = ReplayStore(entries=[(key("a"), entry("1"))])
    before = store.entries
    with pytest.raises(AttributeError):
        before.append((key("b"), entry("2")))  # type: ignore[attr-defined]
    store.register(key("b"), entry("2"))
    assert (len(before), len(store.entries)) == (1, 2)
    assert store.entries is store.entries
    assert store.entries != [(key("a"), entry("1"))]
    assert repr(before) == repr([(key("a"), entry("1"))])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))])
def test_stores_are_copied_and_pickled(copied: Callable[[ReplayStore], ReplayStore]) -> None:
    store = ReplayStore(miss_policy="strict", entries=[(key("a"), entry("1")), (key("a"), entry("2"))])
    other = copied(store)
    assert (other.miss_policy, other.entries) == (store.miss_policy, store.entries)
    other.register(key("b"), entry("3"))
    assert trace(other.lookup(question_id="a")) == "2"
    assert not store.has_any_for(question_id="b")


TEXT = "What is X, in short?"
MD5 = hashlib.md5(TEXT.encode()).hexdigest()


class Benchmark:
    def get_question_ids(self) -> list[str]:
        return ["id-1", "id-2", "id-3"]

    def get_question(self, question_id: str) -> dict[str, Any]:
        return {"question": {"id-1": TEXT, "id-2": "Unasked?", "id-3": ""}[question_id]}


class Manager:
    """As Karenina's trace manager answers."""

    def get_trace_with_metrics(self, md5: str) -> tuple[str | None, dict[str, Any] | None]:
        return ("X is X", {"iterations": 2}) if md5 == MD5 else (None, None)


@pytest.mark.parametrize(
    "traces",
    [
        lambda: {TEXT: ("X is X", {"iterations": 2})},
        lambda: {MD5: ("X is X", {"iterations": 2})},
        lambda: {"id-1": ("X is X", {"iterations": 2})},
        Manager,
        lambda: SimpleNamespace(_trace_manager=Manager()),
    ],
)
def test_from_manual_traces(traces: Callable[[], Any]) -> None:
    store = ReplayStore.from_manual_traces(traces(), Benchmark())
    assert store.miss_policy == "strict"
    [(at, what)] = store.entries
    assert at == key(question_id_of(TEXT))
    assert what == entry("X is X", agent_metrics={"iterations": 2}, captured_model_id="manual")
    assert trace(store.lookup(question_id=question_id_of(TEXT), answering_model_id="any")) == "X is X"


def test_from_manual_traces_of_text_alone_and_of_nothing() -> None:
    cached = SimpleNamespace(_questions_cache={"id-1": None}, get_question=Benchmark().get_question)
    store = ReplayStore.from_manual_traces({TEXT: "plain"}, cached, miss_policy="fall_through")
    assert store.entries[0][1].agent_metrics is None
    with pytest.raises(ReplayValueError, match="manual traces"):
        ReplayStore.from_manual_traces(object(), Benchmark())
    with pytest.raises(ReplayValueError, match="get_question_ids"):
        ReplayStore.from_manual_traces({}, object())


def test_the_id_of_a_question_is_karenina_s() -> None:
    assert question_id_of("What is X?") == "urn:uuid:question-what-is-x-" + hashlib.md5(b"What is X?").hexdigest()[:8]
    assert question_id_of(TEXT).startswith("urn:uuid:question-what-is-x-in-short-")
    assert len(question_id_of("x" * 500)) == len("urn:uuid:question-") + 50 + 9
