"""Tables, Merkle trees and packs."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack.errors import FormatError
from replaypack.format.digests import digest, short_digest
from replaypack.format.frame import Compressor, decompress
from replaypack.format.merkle import MerkleTree, edge_sizes, leaf_hash, leaf_hashes, merkle_root, node_hash
from replaypack.format.pack import FrameKind, Origin, PackBuilder, check_header, parse_pack, parse_trailer
from replaypack.format.table import (
    KEYS,
    RECORDS,
    TABLES,
    BlobEntry,
    FrameEntry,
    FrameRef,
    KeyEntry,
    KeyPage,
    Location,
    Root,
    TableShape,
    key_page,
    lower_bound,
    pack_blob,
    pack_frame,
    pack_key,
    pages_of,
    parse_page,
    transpose,
    unpack_blob,
    unpack_frame,
    unpack_key,
    untranspose,
)

from .strategies import mutated

U32 = st.integers(0, 2**32 - 1)
U48 = st.integers(0, 2**48 - 1)
SHORT = st.binary(min_size=16, max_size=16)
LOCATIONS = st.builds(Location, U32, U32, U32)


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=8, max_size=8), U48)
def test_key_entries(key: bytes, discriminator: bytes, seq: int) -> None:
    data = pack_key(key, discriminator, seq)
    assert data == key[:16] + discriminator + seq.to_bytes(6, "big")
    assert unpack_key(b"xx" + data, 2) == KeyEntry(key[:16], discriminator, seq)


FRAMES = st.lists(st.builds(FrameRef, U48, LOCATIONS, SHORT), min_size=1, max_size=4, unique_by=lambda ref: ref.first)


@given(st.lists(st.binary(min_size=30, max_size=30), min_size=1, max_size=5), FRAMES, U48)
def test_pages_of_keys(entries: list[bytes], refs: list[FrameRef], seq: int) -> None:
    refs = sorted(refs[: len(entries)])
    rows = b"".join(sorted(entries))
    raw = key_page(rows, refs)
    page = KeyPage(raw, len(entries), short_digest(raw))
    assert (page.rows, page.frames) == (rows, refs)
    before = [ref for ref in refs if ref.first <= seq]
    if before:
        assert page.frame_of(seq) == before[-1]
    else:
        with pytest.raises(FormatError):
            page.frame_of(seq)


@given(st.integers(0, 5), st.binary(max_size=200))
def test_other_bytes_are_no_pages_of_keys(count: int, raw: bytes) -> None:
    try:
        page = KeyPage(raw, count, short_digest(raw))
    except FormatError:
        return
    assert key_page(page.rows, page.frames) == raw


@given(st.builds(FrameEntry, U48, LOCATIONS, U32, U32, SHORT), st.builds(BlobEntry, SHORT, U48, st.integers(0, 2)))
def test_frame_and_blob_entries(frame: FrameEntry, blob: BlobEntry) -> None:
    assert unpack_frame(b"x" + pack_frame(frame), 1) == frame
    assert unpack_blob(b"x" + pack_blob(blob), 1) == blob
    assert (len(pack_frame(frame)), len(pack_blob(blob))) == (42, 23)


@given(st.integers(1, 70), st.integers(0, 20), st.randoms(use_true_random=False))
def test_transposition(width: int, count: int, random: Any) -> None:
    rows = random.randbytes(width * count)
    page = transpose(rows, width)
    assert untranspose(page, width) == rows
    for number in range(count):
        assert page[number :: count or 1] == rows[number * width : (number + 1) * width]


class Small(TableShape):
    """A table with pages of three entries, so that few entries make many pages."""

    def __init__(self) -> None:
        super().__init__(9, "small", 4, 3)
        self.page_entries = 3


@given(st.lists(st.binary(min_size=4, max_size=4), max_size=20, unique_by=lambda e: e[:3]), st.binary(max_size=3))
def test_lookup_is_that_of_a_sorted_list(entries: list[bytes], key: bytes) -> None:
    shape = Small()
    entries.sort()
    pages = list(pages_of(shape, entries))
    assert [len(page) for page in pages[:-1]] == [3] * (len(pages) - 1)
    raws = [transpose(b"".join(page), 4) for page in pages]
    root = Root(
        shape,
        len(entries),
        [page[0][:3] for page in pages],
        [short_digest(raw) for raw in raws],
        [Location(0, 24, 1)] * len(pages),
    )
    again = Root.parse(shape, len(entries), root.encode())
    assert (again.fences, again.digests, again.locations) == (root.fences, root.digests, root.locations)
    if not pages:
        return
    number = again.page_of(key)
    rows = parse_page(shape, raws[number], again.page_count(number), again.digests[number])
    assert number * 3 + lower_bound(rows, 4, key) == bisect_left(entries, key)
    before = again.page_at_or_before(key)
    not_above = [at for at, entry in enumerate(entries) if entry[:3] <= key]
    assert before == (not_above[-1] // 3 if not_above else -1)


@given(st.sampled_from(TABLES), st.integers(-1, 1 << 62), st.binary(max_size=200))
def test_other_bytes_are_no_roots(shape: TableShape, count: int, data: bytes) -> None:
    if count < 0:
        return
    try:
        root = Root.parse(shape, count, data)
    except FormatError:
        return
    assert root.encode() == data
    assert -(-count // shape.page_entries) == len(root.fences) <= 200 // shape.fence.size


@given(st.sampled_from(TABLES), st.integers(0, 3), st.data())
def test_pages_are_checked(shape: TableShape, count: int, data: st.DataObject) -> None:
    page = data.draw(st.binary(min_size=shape.width * count, max_size=shape.width * count))
    assert len(parse_page(shape, page, count, short_digest(page))) == len(page)
    other = data.draw(mutated(page))
    if other != page:
        with pytest.raises(FormatError):
            parse_page(shape, other, count, short_digest(page))
    with pytest.raises(FormatError):
        parse_page(shape, page, count + 1, short_digest(page))


def test_pages_hold_what_the_chapter_says() -> None:
    assert [(t.number, t.name, t.width, t.page_entries, t.fence.size) for t in TABLES] == [
        (1, "keys", 30, 2184, 58),
        (2, "records", 42, 1560, 34),
        (3, "literals", 42, 1560, 34),
        (4, "blobs", 23, 2849, 50),
    ]
    assert KEYS.page_entries * KEYS.width <= 65536 < (KEYS.page_entries + 1) * KEYS.width
    assert RECORDS.page_entries * RECORDS.width <= 65536


# Merkle trees


def by_the_book(leaves: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1: split at the largest power of two below the number of leaves."""
    if not leaves:
        return digest(b"")
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return digest(b"\1" + by_the_book(leaves[:split]) + by_the_book(leaves[split:]))


@given(st.lists(st.binary(max_size=5), max_size=70), st.integers(0, 70))
def test_merkle(rows: list[bytes], at: int) -> None:
    leaves = [leaf_hash(row) for row in rows]
    assert merkle_root(leaves) == by_the_book(leaves)
    tree = MerkleTree()
    for leaf in leaves[:at]:
        tree.add(leaf)
    again = MerkleTree(tree.count, tree.edge)
    for leaf in leaves[at:]:
        again.add(leaf)
    assert (again.root, again.count) == (by_the_book(leaves), len(leaves))
    sizes = edge_sizes(again.count)
    done = 0
    for node, size in zip(again.edge, sizes, strict=True):
        assert node == by_the_book(leaves[done : done + size])
        done += size
    assert done == len(leaves)
    # Several at a time, in two parts.
    assert leaf_hashes(rows) == leaves
    tree.add_all(leaves[at:])
    assert (tree.edge, tree.count) == (again.edge, again.count)
    whole = MerkleTree()
    whole.add_all(leaves)
    assert whole.edge == again.edge


def test_leaves_and_nodes_are_told_apart() -> None:
    assert leaf_hash(b"a") == digest(b"\0a")
    assert node_hash(b"l" * 32, b"r" * 32) == digest(b"\1" + b"l" * 32 + b"r" * 32) != leaf_hash(b"l" * 32 + b"r" * 32)


@given(st.integers(0, 1 << 70), st.lists(st.binary(min_size=31, max_size=33), max_size=4))
def test_edges_are_checked(count: int, edge: list[bytes]) -> None:
    sound = len(edge) == count.bit_count() and all(len(node) == 32 for node in edge)
    if sound:
        assert MerkleTree(count, edge).edge == tuple(edge)
    else:
        with pytest.raises(FormatError):
            MerkleTree(count, edge)


# Packs


@st.composite
def packs(draw: Any) -> tuple[bytes, list[bytes]]:
    origin = draw(st.none() | st.just(Origin(bytes(16), bytes(8), "name")))
    builder, raws = PackBuilder(origin), draw(st.lists(st.binary(min_size=1, max_size=60), max_size=4))
    for number, raw in enumerate(raws):
        kind = draw(st.sampled_from([FrameKind.RECORD, FrameKind.LITERAL, FrameKind.PAGE]))
        at = builder.add(kind, Compressor()(raw), raw=len(raw), first=number, count=len(raw), digest=short_digest(raw))
        assert at.offset + at.length == builder.size
    if origin is not None and draw(st.booleans()):
        builder.add_external(0, digest(b"x"), Location(0, 24, 10), 5, 3, bytes(16))
    assert len(builder) == len(raws)
    return builder.finish(), raws


@given(packs())
def test_packs_round_trip(item: tuple[bytes, list[bytes]]) -> None:
    data, raws = item
    toc = parse_pack(data)
    found = [decompress(data[f.offset : f.offset + f.length], f.raw) for f in toc.frames]
    assert found == raws
    assert [f.digest for f in toc.frames] == [short_digest(raw) for raw in raws]


@given(packs().flatmap(lambda item: mutated(item[0])) | st.binary(max_size=100))
def test_other_bytes_are_no_packs(data: bytes) -> None:
    for parse in (parse_pack, check_header, parse_trailer):
        try:
            parse(data)
        except FormatError:
            continue
    try:
        toc = parse_pack(data)
    except FormatError:
        return
    assert all(24 <= f.offset < f.offset + f.length <= len(data) for f in toc.frames)


@pytest.mark.parametrize("level", [0, 19, 0xFFFFFFFF])
def test_a_pack_names_the_level_of_its_frames(level: int) -> None:
    builder = PackBuilder(None, level)
    builder.add(FrameKind.LITERAL, Compressor()(b"abc"), raw=3, first=0, count=3, digest=short_digest(b"abc"))
    data = builder.finish()
    assert len(parse_pack(data).frames) == 1
    assert check_header(data[:24]) == level


def test_every_byte_of_a_pack_outside_its_frames_is_checked() -> None:
    builder = PackBuilder(Origin(bytes(16), bytes(8), "name"))
    builder.add(FrameKind.RECORD, Compressor()(b"abc"), raw=3, first=0, count=1, digest=short_digest(b"abc"))
    data = builder.finish()
    [frame] = parse_pack(data).frames
    for at in range(len(data)):
        if frame.offset <= at < frame.offset + frame.length or 20 <= at < 24:
            continue  # frames have digests of their own, and any level will do
        with pytest.raises(FormatError):
            parse_pack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
