"""`Recording`: look up and iterate what was recorded, reading only what is asked for."""

from __future__ import annotations

import functools
import threading
import time as _time
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ._arguments import check_number, check_text, check_type, names_of
from ._read import ladder
from ._read.ahead import Ahead
from ._read.around import frames_around, read_literals
from ._read.blobs import blob_ref, is_withheld
from ._read.cache import Cache
from ._read.index import Found, Index
from ._read.packs import Frame, PackReader
from ._read.rekeyed import Override
from ._read.renewal import Renewal
from ._read.sequence import found_in, in_order
from ._threads import in_thread
from .canonical import opaque_key
from .errors import ConflictError, FormatError, ObjectMissingError, PurgedError, UsageError, WithheldError
from .format.manifest import Manifest
from .format.manifest_members import NEAR_LIMIT, Redaction, Tombstone
from .format.merkle import leaf_hash
from .format.notes import redaction_policy
from .format.recipe import BLOB_LIMIT, Range
from .format.record_frame import RecordFrame
from .format.row import STATUSES, Row, discriminator
from .policies._secrets import KnownSecrets
from .policies.matching import MatchPolicy
from .policies.redaction import Redactor, known_secrets
from .record import Record
from .storage import Storage
from .values import ABSENT

__all__ = ["Record", "Recording"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: What a look at several payloads reads: literal frames, their raw bytes, bytes of one payload, of all but the first.
_LOOK_FRAMES = 16
_LOOK_RAW = 20 << 20
_LOOK_BLOB = 16 << 20
_LOOK_ALL = 8 << 20
#: Raw bytes of record frames that are read together to look at records beside others.
_AROUND = 32 << 20


def _renewing(
    method: Callable[Concatenate[Recording, _P], _T],
) -> Callable[Concatenate[Recording, _P], _T]:
    """Where a pack was collected since the recording was opened, do it again with the packs that hold it now."""

    @functools.wraps(method)
    def again(self: Recording, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        index = self._index
        try:
            return method(self, *arguments, **options)
        except ObjectMissingError as error:
            self._renew(index, error)
        return method(self, *arguments, **options)

    return again


class Recording:
    """A recording opened for reading. Lazy, safe for many threads, a context manager. Made by `open`."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        manifest: Manifest,
        *,
        refresh: Callable[[], Manifest] | None = None,
        renewal: Renewal | None = None,
        cache_bytes: int = 64 << 20,
        match: MatchPolicy | None = None,
        secrets: Iterable[str | bytes] = (),
    ) -> None:
        self._secrets = known_secrets(secrets)
        self._redactor_made: tuple[Redaction, KnownSecrets, Redactor | None] | None = None
        self._storage = storage
        self._name = name
        self._refresh = refresh
        self._renewal = renewal
        self._renewing = threading.Lock()
        # A page is asked for far more often than a frame: frames have the room that pages leave.
        self._pages = Cache(cache_bytes // 2)
        self._stored = Cache(cache_bytes // 8)
        self._cache = Cache(cache_bytes - cache_bytes // 8, beside=self._pages)
        self._reader = PackReader(storage)
        #: Whether `close` releases the storage too, as where a locator was opened.
        self.owns_storage = False
        self._manifest = manifest
        self._index = self._index_of(manifest)
        self._near_read = False
        self._override = Override(self, match) if match is not None and match != manifest.match else None
        #: A larger payload (bytes) is read only where it is in proportion to the compressed bytes that it is made of:
        #: an archive is not trusted to fill the memory. Payloads of hundreds of megabytes of zeros need more.
        self.blob_limit = BLOB_LIMIT

    def _index_of(self, manifest: Manifest) -> Index:
        where = f"{self._storage.url}#{self._name}@{manifest.storage.revision}"
        return Index(manifest, self._reader, self._cache, self._pages, self._stored, where=where)

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
        if self.owns_storage:
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
    def storage(self) -> Storage:
        """Where the archive lies that it is part of."""
        return self._storage

    @property
    def index(self) -> Index:
        """The tables and frames behind the records, for what checks or writes them; no stable interface.

        Whoever has looked at them relies on their packs: these are not exchanged for others from then on.
        """
        with self._renewing:
            self._renewal = None
            return self._index

    def _renew(self, index: Index, error: ObjectMissingError) -> None:
        """After a pack that ``index`` names was missing: go on with the tables of a newer revision of this content.

        Raises ``error``, or one that says more, where there is none.
        """
        with self._renewing:
            if self._index is not index:
                return  # another thread was faster
            if self._renewal is None:
                raise error
            manifest = self._renewal(self._manifest, error)
            self._index = self._index_of(manifest)
            self._manifest = manifest
            self._near_read = False

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

    @property
    def tombstones(self) -> list[Tombstone]:
        """What is left of records that were purged: when, why, and of each its number and Merkle leaf."""
        return list(self._manifest.storage.tombstones)

    @property
    def withheld(self) -> frozenset[str]:
        """Roles of payloads (``request``, ``identity``) that are not in this copy."""
        return self._index.withheld

    def __len__(self) -> int:
        """How many records were recorded, purged ones included."""
        return self._manifest.content.records

    # Looking up

    @property
    def redactor(self) -> Redactor | None:
        """What removes secrets from a call before it is looked up, as was done when recording; None for nothing.

        Raises `FormatError` (``future_version``) where this version does not know the recording's policy.
        """
        noted, secrets, made = self._manifest.content.redaction, self._secrets, self._redactor_made
        # A secret may be learned while another thread makes it.
        if made is None or made[0] is not noted or made[1] is not secrets:
            made = self._redactor_made = (noted, secrets, Redactor.of(redaction_policy(noted), secrets))
        return made[2]

    def learn_secret(self, *secrets: str | bytes) -> None:
        """Remove these values too from calls before they are looked up, as ``secrets`` of `open` are.

        Raises `UsageError` for a value that is too short.
        """
        self._secrets = self._secrets.adding(secrets)

    def key_of(self, kind: str, identity: object) -> bytes:
        """The key (32 bytes) that this recording has for a call: its identity redacted, its match policy applied.

        Raises `CanonicalizationError`, and `FormatError` where the policy is one of a newer version.
        """
        redactor = self.redactor
        if redactor is not None:
            kind, identity = redactor.redact(kind), redactor.redact(identity)
        return self.match.key(kind, identity)

    @property
    def keys_as_they_are(self) -> bool:
        """Whether a call with the `key_digest` of a record is that call, without a search for secrets.

        By rule, secrets were removed from what is recorded: there is nothing to be removed from what equals it.
        """
        redactor = self.redactor
        return redactor is not None and not redactor.knows_secrets and not self.match.rules

    def _key(self, kind: str | None, identity: object, key: str | bytes | None) -> bytes:
        if (identity is ABSENT) == (key is None):
            raise UsageError("give either the identity of the call or the key it was recorded with")
        if key is not None:
            redactor = self.redactor
            return opaque_key(key if redactor is None else redactor.redact(key))
        if kind is None:
            raise UsageError("an identity needs the kind of the call")
        return self.key_of(kind, identity)

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

        Raises `PurgedError` where that record was purged and other records of the call were not (where all were,
        nothing says that it was recorded).
        """
        return self.lookup_digest(self._key(kind, identity, key), scope=scope, nth=nth)

    def lookup_digest(self, key: bytes, *, scope: str | None = None, nth: int = 0) -> Record | None:
        """`lookup` by the 32 bytes of the key itself (`key_of`)."""
        index = self._index
        try:
            record = self._find(key, scope, nth)
        except ObjectMissingError as error:
            self._renew(index, error)
            record = self._find(key, scope, nth)
        if record is not None:
            record.response  # noqa: B018 - a lookup answers with the response read and checked
        return record

    def ahead(self, before: Record | Ahead, count: int) -> Ahead:
        """Up to ``count`` records behind another one, or several, as many as lie in the same frame, if in memory.

        None from the first purged one on, and none where the tables were exchanged since those were read.
        """
        frame: RecordFrame | Frame | None
        if isinstance(before, Ahead):
            index, frame = before.index, before.frame
            number, first = before.number + before.count, before.first + before.count
        else:
            index, found = before._place
            frame, number, first = found.frame, found.number + 1, before.seq + 1
        if index is not self._index or not isinstance(frame, RecordFrame):
            return Ahead()
        if index.purged:
            count = next((n for n in range(count) if first + n in index.purged), count)
        ahead = Ahead(index, frame, number, first, count)
        if self._override is not None:
            ahead.keys = [self._override.key(row.seq) for row in ahead.rows]
        return ahead

    def _find(self, key: bytes, scope: str | None, nth: int) -> Record | None:
        if type(nth) is not int or nth:
            check_number("nth", nth, "a number, counted from 0")
        if scope is not None and (redactor := self.redactor) is not None:
            scope = redactor.redact(scope)
        if not self._near_read and self._override is None:
            self._read_near()
        if scope is None:
            return self._find_in(key, None, nth)[0]
        check_text("scope", scope)
        for wanted in (scope, None):
            try:
                record, any_ = self._find_in(key, wanted, nth)
            except PurgedError as error:
                error.scope = wanted
                raise
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
            return Record(self, found, index), True
        # Another key or scope shares the truncated digests: only the rows tell.
        hits = 0
        for segment, entry, ref in index.entries(prefix):
            if entry.seq in index.purged:
                # Which key it had is not known; by all that is left it is this one.
                if hits == nth:
                    raise index.gone(entry.seq)
                hits += 1
                continue
            found = index.record(segment, entry, ref)
            if found.row.key == key and found.row.scope == scope:
                if hits == nth:
                    return Record(self, found, index), True
                hits += 1
        return None, hits > 0

    def _read_near(self) -> None:
        if not self._near_read:
            index = self._index
            self._near_read = True
            segments = index.segments
            near = [item for segment in segments if (item := segment.near()) is not None]
            # A recording that is being written may have many: pages and frames are fewer bytes then. And where
            # some segment has none, its pages take that round anyway.
            if len(near) == len(segments) and sum(length for _, _, length in near) <= 2 * NEAR_LIMIT:
                self._reader.preload(near)

    @_renewing
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

    @_renewing
    def count_scoped(self, key: bytes, scope: str | None) -> int:
        """How many records of a key (32 bytes) a scope has, those of other scopes and of none not counted."""
        if self._override is not None:
            return self._override.count(key[:16] + discriminator(scope))
        self._read_near()
        [found] = self._index.counts([key[:16] + discriminator(scope)])
        return found

    def count_keys(self, keys: Iterable[bytes]) -> list[int]:
        """How many records each of several keys (32 bytes) has, in any scope; asked in one go."""
        return self._count_keys(list(keys))

    @_renewing
    def _count_keys(self, keys: Sequence[bytes]) -> list[int]:
        if (override := self._override) is not None:
            return [override.count(key[:16]) for key in keys]
        self._read_near()
        return self._index.counts([key[:16] for key in keys])

    @_renewing
    def latest(self, key: bytes, scopes: Sequence[str | None]) -> Record | None:
        """The last record of a key (32 bytes) in the first of several scopes that has one, its response loaded.

        However many scopes: one page of the key table, one record frame, as a `lookup`.
        """
        if self._override is not None:
            record = self._override.latest(key, scopes)
        else:
            self._read_near()
            index = self._index
            found = ladder.latest(index, key, scopes)
            record = None if found is None else Record(self, found, index)
        if record is not None:
            record.response  # noqa: B018
        return record

    def repeated(self) -> Iterator[list[int]]:
        """Yield the sequence numbers of the records of each key and scope that has more than one, in order.

        Reads the key table once, and no record.
        """
        if self._override is not None:
            yield from self._override.repeated()
            return
        told = 0
        while True:
            index = self._index
            try:
                for numbers in islice(ladder.repeated(index), told, None):
                    told += 1
                    yield numbers
                return
            except ObjectMissingError as error:
                self._renew(index, error)

    @_renewing
    def record(self, seq: int) -> Record:
        """Return the record with sequence number ``seq``.

        Raises `UsageError` where there is none, `PurgedError` where it was purged.
        """
        if type(seq) is not int or not 0 <= seq < len(self):
            raise UsageError(f"there is no record {seq}: the recording has {len(self)}, counted from 0")
        index = self._index
        if seq in index.purged:
            raise index.gone(seq)
        for entry, frame in index.frames(seq):
            [records] = index.read_frames([frame])
            row, data, inline = records.record(seq - entry.first)
            if row.seq != seq:
                raise FormatError(f"record {seq} is not in its frame of {entry.items}", where=frame.where)
            return Record(self, Found(row, data, inline, records, seq - entry.first), index)
        raise FormatError(f"no frame holds record {seq}", where=self.locator)

    @_renewing
    def around(self, seq: int, *, frames: int = 16) -> list[Record]:
        """Return the records of the ``frames`` record frames nearest to record ``seq``, in order, no purged ones.

        Whatever the size of the recording this takes one page of a table, and the frames in one go.
        """
        check_number("seq", seq, "a sequence number, counted from 0")
        check_number("frames", frames, "a number of frames")
        index = self._index
        near = frames_around(index, min(seq, max(0, len(self) - 1)), frames) if frames else []
        read = index.read_frames([frame for _, frame in near], most=_AROUND)
        return [
            Record(self, found, index)
            for (entry, _), frame in zip(near, read, strict=False)
            for found in found_in(index, entry.first, frame)
        ]

    @_renewing
    def of_key(self, key: bytes, *, limit: int = 16, frames: int = 16) -> list[Record]:
        """Return up to ``limit`` records of a key (32 bytes), of whatever scope, from ``frames`` frames at most.

        They are read in one go. Purged ones are left out.
        """
        if self._override is not None:
            return self._override.of_key(key, limit)
        self._read_near()
        index = self._index
        wanted: dict[Frame, list[tuple[int, int]]] = {}
        for segment, entry, ref in islice(index.entries(key[:16]), limit):
            if entry.seq in index.purged:
                continue
            frame = Frame(segment.pack(ref.frame, where="page of keys"), ref.frame, None, ref.digest)
            if frame in wanted or len(wanted) < frames:
                wanted.setdefault(frame, []).append((entry.seq, entry.seq - ref.first))
        found = []
        read = index.read_frames(list(wanted), most=_AROUND)
        for (frame, numbers), records in zip(wanted.items(), read, strict=False):
            for seq, number in numbers:
                row, data, inline = records.record(number)
                if row.seq != seq or row.key[:16] != key[:16]:
                    raise FormatError(f"record {seq} does not match its entry in keys", where=frame.where)
                if row.key == key:
                    found.append(Record(self, Found(row, data, inline, records, number), index))
        return sorted(found, key=lambda record: record.seq)

    def with_requests(self, records: Iterable[Record]) -> list[Record]:
        """Return those of ``records`` of which request and identity could be read in two rounds, within bounds.

        None of those where they are withheld.

        Reading them then asks nothing of the store. The first come first: once the bounds are reached (16 literal
        frames of 20 MiB, 8 MiB of payloads), only those that need no more are returned.
        """
        return self._with_requests(list(records))

    @_renewing
    def _with_requests(self, records: Sequence[Record]) -> list[Record]:
        index = self._index
        total = 0
        chosen: list[tuple[Record, list[Range]]] = []
        for record in records:
            row = record.row
            sizes = [ref.size for ref in (row.request, row.identity) if ref is not None]
            if self._index.withheld and any(is_withheld(self._index, row, role) for role in self._index.withheld):
                continue
            if not sizes or max(sizes) > _LOOK_BLOB or (chosen and total + sum(sizes) > _LOOK_ALL):
                continue
            total += sum(sizes)
            tables, found = record._current()
            if tables is not index:
                continue  # exchanged by another thread just now
            recipes = index.recipes(found.frame, found.number)
            chosen.append((record, [item for recipe in recipes[: len(sizes)] for item in recipe]))
        fits = read_literals(index, [ranges for _, ranges in chosen], _LOOK_FRAMES, _LOOK_RAW)
        return [record for (record, _), fit in zip(chosen, fits, strict=True) if fit]

    @_renewing
    def find_blob(self, digest_: str) -> tuple[Record, str]:
        """Return a record that has the blob of a digest (64 hex digits), and the blob's role in it.

        Blobs under 4 KiB are found by reading all rows. Raises `UsageError` where the recording has no such blob,
        `WithheldError` where its bytes are not in this copy.
        """
        try:
            wanted = bytes.fromhex(digest_)
        except (ValueError, TypeError):
            raise UsageError(f"{digest_!r} is not a digest: 64 hex digits") from None
        at = self._index.blob(wanted)
        if at is not None and at[0] >= len(self):
            raise FormatError(f"the table blobs names record {at[0]} of {len(self)}", where=self.locator)
        candidates = [self.record(at[0])] if at is not None else self.records()
        withheld: tuple[Record, str] | None = None
        for record in candidates:
            for role in ("request", "identity", "response"):
                ref = blob_ref(record.row, role)
                if ref is not None and ref.digest == wanted and ref.encoding:
                    if not is_withheld(self._index, record.row, role):
                        return record, role
                    withheld = record, role
        if withheld is not None:
            record, role = withheld
            raise WithheldError(
                f"the blob {digest_} is the {role} of record {record.seq}, which is withheld in {self.locator}",
                recording=self.locator,
                seq=record.seq,
                role=role,
            )
        raise UsageError(f"the recording has no blob {digest_}")

    def blob(self, digest_: str) -> bytes:
        """Return the blob of a digest (64 hex digits); see `find_blob`."""
        record, role = self.find_blob(digest_)
        return record.blob_bytes(role)

    # Merkle leaves

    def leaf(self, seq: int) -> bytes:
        """The Merkle leaf (32 bytes) of record ``seq``, of a purged one too. Raises as `record`, but `PurgedError`."""
        if seq in self._index.purged:
            return self._index.purged[seq][0]
        return leaf_hash(self.record(seq).row_bytes)

    def leaves(self, first: int = 0) -> Generator[bytes]:
        """Yield the Merkle leaves of all records from number ``first`` on, purged ones too, in order."""
        position = first
        while True:
            index = self._index
            try:
                for found in in_order(index, position, where=self.locator):
                    while position < found.row.seq:
                        yield index.purged[position][0]
                        position += 1
                    yield leaf_hash(found.row_bytes)
                    position += 1
            except ObjectMissingError as error:
                self._renew(index, error)
                continue
            for seq in range(position, index.end):
                yield index.purged[seq][0]
            return

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
        """Yield records in recording order, reading ahead; those that were purged are left out.

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
            index = self._index
            try:
                for found in in_order(index, position, where=self.locator):
                    row = found.row
                    position = row.seq + 1
                    if last is not None and row.seq > last:
                        return
                    if wanted(row):
                        yield Record(self, found, index)
            except ObjectMissingError as error:
                self._renew(index, error)
                continue
            position = max(position, index.end)  # the last ones may be purged
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
        self._index = self._index_of(manifest)
        self._manifest = manifest
        return True

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
