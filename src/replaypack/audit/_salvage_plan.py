"""Which recordings can be made of what was found, and making them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replaypack import __version__
from replaypack._write.stamps import now_rfc3339
from replaypack.format.digests import digest
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import Content, Match, Redaction
from replaypack.format.merkle import leaf_hash
from replaypack.format.names import is_name
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import parse_stored_row

from ._faults import Progress, Report
from ._salvage_catalog import RECORD, Catalog, pack_digests_in
from ._salvage_groups import Group, groups_of
from ._salvage_losses import Losses, damaged
from ._salvage_sources import FactSource, Hole, ManifestSource, Purged, Source, Survivor, records_of
from ._salvage_target import Target, Written
from ._salvage_write import RecordingWriter, mended

__all__ = ["Salvager"]

#: Older revisions whose tables are asked where the newest one's frames are gone.
_HELPERS = 8


class Salvager:
    """Makes recordings in ``target`` of what a catalog has. ``target`` says what came of it."""

    def __init__(self, catalog: Catalog, target: Target, report: Report, limit: int) -> None:
        self._catalog = catalog
        self._target = target
        self._report = report
        self._limit = limit
        self._exact_packs: set[str] = set()
        self._leaves: set[bytes] = set()
        #: When and why records were purged, by their leaves.
        self._purged: dict[bytes, tuple[str, str]] = {}
        #: Of each recording (id) the end of the sequence numbers that were looked for.
        self._ends: dict[bytes, int] = {}

    def run(self) -> None:
        """Make all of them."""
        named = self._named()
        for name, manifests in named.items():
            for manifest in manifests:
                self._note_pages(name, manifest)
        self._catalog.attribute()
        self._prepare(named)
        bases: dict[bytes, tuple[str, Group, Written]] = {}
        for name in sorted(named):
            out = self._target.name(name)
            for group in groups_of(named[name]):
                written = self._group(out, group)
                bases[bytes.fromhex(group.content.id)] = (out, group, written)
        for recording in self._recordings():
            self._extras(recording, bases.get(recording))
            self._told_alone(recording, bases.get(recording))
        self._unknown(named)

    # What there is

    def _named(self) -> dict[str, list[Manifest]]:
        """The sound manifests of each name."""
        named: dict[str, dict[str, Manifest]] = {}
        for found in self._catalog.manifests:
            name = found.name or self._hint(bytes.fromhex(found.manifest.content.id))
            named.setdefault(name, {})[found.manifest.digest] = found.manifest
        return {name: list(manifests.values()) for name, manifests in named.items()}

    def _hint(self, recording: bytes) -> str:
        row = self._catalog.db.execute(
            "SELECT name FROM origin WHERE recording=? ORDER BY id LIMIT 1", (recording,)
        ).fetchone()
        return row[0] if row is not None and is_name(row[0]) else f"recovered-{recording.hex()[:8]}"

    def _note_pages(self, name: str, manifest: Manifest) -> None:
        recording, writer = bytes.fromhex(manifest.content.id), bytes.fromhex(manifest.storage.writer)
        source = ManifestSource(self._catalog, manifest)
        self._catalog.note_packs(recording, writer, name, source.index.packs)
        for shape, short in source.pages():
            self._catalog.note_page(recording, writer, name, short, shape)

    def _recordings(self) -> list[bytes]:
        rows = self._catalog.db.execute(
            "SELECT DISTINCT recording FROM origin JOIN place ON place.origin = origin.id AND place.kind=? "
            "ORDER BY recording",
            (RECORD,),
        )
        return [row[0] for row in rows.fetchall()]

    def _prepare(self, named: dict[str, list[Manifest]]) -> None:
        """Find out which record frames no manifest names, and of which recordings they are."""
        db = self._catalog.db
        db.execute("CREATE TABLE named(digest BLOB PRIMARY KEY) WITHOUT ROWID")
        for manifests in named.values():
            for manifest in manifests:
                for tombstone in manifest.storage.tombstones:
                    for _, leaf in tombstone.records:
                        self._purged[bytes.fromhex(leaf)] = (tombstone.time, tombstone.reason)
                for _, _, short in ManifestSource(self._catalog, manifest).frames():
                    db.execute("INSERT OR IGNORE INTO named VALUES(?)", (short,))
        db.execute("CREATE TABLE leaf(recording BLOB, seq INTEGER, leaf BLOB, PRIMARY KEY(recording, seq, leaf))")
        db.execute("CREATE TABLE extra(recording BLOB, writer BLOB, seq INTEGER, leaf BLOB)")
        for recording in self._recordings():
            if self._unnamed(recording):
                self._leaves.add(recording)

    def _unnamed(self, recording: bytes) -> list[tuple[bytes, bytes]]:
        """Record frames of a recording that are sound and that no manifest names: writer, digest."""
        return self._catalog.db.execute(
            "SELECT DISTINCT origin.writer, place.digest FROM place JOIN origin ON origin.id = place.origin "
            "WHERE origin.recording=? AND place.kind=? AND EXISTS (SELECT 1 FROM frame WHERE digest=place.digest) "
            "AND NOT EXISTS (SELECT 1 FROM named WHERE digest=place.digest) ORDER BY place.first",
            (recording, RECORD),
        ).fetchall()

    # Recordings with a manifest

    def _group(self, name: str, group: Group) -> Written:
        """Make one content of a recording, and, where it is not whole, the older ones that it continues."""
        written, confirmed = self._write(name, group, group.content.records)
        seen: set[str] = set()
        for old in sorted(group.older, key=lambda manifest: manifest.content.records):
            known = old.content_digest in seen or (old.content_digest in confirmed and not written.losses.counts)
            if known or old.content.state == "open":
                continue
            seen.add(old.content_digest)
            again, _ = self._write(name, Group([old], []), old.content.records)
            if again.exact or written.exact:
                self._target.commit(name, again)
        self._target.commit(name, written)
        if written.exact:
            for manifest in group.manifests:
                self._exact_packs.update(pack.digest for pack in ManifestSource(self._catalog, manifest).index.packs)
        return written

    def _write(self, name: str, group: Group, end: int | None) -> tuple[Written, set[str]]:
        newest = group.manifests[0]
        content = newest.content
        recording = bytes.fromhex(content.id)
        manifests = [*group.manifests, *group.older[:_HELPERS]]
        sources: list[Source] = [ManifestSource(self._catalog, manifest) for manifest in manifests]
        sources.append(FactSource(self._catalog, recording))
        writer, losses, confirmed = self._records(name, content, sources, end, group.older, keys=False)
        withheld = newest.storage.withheld
        whole = (
            not losses.counts
            and not losses.dropped
            and writer.tree.root.hex() == content.merkle_root
            and writer.tree.count == content.records
        )
        if whole and content.state != "open":
            return Written(writer, losses, content, newest.content_digest, True, withheld), confirmed
        if whole:
            interrupted = {"type": "Interrupted", "message": "it was still recorded; recovered from the archive"}
            finished = msgspec.structs.replace(content, state="incomplete", error=interrupted)
            return Written(writer, losses, finished, newest.content_digest, False, withheld), confirmed
        if not losses.counts and not losses.dropped:
            losses.add("records", 0, content.records - 1, "the rows do not give the Merkle root of the manifest")
        changed = damaged(content, newest.content_digest, losses)
        return Written(writer, losses, changed, newest.content_digest, False, withheld), confirmed

    def _records(
        self,
        name: str,
        content: Content,
        sources: Sequence[Source],
        end: int | None,
        older: Sequence[Manifest],
        *,
        keys: bool,
    ) -> tuple[RecordingWriter, Losses, set[str]]:
        """Write the records that are left; return what is lost, and which older contents they begin with."""
        recording = bytes.fromhex(content.id)
        seed = b"recover" + recording + name.encode() + bytes.fromhex(content.merkle_root)
        writer = RecordingWriter(self._target.storage, name, content, digest(seed)[:8])
        losses = Losses()
        purged_keys = self._purged_keys(sources, end)
        roots = {manifest.content.records: manifest for manifest in older}
        confirmed: set[str] = set()
        for item in records_of(self._catalog, sources, end, limit=self._limit):
            last = item.last if isinstance(item, Hole) else item.seq if isinstance(item, Purged) else item.row.seq
            self._ends[recording] = max(self._ends.get(recording, 0), last + 1)
            if isinstance(item, Hole):
                if item.purged:
                    losses.purged += item.last - item.first + 1
                    losses.dropped += item.last - item.first + 1
                else:
                    losses.add("records", item.first, item.last, item.why)
                continue
            if not isinstance(item, Purged):
                # A pack that a purge did not come to delete, or an older revision, brings nothing back.
                known = self._purged.get(leaf_hash(item.row_bytes)) if self._purged else None
                if known is not None:
                    item = Purged(item.row.seq, leaf_hash(item.row_bytes), *known)
            if isinstance(item, Purged):
                losses.purged += 1
                writer.purged(item, purged_keys.get(item.seq))
                continue
            if recording in self._leaves:
                row = (recording, item.row.seq, leaf_hash(item.row_bytes))
                self._catalog.db.execute("INSERT OR IGNORE INTO leaf VALUES(?, ?, ?)", row)
            self._add(writer, item, losses, keys)
            count = writer.tree.count
            if count in roots and roots[count].content.merkle_root == writer.tree.root.hex():
                confirmed.add(roots[count].content_digest)
            if count % 256 == 0:
                self._report(Progress(name, "records", item.row.seq + 1, max(content.records, item.row.seq + 1)))
        writer.finish()
        return writer, losses, confirmed

    def _purged_keys(self, sources: Sequence[Source], end: int | None) -> dict[int, bytes]:
        """The beginnings of the entries of ``keys`` that purged records have: those whose key another record has."""
        first = sources[0]
        if not isinstance(first, ManifestSource) or not first.index.purged:
            return {}
        entries = {int.from_bytes(entry[24:], "big"): entry[:24] for entry in first.key_entries(first.index.purged)}
        wanted = {entry[:16] for entry in entries.values()}
        seen = set()
        if wanted:
            for item in records_of(self._catalog, sources, end, limit=self._limit, rows_only=True):
                if isinstance(item, Survivor) and item.row.key[:16] in wanted:
                    seen.add(item.row.key[:16])
        return {seq: entry for seq, entry in entries.items() if entry[:16] in seen}

    @staticmethod
    def _add(writer: RecordingWriter, item: Survivor, losses: Losses, keys: bool) -> None:
        for role, data in item.blobs.items():
            if data is None:
                losses.add(role, item.row.seq, item.row.seq, item.why)
        writer.add(mended(item, writer.tree.count, keys=keys))

    # Recordings, and ends of recordings, without one

    def _extras(self, recording: bytes, base: tuple[str, Group, Written] | None) -> None:
        """Make what no manifest has: records behind its end, or whole recordings whose manifests are gone."""
        db = self._catalog.db
        for writer, short in self._unnamed(recording):
            frame = RecordFrame(self._catalog.raw(short))
            for stored, inline in zip(*frame.stored_rows(), strict=True):
                if not stored:
                    continue
                row, data = parse_stored_row(stored, inline)
                leaf = (recording, row.seq, leaf_hash(data))
                if leaf[2] in self._purged:
                    continue
                if db.execute("SELECT 1 FROM leaf WHERE recording=? AND seq=? AND leaf=?", leaf).fetchone() is None:
                    db.execute("INSERT INTO extra VALUES(?, ?, ?, ?)", (recording, writer, *leaf[1:]))
        groups = db.execute(
            "SELECT writer, min(seq), max(seq) FROM extra WHERE recording=? GROUP BY writer ORDER BY 2, 3 DESC, 1",
            (recording,),
        ).fetchall()
        end = base[1].content.records if base is not None else 0
        behind = [writer for writer, first, _ in groups if base is not None and first >= end]
        if base is not None and behind:
            self._extension(base, recording, behind)
        lineages: list[tuple[int, list[bytes]]] = []
        for writer, first, _ in groups:
            if writer in behind:
                continue
            for _, writers in lineages:
                if not self._conflict(recording, writer, writers):
                    writers.append(writer)
                    break
            else:
                lineages.append((first, [writer]))
        for first, writers in lineages:
            self._orphan(recording, first, writers, base)

    def _conflict(self, recording: bytes, writer: bytes, writers: Sequence[bytes]) -> bool:
        marks = ",".join("?" * len(writers))
        row = self._catalog.db.execute(
            "SELECT 1 FROM extra AS a JOIN extra AS b ON a.recording=b.recording AND a.seq=b.seq AND a.leaf != b.leaf "
            f"WHERE a.recording=? AND a.writer=? AND b.writer IN ({marks}) LIMIT 1",
            (recording, writer, *writers),
        ).fetchone()
        return row is not None

    def _extension(self, base: tuple[str, Group, Written], recording: bytes, writers: Sequence[bytes]) -> None:
        """A recording with records behind the end that its newest sound manifest knows."""
        name, group, before = base
        content = group.content
        sources: list[Source] = [ManifestSource(self._catalog, manifest) for manifest in group.manifests]
        sources += [FactSource(self._catalog, recording, writer) for writer in writers]
        sources.append(FactSource(self._catalog, recording, below=content.records))
        writer, losses, _ = self._records(name, content, sources, None, (), keys=False)
        extends = group.manifests[0].content_digest if before.exact else None
        changed = msgspec.structs.replace(
            content,
            state="incomplete",
            extends=extends if not losses.counts and not losses.dropped else None,
            derived_from=None,
            error=losses.note(None),
        )
        self._target.lost.append((name, "manifest", None, None, "records follow that no manifest names any more"))
        self._target.commit(name, Written(writer, losses, changed, None, False, group.manifests[0].storage.withheld))

    def _orphan(
        self,
        recording: bytes,
        first: int,
        writers: Sequence[bytes],
        base: tuple[str, Group, Written] | None,
    ) -> None:
        """A recording without a manifest."""
        sources: list[Source] = [FactSource(self._catalog, recording, writer) for writer in writers]
        if first:
            if base is not None:
                sources += [ManifestSource(self._catalog, manifest, first) for manifest in base[1].manifests]
            sources.append(FactSource(self._catalog, recording, below=first))
        name = self._target.name(self._hint(recording), recording)
        content = _unknown_content(recording)
        writer, losses, _ = self._records(name, content, sources, None, (), keys=True)
        started = self._started(recording)
        changed = msgspec.structs.replace(content, started=started, error=losses.note(None))
        self._target.lost.append(
            (name, "manifest", None, None, "no manifest of it is left: metadata and policies are unknown")
        )
        self._target.commit(name, Written(writer, losses, changed, None, False))

    def _started(self, recording: bytes) -> str:
        for _, _, short in FactSource(self._catalog, recording).frames():
            if self._catalog.sound(short):
                for stored, inline in zip(*RecordFrame(self._catalog.raw(short)).stored_rows(), strict=True):
                    if stored:
                        start = parse_stored_row(stored, inline)[0].start
                        return now_rfc3339(start if 0 <= start < 1 << 62 else 0)
        return now_rfc3339(0)

    def _told_alone(self, recording: bytes, base: tuple[str, Group, Written] | None) -> None:
        """Note records that tables of contents, or pages, name, where neither a manifest nor a sound frame does."""
        end = self._ends.get(recording, 0)
        losses = Losses()
        for first, items, _ in sorted(FactSource(self._catalog, recording).frames()):
            if first + items > end:
                losses.add("records", max(first, end), first + items - 1, "no frame that holds them is sound")
        name = base[0] if base is not None else self._hint(recording)
        self._target.lost += [(name, what, a, b, why) for what, ranges in losses.ranges.items() for a, b, why in ranges]

    def _unknown(self, named: dict[str, list[Manifest]]) -> None:
        """Note what may be lost and cannot be told."""
        for name, revision, reason in self._catalog.broken:
            sound = [manifest.storage.revision for manifest in named.get(name, ())]
            if not sound or (revision is not None and max(sound) < revision):
                item = (self._target.names.get(name, name), "manifest", None, None, reason)
                if not any(lost[0] == item[0] and lost[1] == "manifest" for lost in self._target.lost):
                    self._target.lost.append(item)
        for key in self._catalog.objects_with_damage():
            if not self._exact_packs.intersection(pack_digests_in(key)):
                reason = f"{key} has no table of contents: what is damaged in it is not known"
                self._target.lost.append(("", "unknown", None, None, reason))


def _unknown_content(recording: bytes) -> Content:
    return Content(
        id=recording.hex(),
        state="incomplete",
        started=now_rfc3339(0),
        metadata={},
        recorded_by=f"replaypack {__version__}",
        match=Match("none", 1),
        redaction=Redaction("none", 1),
        records=0,
        counts={},
        merkle_root=digest(b"").hex(),
        extends=None,
        derived_from=None,
        error=None,
    )
