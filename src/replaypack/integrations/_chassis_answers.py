"""What answers a Chassis session from a recording: records that are read as they are touched. Needs Chassis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chassis.replay.models import BoundaryKind, ReplayRecord
from chassis.secrets.redaction import SecretRedactor

from replaypack._read.bulk import BulkRow, bulk_rows, bulk_size, response_behind
from replaypack.errors import ReplaypackError
from replaypack.format.row import Row
from replaypack.recording import Recording
from replaypack.values import ABSENT

from .chassis_json import interaction, seconds_of

__all__ = ["StoredRecord", "held_rows", "scrubbed"]

_KINDS = {kind.value: kind for kind in BoundaryKind}
#: A recording whose rows and small responses take more (bytes) is not held in memory.
_HELD = 16 << 20
_UNREAD: Any = object()


class StoredRecord(ReplayRecord):  # type: ignore[misc]
    """A `ReplayRecord` that answers from a recording: what no harness asks for is read when it is touched.

    Copies of it, and what `dataclasses.replace` makes of it, are ordinary records.
    """

    __slots__ = ("_place", "_request", "_response", "_row")
    __hash__ = None  # type: ignore[assignment]
    #: The recording, the key asked for, what removes secrets or None, and the blob that holds the response or None.
    #: In one tuple: most answers are asked for their kind and response alone.
    _place: tuple[Recording, str, SecretRedactor | None, bytes | None]
    _row: Row | BulkRow
    _request: Any
    _response: Any
    # Frozen dataclasses are slow to set; the fields themselves cannot be set here.
    __setattr__ = object.__setattr__

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return ReplayRecord(*args, **kwargs)

    @classmethod
    def of(
        cls,
        view: Recording,
        row: Row | BulkRow,
        key: str,
        redactor: SecretRedactor | None,
        blob: bytes | None = None,
        response: Any = _UNREAD,
    ) -> Any:
        """The answer to a lookup of ``key``: with its response, or the blob that holds it, or neither."""
        self = object.__new__(cls)
        self._place = view, key, redactor, blob
        self._row = row
        self._request = _UNREAD
        self._response = response if response is _UNREAD else self._shown(response)
        return self

    def _shown(self, value: Any) -> Any:
        if value is ABSENT:
            return None
        redactor = self._place[2]
        return value if redactor is None else redactor.redact_value(value)

    def _text(self, name: str) -> str | None:
        value = (self._row.attributes or {}).get(name)
        return value if isinstance(value, str) else None

    @property
    def kind(self) -> BoundaryKind | None:
        return _KINDS.get(self._row.kind)

    @property
    def sequence(self) -> int:
        noted = (self._row.attributes or {}).get("sequence")
        return noted if type(noted) is int else self._row.seq

    @property
    def key(self) -> str:
        return self._place[1]

    @property
    def request(self) -> dict[str, Any]:
        if self._request is _UNREAD:
            self._request = self._shown(interaction(self._place[0].record(self._row.seq))["request"])
        return self._request  # type: ignore[no-any-return]

    @property
    def response(self) -> Any:
        if self._response is _UNREAD:
            view, _, redactor, blob = self._place
            row = self._row
            found = view.record(row.seq).response if blob is None else response_behind(row, blob)
            self._response = found if redactor is None and found is not ABSENT else self._shown(found)
        return self._response

    @property
    def generation_id(self) -> str | None:
        return self._text("generation_id")

    @property
    def run_id(self) -> str | None:
        return self._text("run_id")

    @property
    def created_at(self) -> float:
        return seconds_of(self._row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplayRecord) and self.to_dict() == other.to_dict()

    def __reduce__(self) -> Any:
        return ReplayRecord, tuple(getattr(self, name) for name in ReplayRecord.__dataclass_fields__)


def held_rows(view: Recording) -> dict[str, Any] | None:
    """The rows of a small recording with the responses that stand behind them, by the text of their key.

    A value is the only pair of its key, or a list of them. None where they are too many, or cannot all be read: those
    that can are still found one by one.
    """
    rows: dict[str, Any] = {}
    try:
        if bulk_size(view._index) > _HELD:
            return None
        for pair in bulk_rows(view._index):
            row = pair[0]
            key = row.attributes.get("key") if row.attributes else None
            if isinstance(key, str) and row.scope is None and row.scheme == "opaque":
                run = rows.setdefault(key, pair)
                if run is pair:
                    continue
                if type(run) is list:
                    run.append(pair)
                else:
                    rows[key] = [run, pair]
    except ReplaypackError:
        return None
    return rows


def scrubbed(record: ReplayRecord, redactor: SecretRedactor) -> ReplayRecord:
    scrub = redactor.redact_value
    return replace(record, request=scrub(dict(record.request)), response=scrub(record.response))
