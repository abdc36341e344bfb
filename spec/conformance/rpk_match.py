"""Match policies and their patterns (sections 3.5 and 3.6), from the specification alone."""

from __future__ import annotations

import re
from typing import Any

from rpk import canonical, digest, integer, need

WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
Element = tuple[frozenset[str], int, int]
Pattern = list[list[Element]]
RULES = {
    "ignore": ({"rule", "at"}, {"kinds", "names"}),
    "replace": ({"rule", "pattern", "with"}, {"at", "whole", "kinds", "names"}),
    "renumber": ({"rule", "pattern", "with"}, {"at", "whole", "kinds", "names"}),
}


# 3.6 Patterns


def parse_pattern(text: str) -> Pattern:
    need(re.fullmatch("[ -~]{1,2048}", text), "characters of a pattern")
    alternatives: Pattern = [[]]
    at = 0
    while at < len(text):
        if text[at] == "|":
            alternatives.append([])
            at += 1
            continue
        characters, at = parse_atom(text, at)
        low = high = 1
        if text[at : at + 1] == "?":
            low, at = 0, at + 1
        elif text[at : at + 1] == "{":
            count = re.match(r"\{(0|[1-9][0-9]{0,2})(,(0|[1-9][0-9]{0,2}))?\}", text[at:])
            need(count, "count")
            low, high = int(count[1]), int(count[3] or count[1])  # type: ignore[index]
            at += len(count[0])  # type: ignore[index]
        need(low <= high and 1 <= high <= 128, "count")
        need(text[at : at + 1] not in ("?", "{"), "count of a count")
        alternatives[-1].append((characters, low, high))
    for elements in alternatives:
        need(any(low for _, low, _ in elements), "an empty alternative")
        need(sum(high for _, _, high in elements) <= 256, "a long alternative")
        for number, (characters, low, high) in enumerate(elements):
            for later, least, _ in elements[number + 1 :] if low < high else ():
                need(not characters & later, "what an element takes, and the next one needs")
                if least:
                    break
    return alternatives


def parse_atom(text: str, at: int) -> tuple[frozenset[str], int]:
    if text[at] == "\\":
        return frozenset(escaped(text, at)), at + 2
    if text[at] != "[":
        need(text[at] not in "[](){}|?*+.^$", "plain character")
        return frozenset(text[at]), at + 1
    # A class: cut into its members first, then read ranges.
    start, parts = at + 1, []
    at = start
    while text[at : at + 1] not in ("]", ""):
        size = 2 if text[at] == "\\" else 1
        parts.append(escaped(text, at) if size == 2 else text[at])
        if size == 1:
            need(text[at] not in "[^", "character of a class")
            if text[at] == "-":
                parts[-1] = "--"  # one that may be the sign of a range
        at += size
    need(at < len(text) and parts, "class")
    found: set[str] = set()
    number = 0
    while number < len(parts):
        first = parts[number]
        if first == "--":
            need(number in (0, len(parts) - 1), "hyphen in a class")
            first = "-"
        if parts[number + 1 : number + 2] == ["--"] and number + 2 < len(parts):
            last = parts[number + 2]
            if last == "--":
                need(number + 3 == len(parts), "hyphen in a class")
                last = "-"
            need(first <= last, "range")
            found.update(map(chr, range(ord(first), ord(last) + 1)))
            number += 3
        else:
            found.add(first)
            number += 1
    return frozenset(found), at + 1


def escaped(text: str, at: int) -> str:
    need(at + 1 < len(text) and not text[at + 1].isalnum(), "escape")
    return text[at + 1]


def match_at(elements: list[Element], text: str, at: int) -> int:
    """Where a match that begins at ``at`` ends; -1 for none."""
    for characters, low, high in elements:
        taken = 0
        while taken < high and at < len(text) and text[at] in characters:
            taken, at = taken + 1, at + 1
        if taken < low:
            return -1
    return at


def matches(pattern: Pattern, text: str) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(text):
        for elements in pattern:
            end = match_at(elements, text, at)
            before = at > 0 and text[at] in WORD and text[at - 1] in WORD
            if end > at and not before and not (end < len(text) and text[end - 1] in WORD and text[end] in WORD):
                found.append((at, end))
                at = end
                break
        else:
            at += 1
    return found


# 3.5 Match policies


def check_policy(policy: Any) -> None:
    need(isinstance(policy, dict), "policy")
    need({"name", "version"} <= set(policy) <= {"name", "version", "rules"}, "members of a policy")
    need(isinstance(policy["name"], str) and re.fullmatch("[A-Za-z0-9][A-Za-z0-9._+-]{0,127}", policy["name"]), "name")
    need(integer(policy["version"], 1, 2**32 - 1), "version")
    none = policy["name"] == "none"
    need(none is ("rules" not in policy) and (not none or policy["version"] == 1), "none")
    if none:
        return
    need(isinstance(policy["rules"], list) and 0 < len(policy["rules"]) <= 64, "rules")
    cost = places = 0
    for rule in policy["rules"]:
        need(isinstance(rule, dict) and isinstance(rule.get("rule"), str), "rule")
        need(rule["rule"] in RULES, "rule of another version", "format.future_version")
        needed, optional = RULES[rule["rule"]]
        need(needed <= set(rule) <= needed | optional, "members of a rule")
        for member in {"at", "kinds", "names"} & set(rule):
            texts = rule[member]
            need(isinstance(texts, list) and all(isinstance(text, str) for text in texts), member)
            need(0 < len(texts) <= 256 and len(set(texts)) == len(texts), member)
            need(not any(len(text) > 1024 or re.search("[\ud800-\udfff]", text) for text in texts), member)
        for place in rule.get("at", ()):
            places += 1
            need(re.fullmatch(r"(/([^~/]|~0|~1)*)+", place, re.S), "place")
            tokens = place[1:].split("/")
            need("**" not in tokens[1:], "** that is not first")
            need(tokens[0] != "**" or (len(tokens) > 1 and tokens[1] != "*"), "** alone")
        if rule["rule"] != "ignore":
            need(isinstance(rule["with"], str) and re.fullmatch("[ -~]{0,64}", rule["with"]), "with")
            need(rule["rule"] == "replace" or rule["with"].count("#") == 1, "#")
            need(rule.get("whole", True) is True, "whole")
            need(isinstance(rule["pattern"], str), "pattern")
            pattern = parse_pattern(rule["pattern"])
            cost += 0 if "whole" in rule else sum(high for elements in pattern for _, _, high in elements)
    need(cost <= 2048 and places <= 256, "too much")


def covers(place: list[str], path: list[str]) -> bool:
    """Whether a place is ``path`` or something around it."""
    if place[0] == "**":
        return any(covers(place[1:], path[start:]) for start in range(len(path)))
    return len(place) <= len(path) and all(
        token == "*" or token.replace("~1", "/").replace("~0", "~") == step
        for token, step in zip(place, path, strict=False)
    )


def applied(policy: dict[str, Any], kind: str, identity: Any) -> Any:
    """What counts of an identity. One rule after the other, as the text has it."""
    name = None
    if isinstance(identity, dict):
        name = next((identity[m] for m in ("name", "model") if isinstance(identity.get(m), str)), None)
    rules = [
        rule
        for rule in policy.get("rules", ())
        if kind in rule.get("kinds", [kind]) and ("names" not in rule or name in rule["names"])
    ]
    numbers: dict[str, int] = {}

    def here(rule: dict[str, Any], path: list[str]) -> bool:
        return "at" not in rule or any(covers(place[1:].split("/"), path) for place in rule["at"])

    def ignored(path: list[str]) -> bool:
        return any(rule["rule"] == "ignore" and here(rule, path) for rule in rules)

    def visit(value: Any, path: list[str]) -> Any:
        if isinstance(value, list):
            steps = [(child, [*path, str(number)]) for number, child in enumerate(value)]
            return [None if ignored(step) else visit(child, step) for child, step in steps]
        if isinstance(value, dict):
            keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
            return {key: visit(value[key], [*path, key]) for key in keys if not ignored([*path, key])}
        if isinstance(value, str):
            return changed(value, path)
        return value

    def changed(text: str, path: list[str]) -> str:
        longest = 100 * len(text)
        for rule in rules:
            if rule["rule"] == "ignore" or not here(rule, path):
                continue
            pattern = parse_pattern(rule["pattern"])
            if "whole" in rule:
                spans = [(0, len(text))] if any(match_at(e, text, 0) == len(text) for e in pattern) else []
            else:
                spans = matches(pattern, text)
            out, end = "", 0
            for start, stop in spans:
                new = rule["with"]
                if rule["rule"] == "renumber":
                    new = new.replace("#", str(numbers.setdefault(text[start:stop], len(numbers) + 1)))
                out, end = out + text[end:start] + new, stop
            text = out + text[end:]
            need(len(text) <= longest, "growth of a text", "canonical.unsupported")
        return text

    return visit(identity, [])


def key_of(policy: dict[str, Any], kind: str, identity: Any) -> bytes:
    return digest(f"[{canonical(kind)},{canonical(applied(policy, kind, identity))}]".encode())
