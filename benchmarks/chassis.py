"""Replaying tool calls through Chassis' session interface: ours over a local archive, next to Chassis' own recording.

Every call asks what Chassis' tool executor asks: `has_remaining`, then `replay`, then the response of the record. The
two take turns, and CPU time is measured, for Chassis' takes so long that anything may happen meanwhile. Needs Chassis
(Python 3.12 or newer): ``pip install 'replaypack[chassis]'``.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from statistics import median
from typing import Any

from .common import Row, note, scratch

__all__ = ["run"]


def _fill(session: Any, keys: list[str], kind: Any) -> None:
    for n, key in enumerate(keys):
        session.record(
            kind,
            key=key,
            request={"tool": "lookup", "args": {"number": n}},
            response={
                "name": "lookup",
                "status": "ok",
                "content": f"the value of {n}",
                "artifact": None,
                "error": None,
                "duration_seconds": 0.001,
                "tool_call_id": f"call-{n}",
                "generation_id": "gen_0001",
                "run_id": "run",
                "redacted": False,
            },
        )


def _replay(session: Any, keys: list[str], kind: Any) -> float:
    """Seconds of CPU time."""
    begin = time.process_time()
    for key in keys:
        assert session.has_remaining(kind, key=key)
        session.replay(kind, key=key).response  # noqa: B018
    return time.process_time() - begin


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table; none where Chassis is not installed."""
    if importlib.util.find_spec("chassis") is None:
        note("chassis: left out, chassis-harness is not installed (it needs Python 3.12 or newer)")
        return []
    from importlib.metadata import version

    from chassis.replay import BoundaryKind, ReplayMode, ReplaySession, boundary_key

    from replaypack.integrations.chassis import ArchiveReplaySession

    count, rounds = (1_000, 3) if quick else (10_000, 5)
    tool = BoundaryKind.TOOL
    keys = [boundary_key(tool.value, "lookup", {"number": n}) for n in range(count)]
    theirs, ours = [], []
    with scratch() as directory:
        path, archive = Path(directory) / "recording.json", Path(directory) / "archive"
        recording = ReplaySession(mode=ReplayMode.RECORD)
        _fill(recording, keys, tool)
        recording.save(path)
        with ArchiveReplaySession(ReplayMode.RECORD, archive=archive, name="run") as session:
            _fill(session, keys, tool)
        loaded = ReplaySession.load(path, mode=ReplayMode.REPLAY)
        part = count // rounds
        for number in range(rounds):
            # A part of the keys, which costs the same part of the time: every call of Chassis reads all its records.
            theirs.append(_replay(loaded, keys[number * part : (number + 1) * part], tool) * count / part)
            begin = time.process_time()
            with ArchiveReplaySession(ReplayMode.REPLAY, archive=archive, name="run") as session:
                _replay(session, keys, tool)
            ours.append(time.process_time() - begin)
    ratio = median(a / b for a, b in zip(theirs, ours, strict=True))
    note(f"chassis: {median(theirs):.2f} s against {median(ours):.3f} s")
    return [
        Row(
            f"replay of {count:,} distinct small tool calls through Chassis' session",
            f"{ratio:.0f} ×",
            f"≥ 100 × faster than chassis-harness {version('chassis-harness')} replaying its own recording",
            f"{median(ours):.3f} s with opening the archive, {median(theirs):.1f} s for Chassis; CPU time, "
            f"median of {rounds} interleaved rounds",
        )
    ]
