"""What a session costs: `session.tool` over the bare call, and 10,000 small tool calls next to chassis-harness.

The JSON encode and decode of the same call, name and arguments and result, is what any recorder pays at least. Both
sides of the replay load their own recording, key each call and give its result.
"""

from __future__ import annotations

import gc
import importlib.metadata
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from replaypack import Archive, ReplaySession

from .common import Row, note, scratch

__all__ = ["run"]

#: About 1 KB of JSON, arguments and result.
_ARGS = {"query": "what the trip to the mountains cost in the first week of June", "limit": 5, "exact": False}
_RESULT = {
    "hits": [{"line": n, "text": f"{n} June: cable car and lunch at the hut, 48.50 EUR in cash"} for n in range(9)],
    "took": 0.25,
    "more": True,
}


def _result() -> Any:
    return _RESULT


def _per_call(call: Callable[[dict[str, Any]], Any], arguments: list[dict[str, Any]]) -> float:
    """Microseconds a call: the median of runs of 50 calls."""
    runs = []
    for first in range(0, len(arguments), 50):
        part = arguments[first : first + 50]
        begin = time.perf_counter_ns()
        for args in part:
            call(args)
        runs.append((time.perf_counter_ns() - begin) / len(part) / 1000)
    return median(runs)


def _overhead(directory: Path, count: int, rounds: int) -> list[Row]:
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    arguments = [{**_ARGS, "page": number} for number in range(count)]
    times: dict[str, list[float]] = {"bare": [], "json": [], "record": [], "replay": []}
    archive = Archive(directory / "archive")
    for number in range(rounds):
        times["bare"].append(_per_call(lambda _: _result(), arguments))
        times["json"].append(_per_call(lambda args: decode(encode(["search", args, _result()])), arguments))
        for mode in ("record", "replay"):
            with archive.session(f"r{number}", mode) as session:
                tool = session.tool
                times[mode].append(_per_call(lambda args, tool=tool: tool("search", args, _result), arguments))
    usual = {what: median(measured) for what, measured in times.items()}
    size = len(encode(["search", arguments[0], _RESULT]))
    beside = f"JSON encode + decode of the same: {usual['json']:.1f} µs"
    how = f"median of {rounds} rounds, {count:,} calls of {size} bytes of JSON; {beside}"
    note(f"sessions: {', '.join(f'{what} {value:.1f}' for what, value in usual.items())} us")
    return [
        Row(
            f"`session.tool` over the bare call, {mode}",
            f"{usual[mode] - usual['bare']:.0f} µs",
            f"≤ {target} µs for a call of 1 KB",
            how,
        )
        for mode, target in (("record", 60), ("replay", 30))
    ]


def _ours(session: ReplaySession, count: int) -> float:
    begin = time.perf_counter()
    with session:
        for number in range(count):
            session.tool("lookup", {"id": number}, _result)
    return time.perf_counter() - begin


def _against_chassis(directory: Path, count: int, rounds: int) -> Row:
    what = f"replay of {count:,} distinct small tool calls, local"
    archive = Archive(directory / "calls")
    with archive.session("r", "record") as session:
        for number in range(count):
            session.tool("lookup", {"id": number}, lambda number=number: {"id": number, "name": f"item {number}"})
    ours = median(_ours(archive.session("r", "replay", strict=True), count) for _ in range(rounds))
    try:
        release = importlib.metadata.version("chassis-harness")
        from chassis.replay import BoundaryKind, ReplayMode, boundary_key
        from chassis.replay import ReplaySession as Chassis
    except ImportError:
        return Row(
            what, f"{ours:.2f} s", "≥ 100 × chassis-harness 0.9.1", "not measured: chassis-harness is not installed"
        )
    theirs = Chassis(mode=ReplayMode.RECORD)
    for number in range(count):
        key = boundary_key("tool", "lookup", {"id": number})
        theirs.record(BoundaryKind.TOOL, key=key, response={"id": number, "name": f"item {number}"})
    path = theirs.save(directory / "chassis.json")
    begin = time.perf_counter()
    theirs = Chassis.load(path, mode=ReplayMode.REPLAY)
    for number in range(count):
        theirs.replay(BoundaryKind.TOOL, key=boundary_key("tool", "lookup", {"id": number}))
    peer = time.perf_counter() - begin
    note(f"sessions: {count} calls: {ours:.3f} s, chassis-harness {peer:.2f} s")
    return Row(
        what,
        f"{peer / ours:.0f} ×",
        "≥ 100 × faster than chassis-harness 0.9.1",
        f"{ours:.2f} s against {peer:.1f} s (release {release}); opened, keyed, answered, every record played",
    )


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    gc.collect()
    gc.freeze()
    with scratch() as directory:
        rows = _overhead(directory, 500 if quick else 5_000, 2 if quick else 5)
        return [*rows, _against_chassis(directory, 1_000 if quick else 10_000, 1 if quick else 3)]
