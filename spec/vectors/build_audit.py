"""Vectors of inclusion proofs and signatures (chapter 09). Used by ``generate.py``.

The keys are made of published seeds, and signed with in plain Python: nothing else is needed to make these files.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import ed25519
import msgspec
from build_documents import empty_manifest
from build_valid import Vector, row

from replaypack.canonical import canonical_json
from replaypack.format.digests import digest
from replaypack.format.dsse import (
    PAYLOAD_TYPE,
    Signature,
    Statement,
    content_bytes,
    encode_envelope,
    encode_statement,
    key_id,
    pae,
    statement_of,
)
from replaypack.format.manifest import Manifest
from replaypack.format.merkle import MerkleTree, audit_path, leaf_hash, leaves_needed
from replaypack.format.proof import encode_proof
from replaypack.format.row import encode_row

CORRUPTED, FUTURE, INVALID = "format.corrupted", "format.future_version", "proof.invalid"
SEED, OTHER_SEED = bytes(range(32)), bytes(range(32, 64))


def recording(count: int, **changes: Any) -> tuple[Manifest, list[bytes]]:
    """A sealed recording of ``count`` rows. Its manifest has no segments: a proof has the content alone."""
    rows = [encode_row(row(seq)) for seq in range(count)]
    tree = MerkleTree()
    for item in rows:
        tree.add(leaf_hash(item))
    manifest = empty_manifest(
        state="sealed",
        revision=2,
        cause="seal",
        claim=None,
        records=count,
        counts={"tool": count} if count else {},
        merkle_root=tree.root.hex(),
        merkle_edge=[node.hex() for node in tree.edge],
        **changes,
    )
    return manifest, rows


def proof(count: int, seq: int, *, purged: bool = False, payloads: dict[str, bytes] | None = None) -> bytes:
    manifest, rows = recording(count)
    first, end = leaves_needed(seq, count)
    edge = manifest.merkle.edge
    leaf, path = audit_path(seq, count, edge, [leaf_hash(item) for item in rows[first:end]])
    return encode_proof(manifest.content, seq, leaf, None if purged else rows[seq], path, payloads)


def proofs() -> Vector:
    cases = []

    def add(name: str, data: bytes, count: int, seq: int, payloads: dict[str, bytes], *, purged: bool = False) -> None:
        manifest, rows = recording(count)
        cases.append(
            {
                "name": name,
                "proof": data.decode(),
                "content_digest": manifest.content_digest,
                "seq": seq,
                "leaf": leaf_hash(rows[seq]).hex(),
                "row": None if purged else rows[seq].hex(),
                "payloads": {role: payload.hex() for role, payload in payloads.items()},
            }
        )

    for count, seq in ((1, 0), (2, 1), (3, 0), (3, 2), (5, 4), (7, 0), (7, 4), (7, 6), (8, 3), (13, 9)):
        add(f"record {seq} of {count}", proof(count, seq), count, seq, {})
    both = {"request": b"request", "response": b"ok"}
    add("with its payloads", proof(3, 1, payloads=both), 3, 1, both)
    add("with its response", proof(3, 1, payloads={"response": b"ok"}), 3, 1, {"response": b"ok"})
    add("a purged record", proof(3, 1, purged=True), 3, 1, {}, purged=True)
    return {
        "about": "Inclusion proofs, the content digest that each is checked with, and what it shows.",
        "cases": cases,
    }


def refused_proofs() -> Vector:
    good = proof(7, 4)
    manifest, rows = recording(7)
    own = manifest.content_digest
    document: dict[str, Any] = msgspec.json.decode(good)
    cases: list[dict[str, Any]] = []

    def add(name: str, data: bytes, error: str = CORRUPTED, content_digest: str = own) -> None:
        cases.append({"name": name, "proof": data.decode(), "content_digest": content_digest, "error": error})

    def changed(**members: Any) -> bytes:
        return canonical_json({**document, **members})

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    content = document["content"]
    add("nothing", b"")
    add("a manifest", manifest.raw)
    add("white space", json.dumps(document).encode())
    add("a member twice", good[:-1] + b',"version":1}')
    add("another format", changed(format="other"), CORRUPTED)
    add("version 2", changed(version=2), FUTURE)
    add("version 0", changed(version=0), "format.unmigratable")
    add("a version that is none", changed(version="1"), "format.malformed_version")
    add("an unknown feature", changed(features=["x-other/1"]), FUTURE)
    add("another kind", changed(kind="consistency-proof"))
    add("a member more", changed(size=7))
    add("a member less", canonical_json({name: value for name, value in document.items() if name != "payloads"}))
    add("a content section with a member more", changed(content={**content, "x": 1}))
    add("counts that do not add up", changed(content={**content, "counts": {"tool": 6}}))
    add("a record beyond the last", changed(seq=7))
    add("a negative record", changed(seq=-1))
    add("a record that is no number", changed(seq="4"))
    add("the row of another record", changed(row=encoded(rows[3])))
    add("a row with a byte behind it", changed(row=encoded(rows[4] + b"\0")))
    add("a row that is not base64", changed(row=document["row"] + "!"))
    add("base64 without padding", changed(row=document["row"].rstrip("=")))
    add("a path that is too short", changed(path=document["path"][:-1]))
    add("a path that is too long", changed(path=[*document["path"], "00" * 32]))
    add("a path beyond any tree", changed(path=["00" * 32] * 49))
    add("a path of upper-case digits", changed(path=[node.upper() for node in document["path"]]))
    add("a leaf of 31 bytes", changed(leaf=document["leaf"][2:]))
    add("a payload of an unknown role", changed(payloads={"answer": encoded(b"ok")}))
    add("payloads without a row", changed(row=None, payloads={"response": encoded(b"ok")}))
    add("another content digest", good, INVALID, digest(b"another").hex())
    add("a content section that was changed", changed(content={**content, "recorded_by": "spec 2"}), INVALID)
    add("a row that was changed", changed(row=encoded(encode_row(row(4, name="other")))), INVALID)
    add("a leaf that was changed", changed(leaf=digest(b"leaf").hex()), INVALID)
    add("a leaf that was changed, without a row", changed(leaf=digest(b"leaf").hex(), row=None), INVALID)
    add("a node that was changed", changed(path=[digest(b"n").hex(), *document["path"][1:]]), INVALID)
    add("nodes in another order", changed(path=document["path"][::-1]), INVALID)
    add("another response", changed(payloads={"response": encoded(b"no")}), INVALID)
    add("a payload that the record does not have", changed(payloads={"identity": encoded(b"")}), INVALID)
    # The leaf of a node is not the leaf of a row: 00 and 01 stand before what is hashed.
    small = [leaf_hash(item) for item in recording(2)[1]]
    inner = encode_proof(recording(2)[0].content, 0, leaf_hash(b"".join(small)), None, small[1:], None)
    add("an inner node as a leaf", inner, INVALID, recording(2)[0].content_digest)
    return {"about": "Proofs that are none, or that do not show what they should.", "cases": cases}


# Signatures


def _signature(payload: bytes, seed: bytes = SEED, hint: str | None = None) -> Signature:
    own = key_id(ed25519.public_key(seed)) if hint is None else hint
    return Signature(own, ed25519.sign(seed, pae(PAYLOAD_TYPE, payload)))


def signed() -> tuple[Manifest, bytes, bytes]:
    """A recording of three records, the statement about it, and the envelope by the key of `SEED`."""
    manifest, _ = recording(3)
    payload = encode_statement(statement_of(content_bytes(manifest)), manifest.content.id)
    return manifest, payload, encode_envelope(payload, [_signature(payload)])


def signatures() -> Vector:
    manifest, payload, envelope = signed()
    content = content_bytes(manifest).decode()
    public = ed25519.public_key(SEED).hex()
    document = json.loads(envelope)
    cases: list[dict[str, Any]] = [
        {
            "name": "signed",
            "envelope": envelope.decode(),
            "content": content,
            "seed": SEED.hex(),
            "public_key": public,
            "key_id": key_id(bytes.fromhex(public)),
            "pae": pae(PAYLOAD_TYPE, payload).hex(),
            "state": "valid",
        }
    ]

    def add(name: str, state: str, envelope: bytes, content: str = content) -> None:
        cases.append(
            {"name": name, "envelope": envelope.decode(), "content": content, "public_key": public, "state": state}
        )

    mine, theirs = _signature(payload), _signature(payload, OTHER_SEED)
    add("by two keys", "valid", encode_envelope(payload, [theirs, mine]))
    add("without a key id", "valid", encode_envelope(payload, [_signature(payload, hint="")]))
    add("with the key id of another", "valid", encode_envelope(payload, [mine._replace(key_id=theirs.key_id)]))
    add("with white space and members more", "valid", json.dumps({**document, "x": [1]}, indent=1).encode())
    urlsafe = {**document, "payload": base64.urlsafe_b64encode(payload).decode()}
    urlsafe["signatures"] = [{"sig": base64.urlsafe_b64encode(mine.value).decode()}]
    add("in url-safe base64", "valid", canonical_json(urlsafe))
    add("by another key", "wrong key", encode_envelope(payload, [theirs]))
    add(
        "by another key, said to be this one",
        "altered",
        encode_envelope(payload, [theirs._replace(key_id=mine.key_id)]),
    )
    add("another content", "altered", envelope, content.replace("spec 1", "spec 2"))
    other = encode_statement(Statement("0" * 64, manifest.content_digest), manifest.content.id)
    add("another SHA-256", "altered", encode_envelope(other, [_signature(other)]))
    other = encode_statement(statement_of(content.encode())._replace(content_digest="0" * 64), manifest.content.id)
    add("another BLAKE3", "altered", encode_envelope(other, [_signature(other)]))
    add("a statement that was changed", "altered", encode_envelope(other, [mine]))
    add("a signature cut off", "altered", encode_envelope(payload, [mine._replace(value=mine.value[:-1])]))
    return {
        "about": "Envelopes beside a content section, and what they are for a public key. The seeds are published.",
        "cases": cases,
    }


def refused_signatures() -> Vector:
    manifest, payload, envelope = signed()
    document = json.loads(envelope)
    statement = json.loads(payload)
    content = content_bytes(manifest).decode()
    public = ed25519.public_key(SEED).hex()
    cases: list[dict[str, Any]] = []

    def add(name: str, data: bytes) -> None:
        cases.append(
            {"name": name, "envelope": data.decode(), "content": content, "public_key": public, "error": CORRUPTED}
        )

    def changed(**members: Any) -> bytes:
        return canonical_json({**document, **members})

    def saying(data: bytes) -> bytes:
        return encode_envelope(data, [_signature(data)])

    def stating(**members: Any) -> bytes:
        return saying(canonical_json({**statement, **members}))

    [signature] = document["signatures"]
    subject = statement["subject"][0]
    add("nothing", b"")
    add("a list", b"[]")
    add("cut off", envelope[:-1])
    add("a member twice", envelope[:-1] + b',"payload":""}')
    add("another payloadType", changed(payloadType="application/json"))
    add("no signatures", changed(signatures=[]))
    add("65 signatures", changed(signatures=[signature] * 65))
    add("a signature that is text", changed(signatures=["sig"]))
    add("a key id that is a number", changed(signatures=[{**signature, "keyid": 1}]))
    add("a signature that is not base64", changed(signatures=[{"sig": "!" + signature["sig"]}]))
    add("base64 of both alphabets", changed(signatures=[{"sig": "-/" + signature["sig"][2:]}]))
    add("a payload that is not base64", changed(payload=document["payload"] + "="))
    add("no payload", canonical_json({k: v for k, v in document.items() if k != "payload"}))
    add("a payload that is not JSON", saying(b"hello world"))
    add("a member of the statement twice", saying(payload[:-1] + b',"_type":""}'))
    add("another type of statement", stating(_type="https://in-toto.io/Statement/v0.1"))
    add("another predicate", stating(predicateType="https://slsa.dev/provenance/v1"))
    add("no subject", stating(subject=[]))
    add("two subjects", stating(subject=[subject, subject]))
    add("a subject without SHA-256", stating(subject=[{**subject, "digest": {"sha1": "0" * 40}}]))
    add("a predicate without BLAKE3", stating(predicate={}))
    add("a digest of upper-case digits", stating(predicate={"content_digest": {"blake3": "A" * 64}}))
    return {"about": "Envelopes that are unreadable.", "cases": cases}
