"""Vectors of what must be refused, made by damaging valid ones. Used by ``generate.py``."""

from __future__ import annotations

import base64
import struct
from typing import Any

import build_audit
import build_match
import build_partial
import msgspec
from build_archive import DROP, build, manifest_with
from build_documents import catalog_text, empty_manifest, journal_bytes, summary_rows
from build_valid import ORIGIN, Vector, entry, record_frame, row, tiny_pack

from replaypack.format.digests import digest, short_digest
from replaypack.format.frame import Compressor
from replaypack.format.pack import HEADER, External, FrameInfo, Toc, parse_pack
from replaypack.format.recipe import Op, Range, Run, encode_ops
from replaypack.format.record_frame import Entry, encode_frame
from replaypack.format.row import BlobRef, encode_row
from replaypack.format.summary import Summary
from replaypack.format.table import KEYS, FrameRef, Location, key_page, pack_key
from replaypack.format.varint import uvarint

CORRUPTED = "format.corrupted"


def _cases(field: str, items: dict[str, bytes], error: str = CORRUPTED, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, field: data.hex(), **more, "error": error} for name, data in items.items()]


def varints() -> Vector:
    items = {
        "nothing": b"",
        "cut off": b"\x80",
        "longer than needed": b"\x80\x00",
        "longer than needed, in the middle": b"\xff\x80\x00",
        "more than 64 bits": b"\xff" * 9 + b"\x02",
        "eleven bytes": b"\x80" * 10 + b"\x01",
    }
    return {"about": "Variable-length integers that are none.", "cases": _cases("bytes", items)}


def rows() -> Vector:
    whole = encode_row(row())
    changed = {
        "key of 31 bytes": row(key=bytes(31)),
        "salt of 7 bytes": row(salt=bytes(7)),
        "digest of 31 bytes": row(response_digest=bytes(31)),
        "negative sequence number": row(seq=-1),
        "sequence number of 49 bits": row(seq=1 << 48),
        "unknown status": row(status=3),
        "unknown flag": row(flags=16),
        "negative duration": row(duration=-1),
        "negative size": row(response_size=-1),
        "unknown encoding": row(response_encoding=4),
        "absent response with a size": row(response_encoding=0),
        "absent response with a digest": row(response_encoding=0, response_size=0),
        "request with a short digest": row(request=BlobRef(bytes(31), 1, 1)),
        "request that is absent, with a reference": row(request=BlobRef(digest(b""), 0, 0)),
        "identity with an unknown encoding": row(identity=BlobRef(digest(b""), 0, 4)),
    }
    items = {name: encode_row(item) for name, item in changed.items()}
    items |= {
        "nothing": b"",
        "cut off": whole[:-1],
        "a byte behind it": whole + b"\0",
        "16 fields": b"\xdc\x00\x10" + whole[3:-34],
        "array header in another form": b"\xdd\x00\x00\x00\x11" + whole[3:],
        "a map": b"\x80",
        "text for the key": whole.replace(b"\xc4\x20" + row().key, b"\xd9\x20" + b"k" * 32),
        "digest under another header": whole[:-34] + b"\xc5\x00\x20" + whole[-32:],
    }
    return {"about": "Rows that break a rule.", "cases": _cases("bytes", items)}


def recipes() -> Vector:
    def stream(*ops: Any) -> bytes:
        return b"".join(encode_ops(item) for item in ops)

    three = [Range(0, 1, 0)] * 3
    items = {
        "nothing": b"",
        "more parts than bytes": uvarint(9) + b"\x04\x00",
        "cut off within a part": uvarint(1) + b"\x04",
        "cut off before the flags": uvarint(1) + b"\x05",
        "part of kind 3": uvarint(1) + b"\x07\x00\x00",
        "base64 without its flag": uvarint(1) + b"\x05\x02\x00",
        "unknown flag": uvarint(1) + b"\x05\x09\x00",
        "empty range": encode_ops([Range(5, 0, 0)]),
        "beyond the address space": encode_ops([Range((1 << 48) - 1, 2, 0)]),
        "run without a recipe before": stream([Run(1, 0, 1)]),
        "run of this very recipe": stream(three, [Run(0, 0, 1)]),
        "run beyond its source": stream(three, [Run(1, 1, 3)]),
        "run of nothing": stream(three, [Run(1, 0, 0)]),
        "more ranges than 65536": stream(three[:2], *[[Run(1, 0, 2 << n), Run(1, 0, 2 << n)] for n in range(16)]),
    }
    return {
        "about": "Recipes of one record frame, one after another; at least one of them must be refused.",
        "cases": _cases("recipes", items),
    }


def base64_runs() -> Vector:
    items = {
        "bits behind the last byte": ("QR==", False),
        "no padding is 1 character of 4": ("QUJDR", False),
        "padding in the middle": ("QQ==QUJD", False),
        "both alphabets": ("-_+/", False),
        "standard read as url-safe": ("+/+/", True),
        "url-safe read as standard": ("-_-_", False),
        "a line break": ("QUJD\nQUJD", False),
        "too much padding": ("QUJD====", False),
    }
    cases = [{"name": name, "text": text, "urlsafe": urlsafe} for name, (text, urlsafe) in items.items()]
    return {
        "about": "Text that a writer must leave as it is: what it decodes to, if anything, encodes to other text.",
        "cases": cases,
    }


def frames() -> Vector:
    good = Compressor()(b"the same words again and again, " * 40)
    import zstandard

    no_size = zstandard.ZstdCompressor(write_content_size=False).compress(b"the same words again and again, ")
    # Frame header descriptor e0: 8 bytes of content size, one segment.
    bomb = bytes.fromhex("28b52ffde0") + struct.pack("<Q", (64 << 20) + 1) + bytes.fromhex("010000")
    huge = bytes.fromhex("28b52ffde0") + struct.pack("<Q", 1 << 50) + bytes.fromhex("010000")
    dictionary = zstandard.ZstdCompressor(
        dict_data=zstandard.ZstdCompressionDict(
            b"words again and again" * 20, dict_type=zstandard.DICT_TYPE_RAWCONTENT
        ),
        write_content_size=True,
    ).compress(b"words again and again" * 3)
    items = {
        "nothing": b"",
        "not zstd": b"plain text, not a frame",
        "cut off": good[:-1],
        "a byte behind it": good + b"\0",
        "two frames": good + good,
        "a flipped bit in the data": good[:-6] + bytes([good[-6] ^ 1]) + good[-5:],
        "a flipped bit in the checksum": good[:-1] + bytes([good[-1] ^ 1]),
        "no content size": no_size,
        "64 MiB and a byte": bomb,
        "a petabyte": huge,
        "empty": Compressor()(b""),
        "a skippable frame": bytes.fromhex("5b2a4d1804000000") + b"abcd",
        "needs a dictionary": dictionary,
    }
    return {"about": "Frames that must be refused, whatever the table says of them.", "cases": _cases("frame", items)}


def record_frames() -> Vector:
    raw, rows_ = record_frame()
    good = entry(rows_[0], [[Range(0, 7, 0)]], b"ok")
    multiply: list[list[Op]] = [[Range(0, 1, 0)] * 2]
    multiply += [[Run(1, 0, 2 << n), Run(1, 0, 2 << n)] for n in range(15)]
    multiply += [[Run(1, 0, 1 << 16)]] * 65
    large = encode_row(row(response_size=4096, response_encoding=3, response_digest=digest(bytes(4096))))

    def frame(*entries: Entry) -> bytes:
        return b"".join(encode_frame(entries))

    items = {
        "nothing": b"",
        "no records": b"\0",
        "cut off": raw[:-1],
        "a byte behind it": raw + b"\0",
        "more records than bytes": b"\xff\xff\xff\x7f" + raw[1:],
        "sizes beyond the frame": frame(good)[:1] + b"\xff" + frame(good)[2:],
        "row of 5 bytes": frame(Entry(b"hello", b"", b"")),
        "inline response that the row does not name": frame(entry(rows_[0], [[]], b"others")),
        "inline response of 4096 bytes": frame(entry(large, [[]], bytes(4096))),
        "a recipe that is none": frame(Entry(good.row, b"\x01", b"ok")),
        "rows that are none": frame(Entry(b"\x91" * 60, b"", None)),
        "recipes that multiply beyond 4194304 ranges": frame(
            *(entry(encode_row(row(n)), multiply[n * 3 : n * 3 + 3], b"ok") for n in range(27))
        ),
        "four recipes of one record": frame(good, entry(encode_row(row(1)), [[Range(0, 1, 0)]] * 4, b"ok")),
    }
    return {"about": "Record frames of which at least one record must be refused.", "cases": _cases("raw", items)}


def _pack_of(
    toc: Toc, frames: bytes, *, header: bytes = HEADER, short: bytes | None = None, end: bytes = b"RPKEND1\n"
) -> bytes:
    raw = msgspec.msgpack.encode(toc)
    return _pack_raw(raw, frames, header=header, short=short, end=end)


def _pack_raw(
    raw: bytes, frames: bytes, *, header: bytes = HEADER, short: bytes | None = None, end: bytes = b"RPKEND1\n"
) -> bytes:
    body = Compressor(9)(raw)
    trailer = struct.pack("<II16s8s", len(body), len(raw), short_digest(raw) if short is None else short, end)
    return b"".join((header, frames, struct.pack("<II", 0x184D2A5B, len(body) + 32), body, trailer))


def packs() -> Vector:
    good = tiny_pack()
    toc = parse_pack(good)
    stop = toc.frames[-1].offset + toc.frames[-1].length
    data = good[24:stop]

    def changed(number: int, **fields: Any) -> bytes:
        frames_ = list(toc.frames)
        frames_[number] = msgspec.structs.replace(frames_[number], **fields)
        return _pack_of(Toc(frames_, toc.origins, toc.external), data)

    def header(version: int, flags: int = 0) -> bytes:
        return HEADER[:16] + struct.pack("<HHI", version, flags, 0)

    items = {
        "nothing": b"",
        "a header only": HEADER,
        "not a pack": b"x" * 200,
        "another magic": b"\0" + good[1:],
        "cut off by a byte": good[:-1],
        "another end": good[:-1] + b"x",
        "table of contents longer than the pack": good[:-32] + struct.pack("<I", len(good)) + good[-28:],
        "another size of the table of contents": good[:-28] + struct.pack("<I", 7) + good[-24:],
        "table of contents of over 64 MiB": good[:-28] + struct.pack("<I", 0xFFFFFFFF) + good[-24:],
        "another digest of the table of contents": _pack_of(toc, data, short=bytes(16)),
        "table of contents that is no map": _pack_raw(b"\x93\x90\x90\x90", data),
        "a member more in the table of contents": _pack_raw(
            b"\x84" + msgspec.msgpack.encode(toc)[1:] + b"\xa1x\xc0", data
        ),
        "unknown kind of frame": changed(0, kind=4),
        "unknown origin": changed(0, origin=1),
        "frames that do not follow each other": changed(1, offset=toc.frames[1].offset + 1),
        "frames that do not fill the pack": _pack_of(Toc(toc.frames[:-1], toc.origins, []), data),
        "a digest of 15 bytes": changed(0, digest=bytes(15)),
        "a negative first item": changed(0, first=-1),
        "an origin of 15 bytes": _pack_of(
            Toc(toc.frames, [msgspec.structs.replace(ORIGIN, recording=bytes(15))], []), data
        ),
        "more origins than frames": _pack_of(Toc(toc.frames, [ORIGIN] * 4, []), data),
        "an external frame of more literals than bytes": _pack_of(
            Toc(toc.frames, toc.origins, [External(0, 0, bytes(32), 24, 9, 5, 6, bytes(16))]), data
        ),
        "bytes between the frames and the table": _pack_of(toc, data + b"\0"),
    }
    cases = _cases("pack", items)
    cases += _cases("pack", {"version 2": _pack_of(toc, data, header=header(2))}, "format.future_version")
    cases += _cases(
        "pack",
        {
            "version 0": _pack_of(toc, data, header=header(0)),
            "flags that are not defined": _pack_of(toc, data, header=header(1, 1)),
        },
        "format.malformed_version",
    )
    return {"about": "Packs whose header, trailer or table of contents must be refused.", "cases": cases}


def tables() -> Vector:
    item = bytes(42)
    fence = KEYS.fence.pack(bytes(30), bytes(16), *Location(0, 24, 9))
    after = KEYS.fence.pack(b"\1" * 30, bytes(16), *Location(0, 24, 9))
    other = KEYS.fence.pack(b"\1" * 30, bytes(15) + b"\1", *Location(0, 24, 9))

    def page(name: str, table: int, count: int, raw: bytes, digest_: bytes | None = None) -> dict[str, Any]:
        short = short_digest(raw) if digest_ is None else digest_
        return {"name": name, "table": table, "count": count, "page": raw.hex(), "digest": short.hex()}

    at = Location(0, 24, 9)
    keys = pack_key(bytes(32), bytes(8), 7)
    pages: list[dict[str, Any]] = [
        page("a page of another digest", 2, 1, item, bytes(16)),
        page("a page of another count", 2, 2, item),
        page("a page that holds no whole entries", 2, 1, item[:-1]),
        page("a page of keys of another digest", 1, 1, key_page(keys, [FrameRef(0, at, bytes(16))]), bytes(16)),
        page("a page of keys without frames", 1, 1, key_page(keys, [])),
        page("a page of keys with half a frame", 1, 1, key_page(keys, [FrameRef(0, at, bytes(16))])[:-1]),
        page("frames of a page out of order", 1, 1, key_page(keys, [FrameRef(n, at, bytes(16)) for n in (7, 0)])),
        page("equal frames in a page", 1, 1, key_page(keys, [FrameRef(n, at, bytes(16)) for n in (0, 0)])),
        page("more frames than keys in a page", 1, 1, key_page(keys, [FrameRef(n, at, bytes(16)) for n in (0, 7)])),
        page("a record before every frame of its page", 1, 1, key_page(keys, [FrameRef(8, at, bytes(16))])),
    ]
    roots = {
        "a root of no page for one entry": (1, b""),
        "a root of a page for no entries": (0, fence),
        "a root cut off": (1, fence[:-1]),
        "a root of one page for entries of two": (KEYS.page_entries + 1, fence),
        "fences out of order": (KEYS.page_entries + 1, other + fence),
        "equal fences": (KEYS.page_entries + 1, fence + fence),
        "a page that stands in its root twice": (KEYS.page_entries + 1, fence + after),
        "more entries than any root has": (1 << 60, fence),
    }
    cases: list[dict[str, Any]] = [{**case, "error": CORRUPTED} for case in pages]
    cases += [
        {"name": name, "table": 1, "count": count, "root": root.hex(), "error": CORRUPTED}
        for name, (count, root) in roots.items()
    ]
    return {
        "about": "Pages (with the digest and count that a root names) and roots that must be refused.",
        "cases": cases,
    }


def merkle() -> Vector:
    node = bytes(32).hex()
    items = {
        "an edge for no records": (0, [node]),
        "no edge for a record": (1, []),
        "one node for three records": (3, [node]),
        "a node of 31 bytes": (1, [node[2:]]),
    }
    cases = [{"name": name, "count": n, "edge": edge, "error": CORRUPTED} for name, (n, edge) in items.items()]
    return {"about": "Right edges that fit no tree.", "cases": cases}


def summaries() -> Vector:
    rows_ = summary_rows(40)
    made = Summary()
    for item in rows_:
        made.add(item)
    raw = made.encode()
    hexed = [encode_row(item).hex() for item in rows_]
    first = bytearray(raw)
    first[0] ^= 1
    cases = {
        "cut off": raw[:-1],
        "another digest": bytes(first),
        "a run more, of nothing": raw + bytes(32),
        "a run too few": raw[:-32],
        "more failures than records": raw[:20] + b"\xff" + raw[21:],
    }
    return {
        "about": "Summaries that are not those of their rows.",
        "cases": [
            {"name": name, "rows": hexed, "summary": data.hex(), "error": CORRUPTED} for name, data in cases.items()
        ],
    }


def manifests() -> Vector:
    raw = empty_manifest().raw
    first = build()[0]["recordings/first/latest.json"]

    def text(data: bytes, name: str, error: str = CORRUPTED) -> dict[str, Any]:
        return {"name": name, "manifest": data.decode(), "error": error}

    def changed(name: str, error: str = CORRUPTED, base: bytes = raw, **changes: Any) -> dict[str, Any]:
        return text(manifest_with(base, **changes), name, error)

    root = msgspec.json.decode(first)["storage"]["segments"][0]["keys"]["root"]
    short = base64.b64encode(base64.b64decode(root)[:-1]).decode()
    page = {"pack": "0" * 64, "offset": 0, "length": 1, "raw": 1, "digest": "0" * 32}
    table = "storage__segments__0__keys"
    named = {"name": "x", "version": 1}
    rule = {"rule": "ignore", "at": ["/a"]}
    put = {"rule": "replace", "pattern": "a", "with": "b"}
    return {
        "about": "Manifests that must be refused. But for the first few their digests are right.",
        "cases": [
            text(b"", "nothing"),
            text(b"[]", "no object"),
            text(raw[:-1], "cut off"),
            text(raw.replace(b"spec 1", b"spec 2"), "a changed byte"),
            text(raw.replace(b'"features"', b' "features"'), "white space"),
            text(raw.replace(b'"records":0', b'"records":0.0'), "a number in another form"),
            text(raw.replace(b'"format":"replaypack"', b'"format":"other"'), "another format"),
            changed("version 2", "format.future_version", version=2),
            changed("a feature that is not known", "format.future_version", features=["dictionaries/1"]),
            changed("version as text", "format.malformed_version", version="1"),
            changed("version true", "format.malformed_version", version=True),
            changed("no version", "format.malformed_version", version=DROP),
            changed("version 0", "format.unmigratable", version=0),
            changed("features that are no list", features={}),
            changed("no features", features=DROP),
            changed("an unknown member", extra=1),
            changed("an unknown member of the content", content__extra=1),
            changed("an unknown member of the storage", storage__extra=1),
            changed("no content", content=DROP),
            changed("no state", content__state=DROP),
            changed("an unknown state", content__state="done"),
            changed("a redaction policy with an unknown member", content__redaction__extra=1),
            changed("rules of a redaction policy that is not private", content__redaction__rules={}),
            changed("an unknown cause", storage__cause="magic"),
            changed("a seal that names a claim", storage__cause="seal"),
            changed("a claim without a mode", storage__claim=None),
            changed("a match policy without rules", content__match={"name": "uuids", "version": 1}),
            changed("a match policy with an empty list of rules", content__match={**named, "rules": []}),
            changed("a match policy with another member", content__match={**named, "rules": [rule], "more": 1}),
            changed("a rule with another member", content__match={**named, "rules": [{**rule, "more": 1}]}),
            changed("a pattern that is none", content__match={**named, "rules": [{**put, "pattern": "a+"}]}),
            changed(
                "a rule of a later version",
                "format.future_version",
                content__match={**named, "rules": [{"rule": "round", "digits": 3}]},
            ),
            changed("an id of 15 bytes", content__id="0" * 30),
            changed("a digest in capitals", content__merkle_root=digest(b"").hex().upper()),
            changed("a month 13", content__started="2025-13-01T00:00:00Z"),
            changed("a time with an offset", content__started="2025-06-15T00:00:00+02:00"),
            changed("no member for what it was copied from", storage__source=DROP),
            changed("copied from no digest", storage__source={"manifest": "0", "policy": "whole"}),
            changed("copied by a policy with another character", storage__source={"manifest": "0" * 64, "policy": "A"}),
            changed(
                "copied from a source with another member",
                storage__source={"manifest": "0" * 64, "policy": "a", "url": "x"},
            ),
            changed("revision 0", storage__revision=0),
            changed("a revision of nine digits", storage__revision=10**8),
            changed("literals beyond their half of the address space", storage__literals=(1 << 47) + 1),
            changed("a page of 1821 packs", storage__pack_pages=[{**page, "raw": 1821 * 36}]),
            changed("more record frames than records", base=first, storage__segments__0__records__count=11),
            changed("a negative number of literals", storage__literals=-1),
            changed("a negative number of inline bytes", storage__inlines=-1),
            changed("counts that do not add up", content__counts={"tool": 1}),
            changed("a count of zero", content__counts={"tool": 0}),
            changed("records without segments", content__records=1, content__counts={"tool": 1}),
            changed("an edge that does not fit", storage__merkle_edge=["0" * 64]),
            changed("another Merkle root", content__merkle_root="0" * 64),
            changed("a pack without a size", storage__packs=[["0" * 64, 0]]),
            changed("packs here and in pages", storage__packs=[["0" * 64, 9]], storage__pack_pages=[page]),
            *_not_there(first),
            changed("no member summary", storage__summary=DROP),
            changed("a summary of 31 bytes", storage__summary={**page, "raw": 31}),
            changed("a summary of more than 8 MiB", storage__summary={**page, "raw": (8 << 20) + 32}),
            changed("a summary of nothing", storage__summary={**page, "raw": 0}),
            changed("a summary in no page", storage__summary="00"),
            changed("a segment of a pack that is not there", base=first, storage__segments__0__packs=[1]),
            changed("a segment of pack -1", base=first, storage__segments__0__packs=[-1]),
            changed("a segment that begins elsewhere", base=first, storage__segments__0__first=1),
            changed("a segment of other records", base=first, storage__segments__0__count=9),
            changed("inline bytes behind the last", base=first, storage__segments__0__inline_first=1 << 40),
            changed("fewer keys than records", base=first, **{f"{table}__count": 9}),
            changed("a root both inline and in a page", base=first, **{f"{table}__page": page}),
            changed("no root at all", base=first, **{f"{table}__root": None}),
            changed("a near range of over 256 KiB", base=first, storage__segments__0__near__length=262145),
            {**changed("a root that is no base64", base=first, **{f"{table}__root": root[:-1]}), "roots": True},
            {**changed("a root cut off", base=first, **{f"{table}__root": short}), "roots": True},
        ],
    }


def _not_there(sound: bytes) -> list[dict[str, Any]]:
    """Tombstones, and what is withheld, that are not what they should be."""
    leaf = "0" * 64
    stone = {"time": "2025-06-16T00:00:00Z", "reason": "asked", "records": [[1, leaf]]}
    keys = "storage__segments__0__keys__count"
    items: dict[str, dict[str, Any]] = {
        "a tombstone without members": {"storage__tombstones": [{}]},
        "a tombstone with another member": {"storage__tombstones": [{**stone, "more": 1}]},
        "a tombstone without a reason": {"storage__tombstones": [{**stone, "reason": ""}]},
        "a reason of 4097 bytes": {"storage__tombstones": [{**stone, "reason": "r" * 4097}]},
        "a tombstone of a time that is none": {"storage__tombstones": [{**stone, "time": "yesterday"}]},
        "a tombstone of no records": {"storage__tombstones": [{**stone, "records": []}]},
        "a tombstone of a record beyond the last": {"storage__tombstones": [{**stone, "records": [[10, leaf]]}]},
        "a tombstone of record -1": {"storage__tombstones": [{**stone, "records": [[-1, leaf]]}]},
        "a tombstone with a short leaf": {"storage__tombstones": [{**stone, "records": [[1, leaf[:-1]]]}]},
        "a tombstone without leaves": {"storage__tombstones": [{**stone, "records": [[1]]}]},
        "records of a tombstone out of order": {
            "storage__tombstones": [{**stone, "records": [[2, leaf], [1, leaf]]}],
        },
        "a record with two tombstones": {"storage__tombstones": [stone, stone]},
        "a key less than purged records allow": {"storage__tombstones": [stone], keys: 8},
        "a key more than records, with a tombstone": {"storage__tombstones": [stone], keys: 11},
        "withheld responses": {"storage__withheld": ["response"]},
        "withheld roles out of order": {"storage__withheld": ["request", "identity"]},
        "a role withheld twice": {"storage__withheld": ["request", "request"]},
        "withheld as text": {"storage__withheld": "request"},
    }
    return [
        {"name": name, "manifest": manifest_with(sound, **changes).decode(), "error": CORRUPTED}
        for name, changes in items.items()
    ]


def markers() -> Vector:
    cases = [
        {"name": name, "marker": text, "error": f"format.{reason}"}
        for name, text, reason in (
            ("another format", '{"format":"x","version":1}', "corrupted"),
            ("version 2", '{"format":"replaypack","version":2}', "future_version"),
            ("version null", '{"format":"replaypack","version":null}', "malformed_version"),
            ("version -1", '{"format":"replaypack","version":-1}', "unmigratable"),
        )
    ]
    return {"about": "Markers that must be refused.", "cases": cases}


def journals() -> Vector:
    data, _ = journal_bytes()
    size = struct.unpack_from("<I", data, 8)[0]

    def version(number: int) -> bytes:
        body = data[20 : 20 + size].replace(b"\xa7version\x01", b"\xa7version" + bytes([number]))
        return data[:8] + struct.pack("<I8s", size, digest(body)[:8]) + body

    def head(**changes: object) -> bytes:
        body = msgspec.msgpack.encode({**msgspec.msgpack.decode(data[20 : 20 + size]), **changes})
        return data[:8] + struct.pack("<I8s", len(body), digest(body)[:8]) + body

    def record(body: bytes) -> bytes:
        return data[: 20 + size] + struct.pack("<I8s", len(body), digest(body)[:8]) + body

    items = {
        "nothing": b"",
        "another magic": b"X" + data[1:],
        "cut off in its head": data[: 19 + size],
        "a flipped bit in its head": data[:40] + bytes([data[40] ^ 1]) + data[41:],
        "a name that leaves the archive": head(name="../x"),
        "a writer that is no id": head(writer="../../x"),
        "an unknown claim": head(claim="other"),
        "a negative sequence number": head(first=-1),
        "a frame of no pack": head(external=[[0, 5, 5, bytes(16), "../x", 99, 0, 24, 9]]),
        "a frame beyond its pack": head(external=[[0, 5, 5, bytes(16), "0" * 64, 30, 0, 24, 9]]),
        "a record with unknown flags": record(b"\x02\x00"),
        "a record longer than its entry": record(b"\x00\x7f\x00\x00" + bytes(40)),
    }
    cases = _cases("journal", items)
    cases += _cases("journal", {"version 2": version(2)}, "format.future_version")
    cases += _cases("journal", {"version 0": version(0)}, "format.unmigratable")
    return {"about": "Journals that must be refused, as opposed to those that were merely cut off.", "cases": cases}


def catalogs() -> Vector:
    text = catalog_text()
    head, first, second, _ = text.split(b"\n")
    items = {
        "no frame": text,
        "nothing": b"\n",
        "no head": first + b"\n",
        "another format": text.replace(b'"replaypack-catalog"', b'"replaypack"'),
        "fewer lines than the head says": b"\n".join([head, first, b""]),
        "more lines than the head says": b"\n".join([head, first, second, second.replace(b"b/", b"c/"), b""]),
        "not in order": b"\n".join([head, second, first, b""]),
        "one name twice": b"\n".join([head, first, first, b""]),
        "a name that leaves the archive": text.replace(b'"a"', b'"../a"'),
        "a line that is no object": b"\n".join([head, first, b"[]", b""]),
        "a member missing": text.replace(b'"revision":2,', b""),
        "a member of another type": text.replace(b'"revision":2,', b'"revision":"2",'),
        "no end of the last line": text[:-1],
    }
    framed = {name: raw if name == "no frame" else Compressor(3)(raw) for name, raw in items.items()}
    framed["a line of nothing, five million times"] = Compressor(3)(text.split(b"\n")[0] + b"\n" * (5 << 20))
    cases = _cases("catalog", framed)
    later = Compressor(3)(text.replace(b'"version":1', b'"version":2'))
    cases += _cases("catalog", {"version 2": later}, "format.future_version")
    return {"about": "Catalogs that must be refused.", "cases": cases}


def names() -> Vector:
    bad = ["", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a.", "a.json", "a.json/b", "A.JSON", "a b", "a@1", "a#b"]
    bad += ["é", "a\\b", "con", "CON.txt", "x/nul", "com1", "lpt9.a", "a\n", "n" * 256, "n/" * 256 + "n", "%41"]
    return {
        "about": "What cannot name a recording.",
        "cases": [{"name": repr(t[:20]), "recording": t, "error": "archive.invalid_name"} for t in bad],
    }


def locators() -> Vector:
    bad = ["", "a", "#a", "./runs", "./runs#", "./runs#a@", "./runs#a@0", "./runs#a@01", "./runs#a@-1", "./runs#a@x"]
    bad += ["./runs#a@100000000", "./runs#a@1@2"]
    cases = [{"name": repr(t), "locator": t, "error": "archive.invalid_locator"} for t in bad]
    cases += [
        {"name": repr(t), "locator": t, "error": "archive.invalid_name"} for t in ("./runs#a.json", "./runs#a/../b")
    ]
    return {"about": "What is not a locator.", "cases": cases}


def archive() -> Vector:
    """Damage to single bytes of the tiny archive, each of which some read must notice."""
    objects, _ = build()
    manifest = msgspec.json.decode(objects["recordings/first/latest.json"])
    pack = f"packs/{manifest['storage']['packs'][0][0][:2]}/{manifest['storage']['packs'][0][0]}.rpk"
    toc = parse_pack(objects[pack])
    cases: list[dict[str, Any]] = []
    used: set[tuple[int, int]] = set()
    tables_ = {1: "keys", 2: "records", 3: "literals", 4: "blobs"}

    def damage(name: str, key: str, at: int, read: str) -> None:
        cases.append(
            {"name": name, "recording": "first", "object": key, "at": at, "xor": "01", "read": read, "error": CORRUPTED}
        )

    damage("a byte of the manifest", "recordings/first/latest.json", 100, "open")
    for info in toc.frames:
        if (info.kind, info.first if info.kind == 3 else 0) in used:
            continue
        used.add((info.kind, info.first if info.kind == 3 else 0))
        middle = info.offset + info.length // 2
        if info.kind == 1:
            damage("a byte of a record frame", pack, middle, "records")
        elif info.kind == 2:
            damage("a byte of a literal frame", pack, middle, "requests")
        elif info.first != 4:
            read = {1: "lookups", 2: "records", 3: "requests"}[info.first]
            damage(f"a byte of a page of {tables_[info.first]}", pack, middle, read)
    damage("a byte of a pack's table of contents", pack, len(objects[pack]) - 40, "packs")
    cases.append(
        {
            "name": "a frame that is sound, in the place of another",
            "recording": "first",
            "object": pack,
            "at": toc.frames[0].offset,
            "replace": _same_length(objects[pack], toc.frames[0]).hex(),
            "read": "requests",
            "error": CORRUPTED,
        }
    )
    cases += _partial()
    return {
        "about": "Changes to the archives `tiny` and `partial`, and what then must fail: opening, reading all records, "
        "all requests, all lookups, or the tables of contents of the recording's packs.",
        "cases": cases,
    }


def _partial() -> list[dict[str, Any]]:
    """Manifests that say something else of what is missing than the packs do."""
    objects, _ = build_partial.build()
    latest = "recordings/purged/latest.json"
    stones = msgspec.json.decode(objects[latest])["storage"]["tombstones"]
    kept = [[0, "0" * 64], *stones[0]["records"][1:]]
    items: list[tuple[str, dict[str, Any]]] = [
        # Of 1 the key has other records, so that its entry is still there.
        ("a purged record without its tombstone", {"storage__tombstones__0__records": stones[0]["records"][1:]}),
        ("a tombstone of a record that is there", {"storage__tombstones__0__records": kept}),
    ]
    return [
        {
            "name": name,
            "archive": "partial",
            "recording": "purged",
            "object": latest,
            "whole": manifest_with(objects[latest], **changes).decode(),
            "read": "records",
            "error": CORRUPTED,
        }
        for name, changes in items
    ]


def _same_length(pack: bytes, info: FrameInfo) -> bytes:
    """Another sound frame of the same compressed and raw size: raw blocks do not depend on their content."""
    raw = bytes(info.raw)
    head = b"\x28\xb5\x2f\xfd" + (
        b"\x60" + struct.pack("<H", info.raw - 256)
        if 256 <= info.raw < 65792
        else b"\xa0" + struct.pack("<I", info.raw)
    )
    # One RLE block, the rest of the length as empty raw blocks; no checksum.
    block = ((info.raw << 3) | 2).to_bytes(3, "little") + b"\0"
    spare = info.length - len(head) - len(block)
    assert info.raw < 1 << 17
    assert len(raw) == info.raw
    empty = spare // 3 - 1
    last = b"\1\0\0"
    pad = spare - 3 * (empty + 1)
    if pad:
        # A raw block of one byte takes four bytes: take them off the RLE block.
        block = (
            (((info.raw - pad) << 3) | 2).to_bytes(3, "little") + b"\0" + pad * ((1 << 3).to_bytes(3, "little") + b"\0")
        )
        empty = (info.length - len(head) - len(block)) // 3 - 1
        pad = info.length - len(head) - len(block) - 3 * (empty + 1)
        assert pad == 0
    return head + block + b"\0\0\0" * empty + last


def vectors() -> dict[str, Vector]:
    """Path below ``invalid/`` to vector."""
    return {
        "varints/varints": varints(),
        "rows/rows": rows(),
        "recipes/recipes": recipes(),
        "base64/base64": base64_runs(),
        "frames/frames": frames(),
        "record_frames/record_frames": record_frames(),
        "packs/packs": packs(),
        "tables/tables": tables(),
        "merkle/merkle": merkle(),
        "summaries/summaries": summaries(),
        "manifest/manifests": manifests(),
        "manifest/markers": markers(),
        "match/policies": build_match.refused_policies(),
        "match/patterns": build_match.refused_patterns(),
        "journal/journals": journals(),
        "catalog/catalogs": catalogs(),
        "names/names": names(),
        "names/locators": locators(),
        "archive/archive": archive(),
        "proofs/proofs": build_audit.refused_proofs(),
        "signatures/signatures": build_audit.refused_signatures(),
    }
