"""Finishing what a dead recorder left: its journal becomes a revision (spec chapter 08, "Recovery").

The input is never edited: a journal is read, its records are published, the revision is read back, and only
then is the journal deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ._read.cache import Cache
from ._read.index import Index
from ._read.packs import PackReader
from ._write.journal import Leftover, find_leftovers, journal_directory, remove_unnamed, require_readable
from ._write.literals import LARGE, LiteralStream
from ._write.publish import Progress, Publisher, progress_of
from ._write.reuse import renamed
from ._write.segment import PACK_TARGET, SegmentBuilder
from .errors import ConflictError, FormatError, JournalError, RecordingExistsError, ReplaypackError, without_frames
from .format.frame import MAX_FRAME
from .format.journal import JournalHead, JournalRecord
from .format.manifest import Manifest
from .format.manifest_checks import content_problem
from .format.manifest_members import Content, PackRef
from .format.merkle import leaf_hash
from .format.names import open_key, revision_key, sibling_name
from .format.record_frame import MAX_FRAME_RECORDS, Entry, encode_frame
from .format.row import discriminator, parse_stored_row
from .format.summary import Summary
from .format.table import BlobEntry, Location, pack_blob, pack_key

if TYPE_CHECKING:
    from .archive import Archive

__all__ = ["Recovered", "finish_leftover", "recover", "recover_leftover"]


class Recovered(NamedTuple):
    """What became of one journal: the recording, its records, those that came from the journal, or what is wrong."""

    name: str
    records: int
    from_journal: int
    journal: str
    error: ReplaypackError | None


def recover(archive: Archive, *, keep_journals: bool = False) -> Iterator[Recovered]:
    """Finish every recording of ``archive`` whose recorder died on this machine, one after another.

    Journals of living recorders are left alone. A journal that cannot be used is reported, kept, and does not
    stop the others.

    Raises `AccessDeniedError` where the journals are another user's, and this one may not look.
    """
    directory = journal_directory(archive.storage)
    require_readable(directory)
    remove_unnamed(directory)
    leftovers, broken = find_leftovers(directory)
    for path, error in broken:
        yield Recovered("?", 0, 0, str(path), error)
    for leftover in leftovers:
        with leftover.held() as held:
            if not held:
                continue  # another process is at it
            try:
                result = recover_leftover(archive, leftover, keep_journals=keep_journals)
            except ReplaypackError as error:
                result = Recovered(leftover.head.name, 0, 0, str(leftover.paths[0]), without_frames(error))
        yield result


def recover_leftover(archive: Archive, leftover: Leftover, *, keep_journals: bool = False) -> Recovered:
    """Publish the records of one dead recorder as the revision it would have sealed, marked ``incomplete``.

    Where its claim is not there (any more), or another's, the records become a sibling recording. One that died
    before its first record leaves what it would have continued or replaced as it was. The caller holds the journals.

    Raises `FormatError`, `JournalError`, `StorageError`.
    """
    head = leftover.head
    journal = str(leftover.paths[0])
    done = _already_committed(archive, leftover)
    if done is not None:
        _drop(leftover, keep_journals)
        return Recovered(head.name, done.content.records, 0, journal, None)
    claim = archive.manifests.get(revision_key(head.name, head.revision))
    claimed = claim is not None and claim.storage.writer == head.writer
    if not claimed and head.number == 0 and not _has_records(leftover):
        _drop(leftover, keep_journals)  # it died, or was refused, before it had its claim
        return Recovered(head.name, 0, 0, journal, None)
    base = _published(archive, leftover, claim)
    rebuilt, damage = rebuild(archive, leftover)
    publisher = rebuilt.publisher
    if claim is not None and claimed and head.claim != "create" and base in (None, claim) and not rebuilt.added:
        publisher.restore(claim)
        _drop(leftover, keep_journals)
        return Recovered(head.name, claim.content.records, 0, journal, None)
    name, revision = rebuilt.commit(sibling=_overtaken(archive, head) if claim is None else not claimed)
    check = archive.open(name, revision)
    if len(check) != rebuilt.tree.count:  # pragma: no cover - the store lost what it confirmed
        raise JournalError(f"the store shows {len(check)} records of {name!r}, not {rebuilt.tree.count}")
    if damage is not None:
        kept = [path.rename(path.with_name(path.name + ".damaged")) for path in leftover.paths]
        problem = JournalError(
            f"{damage}; {rebuilt.tree.count} records of {name!r} are published, and the journal is kept as {kept[0]}"
        )
        return Recovered(name, rebuilt.tree.count, rebuilt.added, journal, problem)
    _drop(leftover, keep_journals)
    return Recovered(name, rebuilt.tree.count, rebuilt.added, journal, None)


def finish_leftover(archive: Archive, name: str, if_exists: str) -> None:
    """Finish what a dead recorder left of a name, before it is recorded again; with ``"error"`` only say so.

    Raises `RecordingExistsError`, and as `recover_leftover` does.
    """
    for leftover in archive.leftovers():
        if leftover.head.name != name:
            continue
        if if_exists == "error":
            raise RecordingExistsError(
                f"a recorder of {archive.url}#{name} died and left records in {leftover.paths[0].parent}",
                hint=f"run `replaypack recover {archive.url}`, or record with if_exists='append'",
            )
        with leftover.held() as held:
            if held:
                recover_leftover(archive, leftover)
            elif any(path.exists() for path in leftover.paths):
                raise RecordingExistsError(
                    f"{archive.url}#{name} is being recovered by another process", hint="try again when it is done"
                )


def published_of(archive: Archive, leftover: Leftover) -> Manifest | None:
    """What a recorder had published, or what its claim repeated; None for nothing."""
    return _published(
        archive, leftover, archive.manifests.get(revision_key(leftover.head.name, leftover.head.revision))
    )


def rebuild(archive: Archive, leftover: Leftover) -> tuple[_Rebuilt, FormatError | None]:
    """Read journals back behind what their recorder had published; the error is where one of them is damaged.

    Raises `FormatError`, `JournalError`, `StorageError`.
    """
    head = leftover.head
    journal = str(leftover.paths[0])
    claim = archive.manifests.get(revision_key(head.name, head.revision))
    base = _published(archive, leftover, claim)
    template = _template(head, journal)
    records = base.content.records if base is not None else 0
    publisher = _publisher(archive, leftover, template, base, claim)
    rebuilt = _Rebuilt(publisher, base)
    damage: FormatError | None = None
    firsts = [journal_head.first for journal_head, _ in leftover.records()]
    for number, (journal_head, entries) in enumerate(leftover.records()):
        if journal_head.first < records:
            continue  # published before its recorder died
        if any(first <= journal_head.first for first in firsts[number + 1 :]):
            continue  # written anew, without a secret that was learned later, just before its recorder died
        rebuilt.map(journal_head)
        if journal_head.first != rebuilt.tree.count or journal_head.literals != rebuilt.stream.end:
            raise JournalError(
                f"the journal begins at record {journal_head.first}, but only {rebuilt.tree.count} are known",
                hint="the store does not show what this recorder published: is it the right URL?",
            )
        while True:
            try:
                entry = next(entries, None)
            except FormatError as error:
                damage = error  # what came before it is whole, and is published
                break
            if entry is None:
                break
            rebuilt.add(entry, where=journal)
        rebuilt.finish()
        if damage is not None:
            break
    return rebuilt, damage


def _template(head: JournalHead, where: str) -> Content:
    """The content that a journal continues."""
    try:
        content = msgspec.convert(head.content, Content)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FormatError(f"the content in a journal has an unsound member: {error}", where=where) from None
    problem = content_problem(content)
    if problem:
        raise FormatError(f"the content in a journal is unsound: {problem}", where=where)
    return content


def _drop(leftover: Leftover, keep: bool) -> None:
    if not keep:
        for path in leftover.paths:
            Path(path).unlink(missing_ok=True)


def _already_committed(archive: Archive, leftover: Leftover) -> Manifest | None:
    """The revision of this very recorder, if it died between the commit and the deletion of its journal."""
    head = leftover.head
    for name, revision in ((head.name, head.revision + 1), (sibling_name(head.name, head.writer), 1)):
        found = archive.manifests.get(revision_key(name, revision))
        if found is not None and found.storage.writer == head.writer:
            return found
    return None


def _overtaken(archive: Archive, head: JournalHead) -> bool:
    """Whether there are later revisions than the one that was claimed, which is gone: a collector took it."""
    newest = archive.manifests.newest(head.name, fresh=True)
    return newest is not None and newest.storage.revision > head.revision


def _has_records(leftover: Leftover) -> bool:
    return any(next(entries, None) is not None for _, entries in leftover.records())


def _published(archive: Archive, leftover: Leftover, claim: Manifest | None) -> Manifest | None:
    """What the recorder had published: its last checkpoint, or what its claim repeated."""
    head = leftover.head
    checkpoint = archive.manifests.get(open_key(head.name, head.revision))
    if checkpoint is not None and checkpoint.storage.writer == head.writer:
        return checkpoint
    if head.claim != "append":
        return None
    if claim is None or claim.storage.writer != head.writer:
        raise JournalError(
            f"the claim of {head.name!r} that the journal continues is missing", hint="is it the right URL?"
        )
    return claim


def _publisher(
    archive: Archive, leftover: Leftover, template: Content, base: Manifest | None, claim: Manifest | None
) -> Publisher:
    head = leftover.head
    return Publisher(
        archive.storage,
        head.name,
        writer=bytes.fromhex(head.writer),
        mode=head.claim,
        template=template,
        base=base,
        base_packs=Index(base, PackReader(archive.storage), Cache(0)).packs if base is not None else (),
        revision=head.revision,
        previous=claim.digest if claim is not None else None,
        packs_by=renamed(bytes.fromhex(head.writer), archive.storage),
    )


class _Rebuilt:
    """Feeds journal records through the same builders as the recorder did, frame for frame."""

    def __init__(self, publisher: Publisher, base: Manifest | None) -> None:
        self.publisher = publisher
        self.tree, self.counts, literals, self._inlines, _ = progress_of(base)
        self._summary = Summary()
        #: Records that came from journals.
        self.added = 0
        self.stream = LiteralStream(literals)
        self._builder = SegmentBuilder(self.tree.count, self._inlines)
        self._frame: list[Entry] = []
        self._keys = bytearray()
        self._size = 0

    def map(self, head: JournalHead) -> None:
        """Map the frames of other recordings in that the recorder reused."""
        for first, raw, items, digest, pack, size, *at in head.external:
            if first != self.stream.end:
                raise JournalError("the journal maps other recordings' literals to where there are some already")
            self._builder.add_external(first, raw, items, digest, PackRef(pack, size), Location(*at))
            self.publisher.reused.add(PackRef(pack, size))
            self.stream = LiteralStream(first + items)

    def add(self, record: JournalRecord, *, where: str) -> None:
        if record.starts_frame:
            self._close_frame()
            if self._builder.size >= PACK_TARGET:
                self.publisher.spill(self._builder)
        row, data = parse_stored_row(record.entry.row, record.entry.inline, where=where)
        if row.seq != self.tree.count:
            raise FormatError(f"record {row.seq} follows record {self.tree.count - 1}", where=where)
        self._keys += pack_key(row.key, discriminator(row.scope), row.seq)
        entry = record.entry
        self._frame.append(entry)
        self._size += len(entry.row) + len(entry.recipes) + len(entry.inline or b"") + 12
        if self._size > MAX_FRAME - 16 or len(self._frame) > MAX_FRAME_RECORDS:
            raise FormatError("the records of a frame are more than one may hold", where=where)
        self._inlines += len(record.entry.inline or b"")
        self.tree.add(leaf_hash(data))
        self._summary.add(row)
        self.added += 1
        self.counts[row.kind] = self.counts.get(row.kind, 0) + 1
        if row.response_size >= 4096:
            self._builder.add_blob(pack_blob(BlobEntry(row.response_digest[:16], row.seq, 2)))
        # What a record added was appended in several parts; only parts of `LARGE` bytes and more were set apart,
        # and one that large among smaller ones cannot be told here. It is stored like the others then.
        for start in range(0, len(record.literals), LARGE - 1):
            self.stream.add(record.literals[start : start + LARGE - 1])
        self._hand_over()

    def _hand_over(self) -> None:
        for offset, raw in self.stream.closed:
            self._builder.add_literal_frame(offset, raw)
        self.stream.closed.clear()
        self._builder.compress(self.publisher.compressor)

    def _close_frame(self) -> None:
        if self._frame:
            self._builder.add_record_frame(len(self._frame), encode_frame(self._frame))
            self._builder.add_keys(bytes(self._keys))
            self._frame, self._keys, self._size = [], bytearray(), 0

    def finish(self) -> None:
        """Close the segment."""
        self._close_frame()
        self.stream.cut()
        self._hand_over()
        if self._builder.count:
            self.publisher.add_segment(self._builder)
        self._builder = SegmentBuilder(self.tree.count, self._inlines)

    def commit(self, *, sibling: bool) -> tuple[str, int]:
        """Publish the revision, or a ``sibling`` where the name is another's; return its name and revision."""
        publisher = self.publisher
        publisher.merge_all()
        note: dict[str, Any] = {"type": "Interrupted", "message": "the recorder died; recovered from its journal"}
        progress = Progress(self.tree, self.counts, self.stream.end, self._inlines, self._summary)
        if sibling:
            return publisher.commit_sibling("recover", "incomplete", progress, note), 1
        try:
            manifest = publisher.commit("recover", "incomplete", progress, note)
        except ConflictError as conflict:
            return conflict.sibling or "", 1
        return publisher.name, manifest.storage.revision
