"""Long strings are compared with the parent's byte by byte: what comes out must be what went in."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive
from replaypack._write.literals import LiteralStream, Splitter
from replaypack.format.recipe import Range, materialise, resolve
from replaypack.storage import MemoryStorage
from replaypack.values import payload_pieces


class Store:
    """A splitter with its literals at hand; runs may refer to every recipe before."""

    def __init__(self) -> None:
        self.stream = LiteralStream()
        self.splitter = Splitter(self.stream)
        self.literals = b""
        self.recipes: list[list[Range]] = []

    def add(self, value: Any) -> int:
        """Record ``value``, check that its recipe gives it back; return the bytes that were new."""
        _, pieces = payload_pieces(value)
        whole = b"".join(pieces)
        ops = self.splitter.recipe(pieces)
        fresh = self.stream.take_fresh()
        self.literals += fresh
        ranges = resolve(ops, self.recipes)
        self.recipes.append(ranges)
        assert materialise(ranges, len(whole), lambda o, n: self.literals[o : o + n]) == whole
        return len(fresh)


def _text(rng: random.Random, size: int) -> str:
    return "".join(rng.choices("abcdefgh ijklmnop qrstuvw\n", k=size))


def test_a_history_inside_of_one_string_is_stored_once() -> None:
    rng = random.Random(1)
    store = Store()
    messages: list[dict[str, str]] = []
    fresh = 0
    for _ in range(40):
        messages.append({"role": "user", "content": _text(rng, 3000)})
        body = json.dumps({"model": "m", "messages": messages, "tools": _text(random.Random(2), 5000)})
        fresh += store.add({"method": "POST", "headers": {"content-length": str(len(body))}, "body": body})
    assert fresh < 40 * 3600 + 6000


def test_a_changed_middle_costs_what_changed() -> None:
    rng = random.Random(2)
    store = Store()
    text = _text(rng, 200_000)
    store.add(text)
    for at in (10, 50_000, 120_000, 199_000):
        assert store.add(text[:at] + "changed" + text[at + 30 :]) < 400


@pytest.mark.parametrize("header", [4096, 65536, 100_000])
def test_binary_values_of_any_header_are_found(header: int) -> None:
    data = random.Random(3).randbytes(header)
    store = Store()
    store.add({"headers": {"a": "b"}, "body": data})
    assert store.add({"other": 1, "image": "data:image/png;base64," + base64.b64encode(data).decode()}) < 200
    assert store.add(data) < 200


@pytest.mark.parametrize("seed", range(60))
def test_random_edits(seed: int) -> None:
    rng = random.Random(seed)
    store = Store()
    image = base64.b64encode(rng.randbytes(20_000)).decode()
    parts = [_text(rng, 6000), image, _text(rng, 300), rng.randbytes(5000).hex(), _text(rng, 9000)]
    for _ in range(25):
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(parts))
            part = parts[at]
            cut = rng.randrange(len(part) + 1)
            parts[at] = (
                part[:cut] + rng.choice(("", "x", "[]", "QUJD", _text(rng, 50))) + part[cut + rng.randrange(5) :]
            )
        value: Any = "".join(parts)
        if rng.random() < 0.5:
            value = {"method": "POST", "body": value if rng.random() < 0.7 else value.encode(), "n": rng.random()}
        store.add(value)


def test_more_base64_than_a_recipe_has_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the ranges that a recipe may have, base64 stays text: a recipe that no reader takes is no recording."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("replaypack._write.literals.MAX_RUNS", 20)
    monkeypatch.setattr("replaypack._write.literals._MAX_RANGES", 30)
    storage = MemoryStorage()
    request = [base64.b64encode(bytes([n]) * 1800).decode() for n in range(40)]
    with Archive("", storage=storage).recorder("x", flush_interval=None) as recorder:
        recorder.append(kind="k", key="k", request=request, response=1)
    recording = Archive("", storage=storage).open("x")
    record = recording.record(0)
    assert record.request == request
    assert len(record.recipe("request")) == 1
