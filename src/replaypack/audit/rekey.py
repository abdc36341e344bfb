"""`rekey`: the keys of a recording computed anew by another match policy, without recording again.

Record frames and tables are written anew, since keys stand in them; payloads stay where they are. Nothing is
visible before the one commit at the end: an interrupted run leaves packs that nobody refers to, and the next one
makes the very same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from replaypack._read.rekeyed import new_key, refuse_incomplete
from replaypack._read.sequence import in_order
from replaypack._read.tables import TableReader
from replaypack._write.claim import refuse_case_twin, refuse_claimed
from replaypack._write.merge import finish
from replaypack._write.publish import Progress as State
from replaypack._write.publish import Publisher
from replaypack._write.reuse import renamed
from replaypack._write.segment import PACK_TARGET, SegmentBuilder
from replaypack.canonical import canonical_json
from replaypack.errors import (
    FormatError,
    RecordingExistsError,
    UsageError,
)
from replaypack.format.digests import digest
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import Content
from replaypack.format.merkle import MerkleTree, leaf_hash
from replaypack.format.names import check_name
from replaypack.format.notes import match_note
from replaypack.format.pack import MAX_EXTERNAL
from replaypack.format.record_frame import Entry, RecordFrame, encode_frame
from replaypack.format.row import discriminator, with_key
from replaypack.format.summary import Summary
from replaypack.format.table import BLOBS, INLINE_SPACE, KEYS, LITERALS, pack_key, unpack_frame
from replaypack.policies.matching import MatchPolicy, MatchSpec
from replaypack.recording import Record, Recording
from replaypack.recover import finish_leftover

from ._faults import Progress, Report

if TYPE_CHECKING:
    from replaypack._read.index import Found
    from replaypack.archive import Archive

__all__ = ["Rekeyed", "rekey"]


class Rekeyed(NamedTuple):
    """What `rekey` did.

    ``records``: all; ``changed``: those whose key is another one now; ``kept``: those whose key was not computed of
    what is recorded (the host's own, or redacted). ``keys_before`` and ``keys_after``: how many different keys
    there were and are; where there are fewer, calls that were told apart are one now.
    ``derived_from``: the content digest before.
    """

    name: str
    revision: int
    records: int
    changed: int
    kept: int
    keys_before: int
    keys_after: int
    content_digest: str
    derived_from: str


def rekey(
    archive: Archive,
    name: str,
    *,
    match: MatchSpec,
    to: str | None = None,
    revision: int | None = None,
    progress: Report | None = None,
) -> Rekeyed:
    """Compute the keys of a finished recording anew with the match policy ``match``.

    The result is a new revision of the recording, or with ``to`` a new recording of that name; then ``revision``
    may name an older one to begin from. All records stay as they are but for their keys; the content digest is
    another one, and ``derived_from`` in the new manifest names the old one.

    Raises `UsageError` (still being recorded, its policy is that one already, or records of it were purged),
    `WithheldError` (its requests are not in this copy), `RecordingNotFoundError`,
    `RecordingExistsError`, `ConflictError` (another writer came first; nothing was changed), `FormatError` (a record
    whose identity does not give its key), `CanonicalizationError` (an identity that has no key by the new policy),
    `StorageError`.
    """
    policy = MatchPolicy.of(match)
    if to is None and revision is not None:
        raise UsageError("an older revision can be rekeyed to a new recording only", hint="give that a name: to=…")
    target = check_name(name if to is None else to)
    newest = None
    if to is None:
        finish_leftover(archive, name, "error")
        newest = archive.manifests.newest(name, fresh=True)
        refuse_claimed(archive.storage, name, newest)
    else:
        refuse_case_twin(archive.storage, to)
        if archive.manifests.newest(to, fresh=True) is not None:
            raise RecordingExistsError(f"{archive.url}#{to} exists already", hint="choose another name")
    with archive.open(name, revision, fresh=True) as source:
        content = source.manifest.content
        if content.state == "open":
            raise UsageError(
                f"{source.locator} is still being recorded",
                hint="rekey it when it is sealed, or finish it with `replaypack recover`",
            )
        if policy == source.manifest.match:
            raise UsageError(f"{source.locator} has keys of match policy {policy} already")
        refuse_incomplete(source)
        writer = _Writer(archive, target, source, policy, newest)
        writer.run(progress)
        manifest = writer.commit()
        with Recording(archive.storage, target, manifest) as result:
            return Rekeyed(
                target,
                manifest.storage.revision,
                content.records,
                writer.changed,
                writer.kept,
                _different_keys(source),
                _different_keys(result),
                manifest.content_digest,
                source.content_digest,
            )


class _Writer:
    """Writes the records of ``source`` with other keys, in order, holding one frame and one pack at a time."""

    def __init__(
        self, archive: Archive, name: str, source: Recording, policy: MatchPolicy, newest: Manifest | None
    ) -> None:
        self._source = source
        self._policy = policy
        self._storage = archive.storage
        self._number = newest.storage.revision + 1 if newest is not None else 1
        self._previous = newest.digest if newest is not None else None
        content = source.manifest.content
        seed = b"rekey" + bytes.fromhex(source.content_digest) + canonical_json(policy.to_data())
        template: Content = msgspec.structs.replace(
            content,
            id=content.id if newest is not None else digest(seed)[:16].hex(),
            match=match_note(policy),
            extends=None,
            derived_from=source.content_digest,
        )
        self._publisher = Publisher(
            archive.storage,
            name,
            # The same again in a second run: it makes the same packs.
            writer=renamed(digest(b"writer" + seed)[:8], archive.storage),
            mode="replace",
            template=template,
            base=None,
            revision=self._number - 1,
            previous=self._previous,
        )
        self._tree = MerkleTree()
        self._summary = Summary()
        self.changed = self.kept = 0

    def run(self, progress: Report | None) -> None:
        """Upload everything but the manifest."""
        found = in_order(self._source.index, 0, where=self._source.locator)
        for number, segment in enumerate(self._source.index.segments):
            builder = SegmentBuilder(segment.segment.first, segment.segment.inline_first)
            end = segment.segment.first + segment.segment.count
            self._refer(builder, number)
            while builder.count < segment.segment.count:
                self._frame(builder, found, end)
                builder.compress(self._publisher.compressor)
                if builder.size >= PACK_TARGET:
                    self._publisher.spill(builder)
                if progress is not None:
                    progress(Progress(self._source.name, "records", self._tree.count, len(self._source)))
            publisher = self._publisher
            live = finish(
                builder, publisher.origin, publisher.upload, publisher.upload_large, publisher.compressor, tier=0
            )
            publisher.lives.append(live)
        self._publisher.merge_all()

    def _refer(self, builder: SegmentBuilder, number: int) -> None:
        """Let the new segment refer to the literals of the old one, and list the same blobs."""
        index = self._source.index
        segment = index.segments[number]
        tables = TableReader(segment, index.reader)
        count = 0
        for row in tables.rows(LITERALS):
            entry = unpack_frame(row)
            if entry.first < INLINE_SPACE:  # the others lie in record frames
                pack = segment.pack(entry.frame, where="page of literals")
                builder.add_external(entry.first, entry.raw, entry.items, entry.digest, pack, entry.frame)
                self._publisher.reused.add(pack)
                count += 1
        if count > MAX_EXTERNAL:
            raise UsageError(f"{self._source.locator} has more than {MAX_EXTERNAL} frames of literals in one segment")
        for row in tables.rows(BLOBS):
            builder.add_blob(row)

    def _frame(self, builder: SegmentBuilder, records: Iterator[Found], end: int) -> None:
        """Write one record frame anew. Recipes refer within their frame, so that it keeps its records."""
        entries: list[Entry] = []
        keys = bytearray()
        for found in records:
            row = found.row
            key = self._key(found)
            frame = found.frame
            assert isinstance(frame, RecordFrame)  # whole frames are walked, not single records of them
            entry = frame.entry(found.number)
            entries.append(entry._replace(row=with_key(entry.row, row.key, key)))
            keys += pack_key(key, discriminator(row.scope), row.seq)
            self._tree.add(leaf_hash(with_key(found.row_bytes, row.key, key)))
            self._summary.add(row if key == row.key else msgspec.structs.replace(row, key=key))
            if found.number + 1 == frame.count:
                break
        if not entries or self._tree.count > end:
            raise FormatError("the record frames do not fill their segments", where=self._source.locator)
        builder.add_record_frame(len(entries), encode_frame(entries))
        builder.add_keys(bytes(keys))

    def _key(self, found: Found) -> bytes:
        source = self._source
        key = new_key(Record(source, found, source.index), source.manifest.match, self._policy, where=source.locator)
        if key is None:
            self.kept += 1
            return found.row.key
        self.changed += key != found.row.key
        return key

    def commit(self) -> Manifest:
        """Create the revision: from here on it can be seen."""
        content, storage = self._source.manifest.content, self._source.manifest.storage
        publisher = self._publisher
        manifest = publisher.manifest(
            revision=self._number,
            cause="rekey",
            state=content.state,
            progress=State(self._tree, dict(content.counts), storage.literals, storage.inlines, self._summary),
            error=content.error,
            previous=self._previous,
        )
        publisher.commit_revision(manifest)
        return manifest


def _different_keys(recording: Recording) -> int:
    """How many different keys a recording has (scopes not told apart)."""
    index = recording.index
    count, last = 0, b""
    for row in heapq.merge(*(TableReader(segment, index.reader).rows(KEYS) for segment in index.segments)):
        count += row[:16] != last
        last = row[:16]
    return count
