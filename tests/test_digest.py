"""Digests, made by hashers that are used again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from blake3 import blake3

from replaypack._digest import digest


def test_threads_do_not_share_a_hasher() -> None:
    pieces = [bytes([number % 251]) * (number % 40 * 200) for number in range(2000)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(digest, pieces)) == [blake3(piece).digest() for piece in pieces]


def test_what_cannot_be_hashed_leaves_nothing_behind() -> None:
    with pytest.raises(TypeError):
        digest("text")  # type: ignore[arg-type]
    assert digest(b"") == blake3().digest()
    assert digest(memoryview(b"abc")) == digest(bytearray(b"abc")) == blake3(b"abc").digest()
