"""A reader of replaypack archives, written from the specification alone: what `read_vectors.py` uses.

Needs ``blake3``, ``msgpack`` and ``zstandard``. Plain and slow on purpose; chapter numbers say where each rule stands.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import struct
from collections.abc import Collection, Iterable
from typing import Any

import msgpack
import zstandard
from blake3 import blake3

MAX_FRAME = 64 << 20
MAX_RANGES = 1 << 16
MAX_FRAME_RANGES = 1 << 22
MAX_FRAME_PARTS = 1 << 19
MAX_FRAME_RECORDS = 1 << 16
SKIPPABLE = 0x184D2A5B


class Refused(Exception):
    """The bytes are not of version 1. The first argument is the error code."""


def need(condition: object, why: str, code: str = "format.corrupted") -> None:
    if not condition:
        raise Refused(code, why)


def digest(data: bytes) -> bytes:
    return bytes(blake3(data).digest())


def hexdigits(text: Any, size: int) -> bool:
    return isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{2 * size}}}", text) is not None


def integer(value: Any, low: int = 0, high: int = (1 << 64) - 1) -> bool:
    return type(value) is int and low <= value <= high


# 02 Values and 03 Canonical JSON


def unpack(data: bytes) -> Any:
    """MessagePack to plain values; maps with keys that Python cannot hash are refused, which is more than needed."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_ext, use_list=True)
    except Exception as error:
        raise Refused("format.corrupted", f"MessagePack: {error}") from None


def _ext(kind: int, data: bytes) -> Any:
    if kind == 1:
        return int.from_bytes(data, "big", signed=True)
    need(kind == 2, f"extension {kind}")
    return data.decode("utf-8", "surrogatepass")


def canonical(value: Any) -> str:
    """Chapter 03, without sets: MessagePack has none."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        try:
            if int(float(value)) == value:
                return _number(float(value))
        except OverflowError:
            pass
        return f"{value}e0"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, bytes):
        return '{"$bytes":"' + base64.b64encode(value).decode() + '"}'
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    items = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
    if len(items) == 1 and re.fullmatch(r"\$+bytes", items[0][0]):
        items = [("$" + items[0][0], items[0][1])]
    return "{" + ",".join(_string(key) + ":" + canonical(child) for key, child in items) + "}"


def _string(text: str) -> str:
    out = json.dumps(text, ensure_ascii=False).replace("\x7f", "\x7f")
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", out)


def _number(value: float) -> str:
    need(value == value and abs(value) != float("inf"), "no number", "canonical.unsupported")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.lstrip("0").rstrip("0")
    k = len(digits)
    if k <= point <= 21:
        text = digits + "0" * (point - k)
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = digits[0] + ("." + digits[1:] if k > 1 else "") + f"e{point - 1:+d}"
    return sign + text


def key_of(kind: str, identity: Any) -> bytes:
    return digest(f"[{canonical(kind)},{canonical(identity)}]".encode())


# 01 Model: integers, rows, the Merkle tree


def uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        need(at < len(data) and shift < 70, "a cut or overlong integer")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    need(value < 1 << 64 and not (byte == 0 and shift), "an integer that is not in its shortest form")
    return value, at


def parse_row(data: bytes) -> list[Any]:
    need(data[:3] == b"\xdc\x00\x11" and data[-34:-32] == b"\xc4\x20", "no array of 17 that ends in a digest")
    row: list[Any] = unpack(data)
    seq, kind, name, key, scheme, scope, request, identity, start, duration, status, flags, attributes, salt, *rest = (
        row
    )
    size, encoding, response = rest
    need(integer(seq, 0, (1 << 48) - 1) and isinstance(kind, str) and isinstance(scheme, str), "seq, kind, scheme")
    need(all(text is None or isinstance(text, str) for text in (name, scope)), "name, scope")
    need(all(isinstance(item, bytes) for item in (key, salt, response)), "bytes")
    need(len(key) == 32 and len(salt) == 8 and len(response) == 32, "lengths")
    need(integer(start, -(1 << 63), (1 << 63) - 1) and integer(duration) and integer(status, 0, 2), "numbers")
    need(integer(flags, 0, 15) and integer(size) and integer(encoding, 0, 3), "numbers")
    need(attributes is None or isinstance(attributes, dict), "attributes")
    need(encoding or (size == 0 and response == digest(b"")), "absent response with content")
    for blob in (request, identity):
        if blob is not None:
            need(isinstance(blob, list) and len(blob) == 3, "blob")
            need(
                isinstance(blob[0], bytes) and len(blob[0]) == 32 and integer(blob[1]) and integer(blob[2], 1, 3),
                "blob",
            )
    return row


def parse_summary(data: bytes, rows: Iterable[bytes]) -> list[tuple[bytes, int, int, int]]:
    """Section 5.7: the runs of a summary, each of which must be that of its rows."""
    need(len(data) % 32 == 0, "runs cut off")
    runs = list(struct.iter_unpack(">16sIIQ", data))
    left = iter(rows)
    for short, count, failed, duration in runs:
        found = [parse_row(row) for _, row in zip(range(count), left, strict=False)]
        need(0 < count == len(found), "records of a run")
        chained = bytes(16)
        for row in found:
            said = [0, *row[1:8], 0, 0, *row[10:13], bytes(8), *row[14:]]
            chained = digest(chained + msgpack.packb(said))[:16]
        need(chained == short, "digest of a run")
        need(failed == sum(row[10] != 0 for row in found), "failures of a run")
        need(duration == min(sum(row[9] for row in found), 2**64 - 1), "duration of a run")
    need(next(left, None) is None, "rows behind the last run")
    return runs


def leaf(row: bytes) -> bytes:
    return digest(b"\0" + row)


def merkle(leaves: list[bytes]) -> bytes:
    """RFC 9162, section 2.1.1, as it is written there."""
    if len(leaves) < 2:
        return leaves[0] if leaves else digest(b"")
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return digest(b"\1" + merkle(leaves[:split]) + merkle(leaves[split:]))


def root_of_edge(count: int, edge: list[bytes]) -> bytes:
    need(len(edge) == bin(count).count("1") and all(len(node) == 32 for node in edge), "the edge does not fit")
    if not edge:
        return digest(b"")
    node = edge[-1]
    for left in edge[-2::-1]:
        node = digest(b"\1" + left + node)
    return node


# 04 Packs


def decompress(frame: bytes, size: int | None = None) -> bytes:
    try:
        named = zstandard.frame_content_size(frame)
        need(0 < named <= MAX_FRAME and size in (None, named), "size of a frame")
        raw = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Refused("format.corrupted", f"zstd: {error}") from None
    need(len(raw) == named, "a frame of another size")
    return bytes(raw)


def parse_recipe(
    data: bytes, at: int, earlier: list[list[tuple[int, int, int]]]
) -> tuple[list[tuple[int, int, int]], int]:
    count, at = uvarint(data, at)
    need(count <= MAX_RANGES, "too many parts")
    ranges: list[tuple[int, int, int]] = []
    for _ in range(count):
        head, at = uvarint(data, at)
        number, kind = head >> 2, head & 3
        if kind == 2:
            back, at = uvarint(data, at)
            start, at = uvarint(data, at)
            need(0 < back <= len(earlier), "a run of no recipe")
            need(number > 0 and start + number <= len(earlier[-back]), "a run beyond its recipe")
            ranges += earlier[-back][start : start + number]
        else:
            need(kind < 2, "unknown kind of part")
            flags = 0
            if kind == 1:
                need(at < len(data), "cut off")
                flags = data[at]
                at += 1
                need(flags & 1 and flags < 8, "unknown flags")
            offset, at = uvarint(data, at)
            need(number and offset + number <= 1 << 48, "range")
            ranges.append((offset, number, flags))
        need(len(ranges) <= MAX_RANGES, "too many ranges")
    return ranges, at


def put_out(raw: bytes, flags: int) -> bytes:
    if not flags:
        return raw
    text = base64.urlsafe_b64encode(raw) if flags & 2 else base64.b64encode(raw)
    return text.rstrip(b"=") if flags & 4 else text


Recipes = list[list[tuple[int, int, int]]]


def split_records(raw: bytes, purged: Collection[int] = ()) -> list[tuple[bytes, bytes | None, Recipes]]:
    """(whole row, inline response, resolved recipes) of each record of a frame; no row of ``purged`` ones."""
    count, at = uvarint(raw, 0)
    need(0 < count <= min(MAX_FRAME_RECORDS, (len(raw) - at) // 12), "number of records")
    matrix = raw[at : at + 12 * count]
    sizes = [struct.unpack(">III", matrix[number::count]) for number in range(count)]
    row_at = at + 12 * count
    recipes_at = row_at + sum(size[0] for size in sizes)
    inline_at = recipes_at + sum(size[1] for size in sizes)
    need(inline_at + sum(max(0, size[2] - 1) for size in sizes) == len(raw), "the records do not fill their frame")
    total = parts = 0
    earlier: Recipes = []
    found = []
    for row_size, recipes_size, mark in sizes:
        row, recipes = raw[row_at : row_at + row_size], raw[recipes_at : recipes_at + recipes_size]
        inline = raw[inline_at : inline_at + mark - 1] if mark else None
        row_at, recipes_at, inline_at = row_at + row_size, recipes_at + recipes_size, inline_at + max(0, mark - 1)
        if len(found) in purged:
            need(not row and not recipes, "a purged record with a row, or recipes")
            found.append((b"", inline, []))
            continue
        if inline is not None:
            row += digest(inline)
        fields = parse_row(row)
        need(inline is None or (len(inline) < 4096 and len(inline) == fields[14]), "inline response of another size")
        own, cursor = [], 0
        while cursor < len(recipes):
            parts += uvarint(recipes, cursor)[0]
            need(parts <= MAX_FRAME_PARTS and len(own) < 3, "too many recipes")
            ranges, cursor = parse_recipe(recipes, cursor, earlier)
            total += len(ranges)
            need(total <= MAX_FRAME_RANGES, "too many ranges in a frame")
            earlier.append(ranges)
            own.append(ranges)
        found.append((row, inline, own))
    return found


def parse_pack(data: bytes) -> dict[str, Any]:
    need(len(data) >= 24 + 8 + 32, "too short for a pack")
    magic, size, name, version, flags, _level = struct.unpack_from("<II8sHHI", data)
    need((magic, size, name) == (SKIPPABLE, 16, b"RPKPACK\n"), "no pack")
    need(version <= 1, f"pack version {version}", "format.future_version")
    need((version, flags) == (1, 0), "pack header", "format.malformed_version")
    length, raw_size, short, end = struct.unpack("<II16s8s", data[-32:])
    start = len(data) - 32 - length
    need(end == b"RPKEND1\n" and start >= 32 and raw_size <= 64 << 20, "trailer")
    need(struct.unpack_from("<II", data, start - 8) == (SKIPPABLE, length + 32), "no skippable frame")
    raw = decompress(data[start:-32], raw_size)
    need(digest(raw)[:16] == short, "digest of the table of contents")
    toc: dict[str, Any] = unpack(raw)
    need(isinstance(toc, dict) and set(toc) == {"frames", "origins", "external"}, "table of contents")
    at = 24
    for kind, offset, size, raw_bytes, first, count, frame_digest, origin in toc["frames"]:
        need(kind in (1, 2, 3) and offset == at and size > 0 and raw_bytes >= 0, "frame")
        need(len(frame_digest) == 16 and first >= 0 and count >= 0, "frame")
        need(origin is None or 0 <= origin < len(toc["origins"]), "origin")
        at += size
    need(len(toc["frames"]) <= len(data) // 10 and len(toc["external"]) <= 1 << 16, "size of the table of contents")
    need(len(toc["origins"]) <= max(1, len(toc["frames"])), "more origins than frames")
    need(at == start - 8, "the frames do not fill the pack")
    need(all(len(r) == 16 and len(w) == 8 and isinstance(n, str) for r, w, n in toc["origins"]), "origins")
    for origin, _first, pack, _offset, _length, raw_bytes, count, frame_digest in toc["external"]:
        need(0 <= origin < len(toc["origins"]) and len(pack) == 32 and len(frame_digest) == 16, "external")
        need(0 < count <= raw_bytes, "external")
    return toc


# 05 Tables

INLINE_SPACE = 1 << 47
TABLES = {1: ("keys", 30, 30), 2: ("records", 42, 6), 3: ("literals", 42, 6), 4: ("blobs", 23, 22)}


def parse_page(table: int, raw: bytes, count: int, short: bytes) -> list[bytes]:
    width = TABLES[table][1]
    need(len(raw) == count * width and digest(raw)[:16] == short, "page")
    return [raw[number::count] for number in range(count)]


def parse_key_page(raw: bytes, count: int, short: bytes) -> tuple[list[bytes], list[tuple[int, int, int, int, bytes]]]:
    """Entries of a page of keys, and the record frames they lie in: first record, pack, offset, length, digest."""
    split = 30 * count
    number = (len(raw) - split) // 34
    need(len(raw) == split + 34 * number and 0 < number <= count and digest(raw)[:16] == short, "page of keys")
    entries = [raw[:split][item::count] for item in range(count)]
    frames = []
    for item in range(number):
        high, low, *at, frame_digest = struct.unpack(">HIIII16s", raw[split:][item::number])
        frames.append((high << 32 | low, *at, frame_digest))
    need(all(a[0] < b[0] for a, b in itertools.pairwise(frames)), "frames out of order")
    return entries, frames  # type: ignore[return-value]


def frame_of(seq: int, frames: list[tuple[int, int, int, int, bytes]]) -> tuple[int, int, int, int, bytes]:
    """The last frame of a page of keys that begins at or before a record."""
    found = [frame for frame in frames if frame[0] <= seq]
    need(found, "no frame holds the record")
    return found[-1]


def parse_root(table: int, count: int, data: bytes) -> list[tuple[bytes, bytes, int, int, int]]:
    _, width, key = TABLES[table]
    per_page = 65536 // width
    need(len(data) == -(-count // per_page) * (key + 28), "size of a root")
    pages = [tuple(item) for item in struct.iter_unpack(f">{key}s16sIII", data)]
    need(all(a[0] < b[0] for a, b in itertools.pairwise(pages)), "fences out of order")
    need(len({page[1] for page in pages}) == len(pages), "a page twice in its root")
    return pages  # type: ignore[return-value]
