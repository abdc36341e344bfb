"""Inclusion proofs and envelopes as bytes: every shape of tree, and whatever somebody may write."""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack.errors import FormatError, ProofError, ReplaypackError, UsageError
from replaypack.format.digests import digest
from replaypack.format.dsse import MAX_ENVELOPE, pae, parse_envelope, parse_statement
from replaypack.format.manifest import content_digest_of
from replaypack.format.manifest_members import Content, Match, Redaction
from replaypack.format.merkle import (
    MerkleTree,
    audit_path,
    audit_path_ranges,
    leaf_hash,
    leaves_needed,
    merkle_root,
    node_hash,
    root_of_path,
)
from replaypack.format.proof import MAX_PROOF, check_payload, check_proof, encode_proof, parse_proof
from replaypack.format.row import BlobRef, Row, encode_row


def content(rows: list[bytes], **changes: Any) -> Content:
    fields: dict[str, Any] = {
        "id": "0" * 32,
        "state": "sealed",
        "started": "2025-06-15T15:06:40Z",
        "metadata": {},
        "recorded_by": "test",
        "match": Match(name="none", version=1),
        "redaction": Redaction(name="none", version=1),
        "records": len(rows),
        "counts": {"tool": len(rows)} if rows else {},
        "merkle_root": merkle_root(map(leaf_hash, rows)).hex(),
        "extends": None,
        "derived_from": None,
        "error": None,
    }
    return Content(**{**fields, **changes})


def row(seq: int) -> bytes:
    ref = BlobRef(digest(b"asked"), 5, 3)
    return encode_row(
        Row(seq, "tool", None, bytes(32), "opaque", None, ref, None, 0, 0, 0, 0, None, bytes(8), 2, 2, digest(b"ok"))
    )


def proof_of(count: int, seq: int, **payloads: bytes) -> tuple[bytes, str]:
    rows = [row(number) for number in range(count)]
    tree = MerkleTree()
    for item in rows:
        tree.add(leaf_hash(item))
    first, end = leaves_needed(seq, count)
    leaf, path = audit_path(seq, count, tree.edge, map(leaf_hash, rows[first:end]))
    made = content(rows)
    return encode_proof(made, seq, leaf, rows[seq], path, payloads), content_digest_of(made)


def path_by_the_book(number: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 9162, section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    if number < split:
        return [*path_by_the_book(number, leaves[:split]), merkle_root(leaves[split:])]
    return [*path_by_the_book(number - split, leaves[split:]), merkle_root(leaves[:split])]


@pytest.mark.parametrize("count", [*range(1, 34), 63, 64, 65, 100])
def test_paths_are_those_of_the_book(count: int) -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(count)]
    tree = MerkleTree()
    for item in leaves:
        tree.add(item)
    for number in range(count):
        first, end = leaves_needed(number, count)
        assert end - first & end - first - 1 == 0
        leaf, path = audit_path(number, count, tree.edge, leaves[first:end])
        assert (leaf, path) == (leaves[number], path_by_the_book(number, leaves))
        assert root_of_path(leaf, number, count, path) == tree.root
        for other in {number - 1, number + 1} & set(range(count)):
            if len(audit_path_ranges(other, count)) == len(path):
                assert root_of_path(leaf, other, count, path) != tree.root


def test_a_path_of_a_tree_as_large_as_any() -> None:
    count, number = (1 << 48) - 1, 0x123456789ABC
    ranges = audit_path_ranges(number, count)
    assert len(ranges) <= 48
    covered = sorted([*ranges, (number, number + 1)])
    assert covered[0][0] == 0
    assert covered[-1][1] == count
    assert all(a[1] == b[0] for a, b in pairwise(covered))
    assert len(root_of_path(bytes(32), number, count, [bytes(32)] * len(ranges))) == 32


def test_leaves_that_are_not_there() -> None:
    with pytest.raises(FormatError):
        audit_path(1, 4, [bytes(32)], [bytes(32)])
    with pytest.raises(FormatError):
        root_of_path(bytes(32), 4, 4, [bytes(32)] * 2)


def test_a_proof_shows_its_record_and_no_other() -> None:
    data, own = proof_of(11, 6, request=b"asked", response=b"ok")
    found = check_proof(data, own)
    assert found.row is not None
    assert (found.seq, found.row.seq, found.payloads) == (6, 6, {"request": b"asked", "response": b"ok"})
    check_payload(found, "response", b"ok")
    for role, payload in (("response", b"no"), ("request", b"ok"), ("identity", b""), ("request", b"asked ")):
        with pytest.raises(ProofError):
            check_payload(found, role, payload)
    with pytest.raises(UsageError):
        check_payload(found, "answer", b"ok")
    with pytest.raises(UsageError):
        check_proof(data, own.upper())
    with pytest.raises(ProofError):
        check_proof(data, digest(b"x").hex())


def test_every_changed_byte_of_a_proof_is_noticed() -> None:
    data, own = proof_of(5, 2, response=b"ok")
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 7
        with pytest.raises((FormatError, ProofError)):
            check_proof(bytes(damaged), own)


def test_a_proof_has_a_limit_on_both_sides() -> None:
    rows = [row(0)]
    with pytest.raises(UsageError, match="more than"):
        encode_proof(content(rows), 0, leaf_hash(rows[0]), rows[0], [], {"request": bytes(MAX_PROOF)})
    with pytest.raises(FormatError, match="limit"):
        parse_proof(b" " * (MAX_PROOF + 1))


@pytest.mark.parametrize("depth", [300, 2_000, 1_000_000])
def test_nesting_is_refused(depth: int) -> None:
    data, own = proof_of(1, 0)
    deep = b'{"x":' * depth + b"1" + b"}" * depth
    with pytest.raises(FormatError):
        check_proof(data.replace(b'"metadata":{}', b'"metadata":' + deep), own)
    with pytest.raises(FormatError):
        parse_envelope(deep[:MAX_ENVELOPE])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(member=st.sampled_from(sorted(msgspec.json.decode(proof_of(3, 1)[0]))), value=_JSON)
def test_whatever_a_member_is_nothing_else_than_our_errors(member: str, value: Any) -> None:
    data, own = proof_of(3, 1, response=b"ok")
    document = msgspec.json.decode(data)
    changed = json.dumps({**document, member: value}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    with contextlib.suppress(FormatError, ProofError):
        check_proof(changed.encode("utf-8", "surrogatepass"), own)
        assert member in ("payloads", "row") or document[member] == value


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_other_bytes_are_no_proofs_and_no_envelopes(data: bytes) -> None:
    with pytest.raises(ReplaypackError):
        parse_proof(data)
    with pytest.raises(FormatError):
        parse_statement(parse_envelope(data))


@settings(max_examples=100, deadline=None)
@given(statement=_JSON, kind=st.sampled_from(["application/vnd.in-toto+json", "text/plain", "\ud800"]))
def test_whatever_a_statement_says_nothing_else_than_a_format_error(statement: Any, kind: str) -> None:
    body = json.dumps(statement).encode()
    data = json.dumps(
        {"payload": b64encode(body).decode(), "payloadType": kind, "signatures": [{"sig": ""}]}, ensure_ascii=True
    )
    with pytest.raises(FormatError):
        parse_statement(parse_envelope(data.encode()))


def test_the_preauthentication_encoding_of_the_dsse_specification() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert pae("é", b"") == "DSSEv1 2 é 0 ".encode()


def test_an_inner_node_is_no_leaf() -> None:
    one, two = leaf_hash(row(0)), leaf_hash(row(1))
    assert node_hash(one, two) != leaf_hash(one + two)
