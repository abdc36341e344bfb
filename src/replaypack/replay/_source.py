"""The recording that a session is about: where it lies, and how it is opened, recorded and continued."""

from __future__ import annotations

import difflib
import inspect
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from replaypack._arguments import check_number, check_text, check_type
from replaypack._files import live_directory
from replaypack._write.stamps import new_id
from replaypack.archive import Archive
from replaypack.errors import (
    AccessDeniedError,
    ConflictError,
    JournalError,
    ReadOnlyStorageError,
    RecordingExistsError,
    RecordingNotFoundError,
    ReplaypackWarning,
    UsageError,
)
from replaypack.format.names import check_name, parse_locator, sibling_name
from replaypack.format.notes import redaction_policy
from replaypack.policies.matching import MatchPolicy
from replaypack.policies.redaction import known_secrets
from replaypack.recorder import Recorder
from replaypack.recording import Recording
from replaypack.storage import MemoryStorage

__all__ = ["Source"]

#: What `Archive.recorder` takes that does not say what to do with the name.
_RECORDER_OPTIONS = frozenset(inspect.signature(Archive.recorder).parameters) - {"self", "name"}
_OF_THE_FIRST = frozenset({"if_exists", "metadata", "base", "match", "redact"})


class Source:
    """A recording in an archive, by name; in memory without an archive."""

    def __init__(
        self,
        archive: Archive | str | os.PathLike[str] | None,
        name: str | None,
        *,
        revision: int | None,
        storage_options: Mapping[str, Any] | None,
        reading: Mapping[str, Any],
        recording: Mapping[str, Any],
    ) -> None:
        unknown = set(recording) - _RECORDER_OPTIONS
        if unknown:
            from .session import ReplaySession  # which imports this

            known = _RECORDER_OPTIONS | set(inspect.signature(ReplaySession).parameters)
            near = [match for name in sorted(unknown) for match in difflib.get_close_matches(name, sorted(known), n=1)]
            raise UsageError(
                f"a session has no option {', '.join(sorted(unknown))}",
                hint=f"did you mean {', '.join(near)}?" if near else None,
            )
        # What is used more than once is read once: it may be an iterator.
        secrets = known_secrets(recording.get("secrets", ()), recording.get("secrets_from_env", False))
        match = None if recording["match"] is None else MatchPolicy.of(recording["match"])
        reading = {**reading, "secrets": secrets, "match": match}
        recording = {**recording, "secrets": secrets, "secrets_from_env": False, "match": match}
        check_type("archive", archive, (Archive, str, os.PathLike), "an Archive, a URL, a path or a locator")
        check_text("name", name)
        check_number("revision", revision, "a number from 1 on", least=1, below=10**8)
        if storage_options is not None and (archive is None or isinstance(archive, Archive)):
            raise UsageError("storage_options belong to the URL of an archive")
        self.in_memory = archive is None
        self.owned = not isinstance(archive, Archive) and archive is not None
        self._options = storage_options
        if archive is None:
            storage = MemoryStorage()
            # Its journal must not be that of another such storage.
            storage.url = f"memory://session-{new_id(8).hex()}"
            archive = Archive(storage.url, storage=storage)
            name = name or "session"
        elif not isinstance(archive, Archive):
            url = os.fspath(archive)
            if name is None:
                if "#" not in url:
                    raise UsageError("a session needs the name of a recording", hint="or a locator, URL#name")
                locator = parse_locator(url)
                if revision is not None and locator.revision is not None:
                    raise UsageError("the revision stands in the locator already")
                url, name, revision = locator.url, locator.name, revision or locator.revision
            archive = Archive(url, storage_options)
        if name is None:
            raise UsageError("a session needs the name of a recording")
        self.archive = archive
        self.name = check_name(name)
        self.revision = revision
        self._reading = {key: value for key, value in reading.items() if value is not None}
        # None says something of `redact`, and of the interval between flushes.
        meaning = ("redact", "flush_interval")
        self._recording = {key: value for key, value in recording.items() if value is not None or key in meaning}

    @property
    def locator(self) -> str:
        """``URL#name``, with the revision where one was asked for."""
        at = f"@{self.revision}" if self.revision is not None else ""
        return f"{self.archive.url}#{self.name}{at}"

    @property
    def blocks(self) -> bool:
        """Whether a read may take so long that an event loop must not wait for it."""
        storage = self.archive.storage
        return storage.local_path is None and not isinstance(storage, MemoryStorage)

    def learn_secret(self, secrets: Iterable[str | bytes]) -> None:
        """Remove these values too where it is opened or recorded from here on. Raises `UsageError`."""
        self._recording["secrets"] = self._reading["secrets"] = self._recording["secrets"].adding(secrets)

    def share_secrets(self, recording: Recording) -> None:
        """Have the secrets that it, or a recording which is open, knows be known to both. Raises `UsageError`."""
        recording.learn_secret(*self._recording["secrets"].raw)
        self.learn_secret(recording._secrets.raw)

    def open(self) -> Recording:
        """Open it for replay. Raises as `Archive.open` does."""
        return self.archive.open(self.name, self.revision, **self._reading)

    def find(self) -> Recording | None:
        """`open`; None where nothing was recorded under the name yet, unless a digest says that something was."""
        try:
            recording = self.open()
        except RecordingNotFoundError:
            if self._reading.keys() & {"expect_digest", "expect_manifest"}:
                raise
            return None
        # A claim without a record: whoever made it is about to record, or died before.
        return None if recording.state == "open" and not len(recording) else recording

    def record(self) -> Recorder:
        """Claim it for a new recording. Raises as `Archive.recorder` does."""
        if self.revision is not None:
            raise UsageError("a revision is there to be replayed: nothing can be recorded into it")
        return self.archive.recorder(self.name, **self._recording)

    def extend(self, recording: Recording) -> Recorder:
        """Claim a new revision for calls made live while replaying ``recording``.

        Where the archive cannot be written, or somebody else writes the recording, they go to a recording of their
        own, with the same policies, which a warning names.
        """
        storage = self.archive.storage
        try:
            if not storage.read_only:
                return self._continue(self.archive, self.name)
            why = "can only be read"
        except (ReadOnlyStorageError, AccessDeniedError) as error:
            why = f"cannot be written ({type(error).__name__})"
        except (RecordingExistsError, ConflictError):
            name = sibling_name(self.name, new_id(8).hex())
            recorder = self._continue(self.archive, name, like=recording)
            _warn(f"{self.locator} is being recorded by another writer: live calls are recorded as {recorder.locator}")
            return recorder
        except JournalError:
            if storage.local_path is None or os.access(storage.local_path, os.W_OK):
                raise
            why = "cannot be written"
        archive = Archive(live_directory(self.archive.url))
        name = self.name
        try:
            recorder = self._continue(archive, name, like=recording)
        except (RecordingExistsError, ConflictError, UsageError):  # busy, or there under other policies
            recorder = self._continue(archive, sibling_name(name, new_id(8).hex()), like=recording)
        _warn(f"{self.archive.url} {why}: live calls are recorded as {recorder.name} in {archive.url}")
        return recorder

    def _continue(self, archive: Archive, name: str, *, like: Recording | None = None) -> Recorder:
        """Append to a recording, which keeps its policies; a new one has those of ``like``."""
        options = {key: value for key, value in self._recording.items() if key not in _OF_THE_FIRST}
        if like is not None:
            options |= {"match": like.match, "redact": redaction_policy(like.manifest.content.redaction)}
        return archive.recorder(name, if_exists="append", **options)

    def again(self) -> Archive:
        """The archive for another session, which may outlive this one."""
        return Archive(self.archive.url, self._options) if self.owned else self.archive

    def close(self) -> None:
        """Release the archive if it was opened here."""
        if self.owned:
            self.archive.close()


def _warn(text: str) -> None:
    warnings.warn(text, ReplaypackWarning, stacklevel=5)
