"""Manifests: one revision of a recording, as canonical JSON (spec chapter 06).

``content`` is the logical recording, ``storage`` is where its bytes lie. The content digest covers the
former alone, so that rewriting the latter never changes what is cited and signed.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_left
from datetime import datetime
from itertools import pairwise
from struct import Struct as _Struct
from typing import Any, Literal

import msgspec

from replaypack.canonical import canonical_json
from replaypack.errors import CanonicalizationError, FormatError
from replaypack.policies.matching import NONE, MatchPolicy
from replaypack.policies.redaction import RedactionPolicy

from .digests import SHORT_SIZE, digest
from .merkle import MerkleTree
from .summary import MAX_SUMMARY, RUN_WIDTH
from .table import INLINE_SPACE, TABLES, Root, TableShape
from .versions import CURRENT_VERSION, FORMAT, check_features, parse_document

__all__ = [
    "INLINE_LIMIT",
    "MAX_MANIFEST",
    "MAX_PACK_PAGES",
    "MAX_PURGED",
    "NEAR_LIMIT",
    "PACKS_PER_PAGE",
    "Cause",
    "Content",
    "Manifest",
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
    "check_metadata",
    "content_digest_of",
    "content_problem",
    "error_note",
    "encode_manifest",
    "encode_pack_page",
    "inline_root",
    "match_note",
    "match_policy",
    "parse_manifest",
    "parse_pack_page",
    "read_root",
    "redaction_note",
    "redaction_policy",
]

#: Roots and packs stand in the manifest up to this many bytes, all together; beyond it they go to pages.
INLINE_LIMIT = 128 << 10
#: Readers refuse a larger manifest (bytes).
MAX_MANIFEST = 16 << 20
#: Writers refuse more metadata (bytes), and cut what is noted of an error to this many characters a member.
MAX_METADATA = 1 << 20
_MAX_NOTE = 4096
#: Record frames and key pages of at most this many bytes together lie side by side.
NEAR_LIMIT = 256 << 10
#: The largest root that stands in a page (bytes).
MAX_ROOT = 64 << 20
#: Sequence numbers have 48 bits, and so have offsets of literals, half of them for inline responses.
_MAX_RECORDS = 1 << 48
#: Records of one recording that are purged, at most, and the bytes of a reason.
MAX_PURGED = 1 << 16
MAX_REASON = 4096
#: Keys of revisions have eight digits.
_MAX_REVISION = 10**8 - 1

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

_HEX32 = re.compile(r"[0-9a-f]{64}")
_HEX16 = re.compile(r"[0-9a-f]{32}")
_HEX8 = re.compile(r"[0-9a-f]{16}")
_POLICY = re.compile(r"[a-z0-9-]{1,64}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z", re.ASCII)


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


class Manifest:
    """A parsed and checked manifest. ``digest`` and ``content_digest`` are 64 hex digits."""

    __slots__ = ("content", "content_digest", "digest", "match", "raw", "storage")

    def __init__(
        self,
        content: Content,
        storage: Storage,
        raw: bytes,
        digest_: str,
        content_digest: str,
        match: MatchPolicy | None = None,
    ) -> None:
        self.content = content
        self.storage = storage
        self.raw = raw
        self.digest = digest_
        self.content_digest = content_digest
        #: The match policy that its keys are computed with.
        self.match = match_policy(content.match) if match is None else match

    def __repr__(self) -> str:
        c, s = self.content, self.storage
        what = f"revision {s.revision} ({s.cause}), {c.state}, {c.records} records"
        return f"<Manifest {what}, content {self.content_digest[:12]}…>"

    @property
    def revision(self) -> int:
        """The number of the revision: what `Archive.open` takes."""
        return self.storage.revision

    @property
    def state(self) -> str:
        """``open``, ``sealed`` or ``incomplete``."""
        return self.content.state

    @property
    def records(self) -> int:
        """How many records the recording has."""
        return self.content.records

    @property
    def purged(self) -> int:
        """How many of them were purged."""
        return sum(len(tombstone.records) for tombstone in self.storage.tombstones)

    @property
    def merkle(self) -> MerkleTree:
        """The Merkle tree of the records, to be continued."""
        return MerkleTree(self.content.records, [bytes.fromhex(node) for node in self.storage.merkle_edge])


def content_digest_of(content: Content) -> str:
    """``BLAKE3(JCS(content))``, 64 hex digits."""
    return digest(canonical_json(msgspec.to_builtins(content))).hex()


def encode_manifest(content: Content, storage: Storage) -> Manifest:
    """Make the manifest of ``content`` and ``storage``; its bytes are ``raw``.

    Raises `CanonicalizationError` where the user's metadata is not JSON that survives unchanged.
    """
    document = {
        "content": msgspec.to_builtins(content),
        "features": [],
        "format": FORMAT,
        "storage": msgspec.to_builtins(storage),
        "version": CURRENT_VERSION,
    }
    own = digest(canonical_json(document)).hex()
    raw = canonical_json({**document, "digest": own})
    content_digest = digest(canonical_json(document["content"])).hex()
    return Manifest(content, storage, raw, own, content_digest)


def match_note(policy: MatchPolicy) -> Match:
    """A match policy as it stands in a manifest."""
    return msgspec.convert(policy.to_data(), Match)


def match_policy(note: Match, *, where: str | None = None) -> MatchPolicy:
    """The match policy of a manifest.

    Raises `FormatError`: ``future_version`` for a rule that this version does not know, else ``corrupted``.
    """
    if note == _MATCH_NONE:
        return NONE
    return MatchPolicy.from_data(msgspec.to_builtins(note), where=where)


_MATCH_NONE = match_note(NONE)


def redaction_note(policy: RedactionPolicy | None) -> Redaction:
    """A redaction policy as it stands in a manifest; None removes nothing."""
    return Redaction("none", 1) if policy is None else msgspec.convert(policy.to_data(), Redaction)


def redaction_policy(note: Redaction) -> RedactionPolicy | None:
    """The redaction policy of a manifest; None for ``none``. Raises as `RedactionPolicy.from_data` does."""
    return RedactionPolicy.from_data(msgspec.to_builtins(note))


def error_note(described: dict[str, Any]) -> dict[str, Any]:
    """What of an error can stand in a manifest: JSON that reads back unchanged, and not much of it.

    Lone surrogates of a message are written out, long texts cut; a member that no JSON gives back is left out.
    """
    note: dict[str, Any] = {}
    for name, value in described.items():
        if isinstance(value, str):
            value = value[:_MAX_NOTE].encode("utf-8", "backslashreplace").decode()
        try:
            if len(canonical_json({name: value})) <= 8 * _MAX_NOTE:
                check_metadata({name: value})
                note[name] = value
        except CanonicalizationError:
            continue
    return note


def check_metadata(metadata: dict[str, Any]) -> None:
    """Refuse metadata that JSON would not give back as it was (bytes, integers beyond a double, …).

    Raises `CanonicalizationError` with the path.
    """
    text = canonical_json(metadata)
    if len(text) > MAX_METADATA:
        raise CanonicalizationError(f"metadata takes more than {MAX_METADATA >> 20} MiB", path="")
    try:
        back = canonical_json(msgspec.json.decode(text))
    except (msgspec.MsgspecError, CanonicalizationError, ValueError):
        back = b""
    if back != text or b'"$bytes"' in text or b'"$$bytes"' in text:
        raise CanonicalizationError(
            "metadata must be JSON values that read back unchanged",
            path="",
            hint="write bytes and very large integers as text",
        )


def parse_manifest(data: bytes, *, where: str = "manifest") -> Manifest:
    """Parse a manifest and check everything that it can be checked for by itself.

    Raises `FormatError`; its reason says whether the document is newer, malformed, unmigratable or corrupted.
    """
    if len(data) > MAX_MANIFEST:
        raise FormatError(f"a manifest of {len(data)} bytes is over the limit of {MAX_MANIFEST}", where=where)
    document = parse_document(data, where=where)
    own = document.pop("digest", None)
    try:
        same = digest(canonical_json(document)).hex() == own and canonical_json({**document, "digest": own}) == data
    except CanonicalizationError as error:
        raise FormatError(f"not canonical JSON: {error}", where=where) from None
    if not same:
        raise FormatError("the document does not match its digest", where=where)
    check_features(document, where=where)
    if set(document) != {"content", "features", "format", "storage", "version"}:
        raise FormatError("a manifest has other members than version 1 defines", where=where)
    try:
        content = msgspec.convert(document["content"], Content)
        storage = msgspec.convert(document["storage"], Storage)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FormatError(f"a manifest has an unsound member: {error}", where=where) from None
    if "summary" not in document["storage"]:
        raise FormatError("a manifest has no member summary", where=where)
    content_digest = digest(canonical_json(document["content"])).hex()
    problem = content_problem(content) or _storage_problem(content, storage)
    if problem:
        raise FormatError(problem, where=where)
    return Manifest(content, storage, data, own, content_digest, match_policy(content.match, where=where))


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1])
    except ValueError:
        return False
    return True


def content_problem(content: Content) -> str | None:
    """What is wrong with the members of ``content`` by themselves."""
    if not _HEX16.fullmatch(content.id) or not _HEX32.fullmatch(content.merkle_root):
        return "the recording id or the Merkle root is not a digest"
    for reference in (content.extends, content.derived_from):
        if reference is not None and not _HEX32.fullmatch(reference):
            return "a reference to another recording is not a content digest"
    if not _is_time(content.started):
        return f"the start {content.started!r} is not a time"
    if not 0 <= content.records <= _MAX_RECORDS or any(count <= 0 for count in content.counts.values()):
        return "a count is negative, zero or beyond its limit"
    if sum(content.counts.values()) != content.records:
        return "the counts by kind do not add up to the records"
    if content.redaction.rules is not msgspec.UNSET and not content.redaction.name.startswith("x-"):
        return "a redaction policy that is not private has rules"
    return None


def _storage_problem(content: Content, storage: Storage) -> str | None:
    if not 0 < storage.revision <= _MAX_REVISION or min(storage.checkpoint, storage.literals, storage.inlines) < 0:
        return "a number is out of its bounds"
    if max(storage.literals, storage.inlines) > INLINE_SPACE:
        return "the literals end beyond their address space"
    if not _HEX8.fullmatch(storage.writer) or not _is_time(storage.created):
        return "the writer id or the time of writing is malformed"
    if (storage.claim is not None) != (storage.cause in ("claim", "checkpoint")):
        return "a claim is named by a revision that is none, or the reverse"
    if storage.previous is not None and not _HEX32.fullmatch(storage.previous):
        return "the digest of the previous revision is malformed"
    source = storage.source
    if source is not None and not (_HEX32.fullmatch(source.manifest) and _POLICY.fullmatch(source.policy)):
        return "what it was copied from is malformed"
    for pack in storage.packs:
        if not _HEX32.fullmatch(pack.digest) or not 0 < pack.size < 1 << 32:
            return "a pack is malformed"
    if storage.pack_pages and storage.packs:
        return "packs stand both in the manifest and in pages"
    if len(storage.pack_pages) > MAX_PACK_PAGES:
        return f"there are more than {MAX_PACK_PAGES} pages of packs"
    if any(not _page_sound(page) or page.raw > PACKS_PER_PAGE * _PACK.size for page in storage.pack_pages):
        return "a page of packs is malformed"
    if len(storage.merkle_edge) != content.records.bit_count() or any(
        not _HEX32.fullmatch(node) for node in storage.merkle_edge
    ):
        return "the Merkle edge does not fit the number of records"
    if MerkleTree(content.records, [bytes.fromhex(n) for n in storage.merkle_edge]).root.hex() != content.merkle_root:
        return "the Merkle edge does not give the Merkle root"
    summary = storage.summary
    if summary is not None and (
        not _page_sound(summary) or not 0 < summary.raw <= MAX_SUMMARY or summary.raw % RUN_WIDTH
    ):
        return "the reference to the summary is malformed"
    if summary is not None and storage.tombstones:
        return "a recording of which records were purged has a summary"
    if storage.withheld != sorted(set(storage.withheld)):
        return "what is withheld is not in order"
    return _tombstones_problem(content, storage) or _segments_problem(content, storage)


def _tombstones_problem(content: Content, storage: Storage) -> str | None:
    seen: set[int] = set()
    total = 0
    for tombstone in storage.tombstones:
        if not _is_time(tombstone.time) or not 0 < len(tombstone.reason.encode("utf-8", "replace")) <= MAX_REASON:
            return "the time or the reason of a tombstone is malformed"
        numbers = [seq for seq, _ in tombstone.records]
        total += len(numbers)
        if not numbers or total > MAX_PURGED:
            return f"a tombstone has no records, or all have more than {MAX_PURGED}"
        if numbers[0] < 0 or numbers[-1] >= content.records or any(a >= b for a, b in pairwise(numbers)):
            return "the records of a tombstone are not in order, or not of the recording"
        if not all(_HEX32.fullmatch(leaf) for _, leaf in tombstone.records):
            return "the leaf of a purged record is malformed"
        seen.update(numbers)
    return None if len(seen) == total else "a record has two tombstones"


#: Entries of a table for each record of its segment, at most. Literals may be any number: a blob may have many frames.
_MOST_ENTRIES = {"keys": 1, "records": 1, "literals": _MAX_RECORDS, "blobs": 3}


def _segments_problem(content: Content, storage: Storage) -> str | None:
    packs = len(storage.packs)
    purged = sorted(seq for tombstone in storage.tombstones for seq, _ in tombstone.records)
    seq = inlines = 0
    for segment in storage.segments:
        if segment.first != seq or segment.count <= 0 or not inlines <= segment.inline_first <= storage.inlines:
            return "the segments do not follow each other"
        seq += segment.count
        inlines = segment.inline_first
        # How many packs the pages hold is known once they are read.
        if any(index < 0 or (index >= packs and not storage.pack_pages) for index in segment.packs or ()):
            return "a segment names a pack that the manifest does not"
        gone = bisect_left(purged, seq) - bisect_left(purged, segment.first)
        if not segment.count - gone <= segment.keys.count <= segment.count:
            return "a segment's keys are not as many as its records"
        for shape in TABLES:
            table = segment.table(shape)
            if table.count < 0 or (table.root is None) == (table.page is None):
                return f"the table {shape.name} is malformed"
            if table.count > _MOST_ENTRIES[shape.name] * segment.count:
                return f"the table {shape.name} has more entries than the segment can have"
            if table.page is not None and not _page_sound(table.page):
                return f"the root page of {shape.name} is malformed"
        near = segment.near
        if near is not None and (min(near.pack, near.offset) < 0 or not 0 < near.length <= NEAR_LIMIT):
            return "a segment's near range is malformed"
    return None if seq == content.records else "the segments do not hold the records that the content names"


def _page_sound(page: PageRef) -> bool:
    return (
        bool(_HEX32.fullmatch(page.pack))
        and bool(_HEX16.fullmatch(page.digest))
        and 0 <= page.offset < 1 << 32
        and 0 < page.length < 1 << 32
        and 0 <= page.raw <= MAX_ROOT
    )


def inline_root(root: Root) -> TableRef:
    """A table reference whose root stands in the manifest."""
    return TableRef(count=root.count, root=base64.b64encode(root.encode()).decode(), page=None)


def read_root(shape: TableShape, ref: TableRef, page: bytes | None, *, where: str) -> Root:
    """Decode the root of ``ref``; ``page`` is the decompressed root page where it has one."""
    if ref.root is None:
        if page is None or ref.page is None:
            raise FormatError(f"the root page of {shape.name} is missing", where=where)
        if len(page) != ref.page.raw or digest(page)[:SHORT_SIZE].hex() != ref.page.digest:
            raise FormatError(f"the root page of {shape.name} does not match its digest", where=where)
        data = page
    else:
        try:
            data = base64.b64decode(ref.root, validate=True)
        except (binascii.Error, ValueError):
            raise FormatError(f"the root of {shape.name} is not base64", where=where) from None
    return Root.parse(shape, ref.count, data, where=where)


#: Entries of a page of packs: digest, size.
_PACK = _Struct(">32sI")
PACKS_PER_PAGE = 1820
MAX_PACK_PAGES = 1024


def encode_pack_page(packs: list[PackRef]) -> bytes:
    """Return a page of packs before compression: ``digest (32) ‖ size (4)`` a pack."""
    return b"".join(_PACK.pack(bytes.fromhex(pack.digest), pack.size) for pack in packs)


def parse_pack_page(ref: PageRef, raw: bytes, *, where: str) -> list[PackRef]:
    """Check and decode a page of packs."""
    if len(raw) != ref.raw or digest(raw)[:SHORT_SIZE].hex() != ref.digest or len(raw) % _PACK.size:
        raise FormatError("a page of packs does not match its digest", where=where)
    packs = [PackRef(name.hex(), size) for name, size in _PACK.iter_unpack(raw)]
    if not all(pack.size for pack in packs):
        raise FormatError("a page of packs names an empty pack", where=where)
    return packs
