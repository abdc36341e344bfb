"""A reader of replaypack archives, written from the specification alone: what `read_vectors.py` uses.

Needs ``blake3``, ``msgpack`` and ``zstandard``. Plain and slow on purpose; chapter numbers say where each rule stands.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import zstandard
from blake3 import blake3

MAX_FRAME = 64 << 20
MAX_RANGES = 1 << 16
MAX_FRAME_RANGES = 1 << 22
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
            need(0 < number and start + number <= len(earlier[-back]), "a run beyond its recipe")
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


def split_records(raw: bytes) -> Iterator[tuple[int, bytes, bytes | None, list[list[tuple[int, int, int]]]]]:
    """(place, whole row, inline response, resolved recipes) of each record of a frame."""
    at = total = 0
    earlier: list[list[tuple[int, int, int]]] = []
    while at < len(raw):
        place = at
        row_size, at = uvarint(raw, at)
        recipes_size, at = uvarint(raw, at)
        inline_size, at = uvarint(raw, at)
        end = at + row_size + recipes_size + max(0, inline_size - 1)
        need(end <= len(raw) and row_size >= 34, "a record that does not fit its frame")
        row, recipes = raw[at : at + row_size], raw[at + row_size : at + row_size + recipes_size]
        inline = raw[at + row_size + recipes_size : end] if inline_size else None
        if inline is not None:
            row += digest(inline)
        fields = parse_row(row)
        need(inline is None or (len(inline) < 4096 and len(inline) == fields[14]), "inline response of another size")
        own, cursor = [], 0
        while cursor < len(recipes):
            ranges, cursor = parse_recipe(recipes, cursor, earlier)
            total += len(ranges)
            need(total <= MAX_FRAME_RANGES, "too many ranges in a frame")
            earlier.append(ranges)
            own.append(ranges)
        yield place, row, inline, own
        at = end


def parse_pack(data: bytes) -> dict[str, Any]:
    need(len(data) >= 24 + 8 + 32, "too short for a pack")
    magic, size, name, version, flags, reserved = struct.unpack_from("<II8sHHI", data)
    need((magic, size, name) == (SKIPPABLE, 16, b"RPKPACK\n"), "no pack")
    need(version <= 1, f"pack version {version}", "format.future_version")
    need((version, flags, reserved) == (1, 0, 0), "pack header", "format.malformed_version")
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
    need(at == start - 8, "the frames do not fill the pack")
    need(all(len(r) == 16 and len(w) == 8 and isinstance(n, str) for r, w, n in toc["origins"]), "origins")
    for origin, _first, pack, _offset, _length, _raw, frame_digest in toc["external"]:
        need(0 <= origin < len(toc["origins"]) and len(pack) == 32 and len(frame_digest) == 16, "external")
    return toc


# 05 Tables

TABLES = {1: ("keys", 62, 30), 2: ("records", 42, 6), 3: ("literals", 42, 6), 4: ("blobs", 23, 22)}


def parse_page(table: int, raw: bytes, count: int, short: bytes) -> list[bytes]:
    width = TABLES[table][1]
    need(len(raw) == count * width and digest(raw)[:16] == short, "page")
    return [raw[number::count] for number in range(count)]


def parse_root(table: int, count: int, data: bytes) -> list[tuple[bytes, bytes, int, int, int]]:
    _, width, key = TABLES[table]
    per_page = 65536 // width
    need(len(data) == -(-count // per_page) * (key + 28), "size of a root")
    pages = [tuple(item) for item in struct.iter_unpack(f">{key}s16sIII", data)]
    need(all(a[0] < b[0] for a, b in zip(pages, pages[1:], strict=False)), "fences out of order")
    return pages  # type: ignore[return-value]


# 06 Manifests

CONTENT = "counts derived_from error extends id match merkle_root metadata recorded_by records redaction started state".split()
STORAGE = (
    "cause checkpoint claim created literals merkle_edge pack_pages packs previous revision segments tombstones "
    "withheld writer".split()
)
CAUSES = "append checkpoint claim compact copy import migrate purge recover replace seal".split()
DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def members(value: Any, names: list[str]) -> None:
    need(isinstance(value, dict) and sorted(value) == sorted(names), f"members other than {names}")


def is_time(text: Any) -> bool:
    match = re.fullmatch(
        r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,9})?Z", str(text)
    )
    if not match:
        return False
    _, month, day, hour, minute, second = map(int, match.groups()[:6])
    return 1 <= month <= 12 and 1 <= day <= DAYS[month - 1] and hour < 24 and minute < 60 and second < 60


def parse_document(data: bytes) -> dict[str, Any]:
    """Chapter 12: format and version, before anything else."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused("format.corrupted", f"JSON: {error}") from None
    need(isinstance(document, dict) and document.get("format") == "replaypack", "another format")
    version = document.get("version")
    need(type(version) is int, "version", "format.malformed_version")
    need(version <= 1, "version", "format.future_version")
    need(version == 1, "version", "format.unmigratable")
    return document  # type: ignore[no-any-return]


def parse_manifest(data: bytes) -> dict[str, Any]:
    need(len(data) <= 16 << 20, "too large")
    document = parse_document(data)
    need(canonical(document).encode() == data, "not canonical")
    own = document.pop("digest", None)
    need(own == digest(canonical(document).encode()).hex(), "digest")
    features = document.get("features")
    need(isinstance(features, list) and all(isinstance(name, str) for name in features), "features")
    need(not features, f"features {features}", "format.future_version")
    members(document, ["content", "features", "format", "storage", "version"])
    content, storage = document["content"], document["storage"]
    members(content, CONTENT)
    members(storage, STORAGE)
    need(hexdigits(content["id"], 16) and hexdigits(content["merkle_root"], 32), "id, Merkle root")
    need(content["state"] in ("open", "sealed", "incomplete") and is_time(content["started"]), "state, start")
    need(all(content[n] is None or hexdigits(content[n], 32) for n in ("extends", "derived_from")), "references")
    need(isinstance(content["metadata"], dict) and isinstance(content["recorded_by"], str), "metadata")
    for policy in (content["match"], content["redaction"]):
        members(policy, ["name", "version"])
    need(integer(content["records"]) and isinstance(content["counts"], dict), "records")
    need(all(integer(count, 1) for count in content["counts"].values()), "counts")
    need(sum(content["counts"].values()) == content["records"], "counts")
    need(storage["cause"] in CAUSES and storage["claim"] in (None, "create", "append", "replace"), "cause")
    need((storage["claim"] is not None) == (storage["cause"] in ("claim", "checkpoint")), "claim")
    need(integer(storage["revision"], 1) and integer(storage["checkpoint"]) and integer(storage["literals"]), "numbers")
    need(hexdigits(storage["writer"], 8) and is_time(storage["created"]), "writer, time")
    need(storage["previous"] is None or hexdigits(storage["previous"], 32), "previous")
    need(all(len(p) == 2 and hexdigits(p[0], 32) and integer(p[1], 1, 2**32 - 1) for p in storage["packs"]), "packs")
    need(not (storage["packs"] and storage["pack_pages"]), "packs twice")
    for page in storage["pack_pages"]:
        check_page(page)
    need(all(hexdigits(node, 32) for node in storage["merkle_edge"]), "edge")
    edge = [bytes.fromhex(node) for node in storage["merkle_edge"]]
    need(root_of_edge(content["records"], edge).hex() == content["merkle_root"], "Merkle root")
    need(storage["tombstones"] == [] and storage["withheld"] == [], "not defined")
    first = 0
    for segment in storage["segments"]:
        members(segment, "blobs count first keys literals near packs records".split())
        need(segment["first"] == first and integer(segment["count"], 1), "segments")
        first += segment["count"]
        limit = len(storage["packs"]) if not storage["pack_pages"] else 1 << 32
        need(all(integer(index, 0, limit - 1) for index in segment["packs"] or ()), "packs of a segment")
        need(segment["keys"]["count"] == segment["count"], "keys")
        for name, _, _ in TABLES.values():
            members(segment[name], ["count", "page", "root"])
            need((segment[name]["root"] is None) != (segment[name]["page"] is None), "root")
            if segment[name]["page"] is not None:
                check_page(segment[name]["page"])
        near = segment["near"]
        need(near is None or integer(near["length"], 1, 256 << 10), "near")
    need(first == content["records"], "segments do not hold all records")
    return {**document, "digest": own, "content_digest": digest(canonical(content).encode()).hex()}


def check_page(page: Any) -> None:
    members(page, ["digest", "length", "offset", "pack", "raw"])
    need(hexdigits(page["pack"], 32) and hexdigits(page["digest"], 16), "page")
    need(integer(page["offset"], 0, 2**32 - 1) and integer(page["length"], 1, 2**32 - 1), "page")
    need(integer(page["raw"], 0, 64 << 20), "page")


def inline_root(table: int, ref: dict[str, Any]) -> list[tuple[bytes, bytes, int, int, int]]:
    try:
        data = base64.b64decode(ref["root"], validate=True)
    except ValueError:
        raise Refused("format.corrupted", "base64") from None
    return parse_root(table, ref["count"], data)


# 08 Reading an archive


class Recording:
    """One recording: ``get(key)`` returns the bytes of an object of the archive."""

    def __init__(self, get: Callable[[str], bytes], name: str) -> None:
        self.get = get
        self.manifest = parse_manifest(get(f"recordings/{name}/latest.json"))
        storage = self.manifest["storage"]
        self.packs = [pack for pack, _ in storage["packs"]]
        for page in storage["pack_pages"]:
            self.packs += [pack.hex() for pack, _ in struct.iter_unpack(">32sI", self.page(page))]
        self.segments = storage["segments"]

    def range(self, pack: str, offset: int, length: int) -> bytes:
        data = self.get(f"packs/{pack[:2]}/{pack}.rpk")[offset : offset + length]
        need(len(data) == length, "a range beyond its pack")
        return data

    def page(self, ref: dict[str, Any]) -> bytes:
        raw = decompress(self.range(ref["pack"], ref["offset"], ref["length"]), ref["raw"])
        need(digest(raw)[:16].hex() == ref["digest"], "digest of a page")
        return raw

    def frame(self, segment: dict[str, Any], at: tuple[int, int, int], size: int | None, short: bytes | None) -> bytes:
        pack, offset, length = at
        index = pack if segment["packs"] is None else segment["packs"][pack]
        need(index < len(self.packs), "no such pack")
        raw = decompress(self.range(self.packs[index], offset, length), size)
        need(short is None or digest(raw)[:16] == short, "digest of a frame")
        return raw

    def entries(self, segment: dict[str, Any], table: int) -> Iterator[bytes]:
        name, width, _ = TABLES[table]
        ref = segment[name]
        root = (
            inline_root(table, ref)
            if ref["root"] is not None
            else parse_root(table, ref["count"], self.page(ref["page"]))
        )
        per_page = 65536 // width
        for number, (fence, short, *at) in enumerate(root):
            count = min(per_page, ref["count"] - number * per_page)
            raw = self.frame(segment, tuple(at), count * width, short)  # type: ignore[arg-type]
            page = parse_page(table, raw, count, short)
            need(page[0].startswith(fence) and page == sorted(page), "order of a page")
            yield from page

    def records(self) -> Iterator[tuple[bytes, bytes | None, list[list[tuple[int, int, int]]]]]:
        """(row, inline response, recipes) of all records, in order."""
        for segment in self.segments:
            for entry in self.entries(segment, 2):
                first, pack, offset, length, size, count, short = frame_entry(entry)
                found = list(split_records(self.frame(segment, (pack, offset, length), size, short)))
                need(len(found) == count, "records of a frame")
                for number, (_, row, inline, recipes) in enumerate(found):
                    need(parse_row(row)[0] == first + number, "order of records")
                    yield row, inline, recipes

    def literals(self, offset: int, length: int) -> bytes:
        out = b""
        for segment in self.segments:
            for entry in self.entries(segment, 3):
                first, pack, at, size, raw_size, count, short = frame_entry(entry)
                need(count == raw_size, "literal frame")
                if first <= offset < first + raw_size and length:
                    raw = self.frame(segment, (pack, at, size), raw_size, short)
                    part = raw[offset - first : offset - first + length]
                    out, offset, length = out + part, offset + len(part), length - len(part)
        need(not length, "literals that are not there")
        return out

    def blob(self, blob: list[Any], recipe: list[tuple[int, int, int]]) -> bytes:
        data = b"".join(put_out(self.literals(offset, length), flags) for offset, length, flags in recipe)
        need(len(data) == blob[1] and digest(data) == blob[0], "digest of a blob")
        return data

    def blobs(self, row: bytes, inline: bytes | None, recipes: list[list[tuple[int, int, int]]]) -> dict[str, Any]:
        fields = parse_row(row)
        response = [fields[16], fields[14], fields[15]]
        roles = {"request": fields[6], "identity": fields[7]}
        if inline is None:
            roles["response"] = response if fields[15] else None
        present = [role for role, blob in roles.items() if blob is not None]
        need(len(present) == len(recipes), "recipes")
        found: dict[str, Any] = {"request": None, "identity": None, "response": None}
        for role, recipe in zip(present, recipes, strict=True):
            found[role] = (roles[role][2], self.blob(roles[role], recipe))
        if inline is not None and fields[15]:
            found["response"] = (fields[15], inline)
        return found

    def lookup(self, key: bytes, scope: str | None, nth: int) -> list[Any] | None:
        """The row that answers: of the scope, or without one where the scope has none of this key."""
        for wanted in [scope, None] if scope is not None else [None]:
            disc = bytes(8) if wanted is None else digest(wanted.encode())[:8]
            hits = []
            for segment in self.segments:
                for entry in self.entries(segment, 1):
                    if entry[:24] == key[:16] + disc:
                        row = self.keyed(segment, entry)
                        if row[3] == key and row[5] == wanted:
                            hits.append(row)
            if hits:
                return hits[nth] if nth < len(hits) else None
        return None

    def keyed(self, segment: dict[str, Any], entry: bytes) -> list[Any]:
        """The row that an entry of ``keys`` names, checked against it."""
        key, _disc, high, low, pack, offset, length, place, short = struct.unpack(">16s8sHIIIII16s", entry)
        raw = self.frame(segment, (pack, offset, length), None, None)
        found = {at: row for at, row, _, _ in split_records(raw)}
        need(place in found and leaf(found[place])[:16] == short, "leaf of a record")
        row = parse_row(found[place])
        need(row[0] == high << 32 | low and row[3][:16] == key, "record of another entry")
        return row


def frame_entry(entry: bytes) -> tuple[int, int, int, int, int, int, bytes]:
    high, low, pack, offset, length, size, count, short = struct.unpack(">HIIIIII16s", entry)
    return high << 32 | low, pack, offset, length, size, count, short
