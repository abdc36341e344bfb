"""BLAKE3-256 of many small pieces of data."""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3

__all__ = ["digest", "digests"]

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


def digests(items: Iterable[bytes]) -> list[bytes]:
    """`digest` of each of several, which takes half of the time."""
    hasher = blake3()
    update, take, reset = hasher.update, hasher.digest, hasher.reset
    found = []
    for data in items:
        update(data)
        found.append(take())
        reset()
    return found
