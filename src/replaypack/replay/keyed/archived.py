"""`ArchivedReplayStore`: a keyed store in an archive, read as it is asked and written as it is registered.

A pair is one record of kind ``trace``. Its identity is the part of the key that must be equal, its scope the rung
(model, visit, replicate as canonical JSON; none where all are wildcards), so that all that may answer a lookup lies
together in the key table. The whole key stands in the attributes, the entry is the response.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from types import TracebackType
from typing import Any, Literal, Self, overload

from replaypack import values
from replaypack._escape import counted
from replaypack.archive import Archive
from replaypack.canonical import canonical_json
from replaypack.errors import PurgedError, ReplayMissError, ReplayPersistenceError, ReplayValueError, UsageError
from replaypack.format.manifest import Manifest
from replaypack.format.names import parse_locator
from replaypack.recorder import Recorder
from replaypack.recording import Record, Recording

from .entry import ReplayEntry
from .key import Outer, ReplayKey, Rung, ladder
from .store import MissPolicy, Pair, Pairs, ReplayStore, check_policy

__all__ = ["KIND", "ArchivedReplayStore", "Entries", "pair_of", "policy_of", "record_entries"]

#: The kind of a record that is an entry of a keyed store.
KIND = "trace"
#: Under this name the metadata of a recording say what is not in its records.
_METADATA = "replay_store"
#: Entries that were registered and may not be published yet are kept up to this number and these bytes.
_FRESH, _FRESH_BYTES = 4096, 16 << 20
#: Records that are read to say what there is besides what was asked.
_EXPLAINED = 16


class ArchivedReplayStore(ReplayStore):
    """A `ReplayStore` that is a recording of an archive; safe for many threads, a context manager.

    It is named by a ``locator`` (``URL#name``, for reading also ``URL#name@revision``) or by ``archive`` and ``name``.
    ``mode``: ``"replay"`` reads; ``"record"`` makes a new recording; ``"append"`` continues one. ``miss_policy`` is by
    default the one noted in the recording, ``"fall_through"`` for a new one. ``options`` go to `Archive.open` or
    `Archive.recorder`.

    What `register` returned from is in the local journal and answers lookups of this store; others see it when it is
    published. Leaving the ``with`` block, or `close`, seals the recording. Raises what `replaypack.open` and
    `Archive.recorder` raise, and `UsageError` for a recording to be read that holds only records of something else.
    """

    def __init__(
        self,
        locator: str | None = None,
        *,
        archive: Archive | None = None,
        name: str | None = None,
        mode: Literal["replay", "record", "append"] = "replay",
        miss_policy: MissPolicy | None = None,
        storage_options: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if mode not in ("replay", "record", "append"):
            raise UsageError(f"mode is 'replay', 'record' or 'append', not {mode!r}")
        if (locator is None) == (archive is None) or (archive is None) != (name is None):
            raise UsageError("give a locator, or an archive and the name of a recording")
        if miss_policy is not None:
            check_policy(miss_policy)
        revision = None
        self._source = (locator, storage_options) if mode == "replay" and not options else None
        self._owned: Archive | None = None
        if locator is not None:
            url, name, revision = parse_locator(locator)
            archive = self._owned = Archive(url, storage_options)
        assert archive is not None
        assert name is not None
        self._recorder: Recorder | None = None
        # Registered and maybe not published: entries by place, and the bytes they take.
        self._fresh: dict[Outer, dict[Rung, Pair]] = {}
        self._fresh_count = self._fresh_bytes = 0
        self._write_lock = threading.Lock()
        try:
            if mode == "replay":
                self._recording = archive.open(name, revision, **options)
                _refuse_others(self._recording)
            else:
                if revision is not None:
                    raise UsageError("a revision that is named can only be read", hint="leave @revision out")
                noted = dict(metadata or {})
                if miss_policy is not None or mode == "record":
                    noted[_METADATA] = {"miss_policy": miss_policy or "fall_through"}
                self._recorder = archive.recorder(
                    name, if_exists="error" if mode == "record" else "append", metadata=noted, **options
                )
                self._recording = archive.open(name, fresh=True)
        except BaseException:
            self.close()
            raise
        super().__init__(miss_policy=miss_policy or policy_of(self._recording))

    @classmethod
    def of(cls, recording: Recording, *, miss_policy: MissPolicy | None = None) -> Self:
        """The store that a recording which is open already holds. It stays open when the store is closed."""
        _refuse_others(recording)
        store = cls.__new__(cls)
        store._owned = store._recorder = store._source = None
        store._fresh, store._fresh_count, store._fresh_bytes = {}, 0, 0
        store._write_lock = threading.Lock()
        store._recording = recording
        ReplayStore.__init__(store, miss_policy=miss_policy or policy_of(recording))
        return store

    def __repr__(self) -> str:
        state = "reading" if self._recorder is None else "recording"
        return f"<{type(self).__name__} {self.locator}, {state}, {self.miss_policy}>"

    # Hosts copy their configuration deeply, and this is one store whoever holds it.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        locator, options = self._source or (None, None)
        if locator is None:
            raise UsageError("only a store that was opened for reading by its locator can go to another process")
        return _reopen, (type(self), locator, self.miss_policy, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._recorder is not None:
                self._recorder.__exit__(kind, error, trace)
        finally:
            self._recorder = None
            self._close_storage()

    @property
    def locator(self) -> str:
        """``URL#name@revision`` of what is read; ``URL#name`` while recording."""
        return self._recording.locator if self._recorder is None else self._recorder.locator

    @property
    def recording(self) -> Recording:
        """The recording as far as it is published."""
        return self._recording

    @property
    def entries(self) -> Sequence[Pair]:
        """The pairs of key and entry, in order of registration, read as they are touched (see `Entries`)."""
        with self._write_lock:
            self._publish()
        return Entries(self._recording)

    def seal(self) -> Manifest:
        """Finish recording and go on reading; the manifest. Raises what `Recorder.seal` raises."""
        with self._write_lock:
            if self._recorder is None:
                return self._recording.manifest
            manifest = self._recorder.seal()
            self._recorder = None
            self._recording.refresh()
            self._forget()
            return manifest

    def close(self) -> None:
        """Seal what is being recorded; release what this store opened itself."""
        if self._recorder is not None:
            self.seal()
        self._close_storage()

    def _close_storage(self) -> None:
        if self._owned is not None:
            self._owned.close()

    # Reading

    def find(self, key: ReplayKey) -> Pair | None:
        """The entry that answers and the key it was registered with: one page of the key table, one record."""
        rungs = ladder(key.rung)
        fresh = None
        if self._recorder is not None:
            with self._write_lock:
                for number, rung in enumerate(rungs):
                    fresh = self._fresh.get(key.outer, {}).get(rung)
                    if fresh is not None:
                        # Only what is more specific than this goes before it.
                        del rungs[number:]
                        break
        recording = self._recording
        try:
            scopes = [_scope(rung) for rung in rungs]
            record = recording.latest(_digest(recording, key.outer), scopes) if rungs else None
        except PurgedError:
            return None  # an earlier entry, or a less specific one, is not what this one said
        return fresh if record is None else pair_of(record, recording, key.outer)

    def _has(self, key: ReplayKey) -> bool:
        return key.outer in self._fresh or self._recording.count(KIND, _identity(key.outer)) > 0

    def _registered(self, key: ReplayKey) -> Iterator[ReplayKey]:
        fresh = [pair[0] for pair in list(self._fresh.get(key.outer, {}).values())]
        records = self._recording.of_key(_digest(self._recording, key.outer), limit=_EXPLAINED)
        seen = set()
        for other in chain(fresh, (_key_of(record, self._recording, key.outer) for record in records)):
            if other not in seen:
                seen.add(other)
                yield other

    def _miss(self, key: ReplayKey) -> ReplayMissError:
        error = super()._miss(key)
        if purged := self._recording.manifest.purged:
            was = (
                "was purged, and it may have been that one" if purged == 1 else "were purged, and it may be one of them"
            )
            error.message += f"; {counted(purged, 'record')} of {self.locator} {was}"
        return error

    # Writing

    def _put(self, key: ReplayKey, entry: ReplayEntry) -> bool:
        recorder = self._recorder
        if recorder is None:
            raise UsageError(f"{self.locator} is open for reading", hint='open it with mode="append"')
        with self._write_lock:
            place = self._fresh.get(key.outer, {})
            before = key.rung in place
            if not before and len(self._recording):
                before = self._recording.count_scoped(_digest(self._recording, key.outer), _scope(key.rung)) > 0
            _append(recorder, key, entry)
            # As it will be read again: plain data, and nobody else's.
            encoded = values.encode(entry.__dict__)
            self._fresh.setdefault(key.outer, place)[key.rung] = (key, ReplayEntry(**values.decode(encoded)))
            self._fresh_count += 1
            self._fresh_bytes += len(encoded)
            if self._fresh_count >= _FRESH or self._fresh_bytes >= _FRESH_BYTES:
                self._publish()
            return before

    def _publish(self) -> None:
        """Publish what was registered and read it from there from now on. Holds the lock."""
        if self._recorder is not None and self._fresh:
            self._recorder.flush()
            self._recording.refresh()
            self._forget()

    def _forget(self) -> None:
        self._fresh = {}
        self._fresh_count = self._fresh_bytes = 0


class Entries(Pairs):
    """The pairs of a recording in order, each read when it is touched.

    What was registered again later is left out. Which those are is found by one pass over the key table, without the
    records, the first time it matters; memory: one number for each registration that was overwritten.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._left_out: list[int] | None = None
        #: Records that are left, where some were purged: of these not even the kind is known.
        self._present: int | None = None

    def __repr__(self) -> str:
        return f"<{len(self)} entries of {self._recording.locator}>"

    def __len__(self) -> int:
        if self._recording.tombstones:
            if self._present is None:
                self._present = sum(1 for _ in self._recording.records(kinds=KIND))
            return self._present - len(self._overwritten())
        return self._recording.count(KIND) - len(self._overwritten())

    def __iter__(self) -> Iterator[Pair]:
        left_out = set(self._overwritten())
        for record in self._recording.records(kinds=KIND):
            if record.seq not in left_out:
                yield pair_of(record, self._recording)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index if index >= 0 else index + len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"entry {index} of {len(self)}")
        if self._recording.count(KIND) != len(self._recording) or self._recording.tombstones:
            # Records of other kinds lie between, or such that are gone.
            return next(islice(iter(self), number, None))
        # Each that is left out before it moves it one further.
        left_out = self._overwritten()
        seq = number
        while (further := number + bisect_right(left_out, seq)) != seq:
            seq = further
        return pair_of(self._recording.record(seq), self._recording)

    def _overwritten(self) -> list[int]:
        if self._left_out is None:
            left_out = []
            gone = self._recording._index.purged
            for numbers in self._recording.repeated():
                # Of equal places only those with wholly equal keys: in a scenario the question may be another one.
                later: set[ReplayKey] = set()
                for seq in reversed(numbers):
                    if seq in gone:
                        continue
                    record = self._recording.record(seq)
                    if record.kind == KIND:
                        key = _key_of(record, self._recording)
                        if key in later:
                            left_out.append(seq)
                        later.add(key)
            self._left_out = sorted(left_out)
        return self._left_out


def _refuse_others(recording: Recording) -> None:
    """A store that answers nothing would send every turn to a model: another recording was meant."""
    counts = recording.manifest.content.counts
    if counts and KIND not in counts and recording.state != "open":
        raise UsageError(
            f"{recording.locator} has no entries of a replay store, but records of kind {', '.join(counts)}",
            hint="is it the name of another recording?",
        )


def _reopen(
    cls: type[ArchivedReplayStore], locator: str, miss_policy: MissPolicy, options: Mapping[str, Any] | None
) -> ArchivedReplayStore:
    return cls(locator, miss_policy=miss_policy, storage_options=options)


def record_entries(
    entries: Iterable[Pair],
    archive: Archive,
    name: str,
    *,
    miss_policy: MissPolicy = "fall_through",
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> Manifest:
    """Record pairs as a recording and seal it, all of them or none; ``options`` go to `Archive.recorder`."""
    noted = {**(metadata or {}), _METADATA: {"miss_policy": check_policy(miss_policy)}}
    with archive.recorder(name, metadata=noted, on_error="discard", **options) as recorder:
        for key, entry in entries:
            _append(recorder, key, entry)
    manifest = recorder.manifest
    assert manifest is not None
    return manifest


def policy_of(recording: Recording) -> MissPolicy:
    """The miss policy that a recording notes, else ``"fall_through"``. Raises `ReplayPersistenceError`."""
    noted = recording.metadata.get(_METADATA)
    policy = noted.get("miss_policy", "fall_through") if isinstance(noted, dict) else "fall_through"
    try:
        return check_policy(policy)
    except ReplayValueError as error:
        raise ReplayPersistenceError(f"{recording.locator}: in its metadata {error.message}") from None


def pair_of(record: Record, recording: Recording, outer: Outer | None = None) -> Pair:
    """The key and the entry that a record holds; ``outer`` where that is what it was found by.

    Raises `ReplayPersistenceError` where it holds none.
    """
    key = _key_of(record, recording, outer)
    try:
        return key, ReplayEntry.model_validate(record.response)
    except ReplayValueError as error:
        raise ReplayPersistenceError(f"record {record.seq} of {recording.locator}: {error.message}") from None


def _key_of(record: Record, recording: Recording, outer: Outer | None = None) -> ReplayKey:
    try:
        key = ReplayKey.model_validate(record.attributes)
    except ReplayValueError as error:
        where = f"record {record.seq} of {recording.locator}"
        raise ReplayPersistenceError(f"{where} is no entry of a keyed store: {error.message}") from None
    sound = record.key == _digest(recording, key.outer) if outer is None else outer == key.outer
    if not sound or record.scope != _scope(key.rung):
        where = f"record {record.seq} of {recording.locator}"
        raise ReplayPersistenceError(f"{where} stands under another key than it names: {key!r}")
    return key


def _append(recorder: Recorder, key: ReplayKey, entry: ReplayEntry) -> None:
    recorder.append(
        kind=KIND,
        name=key.answering_model_id,
        identity=_identity(key.outer),
        scope=_scope(key.rung),
        # Absent is not written; empty is.
        attributes=key.model_dump(exclude_none=True),
        response={name: value for name, value in entry.__dict__.items() if value is not None},
    )


def _identity(outer: Outer) -> dict[str, str]:
    if outer[0] == "question":
        return {"question_id": outer[1]}
    return {"scenario_id": outer[1], "scenario_node": outer[2]}


def _digest(recording: Recording, outer: Outer) -> bytes:
    return recording.key_of(KIND, _identity(outer))


@lru_cache(maxsize=4096)
def _scope(rung: Rung) -> str | None:
    return None if rung == (None, None, None) else canonical_json(list(rung)).decode()
