"""Valid vectors of Merkle trees, manifests, journals and names. Used by ``generate.py``."""

from __future__ import annotations

from typing import Any

import msgspec
from build_valid import ID, WRITER, Vector, entry, row

from replaypack.format.catalog import CatalogEntry, encode_catalog
from replaypack.format.digests import digest
from replaypack.format.frame import Compressor, decompress
from replaypack.format.journal import JournalHead, encode_head, encode_record
from replaypack.format.manifest import Manifest, encode_manifest
from replaypack.format.manifest_members import Content, Match, PackRef, Redaction, Source
from replaypack.format.manifest_members import Storage as StorageSection
from replaypack.format.merkle import MerkleTree, leaf_hash
from replaypack.format.names import latest_key, open_key, pack_key_of, parse_locator, revision_key
from replaypack.format.notes import match_note
from replaypack.format.recipe import Range, Run
from replaypack.format.record_frame import Entry, encode_entry
from replaypack.format.row import encode_row
from replaypack.format.summary import Summary, parse_runs
from replaypack.policies.matching import MatchPolicy, ignore

NONE_MATCH = Match(name="none", version=1)
NO_REDACTION = Redaction(name="none", version=1)


def merkle() -> Vector:
    cases = []
    for count in (0, 1, 2, 3, 4, 5, 7, 8, 13):
        tree = MerkleTree()
        rows_ = [b"row %d" % number for number in range(count)]
        for item in rows_:
            tree.add(leaf_hash(item))
        cases.append(
            {
                "name": f"{count} rows",
                "rows": [item.hex() for item in rows_],
                "leaves": [leaf_hash(item).hex() for item in rows_],
                "root": tree.root.hex(),
                "edge": [node.hex() for node in tree.edge],
            }
        )
    return {"about": "Merkle roots and right edges; any bytes stand for rows.", "cases": cases}


def summary_rows(count: int, **changes: Any) -> list[Any]:
    return [
        row(
            number,
            key=digest(b"key %d" % number),
            start=number,
            duration=1000 * number,
            status=int(number % 5 == 3),
            response_digest=digest(b"response %d" % number),
            **changes,
        )
        for number in range(count)
    ]


def summaries() -> Vector:
    other = summary_rows(3, scope="s", attributes={"a": [1, 1.5, None]}, salt=bytes(range(8)))
    cases = []
    for name, rows_ in {
        "one record": summary_rows(1),
        "records with a scope and attributes": other,
        "several runs": summary_rows(300),
        "the most that a duration can be": [
            msgspec.structs.replace(item, duration=(1 << 63) + item.seq) for item in summary_rows(2)
        ],
    }.items():
        made = Summary()
        for item in rows_:
            made.add(item)
        raw = made.encode()
        cases.append(
            {
                "name": name,
                "rows": [encode_row(item).hex() for item in rows_],
                "runs": [
                    [run.digest.hex(), run.records, run.failed, str(run.duration)]
                    for run in parse_runs(raw, len(rows_))
                ],
                "summary": raw.hex(),
            }
        )
    return {"about": "Summaries: runs of records, with what their rows say.", "cases": cases}


def empty_manifest(**changes: Any) -> Manifest:
    """A claim of a new name; ``changes`` are members of content or storage."""
    content: dict[str, Any] = {
        "id": ID.hex(),
        "state": "open",
        "started": "2025-06-15T15:06:40.123456789Z",
        "metadata": {},
        "recorded_by": "spec 1",
        "match": NONE_MATCH,
        "redaction": NO_REDACTION,
        "records": 0,
        "counts": {},
        "merkle_root": digest(b"").hex(),
        "extends": None,
        "derived_from": None,
        "error": None,
    }
    storage: dict[str, Any] = {
        "revision": 1,
        "checkpoint": 0,
        "cause": "claim",
        "claim": "create",
        "writer": WRITER.hex(),
        "created": "2025-06-15T15:06:40Z",
        "previous": None,
        "packs": [],
        "pack_pages": [],
        "segments": [],
        "literals": 0,
        "inlines": 0,
        "merkle_edge": [],
        "tombstones": [],
        "withheld": [],
        "summary": None,
        "source": None,
    }
    content |= {name: value for name, value in changes.items() if name in content}
    storage |= {name: value for name, value in changes.items() if name in storage}
    return encode_manifest(Content(**content), StorageSection(**storage))


def manifests() -> Vector:
    made = {
        "a claim": empty_manifest(),
        "a sealed recording without records": empty_manifest(
            state="sealed", revision=2, cause="seal", claim=None, previous=empty_manifest().digest
        ),
        "metadata of many kinds": empty_manifest(
            metadata={"b": 1.5, "a": [True, None, "é\u2028"], "n": {"x": -1e-7, "y": 1e21}},
            started="2025-06-15T00:00:00Z",
        ),
        "redacted": empty_manifest(redaction=Redaction(name="default", version=1)),
        "redacted, by a policy of its own": empty_manifest(
            redaction=Redaction(
                name="x-acme", version=3, rules={"keep": [], "names": ["employee_id"], "prefixes": ["acme-"]}
            )
        ),
        "a match policy": empty_manifest(
            match=match_note(MatchPolicy.of(["tool-call-ids", ignore("/**/trace", kinds=["tool"], names=["é"])]))
        ),
        "a copy": empty_manifest(
            state="sealed", cause="copy", claim=None, source=Source(manifest=digest(b"m").hex(), policy="whole")
        ),
        "an incomplete one": empty_manifest(
            state="incomplete",
            revision=2,
            cause="recover",
            claim=None,
            error={"type": "Interrupted", "message": "power"},
            extends=digest(b"a").hex(),
            derived_from=digest(b"b").hex(),
            packs=[PackRef(digest(b"pack").hex(), 100)],
        ),
    }
    cases = [
        {"name": name, "manifest": m.raw.decode(), "digest": m.digest, "content_digest": m.content_digest}
        for name, m in made.items()
    ]
    return {"about": "Manifests: the text, its digest and its content digest.", "cases": cases}


def markers() -> Vector:
    return {
        "about": "The marker replaypack.json.",
        "cases": [{"name": "version 1", "marker": '{"format":"replaypack","version":1}'}],
    }


# Journal and names


def journal_bytes() -> tuple[bytes, list[tuple[Entry, bytes, bool]]]:
    """A journal of two records, and what is in it."""
    head = JournalHead(
        version=1,
        archive="memory://demo",
        name="demo",
        revision=1,
        claim="create",
        writer=WRITER.hex(),
        number=0,
        first=0,
        literals=0,
        inlines=0,
        external=[],
        content={},
    )
    first = entry(encode_row(row(0)), [[Range(0, 7, 0)]], b"ok")
    second = entry(encode_row(row(1)), [[Run(1, 0, 1)]], b"ok")
    records = [(first, b"request", True), (second, b"", False)]
    data = encode_head(head) + b"".join(encode_record(e, lits, starts_frame=s) for e, lits, s in records)
    return data, records


def journals() -> Vector:
    data, records = journal_bytes()
    notes = [{"record": encode_entry(e).hex(), "literals": lits.hex(), "starts_frame": s} for e, lits, s in records]
    last = len(encode_record(*records[1][:2], starts_frame=False))
    return {
        "about": "Journals, and what is left of them when they are cut off.",
        "cases": [
            {"name": "two records", "journal": data.hex(), "recording": "demo", "records": notes},
            {
                "name": "cut off in the second record",
                "journal": data[:-1].hex(),
                "recording": "demo",
                "records": notes[:1],
            },
            {
                "name": "zeros where the second record should be",
                "journal": (data[:-last] + bytes(last)).hex(),
                "recording": "demo",
                "records": notes[:1],
            },
        ],
    }


def names() -> Vector:
    return {
        "about": "Names of recordings and the keys of their objects.",
        "cases": [
            {
                "name": case,
                "recording": text,
                "revision_2": revision_key(text, 2),
                "open_2": open_key(text, 2),
                "latest": latest_key(text),
            }
            for case, text in {
                "one letter": "a",
                "segments": "nightly/2025-06-15/run_1",
                "a point inside": "v1.2.json5",
                "leading point and hyphen": ".hidden/-x",
                "longest": "n" * 255 + "/" + "n" * 255,
                "nearly a device": "con1/nulls/com10",
                "json inside": "json/a.json.gz",
            }.items()
        ],
    }


def catalog_text() -> bytes:
    """A catalog of two recordings, before it is compressed."""
    return decompress(encode_catalog("2025-06-15T15:06:40Z", map(_cataloged, ("b/two", "a"))))


def _cataloged(name: str) -> CatalogEntry:
    return CatalogEntry(
        name=name,
        revision=2,
        cause="seal",
        state="sealed",
        started="2025-06-15T15:06:40Z",
        records=3,
        purged=1,
        withheld=["identity", "request"],
        counts={"model": 1, "tool": 2},
        bytes=467,
        content=digest(b"content").hex(),
        manifest=digest(b"manifest").hex(),
        recorded_by="spec 1",
    )


def catalogs() -> Vector:
    text = catalog_text()
    strange = text.replace(b'"bytes":467,', b'"a new one":[1],"bytes":467,')
    empty = decompress(encode_catalog("2025-06-15T15:06:40Z", []))
    return {
        "about": "Catalogs: the object, and the lines behind its head.",
        "cases": [
            {
                "name": name,
                "catalog": Compressor(3)(raw).hex(),
                "created": "2025-06-15T15:06:40Z",
                "lines": raw.decode().split("\n")[1:-1],
            }
            for name, raw in (("two recordings", text), ("none", empty), ("a member not known", strange))
        ],
    }


def locators() -> Vector:
    cases = []
    for text in (
        "./runs#a",
        "s3://bucket/x#nightly/42",
        "s3://bucket/x#a@7",
        "/tmp/odd#dir#a@99999999",
        "file:///x y#a",
    ):
        at = parse_locator(text)
        cases.append({"name": text, "locator": text, "url": at.url, "recording": at.name, "revision": at.revision})
    pack = digest(b"pack").hex()
    cases.append({"name": "key of a pack", "pack": pack, "key": pack_key_of(pack)})
    return {"about": "Locators: URL, name, revision (null for the newest).", "cases": cases}
