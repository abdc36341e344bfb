"""`ReplayEntry`: one captured turn."""

from __future__ import annotations

from typing import Any

from .model import Model

__all__ = ["ReplayEntry"]


class ReplayEntry(Model):
    """What was captured of one turn. Absent (None) and empty are different things.

    ``raw_trace``: what the model said. ``trace_messages``: the messages of an agent, as dictionaries.
    ``parsed_answer_fields``: what a judge read out of it. ``verify_result``: the verdict.
    ``usage_metadata``: tokens by stage. ``agent_metrics``: what an agent counted.
    ``captured_model_id`` and ``captured_at`` (ISO 8601) say where it comes from.
    """

    raw_trace: str
    trace_messages: list[dict[str, Any]] | None = None
    parsed_answer_fields: dict[str, Any] | None = None
    verify_result: bool | None = None
    usage_metadata: dict[str, Any] | None = None
    agent_metrics: dict[str, Any] | None = None
    captured_model_id: str | None = None
    captured_at: str | None = None
