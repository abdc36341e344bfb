"""Ready-made match policies, as the registry of the specification lists them."""

from __future__ import annotations

import difflib
from functools import cache

from replaypack.errors import UsageError

from .matching import MatchPolicy, Rule, renumber, replace

__all__ = ["PATTERNS", "READY_MADE", "ready_made"]

_HEX = "[0-9A-Fa-f]"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_DATE = "[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-5][0-9]"
_TIMES = [f"{_DATE}:[0-6][0-9][.,][0-9]{{1,12}}", f"{_DATE}:[0-6][0-9]", _DATE]
_ZONES = ["[Zz]", "[+\\-][0-2][0-9]:[0-5][0-9]", "[+\\-][0-2][0-9][0-5][0-9]", "[+\\-][0-2][0-9]", ""]

#: Patterns of the ready-made policies, to build rules of one's own with.
PATTERNS = {
    "uuid": _UUID,
    # The longest form first: the first alternative that matches counts.
    "timestamp": "|".join(time + zone for time in _TIMES for zone in _ZONES),
    "message-id": "|".join(
        [
            f"{prefix}[A-Za-z0-9]{{16,128}}"
            for prefix in ("chatcmpl-", "cmpl-", "gen-", "msg_", "resp_", "rs_", "run_", "req_")
        ]
        + [f"msg_{cloud}_[A-Za-z0-9]{{16,128}}" for cloud in ("bdrk", "vrtx")]
        + [f"{prefix}{_UUID}-[0-9]{{1,4}}" for prefix in ("run-", "run--", "lc_run--")]
        + [f"{prefix}{_UUID}" for prefix in ("chatcmpl-", "msg_", "resp_", "run-", "run--", "lc_run--")]
    ),
    "tool-call-id": "|".join(
        [
            f"{prefix}[A-Za-z0-9_\\-]{{1,128}}"
            for prefix in ("call_", "toolu_", "tooluse_", "srvtoolu_", "mcptoolu_", "fc_")
        ]
        + [f"chatcmpl-tool-{_HEX}{{32}}", "functions\\.[A-Za-z0-9_\\-]{1,128}:[0-9]{1,6}"]
    ),
}

#: Members that hold the id of a tool call, whatever its form.
_TOOL_CALL_PLACES = (
    "/**/tool_call_id",
    "/**/tool_use_id",
    "/**/toolCallId",
    "/**/toolUseId",
    "/**/tool_calls/*/id",
    "/**/invalid_tool_calls/*/id",
    "/**/tool_call_chunks/*/id",
    "/**/function_call/id",
    "/**/functionCall/id",
    "/**/function_response/id",
    "/**/functionResponse/id",
)
#: Members that hold one among other things: there it must look like one.
_TOOL_CALL_MAYBE = ("/**/call_id", "/**/content/*/id")

_RULES: dict[str, tuple[Rule, ...]] = {
    "message-ids": (renumber(PATTERNS["message-id"], "<message-#>", whole=True),),
    "timestamps": (replace(PATTERNS["timestamp"], "<timestamp>"),),
    "tool-call-ids": (
        renumber("[A-Za-z0-9_.:|\\-]{1,128}", "<call-#>", at=_TOOL_CALL_PLACES, whole=True),
        renumber(PATTERNS["tool-call-id"], "<call-#>", at=_TOOL_CALL_MAYBE, whole=True),
    ),
    "uuids": (renumber(PATTERNS["uuid"], "<uuid-#>"),),
}
#: Names of the ready-made policies; all are at version 1.
READY_MADE = ("none", *_RULES)


@cache
def ready_made(name: str) -> MatchPolicy:
    """The ready-made policy of a name. Raises `UsageError` where there is none."""
    if name not in READY_MADE:
        near = difflib.get_close_matches(name, READY_MADE, n=1)
        raise UsageError(
            f"{name!r} is no ready-made match policy: {', '.join(READY_MADE)}",
            hint=f"did you mean {near[0]!r}?" if near else "build one with replaypack.MatchPolicy",
        )
    return MatchPolicy(name, rules=_RULES.get(name, ()))
