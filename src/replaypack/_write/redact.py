"""Where redaction meets recording: everything of a record that came from outside, before it is prepared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from replaypack.policies.redaction import Redactor
from replaypack.values import ABSENT

from .prepare import describe_error

__all__ = ["Redacted", "redact_call"]

#: Places of the kind, the name and the scope.
_LABELS = (0, 3, 7)


class Redacted(NamedTuple):
    """The arguments of an `append` without secrets, and the flags of the record (bits)."""

    kind: str
    identity: Any
    key: Any
    name: str | None
    request: Any
    response: Any
    error: Any
    scope: str | None
    attributes: Any
    bits: int


def redact_call(
    redactor: Redactor,
    kind: str,
    identity: object,
    key: str | bytes | None,
    name: str | None,
    request: object,
    response: object,
    error: BaseException | Mapping[str, Any] | None,
    scope: str | None,
    attributes: Mapping[str, Any] | None,
) -> Redacted:
    """Redact one call. What is of a wrong type goes through, to be refused by what checks it."""
    bits = 0
    if isinstance(error, BaseException):
        error = describe_error(error)
    parts: list[Any] = [kind, identity, key, name, request, response, error, scope, attributes]
    if redactor.is_clean([part for part in parts if part is not None and part is not ABSENT]):
        return Redacted._make((*parts, 0))
    for number, part in enumerate(parts):
        if part is None:
            continue
        clean, more = redactor.process(part)
        if clean is not part:
            # Labels stay text, whatever they held.
            parts[number] = clean.decode("latin-1") if type(clean) is bytes and number in _LABELS else clean
            bits |= more
    return Redacted._make((*parts, bits))
