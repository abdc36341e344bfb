"""Manifests: round trips, every byte checked, what may stand in them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack import Archive
from replaypack.errors import CanonicalizationError, FormatError, UsageError
from replaypack.format.digests import digest
from replaypack.format.manifest import Manifest, content_digest_of, encode_manifest, parse_manifest
from replaypack.format.manifest_members import (
    MAX_MANIFEST,
    Content,
    Match,
    PackRef,
    PageRef,
    Redaction,
    Segment,
    Storage,
    TableRef,
)
from replaypack.format.manifest_pages import encode_pack_page, inline_root, parse_pack_page, read_root
from replaypack.format.merkle import MerkleTree
from replaypack.format.notes import MAX_METADATA, check_metadata, error_note
from replaypack.format.table import KEYS, RECORDS, TABLES, Location, Root

from .strategies import mutated

NO_MATCH = Match(name="none", version=1)
NONE = Redaction(name="none", version=1)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


def table(count: int, shape: Any) -> TableRef:
    pages = -(-count // shape.page_entries)
    fences = [bytes([number]) * shape.key for number in range(pages)]
    root = Root(shape, count, fences, [bytes(16)] * pages, [Location(0, 24, 9)] * pages)
    return inline_root(root)


def manifest(records: int = 3, metadata: dict[str, Any] | None = None, **changes: Any) -> Manifest:
    tree = MerkleTree()
    for number in range(records):
        tree.add(digest(b"%d" % number))
    content = Content(
        id="0" * 32,
        state="sealed",
        started="2025-06-15T15:06:40.5Z",
        metadata=metadata or {},
        recorded_by="test",
        match=NO_MATCH,
        redaction=NONE,
        records=records,
        counts={"tool": records} if records else {},
        merkle_root=tree.root.hex(),
        extends=None,
        derived_from=None,
        error=None,
    )
    segment = Segment(
        first=0,
        count=records,
        inline_first=0,
        packs=None,
        keys=table(records, KEYS),
        records=table(1, RECORDS),
        literals=table(0, TABLES[2]),
        blobs=table(0, TABLES[3]),
        near=None,
    )
    storage = Storage(
        revision=2,
        checkpoint=0,
        cause="seal",
        claim=None,
        writer="0" * 16,
        created="2025-06-15T15:06:40Z",
        previous=None,
        packs=[PackRef("0" * 64, 99)],
        pack_pages=[],
        segments=[segment] if records else [],
        literals=0,
        inlines=0,
        merkle_edge=[node.hex() for node in tree.edge],
        tombstones=[],
        withheld=[],
        source=None,
    )
    names = set(Content.__struct_fields__)
    content = msgspec.structs.replace(content, **{n: v for n, v in changes.items() if n in names})
    storage = msgspec.structs.replace(storage, **{n: v for n, v in changes.items() if n not in names})
    return encode_manifest(content, storage)


@given(st.integers(0, 9), st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_manifests_round_trip(records: int, metadata: dict[str, Any]) -> None:
    try:
        check_metadata(metadata)
    except CanonicalizationError:
        return
    made = manifest(records, metadata)
    found = parse_manifest(made.raw, where="test")
    assert (found.content.records, found.storage) == (records, made.storage)
    assert (found.digest, found.content_digest, found.raw) == (made.digest, made.content_digest, made.raw)
    assert content_digest_of(found.content) == made.content_digest
    assert found.merkle.root.hex() == made.content.merkle_root
    assert encode_manifest(found.content, found.storage).raw == made.raw


def test_every_change_of_a_byte_is_noticed() -> None:
    raw = manifest().raw
    for at in range(len(raw)):
        for value in (raw[at] ^ 1, raw[at] ^ 0x20, 0x30):
            if value == raw[at]:
                continue
            with pytest.raises(FormatError):
                parse_manifest(raw[:at] + bytes([value]) + raw[at + 1 :], where="test")


@settings(max_examples=200)
@given(mutated(manifest().raw) | st.binary(max_size=60) | JSON.map(msgspec.json.encode))
def test_other_bytes_are_no_manifests(raw: bytes) -> None:
    if raw != manifest().raw:
        with pytest.raises(FormatError):
            parse_manifest(raw, where="test")


MEMBERS = [
    *(("content", name) for name in Content.__struct_fields__),
    *(("storage", name) for name in Storage.__struct_fields__),
]
AWKWARD: list[Any] = [None, -1, 0, 1 << 53, 1.5, "", "x", [], [[]], [None], {}, {"a": 1}, True]


@pytest.mark.parametrize(("section", "name"), MEMBERS)
def test_whatever_a_member_is_nothing_else_than_a_format_error(section: str, name: str) -> None:
    """With the digest made right, so that the checks behind it are reached."""
    from replaypack.canonical import canonical_json

    for value in AWKWARD:
        document = msgspec.json.decode(manifest().raw)
        del document["digest"]
        document[section][name] = value
        own = digest(canonical_json(document)).hex()
        try:
            parse_manifest(canonical_json({**document, "digest": own}), where="test")
        except FormatError:
            continue


def test_deep_and_large_manifests() -> None:
    for raw in (b"[" * 100000, b'{"a":' * 100000, b" " * (MAX_MANIFEST + 1)):
        with pytest.raises(FormatError):
            parse_manifest(raw, where="test")


def test_what_metadata_may_hold() -> None:
    check_metadata({"a": [1, 2.5, None, True, "é"], "b": {}})
    for bad in ({"a": b"x"}, {"a": 2**60}, {"a": 2**68 + 1}, {"a": float("nan")}, {"a": "\ud800"}, {"$bytes": 1}):
        with pytest.raises(CanonicalizationError):
            check_metadata(bad)
    with pytest.raises(CanonicalizationError):
        check_metadata({"a": "x" * MAX_METADATA})


@pytest.mark.parametrize(
    "error",
    [
        ValueError("\ud800"),
        ValueError(2**60),
        ValueError(float("nan")),
        ValueError([b"\xff"]),
        ValueError({"$bytes": 1}),
        ValueError("x" * (17 << 20)),
    ],
    ids=["surrogate", "large integer", "nan", "bytes", "marker", "17 MiB"],
)
def test_an_error_never_spoils_the_manifest(error: ValueError, tmp_path: Any) -> None:
    archive = Archive(tmp_path)

    def run() -> None:
        with archive.recorder("a", flush_interval=None) as recorder:
            recorder.append(kind="tool", identity=1, response=2)
            raise error

    with pytest.raises(ValueError):
        run()
    with archive.open("a") as recording:
        assert recording.state == "incomplete"
        assert recording.manifest.content.error is not None
        assert recording.manifest.content.error["type"] == "ValueError"


def test_error_notes() -> None:
    note = error_note({"type": "E", "message": "m" * 9999, "args": [1, "a"], "other": float("inf")})
    assert note == {"type": "E", "message": "m" * 4096, "args": [1, "a"]}


@pytest.mark.parametrize("kind", ["$bytes", "$$bytes"])
def test_kinds_that_canonical_json_escapes(kind: str, tmp_path: Any) -> None:
    with Archive(tmp_path).recorder("a", flush_interval=None) as recorder:
        with pytest.raises(UsageError):
            recorder.append(kind=kind, identity=1)
        recorder.append(kind="bytes", identity=1)


# Roots and pages of packs


@given(st.integers(0, 5000), st.binary(max_size=120))
def test_roots_of_manifests(count: int, data: bytes) -> None:
    ref = TableRef(count=count, root=inline_root(Root(KEYS, 0, [], [], [])).root, page=None)
    if count:
        with pytest.raises(FormatError):
            read_root(KEYS, ref, None, where="test")
    page = PageRef(pack="0" * 64, offset=0, length=1, raw=len(data), digest=digest(data)[:16].hex())
    paged = TableRef(count=count, root=None, page=page)
    for wrong in (None, data + b"x"):
        with pytest.raises(FormatError):
            read_root(KEYS, paged, wrong, where="test")
    try:
        root = read_root(KEYS, paged, data, where="test")
    except FormatError:
        return
    assert root.encode() == data


@given(st.lists(st.builds(PackRef, st.binary(min_size=32, max_size=32).map(bytes.hex), st.integers(1, 2**32 - 1))))
def test_pages_of_packs(packs: list[PackRef]) -> None:
    raw = encode_pack_page(packs)
    ref = PageRef(pack="0" * 64, offset=0, length=1, raw=len(raw), digest=digest(raw)[:16].hex())
    assert parse_pack_page(ref, raw, where="test") == packs
    with pytest.raises(FormatError):
        parse_pack_page(ref, raw + b"x", where="test")
