"""Proofs and signatures (chapter 09), from the specification alone."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import ed25519
from rpk import Refused, canonical, digest, hexdigits, integer, leaf, need, parse_row
from rpk_archive import check_content, members, parse_document

PAYLOADS = {"request": 6, "identity": 7, "response": 14}


def path_root(node: bytes, number: int, count: int, path: list[bytes]) -> bytes:
    """RFC 9162, section 2.1.3.2, as it is written there."""
    fn, sn = number, count - 1
    for sibling in path:
        need(sn > 0, "a path that is too long")
        if fn & 1 or fn == sn:
            node = digest(b"\1" + sibling + node)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            node = digest(b"\1" + node + sibling)
        fn, sn = fn >> 1, sn >> 1
    need(sn == 0, "a path that is too short")
    return node


def unbase64(text: Any) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise Refused("format.corrupted", "base64") from None
    need(base64.b64encode(data).decode() == text, "base64 in another form")
    return data


def check_proof(data: bytes, content_digest: str) -> dict[str, Any]:
    """Section 9.4: the row and leaf of a record that a proof shows."""
    need(len(data) <= 32 << 20, "too large")
    document = parse_document(data)
    need(canonical(document).encode() == data, "not canonical")
    features = document.get("features")
    need(isinstance(features, list) and all(isinstance(name, str) for name in features), "features")
    need(not features, f"features {features}", "format.future_version")
    members(document, "content features format kind leaf path payloads row seq version".split())
    need(document["kind"] == "inclusion-proof", "kind")
    content, seq, path = document["content"], document["seq"], document["path"]
    check_content(content)
    need(integer(seq, 0, content["records"] - 1), "seq")
    need(isinstance(path, list) and len(path) <= 48, "path")
    need(all(hexdigits(node, 32) for node in [*path, document["leaf"]]), "digests")
    row, raw = None, None
    if document["row"] is not None:
        raw = unbase64(document["row"])
        row = parse_row(raw)
        need(row[0] == seq, "the row of another record")
    need(isinstance(document["payloads"], dict) and set(document["payloads"]) <= set(PAYLOADS), "payloads")
    need(row is not None or not document["payloads"], "payloads without a row")
    payloads = {role: unbase64(text) for role, text in document["payloads"].items()}

    invalid = "proof.invalid"
    need(digest(canonical(content).encode()).hex() == content_digest, "another content digest", invalid)
    need(raw is None or leaf(raw).hex() == document["leaf"], "leaf", invalid)
    root = path_root(bytes.fromhex(document["leaf"]), seq, content["records"], [bytes.fromhex(n) for n in path])
    need(root.hex() == content["merkle_root"], "Merkle root", invalid)
    for role, payload in payloads.items():
        field = row[PAYLOADS[role]] if row is not None else None
        reference = [row[16], row[14], row[15]] if row is not None and role == "response" else field
        need(reference is not None and reference[2], "no such payload", invalid)
        need([digest(payload), len(payload)] == reference[:2], "payload", invalid)
    return {"seq": seq, "row": raw, "leaf": document["leaf"], "payloads": payloads}


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    need(len(dict(pairs)) == len(pairs), "a member twice")
    return dict(pairs)


def load(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise Refused("format.corrupted", "JSON") from None
    need(isinstance(document, dict), "no object")
    return document  # type: ignore[no-any-return]


def either_base64(text: Any) -> bytes:
    need(isinstance(text, str) and not (set("+/") & set(text) and set("-_") & set(text)), "base64")
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        raise Refused("format.corrupted", "base64") from None


def pae(kind: bytes, body: bytes) -> bytes:
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def state(envelope: bytes, content: bytes, public: bytes) -> str:
    """Section 9.5: what an envelope is for a content section and a key. Refuses what is unreadable."""
    need(len(envelope) <= 1 << 20, "too large")
    document = load(envelope)
    kind, signatures = document.get("payloadType"), document.get("signatures")
    need(isinstance(signatures, list) and 0 < len(signatures) <= 64, "signatures")
    need(all(isinstance(s, dict) and isinstance(s.get("keyid", ""), str) for s in signatures), "signatures")
    values = [(s.get("keyid", ""), either_base64(s.get("sig"))) for s in signatures]
    body = either_base64(document.get("payload"))
    need(kind == "application/vnd.in-toto+json", "payloadType")
    statement = load(body)
    need(statement.get("_type") == "https://in-toto.io/Statement/v1", "no statement")
    need(statement.get("predicateType") == "urn:replaypack:recording:v1", "about something else")
    try:
        [subject] = statement["subject"]
        signed = [subject["digest"]["sha256"], statement["predicate"]["content_digest"]["blake3"]]
    except (ValueError, KeyError, TypeError):
        raise Refused("format.corrupted", "statement") from None
    need(all(hexdigits(text, 32) for text in signed), "digests")
    if not any(ed25519.verify(public, pae(kind.encode(), body), value) for _, value in values):
        own = hashlib.sha256(public).hexdigest()
        claimed = any(len(hint) >= 16 and own.startswith(hint) for hint, _ in values)
        return "altered" if claimed else "wrong key"
    return "valid" if signed == [hashlib.sha256(content).hexdigest(), digest(content).hex()] else "altered"
