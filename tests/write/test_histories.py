"""The key of a request with a history is the one that it has without looking at what came before."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack._plain import survey
from replaypack._write.histories import Histories
from replaypack.canonical import key_digest
from replaypack.values import encode, payload_pieces

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.fixed_dictionaries({"role": st.sampled_from(["user", "tool"]), "content": VALUES | st.text(max_size=300)})


def check(histories: Histories, kind: str, identity: Any) -> bool:
    """Compare with the key and the encoding made from nothing; whether the history was used at all."""
    census = survey(identity)
    found = histories.key(kind, census)
    if found is None:
        return False
    key, items, parts = found
    assert key == key_digest(kind, identity)
    assert parts == [encode(item) for item in items]
    _, pieces = payload_pieces(identity, census=census, encoded={id(items): parts})
    assert b"".join(pieces) == encode(identity)
    return True


def request(messages: list[Any], **others: Any) -> dict[str, Any]:
    return {"model": "m", "messages": messages, "tools": [{"name": "t"}], **others}


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"{number} " * 200}


@given(st.lists(MESSAGES, min_size=8, max_size=12), st.lists(MESSAGES, max_size=4), st.data())
def test_keys_of_growing_and_changing_histories(first: list[Any], more: list[Any], data: st.DataObject) -> None:
    histories = Histories()
    others = data.draw(st.dictionaries(st.sampled_from(["a", "n", "z"]), SCALARS, max_size=2))
    for messages in (first, first, first + more, first, [*more, *first], first + more + first):
        check_or_refused(histories, request(messages, **others))


def check_or_refused(histories: Histories, identity: Any) -> None:
    try:
        key_digest("model", identity)
    except ValueError:
        assert histories.key("model", survey(identity)) is None
        return
    check(histories, "model", copy.deepcopy(identity))


def test_what_is_in_a_history_is_compared_by_its_bytes() -> None:
    histories = Histories()
    messages = [message(number) for number in range(40)]
    assert check(histories, "model", request(messages))
    for changed in (1, True, "1", None):
        messages[3] = {"role": "user", "content": changed}
        assert check(histories, "model", request(messages))
    messages[3] = {"role": "user", "content": 1.0}  # prints otherwise than the C encoder would
    assert not check(histories, "model", request(messages))
    messages[3] = {"role": "user", "content": ("a", "b")}
    assert check(histories, "model", request(messages))
    messages[3] = {"role": "user", "content": ["a", "b"]}
    assert check(histories, "model", request(messages))
    assert check(histories, "other", request(messages))
    assert check(histories, "model", request(messages, temperature=1.0))
    assert check(histories, "model", request(messages, temperature=0.7))
    assert not check(histories, "model", request(messages, temperature=float("nan")))


def test_keys_that_the_encoder_orders_otherwise_are_left_alone() -> None:
    histories = Histories()
    messages = [message(number) for number in range(10)]
    assert not check(histories, "model", request([*messages, {"$bytes": "AA=="}]))
    assert not check(histories, "model", request([*messages, {"\U0001f600": 1, "\uff00": 2}]))
    assert not check(histories, "model", request([*messages, {1: 2}]))
    assert not check(histories, "model", request([*messages, {"text": "\ud800"}]))


def test_only_lists_of_maps_are_histories() -> None:
    histories = Histories()
    assert not check(histories, "model", request([message(n) for n in range(10)] + ["text"]))
    assert not check(histories, "model", {"input": [0.5] * 100})
    assert check(histories, "model", {"numbers": [0.5] * 100, "input": [message(n) for n in range(10)]})


def test_equal_elements_are_the_objects_of_the_last_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._write.histories._MAX_BYTES", 30_000)
    histories = Histories()
    messages = [message(number) for number in range(10)]
    other = [message(number) for number in range(100, 110)]
    for _ in range(3):
        for conversation in (messages, other):
            conversation.append(message(len(conversation)))
            assert check(histories, "model", request(list(conversation)))
    _, _, old = histories.key("model", survey(request(messages))) or pytest.fail("not kept")
    _, _, new = histories.key("model", survey(request([*messages, message(0)]))) or pytest.fail("not kept")
    assert all(a is b for a, b in zip(old, new, strict=False))
    assert sum(known.size for known in histories._known) <= 30_000
