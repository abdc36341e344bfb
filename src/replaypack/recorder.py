"""`Recorder`: records in, in order, from any thread; out of the way of the program that runs."""

from __future__ import annotations

import os
import queue
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from . import values
from ._plain import survey
from ._threads import in_thread
from ._write.base import External, Seed
from ._write.journal import JournalFile, journal_directory
from ._write.literals import LARGE, LiteralStream, Splitter
from ._write.publish import Progress, Publisher
from ._write.segment import PACK_TARGET, RECORD_FRAME, SegmentBuilder
from .canonical import canonical_json, key_of_canonical
from .errors import (
    JournalError,
    PublishError,
    RecorderClosedError,
    ReplaypackError,
    ReplaypackWarning,
    UsageError,
    ValueEncodingError,
)
from .format.digests import digest
from .format.journal import JOURNAL_VERSION, JournalHead, encode_record
from .format.manifest import Manifest, State, error_note
from .format.merkle import leaf_hash
from .format.recipe import encode_ops
from .format.record_frame import Entry, encode_frame, stored_row
from .format.row import ABSENT_DIGEST, FLAGS, INLINE_LIMIT, STATUSES, BlobRef, Row, discriminator, encode_row
from .format.table import INLINE_SPACE, BlobEntry, pack_blob, pack_key
from .values import ABSENT, ENCODING_NONE, payload_pieces

__all__ = ["Recorder"]

#: Raw bytes that may wait for the background thread before `append` does.
_MAX_WAITING = 48 << 20
#: Bytes of entries of keys (30 a record) that are held before their table is written.
_MAX_KEYS = 32 << 20
#: Bytes of finished segments that may wait for a store that fails before `append` raises.
_MAX_STUCK = 64 << 20
#: Ranges that the recipes of a record frame may resolve to; readers refuse 16 times as many.
_FRAME_RANGES = 1 << 20
#: Bytes that a kind, a name or a scope may have.
_MAX_LABEL = 4096
#: Responses from this size on are listed by digest. Requests are found by reading rows: listing them would cost
#: more than any other table.
_LISTED = 4096
_MAX_BLOB = 1 << 31


class Recorder:
    """Writes one recording. Made by `Archive.recorder`; a context manager.

    Leaving the ``with`` block seals the recording; leaving it by an exception seals it as ``incomplete`` with the
    error noted, and the exception goes on. `append` may be called from any thread and from asyncio tasks.
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
    ) -> None:
        self._publisher = publisher
        self._tree = progress.tree
        self._counts = progress.counts
        self._inlines = progress.inlines
        self._sync_records = sync == "record"
        self._stream = LiteralStream(seed.end)
        self._splitter = Splitter(self._stream)
        for pieces, ranges in seed.blobs:
            self._splitter.learn(pieces, ranges)
        self._lock = threading.Lock()
        self._pid = os.getpid()
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
        self._worker = _Worker(self, publisher, builder, flush_interval)
        self._worker.start()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "recording"
        return f"<Recorder {self.name!r} in {self._publisher.storage.url}, {state}, {self._tree.count} records>"

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
    def count(self) -> int:
        """Records appended so far, those of the recording it continues included."""
        return self._tree.count

    @property
    def published(self) -> int:
        """Records that other processes can read already."""
        return self._publisher.published

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the sealed recording; None before."""
        return self._manifest

    # Writing

    def append(
        self,
        *,
        kind: str,
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
    ) -> int:
        """Record one call and return its sequence number, counted from 0.

        ``kind`` is the boundary (``"tool"``, ``"model"``, ``"http"``, …). Its key comes from ``identity``, what
        tells one call from another, or from ``key``, which the host supplies and which is never recomputed;
        ``request`` is what was sent where that is not the identity. ``response`` is what came back; after a
        failure give ``error`` instead. ``start`` (nanoseconds since the epoch) and ``duration`` (nanoseconds)
        default to a call that ends now and took no time.

        When this returns the record is in the local journal and survives the death of the process.

        Raises `ValueEncodingError` or `CanonicalizationError` (with the path) for what cannot be stored, before
        anything is written; `UsageError` for arguments that contradict each other; `JournalError` where the
        local disk fails; `PublishError` where the store has failed for so long that no more fits in memory;
        `RecorderClosedError`.
        """
        prepared = _prepare(kind, identity, key, name, request, response, error, scope, status, flags, attributes)
        if salt is not None and len(salt) != 8:
            raise UsageError(f"a salt has 8 bytes, not {len(salt)}")
        if start is None:
            start = time.time_ns() - (duration or 0)
        if not 0 <= start < 1 << 63 or not 0 <= (duration or 0) < 1 << 63:
            raise UsageError("start and duration are nanoseconds, below 2**63")
        self._worker.wait_for_room()
        with self._lock:
            self._check_open()
            try:
                return self._append(prepared, scope, start, duration or 0, salt)
            except BaseException as problem:
                # Ctrl-C, or no memory: what is in the journal and what is in memory may differ by this record.
                # Nothing more is appended; the journal has whatever was acknowledged.
                if self._failure is None:
                    self._failure = RecorderClosedError(f"an append was cut short by {type(problem).__name__}")
                raise

    def _append(self, p: _Prepared, scope: str | None, start: int, duration: int, salt: bytes | None) -> int:
        seq = self._tree.count
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
        recipes = b"".join([encode_ops(splitter.recipe(pieces)) for pieces in p.recipes])
        row = encode_row(
            Row(
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
        )
        entry = Entry(stored_row(row, p.inline), recipes, p.inline)
        try:
            self._journal.append(encode_record(entry, self._stream.take_fresh(), starts_frame=starts_frame))
            if self._sync_records:
                self._journal.sync()
        except JournalError as error:
            self._failure = error
            raise
        leaf = leaf_hash(row)
        self._frame_keys += pack_key(p.key, discriminator(scope), seq)
        self._frame.append(entry)
        self._frame_size += len(entry.row) + len(recipes) + 12
        if p.inline:
            self._frame_size += len(p.inline)
            splitter.inlines.note(INLINE_SPACE + self._inlines, p.inline)
            self._inlines += len(p.inline)
        self._tree.add(leaf)
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

    def _progress(self) -> Progress:
        return Progress(self._tree, self._counts, self._stream.end, self._inlines)

    def _new_journal(self, external: Iterable[External] = ()) -> JournalFile:
        p = self._publisher
        head = JournalHead(
            version=JOURNAL_VERSION,
            archive=p.storage.url,
            name=p.name,
            revision=p.revision,
            claim=p.mode,
            writer=p.writer.hex(),
            number=self._journal_number,
            first=self._tree.count,
            literals=self._stream.end,
            inlines=self._inlines,
            external=[(e.first, e.raw, e.items, e.digest, e.pack.digest, e.pack.size, *e.at) for e in external],
            content=msgspec.to_builtins(p.template),
        )
        self._journal_number += 1
        return JournalFile(self._journal_directory, head)

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise RecorderClosedError("a recorder cannot be used in a forked process", hint="open one there")
        if self._failure is not None:
            raise RecorderClosedError(f"the recorder stopped after an error: {self._failure}")
        if self._closed:
            raise RecorderClosedError("the recorder is sealed")

    def flush(self) -> None:
        """Publish what was appended so far: readers can see it, and it survives the loss of this machine's memory.

        Raises `PublishError` where the store fails; the records stay in the journal and a later flush tries again.
        """
        with self._lock:
            self._check_open()
            self._journal.sync()
            if self._worker.unpublished(self._tree.count):
                self._close_segment(publish=True)
        self._worker.drain()

    def seal(self) -> Manifest:
        """Finish the recording and return its manifest; nothing can be appended after.

        Raises `PublishError` where the store fails (the journal stays; `recover` finishes the recording) and
        `ConflictError` where another writer committed first (the records are kept as a sibling recording).
        """
        return self._finish("sealed", None)

    def _finish(self, state: State, error: dict[str, Any] | None) -> Manifest:
        with self._lock:
            if self._manifest is not None:
                return self._manifest
            self._check_open()
            self._journal.sync()
            if self._worker.unpublished(self._tree.count):
                self._close_segment(publish=False)
            self._closed = True
            progress = self._progress()
        try:
            self._manifest = self._worker.seal(state, error, progress)
        except PublishError:
            self._journal.close(delete=False)
            raise
        except ReplaypackError:
            # A conflict: the records are safe in a sibling recording.
            self._journal.close(delete=True)
            raise
        self._journal.close(delete=True)
        return self._manifest

    def close(self) -> None:
        """Stop without sealing: the journal stays, and `recover` or a later recorder finishes the recording."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._worker.stop()
        self._journal.close(delete=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        if self._failure is not None:
            self.close()
            if error is None:
                raise self._failure
            return
        if error is None:
            self.seal()
            return
        try:
            self._finish("incomplete", error_note(describe_error(error, trace=trace)))
        except ReplaypackError as problem:
            # The error that ended the block matters more; this one must not hide it.
            error.add_note(f"replaypack: {problem}")

    async def aflush(self) -> None:
        """`flush`, without blocking the event loop."""
        await in_thread(self.flush)

    async def aseal(self) -> Manifest:
        """`seal`, without blocking the event loop."""
        return await in_thread(self.seal)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.__exit__, kind, error, trace)


class _Prepared(msgspec.Struct):
    """A record before it has a place: everything that can be computed without the recorder's lock."""

    kind: str
    name: str | None
    key: bytes
    scheme: str
    status: int
    flags: int
    attributes: dict[str, Any] | None
    request: BlobRef | None
    identity: BlobRef | None
    response: BlobRef
    recipes: list[list[bytes]]
    inline: bytes | None
    listed: list[tuple[bytes, int]]


_ABSENT_RESPONSE = BlobRef(ABSENT_DIGEST, 0, ENCODING_NONE)


def _prepare(
    kind: str,
    identity: object,
    key: str | bytes | None,
    name: str | None,
    request: object,
    response: object,
    error: BaseException | Mapping[str, Any] | None,
    scope: str | None,
    status: str | None,
    flags: Iterable[str],
    attributes: Mapping[str, Any] | None,
) -> _Prepared:
    if not kind:
        raise UsageError("a record needs a kind")
    if kind.endswith("bytes") and not kind[:-5].strip("$") and kind != "bytes":
        # Kinds are names in the manifest's counts, and canonical JSON escapes this one.
        raise UsageError(f"{kind!r} cannot be a kind")
    for label, text in (("kind", kind), ("name", name), ("scope", scope)):
        _check_text(label, text)
    if (identity is ABSENT) == (key is None):
        raise UsageError("give either the identity of the call or a key of your own", hint="identity=… or key=…")
    listed: list[tuple[bytes, int]] = []
    recipes: list[list[bytes]] = []
    request_ref = identity_ref = None
    if key is not None:
        key_bytes, scheme = opaque_key(key), "opaque"
        if request is not ABSENT:
            request_ref, pieces = _blob(request, "/request")
            recipes.append(pieces)
    else:
        scheme = "identity"
        census = survey(identity)
        key_bytes = key_of_canonical(kind, canonical_json(identity, census=census))
        identity_ref, pieces = _blob(identity, "/identity", census)
        if request is ABSENT:
            request_ref, identity_ref = identity_ref, None
            recipes.append(pieces)
        else:
            request_ref, request_pieces = _blob(request, "/request")
            recipes.append(request_pieces)
            if request_ref == identity_ref:
                identity_ref = None
            else:
                recipes.append(pieces)
    code = STATUSES.index(status) if status in STATUSES else None
    if status is not None and code is None:
        raise UsageError(f"status {status!r} is not one of {', '.join(STATUSES)}")
    if error is not None:
        if response is not ABSENT:
            raise UsageError("a call has either a response or an error")
        response = describe_error(error) if isinstance(error, BaseException) else dict(error)
        code = 1 if code is None else code
        if not code:
            raise UsageError("a call with an error does not have the status 'ok'")
    inline: bytes | None = None
    response_ref = _ABSENT_RESPONSE
    if response is ABSENT:
        inline = b""
    else:
        response_ref, pieces = _blob(response, "/response")
        if response_ref.size < INLINE_LIMIT:
            inline = b"".join(pieces)
        else:
            recipes.append(pieces)
    if response_ref.size >= _LISTED:
        listed.append((response_ref.digest, 2))
    total = sum(ref.size for ref in (request_ref, identity_ref, response_ref) if ref is not None)
    if total >= _MAX_BLOB:
        raise ValueEncodingError(f"{total} bytes are more than one record may have (2 GiB)", path="")
    bits = 0
    for flag in flags:
        if flag not in FLAGS:
            raise UsageError(f"flag {flag!r} is not one of {', '.join(FLAGS)}")
        bits |= FLAGS[flag]
    plain = None if attributes is None else _attributes(attributes)
    return _Prepared(
        kind,
        name,
        key_bytes,
        scheme,
        code or 0,
        bits,
        plain,
        request_ref,
        identity_ref,
        response_ref,
        recipes,
        inline,
        listed,
    )


def _blob(value: object, where: str, census: Any = None) -> tuple[BlobRef, list[bytes]]:
    try:
        encoding, pieces = payload_pieces(value, census=census)
    except ValueEncodingError as error:
        raise ValueEncodingError(
            str(error.args[0]).split(": ", 1)[-1], path=where + ("" if error.path == "/" else error.path)
        ) from None
    size = sum(map(len, pieces))
    if size >= _MAX_BLOB:
        raise ValueEncodingError(f"{size} bytes are more than a payload may have (2 GiB)", path=where)
    whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return BlobRef(digest(whole), size, encoding), pieces


def opaque_key(key: str | bytes) -> bytes:
    """The key of a record whose host supplies one: BLAKE3-256 of it (text as UTF-8), 32 bytes."""
    if isinstance(key, str):
        _check_text("key", key)
        key = key.encode()
    if not isinstance(key, bytes):
        raise UsageError(f"a key is text or bytes, not {type(key).__name__}")
    return digest(key)


def _check_text(label: str, text: str | None) -> None:
    if text is None or (type(text) is str and len(text) <= _MAX_LABEL and text.isascii()):
        return
    if not isinstance(text, str):
        raise UsageError(f"{label} is {type(text).__name__}, not text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueEncodingError("lone surrogates are not allowed here", path=f"/{label}") from None
    if size > _MAX_LABEL and label != "key":
        raise ValueEncodingError(f"{size} bytes are more than the {_MAX_LABEL} allowed here", path=f"/{label}")


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    plain = values.decode(values.encode(dict(attributes)))
    try:
        encoded = msgspec.msgpack.encode(plain)
    except (UnicodeEncodeError, OverflowError):
        raise ValueEncodingError("attributes hold plain MessagePack only", path="/attributes") from None
    if not all(isinstance(name, str) for name in plain):
        raise ValueEncodingError("names of attributes are text", path="/attributes")
    if len(encoded) > 65536:
        raise ValueEncodingError("attributes take more than 64 KiB", path="/attributes", hint="use the request")
    return plain  # type: ignore[no-any-return]


def describe_error(error: BaseException, *, trace: TracebackType | None = None) -> dict[str, Any]:
    """Return an exception as plain data: type, module, message, and its arguments where they are plain."""
    described: dict[str, Any] = {
        "type": type(error).__qualname__,
        "module": type(error).__module__,
        "message": str(error),
    }
    try:
        described["args"] = values.decode(values.encode(list(error.args)))
    except ReplaypackError:
        pass
    if trace is not None:
        frames = traceback.extract_tb(trace)
        if frames:
            described["raised_in"] = frames[-1].name
    return described


class _Worker(threading.Thread):
    """The background thread: compresses, builds segments, uploads, publishes. Alone uses the publisher."""

    def __init__(
        self, recorder: Recorder, publisher: Publisher, builder: SegmentBuilder, interval: float | None
    ) -> None:
        super().__init__(name=f"replaypack-{publisher.name}", daemon=True)
        self._recorder = recorder
        self._publisher = publisher
        self._builder = builder
        self._interval = interval
        self._next_flush = time.monotonic() + interval if interval else None
        self._queue: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self._room = threading.Condition()
        self._waiting = 0
        #: Finished segments that the store did not take yet, with the journal that still covers them.
        self._pending: list[tuple[SegmentBuilder, Any, JournalFile | None]] = []
        self._error: Exception | None = None
        self._handed = publisher.published
        self._stopped = False
        self._stuck = 0
        #: Journals of segments that are uploaded and stand in no manifest yet, and the state after them.
        self._unwritten: list[JournalFile] = []
        self._state: Progress | None = None
        self.segment_keys = 0

    # Called by the recorder's threads

    def put(self, item: tuple[Any, ...], size: int) -> None:
        if item[0] == "finish":
            self._handed = item[1].tree.count
        with self._room:
            self._waiting += size
        self._queue.put((*item, size))

    def wait_for_room(self) -> None:
        """Wait while too much is waiting; raise where nothing moves because the store fails."""
        if self._error is not None and self._stuck > _MAX_STUCK:
            raise self._publish_error(self._error)
        if self._waiting <= _MAX_WAITING:
            return
        with self._room:
            while self._waiting > _MAX_WAITING and self.is_alive():
                if self._error is not None:
                    raise self._publish_error(self._error)
                self._room.wait(1.0)

    def unpublished(self, count: int) -> bool:
        """Whether records were appended that no segment to be published holds yet."""
        return count > self._handed

    def drain(self) -> None:
        """Wait until everything put so far is published; raises `PublishError`."""
        self._ask("drain")

    def seal(self, state: State, error: dict[str, Any] | None, progress: Progress) -> Manifest:
        """Publish the rest and commit the revision; the thread ends."""
        result: Manifest = self._ask("seal", state, error, progress)
        return result

    def stop(self) -> None:
        """End the thread without publishing what is waiting."""
        self._stopped = True
        self._queue.put(("stop", 0))
        self.join()
        for _, _, journal in self._pending:
            if journal is not None:
                journal.close(delete=False)

    def _ask(self, what: str, *arguments: Any) -> Any:
        reply: queue.Queue[tuple[Any, Exception | None]] = queue.Queue()
        self._queue.put((what, *arguments, reply, 0))
        while True:
            try:
                result, error = reply.get(timeout=1.0)
                break
            except queue.Empty:
                if not self.is_alive():
                    raise self._publish_error(self._error or RuntimeError("the background thread ended")) from None
        if error is not None:
            raise error
        return result

    def _publish_error(self, cause: Exception) -> PublishError:
        count = self._recorder.count
        done = self._publisher.published
        return PublishError(
            f"{done} of {count} records of {self._publisher.name!r} are published, {count - done} are safe in the "
            f"journal only: {cause}",
            published=done,
            unpublished=count - done,
            journal=str(self._recorder._journal_directory),
            hint="mend the cause, then flush again or run `replaypack recover`",
        )

    # The thread

    def run(self) -> None:
        while True:
            timeout = None if self._next_flush is None else max(0.0, self._next_flush - time.monotonic())
            try:
                item = self._queue.get(timeout=timeout)
            except queue.Empty:
                self._flush_by_time()
                continue
            size = item[-1]
            try:
                if self._handle(item) or self._stopped:
                    return
            finally:
                with self._room:
                    self._waiting -= size
                    self._room.notify_all()

    def _handle(self, item: tuple[Any, ...]) -> bool:
        what = item[0]
        builder = self._builder
        if what == "record":
            builder.add_record_frame(len(item[1]), encode_frame(item[1]))
            builder.add_keys(item[2])
            for entry in item[3]:
                builder.add_blob(entry)
        elif what == "literal":
            builder.add_literal_frame(*item[1:3])
        elif what == "large":
            builder.add_large(item[1], item[2])
        elif what == "finish":
            _, state, journal, _ = item
            self._pending.append((builder, state, journal))
            self._stuck += builder.size
            self._builder = SegmentBuilder(state.tree.count, state.inlines)
            self.segment_keys = 0
            if journal is not None:
                self._try(self._publish)
            return False
        elif what in ("drain", "seal"):
            return self._answer(what, item)
        elif what == "stop":
            return True
        builder.compress(self._publisher.compressor)
        self.segment_keys = builder.keys_size
        if builder.size >= PACK_TARGET:
            self._try(partial(self._publisher.spill, builder))
        return False

    def _answer(self, what: str, item: tuple[Any, ...]) -> bool:
        reply = item[-2]
        try:
            if what == "drain":
                self._publish()
                reply.put((None, None))
                return False
            reply.put((self._commit(*item[1:-2]), None))
        except PublishError as error:
            reply.put((None, error))
            return what == "seal"
        except ReplaypackError as error:
            self._error = error
            reply.put((None, error if what == "seal" and error.code == "archive.conflict" else self._wrap(error)))
        except Exception as error:
            self._error = error
            reply.put((None, self._wrap(error)))
        return what == "seal"

    def _wrap(self, error: Exception) -> PublishError:
        wrapped = self._publish_error(error)
        wrapped.__cause__ = error
        return wrapped

    def _try(self, action: Any) -> None:
        """Publish in the background: a failure is a warning, since the journal has everything."""
        try:
            action()
            self._error = None
        except Exception as error:
            self._error = error
            warnings.warn(f"replaypack: {self._publish_error(error)}", ReplaypackWarning, stacklevel=2)

    def _upload_pending(self) -> None:
        """Upload finished segments; what succeeded is not done again after a failure."""
        while self._pending:
            builder, state, journal = self._pending[0]
            if builder.count:
                self._publisher.add_segment(builder)
            del self._pending[0]
            self._stuck = sum(waiting.size for waiting, _, _ in self._pending)
            self._state = state
            if journal is not None:
                self._unwritten.append(journal)

    def _publish(self) -> None:
        self._upload_pending()
        if not self._unwritten or self._state is None:
            return
        self._publisher.merge_live()
        self._publisher.publish_checkpoint(self._state)
        self._drop_journals()

    def _drop_journals(self) -> None:
        for journal in self._unwritten:
            journal.close(delete=True)
        self._unwritten.clear()

    def _commit(self, state: State, error: dict[str, Any] | None, progress: Progress) -> Manifest:
        self._upload_pending()
        publisher = self._publisher
        publisher.merge_all()
        cause: Any = {"create": "seal", "append": "append", "replace": "replace"}[publisher.mode]
        manifest = publisher.commit(cause, state, progress, error)
        self._drop_journals()
        return manifest

    def _flush_by_time(self) -> None:
        interval = self._interval or 0.0
        # From seconds to minutes: a long run is published often enough, and not over and over.
        self._interval = min(interval * 2, 300.0)
        self._next_flush = time.monotonic() + self._interval
        recorder = self._recorder
        if not recorder._lock.acquire(timeout=1.0):
            return
        try:
            if not recorder._closed and recorder._failure is None and self.unpublished(recorder.count):
                recorder._close_segment(publish=True)
        except JournalError as error:
            recorder._failure = error
        finally:
            recorder._lock.release()
