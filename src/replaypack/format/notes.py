"""What a manifest notes: policies as data, an error, the user's metadata (spec chapters 03, 06 and 11)."""

from __future__ import annotations

from typing import Any

import msgspec

from replaypack.canonical import canonical_json
from replaypack.errors import CanonicalizationError
from replaypack.policies.matching import NONE, MatchPolicy
from replaypack.policies.redaction import RedactionPolicy

from .manifest_members import Match, Redaction

__all__ = ["check_metadata", "error_note", "match_note", "match_policy", "redaction_note", "redaction_policy"]

#: Writers refuse more metadata (bytes), and cut what is noted of an error to this many characters a member.
MAX_METADATA = 1 << 20
_MAX_NOTE = 4096


def match_note(policy: MatchPolicy) -> Match:
    """A match policy as it stands in a manifest."""
    return msgspec.convert(policy.to_data(), Match)


def match_policy(note: Match, *, where: str | None = None) -> MatchPolicy:
    """The match policy of a manifest.

    Raises `FormatError`: ``future_version`` for a rule that this version does not know, else ``corrupted``.
    """
    if note == _MATCH_NONE:
        return NONE
    return MatchPolicy.from_data(msgspec.to_builtins(note), where=where)


_MATCH_NONE = match_note(NONE)


def redaction_note(policy: RedactionPolicy | None) -> Redaction:
    """A redaction policy as it stands in a manifest; None removes nothing."""
    return Redaction("none", 1) if policy is None else msgspec.convert(policy.to_data(), Redaction)


def redaction_policy(note: Redaction) -> RedactionPolicy | None:
    """The redaction policy of a manifest; None for ``none``. Raises as `RedactionPolicy.from_data` does."""
    return RedactionPolicy.from_data(msgspec.to_builtins(note))


def error_note(described: dict[str, Any]) -> dict[str, Any]:
    """What of an error can stand in a manifest: JSON that reads back unchanged, and not much of it.

    Lone surrogates of a message are written out, long texts cut; a member that no JSON gives back is left out.
    """
    note: dict[str, Any] = {}
    for name, value in described.items():
        if isinstance(value, str):
            value = value[:_MAX_NOTE].encode("utf-8", "backslashreplace").decode()
        try:
            if len(canonical_json({name: value})) <= 8 * _MAX_NOTE:
                check_metadata({name: value})
                note[name] = value
        except CanonicalizationError:
            continue
    return note


def check_metadata(metadata: dict[str, Any]) -> None:
    """Refuse metadata that JSON would not give back as it was (bytes, integers beyond a double, …).

    Raises `CanonicalizationError` with the path.
    """
    text = canonical_json(metadata)
    if len(text) > MAX_METADATA:
        raise CanonicalizationError(f"metadata takes more than {MAX_METADATA >> 20} MiB", path="")
    try:
        back = canonical_json(msgspec.json.decode(text))
    except (msgspec.MsgspecError, CanonicalizationError, ValueError):
        back = b""
    if back != text or b'"$bytes"' in text or b'"$$bytes"' in text:
        raise CanonicalizationError(
            "metadata must be JSON values that read back unchanged",
            path="",
            hint="write bytes and very large integers as text",
        )
