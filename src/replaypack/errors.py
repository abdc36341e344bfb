"""Every error that replaypack raises on purpose.

The tree is organised by what a handler would do about the error. Each class carries a stable machine
code (``error.code``); codes are only ever added, never changed or reused (`docs/errors.md` lists them,
and a test holds the list and the tree together). Where a Python user already knows a builtin for the
situation, the class inherits it too, so ``except FileNotFoundError`` and ``except KeyError`` work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar

__all__ = [
    "AccessDeniedError",
    "ArchiveError",
    "CanonicalizationError",
    "ConflictError",
    "ExportError",
    "FormatError",
    "ImportFormatError",
    "InvalidLocatorError",
    "InvalidNameError",
    "JournalError",
    "ObjectExistsError",
    "ObjectMissingError",
    "ObjectTooShortError",
    "ProjectionError",
    "ProofError",
    "PublishError",
    "PurgedError",
    "ReadOnlyStorageError",
    "RecorderClosedError",
    "RecordingExistsError",
    "RecordingNotFoundError",
    "ReplayMismatch",
    "ReplayedError",
    "ReplayHydrationError",
    "ReplayMissError",
    "ReplayPersistenceError",
    "ReplayValueError",
    "ReplaypackError",
    "SessionClosedError",
    "SharedBytesError",
    "StorageError",
    "StorageFullError",
    "StorageTimeoutError",
    "StorageUnsupportedError",
    "UnplayedRecordsError",
    "UsageError",
    "StorageUnavailableError",
    "ValueEncodingError",
    "WeakGuaranteeWarning",
    "WithheldError",
    "ReplaypackWarning",
]

_Error = TypeVar("_Error", bound=BaseException)
FormatReason = Literal["future_version", "malformed_version", "unmigratable", "corrupted"]


class ReplaypackError(Exception):
    """Base of every error raised by replaypack.

    ``code`` (str): stable machine code. ``message`` (str): one sentence on what happened and where.
    ``hint`` (str or None): what to do about it, when there is something to do.
    """

    code: str = "replaypack"
    #: What to do where whoever raises it has nothing more exact to say.
    default_hint: ClassVar[str | None] = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def to_dict(self) -> dict[str, Any]:
        """The error as it stands in JSON: code, message, hint, and what its class adds."""
        return {"code": self.code, "message": self.message, "hint": self.hint}

    # By default the class is called with ``args``, which is not what every one of them takes. Pools of processes copy
    # errors, and hang where one cannot be.
    def __reduce__(self) -> tuple[object, ...]:
        return _again, (type(self), self.args), self.__dict__


def _again(cls: type[ReplaypackError], args: tuple[object, ...]) -> ReplaypackError:
    error = cls.__new__(cls)
    error.args = args
    return error


class UsageError(ReplaypackError, TypeError):
    """A call that contradicts itself: arguments that exclude each other, or none of those that are needed."""

    code = "usage"


class SharedBytesError(UsageError):
    """Other records take bytes of what is to be purged: say of them too what is to be done.

    ``shared`` has their sequence numbers (list of int, ascending) by the name of their recording.
    """

    code = "purge.shared"

    def __init__(self, message: str, *, shared: dict[str, list[int]], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.shared = shared

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "shared": self.shared}


class CanonicalizationError(ReplaypackError, ValueError):
    """A value has no canonical JSON form. ``path`` (str) is the JSON pointer of the offending part."""

    code = "canonical.unsupported"

    def __init__(self, message: str, *, path: str, hint: str | None = None) -> None:
        super().__init__(f"{path or '/'}: {message}", hint=hint)
        self.path = path


class ValueEncodingError(ReplaypackError, ValueError):
    """A payload cannot be stored exactly. ``path`` (str) is the JSON pointer of the offending part."""

    code = "value.unsupported"

    def __init__(self, message: str, *, path: str, hint: str | None = None) -> None:
        super().__init__(f"{path or '/'}: {message}", hint=hint)
        self.path = path


class FormatError(ReplaypackError, ValueError):
    """Bytes that are not what the format says they should be.

    ``reason`` is ``future_version`` (written by a newer replaypack), ``malformed_version`` (the version
    field is not one), ``unmigratable`` (an old version with no path forward) or ``corrupted`` (anything
    that does not parse, does not match its digest, or breaks a rule of the format). ``where`` names the
    object and, where known, the place in it.
    """

    code = "format.corrupted"

    def __init__(
        self, message: str, *, reason: FormatReason = "corrupted", where: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.reason: FormatReason = reason
        self.where = where
        self.detail = message
        self.code = f"format.{reason}"

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "where": self.where, "reason": self.reason}


#: What operations of a storage are called in messages; others by their own names.
_DOING = {
    "get": "reading",
    "get_range": "reading a part of",
    "get_suffix": "reading the end of",
    "put_new": "writing",
    "put": "writing",
    "delete": "deleting",
    "list": "listing",
    "open": "opening",
    "finish": "writing",
    "keeps_deleted": "asking about deleted objects of",
}


class StorageError(ReplaypackError, OSError):
    """A storage operation failed. ``operation`` (str) and ``url`` (str, without credentials) say which."""

    code = "storage.failed"

    def __init__(self, message: str, *, operation: str = "", url: str = "", hint: str | None = None) -> None:
        prefix = f"{_DOING.get(operation, operation)} {url}".strip()
        prefix = f"{prefix}: " if prefix else ""
        super().__init__(f"{prefix}{message}", hint=hint)
        self.operation = operation
        self.url = url

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "url": self.url, "operation": self.operation}


class ObjectMissingError(StorageError, FileNotFoundError):
    """The object is missing, or, on stores that do not tell the two apart, may not be seen.

    ``may_be_denied`` (bool) is true where the store's answer does not say which of the two it is.
    """

    code = "storage.missing"
    may_be_denied: bool = False


class ObjectTooShortError(StorageError):
    """The object ends before the range that was asked for: it is not the object that the asker expected."""

    code = "storage.too_short"


class ObjectExistsError(StorageError, FileExistsError):
    """A create-only write found other bytes already there."""

    code = "storage.exists"


class AccessDeniedError(StorageError, PermissionError):
    """The store refused the credentials, or none were found."""

    code = "storage.denied"
    default_hint = "check the credentials, and what they permit"


class StorageUnavailableError(StorageError, ConnectionError):
    """The store could not be reached, or kept failing until the retries ran out of time."""

    code = "storage.unavailable"
    default_hint = (
        "tried again until the time was up (storage option retry_seconds): check the URL, network and endpoint_url"
    )


class StorageTimeoutError(StorageUnavailableError, TimeoutError):
    """The store did not answer in time."""

    code = "storage.timeout"


class StorageFullError(StorageError):
    """There is no space left, or a quota is used up."""

    code = "storage.full"
    default_hint = "free some space"


class ReadOnlyStorageError(StorageError):
    """A write was asked of storage that can only be read (http, zip, a read-only directory)."""

    code = "storage.read_only"


class StorageUnsupportedError(StorageError):
    """The URL's protocol is unknown, lacks its package, or cannot do what was asked."""

    code = "storage.unsupported"


class ArchiveError(ReplaypackError):
    """Base of errors about recordings and archives as a whole."""

    code = "archive.failed"


class InvalidNameError(ArchiveError, ValueError):
    """A recording name breaks the rules of the format (spec chapter 06)."""

    code = "archive.invalid_name"


class InvalidLocatorError(ArchiveError, ValueError):
    """A locator is not ``URL#name`` or ``URL#name@revision``."""

    code = "archive.invalid_locator"


class RecordingNotFoundError(ArchiveError, KeyError):
    """No recording of that name (or no such revision of it) can be seen in the archive."""

    code = "archive.recording_not_found"

    __str__ = ReplaypackError.__str__


class RecordingExistsError(ArchiveError, FileExistsError):
    """The recording exists already, and ``if_exists="error"`` was asked for."""

    code = "archive.recording_exists"


class ConflictError(ArchiveError):
    """Another writer committed to the recording first. ``sibling`` names where this writer's records went."""

    code = "archive.conflict"

    def __init__(self, message: str, *, sibling: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sibling = sibling


class RecorderClosedError(ArchiveError, ValueError):
    """The recorder is sealed, closed, or stopped by an earlier failure."""

    code = "archive.recorder_closed"


class PublishError(ArchiveError, OSError):
    """Records are safe in the local journal but could not be published.

    ``published`` and ``unpublished`` count records; ``journal`` (str) is the path that ``recover`` reads.
    """

    code = "archive.publish_failed"

    def __init__(
        self, message: str, *, published: int, unpublished: int, journal: str | None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.published = published
        self.unpublished = unpublished
        self.journal = journal


class PurgedError(ArchiveError, LookupError):
    """The record was purged: what it said is gone from the archive, on purpose.

    ``recording`` is its locator, ``seq`` the record's number; ``reason`` and ``time`` (RFC 3339) are those of its
    tombstone. ``scope`` is the scope that a lookup found it in.
    """

    code = "record.purged"

    def __init__(
        self,
        message: str,
        *,
        recording: str,
        seq: int,
        reason: str,
        time: str,
        scope: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.recording = recording
        self.seq = seq
        self.reason = reason
        self.time = time
        self.scope = scope


class WithheldError(ArchiveError, LookupError):
    """The payload is not in this copy of the recording: whoever made the copy left it out.

    ``recording`` is its locator; ``seq`` the record's number, or None where it is about all; ``role`` (``request`` or
    ``identity``) says what is not there.
    """

    code = "record.withheld"
    default_hint = "what is withheld is in the archive that the copy was made of"

    def __init__(self, message: str, *, recording: str, seq: int | None, role: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.recording = recording
        self.seq = seq
        self.role = role


class JournalError(ArchiveError, OSError):
    """The local journal could not be written or read."""

    code = "archive.journal_failed"


class ReplayMismatch(ReplaypackError, LookupError):
    """A replayed call has no answer left.

    ``kind``, ``name`` and ``scope`` are those of the call, ``key`` (64 hex digits) is what it was looked up by.
    ``recorded`` is how many records could have answered it, ``asked`` how often it was asked, this time included.
    ``reason``: ``missing`` (never recorded), ``exhausted`` (all of them are played), ``unanswerable`` (it was
    recorded, but interrupted, truncated, without a response or inside of another call) or ``purged`` (the record
    whose turn it is was purged). ``explanation`` shows the nearest recorded requests, or is None.
    """

    code = "replay.mismatch"

    def __init__(
        self,
        message: str,
        *,
        kind: str = "",
        key: str = "",
        name: str | None = None,
        scope: str | None = None,
        recorded: int = 0,
        asked: int = 1,
        reason: Literal["missing", "exhausted", "unanswerable", "purged"] = "missing",
        explanation: object | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.key = key
        self.name = name
        self.scope = scope
        self.recorded = recorded
        self.asked = asked
        self.reason = reason
        self.explanation = explanation

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{self.explanation}" if self.explanation is not None else text


class ReplayedError(ReplaypackError):
    """The recorded failure of a call, of a type that cannot be made again.

    ``str()`` of it is the recorded message. ``type`` (qualified name) and ``module`` are of the exception that was
    raised while recording, ``args`` its plain arguments, ``details`` all that was recorded of it.
    """

    code = "replay.recorded_error"

    def __init__(
        self,
        message: str,
        *,
        type: str | None = None,
        module: str | None = None,
        args: tuple[object, ...] | None = None,
        details: Mapping[str, object] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.type = type
        self.module = module
        self.details = dict(details or {})
        if args is not None:
            self.args = args


class UnplayedRecordsError(ReplaypackError, AssertionError):
    """A strict replay ended and left records unplayed. ``count`` says how many."""

    code = "replay.unplayed"

    def __init__(self, message: str, *, count: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.count = count


class SessionClosedError(ReplaypackError, ValueError):
    """The session is over, or was opened in another process than this fork of it."""

    code = "replay.session_closed"


class ImportFormatError(ReplaypackError, ValueError):
    """A file of another program is not what its format says, or is of a version that is not known."""

    code = "import.malformed"


class ExportError(ReplaypackError, ValueError):
    """A recording holds what the format asked for cannot say."""

    code = "export.failed"


class ReplayValueError(ReplaypackError, ValueError):
    """A keyed store was given what it cannot have: a field of the wrong type, an unknown policy, no targets, …"""

    code = "replay.value"


class ReplayMissError(ReplaypackError, LookupError):
    """Nothing in a strict store answers. ``key`` is the `ReplayKey` that was asked for.

    ``registered`` (a tuple of `ReplayKey`, five at most) is what there is for the same question or scenario node.
    """

    code = "replay.miss"

    def __init__(
        self, message: str, *, key: object = None, registered: tuple[object, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.registered = registered


class ReplayPersistenceError(ImportFormatError):
    """A file is no replay store of a version that is known, or a store cannot be written as one."""

    code = "replay.persistence"


class ReplayHydrationError(ReplaypackError, ValueError):
    """Captured fields do not fit the type they should become.

    ``captured_fields`` are the fields, ``inner`` is the error of the type.
    """

    code = "replay.hydration"

    def __init__(
        self,
        message: str,
        *,
        captured_fields: object = None,
        inner: BaseException | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.captured_fields = captured_fields
        self.inner = inner


class ProjectionError(ReplaypackError, ValueError):
    """A projection left targets without an entry, or gave them two. ``report`` is the `ProjectionReport`."""

    code = "replay.projection"

    def __init__(self, message: str, *, report: object = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.report = report


class ProofError(ReplaypackError, ValueError):
    """An inclusion proof that is well formed and does not prove what it should: another digest, row or payload."""

    code = "proof.invalid"


class ReplaypackWarning(UserWarning):
    """Base of replaypack's warnings."""


class WeakGuaranteeWarning(ReplaypackWarning):
    """The storage behind a URL cannot give a guarantee that the archive protocol relies on."""


#: What reading raises where stored bytes are not what they should be, or are gone; a store that answers is in order.
DAMAGED = (FormatError, ObjectMissingError, ObjectTooShortError)


def without_frames(error: _Error) -> _Error:
    """``error``, to be reported later: its traceback, and those of its causes, would hold what was read at the time."""
    links: list[BaseException] = [error]
    for link in links:
        link.__traceback__ = None
        links += [one for one in (link.__cause__, link.__context__) if one is not None and one not in links]
    return error
