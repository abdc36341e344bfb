"""Keeping only what is allowed of a value: everything else becomes a placeholder. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from replaypack._plain import Path, on_fresh_stack, pointer
from replaypack.errors import UsageError
from replaypack.policies.redaction import PLACEHOLDER
from replaypack.values import ABSENT

__all__ = ["Allow", "Masked"]

#: Parts that a pointer may begin with; without one it is about the payloads.
_PAYLOADS = ("request", "identity", "response")
_PARTS = (*_PAYLOADS, "attributes", "scope", "metadata", "error")

_Pattern = tuple[str, ...]


class Masked(NamedTuple):
    """A value of which only what is allowed is left, and the pointers of what was replaced."""

    value: Any
    replaced: list[str]


class Allow:
    """Parsed pointers: ``/request/messages/*/role``, ``/response/**/id``; ``/messages/*/role`` is about request,
    identity and response. ``*`` is any one segment, ``**`` any number; what a pointer names is kept with all below.

    Raises `UsageError`.
    """

    def __init__(self, pointers: Iterable[str]) -> None:
        self.pointers = sorted(set(pointers))
        self._parts: dict[str, set[_Pattern]] = {part: set() for part in _PARTS}
        for text in self.pointers:
            if not isinstance(text, str) or not text.startswith("/") or text == "/":
                raise UsageError(
                    f"allow: {text!r} is no JSON pointer", hint="write e.g. /request/messages/*/role, or /response"
                )
            first, *rest = [segment.replace("~1", "/").replace("~0", "~") for segment in text[1:].split("/")]
            while rest and rest[-1] == "**":
                rest.pop()
            parts: tuple[str, ...] = _PAYLOADS
            pattern = (first, *rest)
            if first in _PARTS:
                # What tells calls apart is most often what is sent.
                parts = ("request", "identity") if first == "request" else (first,)
                pattern = tuple(rest)
            for part in parts:
                self._parts[part].add(pattern)

    def mask(self, part: str, value: Any) -> Masked:
        """What is allowed of a part of a record. None, and what is absent, stay."""
        if value is None or value is ABSENT:
            return Masked(value, [])
        replaced: list[str] = []
        patterns = self._parts[part]
        masked = on_fresh_stack(lambda: _mask(value, patterns, None, replaced))
        return Masked(masked, replaced)


def _mask(value: Any, patterns: set[_Pattern], path: Path, replaced: list[str]) -> Any:
    now = set(patterns)
    for pattern in patterns:
        while pattern and pattern[0] == "**":  # it may stand for no segment
            pattern = pattern[1:]
            now.add(pattern)
    if () in now:
        return value
    if value is None:
        return None
    if now and isinstance(value, dict):
        result: dict[Any, Any] = {}
        others = False
        for key, item in value.items():
            rest = _below(now, key if isinstance(key, str) else pointer((None, key))[1:])
            if rest:
                result[key] = _mask(item, rest, (path, key), replaced)
            else:
                others = True
        if others:
            # Names of members may be as telling as their values.
            result[PLACEHOLDER] = PLACEHOLDER
            replaced.append(pointer((path, PLACEHOLDER)))
        return result
    if now and isinstance(value, list | tuple):
        items = []
        for index, item in enumerate(value):
            items.append(_mask(item, _below(now, str(index)), (path, index), replaced))
        return items
    replaced.append(pointer(path))
    return PLACEHOLDER.encode() if isinstance(value, bytes) else PLACEHOLDER


def _below(patterns: set[_Pattern], segment: str) -> set[_Pattern]:
    """What the patterns say of the member ``segment``."""
    rest = {pattern[1:] for pattern in patterns if pattern and pattern[0] in ("*", segment)}
    return rest | {pattern for pattern in patterns if pattern and pattern[0] == "**"}
