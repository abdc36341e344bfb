"""How many tokens a model's response says it took, in the shapes of OpenAI, Anthropic and LangChain. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Tokens", "may_name_tokens", "tokens_of"]

#: Values that are looked at in one response, and how deep.
_MOST, _DEEPEST = 20_000, 12
_MOST_TEXT = 8 << 20


class Tokens(NamedTuple):
    """Tokens of requests (``input``, those from a cache included), of responses (``output``), and those of the input
    that came from a cache (``cached``)."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: object) -> Tokens:
        if not isinstance(other, Tokens):
            return NotImplemented
        return Tokens(self.input + other.input, self.output + other.output, self.cached + other.cached)


def may_name_tokens(data: bytes) -> bool:
    """Whether the bytes of a response hold what `tokens_of` looks for: quick, and never False for those that do."""
    return b"usage" in data


def tokens_of(response: Any) -> Tokens | None:
    """The tokens that a response names; None where it names none.

    LangChain's ``usage_metadata`` (of messages, and of chunks, which add up), else ``usage`` of OpenAI's or
    Anthropic's responses (of streams the most that an event says: events count on), else LangChain's ``token_usage``.
    The response may be the JSON text of an HTTP body, or lie below it.
    """
    found: dict[str, list[Tokens]] = {"usage_metadata": [], "usage": [], "token_usage": []}
    for name, value in _usages(response):
        tokens = _tokens(value)
        if tokens is not None:
            found[name].append(tokens)
    if found["usage_metadata"]:
        return sum(found["usage_metadata"], Tokens())
    for name in ("usage", "token_usage"):
        if found[name]:
            return Tokens(*(max(column) for column in zip(*found[name], strict=True)))
    return None


def _usages(response: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield the maps called ``usage`` and the like, level by level."""
    level: list[Any] = [response]
    left = _MOST
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for value in level:
            left -= 1
            if left < 0:
                return
            if isinstance(value, str | bytes):
                below += _json(value)
            elif isinstance(value, list | tuple):
                below += value
            elif isinstance(value, dict):
                for name, item in value.items():
                    if name in ("usage_metadata", "usage", "token_usage") and isinstance(item, dict):
                        yield name, item
                    else:
                        below.append(item)
        level = below


def _json(text: str | bytes) -> list[Any]:
    """What the JSON text of a body, or the events of a stream of them, hold, where they name a usage."""
    if len(text) > _MOST_TEXT:
        return []
    if isinstance(text, bytes):
        if b'"usage' not in text:
            return []
        text = text.decode("utf-8", "replace")
    elif '"usage' not in text:
        return []
    stripped = text.lstrip()
    lines = (
        [stripped]
        if stripped.startswith("{")
        else [line[5:] for line in stripped.splitlines() if line.startswith("data:") and "usage" in line]
    )
    values = []
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            values.append(value)
    return values


def _tokens(usage: dict[Any, Any]) -> Tokens | None:
    if "prompt_tokens" in usage or "completion_tokens" in usage:  # OpenAI, Chat Completions
        cached = _number(usage, "prompt_tokens_details", "cached_tokens")
        return Tokens(_number(usage, "prompt_tokens"), _number(usage, "completion_tokens"), cached)
    if "input_tokens" not in usage and "output_tokens" not in usage:
        return None
    given, output = _number(usage, "input_tokens"), _number(usage, "output_tokens")
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:  # Anthropic counts them beside
        cached = _number(usage, "cache_read_input_tokens")
        return Tokens(given + cached + _number(usage, "cache_creation_input_tokens"), output, cached)
    cached = _number(usage, "input_tokens_details", "cached_tokens")  # OpenAI, Responses
    return Tokens(given, output, cached or _number(usage, "input_token_details", "cache_read"))  # LangChain


def _number(value: Any, *path: str) -> int:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if type(value) is int and 0 <= value < 1 << 53 else 0
