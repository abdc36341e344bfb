"""`ReplayKey` and `ReplayEntry`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from replaypack import ReplayEntry, ReplayKey
from replaypack.errors import ReplayValueError

FULL = {
    "question_id": "q",
    "scenario_id": "s",
    "scenario_node": "n",
    "answering_model_id": "m",
    "visit_index": 2,
    "replicate": 4,
}


def test_replay_key_is_frozen_and_hashable() -> None:
    one, other = ReplayKey(**FULL), ReplayKey(**FULL)
    assert one == other
    assert {one: "x"}[other] == "x"
    assert one != ReplayKey(**{**FULL, "replicate": 5})
    assert one != FULL
    with pytest.raises(ValueError, match="frozen"):
        one.replicate = 7  # type: ignore[misc]
    with pytest.raises(ValueError, match="removed"):
        del one.replicate
    assert one.replicate == 4


def test_what_is_not_given_is_none() -> None:
    bare = ReplayKey(question_id="q")
    assert bare.model_dump() == {**dict.fromkeys(FULL), "question_id": "q"}
    assert list(ReplayEntry(raw_trace="").model_dump()) == [
        "raw_trace",
        "trace_messages",
        "parsed_answer_fields",
        "verify_result",
        "usage_metadata",
        "agent_metrics",
        "captured_model_id",
        "captured_at",
    ]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "missing required field `question_id`"),
        ({"question_id": 5}, "`ReplayKey.question_id`"),
        ({"question_id": None}, "`ReplayKey.question_id`"),
        ({"question_id": "q", "visit_index": "0"}, "`ReplayKey.visit_index`"),
        ({"question_id": "q", "visit_index": True}, "`ReplayKey.visit_index`"),
        ({"question_id": "q", "replicate": 1.0}, "`ReplayKey.replicate`"),
        ({"question_id": "q", "bogus": "x"}, "unknown field `bogus`"),
    ],
)
def test_replay_key_refuses_wrong_types_and_unknown_fields(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ReplayValueError, match=says) as caught:
        ReplayKey(**fields)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(ReplayValueError, match=says):
        ReplayKey.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "missing required field `raw_trace`"),
        ({"raw_trace": b"x"}, "`ReplayEntry.raw_trace`"),
        ({"raw_trace": "x", "trace_messages": ["x"]}, "trace_messages"),
        ({"raw_trace": "x", "parsed_answer_fields": []}, "parsed_answer_fields"),
        ({"raw_trace": "x", "parsed_answer_fields": {1: 2}}, "parsed_answer_fields"),
        ({"raw_trace": "x", "verify_result": 1}, "verify_result"),
        ({"raw_trace": "x", "captured_at": 1.5}, "captured_at"),
        ({"raw_trace": "x", "BOGUS": 1}, "unknown field `BOGUS`"),
    ],
)
def test_replay_entry_refuses_wrong_types_and_unknown_fields(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ReplayEntry(**fields)


def test_what_is_assigned_to_an_entry_is_checked() -> None:
    entry = ReplayEntry(raw_trace="typo")
    entry.raw_trace = "text"
    assert entry.raw_trace == "text"
    with pytest.raises(ValueError, match="verify_result"):
        entry.verify_result = "yes"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="unknown field"):
        entry.more = 1  # type: ignore[attr-defined]
    assert entry.model_dump(exclude_none=True) == {"raw_trace": "text"}
    with pytest.raises(TypeError):
        hash(entry)


def test_model_dump() -> None:
    entry = ReplayEntry(raw_trace="", agent_metrics={"none": None, "pair": (1, 2)}, verify_result=False)
    assert entry.model_dump(exclude_none=True) == {
        "raw_trace": "",
        "verify_result": False,
        "agent_metrics": {"none": None, "pair": (1, 2)},
    }
    assert entry.model_dump(mode="json")["agent_metrics"] == {"none": None, "pair": [1, 2]}
    assert entry.model_dump(include={"raw_trace", "captured_at"}) == {"raw_trace": "", "captured_at": None}
    assert "raw_trace" not in entry.model_dump(exclude={"raw_trace"})
    assert set(entry.model_dump(exclude_defaults=True)) == {"raw_trace", "verify_result", "agent_metrics"}
    entry.model_dump()["agent_metrics"]["none"] = 1
    assert entry.agent_metrics == {"none": None, "pair": (1, 2)}
    with pytest.raises(ValueError, match="mode"):
        entry.model_dump(mode="xml")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="object"):
        ReplayEntry(raw_trace="", agent_metrics={"x": object()}).model_dump(mode="json")


def test_model_validate() -> None:
    key = ReplayKey(**FULL)
    assert ReplayKey.model_validate(FULL) == key
    assert ReplayKey.model_validate(key) is key
    assert ReplayKey.model_validate({"question_id": "q"}).replicate is None
    for wrong in (None, "q", [("question_id", "q")], {1: 2}):
        with pytest.raises(ValueError, match="mapping"):
            ReplayKey.model_validate(wrong)


def test_model_fields() -> None:
    assert list(ReplayKey.model_fields) == list(FULL)
    assert ReplayKey.model_fields["question_id"].is_required()
    assert not ReplayKey.model_fields["replicate"].is_required()
    assert ReplayKey.model_fields["replicate"].default is None
    assert ReplayKey.model_fields["question_id"].annotation is str


def test_model_copy_copies_and_checks() -> None:
    key = ReplayKey(**FULL)
    assert key.model_copy(update={"replicate": None}) == ReplayKey(**{**FULL, "replicate": None})
    assert key.replicate == 4
    with pytest.raises(ValueError, match="replicate"):
        key.model_copy(update={"replicate": "x"})
    entry = ReplayEntry(raw_trace="", agent_metrics={"a": []})
    deep = entry.model_copy(deep=True)
    assert deep.agent_metrics is not None
    deep.agent_metrics["a"].append(1)
    assert entry.agent_metrics == {"a": []}


def test_containers_given_are_copied() -> None:
    fields = {"a": 1}
    entry = ReplayEntry(raw_trace="", parsed_answer_fields=fields)
    fields["a"] = 2
    assert entry.parsed_answer_fields == {"a": 1}


def test_copies_and_pickles_are_equal() -> None:
    key, entry = ReplayKey(**FULL), ReplayEntry(raw_trace="x", agent_metrics={"a": [1]})
    for value in (key, entry):
        assert copy.copy(value) == value
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value
    assert repr(key).startswith("ReplayKey(question_id='q', scenario_id='s'")
