"""The payloads of a record: where their bytes lie, and reading them, checked."""

from __future__ import annotations

from operator import itemgetter

from replaypack.errors import FormatError, WithheldError
from replaypack.format.digests import digest
from replaypack.format.recipe import Range, materialise, output_length
from replaypack.format.row import BlobRef, Row

from .index import Found, Index

__all__ = ["blob_ref", "is_withheld", "read_blob", "recipe_of"]

_length = itemgetter(1)


def blob_ref(row: Row, role: str) -> BlobRef | None:
    """Digest, size and encoding of the ``request``, ``identity`` or ``response``; None where there is none."""
    if role == "response":
        return row.response
    return row.request if role == "request" else row.identity


def is_withheld(index: Index, row: Row, role: str) -> bool:
    """Whether a record has a payload in that role whose bytes are not in this copy."""
    ref = blob_ref(row, role) if role in index.withheld else None
    return ref is not None and ref.size > 0


def read_blob(index: Index, found: Found, role: str, *, limit: int) -> bytes:
    """The bytes of a payload, checked against its digest; one of more than ``limit`` bytes only in proportion.

    Raises `FormatError`, `StorageError`, `WithheldError`.
    """
    ref = blob_ref(found.row, role)
    if ref is None or ref.encoding == 0:
        return b""
    if role == "response" and found.inline is not None:
        return found.inline  # its digest is part of the row, which was checked
    if index.withheld and is_withheld(index, found.row, role):
        raise WithheldError(
            f"the {role} of record {found.row.seq} is withheld in {index.where}",
            recording=index.where,
            seq=found.row.seq,
            role=role,
        )
    ranges = recipe_of(index, found, role)
    where = f"{role} of record {found.row.seq}"
    total = sum(map(output_length, ranges))
    if total != ref.size:
        raise FormatError(f"a recipe makes {total} bytes, the row names {ref.size}", where=where)
    spans = [(item.offset, item.length) for item in ranges]
    parts = iter(index.literals(spans, size=total, limit=limit, where=where))
    data = materialise(ranges, ref.size, lambda _offset, _length: next(parts), where=where)
    if digest(data) != ref.digest:
        raise FormatError("the blob does not match its digest", where=where)
    return data


def recipe_of(index: Index, found: Found, role: str) -> list[Range]:
    """The ranges of the literals that make a payload which does not stand behind its row.

    Raises `FormatError`, `StorageError`.
    """
    row = found.row
    recipes = index.recipes(found.frame, found.number)
    roles = [name for name in ("request", "identity") if getattr(row, name) is not None]
    if found.inline is None and row.response_encoding:
        roles.append("response")
    if len(recipes) != len(roles):
        raise FormatError(f"record {row.seq} has {len(recipes)} recipes for {len(roles)} blobs")
    ranges = recipes[roles.index(role)]
    if sum(map(_length, ranges)) > 1 << 32:
        raise FormatError(f"the recipe of record {row.seq} is larger than any blob")
    return ranges
