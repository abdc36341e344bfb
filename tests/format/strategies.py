"""Strategies that the tests of the format share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from replaypack.format.digests import digest
from replaypack.format.recipe import Range
from replaypack.format.row import ABSENT_DIGEST, BlobRef, Row

DIGESTS = st.binary(min_size=32, max_size=32)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
BLOBS = st.builds(BlobRef, DIGESTS, st.integers(0, 1 << 40), st.integers(1, 3))
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def rows(draw: Any, seq: int | None = None, response: bytes | None = None) -> Row:
    """A sound row; its response is ``response`` where that is given."""
    encoding = draw(st.integers(0, 3)) if response is None else draw(st.integers(1, 3))
    if response is not None:
        size, of = len(response), digest(response)
    elif encoding:
        size, of = draw(st.integers(0, 1 << 40)), draw(DIGESTS)
    else:
        size, of = 0, ABSENT_DIGEST
    return Row(
        draw(st.integers(0, (1 << 48) - 1)) if seq is None else seq,
        draw(TEXT),
        draw(st.none() | TEXT),
        draw(DIGESTS),
        draw(st.sampled_from(["identity", "opaque", "http/1"])),
        draw(st.none() | TEXT),
        draw(st.none() | BLOBS),
        draw(st.none() | BLOBS),
        draw(st.integers(-(2**63), 2**63 - 1)),
        draw(st.integers(0, 2**63 - 1)),
        draw(st.integers(0, 2)),
        draw(st.integers(0, 15)),
        draw(st.none() | st.dictionaries(TEXT, PLAIN, max_size=3)),
        draw(st.binary(min_size=8, max_size=8)),
        size,
        encoding,
        of,
    )


def ranges(space: int) -> st.SearchStrategy[Range]:
    """A range within ``space`` bytes of literals."""
    return st.tuples(st.integers(0, space - 1), st.integers(1, space), st.sampled_from([0, 0, 1, 3, 5, 7])).map(
        lambda item: Range(item[0], min(item[1], space - item[0]), item[2])
    )


@st.composite
def mutated(draw: Any, data: bytes) -> bytes:
    """``data`` with a few bytes changed, removed, put in, or its end cut off."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(out) - 1)))
        how = draw(st.sampled_from(["change", "remove", "insert", "cut", "ff"]))
        if how == "change" and out:
            out[at] ^= draw(st.integers(1, 255))
        elif how == "ff" and out:
            out[at] = 0xFF
        elif how == "remove":
            del out[at : at + draw(st.integers(1, 9))]
        elif how == "insert":
            out[at:at] = draw(st.binary(min_size=1, max_size=9))
        else:
            del out[at:]
    return bytes(out)
