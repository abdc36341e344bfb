"""What a comparison leaves out: parts of records by JSON pointer, kinds, names, and whole classes of differences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from replaypack._plain import on_fresh_stack, pointer
from replaypack.errors import UsageError

__all__ = ["PARTS", "WORDS", "Ignore"]

#: What a record consists of: the first segment of a pointer.
PARTS = ("kind", "name", "scope", "status", "flags", "attributes", "scheme", "key", "request", "identity", "response")
#: Classes of differences that can be left out as a whole.
WORDS = ("added", "removed", "moved", "encoding")

_Pattern = tuple[str, ...]
_HINT = (
    "write a JSON pointer that begins with a part of a record (/request/messages/*/id, /response/**/id), "
    "kind:NAME, name:NAME, added, removed, moved or encoding"
)


class Ignore:
    """Parsed rules. In a pointer ``*`` stands for any one segment and ``**`` for any number of them; what it names is
    left out with all that is below.

    Raises `UsageError` for what is no rule.
    """

    def __init__(self, rules: str | Iterable[str] = ()) -> None:
        self.kinds: set[str] = set()
        self.names: set[str] = set()
        self.words: set[str] = set()
        self._parts: dict[str, list[_Pattern]] = {}
        for rule in [rules] if isinstance(rules, str) else rules:
            self._add(rule)

    def _add(self, rule: object) -> None:
        if not isinstance(rule, str):
            raise UsageError(f"ignore: {rule!r} is not text", hint=_HINT)
        if rule.startswith("/"):
            part, *segments = [text.replace("~1", "/").replace("~0", "~") for text in rule[1:].split("/")]
            if part not in PARTS:
                raise UsageError(f"ignore {rule!r}: a record has no part {part!r}", hint=f"it has {', '.join(PARTS)}")
            if segments and part not in ("attributes", "request", "identity", "response"):
                raise UsageError(f"ignore {rule!r}: {part} has no parts of its own")
            while segments and segments[-1] == "**":
                segments.pop()
            self._parts.setdefault(part, []).append(tuple(segments))
        elif rule.startswith("kind:") and rule[5:]:
            self.kinds.add(rule[5:])
        elif rule.startswith("name:") and rule[5:]:
            self.names.add(rule[5:])
        elif rule in WORDS:
            self.words.add(rule)
        else:
            raise UsageError(f"ignore: {rule!r} is no rule", hint=_HINT)

    @property
    def partial(self) -> bool:
        """Whether records that differ may still count as the same."""
        return bool(self._parts) or "encoding" in self.words

    def whole(self, part: str) -> bool:
        """Whether a part of a record is left out altogether."""
        return () in self._parts.get(part, ())

    def touches(self, part: str) -> bool:
        """Whether anything of a part is left out."""
        return part in self._parts

    def strip(self, part: str, value: Any) -> Any:
        """A part of a record without what is left out; list elements that are left out become None."""
        patterns = self._parts.get(part)
        return on_fresh_stack(lambda: _strip(value, patterns)) if patterns else value


def _strip(value: Any, patterns: list[_Pattern]) -> Any:
    if not isinstance(value, dict | list | tuple):
        return value
    now: set[_Pattern] = set()
    for pattern in patterns:
        now.add(pattern)
        while pattern and pattern[0] == "**":  # it may stand for no segment
            pattern = pattern[1:]
            now.add(pattern)
    if isinstance(value, dict):
        result: dict[Any, Any] = {}
        for key, item in value.items():
            rest = _below(now, key if isinstance(key, str) else pointer((None, key))[1:])
            if () not in rest:
                result[key] = _strip(item, rest) if rest else item
        return result
    items: list[Any] = []
    for index, item in enumerate(value):
        rest = _below(now, str(index))
        items.append(None if () in rest else _strip(item, rest) if rest else item)
    return items


def _below(patterns: set[_Pattern], segment: str) -> list[_Pattern]:
    """What the patterns say of the member ``segment``."""
    rest = [pattern[1:] for pattern in patterns if pattern and pattern[0] in ("*", segment)]
    return rest + [pattern for pattern in patterns if pattern and pattern[0] == "**"]
