"""Vectors of match policies and their patterns. Used by ``generate.py``."""

from __future__ import annotations

from typing import Any

from build_valid import Vector

from replaypack.canonical import canonical_json
from replaypack.policies.matching import MatchPolicy, Rule, ignore, renumber, replace
from replaypack.policies.patterns import compile_pattern
from replaypack.policies.ready import READY_MADE
from replaypack.values import encode

UUIDS = [f"123e4567-e89b-12d3-a456-42661417400{n}" for n in range(4)]
CALLS = ["call_Ab3dEf6hIj", "call_Zz9yXx8wVv"]


def _custom(*rules: Rule) -> MatchPolicy:
    return MatchPolicy("x", rules=rules)


def _chat(first: str, second: str, asked: str) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [{"id": first, "type": "function"}, {"id": second}]},
            {"role": "tool", "tool_call_id": asked, "content": f"of {asked}"},
        ],
    }


def _valid() -> dict[str, tuple[MatchPolicy, str, Any]]:
    ready = MatchPolicy.of
    nested = {"a": {"b": [{"c": 1, "d": 2}, {"c": 3}], "c": 4}, "c": 5}
    texts = {"b": "x1 x2", "a": ["x2", "x3x", {"z": "x1"}], "x9": "x9"}
    ids = r"x[0-9]{1,8}"
    return {
        "none": (ready("none"), "tool", {"id": UUIDS[0]}),
        "ignore a member": (_custom(ignore("/a/c")), "tool", nested),
        "ignore an element": (_custom(ignore("/a/b/0")), "tool", nested),
        "ignore an element and what is in others": (_custom(ignore("/a/b/0", "/a/b/*/c")), "tool", nested),
        "ignore at any depth": (_custom(ignore("/**/c")), "tool", nested),
        "ignore everything in a member of an array": (_custom(ignore("/**/b/*/d")), "tool", nested),
        "ignore what is not there": (_custom(ignore("/a/x", "/a/b/7", "/c/0")), "tool", nested),
        "ignore by a key with escapes": (_custom(ignore("/a~1b/~0")), "tool", {"a/b": {"~": 1, "~0": 2}, "a": 3}),
        "ignore the empty key": (_custom(ignore("/")), "tool", {"": 1, " ": 2}),
        "ignore a key of digits": (_custom(ignore("/*/1")), "tool", {"x": {"1": 1, "01": 2}, "y": [3, 4, 5]}),
        "ignore in an identity that is no container": (_custom(ignore("/a")), "tool", "text"),
        "ignore the only member": (_custom(ignore("/$bytes")), "tool", {"$bytes": 1}),
        "an escape for bytes that ignoring made": (_custom(ignore("/a")), "tool", {"$bytes": 1, "a": 2}),
        "a kind": (_custom(ignore("/c", kinds=["tool"])), "tool", nested),
        "another kind": (_custom(ignore("/c", kinds=["model", "http"])), "tool", nested),
        "a name": (_custom(ignore("/id", names=["f"])), "tool", {"name": "f", "id": 1}),
        "another name": (_custom(ignore("/id", names=["f"])), "tool", {"name": "g", "model": "f", "id": 1}),
        "a model": (_custom(ignore("/id", names=["f"])), "model", {"name": None, "model": "f", "id": 1}),
        "a name where there is none": (_custom(ignore("/0", names=["f"])), "tool", ["f"]),
        "replace everywhere": (_custom(replace(ids, "<id>")), "tool", texts),
        "replace at a place and inside of it": (_custom(replace(ids, "<id>", at="/a")), "tool", texts),
        "replace whole strings": (_custom(replace(ids, "<id>", whole=True)), "tool", texts),
        "replace by nothing": (_custom(replace("x1 ?", "")), "tool", texts),
        "replace beside letters of other scripts": (_custom(replace("[a-z]{1,9}", "-")), "tool", "éab Жcd_ ef😀gh"),
        "replace in a lone surrogate's neighbourhood": (_custom(replace("a", "b")), "tool", "\ud800a a\udfff"),
        "each rule works on what the one before made": (
            _custom(replace("a", "b"), replace("b", "c"), replace("a", "d")),
            "tool",
            "a b c",
        ),
        "renumber": (_custom(renumber(ids, "<#>")), "tool", texts),
        "renumber in the order of UTF-16": (_custom(renumber(ids, "<#>")), "tool", {"\ufb33": "x1", "😂": "x2"}),
        "renumber, ids in another order": (_custom(renumber(ids, "<#>")), "tool", {**texts, "a": ["x1", "x2"]}),
        "renumber what looks numbered": (_custom(renumber(ids, "x#")), "tool", ["x7", "x1", "x7"]),
        "numbers are not given to what is ignored": (
            _custom(renumber(ids, "<#>"), ignore("/a/0")),
            "tool",
            texts,
        ),
        "one numbering for two rules": (
            _custom(renumber(ids, "<#>", at="/b"), renumber("z[0-9]{1,8}", "z#")),
            "tool",
            ["z1", {"b": "x1"}, "z1", "z2"],
        ),
        "the second of two rules finds what the first one put there": (
            _custom(renumber(ids, "x#"), renumber("[xz][0-9]{1,8}", "x#")),
            "tool",
            ["x5 z5", "z5 x5", "z5"],
        ),
        "two rules that find the same": (
            _custom(renumber("[xy][0-9]", "x#."), renumber("[yz][0-9]", "#z")),
            "tool",
            "z5 x5 y6 z5",
        ),
        "bytes and keys stay": (_custom(renumber("[a-z]{1,8}", "#")), "tool", {"ab": b"ab", "cd": "ab"}),
        "numbers and null stay": (_custom(replace("[0-9]{1,8}", "#")), "tool", [1, 1.5, None, True, "1"]),
        "tool call ids": (ready("tool-call-ids"), "model", _chat(*CALLS, CALLS[1])),
        "tool call ids, made anew": (ready("tool-call-ids"), "model", _chat("D681PevKs", UUIDS[0], UUIDS[0])),
        "tool call ids, exchanged": (ready("tool-call-ids"), "model", _chat(*CALLS, CALLS[0])),
        "tool call ids beside other ids": (
            ready("tool-call-ids"),
            "model",
            [{"content": [{"id": "toolu_01A09q90qw90lq917835lq9"}, {"id": "user-42"}]}, {"call_id": "C-17"}],
        ),
        "uuids": (ready("uuids"), "tool", {"a": UUIDS[0], "b": f"{UUIDS[1]}, {UUIDS[0]}x {UUIDS[0].upper()}"}),
        "timestamps": (
            ready("timestamps"),
            "tool",
            "2025-06-15T15:06:40Z 2025-06-15 15:06:40.123456+02:00, 2025-06-15T15:06; 2025-06-15 2025-16-15T15:06:40Z",
        ),
        "message ids": (
            ready("message-ids"),
            "model",
            {
                "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
                "of": [f"run-{UUIDS[0]}-0", f"lc_run--{UUIDS[1]}", "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT"],
                "text": "msg_01XFDUDYJgAACzvnptvVoYEL is one",
                "other": "msg_welcome",
            },
        ),
        "all of them": (
            ready([name for name in READY_MADE if name != "none"]),
            "model",
            {**_chat(*CALLS, CALLS[0]), "id": f"run-{UUIDS[0]}", "user": UUIDS[0], "at": "2025-06-15T15:06:40Z"},
        ),
    }


def policies() -> Vector:
    cases = []
    for name, (policy, kind, identity) in _valid().items():
        cases.append(
            {
                "name": name,
                "policy": policy.to_data(),
                "kind": kind,
                "identity_msgpack": encode(identity).hex(),
                "canonical": canonical_json([kind, policy.apply(kind, identity)]).decode(),
                "key": policy.key(kind, identity).hex(),
            }
        )
    return {"about": "Match policies: what counts of an identity, and its key.", "cases": cases}


def patterns() -> Vector:
    items = {
        "a literal": ("call_1", "call_1 call_12 call_1"),
        "alternatives, the first that matches": ("ab|abc|b", "abc ab b"),
        "an alternative that a word cuts off": ("[0-9]{2}|[0-9]{2}x", "12x 12"),
        "as many as there are, and none back": ("[a-c]{1,2}-?", "ab ab- abc-"),
        "a longer word": ("[a-z]{1,3}", "abc abcd a"),
        "ends with what is no word character": ("#[0-9]{1,2}[.;]{0,2}", "a#1 #12.;; #123 ##4"),
        "one behind the other": ("-[0-9]", "-1-2-3"),
        "begins again behind a failure": ("aab", "aaab aab"),
        "escapes and classes": (r"[\]\\\^\-a]{1,4}\[\|", r"]\^-[| a[| ^["),
        "hyphens first and last": ("[-0]{2}[x-]", "0-x 00- --x"),
        "a range from punctuation": ("[+-9]{1,4}", "a 1+2 :"),
        "blanks": ("a {1,2}b", "a b a  b a   b"),
        "other scripts": ("[a-z]{1,9}", "éa bé жc ｄ d"),
        "the most there may be": ("[a-z]{128}[0-9]{128}", "x" * 128 + "1" * 128),
        "optional elements in a row": ("a?b?c", "abc ac bc c ab"),
    }
    cases = [
        {
            "name": name,
            "pattern": pattern,
            "text": text,
            "finds": [found.span() for found in compile_pattern(pattern).search.finditer(text)],
            "whole": compile_pattern(pattern).whole.fullmatch(text) is not None,
        }
        for name, (pattern, text) in items.items()
    ]
    about = "Patterns, and where they match: [start, end] in code points. `whole`: whether the text matches as a whole."
    return {"about": about, "cases": cases}


def refused_patterns() -> Vector:
    items = {
        "nothing": "",
        "an empty alternative": "a|",
        "an alternative that matches nothing": "a|b?",
        "no bound": "a*",
        "no bound, once at least": "a+",
        "any character": "a.",
        "a group": "(a)",
        "a lookahead": "a(?=b)",
        "an anchor": "^a",
        "an anchor at the end": "a$",
        "a back reference": r"a\1",
        "a class by letter": r"\d{4}",
        "a boundary": r"\ba",
        "a class that excludes": "[^a]",
        "an empty class": "[]",
        "a class without an end": "[a",
        "a range backwards": "[z-a]",
        "a range of a range": "[a-c-e]",
        "an opening bracket in a class": "[[a]",
        "a closing bracket alone": "a]",
        "a brace alone": "a}",
        "a count of nothing": "{2}",
        "a count of a count": "a{2}?",
        "a count of zero": "a{0}b",
        "a count backwards": "a{3,2}",
        "a count without an upper bound": "a{3,}",
        "a count without a lower bound": "a{,3}",
        "a count with a zero in front": "a{03}",
        "a count with a blank": "a{1, 3}",
        "a count of 129": "a{129}",
        "257 characters": "a{128}b{128}c",
        "a backslash at the end": "a\\",
        "a line break": "a\nb",
        "another script": "é",
        "what an element takes itself": "[0-9]{1,4}[0-9]",
        "what an element takes itself, behind an optional one": "[0-9]{1,4}x?[0-9]",
        "what an optional element takes itself": "a?a",
        "2,049 characters": "a|" * 1024 + "a",
    }
    cases = [{"name": name, "pattern": text, "error": "format.corrupted"} for name, text in items.items()]
    return {"about": "Patterns that must be refused.", "cases": cases}


def refused_policies() -> Vector:
    drop = {"rule": "ignore", "at": ["/a"]}
    put = {"rule": "replace", "pattern": "a", "with": "b"}
    many = "|".join(["[a-z]{128}"] * 16)  # 2,048 characters that may match

    def rule(**members: Any) -> dict[str, Any]:
        return {"name": "x", "version": 1, "rules": [{key: v for key, v in members.items() if v is not ...}]}

    def at(place: str) -> dict[str, Any]:
        return rule(**{**drop, "at": [place]})

    items: dict[str, Any] = {
        "no rules, and another name": {"name": "x", "version": 1},
        "no rules, and another version": {"name": "none", "version": 2},
        "none with rules": {"name": "none", "version": 1, "rules": [drop]},
        "an empty list of rules": {"name": "none", "version": 1, "rules": []},
        "rules that are no list": {"name": "x", "version": 1, "rules": drop},
        "65 rules": {"name": "x", "version": 1, "rules": [drop] * 65},
        "no name": {"version": 1, "rules": [drop]},
        "an empty name": {"name": "", "version": 1, "rules": [drop]},
        "a name with a blank": {"name": "a b", "version": 1, "rules": [drop]},
        "version 0": {"name": "x", "version": 0, "rules": [drop]},
        "version as text": {"name": "x", "version": "1", "rules": [drop]},
        "another member": {"name": "x", "version": 1, "rules": [drop], "more": 1},
        "a rule that is text": {"name": "x", "version": 1, "rules": ["uuids"]},
        "a rule without its kind": rule(at=["/a"]),
        "ignore without a place": rule(rule="ignore"),
        "ignore with a pattern": rule(**drop, pattern="a"),
        "no places": rule(rule="ignore", at=[]),
        "places that are text": rule(rule="ignore", at="/a"),
        "the same place twice": rule(rule="ignore", at=["/a", "/a"]),
        "the whole identity": at(""),
        "a place without a slash": at("a"),
        "an escape that is none": at("/a~2"),
        "** alone": at("/**"),
        "** before *": at("/**/*"),
        "** in the middle": at("/a/**/b"),
        "1,025 characters": at("/" + "a" * 1024),
        "a place too many": {
            "name": "x",
            "version": 1,
            "rules": [{"rule": "ignore", "at": [f"/{n}" for n in range(part)]} for part in (256, 1)],
        },
        "replace without a pattern": rule(rule="replace", **{"with": "a"}),
        "replace by null": rule(**{**put, "with": None}),
        "replace by a line break": rule(**{**put, "with": "\n"}),
        "replace by 65 characters": rule(**{**put, "with": "a" * 65}),
        "a number without a place": rule(**{**put, "rule": "renumber"}),
        "a number with two places": rule(**{**put, "rule": "renumber", "with": "##"}),
        "whole false": rule(**put, whole=False),
        "whole 1": rule(**put, whole=1),
        "a pattern that is no text": rule(**{**put, "pattern": ["a"]}),
        "a pattern that is none": rule(**{**put, "pattern": "(a+)+"}),
        "patterns of 2,049 characters": {"name": "x", "version": 1, "rules": [{**put, "pattern": many}, put]},
        "kinds that are null": rule(**drop, kinds=None),
        "names that are no text": rule(**drop, names=[1]),
        "no names": rule(**drop, names=[]),
    }
    cases = [{"name": name, "policy": policy, "error": "format.corrupted"} for name, policy in items.items()]
    future = {"name": "x", "version": 1, "rules": [drop, {"rule": "round", "at": ["/a"], "digits": 3}]}
    cases.append({"name": "a rule of a later version", "policy": future, "error": "format.future_version"})
    return {"about": "Match policies that must be refused.", "cases": cases}
