"""Records for the tests: deterministic, of every kind, with repeats, scopes, large and awkward payloads."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any

import replaypack
from replaypack import ABSENT

TEXT = "the quick brown fox jumps over the lazy dog and reads a replayed recording while nobody listens".split(" ")


def text(rng: random.Random, size: int) -> str:
    """About ``size`` characters of words."""
    return " ".join(rng.choices(TEXT, k=max(1, size // 5)))


def calls(count: int, seed: int = 0, *, large: bool = False) -> Iterator[dict[str, Any]]:
    """Yield arguments for `Recorder.append`."""
    rng = random.Random(seed)
    history: list[dict[str, Any]] = [{"role": "system", "content": text(rng, 3000)}]
    image = base64.b64encode(rng.randbytes(6000)).decode()
    for number in range(count):
        choice = number % 6
        scope = None if number % 4 else f"sample-{number % 3}"
        if choice == 0:
            history.append({"role": "user", "content": text(rng, rng.randint(20, 3000))})
            request = {"model": "m", "messages": list(history), "temperature": 0.5}
            answer = {"role": "assistant", "content": text(rng, rng.randint(300, 3000))}
            history.append(answer)
            yield {"kind": "model", "name": "m", "identity": request, "response": answer, "scope": scope}
        elif choice == 1:
            arguments = {"path": f"/tmp/{number % 9}", "n": number % 5}
            yield {
                "kind": "tool",
                "name": "read",
                "identity": {"name": "read", "arguments": arguments},
                "response": text(rng, rng.randint(200, 20000)),
                "scope": scope,
            }
        elif choice == 2:
            yield {
                "kind": "http",
                "identity": {"method": "GET", "uri": f"https://example.com/{number}"},
                "request": {"headers": {"x": "y"}, "body": bytes([number % 256, 255])},
                "response": {"status": 200, "body": image, "raw": base64.b64decode(image)},
            }
        elif choice == 3:
            yield {"kind": "tool", "name": "none", "identity": {"name": "none", "n": number}, "scope": scope}
        elif choice == 4:
            yield {
                "kind": "tool",
                "name": "odd",
                "identity": {"name": "odd", "arguments": {"i": number % 2}},
                "response": {1: float("inf"), "s": "\ud800", "b": b"\x00\xff", "big": 1 << 70, "z": -0.0},
                "attributes": {"span": number},
                "flags": ["redacted"],
            }
        else:
            yield {
                "kind": "tool",
                "name": "fails",
                "key": f"host-key-{number % 7}",
                "request": {"a": number},
                "error": ValueError("bad", number),
            }
    if large:
        blob = rng.randbytes(5 << 20)
        yield {"kind": "tool", "identity": {"name": "big"}, "response": blob}
        yield {"kind": "tool", "identity": {"name": "big"}, "response": {"same": blob, "more": 1}}


def expected_response(call: dict[str, Any]) -> Any:
    """What `Record.response` must be for a call."""
    if "error" in call:
        error = call["error"]
        return {"type": "ValueError", "module": "builtins", "message": str(error), "args": list(error.args)}
    return call.get("response", ABSENT)


def same(a: Any, b: Any) -> bool:
    """Equal and of equal type, all the way down (NaN is not used here)."""
    return type(a) is type(b) and repr(a) == repr(b)


def check(recording: replaypack.Recording, expected: list[dict[str, Any]]) -> None:
    """Every record is there, in order, with its payloads; every one is found by its key, scope and rank."""
    assert len(recording) == len(expected)
    ranks: dict[Any, int] = {}
    for seq, (record, call) in enumerate(zip(recording.records(), expected, strict=True)):
        assert record.seq == seq
        assert record.kind == call["kind"]
        assert record.name == call.get("name")
        assert record.scope == call.get("scope")
        assert same(record.response, expected_response(call))
        assert same(record.request, call.get("request", call.get("identity", ABSENT)))
        assert same(record.identity, call.get("identity", ABSENT))
        assert record.status == ("error" if "error" in call else "ok")
        assert record.flags == frozenset(call.get("flags", ()))
        assert record.attributes == call.get("attributes", {})
        rank_key = (record.key, record.scope)
        nth = ranks.get(rank_key, 0)
        ranks[rank_key] = nth + 1
        wanted = {"key": call["key"]} if "key" in call else {"kind": call["kind"], "identity": call["identity"]}
        found = recording.lookup(**wanted, scope=record.scope, nth=nth)
        assert found is not None
        assert found.seq == seq
        assert same(found.response, record.response)
    for (key, scope), count in ranks.items():
        assert recording.lookup_digest(key, scope=scope, nth=count) is None
        assert recording.count_scoped(key, scope) == count
    assert recording.lookup("tool", {"name": "never recorded"}) is None
