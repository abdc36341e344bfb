"""Size as recorded and as compacted, next to Z: all bytes of a fresh archive after the seal, and after a collection."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from replaypack import Archive
from replaypack.audit import compact, gc
from replaypack.format.pack import FrameKind, parse_pack
from replaypack.format.table import TABLES
from replaypack.storage import open_storage

from .common import Row, directory_size, note, record, scratch, z_size
from .corpora import CORPORA, corpus
from .counting import Counting
from .workloads import Call, agent, flat

__all__ = ["Sizes", "measure", "run"]

_LOOKUPS = 16


class Sizes(NamedTuple):
    """Bytes of one workload, as recorded and where they go; as compacted, and the CPU time (seconds) of that.

    ``cold`` are the bytes that a lookup and a request take of a store, on average, before and after.
    """

    records: int
    z: int
    total: int
    default: int
    parts: dict[str, int]
    compacted: int
    cpu: float
    cold: tuple[tuple[int, int], tuple[int, int]]

    def limit(self, factor: float = 1.25) -> int:
        """The target: 1.25 Z (compacted: 1.05 Z) + 128 B a record."""
        return int(factor * self.z) + 128 * self.records


def breakdown(directory: Path) -> dict[str, int]:
    """Bytes of an archive by what they are for."""
    names = {shape.number: shape.name for shape in TABLES} | {0: "roots"}
    parts: dict[str, int] = {}

    def count(what: str, size: int) -> None:
        parts[what] = parts.get(what, 0) + size

    for path in sorted(directory.rglob("*")):
        if not path.is_file():
            continue
        size = path.stat().st_size
        if path.suffix != ".rpk":
            count("manifests" if "recordings" in path.parts else "marker", size)
            continue
        toc = parse_pack(path.read_bytes(), where=path.name)
        for frame in toc.frames:
            if frame.kind == FrameKind.PAGE:
                count(names[frame.first], frame.length)
            else:
                count({1: "record frames", 2: "literal frames"}[frame.kind], frame.length)
            size -= frame.length
        count("toc", size)
    return parts


def measure(calls: list[Call], *, with_default: bool = True) -> Sizes:
    """Record ``calls`` and look at what is on disk."""
    with scratch() as directory:
        with Archive(directory / "a") as archive:
            recording = record(archive, "r", calls, flush_interval=None)
            records = len(recording)
        total = directory_size(directory / "a")
        parts = breakdown(directory / "a")
        before = cold(directory / "a")
        started = time.process_time()
        with Archive(directory / "a") as archive:
            assert [item.outcome for item in compact(archive).recordings] == ["compacted"]
            cpu = time.process_time() - started
            gc(archive, keep_last=1, grace=timedelta(0), apply=True)
        (directory / "a" / "gc.json").unlink(missing_ok=True)
        compacted = directory_size(directory / "a")
        after = cold(directory / "a")
        default = 0
        if with_default:
            with Archive(directory / "b") as archive:
                record(archive, "r", calls)
            default = directory_size(directory / "b")
    return Sizes(records, z_size(calls), total, default, parts, compacted, cpu, (before, after))


def cold(directory: Path) -> tuple[int, int]:
    """Bytes that are read, on average, by the first lookup of a fresh process, and by the request of its record."""
    with Archive(directory) as archive:
        recording = archive.open("r")
        step = max(1, len(recording) // _LOOKUPS)
        keys = [recording.record(seq).key for seq in range(0, len(recording), step)]
    lookups = requests = 0
    for key in keys:
        store = Counting(open_storage(directory))
        record_ = Archive("", storage=store).open("r").lookup_digest(key)
        assert record_ is not None
        lookups += store.seen.bytes
        store.reset()
        _ = record_.request
        requests += store.seen.bytes
    return lookups // len(keys), requests // len(keys)


def _workloads(quick: bool, only: Iterable[str]) -> Iterable[tuple[str, list[Call]]]:
    only = set(only)
    turns, count = (60, 10_000) if quick else (200, 100_000)
    for name in CORPORA:
        if only and name not in only:
            continue
        if quick and name == "pydantic-ai":
            continue
        calls = corpus(name)
        if calls is None:
            note(f"size: {name} is absent: set REPLAYPACK_CORPORA to where {name}.tar.zst lies")
            continue
        yield name, calls
    if not only or "agent" in only:
        yield f"agent T={turns}", list(agent(turns))
    if not only or "flat" in only:
        yield f"flat {count // 1000}k", list(flat(count))


def run(*, quick: bool = False, only: Iterable[str] = ()) -> list[Row]:
    """The rows of the table."""
    rows = []
    for name, calls in _workloads(quick, only):
        sizes = measure(calls)
        over = (sizes.total - 1.25 * sizes.z) / sizes.records
        limit = sizes.limit()
        note(
            f"size: {name}: {sizes.records} records, Z {sizes.z}, recorded {sizes.total} ="
            f" {sizes.total / sizes.z:.3f} Z,"
            f" 1.25 Z {over:+.1f} B/record; limit {limit}, {sizes.total / limit:.3f} of it;"
            f" default interval {sizes.default}"
        )
        for what, size in sorted(sizes.parts.items(), key=lambda item: -item[1]):
            note(f"    {what:15} {size:10} {size / sizes.records:9.1f} B/record {size / sizes.z:7.3f} Z")
        verdict = "" if sizes.total <= limit else " **missed**"
        rows.append(
            Row(
                f"size as recorded, {name}",
                f"{sizes.total / sizes.z:.2f} Z = 1.25 Z {over:+.0f} B a record{verdict}",
                "≤ 1.25 Z + 128 B a record",
                f"{sizes.records:,} records, Z {sizes.z:,} B, archive {sizes.total:,} B without flushes,"
                f" {sizes.default:,} B with the default interval",
            )
        )
        more, limit = (sizes.compacted - 1.05 * sizes.z) / sizes.records, sizes.limit(1.05)
        verdict = "" if sizes.compacted <= limit else " **missed**"
        (lookup, request), (lookup_now, request_now) = ((a / 1000, b / 1000) for a, b in sizes.cold)
        rows.append(
            Row(
                f"size compacted, {name}",
                f"{sizes.compacted / sizes.z:.2f} Z = 1.05 Z {more:+.0f} B a record,"
                f" {sizes.compacted / limit:.3f} of the limit{verdict}",
                "≤ 1.05 Z + 128 B a record",
                f"archive {sizes.compacted:,} B, {sizes.compacted / sizes.total:.2f} of what was recorded, in"
                f" {sizes.cpu:.1f} s of CPU; a cold lookup reads {lookup_now:.0f} kB ({lookup:.0f} before), its"
                f" request {request_now:.0f} kB more ({request:.0f})",
            )
        )
        note(f"size: {name}: {rows[-1].reached}; {rows[-1].how}")
    return rows
