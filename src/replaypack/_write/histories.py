"""Keys of requests that carry a growing history: what was the same the last time is not printed and hashed again.

The canonical JSON of such a request is the largest part of what recording it costs. Writer's policy, no part of the
format: the key is the same.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from replaypack._plain import Census
from replaypack.canonical import SplitIdentity, split_at

__all__ = ["Histories"]

#: Elements that a list has at least to be taken for a history.
_MIN_ITEMS = 8
#: Histories that are remembered, and the bytes of all of them together.
_MAX_HISTORIES = 8
_MAX_BYTES = 16 << 20

#: What an object in a list takes besides its own bytes.
_OBJECT = 48
_DICT_ONLY = frozenset({dict})

_encode = msgspec.msgpack.Encoder().encode


class _History(NamedTuple):
    """A list as it was: the canonical text before it, the encodings of its elements, the memory (bytes) that they
    take, and the hash of the text up to the end of the last element."""

    before: bytes
    parts: list[bytes]
    size: int
    hasher: blake3


class Histories:
    """The longest lists of maps in the last identities. Safe to share between threads."""

    def __init__(self) -> None:
        self._known: list[_History] = []
        self._lock = threading.Lock()

    def key(self, kind: str, census: Census) -> tuple[bytes, list[Any], list[bytes]] | None:
        """The key of an identity, its longest list of maps and the encodings of that list's elements.

        None where the identity has no such list, or is not of the common kind: its key is to be made as usual. Equal
        encodings of plain values mean equal canonical JSON, and that all is plain the census has seen.
        """
        value = census.value
        if type(value) is not dict or census.count <= _MIN_ITEMS:
            return None
        name = ""
        items: list[Any] = []
        for key, child in value.items():
            if type(child) is list and len(child) > len(items) and type(child[0]) is dict:
                name, items = key, child
        if len(items) < _MIN_ITEMS or not set(map(type, items)) <= _DICT_ONLY:
            return None  # a million numbers are better encoded at once
        split = split_at(kind, census, name)
        if split is None:
            return None
        try:
            parts = list(map(_encode, items))
            return self._key(split, items, parts), items, parts
        except (UnicodeEncodeError, RecursionError):
            return None

    def _key(self, split: SplitIdentity, items: list[Any], parts: list[bytes]) -> bytes:
        found = next((known for known in tuple(self._known) if _continues(known, split.before, parts)), None)
        if found is None:
            hasher = blake3(split.before)
            hasher.update(split.text(items))
        else:
            # The same objects as then: whoever compares them next sees that at a glance.
            parts[: len(found.parts)] = found.parts
            hasher = found.hasher.copy()
            fresh = items[len(found.parts) :]
            if fresh:
                hasher.update(b"," + split.text(fresh))
        size = sum(map(len, parts)) + _OBJECT * len(parts)
        self._remember(_History(split.before, parts, size, hasher.copy()), found)
        hasher.update(split.behind)
        return hasher.digest()

    def _remember(self, history: _History, instead_of: _History | None) -> None:
        with self._lock:
            known = [history, *(other for other in self._known if other is not instead_of)][:_MAX_HISTORIES]
            total = 0
            for index, other in enumerate(known):
                total += other.size
                if total > _MAX_BYTES:
                    del known[index:]
                    break
            self._known = known


def _continues(known: _History, before: bytes, parts: list[bytes]) -> bool:
    """Whether ``parts`` begin with all of ``known``; their last is compared first, which tells most apart."""
    count = len(known.parts)
    return (
        known.before == before
        and count <= len(parts)
        and known.parts[-1] == parts[count - 1]
        and known.parts == (parts if count == len(parts) else parts[:count])
    )
