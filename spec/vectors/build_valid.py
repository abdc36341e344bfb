"""Valid vectors of the parts of the format, made from small inputs. Used by ``generate.py``."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from replaypack.format.base64 import encode_base64
from replaypack.format.digests import digest, short_digest
from replaypack.format.frame import Compressor
from replaypack.format.merkle import leaf_hash
from replaypack.format.pack import FrameKind, Origin, PackBuilder, parse_pack
from replaypack.format.recipe import Op, Range, Run, encode_ops, materialise, resolve
from replaypack.format.record_frame import Entry, RecordFrame, encode_frame, stored_row
from replaypack.format.row import ABSENT_DIGEST, BlobRef, Row, discriminator, encode_row
from replaypack.format.table import (
    BLOBS,
    INLINE_SPACE,
    KEYS,
    LITERALS,
    RECORDS,
    BlobEntry,
    FrameEntry,
    FrameRef,
    Location,
    Root,
    TableShape,
    key_page,
    pack_blob,
    pack_frame,
    pack_key,
    transpose,
)
from replaypack.format.varint import uvarint

Vector = dict[str, Any]
ID, WRITER = bytes(range(16)), bytes(range(0xA0, 0xA8))
ORIGIN = Origin(ID, WRITER, "demo")


def noise(size: int, seed: str) -> bytes:
    """Bytes that do not compress and are the same everywhere."""
    return hashlib.shake_256(seed.encode()).digest(size)


# Rows


def row(seq: int = 0, **changes: Any) -> Row:
    """A row to vary: a tool call that answered ``ok``."""
    fields: dict[str, Any] = {
        "seq": seq,
        "kind": "tool",
        "name": "search",
        "key": bytes.fromhex("f396ab6cc5a0d5f9ff89d9c1d82ce268cbbc8e1c7be6571f69273e8182ae3730"),
        "scheme": "identity",
        "scope": None,
        "request": BlobRef(digest(b"request"), 7, 1),
        "identity": None,
        "start": 1_750_000_000_123_456_789,
        "duration": 1_500_000,
        "status": 0,
        "flags": 0,
        "attributes": None,
        "salt": bytes(range(8)),
        "response_size": 2,
        "response_encoding": 2,
        "response_digest": digest(b"ok"),
    }
    return Row(**{**fields, **changes})


def blob_note(ref: BlobRef | None) -> list[Any] | None:
    """A reference in JSON."""
    return None if ref is None else [ref.digest.hex(), ref.size, ref.encoding]


def row_note(item: Row, attributes: Any = None) -> dict[str, Any]:
    """A row in JSON; ``attributes`` are in the notation of values."""
    return {
        "seq": item.seq,
        "kind": item.kind,
        "name": item.name,
        "key": item.key.hex(),
        "scheme": item.scheme,
        "scope": item.scope,
        "request": blob_note(item.request),
        "identity": blob_note(item.identity),
        "start": str(item.start),
        "duration": str(item.duration),
        "status": item.status,
        "flags": item.flags,
        "attributes": attributes,
        "salt": item.salt.hex(),
        "response": [item.response_digest.hex(), item.response_size, item.response_encoding],
    }


ROWS: dict[str, tuple[Row, Any]] = {
    "a tool call": (row(), None),
    "nothing but what must be": (
        row(
            name=None,
            scheme="opaque",
            key=digest(b"host-key"),
            request=None,
            start=0,
            duration=0,
            response_size=0,
            response_encoding=0,
            response_digest=ABSENT_DIGEST,
        ),
        None,
    ),
    "identity beside the request, scope, attributes": (
        row(
            7,
            scope="sample-1",
            identity=BlobRef(digest(b"identity"), 8, 1),
            attributes={"tokens": 12, "model": "m"},
            flags=1 | 8,
        ),
        {"map": [["tokens", {"int": "12"}], ["model", "m"]]},
    ),
    "an error with a response of 70000 bytes": (
        row(
            300, kind="model", status=1, response_size=70000, response_digest=digest(bytes(70000)), response_encoding=3
        ),
        None,
    ),
    "an empty response is not an absent one": (
        row(response_size=0, response_encoding=2, response_digest=digest(b"")),
        None,
    ),
    "the largest sequence number, all flags": (row((1 << 48) - 1, flags=15, status=2), None),
    "times before the epoch": (row(start=-1), None),
}


def rows() -> Vector:
    cases = []
    for name, (item, attributes) in ROWS.items():
        data = encode_row(item)
        cases.append(
            {
                "name": name,
                "row": row_note(item, attributes),
                "bytes": data.hex(),
                "leaf": leaf_hash(data).hex(),
                "discriminator": discriminator(item.scope).hex(),
            }
        )
    return {"about": "Rows: their fields, bytes, Merkle leaf, and the discriminator of their scope.", "cases": cases}


# Integers and recipes


def varints() -> Vector:
    values = [0, 1, 127, 128, 255, 300, 16383, 16384, (1 << 32) - 1, 1 << 48, (1 << 63), (1 << 64) - 1]
    return {
        "about": "Variable-length integers.",
        "cases": [{"name": str(v), "value": str(v), "bytes": uvarint(v).hex()} for v in values],
    }


SPACE = b"The quick brown fox jumps over the lazy dog." + bytes(range(12))
RECIPES: dict[str, list[list[Op]]] = {
    "no ranges": [[]],
    "one range": [[Range(4, 5, 0)]],
    "ranges may overlap and repeat": [[Range(0, 9, 0), Range(4, 5, 0), Range(4, 5, 0)]],
    "base64, padded": [[Range(44, 4, 1)]],
    "base64, url-safe, not padded": [[Range(0, 3, 0), Range(44, 11, 7)]],
    "a run of the recipe before": [[Range(0, 4, 0), Range(4, 6, 0), Range(10, 6, 0)], [Run(1, 0, 3), Range(16, 3, 0)]],
    "a run from further back, and from its middle": [
        [Range(0, 4, 0), Range(4, 6, 0), Range(10, 6, 0)],
        [Range(40, 4, 0)],
        [Range(20, 5, 0), Run(2, 1, 2), Run(1, 0, 1)],
    ],
    "a run of what was itself a run": [
        [Range(0, 4, 0), Range(44, 3, 1)],
        [Run(1, 0, 2), Range(4, 6, 0)],
        [Run(1, 1, 2)],
    ],
}


def recipes() -> Vector:
    cases = []
    for name, stream in RECIPES.items():
        earlier: list[list[Range]] = []
        notes = []
        for ops in stream:
            ranges = resolve(ops, earlier)
            earlier.append(ranges)
            size = sum(len(_out(item)) for item in ranges)
            blob = materialise(ranges, size, lambda offset, length: SPACE[offset : offset + length])
            notes.append(
                {"bytes": encode_ops(ops).hex(), "ranges": [list(item) for item in ranges], "blob": blob.hex()}
            )
        cases.append({"name": name, "literals": SPACE.hex(), "recipes": notes})
    return {
        "about": "The recipes of one record frame, in order; `literals` are the address space from offset 0 on.",
        "cases": cases,
    }


def _out(item: Range) -> bytes:
    raw = SPACE[item.offset : item.offset + item.length]
    return encode_base64(raw, urlsafe=bool(item.flags & 2), padded=not item.flags & 4) if item.flags else raw


def base64_runs() -> Vector:
    cases = []
    for size in (0, 1, 2, 3, 4, 30):
        data = b"\xfb\xff\xbf" * 10 if size == 30 else b"\xfb\xff\xbf\x00"[:size]
        for flags in (1, 3, 5, 7):
            text = encode_base64(data, urlsafe=bool(flags & 2), padded=not flags & 4)
            if size:
                cases.append(
                    {"name": f"{size} bytes, flags {flags}", "data": data.hex(), "flags": flags, "text": text.decode()}
                )
    return {"about": "What a base64 range puts out for its literals.", "cases": cases}


# Frames


def frames() -> Vector:
    cases = []
    for name, raw in {
        "one byte": b"a",
        "text": b"the same words again and again, " * 40,
        "bytes that do not compress": noise(300, "frame"),
    }.items():
        frame = Compressor()(raw)
        cases.append({"name": name, "frame": frame.hex(), "raw": raw.hex(), "digest": short_digest(raw).hex()})
    return {"about": "zstd frames as version 1 has them: with content size and checksum.", "cases": cases}


def entry(data: bytes, recipes_: list[list[Op]], inline: bytes | None) -> Entry:
    """A record as it stands in a frame."""
    return Entry(stored_row(data, inline), b"".join(map(encode_ops, recipes_)), inline)


def record_frame() -> tuple[bytes, list[bytes]]:
    """Three records: an inline response, none, and one of 4,500 bytes behind recipes; and their rows."""
    large = noise(4500, "response")
    items: list[tuple[Row, list[list[Op]], bytes | None]] = [
        (row(0), [[Range(0, 7, 0)]], b"ok"),
        (row(1, scope="s", response_size=0, response_encoding=0, response_digest=ABSENT_DIGEST), [[Run(1, 0, 1)]], b""),
        (
            row(2, response_size=4500, response_encoding=3, response_digest=digest(large)),
            [[Run(2, 0, 1), Range(INLINE_SPACE, 2, 0)], [Range(7, 4500, 0)]],
            None,
        ),
    ]
    rows_ = [encode_row(item) for item, _, _ in items]
    entries = [entry(data, ops, inline) for data, (_, ops, inline) in zip(rows_, items, strict=True)]
    return b"".join(encode_frame(entries)), rows_


def record_frames() -> Vector:
    raw, rows_ = record_frame()
    frame = RecordFrame(raw)
    records = []
    for number, data in enumerate(rows_):
        _, _, inline = frame.record(number)
        records.append(
            {
                "row": data.hex(),
                "inline": None if inline is None else inline.hex(),
                "recipes": [[list(item) for item in ranges] for ranges in frame.recipes(number)],
            }
        )
    return {
        "about": "Record frames: `raw` taken apart into whole rows, inline responses, and resolved recipes. "
        "`inlines` is its last section.",
        "cases": [{"name": "three records", "raw": raw.hex(), "inlines": b"ok".hex(), "records": records}],
    }


# Packs


def tiny_pack() -> bytes:
    """One record, its request of 7 bytes, and its page of keys."""
    data = encode_row(row())
    sections = encode_frame([entry(data, [[Range(0, 7, 0)]], b"ok")])
    raw = b"".join(sections)
    builder, compress = PackBuilder(ORIGIN), Compressor()
    literal = b"request"
    builder.add(
        FrameKind.LITERAL,
        compress(literal),
        raw=len(literal),
        first=0,
        count=len(literal),
        digest=short_digest(literal),
    )
    at = builder.add(
        FrameKind.RECORD, compress.sections(sections), raw=len(raw), first=0, count=1, digest=short_digest(raw)
    )
    page = key_page(pack_key(row().key, bytes(8), 0), [FrameRef(0, at, short_digest(raw))])
    builder.add(FrameKind.PAGE, compress(page), raw=len(page), first=1, count=1, digest=short_digest(page))
    return builder.finish()


def packs() -> Vector:
    large = PackBuilder(None)
    blob = noise(600, "large")
    for start in (0, 300):
        raw = blob[start : start + 300]
        large.add(FrameKind.LITERAL, Compressor()(raw), raw=300, first=start, count=300, digest=short_digest(raw))
    outside = PackBuilder(ORIGIN)
    outside.add(FrameKind.RECORD, Compressor()(b"x"), raw=1, first=0, count=1, digest=short_digest(b"x"))
    outside.add_external(0, digest(b"other pack"), Location(0, 24, 100), 7, short_digest(b"request"))
    cases = []
    for name, pack in {
        "a record, its request, its page of keys": tiny_pack(),
        "a large blob that names no recording": large.finish(),
        "literals in another pack": outside.finish(),
    }.items():
        toc = parse_pack(pack)
        cases.append(
            {
                "name": name,
                "pack": pack.hex(),
                "digest": digest(pack).hex(),
                "frames": [
                    [f.kind, f.offset, f.length, f.raw, f.first, f.count, f.digest.hex(), f.origin] for f in toc.frames
                ],
                "origins": [[o.recording.hex(), o.writer.hex(), o.name] for o in toc.origins],
                "external": [
                    [e.origin, e.first, e.pack.hex(), e.offset, e.length, e.raw, e.digest.hex()] for e in toc.external
                ],
            }
        )
    return {"about": "Whole packs and their tables of contents.", "cases": cases}


# Tables


def _entries() -> dict[str, tuple[TableShape, list[bytes]]]:
    keys = sorted(
        pack_key(digest(k), disc, seq)
        for k, disc, seq in [
            (b"a", bytes(8), 0),
            (b"b", bytes(8), 1),
            (b"a", discriminator("s"), 2),
            (b"a", bytes(8), 3),
            (b"a", bytes(8), (1 << 40) + 1),
        ]
    )
    frames_ = [
        pack_frame(FrameEntry(first, Location(i, 24 + i, 100), 1000, 10, digest(b"%d" % i)[:16]))
        for i, first in enumerate([0, 10, 20])
    ]
    literals = [
        pack_frame(FrameEntry(first, Location(1, 24, 100), 500, 500, digest(b"l%d" % first)[:16]))
        for first in (0, 500, 1 << 33, INLINE_SPACE, INLINE_SPACE + 500)
    ]
    blobs = sorted(pack_blob(BlobEntry(digest(b"%d" % i)[:16], i, i % 3)) for i in range(4))
    return {
        "keys": (KEYS, keys),
        "records": (RECORDS, frames_),
        "literals": (LITERALS, literals),
        "blobs": (BLOBS, blobs),
    }


def tables() -> Vector:
    cases = []
    for name, (shape, entries) in _entries().items():
        page = transpose(b"".join(entries), shape.width)
        refs: list[FrameRef] = []
        if shape is KEYS:
            refs = [FrameRef(n, Location(n % 5, 24 + n % 7, 300), digest(b"%d" % n)[:16]) for n in (0, 3, 1 << 40)]
            page = key_page(b"".join(entries), refs)
        root = Root(shape, len(entries), [entries[0][: shape.key]], [short_digest(page)], [Location(3, 1000, 99)])
        cases.append(
            {
                "name": f"a page of {name}",
                "table": shape.number,
                "entries": [entry.hex() for entry in entries],
                **({"frames": [[r.first, *r.frame, r.digest.hex()] for r in refs]} if refs else {}),
                "page": page.hex(),
                "digest": short_digest(page).hex(),
                "root": root.encode().hex(),
                "root_base64": base64.b64encode(root.encode()).decode(),
            }
        )
    count = KEYS.page_entries + 1
    fences = [bytes([n]) * 30 for n in (1, 2)]
    big = Root(KEYS, count, fences, [digest(b"p0")[:16], digest(b"p1")[:16]], [Location(0, 24, 9), Location(1, 24, 9)])
    cases.append(
        {
            "name": "a root of two pages",
            "table": 1,
            "count": count,
            "root": big.encode().hex(),
            "pages": [[f.hex(), d.hex(), *at] for f, d, at in zip(fences, big.digests, big.locations, strict=True)],
        }
    )
    return {"about": "Pages (before compression) and roots. Locations are pack, offset, length.", "cases": cases}
