"""The code against the vectors of the binary format, and the vectors against their generator."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import sys
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import zstandard

from replaypack import Archive, Recording
from replaypack.canonical import canonical_json
from replaypack.errors import FormatError, PurgedError, ReplaypackError, WithheldError
from replaypack.format import names
from replaypack.format.base64 import decode_base64, encode_base64
from replaypack.format.catalog import parse_catalog
from replaypack.format.digests import digest, short_digest
from replaypack.format.dsse import key_id, pae, parse_envelope, parse_statement, statement_of
from replaypack.format.frame import decompress
from replaypack.format.journal import read_journal
from replaypack.format.manifest import parse_manifest
from replaypack.format.manifest_pages import read_root
from replaypack.format.merkle import MerkleTree, leaf_hash, merkle_root
from replaypack.format.pack import parse_pack
from replaypack.format.proof import check_proof
from replaypack.format.recipe import Range, encode_ops, materialise, parse_ops, resolve
from replaypack.format.record_frame import RecordFrame, encode_entry
from replaypack.format.row import BlobRef, discriminator, encode_row, parse_row
from replaypack.format.summary import Run, RunSum, Summary, parse_runs
from replaypack.format.table import KEYS, TABLES, KeyPage, Root, key_page, parse_page, transpose, unpack_key
from replaypack.format.varint import read_uvarint, uvarint
from replaypack.format.versions import parse_document
from replaypack.policies.matching import MatchPolicy
from replaypack.policies.patterns import compile_pattern
from replaypack.storage import MemoryStorage
from replaypack.values import decode, encode

from .test_vectors_values import cases
from .value_cases import from_notation

VECTORS = Path(__file__).parent.parent / "spec" / "vectors"
SHAPES = {shape.number: shape for shape in TABLES}


def hexed(case: dict[str, Any], field: str) -> bytes:
    return bytes.fromhex(case[field])


# Valid


@pytest.mark.parametrize("case", cases("valid", "varints"))
def test_varints(case: dict[str, Any]) -> None:
    data = hexed(case, "bytes")
    assert uvarint(int(case["value"])) == data
    assert read_uvarint(b"\xff" + data + b"\xff", 1) == (int(case["value"]), 1 + len(data))


def blob(note: list[Any] | None) -> BlobRef | None:
    return None if note is None else BlobRef(bytes.fromhex(note[0]), note[1], note[2])


@pytest.mark.parametrize("case", cases("valid", "rows"))
def test_rows(case: dict[str, Any]) -> None:
    data, note = hexed(case, "bytes"), case["row"]
    row = parse_row(data)
    assert encode_row(row) == data
    assert leaf_hash(data).hex() == case["leaf"]
    assert discriminator(row.scope).hex() == case["discriminator"]
    assert (row.seq, row.kind, row.name, row.scheme, row.scope) == tuple(
        note[field] for field in ("seq", "kind", "name", "scheme", "scope")
    )
    assert (row.key.hex(), row.salt.hex(), row.status, row.flags) == tuple(
        note[field] for field in ("key", "salt", "status", "flags")
    )
    assert (str(row.start), str(row.duration)) == (note["start"], note["duration"])
    assert (row.request, row.identity, row.response) == tuple(
        blob(note[field]) for field in ("request", "identity", "response")
    )
    assert row.attributes == from_notation(note["attributes"])


@pytest.mark.parametrize("case", cases("valid", "recipes"))
def test_recipes(case: dict[str, Any]) -> None:
    space = hexed(case, "literals")
    earlier: list[list[Range]] = []
    for recipe in case["recipes"]:
        data = hexed(recipe, "bytes")
        ops, end = parse_ops(data, 0)
        assert end == len(data)
        assert encode_ops(ops) == data
        earlier.append(resolve(ops, earlier))
        assert [list(item) for item in earlier[-1]] == recipe["ranges"]
        wanted = hexed(recipe, "blob")
        assert materialise(earlier[-1], len(wanted), lambda at, size: space[at : at + size]) == wanted


@pytest.mark.parametrize("case", cases("valid", "base64"))
def test_base64(case: dict[str, Any]) -> None:
    data, text, flags = hexed(case, "data"), case["text"].encode(), case["flags"]
    assert encode_base64(data, urlsafe=bool(flags & 2), padded=not flags & 4) == text
    assert decode_base64(text, urlsafe=bool(flags & 2)) == data


@pytest.mark.parametrize("case", cases("valid", "frames"))
def test_frames(case: dict[str, Any]) -> None:
    raw = decompress(hexed(case, "frame"), len(hexed(case, "raw")))
    assert raw == hexed(case, "raw")
    assert short_digest(raw).hex() == case["digest"]


@pytest.mark.parametrize("case", cases("valid", "record_frames"))
def test_record_frames(case: dict[str, Any]) -> None:
    raw = hexed(case, "raw")
    frame = RecordFrame(raw)
    assert frame.count == len(case["records"])
    assert raw[len(raw) - frame.inline_size :].hex() == case["inlines"]
    for number in reversed(range(frame.count)):
        record = case["records"][number]
        _, data, inline = frame.record(number)
        assert data.hex() == record["row"]
        assert (None if inline is None else inline.hex()) == record["inline"]
        assert [[list(item) for item in ranges] for ranges in frame.recipes(number)] == record["recipes"]


@pytest.mark.parametrize("case", cases("valid", "packs"))
def test_packs(case: dict[str, Any]) -> None:
    pack = hexed(case, "pack")
    toc = parse_pack(pack)
    assert digest(pack).hex() == case["digest"]
    assert [
        [f.kind, f.offset, f.length, f.raw, f.first, f.count, f.digest.hex(), f.origin] for f in toc.frames
    ] == case["frames"]
    assert [[o.recording.hex(), o.writer.hex(), o.name] for o in toc.origins] == case["origins"]
    assert [
        [e.origin, e.first, e.pack.hex(), e.offset, e.length, e.raw, e.count, e.digest.hex()] for e in toc.external
    ] == case["external"]
    raws = [decompress(pack[f.offset : f.offset + f.length], f.raw) for f in toc.frames]
    assert [short_digest(raw) for raw in raws] == [f.digest for f in toc.frames]
    # Plain zstd passes over the skippable frames and gives the raw bytes of all others.
    with zstandard.ZstdDecompressor().stream_reader(pack, read_across_frames=True) as reader:
        assert reader.read() == b"".join(raws)


@pytest.mark.parametrize("case", cases("valid", "tables"))
def test_tables(case: dict[str, Any]) -> None:
    shape = SHAPES[case["table"]]
    if "pages" in case:
        root = Root.parse(shape, case["count"], hexed(case, "root"))
        pages = [[f.hex(), d.hex(), *at] for f, d, at in zip(root.fences, root.digests, root.locations, strict=True)]
        assert pages == case["pages"]
        assert root.encode() == hexed(case, "root")
        return
    entries = b"".join(map(bytes.fromhex, case["entries"]))
    assert [case["entries"]] == [sorted(case["entries"])]
    page = hexed(case, "page")
    if shape is KEYS:
        found = KeyPage(page, len(case["entries"]), hexed(case, "digest"))
        assert found.rows == entries
        assert [[r.first, *r.frame, r.digest.hex()] for r in found.frames] == case["frames"]
        assert key_page(entries, found.frames) == page
    else:
        assert transpose(entries, shape.width) == page
        assert parse_page(shape, page, len(case["entries"]), hexed(case, "digest")) == entries
    assert base64.b64decode(case["root_base64"]) == hexed(case, "root")
    root = Root.parse(shape, len(case["entries"]), hexed(case, "root"))
    assert root.fences == [entries[: shape.key]]
    assert root.digests == [hexed(case, "digest")]


def summed_up(case: dict[str, Any]) -> list[Run]:
    """The runs of a summary, checked against its rows."""
    rows = [parse_row(bytes.fromhex(row)) for row in case["rows"]]
    runs = parse_runs(hexed(case, "summary"), len(rows))
    left = iter(rows)
    for run in runs:
        made = RunSum()
        for row in islice(left, run.records):
            made.add(row)
        if made.run() != run:
            raise FormatError("a run is not that of its rows")
    return runs


@pytest.mark.parametrize("case", cases("valid", "summaries"))
def test_summaries(case: dict[str, Any]) -> None:
    runs = summed_up(case)
    assert [[run.digest.hex(), run.records, run.failed, str(run.duration)] for run in runs] == case["runs"]
    summary = Summary()
    for row in case["rows"]:
        summary.add(parse_row(bytes.fromhex(row)))
    assert summary.encode() == hexed(case, "summary")


@pytest.mark.parametrize("case", cases("invalid", "summaries"))
def test_summaries_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        summed_up(case)


@pytest.mark.parametrize("case", cases("valid", "merkle"))
def test_merkle(case: dict[str, Any]) -> None:
    leaves = [leaf_hash(bytes.fromhex(row)) for row in case["rows"]]
    assert [leaf.hex() for leaf in leaves] == case["leaves"]
    assert merkle_root(leaves).hex() == case["root"]
    tree = MerkleTree(len(leaves), [bytes.fromhex(node) for node in case["edge"]])
    assert tree.root.hex() == case["root"]


@pytest.mark.parametrize("case", cases("valid", "match"))
def test_match(case: dict[str, Any]) -> None:
    if "pattern" in case:
        pattern = compile_pattern(case["pattern"])
        assert [list(found.span()) for found in pattern.search.finditer(case["text"])] == case["finds"]
        assert (pattern.whole.fullmatch(case["text"]) is not None) is case["whole"]
        return
    policy, identity = MatchPolicy.from_data(case["policy"]), decode(hexed(case, "identity_msgpack"))
    assert policy.to_data() == case["policy"]
    assert canonical_json([case["kind"], policy.apply(case["kind"], identity)]).decode() == case["canonical"]
    assert policy.key(case["kind"], identity).hex() == case["key"]


@pytest.mark.parametrize("case", cases("valid", "manifest"))
def test_manifests(case: dict[str, Any]) -> None:
    if "marker" in case:
        parse_document(case["marker"].encode(), where="marker")
        return
    manifest = parse_manifest(case["manifest"].encode(), where="manifest")
    assert manifest.digest == case["digest"]
    assert manifest.content_digest == case["content_digest"]


@pytest.mark.parametrize("case", cases("valid", "journal"))
def test_journals(case: dict[str, Any]) -> None:
    head, records = read_journal(hexed(case, "journal"))
    assert head.name == case["recording"]
    assert [
        {"record": encode_entry(r.entry).hex(), "literals": r.literals.hex(), "starts_frame": r.starts_frame}
        for r in records
    ] == case["records"]


@pytest.mark.parametrize("case", cases("valid", "catalog"))
def test_catalogs(case: dict[str, Any]) -> None:
    catalog = parse_catalog(hexed(case, "catalog"))
    assert catalog.created == case["created"]
    assert [entry.name for entry in catalog.entries] == [json.loads(line)["name"] for line in case["lines"]]


@pytest.mark.parametrize("case", cases("valid", "names"))
def test_names(case: dict[str, Any]) -> None:
    if "locator" in case:
        assert names.parse_locator(case["locator"]) == (case["url"], case["recording"], case["revision"])
        assert str(names.parse_locator(case["locator"])) == case["locator"]
    elif "pack" in case:
        assert names.pack_key_of(case["pack"]) == case["key"]
    else:
        name = names.check_name(case["recording"])
        assert names.revision_key(name, 2) == case["revision_2"]
        assert names.open_key(name, 2) == case["open_2"]
        assert names.latest_key(name) == case["latest"]


# The archive


def archive_cases() -> list[Any]:
    files = [VECTORS / "valid" / "archive" / f"{name}.json" for name in ("tiny", "partial")]
    found = [case for file in files for case in json.loads(file.read_text("utf-8"))["cases"]]
    return [pytest.param(case, id=case["name"]) for case in found]


def blob_note(record: Any, role: str) -> dict[str, Any] | None:
    ref = record.row.response if role == "response" else getattr(record.row, role)
    if ref is None or ref.encoding == 0:
        return None
    data = record.blob_bytes(role)
    note = {"digest": digest(data).hex(), "size": len(data), "encoding": ref.encoding}
    return note if len(data) > 200 else {**note, "bytes": data.hex()}


@pytest.mark.parametrize("case", archive_cases())
def test_archive(case: dict[str, Any], tmp_path: Path) -> None:
    recording = Archive(VECTORS / "valid" / "archive" / case.get("archive", "tiny")).open(case["name"])
    manifest = recording.manifest
    assert (manifest.digest, manifest.content_digest) == (case["digest"], case["content_digest"])
    assert (manifest.content.state, manifest.content.records) == (case["state"], case["records"])
    assert merkle_root(recording.leaves()).hex() == case["merkle_root"]
    purged, withheld = case.get("purged", []), case.get("withheld", [])
    assert sorted(recording.index.purged) == purged
    assert recording.withheld == set(withheld)
    for seq in purged:
        with pytest.raises(PurgedError):
            recording.record(seq)
    if not purged:
        assert [leaf_hash(record.row_bytes) for record in recording.records()] == list(recording.leaves())
    for wanted in case["some_records"]:
        record = recording.record(wanted["seq"])
        assert (record.kind, record.key.hex(), record.scope) == (wanted["kind"], wanted["key"], wanted["scope"])
        assert record.key_scheme == wanted["scheme"]
        for role in ("request", "identity", "response"):
            if wanted[role] == "withheld":
                with pytest.raises(WithheldError):
                    record.blob_bytes(role)
                continue
            assert blob_note(record, role) == wanted[role]
    for lookup in case["lookups"]:
        identity = decode(bytes.fromhex(lookup["identity_msgpack"]))
        if "purged" in lookup:
            with pytest.raises(PurgedError) as caught:
                recording.lookup(lookup["kind"], identity, scope=lookup["scope"], nth=lookup["nth"])
            assert caught.value.seq == lookup["purged"]
            continue
        found = recording.lookup(lookup["kind"], identity, scope=lookup["scope"], nth=lookup["nth"])
        assert (None if found is None else found.seq) == lookup["seq"]


@pytest.mark.parametrize("case", cases("valid", "proofs"))
def test_proofs(case: dict[str, Any]) -> None:
    found = check_proof(case["proof"].encode(), case["content_digest"])
    assert (found.seq, found.leaf.hex()) == (case["seq"], case["leaf"])
    assert (None if found.row_bytes is None else found.row_bytes.hex()) == case["row"]
    assert {role: data.hex() for role, data in found.payloads.items()} == case["payloads"]


@pytest.mark.parametrize("case", cases("valid", "signatures"))
def test_signatures(case: dict[str, Any]) -> None:
    envelope = parse_envelope(case["envelope"].encode())
    says = parse_statement(envelope) == statement_of(case["content"].encode())
    assert says or case["state"] in ("altered", "wrong key")
    if "pae" in case:
        assert pae(envelope.payload_type, envelope.payload).hex() == case["pae"]
        assert key_id(hexed(case, "public_key")) == case["key_id"]


# Invalid


def refused(error: str) -> Any:
    """A context in which an error of this code must be raised."""

    @contextlib.contextmanager
    def check() -> Any:
        with pytest.raises(ReplaypackError) as caught:
            yield
        assert caught.value.code == error

    return check()


@pytest.mark.parametrize("case", cases("invalid", "varints"))
def test_varints_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        read_uvarint(hexed(case, "bytes"), 0)


@pytest.mark.parametrize("case", cases("invalid", "rows"))
def test_rows_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        parse_row(hexed(case, "bytes"))


@pytest.mark.parametrize("case", cases("invalid", "recipes"))
def test_recipes_refused(case: dict[str, Any]) -> None:
    data, pos = hexed(case, "recipes"), 0
    earlier: list[list[Range]] = []
    with refused(case["error"]):
        while pos < len(data) or not earlier:
            ops, pos = parse_ops(data, pos)
            earlier.append(resolve(ops, earlier))


@pytest.mark.parametrize("case", cases("invalid", "base64"))
def test_base64_left_alone(case: dict[str, Any]) -> None:
    with warnings.catch_warnings():  # of pybase64, that it will refuse what it decodes now and we refuse anyway
        warnings.simplefilter("ignore", DeprecationWarning)
        assert decode_base64(case["text"].encode(), urlsafe=case["urlsafe"]) is None


@pytest.mark.parametrize("case", cases("invalid", "frames"))
def test_frames_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        decompress(hexed(case, "frame"))


@pytest.mark.parametrize("case", cases("invalid", "record_frames"))
def test_record_frames_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        frame = RecordFrame(hexed(case, "raw"))
        for number in range(frame.count):
            frame.record(number)
            frame.recipes(number)


@pytest.mark.parametrize("case", cases("invalid", "packs"))
def test_packs_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        parse_pack(hexed(case, "pack"))


@pytest.mark.parametrize("case", cases("invalid", "tables"))
def test_tables_refused(case: dict[str, Any]) -> None:
    shape = SHAPES[case["table"]]
    with refused(case["error"]):
        if "root" in case:
            Root.parse(shape, case["count"], hexed(case, "root"))
        else:
            raw, count, short = hexed(case, "page"), case["count"], hexed(case, "digest")
            if shape is not KEYS:
                parse_page(shape, raw, count, short)
            page = KeyPage(raw, count, short)
            page.frame_of(unpack_key(page.rows).seq)


@pytest.mark.parametrize("case", cases("invalid", "merkle"))
def test_merkle_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        MerkleTree(case["count"], [bytes.fromhex(node) for node in case["edge"]])


@pytest.mark.parametrize("case", cases("invalid", "match"))
def test_match_refused(case: dict[str, Any]) -> None:
    rule = {"rule": "replace", "pattern": case.get("pattern"), "with": ""}
    with refused(case["error"]):
        MatchPolicy.from_data(case.get("policy", {"name": "x", "version": 1, "rules": [rule]}))


@pytest.mark.parametrize("case", cases("invalid", "manifest"))
def test_manifests_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        if "marker" in case:
            parse_document(case["marker"].encode(), where="marker")
            return
        manifest = parse_manifest(case["manifest"].encode(), where="manifest")
        if case.get("roots"):
            for segment in manifest.storage.segments:
                for shape in TABLES:
                    read_root(shape, segment.table(shape), None, where="root")


@pytest.mark.parametrize("case", cases("invalid", "journal"))
def test_journals_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        list(read_journal(hexed(case, "journal"))[1])


@pytest.mark.parametrize("case", cases("invalid", "catalog"))
def test_catalogs_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        parse_catalog(hexed(case, "catalog"))


@pytest.mark.parametrize("case", cases("invalid", "names"))
def test_names_refused(case: dict[str, Any]) -> None:
    with refused(case["error"]):
        if "locator" in case:
            names.parse_locator(case["locator"])
        else:
            names.check_name(case["recording"])


def read(recording: Recording, what: str, lookups: list[dict[str, Any]]) -> None:
    """One of the reads that an invalid archive names."""
    if what == "lookups":
        for lookup in lookups:
            identity = decode(bytes.fromhex(lookup["identity_msgpack"]))
            recording.lookup(lookup["kind"], identity, scope=lookup["scope"], nth=lookup["nth"])
    elif what == "packs":
        for pack in recording.manifest.storage.packs:
            parse_pack(recording.storage.get(names.pack_key_of(pack.digest)))
    else:
        for record in recording.records():
            assert what == "records" or encode(record.request)


@pytest.mark.parametrize("case", cases("invalid", "archive"))
def test_archive_refused(case: dict[str, Any]) -> None:
    # In memory: on a local disk a reader always looks fresh, and a damaged latest.json is a hint less there.
    tiny = VECTORS / "valid" / "archive" / case.get("archive", "tiny")
    storage = MemoryStorage()
    for path in tiny.rglob("*"):
        if path.is_file():
            storage.put(path.relative_to(tiny).as_posix(), path.read_bytes())
    data = bytearray(storage.get(case["object"]))
    if "whole" in case:
        data = bytearray(case["whole"].encode())
        case = {**case, "at": 0, "replace": data.hex()}
    change = bytes.fromhex(case["replace"]) if "replace" in case else bytes([data[case["at"]] ^ int(case["xor"], 16)])
    data[case["at"] : case["at"] + len(change)] = change
    storage.put(case["object"], bytes(data))
    [lookups] = [item.values[0]["lookups"] for item in archive_cases() if item.values[0]["name"] == case["recording"]]
    with refused(case["error"]), Archive("", storage=storage).open(case["recording"]) as recording:
        read(recording, case["read"], lookups)


@pytest.mark.parametrize("case", cases("invalid", "proofs"))
def test_proofs_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ReplaypackError) as caught:
        check_proof(case["proof"].encode(), case["content_digest"])
    assert caught.value.code == case["error"]


@pytest.mark.parametrize("case", cases("invalid", "signatures"))
def test_signatures_refused(case: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as caught:
        parse_statement(parse_envelope(case["envelope"].encode()))
    assert caught.value.code == case["error"]


def test_every_error_has_a_vector() -> None:
    seen = {case.values[0].get("error") for case in cases("invalid", "manifest")}
    assert seen == {
        f"format.{reason}" for reason in ("corrupted", "future_version", "malformed_version", "unmigratable")
    }
    assert FormatError("x").code in seen


# The generator


@functools.cache
def generated() -> dict[str, bytes]:
    sys.path.insert(0, str(VECTORS))
    try:
        import generate
    finally:
        sys.path.remove(str(VECTORS))
    files = generate.generate()
    assert generate.stale(files) == []
    return dict(files)


def test_vectors_are_what_the_generator_makes() -> None:
    """``python spec/vectors/generate.py`` makes what is committed. Compressed bytes are those of one zstd release."""
    committed = json.loads((VECTORS / "valid" / "archive" / "tiny.json").read_text("utf-8"))["zstd"]
    same_zstd = committed == ".".join(map(str, zstandard.ZSTD_VERSION))
    for path, data in generated().items():
        if same_zstd or path.split("/")[1] not in ("archive", "packs", "frames", "manifest"):
            assert (VECTORS / path).read_bytes() == data, path
