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
    """Microseconds of processor time a call, that of background threads included."""
    begin = time.process_time()
    for args in arguments:
        call(args)
    return (time.process_time() - begin) / len(arguments) * 1e6


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
    how = f"CPU time, median of {rounds} rounds, {count:,} calls of {size} bytes of JSON; {beside}"
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
    """Seconds of processor time, opening included."""
    begin = time.process_time()
    with session:
        for number in range(count):
            session.tool("lookup", {"id": number}, _result)
    return time.process_time() - begin


def _against_chassis(directory: Path, count: int, rounds: int) -> Row:
    what = f"replay of {count:,} distinct small tool calls, local"
    archive = Archive(directory / "calls")
    with archive.session("r", "record") as session:
        for number in range(count):
            session.tool("lookup", {"id": number}, lambda number=number: {"id": number, "name": f"item {number}"})
    try:
        release = importlib.metadata.version("chassis-harness")
        from chassis.replay import BoundaryKind, ReplayMode, boundary_key
        from chassis.replay import ReplaySession as Chassis
    except ImportError:
        ours = median(_ours(archive.session("r", "replay", strict=True), count) for _ in range(rounds))
        return Row(
            what, f"{ours:.2f} s", "≥ 100 × chassis-harness 0.9.1", "not measured: chassis-harness is not installed"
        )
    theirs = Chassis(mode=ReplayMode.RECORD)
    for number in range(count):
        key = boundary_key("tool", "lookup", {"id": number})
        theirs.record(BoundaryKind.TOOL, key=key, response={"id": number, "name": f"item {number}"})
    path = theirs.save(directory / "chassis.json")
    begin = time.process_time()
    theirs = Chassis.load(path, mode=ReplayMode.REPLAY)
    loading = time.process_time() - begin
    part = count // rounds
    pairs = []
    for turn in range(rounds):
        # A part of the calls, which costs the same part of the time: every call of Chassis reads all its records.
        begin = time.process_time()
        for number in range(turn * part, (turn + 1) * part):
            # As its harness does for each call of a tool.
            key = boundary_key("tool", "lookup", {"id": number})
            assert theirs.has_remaining(BoundaryKind.TOOL, key=key)
            theirs.replay(BoundaryKind.TOOL, key=key)
        peer = loading + (time.process_time() - begin) * count / part
        pairs.append((peer, _ours(archive.session("r", "replay", strict=True), count)))
    peer, ours = (median(side) for side in zip(*pairs, strict=True))
    note(f"sessions: {count} calls: {ours:.3f} s, chassis-harness {peer:.2f} s")
    return Row(
        what,
        f"{median(a / b for a, b in pairs):.0f} ×",
        "≥ 100 × faster than chassis-harness 0.9.1",
        f"{ours:.3f} s against {peer:.1f} s (release {release}); opened, keyed, answered, every record played; "
        f"CPU time, median of {rounds} interleaved rounds",
    )


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    gc.collect()
    gc.freeze()
    with scratch() as directory:
        rows = _overhead(directory, 500 if quick else 5_000, 2 if quick else 5)
        return [*rows, _against_chassis(directory, 1_000 if quick else 10_000, 2 if quick else 5)]
