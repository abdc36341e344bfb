"""The synthetic workloads, deterministic by seed: *agent* and *flat*."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

__all__ = ["Call", "agent", "flat"]


class Call(NamedTuple):
    """One call to record: what `Recorder.append` takes as ``kind``, ``name``, ``identity`` and ``response``."""

    kind: str
    name: str | None
    request: Any
    response: Any


class _Prose:
    """Text with the statistics of text: words of a vocabulary by Zipf's law, in sentences."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        letters, weights = "etaoinshrdlcumwfgypbvk", range(22, 0, -1)
        self._words = ["".join(rng.choices(letters, weights, k=rng.randint(2, 10))) for _ in range(6000)]
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(6000)))

    def text(self, size: int) -> str:
        """About ``size`` characters."""
        rng = self.rng
        out: list[str] = []
        length = 0
        while length < size:
            words = rng.choices(self._words, cum_weights=self._weights, k=rng.randint(4, 18))
            sentence = " ".join(words).capitalize() + rng.choice((".", ".", ".", "?", ":\n", ".\n"))
            out.append(sentence)
            length += len(sentence) + 1
        return " ".join(out)[:size]

    def words(self, count: int) -> str:
        """``count`` words, quicker than `text`."""
        return " ".join(self.rng.choices(self._words, cum_weights=self._weights, k=count))

    def between(self, low: float, high: float) -> int:
        """A size, log-uniform."""
        return int(math.exp(self.rng.uniform(math.log(low), math.log(high))))


def _tools(prose: _Prose) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": f"tool_{n}",
                "description": prose.text(300),
                "parameters": {
                    "type": "object",
                    "properties": {
                        f"argument_{k}": {"type": "string", "description": prose.text(80)} for k in range(4)
                    },
                    "required": ["argument_0", "argument_1"],
                },
            },
        }
        for n in range(10)
    ]


def agent(turns: int, seed: int = 1) -> Iterator[Call]:
    """A run of ``turns`` turns: each model request carries the whole history and ten tool schemas.

    Responses are 0.3-3 KB, one or two tool calls a turn, tool results 0.2-20 KB (log-uniform), one tool call in
    ten repeats an earlier one, one model call in twenty is sent twice.
    """
    prose = _Prose(seed)
    rng = prose.rng
    tools = _tools(prose)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": prose.text(3000)},
        {"role": "user", "content": prose.text(600)},
    ]
    earlier: list[tuple[dict[str, Any], str]] = []
    for turn in range(turns):
        calls = []
        for n in range(rng.randint(1, 2)):
            if earlier and rng.random() < 0.1:
                arguments, result = rng.choice(earlier)
            else:
                arguments = {
                    "name": f"tool_{rng.randrange(10)}",
                    "args": {"argument_0": prose.text(40), "argument_1": f"{turn}-{n}", "limit": rng.randrange(100)},
                }
                result = prose.text(prose.between(200, 20_000))
                earlier.append((arguments, result))
            calls.append((f"call_{rng.getrandbits(64):016x}", arguments, result))
        message = {
            "role": "assistant",
            "content": prose.text(prose.between(300, 3000)),
            "tool_calls": [
                {"id": id_, "type": "function", "function": {"name": a["name"], "arguments": str(a["args"])}}
                for id_, a, _ in calls
            ],
        }
        request = {
            "model": "model-1",
            "temperature": 0.7,
            "max_tokens": 4096,
            "tools": tools,
            "messages": list(messages),
        }
        response = {
            "id": f"resp_{rng.getrandbits(64):016x}",
            "model": "model-1",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
            "usage": {"prompt_tokens": 900 + 700 * turn, "completion_tokens": rng.randint(80, 800)},
        }
        for _ in range(2 if rng.random() < 0.05 else 1):
            yield Call("model", "model-1", request, response)
        messages.append(message)
        for id_, arguments, result in calls:
            yield Call("tool", arguments["name"], arguments, {"content": result})
            messages.append({"role": "tool", "tool_call_id": id_, "content": result})


def flat(count: int, seed: int = 2) -> Iterator[Call]:
    """``count`` independent records of about 1 KB: request about 0.4 KB, response 0.3-1.2 KB."""
    prose = _Prose(seed)
    rng = prose.rng
    for number in range(count):
        name = f"lookup_{number % 20}"
        args = {"query": prose.words(rng.randint(20, 60)), "page": number, "trace": f"{rng.getrandbits(64):x}"}
        response = {
            "id": f"{rng.getrandbits(96):024x}",
            "ok": True,
            "score": rng.random(),
            "text": prose.words(rng.randint(35, 160)),
        }
        yield Call("tool", name, {"name": name, "args": args}, response)
