"""The records of a Chassis session that lie in a recording of an archive. Needs Chassis."""

from __future__ import annotations

import copy
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from chassis.replay.models import ReplayRecord
from chassis.secrets.redaction import SecretRedactor

from replaypack._files import live_directory
from replaypack.archive import Archive
from replaypack.errors import (
    AccessDeniedError,
    JournalError,
    ReadOnlyStorageError,
    RecorderClosedError,
    RecordingExistsError,
    RecordingNotFoundError,
    ReplaypackWarning,
    UsageError,
)
from replaypack.policies.redaction import known_secrets
from replaypack.recorder import Recorder
from replaypack.recording import Record, Recording

from ._chassis_answers import StoredRecord, held_rows, scrubbed
from .chassis_json import interaction, interaction_row

__all__ = ["ArchiveRecords", "IfExists"]

IfExists = Literal["error", "append", "replace"]

#: After this many lookups, or one for 1,000 records, the rows of a small recording are held: more is likely to follow.
_LOOKUPS = 16


class ArchiveRecords:
    """The records of one recording, and what is appended to it. Nothing of it is held in memory.

    ``session`` gives what the session is besides its records, for the manifest. While a recording is replayed, what
    the fallback captures goes behind its records and is not looked up.
    """

    def __init__(
        self,
        archive: Archive,
        name: str,
        revision: int | None,
        if_exists: IfExists,
        options: Mapping[str, Any],
        session: Callable[[], dict[str, Any]],
    ) -> None:
        self._archive = archive
        self._name = name
        self._revision = revision
        self._if_exists = if_exists
        # Used by more than one recorder: secrets may be those of an iterator.
        secrets = known_secrets(options.get("secrets", ()), options.get("secrets_from_env", False))
        self._options = {**options, "secrets": secrets, "secrets_from_env": False}
        self._session = session
        self._view: Recording | None = None
        self._lookups = 0
        self._held: dict[str, Any] | None = None
        self._looked = False
        self._recorder: Recorder | None = None
        #: Records captured where the archive cannot be written.
        self._local: tuple[Archive, Recorder] | None = None
        #: What the fallback captured and the view does not show.
        self._captured: list[ReplayRecord] = []
        self._captured_keys: dict[str, list[ReplayRecord]] = {}
        self._kinds: dict[str, int] = {}
        #: Whether there are records, not captured ones, that the view does not show yet.
        self._behind = False
        #: Readers see nothing of a recording that replaces another before it is sealed.
        self._hidden = False
        self._written: dict[str, Any] | None = None
        self._redactor: SecretRedactor | None = None
        self._scrub_below = 0
        self._closed = False
        self._lock = threading.RLock()

    @property
    def where(self) -> str:
        return f"{self._archive.url}#{self._name}"

    # Opening

    def look(self, *, required: bool) -> Recording | None:
        """Open the recording, where there is one. Raises `RecordingNotFoundError` where it is required."""
        with self._lock:
            if not self._looked:
                try:
                    self._show(self._archive.open(self._name, self._revision, fresh=self._revision is None))
                except RecordingNotFoundError:
                    if required:
                        raise
                self._looked = True
                if required:
                    self._if_exists = "append"  # a session that shows these records goes on behind them
            return self._view

    def refuse_existing(self) -> None:
        """Raise `RecordingExistsError` where a recording would be in the way: before the program runs, not after."""
        view = self.look(required=False)
        if view is not None and (len(view) or view.state != "open"):
            raise RecordingExistsError(
                f"{self._archive.url}#{self._name} exists already, with {len(view)} records",
                hint='record with if_exists="append" or "replace", or under another name',
            )

    def _show(self, view: Recording) -> None:
        self._view, self._held, self._lookups = view, None, 0
        self._kinds = dict(view.manifest.content.counts)

    def _claim(self, *, live: bool) -> Recorder:
        if self._closed:
            raise RecorderClosedError("the session is closed", hint="close it when its harness has stopped")
        if self._recorder is None:
            if live:
                self.look(required=False)
            mode = "append" if live else self._if_exists
            written = None if live else self._session()
            options = self._options
            if mode != "append" or self.look(required=False) is None:
                # What is to be redacted is the harness's to say: `bind_redactor`.
                options = {"redact": None, **options}
            self._recorder = self._archive.recorder(self._name, if_exists=mode, metadata=written, **options)
            if mode == "replace":
                self._view, self._kinds, self._hidden = None, {}, True
            elif not live and not self._looked:
                self.look(required=False)
            self._looked, self._if_exists = True, "append"
            if written is not None:
                self._written = written
        return self._recorder

    def _claim_local(self) -> Recorder:
        if self._local is None:
            local = Archive(live_directory(self._archive.url))
            name = f"{self._name}/{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{time.time_ns() % 1_000_000_000:09d}"
            recorder = local.recorder(name, metadata=self._session(), **{"redact": None, **self._options})
            warnings.warn(
                f"{self._archive.url} cannot be written: what runs live is recorded to {recorder.locator}",
                ReplaypackWarning,
                stacklevel=5,
            )
            self._local = local, recorder
        return self._local[1]

    # Writing

    def append(self, fields: Mapping[str, Any], *, live: bool) -> ReplayRecord:
        """Append a record; ``live`` is one that the fallback captured."""
        if not live and self._revision is not None:
            raise UsageError("a revision is what it is: nothing is recorded into it", hint="leave out the revision")
        start = time.time_ns()
        row = interaction_row(0, sequence=None, created_at=start / 10**9, **{**fields, "kind": fields["kind"].value})
        with self._lock:
            if not live:
                number = self._claim(live=False).append(**row)
                self._behind = True
            else:
                number = sum(self._kinds.values())
                try:
                    recorder = self._claim(live=True) if self._local is None else self._local[1]
                except (ReadOnlyStorageError, AccessDeniedError, JournalError):
                    recorder = self._claim_local()
                recorder.append(**row, flags=("live_fallback",))
            self._kinds[row["kind"]] = self._kinds.get(row["kind"], 0) + 1
            record = ReplayRecord(sequence=number, created_at=start / 10**9, **fields)
            if live:
                self._captured.append(record)
                self._captured_keys.setdefault(record.key, []).append(record)
        return record

    def take_over(self, records: Iterable[ReplayRecord]) -> None:
        """Write records that came from elsewhere, as they are."""
        with self._lock:
            recorder = self._claim(live=False)
            for record in records:
                fields = {name: getattr(record, name) for name in ReplayRecord.__dataclass_fields__}
                recorder.append(**interaction_row(recorder.count, **{**fields, "kind": record.kind.value}))
                self._kinds[record.kind.value] = self._kinds.get(record.kind.value, 0) + 1
            self._behind = True

    def seal(self) -> None:
        """Finish the recording; appending goes on in a new revision of it."""
        with self._lock:
            if self._recorder is not None:
                recorder, self._recorder = self._recorder, None
                try:
                    recorder.seal()
                finally:
                    recorder.close()
                self._hidden = False
            if self._local is not None:
                self._local[1].seal()
                self._local[0].close()
                self._local = None
            if self._written is not None and self._session() != self._written:
                # A session's metadata may change until it is saved; those of a recording are set when it begins.
                self._written = self._session()
                with self._archive.recorder(self._name, if_exists="append", metadata=self._written, **self._options):
                    pass

    def begin(self) -> None:
        """Claim the name even where nothing is recorded: an empty session is a recording too."""
        with self._lock:
            if not self._looked or self._view is None or self._if_exists == "replace":
                self._claim(live=False)

    def close(self, error: BaseException | None) -> None:
        """Seal, as incomplete where the session ended by an error, and let go of the archive."""
        with self._lock:
            if self._closed:
                return
            try:
                if error is not None and self._recorder is not None:
                    recorder, self._recorder = self._recorder, None
                    recorder.__exit__(type(error), error, error.__traceback__)
                else:
                    self.seal()
            finally:
                self._closed = True
                if self._view is not None:
                    self._view.close()

    # Reading

    def _settled(self) -> Recording | None:
        """The recording with everything in it that was recorded, not captured."""
        if not self._looked:
            return self.look(required=False)
        if self._behind:
            with self._lock:
                if self._behind:
                    if self._recorder is not None and self._hidden:
                        self.seal()
                    elif self._recorder is not None:
                        self._recorder.flush()
                    self._show(self._archive.open(self._name, fresh=True))
                    # Those of this archive are in the view now.
                    if self._local is None:
                        self._captured, self._captured_keys = [], {}
                    self._behind = False
        return self._view

    def nth(self, key: str, n: int) -> ReplayRecord | None:
        """Record number ``n`` of a key, of whatever kind."""
        view = self._settled() if self._behind or not self._looked else self._view
        if view is not None:
            held = self._held
            if held is not None:
                pair = held.get(key)
                if type(pair) is list:
                    pair = pair[n] if n < len(pair) else None
                elif n:
                    pair = None
                if pair is not None:
                    row, blob = pair
                    redactor = self._redactor if row.seq < self._scrub_below else None
                    return StoredRecord.of(view, row, key, redactor, blob)
            elif self._lookups >= 0:
                self._lookups += 1
                if self._lookups > max(_LOOKUPS, len(view) // 1000):
                    self._lookups, self._held = -1, held_rows(view)
            found = view.lookup(key=key, nth=n)
            if found is not None:
                redactor = self._redactor if found.seq < self._scrub_below else None
                return StoredRecord.of(view, found.row, key, redactor, response=found.response)
        captured = self._captured_keys.get(key)
        if captured is not None:
            n -= view.count(key=key) if view is not None else 0
            if 0 <= n < len(captured):
                return captured[n]
        return None

    def run(self, key: str) -> int:
        """How many records a key has."""
        view = self._settled()
        return (view.count(key=key) if view is not None else 0) + len(self._captured_keys.get(key, ()))

    def counts(self) -> dict[str, int]:
        self.look(required=False)
        return dict(self._kinds)

    def __len__(self) -> int:
        return sum(self.counts().values())

    def at(self, number: int) -> ReplayRecord:
        """Record ``number``, 0 ≤ number < len."""
        view = self._settled()
        stored = len(view) if view is not None else 0
        if view is None or number >= stored:
            return self._captured[number - stored]
        return self._record(view.record(number))

    def __iter__(self) -> Iterator[ReplayRecord]:
        view = self._settled()
        captured = list(self._captured)
        if view is not None:
            yield from map(self._record, view.records())
        yield from captured

    def _record(self, found: Record) -> ReplayRecord:
        fields = interaction(found)
        record = ReplayRecord.from_dict(fields)
        return record if self._redactor is None or found.seq >= self._scrub_below else scrubbed(record, self._redactor)

    @property
    def records(self) -> Sequence[ReplayRecord]:
        return LazyRecords(self)

    def scrub(self, redactor: SecretRedactor) -> None:
        """Let what is stored be read only through the redactor: packs are not written anew."""
        with self._lock:
            if self._written is not None and self._redactor is None:
                changed = sum(scrubbed(record, redactor) != record for record in self)
                if changed:
                    warnings.warn(
                        f"{changed} records of {self._archive.url}#{self._name} were written before the session had "
                        "the harness' redactor and hold what it removes: attach the session before it records",
                        ReplaypackWarning,
                        stacklevel=4,
                    )
            try:
                # What is learned later is removed from exports, not from answers: a run replays as it was recorded.
                self._redactor = copy.deepcopy(redactor)
            except TypeError:
                self._redactor = redactor  # a class of the user's, which holds a lock or the like
            self._scrub_below = len(self)
            self._captured = [scrubbed(record, redactor) for record in self._captured]
            self._captured_keys = {}
            for record in self._captured:
                self._captured_keys.setdefault(record.key, []).append(record)


class LazyRecords(Sequence[ReplayRecord]):
    """The records of a session in an archive, read as they are asked for; compares as a list does."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, store: ArchiveRecords) -> None:
        self._store = store

    def __len__(self) -> int:
        return len(self._store)

    def __getitem__(self, index: Any) -> Any:
        numbers = range(len(self))[index]
        return [self._store.at(number) for number in numbers] if isinstance(numbers, range) else self._store.at(numbers)

    def __iter__(self) -> Iterator[ReplayRecord]:
        return iter(self._store)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | LazyRecords):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"<{len(self)} records>"
