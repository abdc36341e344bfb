"""An archive in which something is missing: purged records, withheld requests. Used by ``generate.py``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import zstandard
from build_archive import Times, blob_note, built, conversation, text

from replaypack import Archive, Record, Recording, values
from replaypack._read.packs import Frame
from replaypack._read.sequence import found_in
from replaypack._write.merge import finish
from replaypack._write.publish import Progress, Publisher
from replaypack._write.segment import SegmentBuilder
from replaypack.errors import PurgedError
from replaypack.format.manifest import Manifest, encode_manifest
from replaypack.format.manifest_members import Tombstone
from replaypack.format.names import latest_key, revision_key
from replaypack.format.record_frame import blank_records
from replaypack.format.row import discriminator
from replaypack.format.table import BLOBS, INLINE_SPACE, LITERALS, pack_key, unpack_blob, unpack_frame
from replaypack.storage import MemoryStorage

WHERE = "valid/archive/partial"
ROLES = ("request", "identity", "response")
Spans = list[tuple[int, int]]


class _Partial:
    """Writes a new revision of a recording without what some records said, or without requests."""

    def __init__(self, recording: Recording, purged: Iterable[int], withheld: Sequence[str]) -> None:
        self._recording = recording
        self._purged = set(purged)
        self._withheld = withheld

    def _needed(self) -> Spans:
        """What the recipes that stay take of the literals."""
        spans: Spans = []
        for record in self._recording.records():
            if record.seq not in self._purged:
                for role in ROLES:
                    ref = record.row.response if role == "response" else getattr(record.row, role)
                    inline = role == "response" and record._found.inline is not None
                    if ref is not None and ref.encoding and not inline and role not in self._withheld:
                        spans += [(item.offset, item.offset + item.length) for item in record.recipe(role)]
        return spans

    def _builder(self) -> SegmentBuilder:
        index = self._recording.index
        [segment] = index.segments
        builder = SegmentBuilder(segment.segment.first, segment.segment.inline_first)
        needed = self._needed()
        inlines = INLINE_SPACE
        kept_keys = {record.key for record in self._recording.records() if record.seq not in self._purged}
        for entry, frame in index.frames():
            [records] = index.read_frames([frame])
            numbers = {seq - entry.first for seq in self._purged}
            spans = [(max(0, start - inlines), end - inlines) for start, end in needed if end > inlines]
            builder.add_record_frame(entry.items, blank_records(records, numbers, spans))
            inlines += records.inline_size
            for found in found_in(index, entry.first, records):
                row = found.row
                if row.seq not in self._purged or row.key in kept_keys:
                    builder.add_keys(pack_key(row.key, discriminator(row.scope), row.seq))
        for page in range(len(segment.root(LITERALS).fences)):
            [rows] = index.pages([(segment, LITERALS, page)])
            for at in range(0, len(rows), LITERALS.width):
                literal = unpack_frame(rows, at)
                if literal.first >= INLINE_SPACE:
                    continue
                place = Frame(segment.pack(literal.frame, where=""), literal.frame, literal.raw, literal.digest)
                [raw] = index.reader.read([place])
                kept = bytearray(len(raw))
                for start, end in needed:
                    low, high = max(0, start - literal.first), max(0, end - literal.first)
                    kept[low:high] = raw[low:high]
                if any(kept):
                    builder.add_literal_frame(literal.first, bytes(kept))
        for page in range(len(segment.root(BLOBS).fences)):
            [rows] = index.pages([(segment, BLOBS, page)])
            for at in range(0, len(rows), BLOBS.width):
                blob = unpack_blob(rows, at)
                if blob.seq not in self._purged and ROLES[blob.role] not in self._withheld:
                    builder.add_blob(rows[at : at + BLOBS.width])
        return builder

    def write(self, storage: Any, tombstones: list[Tombstone]) -> Manifest:
        """Commit the new revision, and remove those before it."""
        old = self._recording.manifest
        builder = self._builder()
        publisher = Publisher(
            storage,
            self._recording.name,
            writer=bytes(8),
            mode="replace",
            template=old.content,
            base=None,
            revision=old.revision,
            previous=old.digest,
        )
        publisher.lives = [
            finish(builder, publisher.origin, publisher.upload, publisher.upload_large, publisher.compressor, tier=0)
        ]
        made = publisher.manifest(
            revision=old.revision + 1,
            cause="copy" if self._withheld else "purge",
            state=old.content.state,
            progress=Progress(old.merkle, dict(old.content.counts), old.storage.literals, old.storage.inlines),
            previous=old.digest,
        )
        section = msgspec.structs.replace(made.storage, tombstones=tombstones, withheld=sorted(self._withheld))
        manifest = encode_manifest(made.content, section)
        storage.put_new(revision_key(publisher.name, manifest.revision), manifest.raw)
        storage.put(latest_key(publisher.name), manifest.raw)
        for number in range(1, manifest.revision):
            storage.delete(revision_key(publisher.name, number))
        return manifest


def partial(
    archive: Archive,
    name: str,
    purged: Mapping[str, Sequence[int]] | None = None,
    withheld: Sequence[str] = (),
    time: str = "2025-06-16T00:00:00Z",
) -> Manifest:
    """Purge records (by reason) of a recording that has one segment, or withhold roles of all."""
    with archive.open(name, fresh=True) as recording:
        tombstones = [
            Tombstone(time=time, reason=reason, records=[(seq, recording.leaf(seq).hex()) for seq in sorted(numbers)])
            for reason, numbers in (purged or {}).items()
        ]
        numbers = [seq for tombstone in tombstones for seq, _ in tombstone.records]
        before = set(recording.index.packs)
        manifest = _Partial(recording, numbers, withheld).write(archive.storage, tombstones)
    for pack in before:
        archive.storage.delete(f"packs/{pack.digest[:2]}/{pack.digest}.rpk")
    return manifest


def _calls(at: Times) -> Iterator[dict[str, Any]]:
    search = {"name": "search", "arguments": {"query": "x"}}
    for number in range(3):
        yield at(kind="tool", name="search", identity=search, response=f"answer {number}")
    yield at(kind="tool", name="search", identity=search, response="in a scope", scope="sample-1")
    yield from conversation(at, 4, "partial")
    yield at(kind="tool", name="read", identity={"path": "/a"}, response=text(5000, "file"))
    yield at(kind="tool", name="read", identity={"path": "/b"}, response="short")


def _fill(root: str) -> None:
    archive, at = Archive(root), Times()
    options: dict[str, Any] = {"recorded_by": "spec 1", "flush_interval": None, "level": 6, "redact": None}
    for name in ("purged", "withheld"):
        with archive.recorder(name, **options) as recorder:
            for call in _calls(at):
                recorder.append(**call)
    # The second of three, one in a scope, a turn of a conversation, and the only call of its kind.
    partial(archive, "purged", {"a customer asked for it": [1, 5, 8], "another one": [3]})
    partial(archive, "withheld", withheld=["identity", "request"])


def _lookups(recording: Recording, asked: list[tuple[Record, Any]]) -> Iterator[dict[str, Any]]:
    for record, identity in asked:
        for scope, nth in ((record.scope, 0), (None, 1), ("nobody", 2), ("sample-1", 0), (None, 3)):
            case = {
                "kind": record.kind,
                "identity_msgpack": values.encode(identity).hex(),
                "scope": scope,
                "nth": nth,
            }
            try:
                found = recording.lookup(record.kind, identity, scope=scope, nth=nth)
            except PurgedError as error:
                yield {**case, "purged": error.seq}
            else:
                yield {**case, "seq": None if found is None else found.seq}


def _case(recording: Recording, asked: list[tuple[Record, Any]]) -> dict[str, Any]:
    manifest = recording.manifest
    records = [
        {
            "seq": record.seq,
            "kind": record.kind,
            "key": record.key.hex(),
            "scheme": record.key_scheme,
            "scope": record.scope,
            **{role: "withheld" if role in record.withheld else blob_note(record, role) for role in ROLES},
        }
        for record in recording.records()
    ]
    lookups: dict[str, dict[str, Any]] = {}
    for lookup in _lookups(recording, asked):
        lookups.setdefault(repr(lookup), lookup)
    return {
        "archive": "partial",
        "name": recording.name,
        "state": recording.state,
        "records": len(recording),
        "purged": sorted(seq for tombstone in recording.tombstones for seq, _ in tombstone.records),
        "withheld": sorted(recording.withheld),
        "merkle_root": manifest.content.merkle_root,
        "revision": manifest.revision,
        "segments": len(manifest.storage.segments),
        "digest": manifest.digest,
        "content_digest": manifest.content_digest,
        "some_records": records,
        "lookups": list(lookups.values()),
    }


def build() -> tuple[dict[str, bytes], dict[str, Any]]:
    """The objects of the archive by key, and what must be found in it."""
    # What was asked: the same calls, recorded anew where nothing is missing.
    whole = Archive("", storage=MemoryStorage())

    def fill(directory: str) -> None:
        _fill(directory)
        with whole.recorder("whole", flush_interval=None, redact=None) as recorder:
            for call in _calls(Times()):
                recorder.append(**call)

    def found(archive: Archive) -> list[dict[str, Any]]:
        asked = [(record, record.identity) for record in whole.open("whole").records()]
        return [_case(archive.open(name), asked) for name in ("purged", "withheld")]

    objects, cases = built(fill, found)
    expected = {
        "feature": "archive",
        "about": "What a reader finds in the archive `partial`: recordings with purged records, and without requests.",
        "zstd": ".".join(map(str, zstandard.ZSTD_VERSION)),
        "cases": cases,
    }
    return objects, expected
