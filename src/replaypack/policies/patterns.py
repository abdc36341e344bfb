"""Patterns of match policies: a small language that every implementation matches alike (spec chapter 03, "Patterns").

A pattern is alternatives of characters and classes with bounded counts, in printable ASCII. An element takes as many
characters as it can and gives none back; a rule of the language makes that the same as what any other engine finds
for the element alone. So matching is linear, and needs nothing that dialects of regular expressions differ in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

__all__ = ["MAX_COUNT", "MAX_LENGTH", "MAX_TEXT", "Pattern", "PatternError", "compile_pattern"]

#: Characters that a pattern may have, that one count may ask for, and that one alternative may match.
MAX_TEXT = 2048
MAX_COUNT = 128
MAX_LENGTH = 256
_SPECIAL = frozenset("\\[](){}|?*+.^$")
_IN_CLASS = frozenset("\\[]^-")
_COUNT = re.compile(r"\{(0|[1-9][0-9]{0,2})(?:,([1-9][0-9]{0,2}))?\}")
_HINTS = {
    "*": "write a bound, as in {0,64}",
    "+": "write a bound, as in {1,64}",
    ".": r"write \. for a point, or a class for what may stand there",
    "(": "there are no groups: write alternatives out, or \\( for the character",
    "^": "there are no anchors: a match never begins or ends within a word",
    "$": "there are no anchors: a match never begins or ends within a word",
}


class PatternError(ValueError):
    """A pattern that is not in the language; the message says where and what to write instead."""


class _Element(NamedTuple):
    chars: frozenset[str]
    least: int
    most: int


class Pattern:
    """A compiled pattern. ``cost`` is the most characters that a search looks at from one place in a text, ``longest``
    the most that a match has. ``needles``: a text that contains none of them has no match; empty where that cannot
    be told.
    """

    def __init__(self, text: str, alternatives: list[list[_Element]]) -> None:
        self.text = text
        self.cost = sum(element.most for elements in alternatives for element in elements)
        self.longest = max(sum(element.most for element in elements) for elements in alternatives)
        literals = [_literal(elements) for elements in alternatives]
        self.needles = tuple(dict.fromkeys(literals)) if all(literals) else ()
        self._alternatives = alternatives

    # Made when first asked for: whoever opens a recording parses its policy, and may never look anything up.

    @cached_property
    def whole(self) -> re.Pattern[str]:
        """For `fullmatch`: a string that matches as a whole."""
        return re.compile("|".join("".join(map(_expression, elements)) for elements in self._alternatives))

    @cached_property
    def search(self) -> re.Pattern[str]:
        """For `sub` and `finditer`: matches in a text."""
        # Not inside of a word: where a match begins (ends) with a word character, none stands before (behind) it.
        before = "(?:(?<![A-Za-z0-9_])|(?![A-Za-z0-9_]))"
        behind = "(?:(?![A-Za-z0-9_])|(?<![A-Za-z0-9_]))"
        return re.compile(f"{before}(?:{self.whole.pattern}){behind}")


def _expression(element: _Element) -> str:
    one = "".join(map(re.escape, sorted(element.chars)))
    if len(element.chars) > 1:
        one = f"[{one}]"
    if element.least == element.most:
        return one if element.least == 1 else f"{one}{{{element.least}}}"
    return f"{one}{{{element.least},{element.most}}}+"


def _literal(elements: list[_Element]) -> str:
    """The longest run of characters that every match has."""
    best = run = ""
    for element in elements:
        if len(element.chars) == 1 and element.least == element.most:
            run += next(iter(element.chars)) * element.least
            best = max(best, run, key=len)
        else:
            run = ""
    return best


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Parse a pattern. Raises `PatternError`."""
    if not text or len(text) > MAX_TEXT:
        raise PatternError(f"a pattern has 1 to {MAX_TEXT} characters, not {len(text)}")
    for at, char in enumerate(text):
        if not " " <= char <= "~":
            raise PatternError(f"character {at} of a pattern is not printable ASCII")
    alternatives = []
    elements: list[_Element] = []
    at = 0
    while at < len(text):
        if text[at] == "|":
            alternatives.append(elements)
            elements = []
            at += 1
            continue
        chars, at = _atom(text, at)
        least, most, at = _count(text, at)
        elements.append(_Element(chars, least, most))
    alternatives.append(elements)
    for elements in alternatives:
        _check(elements, text)
    return Pattern(text, alternatives)


def _refuse(text: str, at: int, why: str, hint: str | None = None) -> PatternError:
    return PatternError(f"character {at} of pattern {text!r}: {why}" + (f" ({hint})" if hint else ""))


def _atom(text: str, at: int) -> tuple[frozenset[str], int]:
    char = text[at]
    if char == "[":
        return _class(text, at + 1)
    if char == "\\":
        return frozenset(_escaped(text, at)), at + 2
    if char in _SPECIAL:
        raise _refuse(text, at, f"{char!r} is not part of the language of patterns here", _HINTS.get(char))
    return frozenset(char), at + 1


def _escaped(text: str, at: int) -> str:
    if at + 1 == len(text) or text[at + 1].isalnum():
        raise _refuse(
            text, at, "a backslash stands before punctuation only", "write a class such as [0-9] or [A-Za-z0-9_]"
        )
    return text[at + 1]


def _class(text: str, at: int) -> tuple[frozenset[str], int]:
    """The class that begins behind the bracket at ``at - 1``."""
    start = at
    chars: set[str] = set()
    while at < len(text) and text[at] != "]":
        low, at = _class_char(text, at, start)
        if at + 1 < len(text) and text[at] == "-" and text[at + 1] != "]":
            high, end = _class_char(text, at + 1, start)
            if high < low:
                raise _refuse(text, at, f"the range {low}-{high} is empty")
            chars.update(map(chr, range(ord(low), ord(high) + 1)))
            at = end
        else:
            chars.add(low)
    if at == len(text) or not chars:
        raise _refuse(text, start - 1, "a class without an end, or without characters")
    return frozenset(chars), at + 1


def _class_char(text: str, at: int, start: int) -> tuple[str, int]:
    char = text[at]
    if char == "\\":
        return _escaped(text, at), at + 2
    # A hyphen stands for itself where it cannot be a range: first or last.
    if char in _IN_CLASS and not (char == "-" and (at == start or text[at + 1 : at + 2] == "]")):
        hint = "list what is allowed" if char == "^" else f"write \\{char}"
        raise _refuse(text, at, f"{char!r} in a class", hint)
    return char, at + 1


def _count(text: str, at: int) -> tuple[int, int, int]:
    if text[at : at + 1] == "?":
        least, most, end = 0, 1, at + 1
    elif text[at : at + 1] == "{":
        found = _COUNT.match(text, at)
        if found is None:
            raise _refuse(text, at, "not a count", "write {4} or {1,64}")
        least = int(found[1])
        most, end = int(found[2] or found[1]), found.end()
    else:
        return 1, 1, at
    if not least <= most <= MAX_COUNT or most == 0:
        raise _refuse(text, at, f"a count is from 1 to {MAX_COUNT}, the lower one first")
    if text[end : end + 1] in ("?", "{"):
        raise _refuse(text, end, "a count of a count")
    return least, most, end


def _check(elements: list[_Element], text: str) -> None:
    if not any(element.least for element in elements):
        raise PatternError(f"an alternative of pattern {text!r} matches the empty text")
    if sum(element.most for element in elements) > MAX_LENGTH:
        raise PatternError(f"an alternative of pattern {text!r} may match more than {MAX_LENGTH} characters")
    for number, element in enumerate(elements):
        if element.least == element.most:
            continue
        for later in _reach(elements[number + 1 :]):
            both = element.chars & later.chars
            if both:
                raise PatternError(
                    f"pattern {text!r}: what follows an element of variable length begins with {min(both)!r}, "
                    "which that element takes itself"
                )


def _reach(elements: list[_Element]) -> Iterator[_Element]:
    """The elements of which one comes next: up to the first that is always there."""
    for element in elements:
        yield element
        if element.least:
            return
