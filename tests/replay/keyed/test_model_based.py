"""The store in an archive, the store in memory, and ten lines that say what both should do."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaypack import Archive, ReplayEntry, ReplayKey, ReplayStore
from replaypack.replay.keyed import ArchivedReplayStore
from replaypack.replay.keyed import archived as module
from replaypack.storage import MemoryStorage

KEYS = st.builds(
    ReplayKey,
    question_id=st.sampled_from(["q", "r"]),
    scenario_id=st.sampled_from([None, "s"]),
    scenario_node=st.sampled_from([None, "", "n"]),
    answering_model_id=st.sampled_from([None, "m", "n"]),
    visit_index=st.sampled_from([None, 0, 1]),
    replicate=st.sampled_from([None, 0, 1]),
)
ENTRIES = st.builds(
    ReplayEntry,
    raw_trace=st.text(max_size=5) | st.just("x" * 5000),
    trace_messages=st.none() | st.lists(st.dictionaries(st.text(max_size=2), st.none() | st.integers()), max_size=2),
    parsed_answer_fields=st.none() | st.dictionaries(st.text(max_size=2), st.booleans(), max_size=2),
    verify_result=st.sampled_from([None, True, False]),
)
STEPS = st.lists(st.tuples(st.sampled_from(["register", "look", "publish"]), KEYS, ENTRIES), max_size=40)


class Naive:
    """The pairs in a list, looked through from the end for each rung."""

    def __init__(self) -> None:
        self.pairs: list[tuple[ReplayKey, ReplayEntry]] = []

    def register(self, key: ReplayKey, entry: ReplayEntry) -> None:
        self.pairs = [pair for pair in self.pairs if pair[0] != key] + [(key, entry)]

    def lookup(self, asked: ReplayKey) -> ReplayEntry | None:
        axes = [(x, None) if x is not None else (None,) for x in asked.rung]
        for rung in itertools.product(*axes):
            for key, entry in reversed(self.pairs):
                same = key.scenario_id == asked.scenario_id and (
                    key.question_id == asked.question_id
                    if asked.scenario_id is None
                    else (key.scenario_node or "") == (asked.scenario_node or "")
                )
                if same and rung == key.rung:
                    return entry
        return None


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("replaypack.replay").setLevel(logging.ERROR)
    yield
    logging.getLogger("replaypack.replay").setLevel(logging.NOTSET)


def arguments(key: ReplayKey) -> dict[str, Any]:
    return key.model_dump()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from([1, 3, 4096]))
def test_every_store_answers_as_the_naive_one(steps: list[tuple[str, ReplayKey, ReplayEntry]], fresh: int) -> None:
    naive, memory = Naive(), ReplayStore()
    archive = Archive("", storage=MemoryStorage())
    kept = module._FRESH
    module._FRESH = fresh
    try:
        with ArchivedReplayStore(archive=archive, name="r", mode="record", flush_interval=None) as recording:
            for what, key, entry in steps:
                if what == "register":
                    for store in (naive, memory, recording):
                        store.register(key, entry)
                elif what == "publish":
                    assert list(recording.entries) == naive.pairs
                else:
                    expected = naive.lookup(key)
                    assert memory.lookup(**arguments(key)) == expected
                    assert recording.lookup(**arguments(key)) == expected
    finally:
        module._FRESH = kept
    sealed = ArchivedReplayStore(archive=archive, name="r")
    for store in (memory, sealed):
        assert list(store.entries) == naive.pairs
        assert len(store.entries) == len(naive.pairs)
        assert [store.entries[n] for n in range(len(naive.pairs))] == naive.pairs
        for _, key, _ in steps:
            assert store.lookup(**arguments(key)) == naive.lookup(key)
            outer = {name: value for name, value in arguments(key).items() if name[:3] in ("que", "sce")}
            assert store.has_any_for(**outer) == any(other.outer == key.outer for other, _ in naive.pairs)
