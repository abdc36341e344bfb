"""A recording that is flushed 5,000 times: what a lookup costs meanwhile, what is uploaded, what is left afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from replaypack import Archive, Recorder
from replaypack.format.row import INLINE_LIMIT
from replaypack.storage import MemoryStorage
from replaypack.values import encode

from .common import Row, note
from .counting import Counting, Seen
from .workloads import Call, agent, flat

__all__ = ["run"]

#: Records a flush: what an evaluation that flushes after each sample, or an agent that is published every minute
#: or so, has made in between. (In the background the interval grows to five minutes.)
_PER_FLUSH = 32


def _calls(count: int) -> Iterator[Call]:
    """Conversations of 40 turns one after another, with as many small independent calls mixed in."""
    small = flat(count)
    made = seed = 0
    while made < count:
        for call in agent(40, seed=100 + seed):
            yield call
            yield next(small)
            made += 2
            if made >= count:
                return
        seed += 1


def _append(recorder: Recorder, call: Call) -> None:
    recorder.append(kind=call.kind, name=call.name, identity=call.request, response=call.response)


def _worst(storage: Counting, name: str, asked: list[tuple[int, Call]]) -> tuple[Seen, Seen]:
    """The most that a cold open and lookup, and then its request, took."""
    lookups, requests = [], []
    for _, call in asked:
        storage.reset()
        with Archive("memory://", storage=storage).open(name) as recording:
            found = recording.lookup(call.kind, call.request)
            assert found is not None
            lookups.append(storage.seen)
            storage.reset()
            assert found.request == call.request
            requests.append(storage.seen)
    worst = lambda seen: Seen(*(max(column) for column in zip(*seen, strict=True)))  # noqa: E731
    return worst(lookups), worst(requests)


def _text(lookup: Seen, request: Seen) -> str:
    return (
        f"lookup {lookup.depth} rounds {lookup.gets} GETs, request {request.depth} rounds {request.gets} GETs"
        f" {request.bytes / 1000:.0f} KB"
    )


def _stored(storage: Counting, name: str) -> tuple[int, int]:
    """Bytes of the packs that the newest manifest names, and their number."""
    packs = Archive("memory://", storage=storage).open(name).manifest.storage.packs
    return sum(pack.size for pack in packs), len(packs)


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    flushes = 300 if quick else 5_000
    count = flushes * _PER_FLUSH
    storage = Counting(MemoryStorage())
    archive = Archive("memory://", storage=storage)
    recorder = archive.recorder("many", flush_interval=None)
    asked: list[tuple[int, Call]] = []
    for number, call in enumerate(_calls(count)):
        _append(recorder, call)
        if number % max(1, count // 25) == 7:
            asked.append((number, call))
        if number % _PER_FLUSH == _PER_FLUSH - 1:
            recorder.flush()
            if (number + 1) % (count // 10) < _PER_FLUSH:
                note(f"flushes: {(number + 1) // _PER_FLUSH} …")
    before_size, _ = _stored(storage, "many")
    small = [(number, call) for number, call in asked if len(encode(call.response)) < INLINE_LIMIT]
    before, _ = _worst(storage, "many", small)
    before_large, before_request = _worst(storage, "many", asked)
    packs, manifests = storage.packs, storage.manifests
    pieces = Archive("memory://", storage=storage).open("many").manifest
    recorder.seal()
    after_size, after_packs = _stored(storage, "many")
    after, after_request = _worst(storage, "many", asked)
    total = storage.packs + storage.manifests
    once = Counting(MemoryStorage())
    with Archive("memory://", storage=once).recorder("once", flush_interval=None) as recorder:
        for call in _calls(count):
            _append(recorder, call)
    once_size, once_packs = _stored(once, "once")
    at_once, at_once_request = _worst(once, "once", asked)
    how = f"{flushes:,} flushes of {_PER_FLUSH} records (agents of 40 turns, small calls between)"
    return [
        Row(
            f"lookup in an unsealed recording after {flushes:,} flushes",
            f"{before.gets} GETs, depth {before.depth}, {before.bytes / 1000:.0f} KB (response of 4 KiB and more:"
            f" {before_large.gets} GETs, depth {before_large.depth}); its request"
            f" {before_request.gets} GETs, depth {before_request.depth}",
            "≤ 20 GETs of depth 3",
            f"open included, the most of {len(asked)}; {how}",
        ),
        Row(
            "bytes uploaded by them",
            f"{(packs + manifests) / before_size:.2f} × stored: packs {packs / before_size:.2f} ×, manifests"
            f" {manifests / before_size:.2f} ×; seal included {total / after_size:.2f} ×",
            "≤ 4 × bytes stored",
            f"all puts, over the {before_size / 1e6:.1f} MB the manifest names; {len(pieces.storage.segments)} live"
            f" segments, manifest {len(pieces.raw) / 1000:.1f} KB, written twice a flush",
        ),
        Row(
            "after the seal",
            f"{after_size / once_size:.3f} × the size, {after_packs} packs; {_text(after, after_request)}",
            "as one written at once",
            f"at once: {once_packs} packs; {_text(at_once, at_once_request)}",
        ),
    ]
