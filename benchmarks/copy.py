"""Copying an archive on one disk, next to ``cp -r`` and a BLAKE3 of every file; and what travels of a run that was
recorded again."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from blake3 import blake3

from replaypack import Archive
from replaypack.storage import MemoryStorage

from .common import Row, directory_size, interleaved, note, record, scratch
from .workloads import Call, agent, flat

__all__ = ["run"]


def _cp_and_b3sum(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)
    files = [file for file in target.rglob("*") if file.is_file()]
    b3sum = shutil.which("b3sum")
    if b3sum is not None:
        subprocess.run([b3sum, "--", *files], check=True, stdout=subprocess.DEVNULL)
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # as many threads as b3sum takes
        list(pool.map(lambda file: blake3(file.read_bytes()).digest(), files))


def _ours(source: Path, target: Path, *, fsync: bool) -> None:
    with Archive(source) as archive:
        archive.copy_to(target, storage_options={"replaypack": {"fsync": fsync}})


def _speed(rounds: int, sizes: tuple[int, int, int]) -> Row:
    runs, turns, megabytes = sizes
    with scratch() as directory:
        path = directory / "archive"
        with Archive(path, {"replaypack": {"fsync": False}}) as archive:
            for number in range(runs):
                record(
                    archive, f"runs/{number}", agent(turns, seed=number), base=f"runs/{number - 1}" if number else None
                )
            record(archive, "flat", flat(turns * 100))
            rng = random.Random(1)
            media = (Call("tool", "media", {"n": n}, rng.randbytes(1 << 20)) for n in range(megabytes))
            record(archive, "media", media)
        shutil.rmtree(path / "journal", ignore_errors=True)
        size = directory_size(path)
        peers: dict[str, Callable[[Path], None]] = {
            "ours": lambda to: _ours(path, to / "copy", fsync=False),
            "ours, fsync": lambda to: _ours(path, to / "copy", fsync=True),
            "cp": lambda to: _cp_and_b3sum(path, to / "copy"),
        }
        took = interleaved(peers, rounds)
    ratio, synced = took.ratio("cp", "ours"), took.ratio("cp", "ours, fsync")
    note(f"copy: {took.said()}")
    return Row(
        "copy of an archive, local to local",
        f"{ratio:.2f} × the speed",
        "≥ 0.5 × cp -r + b3sum",
        f"median of {rounds} interleaved rounds over {size >> 20} MiB: {took.wall['ours']:.2f} s "
        f"(cpu {took.cpu['ours']:.2f}) against {took.wall['cp']:.2f} s "
        f"(cpu {took.cpu['cp']:.2f}), both without fsync; {synced:.2f} × with",
    )


def _changed(calls: Iterable[Call]) -> tuple[list[Call], int]:
    """The run again, with other answers in about 1 % of its payload bytes, from a point on near its end."""
    calls = list(calls)
    sizes = [len(repr((call.request, call.response))) for call in calls]
    rng = random.Random(9)
    budget = sum(sizes) // 100
    changed = 0
    for number in rng.sample(range(len(calls)), len(calls)):
        call = calls[number]
        if call.kind != "tool" or changed >= budget:
            continue
        text = " ".join(f"{rng.getrandbits(40):x}" for _ in range(len(str(call.response)) // 11))
        calls[number] = call._replace(response={"content": text})
        changed += len(text)
    return calls, changed


def _again(turns: int) -> Row:
    archive, target = Archive("", storage=MemoryStorage()), Archive("", storage=MemoryStorage())
    calls = list(agent(turns))
    record(archive, "one", calls)
    archive.copy_to(target)
    again, changed = _changed(calls)
    recording = record(archive, "two", again, base="one")
    rows = [item.row for item in recording.records()]
    payload = sum(ref.size for row in rows for ref in (row.request, row.identity, row.response) if ref is not None)
    records = sum(frame.at.length for _, frame in recording.index.frames())
    done: Any = archive.copy_to(target)
    moved = done.bytes
    assert archive.copy_to(target).bytes == 0
    return Row(
        f"second copy: agent T={turns} recorded again with base=, {100 * changed / payload:.1f} % of it changed",
        f"{100 * max(0, moved - records) / payload:.2f} % + record frames",
        "≤ 3 % + record frames",
        f"{moved >> 10} KiB travel, {records >> 10} KiB of them record frames; payloads are {payload >> 10} KiB. "
        "Of an unchanged archive 0 pack bytes travel",
    )


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    sizes = (3, 40, 40) if quick else (10, 200, 400)
    return [_speed(3 if quick else 5, sizes), _again(40 if quick else 200)]
