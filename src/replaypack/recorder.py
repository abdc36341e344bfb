"""`Recorder`: records in, in order, from any thread; out of the way of the program that runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from ._arguments import check_number, check_text, check_type
from ._plain import survey
from ._process import process_id
from ._threads import in_thread
from ._write.base import External, Seed
from ._write.histories import Histories
from ._write.journal import JournalFile, journal_directory, journals_of
from ._write.literals import LARGE, LiteralStream, Splitter
from ._write.prepare import Prepared, PreparedCall, describe_error, prepare, prepare_call
from ._write.publish import Progress, Publisher, progress_of
from ._write.redact import redact_parts
from ._write.segment import RECORD_FRAME, SegmentBuilder
from ._write.worker import Worker
from .errors import (
    JournalError,
    PublishError,
    RecorderClosedError,
    ReplaypackError,
    UsageError,
)
from .format.journal import JOURNAL_VERSION, JournalHead, encode_record
from .format.manifest import Manifest
from .format.merkle import leaf_hashes
from .format.notes import check_metadata, error_note, match_policy
from .format.recipe import encode_ops
from .format.record_frame import Entry, stored_row
from .format.row import Row, discriminator, encode_row
from .format.summary import Summary
from .format.table import INLINE_SPACE, BlobEntry, pack_blob, pack_key
from .policies.matching import MatchPolicy
from .policies.redaction import VALUES_ONLY, Redactor
from .values import ABSENT, decode_payload

if TYPE_CHECKING:
    from ._learn import LearnedSecret
    from .recording import Record

__all__ = ["Recorder"]

#: Bytes of entries of keys (30 a record) that are held before their table is written.
_MAX_KEYS = 4 << 20
#: Records whose leaves and runs are computed together.
_TOGETHER = 32
#: Ranges that the recipes of a record frame may resolve to; readers refuse 16 times as many.
_FRAME_RANGES = 1 << 20


class Recorder:
    """Writes one recording. Made by `Archive.recorder`; a context manager.

    Leaving the ``with`` block seals the recording; leaving it by an exception seals it as ``incomplete`` with the
    error noted (or leaves no trace of it, see `Archive.recorder`), and the exception goes on. `append` may be called
    from any thread and from asyncio tasks.
    Compression and upload happen in a background thread.
    """

    def __init__(
        self,
        publisher: Publisher,
        *,
        progress: Progress,
        seed: Seed,
        sync: Literal["flush", "record"] = "flush",
        flush_interval: float | None = 5.0,
        redactor: Redactor | None = None,
        on_error: Literal["incomplete", "discard"] = "incomplete",
    ) -> None:
        self._publisher = publisher
        self._redactor = redactor
        #: How many times a secret was learned.
        self._learned = 0
        self._flush_interval = flush_interval
        self._on_error = on_error
        self._match = match_policy(publisher.template.match)
        self._tree = progress.tree
        #: Records appended so far. The last ones wait to be taken into tree and summary.
        self._count = progress.tree.count
        self._unsummed: list[tuple[Row, bytes]] = []
        self._counts = progress.counts
        self._inlines = progress.inlines
        self._summary: Summary | None = Summary()
        self._sync_records = sync == "record"
        self._stream = LiteralStream(seed.end)
        self._splitter = Splitter(self._stream)
        for pieces, ranges in seed.blobs:
            self._splitter.learn(pieces, ranges)
        self._histories = Histories()
        self._lock = threading.Lock()
        self._pid = process_id()
        self._salts: list[bytes] = []
        self._blobs: list[bytes] = []
        self._frame: list[Entry] = []
        self._frame_size = 0
        self._frame_keys = bytearray()
        self._journal_number = 0
        self._journal_directory = journal_directory(publisher.storage)
        self._journal = self._new_journal(seed.external)
        self._closed = False
        self._failure: ReplaypackError | None = None
        self._manifest: Manifest | None = None
        builder = SegmentBuilder(progress.tree.count, progress.inlines)
        for external in seed.external:
            builder.add_external(*external)
        self._worker = self._new_worker(builder)
        self._worker.start()

    def _new_worker(self, builder: SegmentBuilder) -> Worker:
        return Worker(
            self._publisher,
            builder,
            interval=self._flush_interval,
            close_segment=self._close_by_time,
            count=lambda: self._count,
            journals=self._journal_directory,
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "recording"
        return f"<Recorder {self.name!r} in {self._publisher.storage.url}, {state}, {self._count} records>"

    # What it is

    @property
    def name(self) -> str:
        """The recording's name."""
        return self._publisher.name

    @property
    def locator(self) -> str:
        """``URL#name``, to open the recording by."""
        return f"{self._publisher.storage.url}#{self.name}"

    @property
    def match(self) -> MatchPolicy:
        """The match policy that keys are computed with."""
        return self._match

    def key_of(self, kind: str, identity: object) -> bytes:
        """The key (32 bytes) that `append` gives a call, its match policy applied.

        Raises `CanonicalizationError` with the path.
        """
        return self._match.key(kind, identity)

    @property
    def count(self) -> int:
        """Records appended so far, those of the recording it continues included."""
        return self._count

    @property
    def published(self) -> int:
        """Records that other processes can read already."""
        return self._publisher.published

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the sealed recording; None before."""
        return self._manifest

    # Writing

    def prepare_call(
        self,
        kind: str,
        identity: object = ABSENT,
        *,
        key: str | bytes | None = None,
        name: str | None = None,
        request: object = ABSENT,
    ) -> PreparedCall:
        """Take down a call that is about to be made, for ``append(call=…)`` when it is over.

        Key and request are those of the arguments as they are now, whatever the callee does to them. Nothing is
        written. Raises as `append` does.
        """
        return self._prepare_call(kind, identity, key, name, request)

    def append(
        self,
        *,
        kind: str = "",
        call: PreparedCall | None = None,
        identity: object = ABSENT,
        key: str | bytes | None = None,
        name: str | None = None,
        request: object = ABSENT,
        response: object = ABSENT,
        error: BaseException | Mapping[str, Any] | None = None,
        scope: str | None = None,
        status: Literal["ok", "error", "interrupted"] | None = None,
        start: int | None = None,
        duration: int | None = None,
        flags: Iterable[str] = (),
        attributes: Mapping[str, Any] | None = None,
        salt: bytes | None = None,
        key_digest: bytes | None = None,
        key_scheme: str | None = None,
    ) -> int:
        """Record one call and return its sequence number, counted from 0.

        ``kind`` is the boundary (``"tool"``, ``"model"``, ``"http"``, …). Its key comes from ``identity``, what
        tells one call from another, or from ``key``, which the host supplies and which is never recomputed;
        ``request`` is what was sent where that is not the identity. ``response`` is what came back; after a
        failure give ``error`` instead. A ``call`` from `prepare_call` takes the place of ``kind``, ``identity``,
        ``key``, ``name`` and ``request``. ``start`` (nanoseconds since the epoch) and ``duration`` (nanoseconds)
        default to a call that ends now and took no time. A record that comes from elsewhere keeps its key with
        ``key_digest`` (the 32 bytes that a key is, instead of ``key``) and ``key_scheme`` (how it was made, by default
        ``opaque``), and its ``salt`` (8 bytes), which makes its leaf the same.

        When this returns the record is in the local journal and survives the death of the process.

        Raises `ValueEncodingError` or `CanonicalizationError` (with the path) for what cannot be stored, before
        anything is written; `UsageError` for arguments that contradict each other; `JournalError` where the
        local disk fails; `PublishError` where the store has failed for so long that no more fits in memory;
        `RecorderClosedError`.
        """
        learned = self._learned
        if key_digest is not None:
            if type(key_digest) is not bytes or len(key_digest) != 32 or key is not None or call is not None:
                raise UsageError("a key digest is 32 bytes, and takes the place of a key")
            key = b"" if identity is ABSENT else None
        if key_scheme is not None:
            check_text("key_scheme", key_scheme)
        if call is None:
            call = self._prepare_call(kind, identity, key, name, request)
        elif kind or name is not None or key is not None or identity is not ABSENT or request is not ABSENT:
            raise UsageError("a prepared call has its kind, name, key, identity and request already")
        prepared, label = self._prepare(call, response, error, scope, status, flags, attributes)
        if salt is not None and (type(salt) is not bytes or len(salt) != 8):
            raise UsageError("a salt is 8 bytes")
        check_number("duration", duration, "nanoseconds, an integer")
        check_number("start", start, "nanoseconds since the epoch, an integer")
        if start is None:
            start = max(0, time.time_ns() - (duration or 0))
        self._worker.wait_for_room()
        with self._lock:
            self._check_open()
            if self._learned != call.learned or self._learned != learned:
                call = self._prepare_again(call)  # a secret was learned meanwhile
                prepared, label = self._prepare(call, response, error, scope, status, flags, attributes)
            if key_digest is not None:
                prepared.key, prepared.scheme = key_digest, key_scheme or "opaque"
            try:
                return self._append(prepared, label, start, duration or 0, salt)
            except BaseException as problem:
                # Ctrl-C, or no memory: what is in the journal and what is in memory may differ by this record.
                # Nothing more is appended; the journal has whatever was acknowledged.
                if self._failure is None:
                    self._failure = RecorderClosedError(f"an append was cut short by {type(problem).__name__}")
                raise

    def _prepare_call(
        self, kind: str, identity: object, key: str | bytes | None, name: str | None, request: object
    ) -> PreparedCall:
        """A call without secrets, taken down."""
        learned, bits = self._learned, 0
        if self._redactor is not None:
            # One look at the call serves the search for secrets, the key and the encoding.
            if identity is not ABSENT:
                identity = survey(identity)
            if not self._redactor.is_clean((kind, identity, key, name, request)):
                parts = [kind, identity, key, name, request]
                bits = redact_parts(self._redactor, parts)
                kind, identity, key, name, request = parts  # type: ignore[assignment]
        call = prepare_call(kind, identity, key, name, request, self._histories, self._match)
        call.flags, call.learned = bits, learned
        return call

    def _prepare_again(self, call: PreparedCall) -> PreparedCall:
        """A call that was taken down before a secret was learned, without it."""
        blobs = iter([b"".join(pieces) for pieces in call.recipes])
        request, identity = [
            ABSENT if ref is None else decode_payload(ref.encoding, next(blobs))
            for ref in (call.request, call.identity)
        ]
        if call.scheme == "identity":
            if call.identity is None:
                request, identity = ABSENT, request
            again = self._prepare_call(call.kind, identity, None, call.name, request)
        else:
            again = self._prepare_call(call.kind, ABSENT, b"", call.name, request)
            again.key, again.scheme = call.key, call.scheme
        again.flags |= call.flags
        return again

    def _prepare(
        self,
        call: PreparedCall,
        response: object,
        error: BaseException | Mapping[str, Any] | None,
        scope: str | None,
        status: str | None,
        flags: Iterable[str],
        attributes: Mapping[str, Any] | None,
    ) -> tuple[Prepared, str | None]:
        """The record of a call without secrets, before it has a place, and its scope."""
        bits = call.flags
        if isinstance(error, BaseException):
            error = describe_error(error)
        if self._redactor is not None and not self._redactor.is_clean((response, error, scope, attributes)):
            parts = [response, error, scope, attributes]
            bits |= redact_parts(self._redactor, parts)
            response, error, scope, attributes = parts  # type: ignore[assignment]
        prepared = prepare(call, response, error, scope, status, flags, attributes)
        prepared.flags |= bits
        return prepared, scope

    def _append(self, p: Prepared, scope: str | None, start: int, duration: int, salt: bytes | None) -> int:
        seq = self._count
        if salt is None:
            # Random bytes are drawn a few hundred records at a time: each draw is a system call.
            if not self._salts:
                drawn = os.urandom(8 * 256)
                self._salts = [drawn[at : at + 8] for at in range(0, len(drawn), 8)]
            salt = self._salts.pop()
        splitter = self._splitter
        starts_frame = not self._frame
        if starts_frame:
            splitter.begin_frame()
            splitter.inlines.begin_frame(INLINE_SPACE + self._inlines)
        recipes = b""
        for pieces in p.recipes:
            recipes += encode_ops(splitter.recipe(pieces))
        fields = Row(
            seq,
            p.kind,
            p.name,
            p.key,
            p.scheme,
            scope,
            p.request,
            p.identity,
            start,
            duration,
            p.status,
            p.flags,
            p.attributes,
            salt,
            p.response.size,
            p.response.encoding,
            p.response.digest,
        )
        row = encode_row(fields)
        entry = Entry(stored_row(row, p.inline), recipes, p.inline)
        try:
            self._journal.append(encode_record(entry, self._stream.take_fresh(), starts_frame=starts_frame))
            if self._sync_records:
                self._journal.sync()
        except JournalError as error:
            self._failure = error
            raise
        self._frame_keys += pack_key(p.key, discriminator(scope), seq)
        self._frame.append(entry)
        self._frame_size += len(entry.row) + len(recipes) + 12
        if p.inline:
            self._frame_size += len(p.inline)
            splitter.inlines.note(INLINE_SPACE + self._inlines, p.inline)
            self._inlines += len(p.inline)
        self._count = seq + 1
        self._unsummed.append((fields, row))
        if len(self._unsummed) >= _TOGETHER:
            self._sum_up()
        self._counts[p.kind] = self._counts.get(p.kind, 0) + 1
        for blob, role in p.listed:
            self._blobs.append(pack_blob(BlobEntry(blob[:16], seq, role)))
        if self._stream.closed:
            self._hand_over_literals()
        if self._frame_size >= RECORD_FRAME or splitter.frame_ranges >= _FRAME_RANGES:
            self._close_frame()
            if self._worker.segment_keys >= _MAX_KEYS:
                self._close_segment(publish=True)
        return seq

    def _sum_up(self) -> None:
        """Take what was appended into the tree and the summary: several records together cost less."""
        fields, rows = [item[0] for item in self._unsummed], [item[1] for item in self._unsummed]
        self._unsummed.clear()
        self._tree.add_all(leaf_hashes(rows))
        if self._summary is not None:
            self._summary.add_all(fields)

    def _hand_over_literals(self) -> None:
        for offset, raw in self._stream.closed:
            self._worker.put(("large" if len(raw) >= LARGE else "literal", offset, raw), len(raw))
        self._stream.closed.clear()

    def _close_frame(self) -> None:
        if self._frame:
            self._worker.put(("record", self._frame, bytes(self._frame_keys), self._blobs), self._frame_size)
            self._frame, self._frame_keys, self._frame_size, self._blobs = [], bytearray(), 0, []

    def _close_segment(self, *, publish: bool) -> None:
        """Close frames and segment, so that what was appended so far can be published. Holds the lock."""
        self._close_frame()
        self._stream.cut()
        self._hand_over_literals()
        state = self._progress().copy()
        old = self._journal
        if publish:
            self._journal = self._new_journal()
        self._worker.put(("finish", state, old if publish else None), 0)

    def _close_by_time(self) -> None:
        """What the background thread asks for when it is time to publish."""
        if not self._lock.acquire(timeout=1.0):
            return
        try:
            if not self._closed and self._failure is None and self._worker.unpublished(self._count):
                self._close_segment(publish=True)
        finally:
            self._lock.release()

    def _progress(self) -> Progress:
        if self._unsummed:
            self._sum_up()
        return Progress(self._tree, self._counts, self._stream.end, self._inlines, self._summary)

    def _new_journal(self, external: Iterable[External] = (), *, named: bool = True) -> JournalFile:
        p = self._publisher
        head = JournalHead(
            version=JOURNAL_VERSION,
            archive=p.storage.url,
            name=p.name,
            revision=p.revision,
            claim=p.mode,
            writer=p.writer.hex(),
            number=self._journal_number,
            first=self._count,
            literals=self._stream.end,
            inlines=self._inlines,
            external=[(e.first, e.raw, e.items, e.digest, e.pack.digest, e.pack.size, *e.at) for e in external],
            content=msgspec.to_builtins(p.template),
        )
        self._journal_number += 1
        return JournalFile(self._journal_directory, head, named=named)

    def _check_open(self) -> None:
        if process_id() != self._pid:
            raise RecorderClosedError("a recorder cannot be used in a forked process", hint="open one there")
        if self._failure is not None:
            raise RecorderClosedError(f"the recorder stopped after an error: {self._failure}")
        if self._closed:
            raise RecorderClosedError("the recorder is sealed")

    def flush(self) -> None:
        """Publish what was appended so far: readers can see it, and it survives the loss of this machine's memory.

        Raises `PublishError` where the store fails; the records stay in the journal and a later flush tries again.
        """
        while True:
            with self._lock:
                self._check_open()
                self._journal.sync()
                worker = self._worker
                if worker.unpublished(self._count):
                    self._close_segment(publish=True)
            try:
                worker.drain()
            except PublishError:
                with self._lock:  # while a secret is learned the old thread has ended, and no other has taken over
                    if worker is self._worker:
                        raise
                continue
            return

    def learn_secret(self, *secrets: str | bytes) -> LearnedSecret:
        """Remove these values from here on, and from all that is not published yet: journal and memory.

        What is published already cannot be called back: the records that hold one of them are in the result, and a
        `ReplaypackWarning` lists them. Values have 6 bytes and more. Takes as long as reading what this recorder
        wrote; calls of `append` wait meanwhile.

        Raises `UsageError` for a value that is too short, and `FormatError`, `JournalError` or `StorageError` where
        what was written cannot be read back: then nothing more is recorded, and the journal still holds the secret.
        """
        from ._learn import LearnedSecret, warn_of

        with self._lock:
            self._check_open()
            if self._redactor is None:
                self._redactor = Redactor(VALUES_ONLY)
            if not self._redactor.learn(*secrets):
                return LearnedSecret(0, [], False, [])
            self._learned += 1
            try:
                result = self._write_anew(secrets)
            except BaseException as problem:
                self._failure = RecorderClosedError(
                    f"a secret could not be removed from the journal: {type(problem).__name__}"
                )
                raise
        warn_of(self.name, result)
        return result

    def _write_anew(self, secrets: tuple[str | bytes, ...]) -> LearnedSecret:
        """Append everything that is not published once more, to a new journal. Holds the lock."""
        from ._learn import LearnedSecret, ReadBack, find_published

        publisher, redactor = self._publisher, self._redactor
        assert redactor is not None
        old = [*self._worker.halt(), self._journal]
        try:
            back = ReadBack(publisher.storage, [journal.path for journal in old])
            metadata = redactor.redact(publisher.template.metadata)
            dirty = metadata is not publisher.template.metadata
            publisher.template = msgspec.structs.replace(publisher.template, metadata=metadata)
            before = self._count
            staying = publisher.rewind(back.base, back.packs)
            self._tree, self._counts, literals, self._inlines, _ = progress_of(back.base)
            self._count, self._unsummed = self._tree.count, []
            self._summary = None  # of what is published already it is not known any more
            first = self._count
            self._stream = LiteralStream(literals)
            self._splitter = Splitter(self._stream)
            self._blobs, self._frame, self._frame_size, self._frame_keys = [], [], 0, bytearray()
            # Its thread begins when all is done: until then nothing is handed over, and nothing published.
            self._worker = self._new_worker(SegmentBuilder(first, self._inlines))
            self._journal = self._new_journal(named=False)
            for record in back.records():
                self._append_anew(record)
            assert self._count == before
            self._journal.sync()
            self._journal.name()
        except BaseException:
            for journal in old:
                journal.close(delete=False)
            if self._journal not in old:
                self._journal.close(delete=False)
                self._journal.path.with_suffix(".new").unlink(missing_ok=True)
            raise
        for journal in old:
            journal.close(delete=True)
        self._worker.start()
        own = publisher.base.content.records if publisher.base is not None else 0
        published = find_published(publisher.storage, self.name, back.base, own, secrets)
        return LearnedSecret(before - first, published, dirty, staying)

    def _append_anew(self, record: Record) -> None:
        row = record.row
        opaque = row.scheme != "identity"
        call = self._prepare_call(
            row.kind,
            ABSENT if opaque else record.identity,
            b"" if opaque else None,
            row.name,
            record.request if opaque or row.identity is not None else ABSENT,
        )
        if opaque:
            call.key, call.scheme = row.key, row.scheme
        prepared, scope = self._prepare(
            call, record.response, None, row.scope, record.status, record.flags, row.attributes
        )
        self._append(prepared, scope, row.start, row.duration, row.salt)

    def seal(
        self, *, state: Literal["sealed", "incomplete"] = "sealed", error: Mapping[str, Any] | None = None
    ) -> Manifest:
        """Finish the recording and return its manifest; nothing can be appended after.

        ``state="incomplete"`` says that the run did not come to its end, and ``error`` why: it is noted in the
        manifest as far as JSON has a form for it.

        Raises `PublishError` where the store fails (the journal stays; `recover` finishes the recording) and
        `ConflictError` where another writer committed first (the records are kept as a sibling recording).
        """
        if state not in ("sealed", "incomplete"):
            raise UsageError(f"state={state!r} is not 'sealed' or 'incomplete'")
        check_type("error", error, Mapping, "a mapping")
        note = None
        if error:
            note = error_note(dict(error) if self._redactor is None else self._redactor.redact(dict(error))) or None
        with self._lock:
            if self._manifest is not None:
                return self._manifest
            self._check_open()
            self._journal.sync()
            if self._worker.unpublished(self._count):
                self._close_segment(publish=False)
            self._closed = True
            progress = self._progress()
        # The thread deletes the journal once it has committed, whether or not this one still waits for it.
        try:
            self._manifest = self._worker.seal(state, note, progress, self._journal)
        except PublishError:
            self._worker.stop()
            raise
        return self._manifest

    def _note_metadata(self, more: Mapping[str, Any]) -> None:
        """Add to the metadata that the sealed recording will have. Raises `CanonicalizationError`."""
        with self._lock:
            self._check_open()
            metadata = {**self._publisher.template.metadata, **more}
            check_metadata(metadata)
            self._publisher.template = msgspec.structs.replace(self._publisher.template, metadata=metadata)

    def close(self) -> None:
        """Stop without sealing: the journal stays, and `recover` or a later recorder finishes the recording."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._worker.stop()
        self._journal.close(delete=False)

    def discard(self) -> None:
        """Stop, and leave things as they were: nothing that was appended stays, and the name is given up.

        Does nothing after `seal`. Raises `StorageError` where the store fails; the claim then expires by itself.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._worker.stop()
        self._journal.close(delete=True)
        for path in journals_of(self._journal_directory, self._publisher.writer.hex()):
            path.unlink(missing_ok=True)
        self._publisher.withdraw()

    def _abandon(self, *, keep_journal: bool = False) -> None:
        """Stop a recorder that never got its claim, or does not know whether it did."""
        self._closed = True
        self._worker.stop()
        self._journal.close(delete=not keep_journal)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        discard = error is not None and self._on_error == "discard"
        if self._failure is not None and not discard:
            self.close()
            if error is None:
                raise self._failure
            return
        try:
            if discard:
                self.discard()
            elif error is None:
                self.seal()
            else:
                self.seal(state="incomplete", error=describe_error(error, trace=trace))
        except ReplaypackError as problem:
            if error is None:
                raise
            # The error that ended the block matters more; this one must not hide it.
            error.add_note(f"replaypack: {problem}")
        finally:
            self.close()

    async def aflush(self) -> None:
        """`flush`, without blocking the event loop."""
        await in_thread(self.flush)

    async def aseal(
        self, *, state: Literal["sealed", "incomplete"] = "sealed", error: Mapping[str, Any] | None = None
    ) -> Manifest:
        """`seal`, without blocking the event loop."""
        return await in_thread(self.seal, state=state, error=error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.__exit__, kind, error, trace)
