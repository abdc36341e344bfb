"""Why a call is not answered: the reason, the nearest recorded calls, and what looking for them costs."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from replaypack import Archive, Recording, ReplayMismatch
from replaypack.canonical import key_digest
from replaypack.errors import CanonicalizationError, UsageError
from replaypack.replay.mismatch import Explanation, explain
from tests.storage.conftest import Bucket, s3_bucket

__all__ = ["s3_bucket"]

#: Latency (seconds) while rounds are counted: requests that were sent together must overlap on a busy machine too.
SLOW = 0.3


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def model(*contents: str, **options: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in contents], **options}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    archive = Archive(tmp_path_factory.mktemp("mismatch"))
    with archive.recorder("run") as recorder:
        for number in range(40):
            identity = tool("weather", city=f"city {number}", unit="C")
            recorder.append(kind="tool", name="weather", identity=identity, response=number)
        for number in range(10):
            history = [f"message {at} " + "words " * 30 for at in range(number + 1)]
            recorder.append(kind="model", name="m", identity=model(*history, temperature=0.5), response="ok")
        recorder.append(kind="tool", name="search", identity=tool("search", q="a"), response=1, scope="one")
        recorder.append(kind="tool", name="search", identity=tool("search", q="a"), response=2, scope="two")
        recorder.append(kind="tool", name="poll", identity=tool("poll"), response=1)
        recorder.append(kind="tool", name="poll", identity=tool("poll"), response=2)
        recorder.append(kind="tool", name="cut", identity=tool("cut"), response="pre", flags=["truncated"])
        recorder.append(kind="tool", name="cut", identity=tool("cut"), error=KeyError("x"), status="interrupted")
        recorder.append(kind="tool", name="host", key="host key 1", request={"x": 1}, response=1)
        recorder.append(kind="odd", identity={"t": "\x1b[31m\u202e"}, response=1)
    return archive.open("run")


def of(recording: Recording, kind: str, identity: Any, **options: Any) -> Explanation:
    explanation = explain(recording, kind, identity, **options)
    assert json.loads(json.dumps(explanation.to_dict()))["reason"] == explanation.reason
    return explanation


def test_a_recorded_call_is_answered(recording: Recording) -> None:
    found = of(recording, "tool", tool("poll"))
    assert found.answered
    assert (found.recorded, found.nearest, found.looked_at) == (2, (), 0)
    assert of(recording, "tool", tool("poll"), played=1).answered
    assert of(recording, "tool", tool("search", q="a"), scope="two").answered
    assert of(recording, "tool", tool("poll"), scope="new").answered


def test_exhausted_is_told_from_missing(recording: Recording) -> None:
    found = of(recording, "tool", tool("poll"), played=2)
    assert (found.reason, found.recorded, found.played) == ("exhausted", 2, 2)
    assert "recorded 2 times, and all 2 have answered: this is call number 3" in str(found)


def test_the_nearest_of_that_name_come_with_their_pointers(recording: Recording) -> None:
    found = of(recording, "tool", tool("weather", city="city 7", unit="F"), name="weather", near=30)
    assert found.reason == "missing"
    assert found.nearest[0].seq == 7
    [difference] = found.nearest[0].differences
    assert (difference.pointer, difference.old, difference.new) == ("/arguments/unit", "C", "F")
    assert '`/arguments/unit` differs at character 0: "C" → "F"' in str(found)
    assert len(found.nearest) == 3
    assert all(near.name == "weather" for near in found.nearest)


def test_a_changed_message_is_found_among_growing_histories(recording: Recording) -> None:
    history = [f"message {at} " + "words " * 30 for at in range(6)]
    history[3] = history[3].replace("words words", "words swords", 1)
    found = of(recording, "model", model(*history, temperature=0.5), name="m")
    assert found.nearest[0].seq == 45
    [difference] = found.nearest[0].differences
    assert difference.pointer == "/messages/3/content"
    assert "`/messages/3/content` differs at character 16: " in str(found)


def test_of_long_histories_those_with_most_in_common_come_first(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    history = [f"message {at} " + key_digest("text", at).hex() * 5 for at in range(60)]
    with archive.recorder("run") as recorder:
        for number in range(60):
            recorder.append(kind="model", identity=model(*history[: number + 1]), response="ok")
    history[10] += "!"
    found = explain(archive.open("run"), "model", model(*history[:40]), near=40, count=4)
    assert [near.seq for near in found.nearest] == [39, 38, 40, 37]
    assert [d.pointer for d in found.nearest[0].differences] == ["/messages/10/content"]
    assert [near.count for near in found.nearest] == [1, 2, 2, 3]


def test_scopes_kinds_names_and_cut_records_are_reasons(recording: Recording) -> None:
    found = of(recording, "tool", tool("search", q="a"))
    assert found.reason == "other_scope"
    assert "2 times in other scopes, such as 'one', 'two'" in str(found)
    assert of(recording, "tool", tool("search", q="a"), scope="three").reason == "other_scope"
    found = of(recording, "model", tool("poll"))
    assert found.reason == "other_kind"
    assert "recorded 2 times as 'tool'" in str(found)
    found = of(recording, "tol", tool("new"))
    assert found.reason == "no_kind"
    assert "tool (47)" in str(found)
    assert found.hint == "did you mean 'tool'?"
    found = of(recording, "tool", tool("wether", city="city 7"), name="wether")
    assert (found.reason, found.hint) == ("no_name", "did you mean 'weather'?")
    assert "weather (40)" in str(found)
    found = of(recording, "tool", tool("cut"))
    assert found.reason == "unanswerable"
    assert "record 54 (truncated), record 55 (interrupted)" in str(found)
    assert of(recording, "tool", tool("cut"), answers=lambda record: True).answered


def test_calls_with_keys_of_the_host_are_compared_by_their_requests(recording: Recording) -> None:
    key = key_digest("any", 1)
    found = explain(recording, "tool", key=key, request={"x": 2}, name="host")
    assert [d.pointer for d in found.nearest[0].differences] == ["/x"]
    found = explain(recording, "tool", key=key, request={"x": 1}, name="host")
    assert "the request is the same; the key of the host is not" in str(found)
    assert explain(recording, "tool", key=key).nearest == ()
    with pytest.raises(UsageError):
        explain(recording, "tool")
    with pytest.raises(CanonicalizationError):
        explain(recording, "tool", {"x": float("nan")})


def test_an_identity_is_compared_with_the_request_of_a_record_that_has_a_key_of_the_host(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("r") as recorder:
        recorder.append(kind="tool", key="of-the-host", request={"x": 1}, response=1)
    same, other = (str(of(archive.open("r"), "tool", {"x": x})) for x in (1, 2))
    assert "the request is the same; the key of the host is not" in same
    assert "`/x` differs: 1 → 2" in other
    for found in (same, other):
        assert "found by that key alone" in found


def test_what_the_match_policy_ignores_is_no_difference(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("run") as recorder:
        recorder.append(kind="tool", identity={"q": "a", "id": "call_1"}, response=1)

    def normalise(value: Any) -> Any:
        return {**value, "id": ""}

    found = explain(archive.open("run"), "tool", {"q": "b", "id": "call_2"}, normalise=normalise)
    assert [d.pointer for d in found.nearest[0].differences] == ["/q"]


def test_nothing_recorded_acts_on_a_terminal(recording: Recording) -> None:
    text = str(explain(recording, "odd", {"t": "\x1b[32m\u202e"}, name="\x1b]0;x\x07", scope="\u2028"))
    assert "differs at character 3" in text
    assert text.replace("\n", "").isprintable()


def test_an_empty_recording_says_so(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.recorder("run").seal()
    found = explain(archive.open("run"), "tool", 1)
    assert (found.reason, found.nearest) == ("no_kind", ())
    assert "it is empty" in str(found)


def long_run() -> list[dict[str, Any]]:
    """Tool calls with a little text of their own, and now and then a model call with the history of all."""
    calls: list[dict[str, Any]] = []
    history: list[str] = []
    for number in range(9000):
        noise = key_digest("noise", number).hex()
        identity = tool("step", number=number, note=noise)
        calls.append({"kind": "tool", "name": "step", "identity": identity, "response": {"n": number, "t": noise * 4}})
        if number % 300 == 0:
            history.append(f"turn {number}: " + noise * 60)
            calls.append({"kind": "model", "name": "m", "identity": model(*history), "response": noise})
    return calls


def test_on_object_storage_few_frames_around_the_position_are_read(s3_bucket: Bucket) -> None:
    run = long_run()
    with Archive("", storage=s3_bucket.open(direct=True)).recorder("run", flush_interval=None) as recorder:
        for call in run:
            recorder.append(**call)
    recording = Archive("", storage=s3_bucket.open()).open("run")
    assert len(list(recording.index.frames())) > 16
    for where in (0, 4500, 9000):
        target = run[min(where + 20, len(run) - 1)]["identity"]
        asked = {**target, "arguments": {**target["arguments"], "note": target["arguments"]["note"][:-1] + "!"}}
        recording = Archive("", storage=s3_bucket.open()).open("run")
        proxy = s3_bucket.proxy
        proxy.clear()
        proxy.latency = SLOW
        with mock.patch.object(recording.index, "read_frames", wraps=recording.index.read_frames) as read:
            found = explain(recording, "tool", asked, name="step", near=where)
        proxy.latency = 0
        assert 0 < sum(len(call.args[0]) for call in read.call_args_list) <= 16
        assert proxy.depth() <= 6
        assert len(proxy.requests) <= 16
        assert all(request.method == "GET" and not request.is_list for request in proxy.requests)
        assert found.nearest[0].differences[0].pointer == "/arguments/note"
        assert found.nearest[0].differences[0].at == 63
        assert found.looked_at < len(recording)


def test_a_record_that_cannot_answer_is_not_counted_among_those_that_do(tmp_path: Path) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    for name, before in (("first", True), ("last", False)):
        with Archive(tmp_path).session(name) as session:
            for call in (interrupted, lambda: 1)[:: 1 if before else -1]:
                with contextlib.suppress(KeyboardInterrupt):
                    session.tool("t", {}, call)
        with Archive(tmp_path).session(name) as session:
            assert session.explain("tool", {"name": "t", "args": {}}).answered
            assert session.tool("t", {}, lambda: 2) == 1
            found = session.explain("tool", {"name": "t", "args": {}})
            assert (found.reason, found.recorded, found.played) == ("exhausted", 2, 1)
            assert f"not counting 1 that cannot answer: record {int(not before)} (interrupted)" in str(found)
            with pytest.raises(ReplayMismatch) as caught:
                session.tool("t", {}, lambda: 2)
            assert (caught.value.reason, caught.value.recorded, caught.value.asked) == ("exhausted", 1, 2)
            assert "is not answered: recorded once, and that one has answered" in str(caught.value)
