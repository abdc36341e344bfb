"""What `diff` reads of two independent recordings that differ in ten records, and how long it takes."""

from __future__ import annotations

import random
import time
from pathlib import Path

from replaypack import Archive, Record, Recording, diff

from .common import Row, note, record, scratch
from .counting import Counting
from .workloads import Call, flat

__all__ = ["run"]

_CHANGED = 10
_TARGET = 0.25


def _changed(calls: list[Call], count: int) -> list[Call]:
    """The same calls, some of which were answered otherwise."""
    calls = list(calls)
    for at in random.Random(5).sample(range(len(calls)), count):
        calls[at] = calls[at]._replace(response={**calls[at].response, "score": -1.0})
    return calls


def _opened(path: Path) -> tuple[Recording, Counting]:
    archive = Archive(path)
    counting = Counting(archive.storage)
    found = archive.open("r")
    return Recording(counting, "r", found.manifest), counting


def run(*, quick: bool) -> list[Row]:
    """Record the flat workload twice, ten answers changed, and compare."""
    count = 20_000 if quick else 100_000
    calls = list(flat(count))
    read: list[Record] = []
    blob_bytes = Record.blob_bytes

    def noted(self: Record, role: str) -> bytes:
        read.append(self)
        return blob_bytes(self, role)

    with scratch() as directory:
        for name, answers in (("a", calls), ("b", _changed(calls, _CHANGED))):
            note(f"diff: recording {count} records")
            with Archive(directory / name) as archive:
                # Flushes come when they come, in both.
                record(archive, "r", answers, flush_interval=5.0 if name == "a" else 3.0)
        (old, of_old), (new, of_new) = (_opened(directory / name) for name in "ab")
        sizes = [sum(pack.size for pack in side.index.packs) for side in (old, new)]
        Record.blob_bytes = noted  # type: ignore[method-assign]
        try:
            cpu, wall = time.process_time(), time.perf_counter()
            found = diff(old, new)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        finally:
            Record.blob_bytes = blob_bytes  # type: ignore[method-assign]
        assert found.counts["changed"] == _CHANGED
        assert found.counts["same"] == count - _CHANGED
        # What a manifest takes is read as well.
        shares = [
            (counting.seen.bytes + len(side.manifest.raw)) / size
            for side, counting, size in ((old, of_old, sizes[0]), (new, of_new, sizes[1]))
        ]
        note(f"diff: {[counting.seen for counting in (of_old, of_new)]}, {wall:.2f} s, CPU {cpu:.2f} s")
    how = f"{found.read} of {2 * count} rows read, {len(read)} payloads fetched; {wall:.2f} s (CPU {cpu:.2f} s)"
    return [
        Row(
            f"diff of two independent recordings of {count} records, {_CHANGED} of which differ: bytes read of either",
            f"{max(shares):.1%}",
            f"≤ {_TARGET:.0%}",
            how,
        )
    ]
