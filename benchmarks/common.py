"""What the benchmarks share: rows of the table, JSON lines and their compressors, scratch space, sizes."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zstandard

import replaypack
from replaypack import Archive

from .workloads import Call

__all__ = [
    "Row",
    "cache_path",
    "directory_size",
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
