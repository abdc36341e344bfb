"""What the benchmarks share: rows of the table, JSON lines and their compressors, scratch space, sizes."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import zstandard

import replaypack
from replaypack import Archive

from .workloads import Call

__all__ = [
    "Interleaved",
    "Row",
    "cache_path",
    "directory_size",
    "interleaved",
    "json_line",
    "line_compressor",
    "note",
    "record",
    "scratch",
    "table",
    "z_size",
]


class Row(NamedTuple):
    """One line of the table."""

    what: str
    reached: str
    target: str
    how: str


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| what | reached | target | how |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.reached} | {row.target} | {row.how} |" for row in rows]
    return "\n".join(lines)


def note(text: str) -> None:
    """Say how far it is; the table alone goes to stdout."""
    print(text, file=sys.stderr, flush=True)


class Interleaved(NamedTuple):
    """What rounds of several peers, one after another, took: medians of wall and processor time (seconds) by peer,
    and of each round both."""

    wall: dict[str, float]
    cpu: dict[str, float]
    rounds: dict[str, list[tuple[float, float]]]

    def said(self) -> str:
        """Each peer with its times."""
        return ", ".join(f"{peer} {wall:.2f} s (cpu {self.cpu[peer]:.2f})" for peer, wall in self.wall.items())

    def ratio(self, of: str, to: str) -> float:
        """The median of the rounds' ratios of wall time."""
        return median(a / b for (a, _), (b, _) in zip(self.rounds[of], self.rounds[to], strict=True))


def interleaved(peers: Mapping[str, Callable[[Path], object]], rounds: int) -> Interleaved:
    """Run ``peers`` in turns, each time in an empty directory, which they are given."""
    times: dict[str, list[tuple[float, float]]] = {peer: [] for peer in peers}
    for _ in range(rounds):
        for peer, action in peers.items():
            times[peer].append(_timed(action))
    wall = {peer: median(seen for seen, _ in pairs) for peer, pairs in times.items()}
    cpu = {peer: median(used for _, used in pairs) for peer, pairs in times.items()}
    return Interleaved(wall, cpu, times)


def _timed(action: Callable[[Path], object]) -> tuple[float, float]:
    """Wall and processor time (of all threads and of child processes), in seconds."""
    with scratch() as directory:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall, cpu = time.perf_counter(), time.process_time()
        action(directory)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return wall, cpu + after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime


def cache_path(name: str) -> Path:
    """A file in the cache that outlives a run."""
    directory = Path(os.environ.get("REPLAYPACK_BENCH_CACHE") or Path(tempfile.gettempdir()) / "replaypack-benchmarks")
    directory.mkdir(parents=True, exist_ok=True)
    return directory / name


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="replaypack-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


_encode = msgspec.json.Encoder().encode


def json_line(call: Call) -> bytes:
    """One record as the JSON-lines peer writes it; bytes become base64 text."""
    return _encode({"kind": call.kind, "name": call.name, "request": call.request, "response": call.response}) + b"\n"


def line_compressor(level: int) -> Any:
    """``zstd -<level> --long=27``, as a stream."""
    parameters = zstandard.ZstdCompressionParameters.from_level(level, window_log=27, enable_ldm=True)
    return zstandard.ZstdCompressor(compression_params=parameters).compressobj()


def z_size(calls: Iterable[Call], level: int = 19) -> int:
    """Z: bytes of ``zstd -19 --long=27`` over the records as JSON lines. Remembered by their digest."""
    hashed = hashlib.sha256()
    for call in calls:
        hashed.update(json_line(call))
    cached = cache_path(f"z{level}-{hashed.hexdigest()[:24]}")
    if cached.exists():
        return int(cached.read_text())
    stream = line_compressor(level)
    size = sum(len(stream.compress(json_line(call))) for call in calls) + len(stream.flush())
    cached.write_text(str(size))
    return size


def record(archive: Archive, name: str, calls: Iterable[Call], **options: Any) -> replaypack.Recording:
    """Record ``calls`` and seal; the recording opened again. Not redacted unless asked for: no peer does that."""
    with archive.recorder(name, **{"redact": None, **options}) as recorder:
        for call in calls:
            recorder.append(kind=call.kind, name=call.name, identity=call.request, response=call.response)
    return archive.open(name)


def directory_size(path: Path) -> int:
    """Bytes of all files below ``path``."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
