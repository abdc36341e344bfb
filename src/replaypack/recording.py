"""`Recording`: look up and iterate what was recorded, reading only what is asked for."""

from __future__ import annotations

import time as _time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from ._arguments import check_number, check_text, check_type, names_of
from ._read import ladder
from ._read.around import frames_around, read_literals
from ._read.cache import Cache
from ._read.index import Found, Index
from ._read.packs import Frame, PackReader
from ._read.rekeyed import Override
from ._threads import in_thread
from ._write.prepare import opaque_key
from .errors import ConflictError, FormatError, UsageError
from .format.digests import digest
from .format.manifest import NEAR_LIMIT, Manifest
from .format.recipe import BLOB_LIMIT, Range, materialise, output_length
from .format.record_frame import RecordFrame
from .format.row import FLAGS, STATUSES, BlobRef, Row, discriminator
from .format.table import FrameEntry
from .policies.matching import MatchPolicy
from .storage import Storage
from .values import ABSENT, decode_payload

__all__ = ["Record", "Recording"]

_T = TypeVar("_T")
_UNREAD: Any = object()

#: What a look at several payloads reads: literal frames, their raw bytes, bytes of one payload, of all but the first.
_LOOK_FRAMES = 16
_LOOK_RAW = 20 << 20
_LOOK_BLOB = 16 << 20
_LOOK_ALL = 8 << 20

#: Record frames that iteration reads ahead, in one batch, and their raw bytes.
_AHEAD = 8
_AHEAD_BYTES = 16 << 20


class Record:
    """One recorded call. ``response`` was loaded by `Recording.lookup`; ``request`` is read when touched."""

    __slots__ = ("_found", "_identity", "_recording", "_request", "_response", "_row")

    def __init__(self, recording: Recording, found: Found) -> None:
        self._recording = recording
        self._found = found
        self._row = found.row
        self._request: Any = _UNREAD
        self._identity: Any = _UNREAD
        self._response: Any = _UNREAD

    def __repr__(self) -> str:
        name = f" {self._row.name!r}" if self._row.name is not None else ""
        return f"<Record {self.seq}: {self.kind}{name}, {self.status}, key {self.key.hex()[:12]}…>"

    @property
    def seq(self) -> int:
        """Its place in the recording, counted from 0."""
        return self._row.seq

    @property
    def kind(self) -> str:
        """The boundary: ``"tool"``, ``"model"``, ``"http"``, …"""
        return self._row.kind

    @property
    def name(self) -> str | None:
        """Name of the tool or model."""
        return self._row.name

    @property
    def key(self) -> bytes:
        """What it is looked up by (32 bytes)."""
        override = self._recording._override
        return self._row.key if override is None else override.key(self._row.seq)

    @property
    def key_scheme(self) -> str:
        """How the key was made: ``identity``, ``opaque``, or a named derivation."""
        return self._row.scheme

    @property
    def scope(self) -> str | None:
        """The scope it was recorded in."""
        return self._row.scope

    @property
    def time(self) -> datetime:
        """When the call began, in UTC (microseconds; ``start`` has nanoseconds)."""
        seconds, nanoseconds = divmod(self._row.start, 1_000_000_000)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanoseconds // 1000)

    @property
    def start(self) -> int:
        """When the call began, in nanoseconds since the epoch."""
        return self._row.start

    @property
    def duration(self) -> float:
        """How long the call took, in seconds."""
        return self._row.duration / 1e9

    @property
    def status(self) -> str:
        """``"ok"``, ``"error"`` or ``"interrupted"``."""
        return STATUSES[self._row.status]

    @property
    def flags(self) -> frozenset[str]:
        """``redacted``, ``transformed``, ``truncated``, ``live_fallback``."""
        return frozenset(name for name, bit in FLAGS.items() if self._row.flags & bit)

    @property
    def attributes(self) -> dict[str, Any]:
        """What the recorder noted besides."""
        return dict(self._row.attributes or {})

    @property
    def row(self) -> Row:
        """The row as it is stored and hashed: digests, sizes and encodings of the payloads."""
        return self._row

    @property
    def row_bytes(self) -> bytes:
        """The bytes of the row, of which its Merkle leaf is made."""
        return self._found.row_bytes

    @property
    def response(self) -> Any:
        """What came back; `ABSENT` where nothing did."""
        if self._response is _UNREAD:
            row = self._row
            encoding = row.response_encoding
            inline = self._found.inline
            if encoding == 0:
                self._response = ABSENT
            else:
                self._response = decode_payload(encoding, self.response_bytes if inline is None else inline)
        return self._response

    @property
    def request(self) -> Any:
        """What was sent; `ABSENT` where it was not recorded. Takes up to two more rounds of requests."""
        if self._request is _UNREAD:
            ref = self._row.request
            self._request = ABSENT if ref is None else decode_payload(ref.encoding, self.blob_bytes("request"))
        return self._request

    @property
    def identity(self) -> Any:
        """What the key was made of; the request where it is the same; `ABSENT` for an ``opaque`` key."""
        if self._row.identity is None:
            return self.request if self._row.scheme != "opaque" else ABSENT
        if self._identity is _UNREAD:
            self._identity = decode_payload(self._row.identity.encoding, self.blob_bytes("identity"))
        return self._identity

    @property
    def error(self) -> dict[str, Any] | None:
        """The recorded error (type, module, message, args) of a call that failed, else None."""
        if self._row.status == 0:
            return None
        response = self.response
        return response if isinstance(response, dict) else {"type": None, "message": str(response)}

    def response_as(self, type_: type[_T]) -> _T:
        """The response as a dataclass, msgspec Struct, TypedDict, … (`msgspec.convert`).

        Raises `UsageError` where it does not fit.
        """
        try:
            return msgspec.convert(self.response, type_)
        except msgspec.ValidationError as error:
            raise UsageError(f"the response of record {self.seq} is no {type_.__name__}: {error}") from None

    @property
    def response_bytes(self) -> bytes:
        """The bytes of the response blob."""
        return self.blob_bytes("response")

    def blob_bytes(self, role: str) -> bytes:
        """The bytes of the ``request``, ``identity`` or ``response`` blob, checked against its digest."""
        return self._recording._blob(self._found, role)


class Recording:
    """A recording opened for reading. Lazy, safe for many threads, a context manager. Made by `open`."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        manifest: Manifest,
        *,
        refresh: Callable[[], Manifest] | None = None,
        cache_bytes: int = 64 << 20,
        owns_storage: bool = False,
        match: MatchPolicy | None = None,
    ) -> None:
        self._storage = storage
        self._name = name
        self._refresh = refresh
        # A page is asked for far more often than a frame: frames have the room that pages leave.
        self._pages = Cache(cache_bytes // 2)
        self._stored = Cache(cache_bytes // 8)
        self._cache = Cache(cache_bytes - cache_bytes // 8, beside=self._pages)
        self._reader = PackReader(storage)
        self._owns_storage = owns_storage
        self._manifest = manifest
        self._index = Index(manifest, self._reader, self._cache, self._pages, self._stored)
        self._near_read = False
        self._override = Override(self, match) if match is not None and match != manifest.match else None
        #: A larger payload (bytes) is read only where it is in proportion to the compressed bytes that it is made of:
        #: an archive is not trusted to fill the memory. Payloads of hundreds of megabytes of zeros need more.
        self.blob_limit = BLOB_LIMIT

    def __repr__(self) -> str:
        content = self._manifest.content
        note = f", match policy overridden: {self.match}" if self.match_overridden else ""
        return f"<Recording {self.locator} {content.state}, {content.records} records{note}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.close)

    def close(self) -> None:
        """Release the cache and, where the recording opened it, the storage."""
        self._cache.clear()
        self._pages.clear()
        self._stored.clear()
        if self._owns_storage:
            self._storage.close()

    # What it is

    @property
    def name(self) -> str:
        """The recording's name."""
        return self._name

    @property
    def locator(self) -> str:
        """``URL#name@revision``."""
        return f"{self._storage.url}#{self._name}@{self._manifest.storage.revision}"

    @property
    def manifest(self) -> Manifest:
        """The manifest it was opened from."""
        return self._manifest

    @property
    def match(self) -> MatchPolicy:
        """The match policy that calls are looked up with: what of an identity does not count for its key."""
        return self._manifest.match if self._override is None else self._override.policy

    @property
    def match_overridden(self) -> bool:
        """Whether `match` is another policy than the recording was made with, given when it was opened."""
        return self._override is not None

    @property
    def content_digest(self) -> str:
        """The digest of the logical recording (64 hex digits): what to cite, sign and compare."""
        return self._manifest.content_digest

    @property
    def state(self) -> str:
        """``open``, ``sealed`` or ``incomplete``."""
        return self._manifest.content.state

    @property
    def metadata(self) -> dict[str, Any]:
        """What the user noted of the recording."""
        return dict(self._manifest.content.metadata)

    def __len__(self) -> int:
        return self._manifest.content.records

    # Looking up

    def lookup(
        self,
        kind: str | None = None,
        identity: object = ABSENT,
        *,
        key: str | bytes | None = None,
        scope: str | None = None,
        nth: int = 0,
    ) -> Record | None:
        """Return the ``nth`` record (from 0, in recording order) of a call, its response loaded; None for a miss.

        The call is named by ``kind`` and ``identity``, or by the ``key`` that the host supplied when recording.
        With a ``scope`` the records of that scope answer, or, where it has none of this call, those without a
        scope; without one only records without a scope do. Never another scope's.

        Cold from an object store: one page of the key table, one record frame; one round more for a response
        of 4 KiB and more.
        """
        record = self._find(self._key(kind, identity, key), scope, nth)
        if record is not None:
            record.response  # noqa: B018 - a lookup answers with the response read and checked
        return record

    def key_of(self, kind: str, identity: object) -> bytes:
        """The key (32 bytes) of a call in this recording: its match policy applied.

        Raises `CanonicalizationError` with the path.
        """
        return self.match.key(kind, identity)

    def _key(self, kind: str | None, identity: object, key: str | bytes | None) -> bytes:
        if (identity is ABSENT) == (key is None):
            raise UsageError("give either the identity of the call or the key it was recorded with")
        if key is not None:
            return opaque_key(key)
        if kind is None:
            raise UsageError("an identity needs the kind of the call")
        return self.key_of(kind, identity)

    def lookup_digest(self, key: bytes, *, scope: str | None = None, nth: int = 0) -> Record | None:
        """`lookup` by the 32 bytes of the key itself (`key_of`)."""
        record = self._find(key, scope, nth)
        if record is not None:
            record.response  # noqa: B018
        return record

    def following(self, record: Record, key: bytes | None = None, scope: str | None = None) -> Record | None:
        """The record behind another one where it lies in the same frame, which is in memory; else None.

        With a ``key`` (32 bytes) only if it is of that key and scope.
        """
        found = record._found
        frame, number = found.frame, found.number + 1
        if not isinstance(frame, RecordFrame) or number >= frame.count:
            return None
        row, data, inline = frame.record(number)
        if row.seq != found.row.seq + 1:
            return None
        if key is not None:
            own = row.key if self._override is None else self._override.key(row.seq)
            if own != key or row.scope != scope:
                return None
        return Record(self, Found(row, data, inline, frame, number))

    def _find(self, key: bytes, scope: str | None, nth: int) -> Record | None:
        if type(nth) is not int or nth:
            check_number("nth", nth, "a number, counted from 0")
        if not self._near_read and self._override is None:
            self._read_near()
        if scope is None:
            return self._find_in(key, None, nth)[0]
        check_text("scope", scope)
        for wanted in (scope, None):
            record, any_ = self._find_in(key, wanted, nth)
            if record is not None or any_:
                return record
        return None

    def _find_in(self, key: bytes, scope: str | None, nth: int) -> tuple[Record | None, bool]:
        if self._override is not None:
            return self._override.find(key, scope, nth)
        prefix = key[:16] + discriminator(scope)
        index = self._index
        if nth == 0:
            found = index.first(prefix)
        else:
            at = next(index.entries(prefix, nth), None)
            found = index.record(*at) if at is not None else None
        if found is None:
            return None, nth > 0 and next(index.entries(prefix), None) is not None
        if found.row.key == key and found.row.scope == scope:
            return Record(self, found), True
        # Another key or scope shares the truncated digests: only the rows tell.
        hits = 0
        for segment, entry, ref in index.entries(prefix):
            found = index.record(segment, entry, ref)
            if found.row.key == key and found.row.scope == scope:
                if hits == nth:
                    return Record(self, found), True
                hits += 1
        return None, hits > 0

    def _read_near(self) -> None:
        if not self._near_read:
            self._near_read = True
            segments = self._index.segments
            near = [item for segment in segments if (item := segment.near()) is not None]
            # A recording that is being written may have many: pages and frames are fewer bytes then. And where
            # some segment has none, its pages take that round anyway.
            if len(near) == len(segments) and sum(length for _, _, length in near) <= 2 * NEAR_LIMIT:
                self._reader.preload(near)

    def count(self, kind: str | None = None, identity: object = ABSENT, *, key: str | bytes | None = None) -> int:
        """How many records there are: all, of a kind, or of one call (in any scope)."""
        if identity is ABSENT and key is None:
            content = self._manifest.content
            return content.records if kind is None else content.counts.get(kind, 0)
        wanted = self._key(kind, identity, key)[:16]
        if self._override is not None:
            return self._override.count(wanted)
        self._read_near()
        [found] = self._index.counts([wanted])
        return found

    def count_scoped(self, key: bytes, scope: str | None) -> int:
        """How many records of a key (32 bytes) a scope has, those of other scopes and of none not counted."""
        if self._override is not None:
            return self._override.count(key[:16] + discriminator(scope))
        self._read_near()
        [found] = self._index.counts([key[:16] + discriminator(scope)])
        return found

    def count_keys(self, keys: Iterable[bytes]) -> list[int]:
        """How many records each of several keys (32 bytes) has, in any scope; asked in one go."""
        if (override := self._override) is not None:
            return [override.count(key[:16]) for key in keys]
        self._read_near()
        return self._index.counts([key[:16] for key in keys])

    def latest(self, key: bytes, scopes: Sequence[str | None]) -> Record | None:
        """The last record of a key (32 bytes) in the first of several scopes that has one, its response loaded.

        However many scopes: one page of the key table, one record frame, as a `lookup`.
        """
        if self._override is not None:
            record = self._override.latest(key, scopes)
        else:
            self._read_near()
            found = ladder.latest(self._index, key, scopes)
            record = None if found is None else Record(self, found)
        if record is not None:
            record.response  # noqa: B018
        return record

    def repeated(self) -> Iterator[list[int]]:
        """Yield the sequence numbers of the records of each key and scope that has more than one, in order.

        Reads the key table once, and no record.
        """
        return ladder.repeated(self._index) if self._override is None else self._override.repeated()

    def record(self, seq: int) -> Record:
        """Return the record with sequence number ``seq``; raises `UsageError` where there is none."""
        if type(seq) is not int or not 0 <= seq < len(self):
            raise UsageError(f"there is no record {seq}: the recording has {len(self)}, counted from 0")
        for entry, frame in self._index.frames(seq):
            [records] = self._index.read_frames([frame])
            row, data, inline = records.record(seq - entry.first)
            if row.seq != seq:
                raise FormatError(f"record {seq} is not in its frame of {entry.items}", where=frame.where)
            return Record(self, Found(row, data, inline, records, seq - entry.first))
        raise FormatError(f"no frame holds record {seq}", where=self.locator)

    def around(self, seq: int, *, frames: int = 16) -> list[Record]:
        """Return the records of the ``frames`` record frames nearest to record ``seq``, in order.

        Whatever the size of the recording this takes one page of a table, and the frames in one go.
        """
        check_number("seq", seq, "a sequence number, counted from 0")
        check_number("frames", frames, "a number of frames")
        near = frames_around(self._index, min(seq, max(0, len(self) - 1)), frames) if frames else []
        read = self._index.read_frames([frame for _, frame in near])
        return [Record(self, found) for frame in read for found in _found(frame)]

    def of_key(self, key: bytes, *, limit: int = 16, frames: int = 16) -> list[Record]:
        """Return up to ``limit`` records of a key (32 bytes), of whatever scope, from ``frames`` frames at most.

        They are read in one go.
        """
        if self._override is not None:
            return self._override.of_key(key, limit)
        self._read_near()
        wanted: dict[Frame, list[tuple[int, int]]] = {}
        for segment, entry, ref in islice(self._index.entries(key[:16]), limit):
            frame = Frame(segment.pack(ref.frame, where="page of keys"), ref.frame, None, ref.digest)
            if frame in wanted or len(wanted) < frames:
                wanted.setdefault(frame, []).append((entry.seq, entry.seq - ref.first))
        found = []
        for (frame, numbers), records in zip(wanted.items(), self._index.read_frames(list(wanted)), strict=True):
            for seq, number in numbers:
                row, data, inline = records.record(number)
                if row.seq != seq or row.key[:16] != key[:16]:
                    raise FormatError(f"record {seq} does not match its entry in keys", where=frame.where)
                if row.key == key:
                    found.append(Record(self, Found(row, data, inline, records, number)))
        return sorted(found, key=lambda record: record.seq)

    def with_requests(self, records: Iterable[Record]) -> list[Record]:
        """Return those of ``records`` of which request and identity could be read in two rounds, within bounds.

        Reading them then asks nothing of the store. The first come first: once the bounds are reached (16 literal
        frames of 20 MiB, 8 MiB of payloads), only those that need no more are returned.
        """
        total = 0
        chosen: list[tuple[Record, list[Range]]] = []
        for record in records:
            row, found = record.row, record._found
            sizes = [ref.size for ref in (row.request, row.identity) if ref is not None]
            if not sizes or max(sizes) > _LOOK_BLOB or (chosen and total + sum(sizes) > _LOOK_ALL):
                continue
            total += sum(sizes)
            recipes = self._index.recipes(found.frame, found.number)
            chosen.append((record, [item for recipe in recipes[: len(sizes)] for item in recipe]))
        fits = read_literals(self._index, [ranges for _, ranges in chosen], _LOOK_FRAMES, _LOOK_RAW)
        return [record for (record, _), fit in zip(chosen, fits, strict=True) if fit]

    def find_blob(self, digest_: str) -> tuple[Record, str]:
        """Return a record that has the blob of a digest (64 hex digits), and the blob's role in it.

        Blobs under 4 KiB are found by reading all rows. Raises `UsageError` where the recording has no such blob.
        """
        try:
            wanted = bytes.fromhex(digest_)
        except (ValueError, TypeError):
            raise UsageError(f"{digest_!r} is not a digest: 64 hex digits") from None
        at = self._index.blob(wanted)
        if at is not None and at[0] >= len(self):
            raise FormatError(f"the table blobs names record {at[0]} of {len(self)}", where=self.locator)
        candidates = [self.record(at[0])] if at is not None else self.records()
        for record in candidates:
            for role in ("request", "identity", "response"):
                ref = _blob_ref(record.row, role)
                if ref is not None and ref.digest == wanted and ref.encoding:
                    return record, role
        raise UsageError(f"the recording has no blob {digest_}")

    def blob(self, digest_: str) -> bytes:
        """Return the blob of a digest (64 hex digits); see `find_blob`."""
        record, role = self.find_blob(digest_)
        return record.blob_bytes(role)

    # Iterating

    def records(
        self,
        *,
        kinds: str | Collection[str] | None = None,
        names: str | Collection[str] | None = None,
        scope: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: str | Collection[str] | None = None,
        first: int = 0,
        last: int | None = None,
        follow: bool = False,
        poll_interval: float = 1.0,
    ) -> Iterator[Record]:
        """Yield records in recording order, reading ahead.

        ``kinds``, ``names`` and ``statuses`` (one, or several), ``scope`` and the times (with a time zone; ``since``
        included, ``until`` not) filter;
        ``first`` … ``last`` are sequence numbers, both included. With ``follow`` the iteration goes on, asking
        every ``poll_interval`` seconds, until a recording that is still being written is sealed.
        """
        kinds, names = names_of("kinds", kinds), names_of("names", names)
        statuses = names_of("statuses", statuses, STATUSES)
        check_text("scope", scope)
        check_number("first", first, "a sequence number, counted from 0")
        check_number("last", last, "a sequence number, counted from 0")
        for label, moment in (("since", since), ("until", until)):
            check_type(label, moment, datetime, "a datetime")
            if moment is not None and moment.tzinfo is None:
                raise UsageError(f"{label} has no time zone", hint="e.g. datetime.now(timezone.utc)")
        low = _nanoseconds(since) if since is not None else None
        high = _nanoseconds(until) if until is not None else None

        def wanted(row: Row) -> bool:
            return (
                (kinds is None or row.kind in kinds)
                and (names is None or row.name in names)
                and (scope is None or row.scope == scope)
                and (statuses is None or STATUSES[row.status] in statuses)
                and (low is None or row.start >= low)
                and (high is None or row.start < high)
            )

        return self._records(wanted, first, last, poll_interval if follow else None)

    def _records(
        self, wanted: Callable[[Row], bool], position: int, last: int | None, poll_interval: float | None
    ) -> Iterator[Record]:
        while True:
            for found in self._scan(position):
                row = found.row
                position = row.seq + 1
                if last is not None and row.seq > last:
                    return
                if wanted(row):
                    yield Record(self, found)
            done = last is not None and position > last
            if poll_interval is None or self._refresh is None or self.state != "open" or done:
                return
            before = len(self)
            self.refresh()
            if len(self) == before and self.state == "open":
                _time.sleep(poll_interval)

    def refresh(self) -> bool:
        """Look for a newer manifest (`follow` does); return whether there was one.

        Raises `ConflictError` where another recording replaced this one under its name: open that one anew.
        """
        if self._refresh is None:
            return False
        manifest = self._refresh()
        if manifest.digest == self._manifest.digest:
            return False
        if manifest.content.id != self._manifest.content.id:
            raise ConflictError(f"{self.locator} was replaced by another recording", hint="open it again")
        # The index first: a thread that sees the new number of records must find them.
        self._index = Index(manifest, self._reader, self._cache, self._pages, self._stored)
        self._manifest = manifest
        return True

    def _scan(self, first: int) -> Iterator[Found]:
        index = self._index
        frames = iter(index.frames(first))
        expected: int | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="replaypack-read") as pool:
            batch = _take(frames, 1)
            ahead: Future[list[RecordFrame]] | None = None
            records = index.read_frames([frame for _, frame in batch])
            while batch:
                next_batch = _take(frames, _AHEAD)
                if next_batch:
                    ahead = pool.submit(index.read_frames, [frame for _, frame in next_batch])
                records.reverse()
                for entry, frame in batch:
                    if entry.first != expected and (expected is not None or entry.first > first):
                        raise FormatError(f"record {entry.first} follows others than it should", where=frame.where)
                    expected = entry.first + entry.items
                    number = 0
                    # Taken out of the list, so that what its recipes resolve to is not held longer than needed.
                    for found in _found(records.pop()):
                        if found.row.seq != entry.first + number:
                            raise FormatError("a record frame is not in order", where=frame.where)
                        number += 1
                        if found.row.seq >= first:
                            yield found
                    if number != entry.items:
                        raise FormatError(f"a record frame has {number} records, not {entry.items}", where=frame.where)
                batch = next_batch
                records = ahead.result() if ahead is not None and batch else []
            if first < len(self) and expected != index.end:
                raise FormatError(f"the records end at {expected}, the manifest names {index.end}", where=self.locator)

    # Blobs

    def _blob(self, found: Found, role: str) -> bytes:
        ref = _blob_ref(found.row, role)
        if ref is None or ref.encoding == 0:
            return b""
        if role == "response" and found.inline is not None:
            return found.inline  # its digest is part of the row, which was checked
        ranges = self._recipe(found, role)
        where = f"{role} of record {found.row.seq}"
        total = sum(map(output_length, ranges))
        if total != ref.size:
            raise FormatError(f"a recipe makes {total} bytes, the row names {ref.size}", where=where)
        spans = [(item.offset, item.length) for item in ranges]
        parts = iter(self._index.literals(spans, size=total, limit=self.blob_limit, where=where))
        data = materialise(ranges, ref.size, lambda _offset, _length: next(parts), where=where)
        if digest(data) != ref.digest:
            raise FormatError("the blob does not match its digest", where=where)
        return data

    def _recipe(self, found: Found, role: str) -> list[Range]:
        row = found.row
        recipes = self._index.recipes(found.frame, found.number)
        roles = [name for name in ("request", "identity") if getattr(row, name) is not None]
        if found.inline is None and row.response_encoding:
            roles.append("response")
        if len(recipes) != len(roles):
            raise FormatError(f"record {row.seq} has {len(recipes)} recipes for {len(roles)} blobs")
        ranges = recipes[roles.index(role)]
        if sum(item.length for item in ranges) > 1 << 32:
            raise FormatError(f"the recipe of record {row.seq} is larger than any blob")
        return ranges

    # Coroutines

    async def alookup(
        self,
        kind: str | None = None,
        identity: object = ABSENT,
        *,
        key: str | bytes | None = None,
        scope: str | None = None,
        nth: int = 0,
    ) -> Record | None:
        """`lookup`, without blocking the event loop."""
        return await in_thread(self.lookup, kind, identity, key=key, scope=scope, nth=nth)

    async def acount(
        self, kind: str | None = None, identity: object = ABSENT, *, key: str | bytes | None = None
    ) -> int:
        """`count`, without blocking the event loop."""
        return await in_thread(self.count, kind, identity, key=key)

    async def arecords(self, **filters: Any) -> AsyncIterator[Record]:
        """`records`, without blocking the event loop."""
        iterator = self.records(**filters)
        done = object()
        while (record := await in_thread(next, iterator, done)) is not done:
            yield record  # type: ignore[misc]


def _nanoseconds(moment: datetime) -> int:
    """Nanoseconds since the epoch, exactly; a float has not enough digits. Without an offset it is local time."""
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def _take(frames: Iterator[tuple[FrameEntry, Frame]], count: int) -> list[tuple[FrameEntry, Frame]]:
    taken: list[tuple[FrameEntry, Frame]] = []
    size = 0
    while len(taken) < count and size < _AHEAD_BYTES and (item := next(frames, None)) is not None:
        taken.append(item)
        size += item[0].raw
    return taken


def _found(frame: RecordFrame) -> Iterator[Found]:
    for number, (row, data, inline) in enumerate(frame.records()):
        yield Found(row, data, inline, frame, number)


def _blob_ref(row: Row, role: str) -> BlobRef | None:
    if role == "response":
        return row.response
    return row.request if role == "request" else row.identity
