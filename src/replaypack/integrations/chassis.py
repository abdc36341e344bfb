"""`ArchiveReplaySession`: Chassis records to an archive and is answered from it (`docs/chassis.md`).

Needs Chassis, which needs Python 3.12: ``pip install 'replaypack[chassis]'``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from replaypack.archive import Archive
from replaypack.errors import UsageError
from replaypack.format.names import parse_locator

from .chassis_json import pack_session, unpack_session, write_document

try:
    from chassis.core.errors import ReplayMismatch
    from chassis.persistence.formats import REPLAY_FORMAT_VERSION
    from chassis.replay.models import BoundaryKind, ReplayFallback, ReplayMode, ReplayRecord
    from chassis.replay.session import ReplaySession
    from chassis.secrets.redaction import SecretRedactor
except ImportError as error:
    raise UsageError(
        f"this needs Chassis, which cannot be imported ({error})",
        hint="pip install 'replaypack[chassis]', with Python 3.12 or newer",
    ) from error

from ._chassis_memory import MemoryRecords
from ._chassis_records import ArchiveRecords, IfExists

__all__ = ["ArchiveReplaySession"]


class ArchiveReplaySession(ReplaySession):  # type: ignore[misc]
    """Chassis' `ReplaySession` over a recording of an archive, or in memory without one. Safe for many threads.

    ``archive`` is an `Archive`, a URL with ``name`` beside it, or a locator (``URL#name``, ``URL#name@revision``).
    In ``record`` mode the name is claimed with the first record: ``if_exists`` and ``recorder_options`` are those of
    `Archive.recorder`. In ``replay`` mode the recording must be there; what a ``live`` fallback captures goes into a
    new revision of it, or, where the archive cannot be written, into a recording on this machine, with a warning.
    ``records``, with an archive, are what a new recording begins with.

    A recording is finished by `save` or `close`, or by leaving the ``with`` block; close it when its harness has
    stopped, which still records. Raises what `Archive.open` and `Archive.recorder` raise.
    """

    def __init__(
        self,
        mode: ReplayMode = ReplayMode.LIVE,
        fallback: ReplayFallback = ReplayFallback.ERROR,
        redactor: SecretRedactor | None = None,
        metadata: dict[str, Any] | None = None,
        records: Iterable[ReplayRecord] | None = None,
        _cursor: dict[str, int] | None = None,
        *,
        archive: Archive | str | PathLike[str] | None = None,
        name: str | None = None,
        revision: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        if_exists: IfExists = "error",
        recorder_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.mode = ReplayMode(mode)
        self.fallback = ReplayFallback(fallback)
        self.redactor = redactor if redactor is not None else SecretRedactor()
        self.metadata = {} if metadata is None else metadata
        #: How many records of each kind and key were asked for, those of other kinds that share the key counted.
        self._cursor = {} if _cursor is None else dict(_cursor)
        self._lock = threading.Lock()
        self._peeked: tuple[str, int, ReplayRecord] | None = None
        self._owned: Archive | None = None
        self._store: MemoryRecords | ArchiveRecords = MemoryRecords(records or ())
        #: Where the records in memory go when something is written.
        self._target: ArchiveRecords | None = None
        if archive is None:
            if name is not None or revision is not None:
                raise UsageError("a name needs an archive", hint="archive=…, a URL or a locator")
            return
        if not isinstance(archive, Archive):
            if name is None:
                at = parse_locator(str(archive))
                archive, name, revision = at.url, at.name, at.revision if revision is None else revision
            archive = self._owned = Archive(archive, storage_options)
        elif name is None:
            raise UsageError("an archive needs the name of a recording", hint="name=…")
        store = ArchiveRecords(archive, name, revision, if_exists, recorder_options or {}, self._session)
        try:
            self._attach(store, metadata, records is not None, if_exists)
        except BaseException:
            if self._owned is not None:
                self._owned.close()
            raise

    def _attach(
        self, store: ArchiveRecords, metadata: dict[str, Any] | None, has_records: bool, if_exists: IfExists
    ) -> None:
        self._session()  # refuses metadata that no manifest can hold
        if has_records and if_exists == "append":
            raise UsageError("records begin a recording: they are not appended to one", hint="record() them")
        if (has_records or self.is_recording) and if_exists == "error":
            store.refuse_existing()
        if has_records:
            self._target = store
            return
        self._store = store
        if self.is_replaying or (self.is_recording and if_exists == "append"):
            view = store.look(required=self.is_replaying)
            if view is not None and metadata is None:
                self.metadata = unpack_session(view.metadata)["metadata"]

    def _session(self) -> dict[str, Any]:
        return pack_session(self.mode.value, self.fallback.value, self.metadata)

    def __repr__(self) -> str:
        return f"<ArchiveReplaySession {self.mode.value}, {(self._target or self._store).where}>"

    # Writing

    @property
    def records(self) -> Sequence[ReplayRecord]:
        """The records in order: a list in memory, a sequence that reads as it is asked from an archive."""
        return self._store.records

    @records.setter
    def records(self, records: Iterable[ReplayRecord]) -> None:
        if isinstance(self._store, ArchiveRecords):
            raise UsageError("what an archive holds is not replaced", hint="begin another recording")
        self._store, self._peeked = MemoryRecords(records), None

    def record(
        self,
        kind: BoundaryKind,
        *,
        key: str,
        request: Mapping[str, Any] | None = None,
        response: Any = None,
        generation_id: str | None = None,
        run_id: str | None = None,
    ) -> ReplayRecord | None:
        """Append a boundary interaction when recording. Otherwise a no-op.

        When it returns, the record is in the local journal of the archive and survives the death of the process.
        Raises `ValueEncodingError` for what cannot be stored, and what `Recorder.append` raises.
        """
        if not self.is_recording:
            return None
        return self._append(kind, key, request, response, generation_id, run_id, live=False)

    def record_fallback(
        self,
        kind: BoundaryKind,
        *,
        key: str,
        request: Mapping[str, Any] | None = None,
        response: Any = None,
        generation_id: str | None = None,
        run_id: str | None = None,
    ) -> ReplayRecord:
        """Capture a result that the ``live`` fallback produced; it does not answer in this session.

        Raises `RuntimeError` outside of replay with that fallback, `ValueError` for other kinds than tool and model.
        """
        if not self.is_replaying or self.fallback is not ReplayFallback.LIVE:
            raise RuntimeError("fallback capture requires replay mode with LIVE fallback")
        if kind not in (BoundaryKind.TOOL, BoundaryKind.MODEL):
            raise ValueError("fallback capture is supported only for tool and model boundaries")
        record = self._append(kind, key, request, response, generation_id, run_id, live=True)
        asked = self._store.run(key)
        with self._lock:
            self._cursor[kind + ":" + key] = asked
        return record

    def _append(
        self,
        kind: BoundaryKind,
        key: str,
        request: Mapping[str, Any] | None,
        response: Any,
        generation_id: str | None,
        run_id: str | None,
        *,
        live: bool,
    ) -> ReplayRecord:
        self._hand_over()
        fields = {
            "kind": BoundaryKind(kind),
            "key": key,
            "request": self.redactor.redact_value(dict(request or {})),
            "response": self.redactor.redact_value(response),
            "generation_id": generation_id,
            "run_id": run_id,
        }
        return self._store.append(fields, live=live)

    def _hand_over(self) -> None:
        """Write the records that the session was given, which waited in memory for the harness' redactor."""
        with self._lock:
            if self._target is not None:
                self._target.take_over(self._store.records)
                self._store, self._target = self._target, None

    def bind_redactor(self, redactor: SecretRedactor) -> None:
        """Adopt ``redactor``: all that is written passes through it, and so does all that was there when it is read.

        Packs are not written anew: records of this session that hold what the redactor removes, because it came
        late, are named by a `ReplaypackWarning`.
        """
        self.redactor = redactor
        self.metadata = redactor.redact_value(dict(self.metadata))
        self._peeked = None
        self._store.scrub(redactor)

    # Reading

    def replay(self, kind: BoundaryKind, *, key: str) -> ReplayRecord:
        """Return the next recorded interaction for ``kind`` and ``key`` and consume it.

        Raises Chassis' `ReplayMismatch` where all of them are consumed, or there is none.
        """
        place = kind + ":" + key
        cursor = self._cursor
        while True:
            with self._lock:
                n = cursor.get(place, 0)
                cursor[place] = n + 1
                peeked, self._peeked = self._peeked, None
            # A harness asks whether there is a record, then for the record.
            if peeked is not None and peeked[0] == place and peeked[1] == n:
                return peeked[2]
            record = self._store.nth(key, n)
            if record is None:
                with self._lock:
                    self._cursor[place] = min(self._cursor[place], n)
                raise self._mismatch(kind, key)
            if record.kind is kind:
                return record

    def _mismatch(self, kind: BoundaryKind, key: str) -> ReplayMismatch:
        asked = self._cursor.get(kind + ":" + key, 0)
        found = (self._store.nth(key, n) for n in range(asked))
        consumed = sum(record is not None and record.kind is kind for record in found)
        message = (
            f"recorded {kind.value} interactions for this key are exhausted"
            if consumed
            else f"no recorded {kind.value} interaction matches this operation"
        )
        return ReplayMismatch(
            message,
            kind=kind.value,
            key=key,
            reason="exhausted" if consumed else "missing",
            recorded=self._store.counts().get(kind.value, 0),
            consumed=consumed,
        )

    def peek(self, kind: BoundaryKind, *, key: str) -> ReplayRecord | None:
        """The next interaction that `replay` would return, or None."""
        place = kind + ":" + key
        n = self._cursor.get(place, 0)
        while (record := self._store.nth(key, n)) is not None:
            if record.kind is kind:
                self._peeked = (place, n, record)
                return record
            n += 1
        return None

    def has_remaining(self, kind: BoundaryKind, *, key: str) -> bool:
        """Whether `replay` would answer."""
        return self.peek(kind, key=key) is not None

    def has(self, kind: BoundaryKind, *, key: str) -> bool:
        """Whether there is any record of this boundary, consumed or not."""
        n = 0
        while (record := self._store.nth(key, n)) is not None:
            if record.kind is kind:
                return True
            n += 1
        return False

    def counts(self) -> dict[str, int]:
        """The number of records of each kind."""
        return dict(sorted(self._store.counts().items()))

    # Storage

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any], **overrides: Any) -> Self:
        """Rebuild a session from Chassis' document, checked as Chassis checks it.

        With ``archive=…`` it is what a new recording begins with. Raises Chassis' `FormatError`.
        """
        plain = ReplaySession.from_dict(payload)
        fields = {"mode": plain.mode, "fallback": plain.fallback, "metadata": plain.metadata, "records": plain.records}
        return cls(**{**fields, **overrides})

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the session as Chassis' JSON, atomically, and finish its recording.

        Raises `ExportError` for what JSON has no form for, after the recording is finished.
        """
        self.seal()
        scrub = self.redactor.redact_value
        head = {
            "format_version": REPLAY_FORMAT_VERSION,
            "mode": self.mode.value,
            "fallback": self.fallback.value,
            "metadata": scrub(dict(self.metadata)),
        }
        target = Path(path)
        write_document(target, head, (scrub(record.to_dict()) for record in self.records))
        return target

    def seal(self) -> None:
        """Finish the recording in the archive; what is recorded later makes a new revision of it.

        Raises what `Recorder.seal` raises.
        """
        self._hand_over()
        if isinstance(self._store, ArchiveRecords):
            if self.is_recording:
                self._store.begin()
            self._store.seal()

    def close(self) -> None:
        """`seal`, and let go of the archive."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        try:
            if error is None:
                self.seal()
        finally:
            try:
                self._store.close(error)
            finally:
                if self._owned is not None:
                    self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)
