"""Match policies: what counts, what is refused, and that the reader written from the specification agrees."""

from __future__ import annotations

import copy
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replaypack
from replaypack.canonical import canonical_json, key_digest
from replaypack.errors import CanonicalizationError, FormatError, UsageError
from replaypack.policies.matching import NONE, MatchPolicy, Rule, ignore, renumber, replace
from replaypack.policies.patterns import PatternError, compile_pattern
from replaypack.policies.ready import PATTERNS, READY_MADE

CONFORMANCE = str(Path(__file__).parents[2] / "spec" / "conformance")
sys.path.insert(0, CONFORMANCE)
try:
    import rpk_match
    from rpk import Refused
finally:
    sys.path.remove(CONFORMANCE)

KEYS = st.sampled_from(["a", "b", "id", "0", "1", "*", "a/b", "~", "name", "model", "😂", "\ufb33"])
TEXTS = st.lists(
    st.sampled_from(["x1", "x2", "x12", "z1", "a", " ", "-", "_", "é", "\ud800", "x1 x2", "#1"]), max_size=5
).map("".join)
IDENTITIES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | TEXTS | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
TOKENS = st.sampled_from(["a", "b", "id", "0", "1", "*", "a~1b", "~0"])
PLACES = st.builds(
    lambda deep, first, rest: "/" + "/".join([*deep, first, *rest]),
    st.sampled_from([[], ["**"]]),
    TOKENS.filter("*".__ne__),
    st.lists(TOKENS, max_size=2),
)
AT = st.lists(PLACES, min_size=1, max_size=3, unique=True)
ELEMENTS = st.tuples(
    st.sampled_from(["x", "z", "1", "2", "-", " ", "[xz]", "[0-9]", "[a-z_]", r"\#"]),
    st.sampled_from(["", "", "", "?", "{2}", "{1,3}", "{0,2}"]),
).map("".join)
PATTERN_TEXTS = st.lists(st.lists(ELEMENTS, min_size=1, max_size=3).map("".join), min_size=1, max_size=3).map("|".join)


def sound(text: str) -> bool:
    try:
        compile_pattern(text)
    except PatternError:
        return False
    return True


RESTRICTIONS: dict[str, Any] = {
    "kinds": st.sampled_from([(), ("tool",), ("model",)]),
    "names": st.sampled_from([(), ("a",), ("x1", "a")]),
}
ON_TEXTS: dict[str, Any] = {
    "pattern": PATTERN_TEXTS.filter(sound),
    "by": st.sampled_from(["#", "x#", "<#>"]),
    "at": st.just(()) | AT,
    "whole": st.booleans(),
    **RESTRICTIONS,
}
IGNORE = st.builds(lambda at, **options: ignore(*at, **options), AT, **RESTRICTIONS)
RULES = IGNORE | st.builds(replace, **ON_TEXTS) | st.builds(renumber, **ON_TEXTS)
POLICIES = st.lists(RULES, min_size=1, max_size=5).map(lambda rules: MatchPolicy("x", rules=rules))


@given(PATTERN_TEXTS | st.text("ax1[]-\\{}2,?|* ", min_size=1, max_size=8), TEXTS)
def test_patterns_agree_with_the_independent_reader(pattern: str, text: str) -> None:
    try:
        expected = rpk_match.parse_pattern(pattern)
    except Refused:
        with pytest.raises(PatternError):
            compile_pattern(pattern)
        return
    found = compile_pattern(pattern)
    assert [match.span() for match in found.search.finditer(text)] == rpk_match.matches(expected, text)
    whole = len(text) in [rpk_match.match_at(elements, text, 0) for elements in expected]
    assert (found.whole.fullmatch(text) is not None) is whole
    if found.needles and not any(needle in text for needle in found.needles):
        assert not found.search.search(text)


@given(POLICIES, st.sampled_from(["tool", "model"]), IDENTITIES)
def test_the_independent_reader_agrees(policy: MatchPolicy, kind: str, identity: Any) -> None:
    before = copy.deepcopy(identity)
    result = policy.apply(kind, identity)
    assert canonical_json(identity) == canonical_json(before)
    assert canonical_json(result) == canonical_json(rpk_match.applied(policy.to_data(), kind, identity))
    assert policy.key(kind, identity) == key_digest(kind, result)
    again = MatchPolicy.from_data(policy.to_data())
    assert again == policy
    assert hash(again) == hash(policy)
    assert again.key(kind, identity) == policy.key(kind, identity)
    rpk_match.check_policy(policy.to_data())


def without(value: Any, rule: Rule, path: list[str]) -> Any:
    """What a rule `ignore` leaves, with a mark where it took something."""
    if any(rpk_match.covers(place[1:].split("/"), path) for place in rule.at):
        return None if path and path[-1] == "[]" else ...
    if isinstance(value, list):
        children = [without(child, rule, [*path, str(number)]) for number, child in enumerate(value)]
        return [None if child is ... else child for child in children]
    if isinstance(value, dict):
        children_ = {key: without(child, rule, [*path, key]) for key, child in value.items()}
        return {key: child for key, child in children_.items() if child is not ...}
    return value


@given(AT, IDENTITIES, IDENTITIES)
def test_ignoring_merges_what_differs_in_the_ignored_parts_and_nothing_else(at: list[str], a: Any, b: Any) -> None:
    rule = ignore(*at)
    policy = MatchPolicy("x", rules=[rule])
    left = [canonical_json(without(value, rule, [])) for value in (a, b)]
    assert (policy.key("tool", a) == policy.key("tool", b)) is (left[0] == left[1])
    assert policy.apply("tool", policy.apply("tool", a)) == policy.apply("tool", a)


READY = st.lists(st.sampled_from(READY_MADE), max_size=4).map(MatchPolicy.of)
UUID = "123e4567-e89b-12d3-a456-42661417400"
IDS = st.sampled_from(
    [f"{UUID}0", f"{UUID}1", f"in {UUID}0.", "2025-06-15T15:06:40Z", "at 2025-06-15 15:06", f"run-{UUID}0", "call_1",
     "call_2", "toolu_01A09q90qw90lq917835lq9", "msg_01XFDUDYJgAACzvnptvVoYEL", "<uuid-1>", "<call-2>", "x", "D681Pev"]
)  # fmt: skip
CHATS = st.recursive(
    IDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "tool_calls", "tool_call_id", "content", "call_id"]), inner, max_size=3
        )
    ),
    max_leaves=15,
)


@given(READY, CHATS)
def test_ready_made_policies_are_idempotent(policy: MatchPolicy, identity: Any) -> None:
    once = policy.apply("model", identity)
    assert policy.apply("model", once) == once


@given(CHATS)
def test_ids_made_anew_match_and_two_ids_stay_two(identity: Any) -> None:
    policy = MatchPolicy.of(["uuids", "tool-call-ids"])

    def renamed(value: Any, names: dict[str, str]) -> Any:
        if isinstance(value, str):
            for old, new in names.items():
                value = value.replace(old, new)
            return value
        if isinstance(value, list):
            return [renamed(child, names) for child in value]
        return {key: renamed(child, names) for key, child in value.items()}

    anew = renamed(identity, {f"{UUID}0": f"{UUID}8", f"{UUID}1": f"{UUID}9"})
    assert policy.key("model", anew) == policy.key("model", identity)
    merged = renamed(identity, {f"{UUID}0": f"{UUID}1"})
    text = str(identity)
    if f"{UUID}0" in text and f"{UUID}1" in text:
        assert policy.key("model", merged) != policy.key("model", identity)


def test_none_is_the_plain_key() -> None:
    identity = {"name": "f", "arguments": {"x": {1.0, 2}}}
    assert NONE.key("tool", identity) == key_digest("tool", identity)
    assert MatchPolicy.of(None) is NONE
    assert MatchPolicy.of([]) is NONE
    assert MatchPolicy.of(["none"]).to_data() == {"name": "none", "version": 1}
    assert not NONE
    assert replaypack.MatchPolicy is MatchPolicy


def test_policies_join() -> None:
    policy = MatchPolicy.of(["uuids", "none", "timestamps", "uuids", ignore("/a"), ignore("/b")])
    assert str(policy) == "uuids+timestamps+custom 1"
    assert [rule.rule for rule in policy.rules] == ["renumber", "replace", "ignore", "ignore"]
    assert MatchPolicy.of("uuids") == MatchPolicy.of(["uuids"]) == MatchPolicy.of(MatchPolicy.of("uuids"))
    assert MatchPolicy.of(policy.to_data()) == policy


def test_objects_are_made_plain_and_deep_values_need_no_deep_stack() -> None:
    from dataclasses import dataclass

    @dataclass
    class Call:
        id: str
        args: tuple[int, ...]

    policy = MatchPolicy.of(ignore("/id"))
    assert policy.key("tool", Call("1", (1, 2))) == key_digest("tool", {"args": [1, 2]})
    deep: Any = "x"
    for _ in range(250):
        deep = [deep]

    def down(frames: int) -> Any:
        return down(frames - 1) if frames else policy.key("tool", deep)

    limit = sys.getrecursionlimit()
    assert down(limit - 300) == key_digest("tool", deep)
    with pytest.raises(CanonicalizationError, match="/args"):
        policy.key("tool", {"id": 1, "args": object()})
    with pytest.raises(CanonicalizationError):
        policy.key("tool", {"x": {1: 2}})


def test_threads_share_a_policy() -> None:
    policy = MatchPolicy.of(list(READY_MADE))
    identities = [{"model": "m", "a": {f"k{n}": [f"{UUID}{n % 10}", {"tool_call_id": str(n)}]}} for n in range(200)]
    expected = [MatchPolicy.of(list(READY_MADE)).key("model", identity) for identity in identities]
    results: list[list[bytes]] = []
    threads = [
        threading.Thread(target=lambda: results.append([policy.key("model", identity) for identity in identities]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_many_combinations_of_places_do_not_pile_up() -> None:
    policy = MatchPolicy("x", rules=[ignore("/**/a" + "/*" * 16 + "/z")])
    for number in range(300):
        value: Any = {"z": 1}
        for bit in range(40):
            value = {"a" if number >> (bit % 12) & 1 else "b": value}
        policy.key("tool", value)
    plan = policy._plan("tool", {})
    assert plan is not None
    assert len(plan._states) < 5000


@pytest.mark.parametrize(
    ("match", "said"),
    [
        ("uuid", "did you mean 'uuids'?"),
        (7, "not int"),
        ([7], "not int"),
        ({"name": "x"}, "name, version"),
        ({"name": "x", "version": 1, "rules": [{"rule": "new"}]}, "newer version"),
    ],
)
def test_what_is_no_policy(match: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        MatchPolicy.of(match)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: [ignore()], "at"),
        (lambda: [ignore("a")], "JSON pointer"),
        (lambda: [replace("a+", "b")], r"\{1,64\}"),
        (lambda: [replace(r"\d", "b")], r"\[0-9\]"),
        (lambda: [replace("(a)", "b")], "no groups"),
        (lambda: [replace("[0-9]{1,4}[0-9]", "b")], "takes itself"),
        (lambda: [replace("a", "é")], "printable ASCII"),
        (lambda: ["uuids"], r"ignore\(\)"),
    ],
)
def test_rules_that_cannot_be_written_down(make: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        MatchPolicy("x", rules=make())


def test_a_rule_of_a_later_version_says_so() -> None:
    with pytest.raises(FormatError) as caught:
        MatchPolicy.from_data({"name": "x", "version": 1, "rules": [{"rule": "round"}]}, where="there")
    assert caught.value.reason == "future_version"
    assert "upgrade" in str(caught.value)
    assert caught.value.where == "there"


@pytest.mark.parametrize(
    ("name", "yes", "no"),
    [
        ("uuid", [f"{UUID}0", f"{UUID}A".upper()], ["123e4567e89b12d3a456426614174000", f"{UUID}00", f"x{UUID}0"]),
        (
            "timestamp",
            ["2025-06-15T15:06:40Z", "2025-06-15 15:06:40.123456", "2025-06-15t15:06:40,1+02:00"],
            ["2025-06-15", "15:06:40", "2025-06-15T25", "2025-26-15T15:06"],
        ),
        (
            "message-id",
            ["msg_01XFDUDYJgAACzvnptvVoYEL", f"run-{UUID}0-0", f"lc_run--{UUID}0", "resp_" + "0a" * 24],
            ["msg_welcome", "run-42", "message", "msg_notification_email_template"],
        ),
        (
            "tool-call-id",
            ["call_Ab3", "toolu_01A09q90qw90lq917835lq9", "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q", "functions.search:0"],
            ["tool_1", "call-1", "recall_1"],
        ),
    ],
)  # fmt: skip
def test_ready_made_patterns(name: str, yes: list[str], no: list[str]) -> None:
    pattern = compile_pattern(PATTERNS[name])
    for text in yes:
        assert pattern.whole.fullmatch(text), text
        assert [found[0] for found in pattern.search.finditer(f"({text}) {text}, x{text}")] == [text, text]
    for text in no:
        assert not pattern.whole.fullmatch(text), text


def test_the_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "matching.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "matching.md", "exec"), names)
    table = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)
    assert {*table, "none"} == set(READY_MADE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(POLICIES, st.data())
def test_whatever_a_member_is_nothing_else_than_a_format_error(policy: MatchPolicy, data: st.DataObject) -> None:
    document: Any = policy.to_data()
    at = document if data.draw(st.booleans()) else data.draw(st.sampled_from(document["rules"]))
    at[data.draw(st.sampled_from([*at, "rule", "at", "with", "more"]))] = data.draw(JSON)
    try:
        again = MatchPolicy.from_data(document)
    except FormatError:
        with pytest.raises(Refused):
            rpk_match.check_policy(document)
        return
    assert again.to_data() == document
    rpk_match.check_policy(document)


def test_rules_that_feed_each_other_end_in_an_error_and_not_in_all_memory() -> None:
    rules = [{"rule": "replace", "pattern": "a", "with": "a-" * 31 + "a"}] * 64
    hostile = MatchPolicy.from_data({"name": "x", "version": 1, "rules": rules})
    with pytest.raises(CanonicalizationError, match="100 times"):
        hostile.key("tool", {"x": ["b", "a a"]})
    hostile.key("tool", {"x": ["b", "aa"]})
    # One rule alone may put as much as it can, and many may shorten.
    longest = MatchPolicy("x", rules=[replace("a", "-" * 63 + "b")])
    assert len(longest.apply("tool", "a " * 1000)) == 65_000
    for order in ([0, 1], [1, 0]):
        two = [replace("[0-9]{1,3}", "<number>"), renumber("[a-z]{1,4}", "<word-#>")]
        assert MatchPolicy("x", rules=[two[n] for n in order]).apply("tool", "1 a " * 2000)
