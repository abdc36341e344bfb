"""What `verify` costs on one core, next to what cannot be left out: ``zstd -dc | b3sum``, and BLAKE3 + canonical JSON.

Both sides run in processes of their own, bound to one core, in turn, over and over; the CPU time of the fastest round
counts, wall time stands beside it. Where there is no ``b3sum``, a loop over the `blake3` package hashes (one thread).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from replaypack import Archive

from .common import Row, note, record, scratch
from .corpora import corpus
from .workloads import Call, agent, flat

__all__ = ["run"]

_ROUNDS = 3
#: Packs are read so many times over that a round takes a while (bytes, decompressed).
_ROUND_BYTES = 48 << 20
_HASH = (
    "import sys, blake3; h = blake3.blake3(); [h.update(b) for b in iter(lambda: sys.stdin.buffer.read1(1 << 20), b'')]"
)


class _Time(NamedTuple):
    cpu: float
    wall: float


def _timed(work: Callable[[], Any]) -> _Time:
    """Seconds of this process and of the children that it waited for."""

    def cpu() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(item.ru_utime + item.ru_stime for item in used)

    before, start = cpu(), time.perf_counter()
    work()
    return _Time(cpu() - before, time.perf_counter() - start)


def _plain_tools(packs: list[Path], times: int) -> None:
    hasher = ["b3sum", "--num-threads", "1"] if shutil.which("b3sum") else [sys.executable, "-S", "-c", _HASH]
    if hasher[0] != "b3sum":
        import blake3

        hasher[3] = f"import sys; sys.path.append({str(Path(blake3.__file__).parent.parent)!r}); " + _HASH
    names = [str(pack) for pack in packs] * times
    unpack = subprocess.Popen(["zstd", "-dcq", *names], stdout=subprocess.PIPE)
    subprocess.run(hasher, stdin=unpack.stdout, check=True, stdout=subprocess.DEVNULL)
    assert unpack.wait() == 0


def _verify(path: Path, level: Any, times: int) -> None:
    for _ in range(times):
        with Archive(path) as archive:
            assert list(archive.verify("r", level=level, revisions=False)) == []


def _hash_and_canonicalise(blobs: Iterable[tuple[str, int, bytes, bool]]) -> int:
    """BLAKE3 of all payloads, and the canonical JSON, hashed, of those that a key is made of."""
    from replaypack.canonical import key_digest
    from replaypack.format.digests import digest
    from replaypack.values import decode_payload

    total = 0
    for kind, encoding, data, identity in blobs:
        digest(data)
        total += len(data)
        if identity:
            key_digest(kind, decode_payload(encoding, data))
    return total


def _payloads(path: Path) -> list[tuple[str, int, bytes, bool]]:
    found = []
    with Archive(path).open("r") as recording:
        for item in recording.records():
            row = item.row
            for role, ref in (("request", row.request), ("response", row.response)):
                if ref is not None and ref.encoding:
                    found.append((row.kind, ref.encoding, item.blob_bytes(role), role == "request"))
    return found


def _measure(path: Path, side: str, times: int) -> None:
    """One side, in a process of its own: prints its times as JSON."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    packs = sorted(path.glob("packs/*/*.rpk"))
    work: Callable[[], Any]
    if side == "tools":
        work = lambda: _plain_tools(packs, times)  # noqa: E731
    elif side == "payloads":
        blobs = _payloads(path)
        work = lambda: [_hash_and_canonicalise(blobs) for _ in range(times)]  # noqa: E731
    else:
        work = lambda: _verify(path, side, times)  # noqa: E731
        _verify(path, side, 1)
    print(json.dumps(_timed(work)))


def _best(path: Path, sides: tuple[str, str], times: int) -> list[_Time]:
    seen: dict[str, list[_Time]] = {side: [] for side in sides}
    for _ in range(_ROUNDS):
        for side in sides:
            command = [sys.executable, "-m", f"{__package__}.verify", str(path), side, str(times)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seen[side].append(_Time(*json.loads(done.stdout)))
    return [min(seen[side]) for side in sides]


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    if shutil.which("zstd") is None:
        note("verify: no zstd here, left out")
        return []
    works: dict[str, Iterable[Call] | None] = {
        f"agent T={20 if quick else 200}": agent(20 if quick else 200),
        f"flat {2_000 if quick else 20_000:,}": flat(2_000 if quick else 20_000),
        "corpus tau-bench": None if quick else corpus("tau-bench"),
    }
    reached: dict[str, list[str]] = {"frames": [], "full": []}
    for name, calls in works.items():
        if calls is None:
            continue
        note(f"verify: {name}")
        with scratch() as directory:
            with Archive(directory) as archive, record(archive, "r", calls) as recording:
                count = len(recording)
                raw = sum(entry.raw for entry, _ in recording.index.frames()) + recording.manifest.storage.literals
                logical = sum(len(data) for _, _, data, _ in _payloads(directory))
            for level, peer, size in (("frames", "tools", raw), ("full", "payloads", logical)):
                times = 1 if quick else max(1, _ROUND_BYTES // size)
                theirs, ours = _best(directory, (peer, level), times)
                rate = [times * size / side.cpu / 1e6 for side in (ours, theirs)]
                each = [side.cpu / times / count * 1e6 for side in (ours, theirs)]
                reached[level].append(
                    f"{name}: {theirs.cpu / ours.cpu:.2f} × (wall {theirs.wall / ours.wall:.2f} ×; "
                    f"{rate[0]:.0f} of {rate[1]:.0f} MB/s; CPU {each[0]:.1f} to {each[1]:.1f} µs a record)"
                )
    return [
        Row(
            "verify `frames`, speed of `zstd -dc \\| b3sum` over the same packs, one core",
            "; ".join(reached["frames"]),
            "≥ 0.7 ×",
            "CPU time, fastest of 3 rounds in turn",
        ),
        Row(
            "verify `full`, speed of BLAKE3 + canonicalisation over the same logical bytes, one core",
            "; ".join(reached["full"]),
            "≥ 0.5 ×",
            "payloads in memory, digest of each, canonical JSON and key of requests",
        ),
    ]


if __name__ == "__main__":
    _measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
