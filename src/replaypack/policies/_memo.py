"""What is known of texts seen before, and how the texts of a value are collected."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any

from replaypack._plain import MAX_DEPTH

__all__ = ["Memo", "leaves"]


class Memo:
    """What is known of texts seen before: they are not looked at again. Bounded: two generations by size."""

    __slots__ = ("_changed_size", "blobs", "changed", "clean", "keys", "old", "size")

    LIMIT = 24 << 20

    def __init__(self) -> None:
        #: Texts without anything secret that are no sensitive names either.
        self.clean: set[str] = set()
        self.old: set[str] = set()
        self.size = 0
        #: Names of fields that are neither sensitive nor hold a secret.
        self.keys: set[object] = set()
        self.changed: dict[str, tuple[str | bytes, int]] = {}
        self._changed_size = 0
        #: Bytes without anything secret.
        self.blobs: set[bytes] = set()

    def remember(self, text: str, new: str | bytes, bits: int) -> None:
        """What became of a text that was not clean."""
        size = 2 * len(text) + 200
        if size < self.LIMIT:
            if self._changed_size + size > self.LIMIT:
                self.changed, self._changed_size = {}, 0
            self.changed[text] = (new, bits)
            self._changed_size += size

    def add_blob(self, data: bytes) -> None:
        if len(data) < self.LIMIT:
            self.size += len(data) + 80
            if self.size > self.LIMIT:
                self.old, self.clean, self.blobs, self.size = self.clean, set(), set(), 0
            self.blobs.add(data)

    def add(self, texts: Collection[str]) -> None:
        sizes = list(map(len, texts))
        if sizes and max(sizes) >= self.LIMIT:
            texts = [text for text in texts if len(text) < self.LIMIT]
            sizes = list(map(len, texts))
        self.size += sum(sizes) + 80 * len(sizes)
        if self.size > self.LIMIT:
            self.old, self.clean, self.blobs, self.size = self.clean, set(), set(), 0
        self.clean.update(texts)

    def unknown(self, texts: Iterable[str]) -> set[str]:
        found = set(texts)
        found -= self.clean
        if found and self.old:
            again = found & self.old
            if again:
                self.add(again)
                found -= again
        return found

    def knows(self, value: object) -> bool:
        """Whether everything in a value was seen before, and is clean."""
        found = leaves(value)
        return (
            found is not None
            and found[0] <= self.keys
            and self.clean.issuperset(found[1])
            and self.blobs.issuperset(found[2])
        )

    def add_key(self, key: object) -> None:
        if type(key) is str and len(key) > 256:
            return
        if len(self.keys) > 50_000:
            self.keys = set()
        self.keys.add(key)


_PLAIN = frozenset({dict, list, tuple, str, int, float, bool, bytes, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
_SEQUENCES = frozenset({list, tuple})
_values = dict.values


def leaves(value: object) -> tuple[set[object], list[str], list[bytes]] | None:
    """Keys, texts and bytes of a value, collected level by level in C; None where it is not plain data."""
    keys: set[object] = set()
    texts: list[str] = []
    blobs: list[bytes] = []
    # A small value is done before the passes over its levels would have begun.
    queue: list[Any] = [value]
    for part in queue:
        cls = type(part)
        if cls is str:
            texts.append(part)
        elif cls is dict:
            keys.update(part)
            queue += part.values()
        elif cls is list or cls is tuple:
            queue += part
        elif cls is bytes:
            blobs.append(part)
        elif cls not in _PLAIN:
            return None
        if len(queue) > 64:
            break
    else:
        return keys, texts, blobs
    keys, texts, blobs = set(), [], []
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        here = set(map(type, level))
        if not here <= _PLAIN:
            return None
        if str in here:
            texts += level if len(here) == 1 else [part for part in level if type(part) is str]
        if bytes in here:
            blobs += [part for part in level if type(part) is bytes]
        if here.isdisjoint(_CONTAINERS):
            return keys, texts, blobs
        maps = [part for part in level if type(part) is dict] if dict in here else []
        rows = [part for part in level if type(part) in _SEQUENCES] if len(here) > 1 or not maps else []
        if len(maps) + len(rows) > 1024:
            maps = list({id(part): part for part in maps}.values())
            rows = list({id(part): part for part in rows}.values())
        level = list(chain.from_iterable(rows))
        if maps:
            level += chain.from_iterable(map(_values, maps))
            keys.update(chain.from_iterable(maps))
    return None
