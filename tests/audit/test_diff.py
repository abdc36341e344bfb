"""Comparing recordings: what is found, how it is aligned, and what is not read."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import replaypack
from replaypack import ABSENT, Archive, Recording, assert_same, diff
from replaypack.audit.diff import Diff
from replaypack.errors import RecordingNotFoundError, UsageError

Call = dict[str, Any]


def tool(number: int, answer: Any = ABSENT, **more: Any) -> Call:
    response = {"n": number} if answer is ABSENT else answer
    return {"kind": "tool", "name": "search", "identity": {"q": number}, "response": response, **more}


def calls(*numbers: int) -> list[Call]:
    return [tool(number) for number in numbers]


def agent(turns: int, *, answers: dict[int, str] | None = None, extra: int | None = None) -> list[Call]:
    """A run whose requests repeat all before; ``answers`` of tools may be others, ``extra`` asks once more."""
    history: list[Any] = [{"role": "user", "content": "please do all of this"}]
    out: list[Call] = []
    for turn in range(turns):
        for again in range(2 if turn == extra else 1):
            message = {"role": "assistant", "content": f"I am going to look at number {turn}" + " again" * again}
            out.append({"kind": "model", "name": "m", "identity": {"messages": list(history)}, "response": message})
            history = [*history, message]
        answer = (answers or {}).get(turn, f"the answer of tool {turn}")
        out.append(tool(turn, answer))
        history = [*history, {"role": "tool", "content": answer}]
    return out


class Make:
    """Records lists of calls, each in an archive of its own, and compares them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def __call__(self, records: Iterable[Call], **options: Any) -> Recording:
        self._count += 1
        archive = Archive(self._path / str(self._count))
        with archive.recorder("r", redact=None, **options) as recorder:
            for record in records:
                recorder.append(**record)
        return archive.open("r")

    def diff(self, old: Iterable[Call], new: Iterable[Call], **options: Any) -> Diff:
        return diff(self(old), self(new), **options)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return Make(tmp_path)


def places(found: Diff) -> list[tuple[str, int | None, int | None]]:
    return [
        (entry.what, entry.old.seq if entry.old else None, entry.new.seq if entry.new else None)
        for entry in found.entries
    ]


def pointers(found: Diff) -> list[list[str]]:
    return [[delta.difference.pointer for delta in entry.differences] for entry in found.entries]


def test_the_same_calls_at_other_times_are_the_same(make: Make) -> None:
    old = [tool(1, start=5, duration=10), *calls(2, 3)]
    new = [tool(1, start=99, duration=7_000_000_000), *calls(2, 3)]
    found = make.diff(old, new)
    assert found.same
    assert not found
    assert found.counts == {"same": 3, "changed": 0, "added": 0, "removed": 0, "moved": 0}
    assert [totals.duration for totals in found.totals] == [1e-8, 7.0]
    assert str(found).endswith("records 3 (tool 3); failed 0; time in calls 0.000 s → 7.000 s")


def test_added_removed_and_changed(make: Make) -> None:
    old = [*calls(0, 1, 2, 3), tool(4, {"text": "a long answer of the tool"})]
    new = [*calls(0, 1), tool(9, "another"), tool(3), tool(4, {"text": "a short answer of the tool"}), tool(5)]
    found = make.diff([*old, *calls(*range(10, 20))], [*new, *calls(*range(10, 20))])
    # Number 2 was replaced by 9: one kind and name, in one place.
    assert places(found) == [("changed", 2, 2), ("changed", 4, 4), ("added", None, 5)]
    assert pointers(found) == [["/request/q", "/response"], ["/response/text"], []]
    [text] = found.entries[1].differences[0].texts
    assert (text.old_at, text.old, text.new) == (2, "long", "short")
    assert found.counts == {"same": 13, "changed": 2, "added": 1, "removed": 0, "moved": 0}
    assert make.diff(calls(1, 2, 3), calls(1, 3)).counts["removed"] == 1
    assert make.diff([], calls(1)).counts["added"] == 1


def test_one_turn_more_changes_nothing_behind_it(make: Make) -> None:
    found = make.diff(calls(*range(300)), calls(*range(100), 1000, *range(100, 300)))
    assert places(found) == [("added", None, 100)]
    assert found.counts["same"] == 300


def test_a_record_that_moved(make: Make) -> None:
    found = make.diff(calls(0, 1, 2, 3, 4, 5), calls(0, 4, 1, 2, 3, 5))
    assert places(found) == [("moved", 4, 1)]
    changed = make.diff(calls(0, 1, 2, 3, 4, 5), [*calls(0), tool(4, "new"), *calls(1, 2, 3, 5)])
    assert places(changed) == [("moved", 4, 1)]
    assert pointers(changed) == [["/response"]]
    assert (changed.counts["moved"], changed.counts["changed"]) == (1, 1)
    assert make.diff(calls(0, 1, 2), calls(1, 0, 2), ignore="moved").same


def test_the_nth_of_equal_calls(make: Make) -> None:
    poll = [tool(0, answer) for answer in ("wait", "wait", "wait", "done")]
    found = make.diff([*poll, tool(1)], [poll[0], *poll, tool(1)])
    assert found.counts == {"same": 5, "changed": 0, "added": 1, "removed": 0, "moved": 0}
    found = make.diff([tool(0, answer) for answer in "abcd"], [tool(0, answer) for answer in "abxcd"])
    assert places(found) == [("added", None, 2)]


def test_which_of_two_scopes_came_first_is_no_difference(make: Make) -> None:
    old = [tool(number, scope=scope) for scope in ("a", "b") for number in range(5)]
    new = [tool(number, scope=scope) for number in range(5) for scope in ("b", "a")]
    assert make.diff(old, new).same
    # Within a scope it is one.
    swapped = [new[2], new[1], new[0], *new[3:]]
    assert make.diff(old, swapped).counts["moved"] == 1


def test_what_later_requests_repeat_is_shown_once(make: Make) -> None:
    found = make.diff(agent(8), agent(8, answers={2: "something that is quite different"}))
    assert places(found)[0] == ("changed", 5, 5)
    assert [entry.what for entry in found.entries] == ["changed"] * 6
    assert pointers(found) == [["/response"], [], [], [], [], []]
    [delta] = found.entries[0].differences
    assert delta.later == 5
    assert delta.later_seqs == [6, 8, 10, 12, 14]
    assert found.repeats == 5
    assert "(and in 5 later records)" in str(found)
    # What is new in a later request is shown there.
    both = make.diff(agent(8), agent(8, answers={2: "something that is quite different", 5: "another, yet again"}))
    assert [entry.new.seq for entry in both.entries if entry.differences and entry.new] == [5, 11]


def test_a_turn_more_in_a_history(make: Make) -> None:
    found = make.diff(agent(8), agent(8, extra=3))
    assert places(found)[0] == ("added", None, 7)
    assert found.counts == {"same": 12, "changed": 4, "added": 1, "removed": 0, "moved": 0}
    assert pointers(found) == [[], ["/request/messages/8"], [], [], []]
    assert found.entries[1].differences[0].later == 3


def test_short_values_that_change_alike_by_chance_are_both_shown(make: Make) -> None:
    old = [tool(0, {"count": 1}), {"kind": "tool", "name": "f", "identity": {"page": 1}, "response": "p"}]
    new = [tool(0, {"count": 2}), {"kind": "tool", "name": "f", "identity": {"page": 2}, "response": "p"}]
    assert pointers(make.diff(old, new)) == [["/response/count"], ["/request/page"]]


def test_errors_flags_attributes_and_names(make: Make) -> None:
    old = [tool(0), tool(1), tool(2, attributes={"a": 1}), tool(3)]
    new: list[Call] = [
        {"kind": "tool", "name": "search", "identity": {"q": 0}, "error": ValueError("no")},
        tool(1, flags=("live_fallback",)),
        tool(2, attributes={"a": 2}),
        {**tool(3), "name": "find"},
    ]
    found = make.diff(old, new)
    assert pointers(found)[0][:2] == ["/status", "/response/n"]
    assert pointers(found)[1:] == [["/flags/0"], ["/attributes/a"], ["/name"]]
    assert [totals.failed for totals in found.totals] == [0, 1]
    assert "failed 0 → 1" in str(found)
    assert make.diff(old[2:], new[2:], ignore=["/attributes/a", "/name"]).same
    assert make.diff(old, new, ignore=["/status", "/response", "/flags", "/attributes", "/name"]).same


def test_keys_of_the_host(make: Make) -> None:
    def keyed(key: str) -> Call:
        return {"kind": "tool", "key": key, "response": 1}

    [[pointer]] = pointers(make.diff([keyed("a")], [keyed("b")]))
    assert pointer == "/key"
    assert make.diff([keyed("a")], [keyed("b")], ignore="/key").same


def test_the_same_value_in_other_bytes(make: Make) -> None:
    found = make.diff([tool(0, {"a": 1, "b": 2})], [tool(0, {"b": 2, "a": 1.0})])
    assert pointers(found) == [["/response"]]
    assert "the order of members" in str(found)
    assert make.diff([tool(0, {"a": 1, "b": 2})], [tool(0, {"b": 2, "a": 1.0})], ignore="encoding").same


def test_what_is_left_out(make: Make) -> None:
    def ask(id_: str, n: int, name: str = "search") -> Call:
        messages = [{"id": f"{id_}-{at}", "text": f"text {at}"} for at in range(3)]
        return {
            "kind": "tool",
            "name": name,
            "identity": {"q": n, "messages": messages, "trace": {"a/b": id_}},
            "response": {"id": id_, "parts": [{"meta": {"id": id_}}, id_]},
        }

    old, new = [ask("x", n) for n in range(4)], [ask("y", n) for n in range(4)]
    rules = ["/request/messages/*/id", "/request/trace/a~1b", "/response/**/id", "/response/parts/1"]
    assert make.diff(old, new, ignore=rules).same
    assert pointers(make.diff(old, new, ignore=rules[1:]))[0] == [f"/request/messages/{at}/id" for at in range(3)]
    assert make.diff(old, new, ignore=["/request/**", "/response"]).same
    assert make.diff(old, new, ignore="kind:tool").same
    assert make.diff(old, new, ignore="name:search").same
    model = {"kind": "model", "name": "m", "identity": {"q": 1}, "response": "same"}
    assert make.diff([*old, *calls(1), model], [*old, model], kinds="model").same
    # An element more, among others whose ids are left out.
    longer = copy.deepcopy(new)
    longer[0]["identity"]["messages"].insert(1, {"id": "z", "text": "put in"})
    assert pointers(make.diff(old, longer, ignore=rules)) == [["/request/messages/1"]]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["/nothing/x"], "no part 'nothing'"),
        (["request"], "no rule"),
        (["/status/x"], "no parts of its own"),
        ([5], "is not text"),
        (["kind:"], "no rule"),
    ],
)
def test_unsound_rules(make: Make, rules: list[Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make.diff([], [], ignore=rules)


def test_streams_differ_by_what_they_yield_not_by_when(make: Make) -> None:
    def stream(items: list[str], offsets: list[int]) -> Call:
        return tool(0, {"items": items, "offsets": offsets}, attributes={"stream": "sync"})

    def failed(offsets: list[int]) -> Call:
        error = {"type": "ValueError", "module": "builtins", "message": "no"}
        return {
            **{name: value for name, value in tool(1).items() if name != "response"},
            "error": {**error, "stream": {"items": ["a"], "offsets": offsets}},
            "attributes": {"stream": "async"},
        }

    assert make.diff([stream(["a"], [5]), failed([1])], [stream(["a"], [9]), failed([2])]).same
    assert make.diff([stream(["a"], [5])], [stream(["a"], [9])], limit=0).same
    assert pointers(make.diff([stream(["a"], [5])], [stream(["b"], [9])])) == [["/response/items/0"]]


def test_large_payloads_texts_bytes_and_absent_ones(make: Make) -> None:
    old = [tool(0, b"\x00" * 9000), tool(1, "x" * 9000), {"kind": "tool", "key": "k"}]
    new = [tool(0, b"\x00" * 8999 + b"\x01"), tool(1, {"now": "a map"}), {"kind": "tool", "key": "k", "response": 1}]
    found = make.diff(old, new)
    assert pointers(found) == [["/response"]] * 3
    assert [entry.differences[0].difference.what for entry in found.entries] == ["changed", "type", "added"]
    assert found.entries[0].differences[0].difference.at == 8999
    assert found.to_dict()["entries"][2]["differences"][0]["new"] == 1


def test_counts_are_exact_beyond_the_limit(make: Make) -> None:
    old, new = calls(*range(40)), [tool(number, "new") for number in range(30)]
    whole = make.diff(old, new)
    for limit in (0, 5):
        found = make.diff(old, new, limit=limit)
        assert found.counts == whole.counts == {"same": 0, "changed": 30, "added": 0, "removed": 10, "moved": 0}
        assert len(found.entries) == limit
        assert found.truncated
    assert not whole.truncated
    ignored = make.diff(old, new, limit=5, ignore="/response")
    assert ignored.counts == {"same": 30, "changed": 0, "added": 0, "removed": 10, "moved": 0}


def test_payloads_of_equal_digest_are_not_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []
    blob_bytes = replaypack.Record.blob_bytes

    def noted(self: replaypack.Record, role: str) -> bytes:
        read.append((role, self.seq))
        return blob_bytes(self, role)

    monkeypatch.setattr(replaypack.Record, "blob_bytes", noted)
    big = "z" * 5000
    old = [tool(number, {"big": big, "n": number}) for number in range(20)]
    new = [*old[:7], tool(7, {"big": big, "n": "seven"}), *old[8:]]
    found = make.diff(old, new)
    assert pointers(found) == [["/response/n"]]
    assert read == [("response", 7), ("response", 7)]


def test_assert_same(make: Make) -> None:
    old, new = make(calls(1, 2)), make([tool(1), tool(2, {"n": 3})])
    assert_same(old, old)
    assert_same(old, new, ignore="/response/n")
    with pytest.raises(AssertionError, match=r"two recordings differ\n(.|\n)*`/response/n` differs: 2 → 3"):
        assert_same(old, new)


def test_locators_and_what_is_none(make: Make, tmp_path: Path) -> None:
    old, new = make(calls(1, 2)), make(calls(1))
    assert replaypack.diff(old.locator, new.locator).counts["removed"] == 1
    assert replaypack.diff(old.locator, old).same
    with pytest.raises(RecordingNotFoundError):
        diff(old, f"{tmp_path / '1'}#other")
    with pytest.raises(UsageError, match="locators and recordings"):
        diff(old, 5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="limit"):
        diff(old, new, limit=-1)


def test_recordings_of_every_shape(make: Make, fill_recorder: Callable[..., None], tmp_path: Path) -> None:
    archive = Archive(tmp_path / "shapes")
    for name, flush in (("a", 7), ("b", 0)):
        with archive.recorder(name) as recorder:
            fill_recorder(recorder, 0, 120, flush_every=flush)
    assert diff(archive.open("a"), archive.open("b")).same
    with archive.recorder("c") as recorder:
        fill_recorder(recorder, 1, 120)
    found = diff(archive.open("a"), archive.open("c"))
    assert found
    assert sum(found.counts.values()) - found.counts["moved"] >= 120
    assert len(str(found)) > 100
    assert found.to_dict()["counts"] == found.counts


def test_a_copy_without_requests(make: Make, tmp_path: Path) -> None:
    old, new = make(calls(1, 2)), make([tool(1), {**tool(2), "identity": {"q": 3}}])
    Archive(old.storage.url).copy_to(str(tmp_path / "copy"), responses_only=True)
    found = diff(f"{tmp_path / 'copy'}#r", new)
    assert pointers(found) == [["/request"]]
    assert "is withheld" in str(found)


def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = Path(__file__).parent.parent.parent / "docs" / "comparing.md"
    text = guide.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    exec(compile(block, guide.name, "exec", dont_inherit=True), {"__name__": "__main__"})
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (guide.parent / target).exists()


def test_a_kind_that_neither_has_is_no_agreement(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "runs")
    for name, answer in (("a", 1), ("b", 2)):
        with archive.recorder(name) as recorder:
            recorder.append(kind="model", identity=1, response=answer)
    with pytest.raises(UsageError, match="modl") as caught:
        assert_same(f"{archive.url}#a", f"{archive.url}#b", kinds=["modl"])
    assert "model" in (caught.value.hint or "")
    with pytest.raises(AssertionError):
        assert_same(f"{archive.url}#a", f"{archive.url}#b", kinds=["model"])
