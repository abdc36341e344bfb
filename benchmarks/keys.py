"""What keys and encodings cost next to one JSON encoding of the same request: ``python benchmarks/keys.py``.

Times are interleaved and the minimum of all rounds counts, so that a busy machine shifts all of them alike.
"""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from replaypack._plain import survey
from replaypack.canonical import key_digest
from replaypack.policies.matching import MatchPolicy
from replaypack.policies.ready import READY_MADE
from replaypack.values import decode, encode, encode_pieces

ROUNDS = 400


def request(temperature: float) -> dict[str, Any]:
    """About 300 KB: 100 messages of an agent, 10 tool schemas, the usual options."""
    rng = random.Random(7)

    def prose(size: int) -> str:
        words = ("".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(size // 6))
        return " ".join(words) + '\n"quoted" – näive'

    messages: list[dict[str, Any]] = [{"role": "system", "content": prose(4000)}]
    for turn in range(33):
        messages.append({"role": "user", "content": prose(3000)})
        call = {"name": "search", "arguments": f'{{"query": "{turn}", "limit": 5}}'}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{turn}", "type": "function", "function": call}],
            }
        )
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": prose(5200)})
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{n}",
                "description": prose(300),
                "parameters": {
                    "type": "object",
                    "properties": {f"arg{k}": {"type": "string", "description": prose(60)} for k in range(5)},
                    "required": ["arg0", "arg1"],
                    "additionalProperties": False,
                },
            },
        }
        for n in range(10)
    ]
    return {"model": "m", "messages": messages, "tools": tools, "temperature": temperature, "max_tokens": 4096}


def measure(jobs: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """The least time of each job in seconds."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    warm = request(0.7)
    one = {**warm, "temperature": 1.0}
    deep = {**warm, "tools": [*warm["tools"], {"function": {"parameters": {"properties": {"x": {"minimum": 0.0}}}}}]}
    image = {**warm, "messages": [*warm["messages"], {"role": "user", "content": [{"image": b"\xff" * 30_000}]}]}
    call = {
        "name": "search",
        "arguments": {"query": "x", "limit": 5, "site": "example.org", "safe": True, "page": None},
    }
    policies = {name: MatchPolicy.of(name) for name in READY_MADE if name != "none"}
    policies["all"] = MatchPolicy.of(list(policies.values()))
    encoded = encode(warm)
    census = survey(warm)
    json = msgspec.json.Encoder().encode
    pack = msgspec.msgpack.Encoder().encode
    jobs: dict[str, Callable[[], object]] = {
        "msgspec.json.encode": lambda: json(warm),
        "msgspec.msgpack.encode": lambda: pack(warm),
        "survey": lambda: survey(warm),
        "key_digest, temperature 0.7": lambda: key_digest("model", warm),
        "key_digest, temperature 1.0": lambda: key_digest("model", one),
        "key_digest, a schema with 0.0": lambda: key_digest("model", deep),
        "key_digest, an image as bytes": lambda: key_digest("model", image),
        "key_digest, census given": lambda: key_digest("model", warm, census=census),
        **{f"key by match policy {name}": partial(policy.key, "model", warm) for name, policy in policies.items()},
        "encode": lambda: encode(warm),
        "encode_pieces": lambda: encode_pieces(warm),
        "encode_pieces, census given": lambda: encode_pieces(warm, census=census),
        "decode": lambda: decode(encoded),
    }
    # Apart from the large ones, whose 300 KB would push everything out of the caches each time.
    small: dict[str, Callable[[], object]] = {
        "tool call: msgspec.json.encode": lambda: json(call),
        "tool call: key_digest": lambda: key_digest("tool", call),
        "tool call: key by all policies": partial(policies["all"].key, "tool", call),
        "tool call: encode": lambda: encode(call),
        "tool call: encode_pieces": lambda: encode_pieces(call),
    }
    best = measure(jobs) | measure(small, 5 * ROUNDS)
    base, packed = best["msgspec.json.encode"], best["msgspec.msgpack.encode"]
    pieces = encode_pieces(warm)
    print(f"request: {len(json(warm))} bytes of JSON, {len(warm['messages'])} messages, {len(pieces)} pieces")
    for name, seconds in best.items():
        print(f"{name:32} {seconds * 1e6:9.1f} us   {seconds / base:5.2f} x json   {seconds / packed:5.2f} x msgpack")
    print("match policy all, over text that nearly matches everywhere:")
    for kilobytes in (256, 512, 1024):
        text = ("2025-06-15T15:06:40.123456789012x 12345678-1234-1234-1234-12345678901 " * 15000)[: kilobytes << 10]
        [seconds] = measure({"": partial(policies["all"].key, "tool", text)}, 5).values()
        print(f"{kilobytes:5} KB {seconds * 1e3:9.1f} ms   {seconds * 1e6 / kilobytes:5.0f} us/KB")


if __name__ == "__main__":
    main()
