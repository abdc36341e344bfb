"""The error of a call that has no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from replaypack.errors import ReplayMismatch
from replaypack.recording import Recording

if TYPE_CHECKING:
    from .mismatch import Explanation

__all__ = ["mismatch"]


def mismatch(recording: Recording, explanation: Explanation, *, recorded: int, asked: int) -> ReplayMismatch:
    """What to raise for a call of which ``recorded`` records can answer, and that was asked ``asked`` times by now."""
    reason: Literal["missing", "exhausted", "unanswerable", "purged"] = "missing"
    what = "was never recorded"
    hint: str | None = "on_missing='live' would make it"
    if explanation.reason == "purged":
        reason, what = "purged", "was recorded, and the record was purged"
    elif recorded:
        reason = "exhausted"
        what = f"was recorded {_times(recorded)}, and asked for {_times(asked)}"
        hint = "on_exhausted='last' or 'live' would answer it"
    elif explanation.reason == "unanswerable":
        reason, what, hint = "unanswerable", "was recorded, but not so that it can answer", None
    if recording.state == "open":
        hint = "the recording is open: it is being recorded, or its recorder died (`replaypack recover`)"
    elif recording.state == "incomplete":
        hint = (
            "the recording is incomplete: the recorded run did not finish; record it anew (mode 'record', "
            "if_exists='replace'), or go on live (on_missing='live')"
        )
    name = f" {explanation.name!r}" if explanation.name is not None else ""
    scope = f" in scope {explanation.scope!r}" if explanation.scope is not None else ""
    return ReplayMismatch(
        f"this {explanation.kind} call{name}{scope} {what} in {recording.locator}",
        kind=explanation.kind,
        key=explanation.key.hex(),
        name=explanation.name,
        scope=explanation.scope,
        recorded=recorded,
        asked=asked,
        reason=reason,
        explanation=explanation,
        hint=hint,
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
