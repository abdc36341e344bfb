"""Looking up what was recorded, warm, next to sqlite3 with a zstd'ed row by key: in recorded order and in random order.

Both sides get the key (the digest of the request is not what is measured, `benchmarks/keys.py` does that), and both
give the decoded response.
"""

from __future__ import annotations

import gc
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import zstandard

from replaypack import Archive, key_digest

from .common import Row, note, record, scratch
from .workloads import Call, flat

__all__ = ["run"]


def _sqlite(path: Path, calls: list[Call], keys: list[bytes]) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("create table calls (key blob, seq integer, body blob, primary key (key, seq)) without rowid")
    compressor = zstandard.ZstdCompressor(level=3)
    encode = msgspec.json.Encoder().encode
    rows = (
        (key, seq, compressor.compress(encode(call.response)))
        for seq, (key, call) in enumerate(zip(keys, calls, strict=True))
    )
    connection.executemany("insert into calls values (?, ?, ?)", rows)
    connection.commit()
    return connection


def _per_lookup(answer: Callable[[bytes], Any], keys: Sequence[bytes]) -> float:
    """Microseconds a lookup."""
    begin = time.perf_counter()
    for key in keys:
        answer(key)
    return (time.perf_counter() - begin) / len(keys) * 1e6


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    count, rounds = (10_000, 3) if quick else (100_000, 5)
    calls = list(flat(count))
    keys = [key_digest(call.kind, call.request) for call in calls]
    rows = []
    with scratch() as directory, Archive(directory / "archive") as archive:
        recording = record(archive, "r", calls)
        connection = _sqlite(directory / "calls.sqlite", calls, keys)
        decompressor = zstandard.ZstdDecompressor()
        decode = msgspec.json.Decoder().decode

        def ours(key: bytes) -> Any:
            found = recording.lookup_digest(key)
            assert found is not None
            return found.response

        def theirs(key: bytes) -> Any:
            row = connection.execute("select body from calls where key = ? order by seq limit 1", (key,)).fetchone()
            return decode(decompressor.decompress(row[0]))

        for key, call in list(zip(keys, calls, strict=True))[:: max(1, count // 50)]:
            assert ours(key) == theirs(key) == call.response
        gc.collect()
        gc.freeze()
        each = min(5_000, count // (rounds + 1))
        shuffled = random.Random(5).sample(keys, each * (rounds + 1))
        other = [shuffled[at : at + each] for at in range(0, len(shuffled), each)]
        same = [shuffled[:each]] * (rounds + 1)
        for what, asked, cache, target in (
            ("in recorded order", [keys[: count // 5]] * (rounds + 1), 64, "faster than"),
            (f"in random order, {each:,} calls again and again", same, 64, "≤ 5 ×"),
            ("in random order, each call once", other, 64, "-"),
            ("in random order, each call once, cache of 128 MiB", other, 128, "-"),
        ):
            recording = archive.open("r", cache_bytes=cache << 20)
            pairs = [(_per_lookup(ours, part), _per_lookup(theirs, part)) for part in asked][1:]
            ratio = median(a / b for a, b in pairs)
            mine, sqlite = median(a for a, _ in pairs), median(b for _, b in pairs)
            note(f"replay: {what}: {mine:.1f} us against {sqlite:.1f} us")
            rows.append(
                Row(
                    f"replay {what}, flat {count // 1000}k, warm",
                    f"{ratio:.2f} ×",
                    f"{target} sqlite3, zstd'ed row by key" if target != "-" else target,
                    f"{mine:.0f} µs a lookup against {sqlite:.0f} µs; median of {rounds} interleaved rounds, "
                    "response decoded, row and response checked against their digests",
                )
            )
        begin = time.perf_counter()
        for found in recording.records():
            found.response  # noqa: B018
        scan = (time.perf_counter() - begin) / count * 1e6
        note(f"replay: records(): {scan:.1f} us a record")
        rows.append(
            Row("iterate all, response decoded", f"{scan:.0f} µs a record", "-", f"`records()`, flat {count:,}")
        )
        connection.close()
    return rows
