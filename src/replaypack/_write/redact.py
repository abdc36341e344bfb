"""Where redaction meets recording: everything of a record that came from outside, before it is prepared."""

from __future__ import annotations

from typing import Any

from replaypack._plain import Census
from replaypack.policies.redaction import Redactor

__all__ = ["redact_parts"]


def redact_parts(redactor: Redactor, parts: list[Any]) -> int:
    """Remove secrets from parts of a record, in place; return the flags (bits) that say what was done.

    A part may be the census of one. What is of a wrong type stays, to be refused by what checks it.
    """
    bits = 0
    for number, part in enumerate(parts):
        value = part.value if type(part) is Census else part
        clean, more = redactor.process(value)
        if clean is not value:
            parts[number] = clean
            bits |= more
    return bits
