"""The catalog: a list of an archive's recordings for stores that cannot list (spec chapter 10, "Catalog")."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Final

import msgspec

from replaypack.canonical import canonical_json
from replaypack.errors import FormatError

from .frame import MAX_FRAME, Compressor, decompress
from .names import is_name

__all__ = ["CATALOG", "VERSION", "Catalog", "CatalogEntry", "encode_catalog", "parse_catalog"]

CATALOG: Final = "catalog.json.zst"
FORMAT: Final = "replaypack-catalog"
VERSION: Final = 1
_LEVEL: Final = 19
#: Bytes that a catalog may have of each byte that is stored, and in any case. Two digests in each line do not compress:
#: what has much more was made to fill the memory of whoever lists.
_RATIO: Final = 256
_FLOOR: Final = 4 << 20


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One recording, as its newest manifest said when the catalog was written; ``bytes`` are those of its packs."""

    name: str
    revision: int
    cause: str
    state: str
    started: str
    records: int
    purged: int
    withheld: list[str]
    counts: dict[str, int]
    bytes: int
    content: str
    manifest: str
    recorded_by: str


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int
    created: str
    recordings: int


class Catalog(msgspec.Struct, frozen=True):
    """A whole catalog: when it was written (RFC 3339), and the recordings there were, by name."""

    created: str
    entries: list[CatalogEntry]


_head = msgspec.json.Decoder(_Head)
_entry = msgspec.json.Decoder(CatalogEntry)


def encode_catalog(created: str, entries: Iterable[CatalogEntry]) -> bytes:
    """The object ``catalog.json.zst``. Raises `FormatError` where it would hold more than 64 MiB."""
    lines = [canonical_json(msgspec.to_builtins(entry)) for entry in sorted(entries, key=lambda entry: entry.name)]
    head = {"format": FORMAT, "version": VERSION, "created": created, "recordings": len(lines)}
    raw = b"\n".join([canonical_json(head), *lines]) + b"\n"
    data = Compressor(_LEVEL)(raw) if len(raw) <= MAX_FRAME else b""
    if len(raw) > _most(data):
        raise FormatError(
            f"{len(lines)} recordings are more than a catalog can hold",
            where=CATALOG,
            hint="put them into several archives",
        )
    return data


def _most(data: bytes) -> int:
    """The raw bytes that a catalog may have."""
    return min(MAX_FRAME, max(_FLOOR, _RATIO * len(data)))


def parse_catalog(data: bytes, *, where: str = CATALOG) -> Catalog:
    """The catalog in ``data``. Raises `FormatError` (``corrupted``, ``future_version``).

    Members that are not known are passed over: the catalog is derived, and nothing rests on it.
    """
    lines = io.BytesIO(decompress(data, most=_most(data), where=where))
    try:
        head = _head.decode(lines.readline())
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"the head of the catalog cannot be read: {error}", where=where) from None
    if head.format != FORMAT:
        raise FormatError("this is no catalog", where=where)
    if head.version != VERSION:
        raise FormatError(
            f"the catalog has version {head.version}, newer than this reader", where=where, reason="future_version"
        )
    entries = []
    last = ""
    end = b"\n"
    for number, line in enumerate(lines, start=2):
        end = line[-1:]
        try:
            entry = _entry.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FormatError(f"line {number} of the catalog cannot be read: {error}", where=where) from None
        if not is_name(entry.name) or entry.name <= last:
            raise FormatError(f"line {number} of the catalog is out of order or names no recording", where=where)
        last = entry.name
        entries.append(entry)
    if end != b"\n" or len(entries) != head.recordings:
        raise FormatError(f"the catalog does not hold the {head.recordings} lines that it names", where=where)
    return Catalog(head.created, entries)
