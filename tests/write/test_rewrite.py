"""Rewriting a recording into new packs: the same records and address space, whatever becomes of its frames."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack import Archive, Recording
from replaypack._write import rewrite as module
from replaypack._write.intervals import Intervals
from replaypack._write.publish import Publisher, progress_of
from replaypack._write.rewrite import Fate, rewrite, used_literals
from replaypack.errors import FormatError
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import pack_key_of, revision_key
from replaypack.format.pack import parse_pack
from replaypack.format.record_frame import RecordFrame, encode_frame
from replaypack.format.table import INLINE_SPACE, KEYS, TableShape
from replaypack.storage import MemoryStorage, Storage
from tests.archive.support import calls, check

CANARY = "canary-in-the-coal-mine-8517"


def record(
    archive: Archive, name: str, expected: list[dict[str, Any]], *, flush_every: int = 0, **options: Any
) -> None:
    with archive.recorder(name, flush_interval=None, **options) as recorder:
        for number, call in enumerate(expected, 1):
            recorder.append(**call)
            if flush_every and not number % flush_every:
                recorder.flush()


def publish(source: Recording, to: Storage, *, name: str = "new", **fates: Any) -> tuple[Recording, dict[str, bytes]]:
    """Rewrite into ``to`` and commit; return the new recording, and the packs that were written."""
    manifest = source.manifest
    publisher = Publisher(
        to, name, writer=bytes(8), mode="replace", template=manifest.content, base=None, revision=0, previous=None
    )
    written: dict[str, bytes] = {}

    def upload(ref: PackRef, data: bytes) -> None:
        written[ref.digest] = data
        publisher.upload(ref, data)

    fates = {"literal": lambda *_: Fate.KEEP, "record": lambda *_: Fate.KEEP, **fates}
    live = rewrite(source, origin=publisher.origin, upload=upload, compressor=publisher.compressor, **fates)
    publisher.lives = [live] if live is not None else []
    new = publisher.manifest(
        revision=1, cause="copy", state=manifest.content.state, progress=progress_of(manifest), error=None
    )
    to.put_new(revision_key(name, 1), new.raw)
    publisher.write_latest(name, new)
    assert new.content_digest == manifest.content_digest
    return Archive("", storage=to).open(name, 1), written


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    return list(calls(120, large=True))


@pytest.fixture(scope="module")
def archive(expected: list[dict[str, Any]]) -> Archive:
    archive = Archive("", storage=MemoryStorage())
    record(archive, "r", expected, flush_every=50)
    record(archive, "next", expected[:100], base="r")
    return archive


def test_frames_are_kept_and_records_are_the_same(archive: Archive, expected: list[dict[str, Any]]) -> None:
    source = archive.open("r")
    new, written = publish(source, MemoryStorage())
    check(new, expected)
    assert {pack.digest for pack in new.index.packs} == set(written)
    assert [record.row for record in new.records()] == [record.row for record in source.records()]
    assert not list(Archive("", storage=new.storage).verify("new"))
    # The same again gives the same packs.
    assert publish(source, MemoryStorage())[1] == written


def test_segments_become_one(expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FRAMES", 3)
    archive = Archive("", storage=MemoryStorage())
    recorder = archive.recorder("r", flush_interval=None)
    for number, call in enumerate(expected):
        recorder.append(**call)
        if number % 20 == 19:
            recorder.flush()
    recorder.flush()
    source = archive.open("r", fresh=True)
    assert len(source.index.segments) > 3
    new, _ = publish(source, MemoryStorage())
    assert len(new.index.segments) == 1
    check(new, expected)
    recorder.seal()


def test_what_is_small_lies_side_by_side() -> None:
    archive = Archive("", storage=MemoryStorage())
    expected = list(calls(12))
    record(archive, "r", expected)
    new, written = publish(archive.open("r"), MemoryStorage())
    assert len(written) == 1
    assert new.index.segments[0].near() is not None
    check(new, expected)


def test_frames_that_stay_are_not_read(archive: Archive, expected: list[dict[str, Any]]) -> None:
    source = archive.open("r")
    before = {pack.digest for pack in source.index.packs}
    stay: Any = lambda *_: Fate.STAY  # noqa: E731
    new, written = publish(source, archive.storage, name="stays", literal=stay, record=stay)
    check(new, expected)
    assert {pack.digest for pack in new.index.packs} <= before | set(written)
    frames = [frame for pack in written.values() for frame in parse_pack(pack).frames]
    assert {frame.kind for frame in frames} == {3}
    assert not list(archive.verify("stays"))


@pytest.mark.parametrize("name", ["r", "next"])
def test_what_recipes_touch_is_enough(archive: Archive, expected: list[dict[str, Any]], name: str) -> None:
    source = archive.open(name)
    used = used_literals(source)
    new, written = publish(
        source, MemoryStorage(), literal=lambda entry, _: used.between(entry.first, entry.first + entry.items)
    )
    check(new, expected if name == "r" else expected[:100])
    assert {pack.digest for pack in new.index.packs} == set(written)
    assert not list(Archive("", storage=new.storage).verify("new"))


def test_what_is_not_kept_is_gone(archive: Archive) -> None:
    source = archive.open("r")
    used = used_literals(source, roles=["response"])
    both = used_literals(source)
    assert sum(end - start for start, end in used) < sum(end - start for start, end in both)
    new, _ = publish(
        source, MemoryStorage(), literal=lambda entry, _: used.between(entry.first, entry.first + entry.items)
    )
    for old, here in zip(source.records(), new.records(), strict=True):
        assert repr(old.response) == repr(here.response)
    with pytest.raises(FormatError):
        _ = [here.request for here in new.records()]


def test_only_records_that_are_wanted_count(archive: Archive) -> None:
    source = archive.open("r")
    for wanted in (0, 1, 7, 61):
        item = source.record(wanted)
        ranges = [found for role in ("request", "identity") if getattr(item.row, role) for found in item.recipe(role)]
        found = used_literals(source, roles=("request", "identity"), wanted=lambda seq, wanted=wanted: seq == wanted)
        assert list(found) == list(Intervals((start, start + size) for start, size, _ in ranges))
    assert not list(used_literals(source, wanted=lambda _: False))


def test_the_end_of_a_record_frame_is_taken_without_the_rest() -> None:
    archive = Archive("", storage=MemoryStorage())
    answer = "an answer that the next request repeats. " * 30

    def turns(count: int) -> list[dict[str, Any]]:
        history = ["x" * 5000]
        made = []
        for number in range(count):
            made.append({"kind": "model", "identity": {"m": list(history)}, "response": f"{number} {answer}"})
            history.append(f"{number} {answer}")
        return made

    record(archive, "base", [*turns(4), {"kind": "tool", "identity": "i", "response": CANARY}, *turns(6)[4:]])
    record(archive, "r", turns(7), base="base")
    source = archive.open("r")
    used = used_literals(source)
    new, written = publish(
        source, MemoryStorage(), literal=lambda entry, _: used.between(entry.first, entry.first + entry.items)
    )
    check(new, turns(7))
    assert any(entry.items < entry.raw for entry, _ in _lower(source))
    assert not any(entry.items < entry.raw for entry, _ in _lower(new))
    assert not any(CANARY.encode() in raw for raw in _frames(written))
    # Kept whole it is taken without the rows of the other recording too, but with its responses.
    _, written = publish(source, MemoryStorage(), name="whole")
    assert any(CANARY.encode() in raw for raw in _frames(written))


def _lower(recording: Recording) -> list[Any]:
    spans = [(start, end - start) for start, end in used_literals(recording)]
    return [(entry, frame) for entry, frame in recording.index.literal_entries(spans) if entry.first < INLINE_SPACE]


def _frames(packs: dict[str, bytes]) -> Iterator[bytes]:
    from replaypack.format.frame import decompress

    for pack in packs.values():
        for frame in parse_pack(pack).frames:
            yield decompress(pack[frame.offset : frame.offset + frame.length], frame.raw)


def test_record_frames_are_changed(archive: Archive, expected: list[dict[str, Any]]) -> None:
    def again(raw: bytes) -> list[bytes]:
        frame = RecordFrame(raw)
        return encode_frame(map(frame.entry, range(frame.count)))

    new, _ = publish(archive.open("r"), MemoryStorage(), record=lambda *_: again)
    check(new, expected)
    assert not list(Archive("", storage=new.storage).verify("new"))

    def fewer(raw: bytes) -> list[bytes]:
        frame = RecordFrame(raw)
        return encode_frame(map(frame.entry, range(frame.count - 1)))

    with pytest.raises(FormatError, match="another number of records"):
        publish(archive.open("r"), MemoryStorage(), record=lambda *_: fewer)


def test_entries_are_edited(archive: Archive) -> None:
    source = archive.open("r")
    seen: dict[str, int] = {}

    def edit(shape: TableShape, rows: Iterator[bytes]) -> Iterator[bytes]:
        for row in rows:
            seen[shape.name] = seen.get(shape.name, 0) + 1
            if shape is KEYS:
                yield row

    new, _ = publish(source, MemoryStorage(), edit=edit)
    segment = new.index.segments[0].segment
    assert seen["keys"] == len(source)
    assert seen["blobs"] > 0
    assert segment.blobs.count == 0


def test_damage_is_not_copied(expected: list[dict[str, Any]]) -> None:
    archive = Archive("", storage=MemoryStorage())
    record(archive, "r", expected[:60])
    source = archive.open("r")
    _, frame = next(iter(source.index.frames()))
    key = pack_key_of(frame.pack.digest)
    data = bytearray(archive.storage.get(key))
    data[frame.at.offset + frame.at.length // 2] ^= 1
    archive.storage.put(key, bytes(data))
    with pytest.raises(FormatError):
        publish(source, MemoryStorage())


def test_external_frames_are_noted_in_as_many_packs_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EXTERNAL", 2)
    monkeypatch.setattr("replaypack.format.table.LITERALS.page_entries", 1)
    archive = Archive("", storage=MemoryStorage())
    expected = [{"kind": "tool", "identity": n, "response": bytes([n]) * 900_000} for n in range(6)]
    record(archive, "r", expected)
    source = archive.open("r")
    entries = len(_lower(source))
    assert entries > 4
    stay: Any = lambda *_: Fate.STAY  # noqa: E731
    new, written = publish(source, archive.storage, literal=stay, record=stay)
    check(new, expected)
    counts = [len(parse_pack(data).external) for data in written.values()]
    assert sum(counts) == entries
    assert max(counts) == 2


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12))), st.integers(0, 60), st.integers(0, 60))
def test_intervals_are_sets_of_bytes(items: list[tuple[int, int]], low: int, high: int) -> None:
    within = Intervals([(low, high)])
    found, inside = Intervals(), Intervals(within=within)
    members: set[int] = set()
    for start, size in items:
        found.add(start, start + size)
        inside.add(start, start + size)
        members |= set(range(start, start + size))
    merged = list(found)
    assert {byte for start, end in merged for byte in range(start, end)} == members
    assert all(a[1] < b[0] for a, b in pairwise(merged))
    cut = found.between(low, high)
    assert {byte for start, end in cut for byte in range(start, end)} == members & set(range(low, high))
    assert list(inside) == cut
    assert found.covers(low, high) == (set(range(low, high)) <= members)
    assert len(found) == len(merged)
