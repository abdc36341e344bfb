"""Archives by a writer that lies: damage below digests that were made right again. Only our errors come of it."""

from __future__ import annotations

import base64
import functools
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack import Archive
from replaypack.canonical import canonical_json
from replaypack.errors import ReplaypackError
from replaypack.format.digests import digest, short_digest
from replaypack.format.frame import Compressor, decompress
from replaypack.format.manifest import parse_manifest
from replaypack.format.manifest_pages import read_root
from replaypack.format.names import latest_key, pack_key_of
from replaypack.format.pack import FrameKind, Origin, PackBuilder
from replaypack.format.table import (
    BLOBS,
    LITERALS,
    RECORDS,
    TABLES,
    FrameEntry,
    FrameRef,
    KeyPage,
    Location,
    Root,
    key_page,
    pack_frame,
    transpose,
    unpack_frame,
    untranspose,
)
from replaypack.storage import MemoryStorage

from .strategies import mutated

TINY = Path(__file__).parents[2] / "spec" / "vectors" / "valid" / "archive" / "tiny"
compress = Compressor(1)


class Parts(NamedTuple):
    """What the recording ``first`` consists of, before compression."""

    manifest: Any
    records: bytes
    literals: bytes
    keys: bytes
    blobs: bytes
    items: list[FrameEntry]
    found: list[tuple[bytes, str | None]]
    digests: list[str]


@functools.cache
def parts() -> Parts:
    manifest = parse_manifest((TINY / "recordings/first/latest.json").read_bytes(), where="first")
    [segment] = manifest.storage.segments
    pack = (TINY / pack_key_of(manifest.storage.packs[0].digest)).read_bytes()

    def raw(at: Location) -> bytes:
        return decompress(pack[at.offset : at.offset + at.length])

    pages = {}
    for shape in TABLES:
        root = read_root(shape, segment.table(shape), None, where="first")
        [pages[shape.name]] = [(raw(at), root.digests[0]) for at in root.locations]
    keys = KeyPage(pages["keys"][0], segment.count, pages["keys"][1])
    [record] = [unpack_frame(untranspose(pages["records"][0], RECORDS.width))]
    literals = untranspose(pages["literals"][0], LITERALS.width)
    literal, inline = (unpack_frame(literals, at) for at in (0, LITERALS.width))
    with Archive(TINY).open("first") as recording:
        rows = [item.row for item in recording.records()]
    found = [(row.key, row.scope) for row in rows]
    digests = [ref.digest.hex() for row in rows for ref in (row.request, row.response) if ref and ref.encoding]
    return Parts(
        manifest,
        raw(record.frame),
        raw(literal.frame),
        keys.rows,
        untranspose(pages["blobs"][0], BLOBS.width),
        [record, literal, inline],
        found,
        digests,
    )


def build(change: dict[str, Any]) -> MemoryStorage:
    """The recording again, with ``change[part]`` applied to the bytes of some part of it, and all digests right."""
    p = parts()

    def maybe(name: str, data: bytes) -> bytes:
        return change[name](data) or b"\0" if name in change else data

    builder = PackBuilder(Origin(bytes(16), bytes(8), "first"))

    def add(kind: int, raw: bytes) -> Location:
        return builder.add(kind, compress(raw), raw=len(raw), first=0, count=0, digest=short_digest(raw))

    literals, records = maybe("literal frame", p.literals), maybe("record frame", p.records)
    literals_at, records_at = add(FrameKind.LITERAL, literals), add(FrameKind.RECORD, records)
    short = short_digest(records)
    record, _, inline = p.items
    record_rows = pack_frame(FrameEntry(0, records_at, len(records), record.items, short))
    literal_rows = [
        pack_frame(FrameEntry(0, literals_at, len(literals), len(literals), short_digest(literals))),
        pack_frame(FrameEntry(inline.first, records_at, len(records), min(inline.items, len(records)), short)),
    ]
    pages = {
        "keys": key_page(p.keys, [FrameRef(0, records_at, short)]),
        "records": transpose(record_rows, RECORDS.width),
        "literals": transpose(b"".join(literal_rows), LITERALS.width),
        "blobs": transpose(p.blobs, BLOBS.width),
    }
    document: dict[str, Any] = {
        "content": msgspec.to_builtins(p.manifest.content),
        "features": [],
        "format": "replaypack",
        "storage": msgspec.to_builtins(p.manifest.storage),
        "version": 1,
    }
    segment = document["storage"]["segments"][0]
    for shape in TABLES:
        page = maybe(f"page of {shape.name}", pages[shape.name])
        count = segment[shape.name]["count"]
        fence = untranspose(pages[shape.name][: count * shape.width], shape.width)[: shape.key]
        root = Root(shape, count, [fence], [short_digest(page)], [add(FrameKind.PAGE, page)])
        segment[shape.name]["root"] = base64.b64encode(maybe(f"root of {shape.name}", root.encode())).decode()
    pack = builder.finish()
    document["storage"]["packs"] = [[digest(pack).hex(), len(pack)]]
    segment["near"] = None
    if "manifest" in change:
        change["manifest"](document)
    document["digest"] = digest(canonical_json(document)).hex()
    storage = MemoryStorage()
    storage.put(latest_key("first"), canonical_json(document))
    storage.put(pack_key_of(digest(pack).hex()), pack)
    return storage


def read_all(storage: MemoryStorage) -> int:
    """Read in every way there is; return how many reads were refused. Anything but our errors goes through."""
    refused = 0

    def attempt(read: Any) -> Any:
        nonlocal refused
        try:
            return read()
        except ReplaypackError:
            refused += 1
            return None

    recording = attempt(lambda: Archive("memory://x", storage=storage).open("first"))
    if recording is None:
        return refused
    for key, scope in parts().found:
        attempt(lambda key=key, scope=scope: recording.lookup_digest(key, scope=scope))
        attempt(lambda key=key, scope=scope: recording.lookup_digest(key, scope=scope, nth=1))
        attempt(lambda key=key, scope=scope: recording.count_scoped(key, scope))
    for name in parts().digests:
        attempt(lambda name=name: recording.blob(name))
    attempt(lambda: list(recording.records()))
    for seq in range(len(recording)):
        record = attempt(lambda seq=seq: recording.record(seq))
        for role in ("request", "identity", "response"):
            if record is not None:
                attempt(lambda record=record, role=role: getattr(record, role))
    return refused


def test_the_recording_itself() -> None:
    """Made anew without a change it reads like the original."""
    assert read_all(build({})) == 0


PARTS = ["record frame", "literal frame", *(f"{what} of {shape.name}" for what in ("page", "root") for shape in TABLES)]


@pytest.mark.parametrize("part", PARTS)
def test_lies_below_right_digests(part: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        read_all(build({part: lambda raw: data.draw(mutated(raw))}))

    run()


NUMBERS = st.sampled_from([-1, 0, 1, 9, 10, 11, 1 << 31, 1 << 32, (1 << 47) - 1, 1 << 48, 1 << 53])
PATHS = [
    ("content", "records"),
    ("storage", "literals"),
    ("storage", "inlines"),
    ("storage", "segments", 0, "first"),
    ("storage", "segments", 0, "count"),
    ("storage", "segments", 0, "inline_first"),
    ("storage", "segments", 0, "packs"),
    ("storage", "packs", 0, 1),
    *(("storage", "segments", 0, shape.name, "count") for shape in TABLES),
    ("storage", "segments", 0, "near"),
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_lies_in_the_manifest(path: tuple[Any, ...]) -> None:
    @settings(max_examples=15, deadline=None)
    @given(NUMBERS, NUMBERS)
    def run(number: int, other: int) -> None:
        def change(document: Any) -> None:
            at = document
            for name in path[:-1]:
                at = at[name]
            value: Any = number
            if path[-1] == "packs":
                value = [number]
            elif path[-1] == "near":
                value = {"pack": 0, "offset": number, "length": other}
            at[path[-1]] = value

        read_all(build({"manifest": change}))

    run()
