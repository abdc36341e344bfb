"""The code against the vectors of chapters 02 and 03 (``spec/vectors``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replaypack import _plain, canonical, values
from replaypack.canonical import canonical_json, key_digest
from replaypack.errors import CanonicalizationError, FormatError, ReplaypackError, ValueEncodingError
from replaypack.values import ABSENT, decode, decode_payload, encode, encode_payload, encode_pieces

from .value_cases import exact, from_notation

VECTORS = Path(__file__).parent.parent / "spec" / "vectors"


def cases(validity: str, feature: str) -> list[Any]:
    files = sorted((VECTORS / validity / feature).glob("*.json"))
    assert files
    found = []
    for file in files:
        vector = json.loads(file.read_text("utf-8"))
        assert vector["feature"] == feature
        assert vector["about"]
        found += [pytest.param(case, id=f"{file.stem}: {case['name']}") for case in vector["cases"]]
    return found


def given(case: dict[str, Any], prefix: str = "input") -> Any:
    """The input of a case, which is either MessagePack or in the notation of values."""
    if f"{prefix}_msgpack" in case:
        return decode(bytes.fromhex(case[f"{prefix}_msgpack"]))
    return from_notation(case[prefix])


@pytest.mark.parametrize("case", cases("valid", "canonical"))
def test_canonical(case: dict[str, Any]) -> None:
    value = given(case)
    assert canonical_json(value).hex() == case["canonical_hex"]
    assert canonical_json(value).decode() == case["canonical"]
    assert canonical._slow(_plain.to_plain(value)).hex() == case["canonical_hex"]


@pytest.mark.parametrize("case", cases("invalid", "canonical"))
def test_canonical_refused(case: dict[str, Any]) -> None:
    value = given(case) if "input_msgpack" in case else from_notation(case["value"])
    with pytest.raises(CanonicalizationError) as caught:
        canonical_json(value)
    assert caught.value.code == case["error"]
    assert caught.value.path == case["path"]


@pytest.mark.parametrize("case", cases("valid", "keys"))
def test_keys(case: dict[str, Any]) -> None:
    if "same" in case:
        keys = [key_digest(case["kind"], given(case, name)).hex() for name in ("a", "b")]
        assert keys == [case["a_key"], case["b_key"]]
        assert (keys[0] == keys[1]) is case["same"]
        return
    identity = given(case, "identity")
    assert canonical_json([case["kind"], identity]).decode() == case["canonical"]
    assert key_digest(case["kind"], identity).hex() == case["key"]


@pytest.mark.parametrize("case", cases("valid", "values"))
def test_values(case: dict[str, Any]) -> None:
    if "payload" in case:
        value = ABSENT if case.get("absent") else from_notation(case["value"])
        data = bytes.fromhex(case["payload"])
        assert encode_payload(value) == (case["encoding"], data)
        again = decode_payload(case["encoding"], data)
        assert again is value or exact(again) == exact(value)
        return
    value, data = from_notation(case["value"]), bytes.fromhex(case["msgpack"])
    assert encode(value) == data
    assert values._slow(value) == data
    assert b"".join(encode_pieces(value)) == data
    assert exact(decode(data)) == exact(value)


@pytest.mark.parametrize("case", cases("invalid", "values"))
def test_values_refused(case: dict[str, Any]) -> None:
    expected = ValueEncodingError if "value" in case else FormatError
    with pytest.raises(ReplaypackError) as caught:
        refuse(case)
    assert type(caught.value) is expected
    assert caught.value.code == case["error"]
    if "path" in case:
        assert isinstance(caught.value, ValueEncodingError)
        assert caught.value.path == case["path"]


def refuse(case: dict[str, Any]) -> None:
    if "bytes" in case:
        decode(bytes.fromhex(case["bytes"]))
    elif "payload" in case:
        decode_payload(case["encoding"], bytes.fromhex(case["payload"]))
    else:
        encode(from_notation(case["value"]))
