"""Rows, record frames, zstd frames."""

from __future__ import annotations

import struct
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack.errors import FormatError
from replaypack.format.digests import digest
from replaypack.format.frame import MAX_FRAME, Compressor, decompress
from replaypack.format.recipe import Range, Run, encode_ops
from replaypack.format.record_frame import (
    Entry,
    RecordFrame,
    decode_entry,
    encode_entry,
    encode_frame,
    join_frames,
    stored_row,
)
from replaypack.format.row import (
    INLINE_LIMIT,
    ROW_FIELDS,
    Row,
    discriminator,
    encode_row,
    parse_row,
    parse_stored_row,
    parse_whole_rows,
)
from replaypack.format.varint import uvarint

from .strategies import mutated, ranges, rows


@given(rows())
def test_rows_round_trip(row: Row) -> None:
    data = encode_row(row)
    assert parse_row(data) == row
    assert data[-32:] == row.response_digest
    assert len(Row.__struct_fields__) == ROW_FIELDS == 17
    assert parse_stored_row(data, None) == (row, data)


@given(st.binary(max_size=INLINE_LIMIT - 1).flatmap(lambda r: st.tuples(rows(response=r), st.just(r))))
def test_inline_responses_stand_for_their_digest(item: tuple[Row, bytes]) -> None:
    row, response = item
    data = encode_row(row)
    assert parse_stored_row(data[:-32], response) == (row, data)
    with pytest.raises(FormatError):
        parse_stored_row(data[:-32], response + b"x")


@given(
    st.lists(
        st.one_of(
            rows().map(lambda row: (encode_row(row), None)),
            rows().map(encode_row).flatmap(mutated).map(lambda data: (data, None)),
            st.binary(max_size=50).flatmap(
                lambda r: st.tuples(
                    rows(response=r).map(lambda row: encode_row(row)[:-32]), st.sampled_from([r, r + b"x"])
                )
            ),
        ),
        max_size=4,
    )
)
def test_several_rows_are_parsed_as_each_is(items: list[tuple[bytes, bytes | None]]) -> None:
    stored, inlines = [item[0] for item in items], [item[1] for item in items]
    try:
        expected = [parse_stored_row(*item) for item in items]
    except FormatError:
        with pytest.raises(FormatError):
            parse_whole_rows(stored, inlines)
    else:
        assert parse_whole_rows(stored, inlines) == ([row for row, _ in expected], [data for _, data in expected])


@given(rows().map(encode_row).flatmap(mutated))
def test_other_bytes_are_refused_or_rows(data: bytes) -> None:
    try:
        row = parse_row(data)
    except FormatError:
        return
    assert row.response_digest == data[-32:]
    assert 0 <= row.seq < 1 << 48


def test_discriminators() -> None:
    assert discriminator(None) == bytes(8)
    assert discriminator("") == digest(b"")[:8] != bytes(8)


# Record frames


@st.composite
def frames(draw: Any) -> list[tuple[Row, list[list[Range]], bytes | None]]:
    records = []
    for seq in range(draw(st.integers(1, 4))):
        inline = draw(st.none() | st.binary(max_size=50))
        row = draw(rows(seq=seq, response=inline))
        recipes = draw(st.lists(st.lists(ranges(100), max_size=3), max_size=3))
        records.append((row, recipes, inline))
    return records


def entry_of(row: bytes, recipes: list[list[Any]], inline: bytes | None) -> Entry:
    return Entry(stored_row(row, inline), b"".join(map(encode_ops, recipes)), inline)


def raw_of(records: list[tuple[Row, list[list[Range]], bytes | None]]) -> bytes:
    return b"".join(encode_frame(entry_of(encode_row(row), recipes, inline) for row, recipes, inline in records))


@given(frames(), st.randoms(use_true_random=False))
def test_record_frames_round_trip(records: list[Any], random: Any) -> None:
    raw = raw_of(records)
    frame = RecordFrame(raw)
    assert frame.count == len(records)
    assert raw[len(raw) - frame.inline_size :] == b"".join(inline or b"" for _, _, inline in records)
    order = list(range(len(records)))
    random.shuffle(order)
    for number in order:
        row, recipes, inline = records[number]
        assert frame.record(number) == (row, encode_row(row), inline)
        assert frame.recipes(number) == recipes
    for number in (-1, len(records), len(records) + 5):
        for read in (frame.entry, frame.record, frame.recipes):
            with pytest.raises(FormatError):
                read(number)


@settings(max_examples=30)
@given(frames(), frames())
def test_frames_are_joined(first: list[Any], second: list[Any]) -> None:
    assert b"".join(join_frames([raw_of(first), raw_of(second)])) == raw_of(first + second)


@given(frames().map(raw_of).flatmap(mutated) | st.binary(max_size=80))
def test_other_bytes_are_refused_or_frames(raw: bytes) -> None:
    try:
        frame = RecordFrame(raw)
    except FormatError:
        return
    for number in range(frame.count):
        for read in (frame.record, frame.recipes):
            try:
                read(number)
            except FormatError:
                continue


@given(st.binary(max_size=40), st.binary(max_size=5), st.none() | st.binary(max_size=5))
def test_entries_are_taken_apart(row: bytes, recipes: bytes, inline: bytes | None) -> None:
    data = b"??" + encode_entry(Entry(row, recipes, inline))
    assert decode_entry(data + b"!!", 2) == (Entry(row, recipes, inline), len(data))
    with pytest.raises(FormatError):
        decode_entry(data[:-1], 2)


@given(st.binary(max_size=30))
def test_other_bytes_are_refused_or_entries(data: bytes) -> None:
    try:
        entry, end = decode_entry(data, 0)
    except FormatError:
        return
    assert encode_entry(entry) == data[:end]


ROW = encode_row(
    Row(0, "k", None, bytes(32), "opaque", None, None, None, 0, 0, 0, 0, None, bytes(8), 0, 2, digest(b""))
)


def test_runs_do_not_fill_memory() -> None:
    """A few kilobytes of runs that name 2**16 ranges each are refused at 2**22."""
    doubling: list[list[Any]] = [[Range(0, 1, 0)] * 2] + [[Run(1, 0, 2 << n), Run(1, 0, 2 << n)] for n in range(15)]
    recipes = [*doubling, *[[Run(1, 0, 1 << 16)]] * 98]
    entries = [entry_of(ROW, recipes[at : at + 3], b"") for at in range(0, len(recipes), 3)]
    frame = RecordFrame(b"".join(encode_frame(entries)))
    assert len(frame.raw) < 10000
    for _ in range(2):
        with pytest.raises(FormatError, match="4194304 ranges"):
            frame.recipes(len(entries) - 1)


def test_counts_are_checked_before_anything_is_made() -> None:
    for count in (1, 1 << 20, (1 << 64) - 1):
        with pytest.raises(FormatError, match="cannot hold"):
            RecordFrame(uvarint(count) + bytes(11))


def test_threads_share_a_frame() -> None:
    """Recipes are counted from the one that refers to them; two walks at a time must not count any twice."""
    entries = [entry_of(ROW, [[Range(0, 1, 0)]], b""), *[entry_of(ROW, [[Range(7, 7, 0)]], b"")] * 50]
    raw = b"".join(encode_frame([*entries, entry_of(ROW, [[Run(51, 0, 1)]], b"")]))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            frame = RecordFrame(raw)
            found: list[Any] = []
            barrier = threading.Barrier(4)

            def walk(
                frame: RecordFrame = frame, found: list[Any] = found, barrier: threading.Barrier = barrier
            ) -> None:
                barrier.wait()
                found.append(frame.recipes(51))

            threads = [threading.Thread(target=walk) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert found == [[[Range(0, 1, 0)]]] * 4
    finally:
        sys.setswitchinterval(interval)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5).filter(any), st.integers(1, 4))
def test_sections_are_one_frame(parts: list[bytes], level: int) -> None:
    assert decompress(Compressor(level).sections(parts)) == b"".join(parts)


@pytest.mark.parametrize("level", [1, 3, 6, 12, 13, 22])
def test_large_sections_are_one_frame_at_any_level(level: int) -> None:
    parts = [bytes(range(256)) * 200, b"", b"some text " * 40_000, b"and more"]
    compressor = Compressor(level)
    for _ in range(2):
        frame = compressor.sections(parts)
        assert decompress(frame) == b"".join(parts)
        assert len(frame) < 5000


# zstd frames


@given(st.binary(min_size=1, max_size=2000), st.integers(1, 5))
def test_frames_round_trip(raw: bytes, level: int) -> None:
    frame = Compressor(level)(raw)
    assert decompress(frame) == decompress(memoryview(frame), len(raw)) == raw
    with pytest.raises(FormatError):
        decompress(frame, len(raw) + 1)


@given(st.binary(min_size=1, max_size=300).map(Compressor(3)).flatmap(mutated) | st.binary(max_size=60))
def test_other_bytes_are_no_frames(frame: bytes) -> None:
    try:
        raw = decompress(frame)
    except FormatError:
        return
    assert 0 < len(raw) <= MAX_FRAME


@pytest.mark.parametrize("size", [MAX_FRAME + 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 3])
def test_sizes_are_checked_before_anything_is_allocated(size: int) -> None:
    bomb = bytes.fromhex("28b52ffde0") + struct.pack("<Q", size) + bytes.fromhex("010000")
    with pytest.raises(FormatError):
        decompress(bomb)


def test_a_frame_that_lies_about_its_size() -> None:
    frame = Compressor(3)(b"a" * 1000)
    # Frame header descriptor 0x60: two bytes of size, less 256.
    assert frame[4] >> 6 == 1
    for size in (256, 999, 1001, 60000):
        with pytest.raises(FormatError):
            decompress(frame[:5] + struct.pack("<H", size - 256) + frame[7:])


def test_compressor_has_the_limit_too() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return MAX_FRAME + 1

    with pytest.raises(ValueError, match="at most"):
        Compressor(3)(Long())


@given(st.lists(st.tuples(st.integers(0, 1 << 47), st.integers(32, 4095)), min_size=1, max_size=20), st.data())
def test_frames_of_one_plain_range_a_record(places: list[tuple[int, int]], data: st.DataObject) -> None:
    recipes = [encode_ops([Range(offset, length, 0)]) for offset, length in places]
    frame = RecordFrame(b"".join(encode_frame([Entry(b"row", recipe, b"") for recipe in recipes])))
    assert frame.lone_ranges() == tuple(map(list, zip(*places, strict=True)))
    at = data.draw(st.integers(0, len(places) - 1))
    recipes[at] = data.draw(
        st.sampled_from([b"", recipes[at] * 2, encode_ops([Range(1, 1, 0)] * 2), encode_ops([Range(3, 3, 1)])])
        | mutated(recipes[at])
    )
    frame = RecordFrame(b"".join(encode_frame([Entry(b"row", recipe, b"") for recipe in recipes])))
    lone = frame.lone_ranges()
    if lone is not None:
        assert [[[Range(*place, 0)]] for place in zip(*lone, strict=True)] == list(
            map(frame.recipes, range(frame.count))
        )
