"""BLAKE3-256 of many small pieces of data."""

from __future__ import annotations

from blake3 import blake3

__all__ = ["digest"]

# Making a hasher takes longer than hashing a key. Each is used by one thread at a time, and comes back only when it is
# as good as new: there are as many as ever were used at once.
_idle: list[blake3] = []


def digest(data: bytes | bytearray | memoryview) -> bytes:
    """Return the BLAKE3-256 of ``data`` (32 bytes)."""
    try:
        hasher = _idle.pop()
    except IndexError:
        hasher = blake3()
    result: bytes = hasher.update(data).digest()
    hasher.reset()
    _idle.append(hasher)
    return result
