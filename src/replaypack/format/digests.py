"""BLAKE3-256, the only digest of the format (spec chapter 01, "Digests")."""

from __future__ import annotations

from blake3 import blake3

from replaypack._digest import digest, digests

__all__ = ["DIGEST_SIZE", "SHORT_SIZE", "digest", "digests", "short_digest"]

#: Bytes of a whole digest, and of the truncated ones that stand in tables.
DIGEST_SIZE = 32
SHORT_SIZE = 16


def short_digest(data: bytes | bytearray | memoryview) -> bytes:
    """Return the first 16 bytes of the BLAKE3-256 of ``data``."""
    return blake3(data).digest(SHORT_SIZE)
