"""Read every vector with a reader that shares no code with the library: ``python spec/conformance/read_vectors.py``.

Prints what it did and exits with 1 where something is not as the vectors say. The modules beside it are the reader.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import rpk
import rpk_archive
import rpk_audit
import rpk_match
import rpk_redaction
from rpk import Refused, digest, need

VECTORS = Path(__file__).parent.parent / "vectors"
Case = dict[str, Any]
NAME = re.compile(r"[A-Za-z0-9._-]+")
DEVICES = re.compile(r"(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?", re.I | re.S)


def data(case: Case, field: str) -> bytes:
    return bytes.fromhex(case[field])


def same(a: object, b: object) -> None:
    if a != b:
        raise AssertionError(f"{str(a)[:200]} is not {str(b)[:200]}")


# One function a feature, for valid and invalid cases alike: what it raises decides.


def varints(case: Case) -> None:
    value, end = rpk.uvarint(data(case, "bytes"), 0)
    same((str(value), end), (case.get("value"), len(case["bytes"]) // 2))


def rows(case: Case) -> None:
    raw = data(case, "bytes")
    row = rpk.parse_row(raw)
    if "row" in case:
        note = case["row"]
        same([row[0], row[1], row[2], row[3].hex()], [note[n] for n in ("seq", "kind", "name", "key")])
        same([str(row[8]), str(row[9])], [note["start"], note["duration"]])
        same([row[16].hex(), row[14], row[15]], note["response"])
        same(rpk.leaf(raw).hex(), case["leaf"])
        scope = bytes(8) if row[5] is None else digest(row[5].encode())[:8]
        same(scope.hex(), case["discriminator"])


def recipes(case: Case) -> None:
    stream = b"".join(data(item, "bytes") for item in case["recipes"]) if "literals" in case else data(case, "recipes")
    at, earlier = 0, []
    while at < len(stream) or not earlier:
        ranges, at = rpk.parse_recipe(stream, at, earlier)
        earlier.append(ranges)
    if "literals" in case:
        space = data(case, "literals")
        for ranges, item in zip(earlier, case["recipes"], strict=True):
            same([list(part) for part in ranges], item["ranges"])
            same(b"".join(rpk.put_out(space[o : o + n], f) for o, n, f in ranges).hex(), item["blob"])


def base64_runs(case: Case) -> None:
    if "flags" in case:
        same(rpk.put_out(data(case, "data"), case["flags"]).decode(), case["text"])
        return
    # What a writer must leave as text: nothing puts out these very characters.
    try:
        raw = base64.b64decode(case["text"].translate(str.maketrans("-_", "+/") if case["urlsafe"] else {}) + "==")
    except ValueError:
        return
    flags = (3, 7) if case["urlsafe"] else (1, 5)
    need(case["text"].encode() not in [rpk.put_out(raw, number) for number in flags], "exact base64")


def frames(case: Case) -> None:
    raw = rpk.decompress(data(case, "frame"))
    same((raw.hex(), digest(raw)[:16].hex()), (case.get("raw"), case.get("digest")))


def record_frames(case: Case) -> None:
    found = rpk.split_records(data(case, "raw"))
    for (row, inline, ranges), note in zip(found, case["records"], strict=True):
        same(row.hex(), note["row"])
        same(inline if inline is None else inline.hex(), note["inline"])
        same([[list(part) for part in recipe] for recipe in ranges], note["recipes"])
    same(b"".join(inline or b"" for _, inline, _ in found).hex(), case["inlines"])
    same(data(case, "raw")[len(case["raw"]) // 2 - len(case["inlines"]) // 2 :].hex(), case["inlines"])


def packs(case: Case) -> None:
    pack = data(case, "pack")
    toc = rpk.parse_pack(pack)
    same(digest(pack).hex(), case["digest"])
    hexed = [[v.hex() if isinstance(v, bytes) else v for v in frame] for frame in toc["frames"]]
    same(hexed, case["frames"])
    for _, offset, length, size, _, _, short, _ in toc["frames"]:
        same(digest(rpk.decompress(pack[offset : offset + length], size))[:16], short)


def tables(case: Case) -> None:
    table = case["table"]
    if "page" in case:
        count = len(case["entries"]) if "entries" in case else case["count"]
        if table == 1:
            entries, frames_ = rpk.parse_key_page(data(case, "page"), count, data(case, "digest"))
            for entry in entries:
                rpk.frame_of(int.from_bytes(entry[24:], "big"), frames_)
            same([[*frame[:4], frame[4].hex()] for frame in frames_], case.get("frames"))
        else:
            entries = rpk.parse_page(table, data(case, "page"), count, data(case, "digest"))
        same([entry.hex() for entry in entries], case.get("entries"))
    root = rpk.parse_root(table, case.get("count") or len(case.get("entries", ())), data(case, "root"))
    same(len(root), len(case.get("pages", root[:1])))


def merkle(case: Case) -> None:
    if "rows" in case:
        leaves = [rpk.leaf(bytes.fromhex(row)) for row in case["rows"]]
        same([item.hex() for item in leaves], case["leaves"])
        same(rpk.merkle(leaves).hex(), case["root"])
    count = len(case["rows"]) if "rows" in case else case["count"]
    same(rpk.root_of_edge(count, [bytes.fromhex(node) for node in case["edge"]]).hex(), case.get("root"))


def summaries(case: Case) -> None:
    rows_ = [bytes.fromhex(row) for row in case["rows"]]
    runs = rpk.parse_summary(data(case, "summary"), rows_)
    same([[short.hex(), count, failed, str(time)] for short, count, failed, time in runs], case.get("runs"))


def match(case: Case) -> None:
    if "pattern" in case:
        pattern = rpk_match.parse_pattern(case["pattern"])
        same([list(span) for span in rpk_match.matches(pattern, case["text"])], case["finds"])
        ends = [rpk_match.match_at(elements, case["text"], 0) for elements in pattern]
        same(len(case["text"]) in ends, case["whole"])
        return
    policy = case["policy"]
    rpk_match.check_policy(policy)
    identity = rpk.unpack(data(case, "identity_msgpack"))
    same(rpk.canonical([case["kind"], rpk_match.applied(policy, case["kind"], identity)]), case["canonical"])
    same(rpk_match.key_of(policy, case["kind"], identity).hex(), case["key"])


def manifest(case: Case) -> None:
    if "marker" in case:
        rpk_archive.parse_document(case["marker"].encode())
        return
    found = rpk_archive.parse_manifest(case["manifest"].encode())
    if case.get("roots"):
        for segment in found["storage"]["segments"]:
            for number, (name, _, _) in rpk.TABLES.items():
                rpk_archive.inline_root(number, segment[name])
    same((found["digest"], found["content_digest"]), (case.get("digest"), case.get("content_digest")))


def journal(case: Case) -> None:
    raw = data(case, "journal")
    need(raw[:8] == b"RPKJRNL\n", "no journal")
    bodies, at = [], 8
    while at + 12 <= len(raw):
        size, check = struct.unpack_from("<I8s", raw, at)
        body = raw[at + 12 : at + 12 + size]
        if len(body) < size or digest(body)[:8] != check:
            break
        bodies.append(body)
        at += 12 + size
    need(bodies, "no head")
    head = rpk.unpack(bodies[0])
    need(head["version"] <= 1, "version", "format.future_version")
    need(head["version"] == 1, "version", "format.unmigratable")
    try:
        check_name(head["name"])
    except Refused:
        raise Refused("format.corrupted", "name") from None
    need(re.fullmatch("[0-9a-f]{16}", head["writer"]), "writer")
    need(head["claim"] in ("create", "append", "replace") and 0 < head["revision"] < 10**8, "claim")
    need(head["number"] >= 0 and 0 <= head["first"] <= 1 << 48, "numbers")
    need(0 <= head["literals"] <= 1 << 47 and 0 <= head["inlines"] <= 1 << 47, "numbers")
    for _first, raw_size, items, short, pack, size, _, offset, length in head["external"]:
        need(re.fullmatch("[0-9a-f]{64}", pack) and len(short) == 16, "external")
        need(0 < items <= raw_size and offset >= 0 and length > 0 and offset + length <= size, "external")
    found = []
    for body in bodies[1:]:
        need(body and body[0] < 2, "flags")
        parts, begin = [], 1
        for _ in range(3):
            number, begin = rpk.uvarint(body, begin)
            parts.append(number)
        end = begin + parts[0] + parts[1] + max(0, parts[2] - 1)
        need(end <= len(body), "record")
        found.append({"record": body[1:end].hex(), "literals": body[end:].hex(), "starts_frame": body[0] == 1})
    same((head["name"], found), (case["recording"], case["records"]))


CATALOG = {"bytes": int, "cause": str, "content": str, "counts": dict, "manifest": str, "name": str, "records": int}
CATALOG |= {"purged": int, "withheld": list, "recorded_by": str, "revision": int, "started": str, "state": str}


def catalog(case: Case) -> None:
    lines = rpk.decompress(data(case, "catalog")).split(b"\n")
    found = [rpk_archive.parse_json(line) for line in lines[:-1]]
    need(not lines[-1] and found and all(isinstance(line, dict) for line in found), "lines")
    head, *rest = found
    need(head.get("format") == "replaypack-catalog", "format")
    need(head.get("version") == 1, "version", "format.future_version")
    need(head.get("recordings") == len(rest), "number of lines")
    last = ""
    for line in rest:
        need(all(type(line.get(name)) is kind for name, kind in CATALOG.items()), "members")
        try:
            check_name(line["name"])
        except Refused:
            raise Refused("format.corrupted", "name") from None
        need(line["name"] > last, "order")
        last = line["name"]
    same([head["created"], [line.decode() for line in lines[1:-1]]], [case["created"], case["lines"]])


def check_name(name: str) -> None:
    code = "archive.invalid_name"
    need(0 < len(name) <= 512 and max(map(len, name.split("/"))) <= 255, "length", code)
    for segment in name.split("/"):
        need(NAME.fullmatch(segment) and segment not in (".", "..") and not segment.endswith("."), "segment", code)
        need(not segment.lower().endswith(".json") and not DEVICES.fullmatch(segment), "segment", code)


def names(case: Case) -> None:
    if "pack" in case:
        same(f"packs/{case['pack'][:2]}/{case['pack']}.rpk", case["key"])
    elif "locator" in case:
        url, mark, rest = case["locator"].rpartition("#")
        name, at, revision = rest.partition("@")
        need(mark and url and rest, "locator", "archive.invalid_locator")
        need(not at or re.fullmatch("[1-9][0-9]{0,7}", revision), "revision", "archive.invalid_locator")
        check_name(name)
        same([url, name, int(revision) if at else None], [case.get(f) for f in ("url", "recording", "revision")])
    else:
        check_name(case["recording"])
        name = case["recording"]
        same(f"recordings/{name}/00000002.json", case["revision_2"])
        same(f"recordings/{name}/00000002.open.json", case["open_2"])
        same(f"recordings/{name}/latest.json", case["latest"])


def redaction(case: Case) -> None:
    names_ = rpk_redaction.Names(case.get("policy", {}))
    if "field" in case:
        same(rpk_redaction.words(case["field"]), case["words"])
        same([names_.sensitive(case["field"]), names_.in_query(case["field"])], [case["sensitive"], case["in_query"]])
    elif "sensitive" in case:
        same([[n for n in case[f] if names_.sensitive(n)] for f in ("sensitive", "harmless")], [case["sensitive"], []])
    else:
        redacted = names_.redact(rpk.unpack(data(case, "identity_msgpack")))
        same(redacted, rpk.unpack(data(case, "redacted_msgpack")))
        same(rpk.key_of(case["kind"], redacted).hex(), case["key"])


def proofs(case: Case) -> None:
    found = rpk_audit.check_proof(case["proof"].encode(), case["content_digest"])
    same([found["seq"], found["leaf"]], [case.get("seq"), case.get("leaf")])
    same(found["row"] and found["row"].hex(), case.get("row"))
    same({role: payload.hex() for role, payload in found["payloads"].items()}, case.get("payloads"))


def signatures(case: Case) -> None:
    public = data(case, "public_key")
    if "pae" in case:
        envelope = json.loads(case["envelope"])
        body = base64.b64decode(envelope["payload"])
        same(rpk_audit.pae(envelope["payloadType"].encode(), body).hex(), case["pae"])
        same(hashlib.sha256(public).hexdigest(), case["key_id"])
    same(rpk_audit.state(case["envelope"].encode(), case["content"].encode(), public), case.get("state"))


def object_of(archive: str, key: str) -> bytes:
    return (VECTORS / "valid" / "archive" / archive / key).read_bytes()


def note(blob: tuple[int, bytes] | str | None) -> Case | str | None:
    if blob is None or isinstance(blob, str):
        return blob
    encoding, raw = blob
    found: Case = {"digest": digest(raw).hex(), "size": len(raw), "encoding": encoding}
    return found if len(raw) > 200 else {**found, "bytes": raw.hex()}


def archive(case: Case) -> None:
    """A whole recording from its bytes: every record, every blob, every key, the Merkle root, lookups."""
    if "object" in case:
        damaged(case)
        return
    get = partial(object_of, case.get("archive", "tiny"))
    rpk_archive.parse_document(get("replaypack.json"))
    recording = rpk_archive.Recording(get, case["name"])
    same([recording.manifest[n] for n in ("digest", "content_digest")], [case["digest"], case["content_digest"]])
    for pack in recording.packs:
        raw = get(f"packs/{pack[:2]}/{pack}.rpk")
        same(digest(raw).hex(), pack)
        rpk.parse_pack(raw)
    wanted = {item["seq"]: item for item in case["some_records"]}
    leaves: list[bytes] = []
    counts: Counter[str] = Counter()
    same([sorted(recording.purged), recording.withheld], [case.get("purged", []), case.get("withheld", [])])
    for row, inline, recipe in recording.records():
        if not row:
            leaves.append(recording.purged[len(leaves)])
            continue
        fields = rpk.parse_row(row)
        leaves.append(rpk.leaf(row))
        counts[fields[1]] += 1
        if fields[0] not in wanted:
            continue
        blobs = recording.blobs(row, inline, recipe)
        expected = wanted[fields[0]]
        same(
            [fields[1], fields[3].hex(), fields[4], fields[5]],
            [expected[n] for n in ("kind", "key", "scheme", "scope")],
        )
        same({role: note(blob) for role, blob in blobs.items()}, {role: expected[role] for role in blobs})
        if fields[4] == "identity" and not recording.withheld:
            encoding, raw = blobs["identity"] or blobs["request"]
            identity = rpk.unpack(raw) if encoding == 1 else raw.decode() if encoding == 2 else raw
            same(recording.key_of(fields[1], identity).hex(), fields[3].hex())
    same(rpk.merkle(leaves).hex(), recording.manifest["content"]["merkle_root"])
    told = recording.manifest["content"]["counts"]
    same(counts.total() + len(recording.purged), sum(told.values()))
    same([kind for kind, count in counts.items() if count > told.get(kind, 0)], [])
    summary = recording.manifest["storage"]["summary"]
    same(summary is not None, case.get("summary", False))
    if summary is not None:
        need(summary["pack"] in recording.packs, "the pack of the summary")
        rpk.parse_summary(recording.page(summary), (row for row, _, _ in recording.records()))
    same(len(leaves), case["records"])
    for lookup in case["lookups"]:
        key = recording.key_of(lookup["kind"], rpk.unpack(bytes.fromhex(lookup["identity_msgpack"])))
        row = recording.lookup(key, lookup["scope"], lookup["nth"])
        if isinstance(row, int):
            same(row, lookup["purged"])
        else:
            same(None if row is None else row[0], lookup["seq"])


def damaged(case: Case) -> None:
    def get(key: str) -> bytes:
        raw = bytearray(object_of(case.get("archive", "tiny"), key))
        if key == case["object"] and "whole" in case:
            return case["whole"].encode()  # type: ignore[no-any-return]
        if key == case["object"]:
            change = data(case, "replace") if "replace" in case else bytes([raw[case["at"]] ^ int(case["xor"], 16)])
            raw[case["at"] : case["at"] + len(change)] = change
        return bytes(raw)

    recording = rpk_archive.Recording(get, case["recording"])
    if case["read"] == "packs":
        for pack in recording.packs:
            rpk.parse_pack(get(f"packs/{pack[:2]}/{pack}.rpk"))
    elif case["read"] == "lookups":
        recording.lookup(bytes(32), None, 0)
    else:
        for row, inline, recipe in recording.records():
            if case["read"] == "requests":
                recording.blobs(row, inline, recipe)


FEATURES: dict[str, Callable[[Case], None]] = {
    "archive": archive,
    "base64": base64_runs,
    "frames": frames,
    "journal": journal,
    "manifest": manifest,
    "match": match,
    "merkle": merkle,
    "catalog": catalog,
    "names": names,
    "packs": packs,
    "proofs": proofs,
    "recipes": recipes,
    "redaction": redaction,
    "record_frames": record_frames,
    "rows": rows,
    "summaries": summaries,
    "signatures": signatures,
    "tables": tables,
    "varints": varints,
}
"""Features read here. Those of chapters 02 and 03 need their own notation of values, and have tests of their own."""


def keys() -> Iterator[tuple[str, Case]]:
    """The keys of chapter 03, with the canonical JSON of this reader."""
    for case in json.loads((VECTORS / "valid" / "keys" / "keys.json").read_text("utf-8"))["cases"]:
        yield f"keys: {case['name']}", case


def main() -> int:
    done: Counter[str] = Counter()
    failures = []
    for name, case in keys():
        if rpk.key_of(case["kind"], rpk.unpack(bytes.fromhex(case["identity_msgpack"]))).hex() != case["key"]:
            failures.append(name)
    for validity in ("valid", "invalid"):
        for feature, check in FEATURES.items():
            for file in sorted((VECTORS / validity / feature).glob("*.json")):
                for case in json.loads(file.read_text("utf-8"))["cases"]:
                    where = f"{validity}/{feature}/{file.stem}: {case['name']}"
                    try:
                        check(case)
                        outcome = None
                    except Refused as error:
                        outcome = error.args[0]
                    except Exception as error:
                        outcome = f"{type(error).__name__}: {error}"
                    if outcome != case.get("error"):
                        failures.append(f"{where}: {outcome or 'accepted'}, not {case.get('error') or 'accepted'}")
                    done[f"{validity} {feature}"] += 1
    for feature, count in done.items():
        print(f"{count:4} {feature}")
    for failure in failures:
        print("FAILED", failure)
    print(f"{sum(done.values())} vectors, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
