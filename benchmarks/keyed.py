"""Registering and looking up the entries of a keyed store, in memory and in an archive, next to a plain dict.

Every lookup asks with model, visit and replicate for an entry that has the model alone: the fourth of eight rungs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from replaypack import Archive, ReplayEntry, ReplayKey, ReplayStore
from replaypack.replay.keyed import ArchivedReplayStore

from .common import Row, note, scratch

__all__ = ["run"]

Pair = tuple[ReplayKey, ReplayEntry]


def _pairs(count: int) -> list[Pair]:
    return [
        (
            ReplayKey(question_id=f"urn:uuid:question-{number // 4}", answering_model_id=f"langchain:m{number % 4}"),
            ReplayEntry(raw_trace=f"The answer to number {number} is {number * number}.", verify_result=True),
        )
        for number in range(count)
    ]


def _timed(work: Callable[[], Any]) -> float:
    """Seconds."""
    gc.collect()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _plain(pairs: list[Pair]) -> None:
    answers = {}
    for key, entry in pairs:
        answers[key.question_id, key.answering_model_id] = entry
    for key, entry in pairs:
        assert answers[key.question_id, key.answering_model_id] is entry


def _register(store: ReplayStore, pairs: list[Pair]) -> None:
    for key, entry in pairs:
        store.register(key, entry)


def _look_up(store: ReplayStore, pairs: list[Pair]) -> None:
    for key, entry in pairs:
        found = store.lookup(
            question_id=key.question_id, answering_model_id=key.answering_model_id, visit_index=0, replicate=1
        )
        assert found == entry


def _memory(pairs: list[Pair]) -> None:
    store = ReplayStore()
    _register(store, pairs)
    _look_up(store, pairs)


def _archived(archive: Archive, pairs: list[Pair], fewer: list[Pair], rounds: int) -> tuple[float, float, float, float]:
    """Seconds to register and seal, and to look up, and how both grow from ``fewer`` to ``pairs``."""
    times = []
    for number in range(rounds):
        for chosen in (fewer, pairs):
            name = f"{len(chosen)}-{number}"
            store = ArchivedReplayStore(archive=archive, name=name, mode="record")
            register = _timed(lambda store=store, chosen=chosen: (_register(store, chosen), store.seal()))
            opened = ArchivedReplayStore(archive=archive, name=name)
            times.append((register, _timed(lambda opened=opened, chosen=chosen: _look_up(opened, chosen))))
    less, all_ = times[::2], times[1::2]
    return (
        median(register for register, _ in all_),
        median(look for _, look in all_),
        median(more[0] / few[0] for more, few in zip(all_, less, strict=True)),
        median(more[1] / few[1] for more, few in zip(all_, less, strict=True)),
    )


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    count, rounds = (2_000, 3) if quick else (20_000, 5)
    pairs, fewer = _pairs(count), _pairs(count // 4)
    times = [(_timed(lambda: _memory(pairs)), _timed(lambda: _plain(pairs)), _timed(lambda: _memory(fewer)))
             for _ in range(rounds)]  # fmt: skip
    memory = median(time for time, _, _ in times)
    ratio = median(time / plain for time, plain, _ in times)
    growth = median(time / quarter for time, _, quarter in times)
    note(f"keyed: memory {memory / count * 1e6:.1f} us, {ratio:.1f} x a dict, {growth:.2f} x a quarter of them")
    rows = [
        Row(
            f"register + lookup of {count:,} keyed entries, in memory",
            f"{ratio:.0f} × a plain dict",
            "linear",
            f"{memory / count * 1e6:.0f} µs for both, each lookup down the ladder; 4 × the entries: {growth:.1f} ×; "
            f"median of {rounds} interleaved rounds",
        )
    ]
    with scratch() as directory, Archive(directory) as archive:
        register, look, register_growth, look_growth = _archived(archive, pairs, fewer, rounds)
        plain = median(plain for _, plain, _ in times)
        note(f"keyed: archive {register / count * 1e6:.1f} us to register, {look / count * 1e6:.1f} us to look up")
        rows.append(
            Row(
                f"register + lookup of {count:,} keyed entries, in an archive",
                f"{(register + look) / plain:.0f} × a plain dict",
                "linear",
                f"{register / count * 1e6:.0f} µs to register (sealed and on the disk), {look / count * 1e6:.0f} µs to "
                f"look up (read and checked); 4 × the entries: {register_growth:.1f} × and {look_growth:.1f} ×; "
                f"median of {rounds} interleaved rounds",
            )
        )
    return rows
