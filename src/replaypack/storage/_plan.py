"""Which requests to send for a set of byte ranges. Pure: ranges in, plan out, nothing is read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replaypack.storage._protocol import KeyRange

__all__ = ["Fetch", "Part", "assemble", "plan_ranges"]


@dataclass(frozen=True, slots=True)
class Part:
    """Where one requested range lies in a fetch: ``index`` among the ranges asked for, ``offset`` in the fetch."""

    index: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request to send: ``length`` bytes of ``key`` from byte ``start``, and the ranges it answers."""

    key: str
    start: int
    length: int
    parts: tuple[Part, ...]


def plan_ranges(ranges: Sequence[KeyRange], *, max_gap: int, max_size: int) -> tuple[Fetch, ...]:
    """The requests that cover ``ranges``, those first whose ranges were named first.

    Ranges of one key that overlap, touch, or lie at most ``max_gap`` bytes apart share a request, unless it would
    exceed ``max_size`` bytes. A range is never split, so one that is larger gets a larger request, its own.
    Empty ranges need none. How many requests run at a time is the business of whoever sends them.
    """
    by_key: dict[str, list[tuple[int, int, int]]] = {}
    for index, (key, start, length) in enumerate(ranges):
        if length:
            by_key.setdefault(key, []).append((start, start + length, index))
    fetches: list[Fetch] = []
    for key, wanted in by_key.items():
        wanted.sort()
        group: list[tuple[int, int, int]] = []
        first = stop = 0
        for item in wanted:
            new_stop = max(stop, item[1])
            # A range inside what is fetched anyway costs nothing, however large the fetch already is.
            joins = bool(group) and item[0] - stop <= max_gap and (new_stop == stop or new_stop - first <= max_size)
            if not joins:
                if group:
                    fetches.append(_fetch(key, first, stop, group))
                group, first, new_stop = [], item[0], item[1]
            group.append(item)
            stop = new_stop
        fetches.append(_fetch(key, first, stop, group))
    fetches.sort(key=lambda fetch: min(part.index for part in fetch.parts))
    return tuple(fetches)


def assemble(ranges: Sequence[KeyRange], plan: Sequence[Fetch], bodies: Sequence[bytes]) -> list[bytes]:
    """The bytes of each of ``ranges``, in their order, cut from the ``bodies`` that answer ``plan``."""
    answers = [b""] * len(ranges)
    for fetch, body in zip(plan, bodies, strict=True):
        if len(fetch.parts) == 1:
            answers[fetch.parts[0].index] = body  # the common case, without a copy
            continue
        view = memoryview(body)
        for part in fetch.parts:
            answers[part.index] = bytes(view[part.offset : part.offset + part.length])
    return answers


def _fetch(key: str, first: int, stop: int, group: Sequence[tuple[int, int, int]]) -> Fetch:
    parts = tuple(Part(index, start - first, end - start) for start, end, index in group)
    return Fetch(key, first, stop - first, parts)
