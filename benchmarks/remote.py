"""GETs, their depth and their bytes of a cold open and first lookup, as on an object store."""

from __future__ import annotations

from collections.abc import Iterable

from replaypack import Archive
from replaypack.storage import LocalStorage, Storage

from .common import Row, note, scratch
from .counting import Counting, Seen
from .workloads import Call, agent, flat

__all__ = ["run"]


def _write(storage: Storage, name: str, calls: Iterable[Call]) -> list[int]:
    """Record; return the sequence numbers."""
    archive = Archive("memory://", storage=storage)
    with archive.recorder(name, flush_interval=None) as recorder:
        return [
            recorder.append(kind=call.kind, name=call.name, identity=call.request, response=call.response)
            for call in calls
        ]


def _many(count: int) -> Iterable[Call]:
    """``count`` small records with different requests, quickly made; one record in ten is repeated."""
    for number in range(count):
        yield Call(
            "tool", "t", {"q": number - 1 if number % 10 == 9 else number}, {"a": f"answer {number}", "n": number}
        )


def _text(seen: Seen) -> str:
    listed = f", {seen.lists} LIST" if seen.lists else ""
    return f"{seen.depth} rounds, {seen.gets} GETs, {seen.bytes / 1000:.0f} KB{listed}"


def _first_lookup(storage: Counting, name: str, call: Call, nth: int = 0) -> Seen:
    storage.reset()
    with Archive("memory://", storage=storage).open(name) as recording:
        found = recording.lookup(call.kind, call.request, nth=nth)
        assert found is not None
    return storage.seen


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    rows = []
    with scratch() as directory:
        storage = Counting(LocalStorage(str(directory / "archive")))
        million = 100_000 if quick else 1_000_000
        cases = [
            ("50 small records", "small", list(flat(50)), "2 GETs"),
            ("1 thousand records", "thousand", list(flat(1000)), "3 sequential GETs, ≤ 600 KB"),
            (f"{million:,} records", "million", None, "3 sequential GETs, ≤ 600 KB"),
        ]
        for label, name, calls, target in cases:
            note(f"remote: {label} …")
            _write(storage, name, calls if calls is not None else _many(million))
            asked = calls if calls is not None else list(_many(2000))
            seen = [_first_lookup(storage, name, asked[at]) for at in (0, len(asked) // 2 - 3, len(asked) - 3)]
            worst = max(seen, key=lambda one: (one.depth, one.bytes))
            rows.append(
                Row(
                    f"cold open + first lookup, {label}",
                    _text(worst),
                    target,
                    "worst of three; every peer downloads the file",
                )
            )
        same = [Call("tool", "t", {"same": True}, {"n": number}) for number in range(10_000)]
        _write(storage, "same", [*flat(200), *same])
        seen_same = _first_lookup(storage, "same", same[0], nth=9_990)
        rows.append(
            Row("the 9,990th of ten thousand equal keys, cold", _text(seen_same), "one round more", "open included")
        )
        calls = list(agent(60 if quick else 200))
        _write(storage, "agent", calls)
        depth = gets = size = 0
        for at in range(0, len(calls), max(1, len(calls) // 40)):
            with Archive("memory://", storage=storage).open("agent") as recording:
                found = recording.record(at)
                found.response  # noqa: B018
                storage.reset()
                assert found.request == calls[at].request
            depth, gets = max(depth, storage.seen.depth), max(gets, storage.seen.gets)
            size = max(size, storage.seen.bytes)
        rows.append(
            Row(
                "a request, after its lookup, agent",
                f"{depth} rounds, {gets} GETs, {size / 1000:.0f} KB",
                "≤ 2 more rounds, ≤ 16 frames",
                "the most of 40 cold ones",
            )
        )
    return rows
