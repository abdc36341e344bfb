"""Manifests and whole recordings (chapters 06 and 08), from the specification alone; the other half of `rpk.py`."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

from rpk import (
    TABLES,
    Refused,
    canonical,
    decompress,
    digest,
    frame_of,
    hexdigits,
    integer,
    need,
    parse_key_page,
    parse_page,
    parse_root,
    parse_row,
    put_out,
    root_of_edge,
    split_records,
)
from rpk_match import check_policy, key_of

# 06 Manifests

CONTENT = (
    "counts derived_from error extends id match merkle_root metadata recorded_by records redaction started state"
).split()
STORAGE = (
    "cause checkpoint claim created inlines literals merkle_edge pack_pages packs previous revision segments "
    "source summary tombstones withheld writer".split()
)
CAUSES = "append checkpoint claim compact copy import migrate purge recover rekey replace seal".split()
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


def parse_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused("format.corrupted", f"JSON: {error}") from None


def parse_document(data: bytes) -> dict[str, Any]:
    """Chapter 12: format and version, before anything else."""
    document = parse_json(data)
    need(isinstance(document, dict) and document.get("format") == "replaypack", "another format")
    version = document.get("version")
    need(type(version) is int, "version", "format.malformed_version")
    need(version <= 1, "version", "format.future_version")
    need(version == 1, "version", "format.unmigratable")
    return document  # type: ignore[no-any-return]


def check_content(content: Any) -> None:
    members(content, CONTENT)
    need(hexdigits(content["id"], 16) and hexdigits(content["merkle_root"], 32), "id, Merkle root")
    need(content["state"] in ("open", "sealed", "incomplete") and is_time(content["started"]), "state, start")
    need(all(content[n] is None or hexdigits(content[n], 32) for n in ("extends", "derived_from")), "references")
    need(isinstance(content["metadata"], dict) and isinstance(content["recorded_by"], str), "metadata")
    check_policy(content["match"])
    redaction = content["redaction"]
    members(redaction, [*("name", "version"), *(["rules"] if "rules" in redaction else [])])
    need("rules" not in redaction or redaction["name"].startswith("x-"), "rules of a policy that is not private")
    need(isinstance(redaction.get("rules", {}), dict), "rules of redaction")
    need(integer(content["records"], 0, 1 << 48) and isinstance(content["counts"], dict), "records")
    need(all(integer(count, 1) for count in content["counts"].values()), "counts")
    need(sum(content["counts"].values()) == content["records"], "counts")


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
    members(storage, STORAGE)
    check_content(content)
    need(storage["cause"] in CAUSES and storage["claim"] in (None, "create", "append", "replace"), "cause")
    need((storage["claim"] is not None) == (storage["cause"] in ("claim", "checkpoint")), "claim")
    need(integer(storage["revision"], 1, 10**8 - 1) and integer(storage["checkpoint"]), "numbers")
    need(integer(storage["literals"], 0, 1 << 47), "literals")
    need(hexdigits(storage["writer"], 8) and is_time(storage["created"]), "writer, time")
    need(storage["previous"] is None or hexdigits(storage["previous"], 32), "previous")
    need(all(len(p) == 2 and hexdigits(p[0], 32) and integer(p[1], 1, 2**32 - 1) for p in storage["packs"]), "packs")
    need(not (storage["packs"] and storage["pack_pages"]), "packs twice")
    need(len(storage["pack_pages"]) <= 1024, "pages of packs")
    for page in storage["pack_pages"]:
        check_page(page)
        need(page["raw"] <= 1820 * 36, "page of packs")
    need(all(hexdigits(node, 32) for node in storage["merkle_edge"]), "edge")
    edge = [bytes.fromhex(node) for node in storage["merkle_edge"]]
    need(root_of_edge(content["records"], edge).hex() == content["merkle_root"], "Merkle root")
    purged = check_tombstones(storage["tombstones"], content["records"])
    if storage["source"] is not None:
        members(storage["source"], ["manifest", "policy"])
        need(hexdigits(storage["source"]["manifest"], 32), "manifest copied from")
        need(re.fullmatch(r"[a-z0-9-]{1,64}", str(storage["source"]["policy"])) is not None, "policy of a copy")
    need(storage["withheld"] in ([], ["identity"], ["request"], ["identity", "request"]), "withheld")
    if storage["summary"] is not None:
        check_page(storage["summary"])
        need(0 < storage["summary"]["raw"] <= 8 << 20 and storage["summary"]["raw"] % 32 == 0, "summary")
        need(not storage["tombstones"], "summary of purged records")
    first = inlines = 0
    need(integer(storage["inlines"], 0, 1 << 47), "inlines")
    for segment in storage["segments"]:
        members(segment, "blobs count first inline_first keys literals near packs records".split())
        need(segment["first"] == first and integer(segment["count"], 1), "segments")
        first += segment["count"]
        need(integer(segment["inline_first"], inlines, storage["inlines"]), "inline_first")
        inlines = segment["inline_first"]
        limit = len(storage["packs"]) if not storage["pack_pages"] else 1 << 32
        need(all(integer(index, 0, limit - 1) for index in segment["packs"] or ()), "packs of a segment")
        gone = sum(first - segment["count"] <= seq < first for seq in purged)
        need(segment["count"] - gone <= segment["keys"]["count"] <= segment["count"], "keys")
        need(segment["records"]["count"] <= segment["count"], "records")
        need(segment["blobs"]["count"] <= 3 * segment["count"], "blobs")
        for name, _, _ in TABLES.values():
            members(segment[name], ["count", "page", "root"])
            need((segment[name]["root"] is None) != (segment[name]["page"] is None), "root")
            if segment[name]["page"] is not None:
                check_page(segment[name]["page"])
        near = segment["near"]
        need(near is None or integer(near["length"], 1, 256 << 10), "near")
    need(first == content["records"], "segments do not hold all records")
    return {**document, "digest": own, "content_digest": digest(canonical(content).encode()).hex()}


def check_tombstones(tombstones: list[Any], records: int) -> dict[int, bytes]:
    """Leaves of purged records by sequence number."""
    purged: dict[int, bytes] = {}
    for tombstone in tombstones:
        members(tombstone, ["reason", "records", "time"])
        reason = tombstone["reason"]
        need(is_time(tombstone["time"]) and isinstance(reason, str), "time, reason")
        need(0 < len(reason.encode("utf-8", "surrogatepass")) <= 4096 and tombstone["records"], "reason, records")
        last = -1
        for item in tombstone["records"]:
            need(isinstance(item, list) and len(item) == 2 and integer(item[0], last + 1, records - 1), "order")
            need(hexdigits(item[1], 32) and item[0] not in purged, "leaf")
            last = item[0]
            purged[last] = bytes.fromhex(item[1])
    need(len(purged) <= 65536, "too many")
    return purged


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
        self.purged = {seq: bytes.fromhex(leaf) for stone in storage["tombstones"] for seq, leaf in stone["records"]}
        self.withheld = storage["withheld"]

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

    def pages(self, segment: dict[str, Any], table: int) -> Iterator[tuple[bytes, bytes, int]]:
        """(raw bytes, digest, entries) of each page of a table."""
        name, width, _ = TABLES[table]
        ref = segment[name]
        data = ref["root"] is None and self.page(ref["page"])
        root = parse_root(table, ref["count"], data) if data else inline_root(table, ref)
        per_page = 65536 // width
        for number, (fence, short, *at) in enumerate(root):
            count = min(per_page, ref["count"] - number * per_page)
            raw = self.frame(segment, tuple(at), None if table == 1 else count * width, short)  # type: ignore[arg-type]
            first = raw[: count * width][::count]
            need(first.startswith(fence), "a page begins with its fence")
            yield raw, short, count

    def entries(self, segment: dict[str, Any], table: int) -> Iterator[bytes]:
        for raw, short, count in self.pages(segment, table):
            page = parse_page(table, raw, count, short)
            need(page == sorted(page), "order of a page")
            yield from page

    def records(self) -> Iterator[tuple[bytes, bytes | None, list[list[tuple[int, int, int]]]]]:
        """(row, inline response, recipes) of all records, in order; an empty row for a purged one."""
        for segment in self.segments:
            for entry in self.entries(segment, 2):
                first, pack, offset, length, size, count, short = frame_entry(entry)
                raw = self.frame(segment, (pack, offset, length), size, short)
                found = split_records(raw, [number for number in range(count) if first + number in self.purged])
                need(len(found) == count, "records of a frame")
                for number, (row, inline, recipes) in enumerate(found):
                    need(first + number in self.purged or parse_row(row)[0] == first + number, "order of records")
                    yield row, inline, recipes

    def literals(self, offset: int, length: int) -> bytes:
        out = b""
        for segment in self.segments:
            for entry in self.entries(segment, 3):
                first, pack, at, size, raw_size, count, short = frame_entry(entry)
                need(0 < count <= raw_size, "literal frame")
                if first <= offset < first + count and length:
                    # The literals are the last bytes of the frame: all of a literal frame, the responses of the other.
                    raw = self.frame(segment, (pack, at, size), raw_size, short)[raw_size - count :]
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
            if role in self.withheld and roles[role][1]:
                found[role] = "withheld"
                continue
            found[role] = (roles[role][2], self.blob(roles[role], recipe))
        if inline is not None and fields[15]:
            found["response"] = (fields[15], inline)
        return found

    def key_of(self, kind: str, identity: Any) -> bytes:
        return key_of(self.manifest["content"]["match"], kind, identity)

    def lookup(self, key: bytes, scope: str | None, nth: int) -> list[Any] | int | None:
        """The row that answers: of the scope, or without one where the scope has none of this key.

        The sequence number of a purged record whose turn it is.
        """
        for wanted in [scope, None] if scope is not None else [None]:
            disc = bytes(8) if wanted is None else digest(wanted.encode())[:8]
            hits: list[Any] = []
            for segment in self.segments:
                for raw, short, count in self.pages(segment, 1):
                    entries, frames = parse_key_page(raw, count, short)
                    need(entries == sorted(entries), "order of a page")
                    for entry in entries:
                        if entry[:24] == key[:16] + disc:
                            seq = int.from_bytes(entry[24:], "big")
                            if seq in self.purged:
                                hits.append(seq)
                                continue
                            row = self.keyed(segment, entry, frames)
                            if row[3] == key and row[5] == wanted:
                                hits.append(row)
            if hits:
                return hits[nth] if nth < len(hits) else None
        return None

    def keyed(self, segment: dict[str, Any], entry: bytes, frames: list[tuple[int, int, int, int, bytes]]) -> list[Any]:
        """The row that an entry of ``keys`` names, checked against it."""
        seq = int.from_bytes(entry[24:], "big")
        first, pack, offset, length, short = frame_of(seq, frames)
        raw = self.frame(segment, (pack, offset, length), None, short)
        found = split_records(raw, [other - first for other in self.purged if other >= first])
        need(seq - first < len(found), "a frame without the record")
        row = parse_row(found[seq - first][0])
        need(row[0] == seq and row[3][:16] == entry[:16], "record of another entry")
        return row


def frame_entry(entry: bytes) -> tuple[int, int, int, int, int, int, bytes]:
    high, low, pack, offset, length, size, count, short = struct.unpack(">HIIIIII16s", entry)
    return high << 32 | low, pack, offset, length, size, count, short
