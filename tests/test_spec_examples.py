"""Every ``vector`` block in the text of the specification, run.

A block is one JSON object (or several, one a line) whose first key says what is claimed. To check more kinds of
claims, add a function to ``CHECKS``, or to those of the binary chapters in ``spec_claims``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replaypack.canonical import canonical_json, key_digest
from replaypack.errors import FormatError, ReplaypackError
from replaypack.values import ABSENT, decode, decode_payload, encode, encode_payload

from .spec_claims import CLAIMS
from .value_cases import exact, from_notation

SPEC = Path(__file__).parent.parent / "spec"
BLOCK = re.compile(r"^```vector[^\n]*\n(.*?)^```", re.M | re.S)


def squeeze(text: str) -> str:
    return "".join(text.split())


def canonical_of(claim: dict[str, Any]) -> None:
    assert canonical_json(claim["canonical_of"]).decode() == claim["is"]


def canonical_of_value(claim: dict[str, Any]) -> None:
    assert canonical_json(from_notation(claim["canonical_of_value"])).decode() == claim["is"]


def canonical_refused(claim: dict[str, Any]) -> None:
    with pytest.raises(ReplaypackError) as caught:
        canonical_json(from_notation(claim["canonical_refused"]))
    assert caught.value.code == claim["error"]
    assert getattr(caught.value, "path", None) == claim["path"]


def key_of(claim: dict[str, Any]) -> None:
    kind, identity = claim["key_of"]
    assert key_digest(kind, identity).hex() == squeeze(claim["is"])


def structured_of(claim: dict[str, Any]) -> None:
    value, data = from_notation(claim["structured_of"]), bytes.fromhex(squeeze(claim["is"]))
    assert encode(value) == data
    assert exact(decode(data)) == exact(value)


def structured_refused(claim: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as caught:
        decode(bytes.fromhex(squeeze(claim["structured_refused"])))
    assert caught.value.code == claim["error"]


def payload_of(claim: dict[str, Any]) -> None:
    value = ABSENT if claim["payload_of"] == {"absent": True} else from_notation(claim["payload_of"])
    data = bytes.fromhex(squeeze(claim["is"]))
    assert encode_payload(value) == (claim["encoding"], data)
    again = decode_payload(claim["encoding"], data)
    assert again is value or exact(again) == exact(value)


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    check.__name__: check
    for check in (
        canonical_of,
        canonical_of_value,
        canonical_refused,
        key_of,
        payload_of,
        structured_of,
        structured_refused,
        *CLAIMS,
    )
}


def examples() -> Iterator[Any]:
    for page in sorted(SPEC.rglob("*.md")):
        text = page.read_text("utf-8")
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            decoder, body, at, number = json.JSONDecoder(), block.group(1).strip(), 0, 0
            while at < len(body):
                claim, at = decoder.raw_decode(body, at)
                at += len(body[at:]) - len(body[at:].lstrip())
                number += 1
                yield pytest.param(claim, id=f"{page.relative_to(SPEC)}:{line}:{number}")


@pytest.mark.parametrize("claim", list(examples()))
def test_example(claim: dict[str, Any]) -> None:
    CHECKS[next(iter(claim))](claim)


def test_examples_are_found() -> None:
    assert len(list(examples())) > 20
