"""The members of a manifest, as they stand in its JSON (spec chapter 06), and their limits."""

from __future__ import annotations

from struct import Struct
from typing import Any, Literal

import msgspec

from .table import TableShape

__all__ = [
    "INLINE_LIMIT",
    "MAX_MANIFEST",
    "MAX_PACK_PAGES",
    "MAX_PURGED",
    "MAX_REASON",
    "MAX_ROOT",
    "NEAR_LIMIT",
    "PACKS_PER_PAGE",
    "PACK_ENTRY",
    "Cause",
    "Content",
    "Match",
    "Near",
    "PackRef",
    "PageRef",
    "Redaction",
    "Segment",
    "Source",
    "State",
    "Storage",
    "TableRef",
    "Tombstone",
    "Withheld",
]

#: Roots and packs stand in the manifest up to this many bytes, all together; beyond it they go to pages.
INLINE_LIMIT = 128 << 10
#: Readers refuse a larger manifest (bytes).
MAX_MANIFEST = 16 << 20
#: Record frames and key pages of at most this many bytes together lie side by side.
NEAR_LIMIT = 256 << 10
#: The largest root that stands in a page (bytes).
MAX_ROOT = 64 << 20
#: Records of one recording that are purged, at most, and the bytes of a reason.
MAX_PURGED = 1 << 16
MAX_REASON = 4096
#: An entry of a page of packs: digest, size. A page has at most so many, and there are at most so many pages.
PACK_ENTRY = Struct(">32sI")
PACKS_PER_PAGE = 1820
MAX_PACK_PAGES = 1024

State = Literal["open", "sealed", "incomplete"]
Cause = Literal[
    "claim",
    "checkpoint",
    "seal",
    "append",
    "replace",
    "compact",
    "purge",
    "copy",
    "import",
    "recover",
    "migrate",
    "rekey",
]


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Members that the version does not define are refused: extensions come as features or versions."""


class Redaction(_Strict, frozen=True):
    """A redaction policy, by name and version; ``rules`` are what a private one adds to the default."""

    name: str
    version: int
    rules: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Match(_Strict, frozen=True):
    """A match policy as data; `match_policy` makes it one that can be applied. No ``rules``: it ignores nothing."""

    name: str
    version: int
    rules: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class Content(_Strict, frozen=True):
    """The logical recording. ``records`` counts records; ``started`` is RFC 3339 in UTC."""

    id: str
    state: State
    started: str
    metadata: dict[str, Any]
    recorded_by: str
    match: Match
    redaction: Redaction
    records: int
    counts: dict[str, int]
    merkle_root: str
    extends: str | None
    derived_from: str | None
    error: dict[str, Any] | None


class PackRef(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A pack: BLAKE3-256 of its bytes (hex) and its size in bytes."""

    digest: str
    size: int


class PageRef(_Strict, frozen=True):
    """A page outside the manifest: pack (hex), byte offset and compressed bytes, raw bytes, digest (16 bytes, hex)."""

    pack: str
    offset: int
    length: int
    raw: int
    digest: str


class TableRef(_Strict, frozen=True):
    """A table: its number of entries and its root, in base64 or as a page."""

    count: int
    root: str | None
    page: PageRef | None


class Near(_Strict, frozen=True):
    """Where all record frames and key pages of a small segment lie side by side (index of the pack, bytes)."""

    pack: int
    offset: int
    length: int


class Segment(_Strict, frozen=True):
    """A run of records with tables of its own. A sealed recording has one.

    ``inline_first`` is the number of inline response bytes before it. ``packs`` maps the pack indexes in its tables
    to the manifest's packs; None stands for the same indexes.
    """

    first: int
    count: int
    inline_first: int
    packs: list[int] | None
    keys: TableRef
    records: TableRef
    literals: TableRef
    blobs: TableRef
    near: Near | None

    def table(self, shape: TableShape) -> TableRef:
        """The reference of one of the four tables."""
        ref: TableRef = getattr(self, shape.name)
        return ref


class Source(_Strict, frozen=True):
    """What a revision was copied from: digest of that manifest, and what of it was taken (registry)."""

    manifest: str
    policy: str


class Tombstone(_Strict, frozen=True):
    """What is left of records that were purged together: sequence number and Merkle leaf (64 hex digits) of each."""

    time: str
    reason: str
    records: list[tuple[int, str]]


#: Roles of payloads whose bytes a copy may leave out.
Withheld = Literal["identity", "request"]


class Storage(_Strict, frozen=True):
    """Where the recording's bytes lie, and how this revision came to be."""

    revision: int
    checkpoint: int
    cause: Cause
    claim: Literal["create", "append", "replace"] | None
    writer: str
    created: str
    previous: str | None
    packs: list[PackRef]
    pack_pages: list[PageRef]
    segments: list[Segment]
    literals: int
    inlines: int
    merkle_edge: list[str]
    tombstones: list[Tombstone]
    withheld: list[Withheld]
    source: Source | None
    #: Runs of records, to compare by; not every recording has them.
    summary: PageRef | None = None
