"""Differences inside two texts: the parts that were replaced, put in or taken out. Pure, and bounded."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import NamedTuple

__all__ = ["TextChange", "text_changes"]

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_WORD = re.compile(r"\w*")
_LINE = re.compile(r"[^\n]*")
#: Characters that a word or line may have to be taken whole.
_FAR = 120
#: Parts of two texts that are compared with each other; beyond, larger parts or the whole.
_MAX_PARTS = 600


class TextChange(NamedTuple):
    """A part of a text that differs: its place (characters) in the old and the new one, and what stands there."""

    old_at: int
    new_at: int
    old: str
    new: str


def text_changes(old: str, new: str) -> list[TextChange]:
    """Return where two texts differ, in order: by words, in long texts by lines, else as one change.

    The work is bounded whatever the texts are.
    """
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    if start == len(old) == len(new):
        return []
    for pattern, inner in ((_WORDS, _WORD), (_LINES, _LINE)):
        # Whole words, or lines: what two of them begin or end with alike belongs to them.
        low = start - _reach(old[max(0, start - _FAR) : start][::-1], inner)
        high = end - _reach(old[len(old) - end : len(old) - end + _FAR], inner)
        left, right = old[low : len(old) - high], new[low : len(new) - high]
        if max(len(left), len(right)) > 64 * _MAX_PARTS:
            continue
        parts = [pattern.findall(text) for text in (left, right)]
        if max(map(len, parts)) <= _MAX_PARTS:
            return _by_parts(parts[0], parts[1], low)
    return [TextChange(start, start, old[start : len(old) - end], new[start : len(new) - end])]


def _reach(text: str, inner: re.Pattern[str]) -> int:
    """How far a word, or line, goes on in a text; not at all where it goes on too far."""
    found = inner.match(text)
    return len(found[0]) if found is not None and len(found[0]) < _FAR else 0


def _by_parts(left: list[str], right: list[str], start: int) -> list[TextChange]:
    changes: list[TextChange] = []
    old_at = new_at = start
    space = ""
    for tag, low, high, first, last in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        old, new = "".join(left[low:high]), "".join(right[first:last])
        if tag == "equal":
            # A blank between two words that changed: one change is read more easily than two.
            space = old if changes and len(old) <= 2 and not old.strip() else ""
        elif space:
            before = changes[-1]
            changes[-1] = before._replace(old=before.old + space + old, new=before.new + space + new)
            space = ""
        else:
            changes.append(TextChange(old_at, new_at, old, new))
        old_at, new_at = old_at + len(old), new_at + len(new)
    return changes


def _common(old: str, new: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(old), len(new))
    if old[:high] == new[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle
    return low
