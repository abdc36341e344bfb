"""Time to record, seal included, next to JSON lines + zstd -3 --long=27 on the same disk; rounds interleaved."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

from replaypack import Archive

from .common import Row, interleaved, json_line, line_compressor, note, record
from .workloads import Call, agent, flat

__all__ = ["run"]


def _ours(directory: Path, calls: list[Call]) -> None:
    with Archive(directory / "archive") as archive:
        record(archive, "r", calls)


def _lines(directory: Path, calls: list[Call], *, fsync: bool) -> None:
    stream = line_compressor(3)
    with (directory / "lines.jsonl.zst").open("wb") as file:
        for call in calls:
            file.write(stream.compress(json_line(call)))
        file.write(stream.flush())
        if fsync:
            file.flush()
            os.fsync(file.fileno())


def compare(name: str, calls: list[Call], rounds: int, target: str) -> Row:
    """Time both, turn by turn."""
    peers: dict[str, Callable[[Path], None]] = {
        "ours": lambda directory: _ours(directory, calls),
        "lines": lambda directory: _lines(directory, calls, fsync=False),
        "lines, fsync": lambda directory: _lines(directory, calls, fsync=True),
    }
    # What was made for the workload is not for the collector to walk, on either side.
    gc.collect()
    gc.freeze()
    took = interleaved(peers, rounds)
    ratio, synced = took.ratio("ours", "lines"), took.ratio("ours", "lines, fsync")
    note(f"record: {name}: {took.said()}")
    return Row(
        f"time to record, {name}",
        f"{ratio:.2f} ×",
        f"{target} JSON lines + zstd -3 --long=27",
        f"median of {rounds} interleaved rounds: {took.wall['ours']:.2f} s (fsync, journal, keys and digests included)"
        f" against {took.wall['lines']:.2f} s without fsync; {synced:.2f} × with",
    )


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    turns, count, rounds = (60, 10_000, 3) if quick else (200, 100_000, 5)
    return [
        compare(f"agent T={turns}", list(agent(turns)), rounds, "≤ 1.0 ×"),
        compare(f"flat {count // 1000}k", list(flat(count)), rounds if quick else 3, "≤ 3 ×"),
    ]
