"""Manifests: one revision of a recording, as canonical JSON (spec chapter 06).

``content`` is the logical recording, ``storage`` is where its bytes lie. The content digest covers the
former alone, so that rewriting the latter never changes what is cited and signed.
"""

from __future__ import annotations

import msgspec

from replaypack.canonical import canonical_json
from replaypack.errors import CanonicalizationError, FormatError
from replaypack.policies.matching import MatchPolicy

from .digests import digest
from .manifest_checks import content_problem, storage_problem
from .manifest_members import MAX_MANIFEST, Content, Storage
from .merkle import MerkleTree
from .notes import match_policy
from .versions import CURRENT_VERSION, FORMAT, check_features, parse_document

__all__ = ["Manifest", "content_digest_of", "encode_manifest", "parse_manifest"]


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
    def purged_records(self) -> frozenset[int]:
        """The sequence numbers of those."""
        return frozenset(seq for tombstone in self.storage.tombstones for seq, _ in tombstone.records)

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
    problem = content_problem(content) or storage_problem(content, storage)
    if problem:
        raise FormatError(problem, where=where)
    return Manifest(content, storage, data, own, content_digest, match_policy(content.match, where=where))
