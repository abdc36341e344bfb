"""Where two values differ, by JSON pointer. Pure: values in, differences out."""

from __future__ import annotations

import json
from collections import Counter
from difflib import SequenceMatcher
from typing import Any, Literal, TypeAlias

import msgspec

from replaypack import values
from replaypack._escape import escape, unsafe
from replaypack._plain import Path, on_fresh_stack, pointer
from replaypack.canonical import canonical_json
from replaypack.errors import CanonicalizationError
from replaypack.format.digests import digest
from replaypack.tagged import jsonable
from replaypack.values import ABSENT

__all__ = ["Difference", "What", "differences", "shown_value"]

What: TypeAlias = Literal["changed", "added", "removed", "type"]

#: Pairs of values that are looked at one by one. What lies beyond is told apart as a whole.
_MAX_PAIRS = 50_000
#: Bytes of the elements of lists that are digested to align them.
_MAX_DIGESTED = 256 << 20
#: Elements of two lists that may be aligned, and pairs of equal ones among them; beyond, the place decides.
_MAX_ALIGNED = 1000
_MAX_EQUAL = 20_000
_BLOCK = 4096
#: Characters that are shown before the place where two strings part.
_BEFORE = 20


class Difference(msgspec.Struct, frozen=True):
    """One place where two values differ.

    ``pointer`` is a JSON pointer (RFC 6901) into the new value; for what was removed, into the old one. ``what``:
    ``changed``, ``added``, ``removed``, or ``type`` where the two are not even of one JSON type. ``old`` and ``new``
    are the values there (`ABSENT` where there is none). ``at``: of two strings, or two byte strings, the index of the
    first character, or byte, that differs.
    """

    pointer: str
    what: What
    old: Any = ABSENT
    new: Any = ABSENT
    at: int | None = None

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 60) -> str:
        """One line for people. Values are cut to about ``width`` characters; invisible characters are escaped."""
        place = f"`{escape(self.pointer)}`" if self.pointer else "the whole value"
        if self.what == "added":
            return f"{place} is new: {shown_value(self.new, width)}"
        if self.what == "removed":
            return f"{place} is gone: {shown_value(self.old, width)}"
        if self.at is not None:
            unit = "character" if isinstance(self.new, str) else "byte"
            old, new = (_around(value, self.at, width) for value in (self.old, self.new))
            return f"{place} differs at {unit} {self.at}: {old} → {new}"
        if self.what == "type":
            old, new = (f"{_type(value)} {shown_value(value, width)}" for value in (self.old, self.new))
            return f"{place} is of another type: {old} → {new}"
        return f"{place} differs: {shown_value(self.old, width)} → {shown_value(self.new, width)}"

    def to_dict(self, width: int = 2000) -> dict[str, Any]:
        """The same as JSON. A value whose JSON has more than ``width`` characters is given as text, cut."""
        result: dict[str, Any] = {"pointer": self.pointer, "what": self.what}
        for label, value in (("old", self.old), ("new", self.new)):
            if value is not ABSENT:
                size = len(value) if isinstance(value, str | bytes) else len(values.encode(value))
                if size <= width:
                    result[label] = jsonable(value)
                else:
                    result[label + "_cut"] = _around(value, self.at or 0, width)
        if self.at is not None:
            result["at"] = self.at
        return result


def differences(old: object, new: object, *, limit: int | None = None) -> list[Difference]:
    """Return where two plain values differ, in document order, at most ``limit`` of them.

    Values are equal by the rules of canonical JSON: ``1`` and ``1.0`` are, ``True`` and ``1`` are not, and the order
    of a map says nothing. (NaN equals NaN here.) Lists are aligned: an element put in is one that was added. In values
    of very many parts those beyond the first are told apart as a whole, so that the work has a bound.
    """
    walk = _Walk(limit)
    on_fresh_stack(lambda: walk.restart(old, new))
    return walk.found


class _Enough(Exception):
    """As many differences as were asked for."""


class _Walk:
    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.restart_at = (_MAX_PAIRS, _MAX_DIGESTED)

    def restart(self, old: Any, new: Any) -> None:
        self.found: list[Difference] = []
        self.pairs, self.digested = self.restart_at
        try:
            if self.limit != 0:
                self.compare(old, new, None, None)
        except _Enough:
            pass

    def add(self, what: What, path: Path, old: Any = ABSENT, new: Any = ABSENT, at: int | None = None) -> None:
        self.found.append(Difference(pointer(path), what, old, new, at))
        if self.limit is not None and len(self.found) >= self.limit:
            raise _Enough

    def compare(self, old: Any, new: Any, before: Path, after: Path) -> None:
        if old is new:
            return
        kind = _type(old)
        if kind != _type(new):
            self.add("type", after, old, new)
            return
        if kind in ("string", "bytes"):
            if old != new:
                self.add("changed", after, old, new, _parting(old, new))
            return
        if kind not in ("object", "array"):
            if _token(old) != _token(new):
                self.add("changed", after, old, new)
            return
        self.pairs -= 1
        if self.pairs < 0:
            if values.encode(old) != values.encode(new) and _token(old) != _token(new):
                self.add("changed", after, old, new)
        elif kind == "object":
            self.compare_maps(old, new, before, after)
        else:
            self.compare_lists(old, new, before, after)

    def compare_maps(self, old: Any, new: Any, before: Path, after: Path) -> None:
        # By token, since Python takes the keys 1, 1.0 and True for one.
        others = {_token(key): (key, value) for key, value in new.items()}
        self.pairs -= len(old)
        for key, value in old.items():
            other = others.pop(_token(key), None)
            if other is None:
                self.add("removed", (before, key), value)
            else:
                self.compare(value, other[1], (before, key), (after, other[0]))
        for key, value in others.values():
            self.add("added", (after, key), new=value)

    def compare_lists(self, old: Any, new: Any, before: Path, after: Path) -> None:
        self.pairs -= min(len(old), len(new))
        for tag, low, high, first, last in self.align(old, new):
            if tag == "equal":
                continue
            both = min(high - low, last - first)
            for step in range(both):
                self.compare(old[low + step], new[first + step], (before, low + step), (after, first + step))
            for index in range(low + both, high):
                self.add("removed", (before, index), old[index])
            for index in range(first + both, last):
                self.add("added", (after, index), new=new[index])

    def align(self, old: Any, new: Any) -> list[tuple[str, int, int, int, int]]:
        """Which slices of two lists belong together, as `SequenceMatcher.get_opcodes` says it."""
        whole = [("replace", 0, len(old), 0, len(new))]
        if len(old) == len(new) == 1 or not old or not new or self.pairs < 0:
            return whole
        left, right = self.tokens(old), self.tokens(new)
        if left is None or right is None:
            return whole
        start = 0
        while start < min(len(left), len(right)) and left[start] == right[start]:
            start += 1
        end = 0
        while end < min(len(left), len(right)) - start and left[-1 - end] == right[-1 - end]:
            end += 1
        left, right = left[start : len(left) - end], right[start : len(right) - end]
        middle = [("replace", 0, len(left), 0, len(right))]
        counts = Counter(right)
        equal = sum(map(counts.__getitem__, left))
        if equal and equal <= _MAX_EQUAL and len(left) <= _MAX_ALIGNED and len(right) <= _MAX_ALIGNED:
            self.pairs -= equal + len(left) + len(right)
            middle = list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
        return [(tag, i + start, j + start, k + start, m + start) for tag, i, j, k, m in middle]

    def tokens(self, items: Any) -> list[Any] | None:
        """What tells the elements of a list apart; None where that is too much work."""
        result = []
        for item in items:
            token = _token(item)
            if token[0] in ("object", "array"):
                self.digested -= token[1]
                self.pairs -= 1
            if self.digested < 0 or self.pairs < 0:
                return None
            result.append(token)
        return result


_TYPES = {bool: "boolean", str: "string", bytes: "bytes", int: "number", float: "number"}
_TYPES_MORE: dict[type, str] = {type(None): "null", dict: "object", list: "array", tuple: "array"}


def _type(value: Any) -> str:
    cls = type(value)
    return _TYPES.get(cls) or _TYPES_MORE.get(cls) or cls.__name__


def _token(value: Any) -> tuple[Any, ...]:
    """Equal for equal values, and only for those. That of a container names its size: (type, bytes, digest)."""
    kind = _type(value)
    if kind not in ("object", "array"):
        return (kind, "nan") if value != value else (kind, value)
    try:
        data = canonical_json(value)
    except CanonicalizationError:  # NaN, keys that are no text: equal encodings are equal values all the same
        data = values.encode(value)
    return kind, len(data), digest(data)


def _parting(old: Any, new: Any) -> int:
    """The index of the first item in which two sequences of one type differ."""
    start = 0
    while old[start : start + _BLOCK] == new[start : start + _BLOCK]:
        start += _BLOCK
    least = min(len(old), len(new))
    while start < least and old[start] == new[start]:
        start += 1
    return start


# Text


def shown_value(value: Any, width: int) -> str:
    """A value as JSON on one line, cut."""
    if isinstance(value, str | bytes):
        return _around(value, 0, width)
    text = json.dumps(_cut(value, width), ensure_ascii=False, allow_nan=False)
    text = "".join(json.dumps(char)[1:-1] if unsafe(char) else char for char in text)
    return text if len(text) <= width else text[: width - 1] + "…"


def _cut(value: Any, width: int) -> Any:
    """About as much of a value as ``width`` characters can show, as JSON."""
    if isinstance(value, str | bytes):
        return jsonable(value[: width + 1])
    if isinstance(value, dict):
        part: dict[Any, Any] = {}
        for key, item in value.items():
            if width <= 0:
                part["…"] = len(value) - len(part)
                break
            name = key if isinstance(key, str) else str(jsonable(key))
            part[escape(name[:80])] = _cut(item, width - len(name) - 4)
            width -= len(name) + 4 + _weight(item)
        return part
    if isinstance(value, list | tuple):
        items: list[Any] = []
        for item in value:
            if width <= 0:
                items.append("…")
                break
            items.append(_cut(item, width))
            width -= 2 + _weight(item)
        return items
    return jsonable(value)


def _weight(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else 4


def _around(value: Any, at: int, width: int) -> str:
    """The part of a string, or byte string, around an index, quoted."""
    if not isinstance(value, str | bytes):
        return shown_value(value, width)
    start = max(0, at - _BEFORE) if at > _BEFORE + 4 else 0
    end = min(len(value), start + width)
    if len(value) - end <= 4:
        end = len(value)
    part = value[start:end]
    if isinstance(part, bytes):
        text = f'"{part.hex()}" (hex)'
    else:
        text = json.dumps(part, ensure_ascii=False)
        text = "".join(json.dumps(char)[1:-1] if unsafe(char) else char for char in text)
    return ("…" if start else "") + text + (f"… ({len(value)} long)" if end < len(value) else "")
