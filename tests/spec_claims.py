"""What the ``vector`` blocks of the chapters on bytes claim, checked. See ``test_spec_examples``."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replaypack import Archive
from replaypack.audit import write_catalog
from replaypack.canonical import canonical_json, key_digest
from replaypack.errors import ReplaypackError
from replaypack.format.base64 import encode_base64
from replaypack.format.catalog import CATALOG
from replaypack.format.digests import digest, short_digest
from replaypack.format.dsse import key_id, pae, parse_envelope, parse_statement, statement_of
from replaypack.format.frame import decompress
from replaypack.format.manifest import parse_manifest
from replaypack.format.manifest_pages import read_root
from replaypack.format.marks import parse_marks
from replaypack.format.merkle import MerkleTree, audit_path_ranges, leaf_hash, node_hash
from replaypack.format.names import check_name, pack_key_of, parse_locator
from replaypack.format.pack import parse_pack
from replaypack.format.proof import check_proof
from replaypack.format.recipe import Op, Range, Run, encode_ops, parse_ops, resolve
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import Row, discriminator, encode_row, parse_row
from replaypack.format.summary import Summary, outcome_bytes
from replaypack.format.table import KEYS, TABLES, FrameRef, KeyPage, Location, key_page, transpose
from replaypack.format.varint import read_uvarint, uvarint
from replaypack.policies._names import NameRules, words
from replaypack.policies.matching import MatchPolicy
from replaypack.policies.patterns import PatternError, compile_pattern
from replaypack.policies.redaction import Redactor

sys.path.insert(0, str(Path(__file__).parent.parent / "spec" / "conformance"))
import ed25519

TINY = Path(__file__).parent.parent / "spec" / "vectors" / "valid" / "archive" / "tiny"
Claim = dict[str, Any]


def hexed(value: Any) -> bytes:
    """Bytes written as hexadecimal with spaces, in parts, or in parts that each say what they are."""
    if isinstance(value, str):
        return bytes.fromhex("".join(value.split()))
    return b"".join(hexed(part if isinstance(part, str) else part[0]) for part in value)


def uvarint_of(claim: Claim) -> None:
    assert uvarint(int(claim["uvarint_of"])) == hexed(claim["is"])


def uvarint_refused(claim: Claim) -> None:
    with pytest.raises(ReplaypackError) as caught:
        read_uvarint(hexed(claim["uvarint_refused"]), 0)
    assert caught.value.code == claim["error"]


def digest_of(claim: Claim) -> None:
    data = hexed(claim["digest_of"])
    assert digest(data).hex().startswith(claim["is"])


def row_of(claim: Claim) -> None:
    """The fields in their order, in parts of hexadecimal that together are the row."""
    data = hexed(claim["row_of"])
    row = parse_row(data)
    assert encode_row(row) == data
    assert len(data) == claim["size"]
    assert leaf_hash(data).hex() == claim["leaf"]
    assert len(claim["row_of"]) == 1 + len(Row.__struct_fields__)
    parts = [hexed(part[0]) for part in claim["row_of"]]
    values = [msgspec.msgpack.encode(getattr(row, name)) for name in Row.__struct_fields__]
    assert parts == [b"\xdc\x00\x11", *values]


def discriminator_of(claim: Claim) -> None:
    assert discriminator(claim["discriminator_of"]) == hexed(claim["is"])


def recipe_of(claim: Claim) -> None:
    ops: list[Op] = [
        Run(back=part["back"], start=part["start"], items=part["run"]) if isinstance(part, dict) else Range(*part)
        for part in claim["recipe_of"]
    ]
    data = hexed(claim["is"])
    assert encode_ops(ops) == data
    assert parse_ops(data, 0) == (ops, len(data))
    if "ranges" in claim:
        before = [[Range(*item) for item in ranges] for ranges in claim["after"]]
        assert [list(item) for item in resolve(ops, before)] == claim["ranges"]


def base64_of(claim: Claim) -> None:
    flags = claim["flags"]
    text = encode_base64(hexed(claim["base64_of"]), urlsafe=bool(flags & 2), padded=not flags & 4)
    assert text.decode() == claim["is"]


def record_frame(claim: Claim) -> None:
    raw = hexed(claim["record_frame"])
    frame = RecordFrame(raw)
    assert frame.count == claim["records"]
    assert [frame.record(n)[0].seq for n in range(frame.count)] == claim["seq"]
    assert [(frame.record(n)[2] or b"").decode() for n in range(frame.count)] == claim["responses"]
    recipes = [[[list(item) for item in ranges] for ranges in frame.recipes(n)] for n in range(frame.count)]
    assert recipes == claim["recipes"]


def pack_of(claim: Claim) -> None:
    data = hexed(claim["pack_of"])
    assert len(data) == claim["size"]
    assert digest(data).hex() == claim["digest"]
    assert pack_key_of(digest(data).hex()) == claim["key"]
    toc = parse_pack(data)
    raws = [decompress(data[info.offset : info.offset + info.length], info.raw) for info in toc.frames]
    assert raws == [hexed(raw) for raw in claim["frames"]]
    assert [short_digest(raw) for raw in raws] == [info.digest for info in toc.frames]
    size = int.from_bytes(data[-32:-28], "little")
    assert decompress(data[-32 - size : -32]) == hexed(claim["toc"])


def page_of(claim: Claim) -> None:
    [shape] = [shape for shape in TABLES if shape.name == claim["table"]]
    entries = [hexed(entry) for entry in claim["page_of"]]
    assert entries == sorted(entries)
    assert {len(entry) for entry in entries} == {shape.width}
    rows = b"".join(entries)
    page = transpose(rows, shape.width)
    if shape is KEYS:
        frames = [FrameRef(n, Location(*at), hexed(short)) for n, *at, short in claim["frames"]]
        page = key_page(rows, frames)
        assert KeyPage(page, len(entries), short_digest(page)).frames == frames
    assert page == hexed(claim["is"])
    assert short_digest(page).hex() == claim["digest"]


def summary_of(claim: Claim) -> None:
    rows = [parse_row(hexed(row)) for row in claim["summary_of"]]
    assert [outcome_bytes(row) for row in rows] == [hexed(outcome) for outcome in claim["outcomes"]]
    summary = Summary()
    for row in rows:
        summary.add(row)
    assert summary.encode() == b"".join(map(hexed, claim["is"]))


def merkle_of(claim: Claim) -> None:
    tree = MerkleTree()
    leaves = [leaf_hash(hexed(row)) for row in claim["merkle_of"]]
    for leaf in leaves:
        tree.add(leaf)
    assert [leaf.hex() for leaf in leaves] == claim["leaves"]
    assert tree.root.hex() == claim["is"]
    assert [node.hex() for node in tree.edge] == claim["edge"]


def manifest_of(claim: Claim) -> None:
    raw = canonical_json(claim["manifest_of"])
    manifest = parse_manifest(raw, where="example")
    assert (manifest.digest, manifest.content_digest) == (claim["manifest_of"]["digest"], claim["content_digest"])
    # The short way to check a digest: cut the member out of the bytes.
    member = f'"digest":"{manifest.digest}",'.encode()
    assert digest(raw.replace(member, b"", 1)).hex() == manifest.digest
    content = raw[len(b'{"content":') : raw.index(b"," + member)]
    assert digest(content).hex() == claim["content_digest"]


def name_ok(claim: Claim) -> None:
    assert check_name(claim["name_ok"]) == claim["name_ok"]


def name_refused(claim: Claim) -> None:
    with pytest.raises(ReplaypackError) as caught:
        check_name(claim["name_refused"])
    assert caught.value.code == claim["error"]


def locator_of(claim: Claim) -> None:
    assert list(parse_locator(claim["locator_of"])) == [claim["url"], claim["name"], claim["revision"]]


def sensitive(claim: Claim) -> None:
    assert words(claim["sensitive"]) == claim["words"]
    assert NameRules().sensitive(claim["sensitive"]) is claim["is"]


def redact(claim: Claim) -> None:
    assert Redactor().redact(claim["redact"]) == claim["is"]


def lookup_in_tiny(claim: Claim) -> None:
    """Every step of a lookup, with the sizes and digests that the text gives."""
    latest = (TINY / "recordings" / claim["lookup_in_tiny"] / "latest.json").read_bytes()
    manifest = parse_manifest(latest, where="tiny")
    assert manifest.digest == claim["manifest_digest"]
    key = key_digest(*claim["call"])
    assert key.hex() == claim["key"]
    [segment] = manifest.storage.segments
    root = read_root(KEYS, segment.keys, None, where="tiny")
    assert root.encode() == hexed(claim["root"])
    pack = manifest.storage.packs[root.locations[0].pack]
    assert pack_key_of(pack.digest) == claim["pack"]
    data = (TINY / claim["pack"]).read_bytes()
    assert list(root.locations[0]) == claim["page_at"]
    raw = decompress(data[root.locations[0].offset :][: root.locations[0].length])
    page = KeyPage(raw, root.page_count(0), root.digests[0])
    rows = [page.rows[at : at + 30] for at in range(0, len(page.rows), 30)]
    prefix = key[:16] + bytes(8)
    assert [row.hex() for row in rows if row.startswith(prefix)] == [hexed(row).hex() for row in claim["entries"]]
    seq = int.from_bytes(hexed(claim["entries"][0])[24:], "big")
    ref = page.frame_of(seq)
    assert [ref.first, *ref.frame, ref.digest.hex()] == claim["frame"]
    assert segment.near is not None
    assert [segment.near.pack, segment.near.offset, segment.near.length] == claim["near"]
    raw = decompress(data[ref.frame.offset :][: ref.frame.length])
    assert short_digest(raw) == ref.digest
    row, whole, inline = RecordFrame(raw).record(seq - ref.first)
    assert (row.key, row.scope, row.seq) == (key, None, seq)
    assert leaf_hash(whole).hex() == claim["leaf"]
    assert inline is not None
    assert inline.decode() == claim["answer"]
    with Archive(TINY).open(claim["lookup_in_tiny"]) as recording:
        found = recording.lookup(*claim["call"])
        assert found is not None
        assert found.response == claim["answer"]


def key_by_policy(claim: Claim) -> None:
    kind, identity = claim["key_by_policy"]
    policy = MatchPolicy.from_data(claim["policy"])
    assert canonical_json([kind, policy.apply(kind, identity)]).decode() == claim["canonical"]
    assert policy.key(kind, identity).hex() == claim["is"]


def pattern_finds(claim: Claim) -> None:
    found = compile_pattern(claim["pattern_finds"]).search.finditer(claim["in"])
    assert [match[0] for match in found] == claim["is"]


def pattern_refused(claim: Claim) -> None:
    with pytest.raises(PatternError):
        compile_pattern(claim["pattern_refused"])


def ready_made(claim: Claim) -> None:
    assert MatchPolicy.of(claim["ready_made"]).to_data() == claim["policy"]


def catalog_line_of_tiny(claim: Claim) -> None:
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(TINY, f"{directory}/tiny")
        archive = Archive(f"{directory}/tiny")
        write_catalog(archive)
        lines = decompress(archive.storage.get(CATALOG)).decode().splitlines()
    assert claim["is"] in lines
    assert json.loads(claim["is"])["name"] == claim["catalog_line_of_tiny"]


def marks_of(claim: Claim) -> None:
    """What ``gc.json`` marks, since when; null where it is none."""
    marks = parse_marks(claim["marks_of"].encode())
    assert marks.sound == (claim["since"] is not None)

    def seconds(time: str) -> float:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()

    expected = {key: seconds(time) for key, time in (claim["since"] or {}).items()}
    assert marks.resolved(seconds(claim["written"])) == expected


def proof_of(claim: Claim) -> None:
    """What a reader computes, step by step, and that the library agrees."""
    data = canonical_json(claim["proof_of"])
    assert len(data) == claim["size"]
    proof = check_proof(data, claim["content_digest"])
    assert proof.row_bytes is not None
    node = leaf_hash(proof.row_bytes)
    nodes = [node]
    for (first, _), sibling in zip(audit_path_ranges(proof.seq, proof.content.records), proof.path, strict=True):
        node = node_hash(sibling, node) if first < proof.seq else node_hash(node, sibling)
        nodes.append(node)
    assert [node.hex() for node in nodes] == claim["nodes"]
    assert nodes[-1].hex() == claim["proof_of"]["content"]["merkle_root"]


def envelope_of(claim: Claim) -> None:
    content, public = canonical_json(claim["content"]), hexed(claim["public_key"])
    envelope = parse_envelope(canonical_json(claim["envelope_of"]))
    assert envelope.payload == canonical_json(claim["statement"])
    assert parse_statement(envelope) == statement_of(content)
    [signature] = envelope.signatures
    assert signature.key_id == key_id(public)
    signed = pae(envelope.payload_type, envelope.payload)
    assert signed.decode() == claim["signed"]
    assert ed25519.public_key(hexed(claim["seed"])) == public
    assert ed25519.sign(hexed(claim["seed"]), signed) == signature.value
    assert ed25519.verify(public, signed, signature.value) is (claim["is"] == "valid")
    assert not ed25519.verify(public, signed + b"x", signature.value)


CLAIMS = (
    envelope_of,
    proof_of,
    base64_of,
    catalog_line_of_tiny,
    digest_of,
    discriminator_of,
    key_by_policy,
    locator_of,
    marks_of,
    lookup_in_tiny,
    redact,
    sensitive,
    manifest_of,
    summary_of,
    merkle_of,
    name_ok,
    name_refused,
    pack_of,
    page_of,
    pattern_finds,
    pattern_refused,
    ready_made,
    recipe_of,
    record_frame,
    row_of,
    uvarint_of,
    uvarint_refused,
)
