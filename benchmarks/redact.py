"""What redaction costs: recording with the default policy next to without, and its time over growing base64."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

from replaypack import Archive
from replaypack.policies.redaction import Redactor

from .common import Row, note, record, scratch
from .workloads import Call, agent, flat

__all__ = ["run"]

_SECRETS = tuple(f"known-secret-{number}/+=" for number in range(5))


def _recording(directory: Path, calls: list[Call], redact: str | None) -> tuple[float, float]:
    with Archive(directory / "archive") as archive:
        wall, cpu = time.perf_counter(), time.process_time()
        record(archive, "r", calls, redact=redact)
        return time.perf_counter() - wall, time.process_time() - cpu


def _compare(name: str, calls: list[Call], rounds: int, target: str) -> Row:
    pairs = []
    for _ in range(rounds):
        times = []
        for redact in (None, "default"):
            with scratch() as directory:
                times.append(_recording(directory, calls, redact))
        pairs.append(times)
    wall = median(on[0] / off[0] for off, on in pairs)
    cpu = median(on[1] / off[1] for off, on in pairs)
    note(f"redact: {name}: {wall:.2f} × wall, {cpu:.2f} × processor time")
    return Row(
        f"time to record with default redaction, {name}",
        f"{wall:.2f} ×",
        target,
        f"median of {rounds} interleaved rounds; processor time {cpu:.2f} ×",
    )


def _grows(what: str, value_of: Callable[[str], object], rounds: int) -> Row:
    rng = random.Random(5)
    times = []
    for size in (1, 2, 4, 8):
        text = base64.b64encode(rng.randbytes(size * (3 << 16))).decode()
        seen = []
        for _ in range(rounds):
            value = value_of(text)
            begin = time.process_time()
            Redactor(secrets=_SECRETS).process(value)
            seen.append(time.process_time() - begin)
        times.append(median(seen))
    ratios = [b / a for a, b in pairwise(times)]
    note(f"redact: {what}: " + ", ".join(f"{seconds * 1e3:.1f} ms" for seconds in times))
    return Row(
        f"redaction of {what} of 0.25, 0.5, 1, 2 MB of base64",
        " / ".join(f"{ratio:.2f}" for ratio in ratios) + " × a doubling",
        "linear (2 ×)",
        f"5 known secrets; {times[-1] * 1e3:.0f} ms for 2 MB; medians of {rounds}",
    )


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    turns, rounds = (60, 3) if quick else (200, 7)
    return [
        _compare(f"agent T={turns}", list(agent(turns)), rounds, "≤ 2 × without"),
        _compare("flat 20k", list(flat(20_000)), 3, "-"),
        _grows("a text", lambda text: {"image": text}, rounds),
        _grows("JSON text", lambda text: '{"password": "x", "image": "' + text + '"}', rounds),
        _grows("bytes", lambda text: text.encode(), rounds),
    ]
