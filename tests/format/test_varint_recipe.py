"""Integers and recipes: round trips, cuts, limits, and bytes that are neither."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack.errors import FormatError
from replaypack.format.recipe import (
    MAX_RANGES,
    Op,
    Range,
    Recipe,
    Run,
    cut,
    encode_ops,
    materialise,
    output_length,
    parse_ops,
    resolve,
)
from replaypack.format.varint import append_uvarint, read_columns, read_uvarint, read_uvarints, uvarint

from .strategies import mutated, ranges

SPACE = bytes(range(256))


def fetch(offset: int, length: int) -> bytes:
    assert offset + length <= len(SPACE)
    return SPACE[offset : offset + length]


def blob_of(items: list[Range]) -> bytes:
    return materialise(items, sum(map(output_length, items)), fetch)


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_uvarints_round_trip(values: list[int]) -> None:
    data = b"".join(map(uvarint, values))
    assert read_uvarints(data, 0, len(values)) == (values, len(data))
    out = bytearray()
    for value in values:
        append_uvarint(out, value)
    assert out == data


def columns_of(rows: list[bytes]) -> list[bytes]:
    return list(map(bytes, zip(*rows, strict=True)))


@given(st.data(), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 5))
def test_integers_of_many_rows_are_read_in_columns(data: st.DataObject, sizes: list[int], count: int) -> None:
    places = [
        data.draw(st.lists(st.integers(1 << 7 * (size - 1) if size > 1 else 0, (1 << 7 * size) - 1), min_size=count,
                           max_size=count))
        for size in sizes
    ]  # fmt: skip
    found = read_columns(columns_of([b"".join(map(uvarint, row)) for row in zip(*places, strict=True)]))
    assert found is None if max(sizes) > 8 else list(map(list, found or ())) == places


@given(st.integers(1, 10).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1)))
def test_columns_of_anything(rows: list[bytes]) -> None:
    found = read_columns(columns_of(rows))
    if found is not None:
        assert [read_uvarints(row, 0, len(found)) for row in rows] == [
            (list(values), len(rows[0])) for values in zip(*found, strict=True)
        ]


@given(st.binary(max_size=12))
def test_uvarint_has_one_form(data: bytes) -> None:
    try:
        value, end = read_uvarint(data, 0)
    except FormatError:
        return
    assert uvarint(value) == data[:end]


@pytest.mark.parametrize("size", range(2, 7))
def test_uvarints_of_each_size(size: int) -> None:
    low = 1 << 7 * (size - 1)
    for value in (low, low | 1, 2 * low - 1, 3 * low, 127 * low, 128 * low - 1):
        assert len(uvarint(value)) == size
        assert read_uvarint(b"x" + uvarint(value) + b"\x7f", 1) == (value, size + 1)
        with pytest.raises(FormatError, match="cut off"):
            read_uvarint(uvarint(value)[:-1], 0)
    for value in (0, 1, low - 1):
        with pytest.raises(FormatError, match="shortest"):
            read_uvarint(bytes((value >> 7 * at & 127) | 128 for at in range(size - 1)) + b"\0", 0)


@st.composite
def streams(draw: Any) -> list[list[Op]]:
    """Recipes in a row, with runs of those before them."""
    stream: list[list[Op]] = []
    sizes: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        ops: list[Op] = []
        size = 0
        for _ in range(draw(st.integers(0, 5))):
            sources = [number for number, count in enumerate(sizes) if count]
            if sources and draw(st.booleans()):
                source = draw(st.sampled_from(sources))
                start = draw(st.integers(0, sizes[source] - 1))
                items = draw(st.integers(1, sizes[source] - start))
                ops.append(Run(len(stream) - source, start, items))
                size += items
            else:
                ops.append(draw(ranges(len(SPACE))))
                size += 1
        stream.append(ops)
        sizes.append(size)
    return stream


@given(streams())
def test_recipes_round_trip(stream: list[list[Op]]) -> None:
    data = b"".join(map(encode_ops, stream))
    pos = 0
    earlier: list[list[Range]] = []
    for ops in stream:
        found, pos = parse_ops(data, pos)
        assert found == ops
        earlier.append(resolve(found, earlier))
        blob_of(earlier[-1])
    assert pos == len(data)


@given(st.lists(ranges(len(SPACE)), min_size=1, max_size=6), st.data())
def test_cut_is_a_slice(items: list[Range], data: st.DataObject) -> None:
    recipe = Recipe(items)
    whole = blob_of(items)
    assert recipe.size == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    found = cut(recipe, start, end)
    if found is not None:
        assert blob_of(found) == whole[start:end]
        return
    # Only a cut inside a quad of base64 is refused.
    starts = [end_ - output_length(item) for item, end_ in zip(items, recipe.ends, strict=True)]
    assert any(
        item.flags and begin < at < stop and (at - begin) % 4
        for item, begin, stop in zip(items, starts, recipe.ends, strict=True)
        for at in (start, end)
    )


@given(st.lists(ranges(len(SPACE)), max_size=4), st.integers(-3, 3))
def test_sizes_are_checked_before_anything_is_read(items: list[Range], off: int) -> None:
    size = sum(map(output_length, items))

    def never(offset: int, length: int) -> bytes:
        raise AssertionError("read")

    if off:
        with pytest.raises(FormatError):
            materialise(items, size + off, never)


@given(st.data())
def test_other_bytes_are_refused_or_recipes(data: st.DataObject) -> None:
    stream = data.draw(st.binary(max_size=40) | streams().map(lambda s: b"".join(map(encode_ops, s))).flatmap(mutated))
    pos = 0
    earlier: list[list[Range]] = []
    try:
        while pos < len(stream):
            ops, end = parse_ops(stream, pos)
            assert encode_ops(ops) == stream[pos:end]
            earlier.append(resolve(ops, earlier))
            assert all(0 < item.length <= 1 << 48 and item.offset + item.length <= 1 << 48 for item in earlier[-1])
            pos = end
    except FormatError:
        pass


def test_counts_are_checked_before_anything_is_made() -> None:
    for count in (MAX_RANGES + 1, 1 << 40, (1 << 64) - 1):
        with pytest.raises(FormatError, match="larger than its frame"):
            parse_ops(uvarint(count) + bytes(100), 0)


def test_runs_do_not_multiply_without_end() -> None:
    earlier = [[Range(0, 1, 0)] * MAX_RANGES]
    assert len(resolve([Run(1, 0, MAX_RANGES)], earlier)) == MAX_RANGES
    with pytest.raises(FormatError, match=f"{MAX_RANGES} ranges"):
        resolve([Run(1, 0, MAX_RANGES), Range(0, 1, 0)], earlier)
