"""`Record`: one recorded call, its payloads read when they are touched."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ._read.ahead import UNREAD
from ._read.blobs import is_withheld, read_blob, recipe_of
from ._read.index import Found, Index
from .errors import FormatError, ObjectMissingError, UsageError
from .format.recipe import Range
from .format.record_frame import RecordFrame
from .format.row import FLAGS, STATUSES, Row
from .values import ABSENT, decode_payload

if TYPE_CHECKING:
    from .recording import Recording

__all__ = ["Record"]

_T = TypeVar("_T")


class Record:
    """One recorded call. ``response`` was loaded by `Recording.lookup`; ``request`` is read when touched."""

    __slots__ = ("_identity", "_place", "_recording", "_request", "_response", "_row")

    def __init__(self, recording: Recording, found: Found, index: Index, response: Any = UNREAD) -> None:
        self._recording = recording
        #: Recipes refer to the tables that they were read with: the two are exchanged together.
        self._place = (index, found)
        self._row = found.row
        self._request: Any = UNREAD
        self._identity: Any = UNREAD
        self._response = response

    def __repr__(self) -> str:
        name = f" {self._row.name!r}" if self._row.name is not None else ""
        return f"<Record {self.seq}: {self.kind}{name}, {self.status}, key {self.key.hex()[:12]}…>"

    @property
    def _found(self) -> Found:
        return self._place[1]

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
        return self._whole()[1].row

    @property
    def head(self) -> Row:
        """`row` for all but the digest of the response, which may not have been computed."""
        return self._row

    @property
    def row_bytes(self) -> bytes:
        """The bytes of the row, of which its Merkle leaf is made."""
        return self._whole()[1].row_bytes

    @property
    def withheld(self) -> frozenset[str]:
        """``request``, ``identity``: payloads that it has, and that are not in this copy of the recording."""
        index = self._place[0]
        return frozenset(role for role in index.withheld if is_withheld(index, self._row, role))

    @property
    def response(self) -> Any:
        """What came back; `ABSENT` where nothing did."""
        if self._response is UNREAD:
            row = self._row
            encoding = row.response_encoding
            inline = self._place[1].inline
            if encoding == 0:
                self._response = ABSENT
            else:
                self._response = decode_payload(encoding, self.response_bytes if inline is None else inline)
        return self._response

    @property
    def request(self) -> Any:
        """What was sent; `ABSENT` where it was not recorded. Takes up to two more rounds of requests.

        Raises `WithheldError` where it is not in this copy.
        """
        if self._request is UNREAD:
            ref = self._row.request
            self._request = ABSENT if ref is None else decode_payload(ref.encoding, self.blob_bytes("request"))
        return self._request

    @property
    def identity(self) -> Any:
        """What the key was made of; the request where it is the same; `ABSENT` for an ``opaque`` key.

        Raises `WithheldError` where it is not in this copy.
        """
        if self._row.identity is None:
            return self.request if self._row.scheme != "opaque" else ABSENT
        if self._identity is UNREAD:
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
        """The bytes of the ``request``, ``identity`` or ``response`` blob, checked against its digest.

        Raises `WithheldError` where they are not in this copy.
        """
        index, found = self._whole()
        limit = self._recording.blob_limit
        try:
            return read_blob(index, found, role, limit=limit)
        except ObjectMissingError as error:
            self._recording._renew(index, error)
        return read_blob(*self._current(), role, limit=limit)

    def recipe(self, role: str) -> list[Range]:
        """The ranges of the recording's literals that make a blob, where it does not stand behind the row."""
        return recipe_of(*self._place, role)

    def _whole(self) -> tuple[Index, Found]:
        """Where it lies, with the digest of its response, which nobody needs for the answer to a call."""
        index, found = self._place
        if not found.row_bytes:
            frame, number = found.frame, found.number
            assert isinstance(frame, RecordFrame)
            found = Found(*frame.record(number), frame, number)
            self._place = index, found
            self._row = found.row
        return index, found

    def _current(self) -> tuple[Index, Found]:
        """Where it lies by the tables that the recording has now."""
        if self._place[0] is not self._recording._index:
            place = self._recording.record(self.seq)._place
            if place[1].row_bytes != self.row_bytes:
                raise FormatError(f"record {self.seq} is another one than it was", where=self._recording.locator)
            self._place = place
        return self._whole()
