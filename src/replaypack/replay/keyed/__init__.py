"""Keyed stores: captured turns of an evaluation, found by question or scenario node, model, visit and replicate."""

from __future__ import annotations

from .archived import ArchivedReplayStore
from .capture import capture_from_result_set, capture_from_scenario_result
from .entry import ReplayEntry
from .hydration import hydrate_answer, hydrate_trace_messages
from .identity import model_id_of, question_id_of
from .key import ReplayKey
from .persistence import dump, load
from .projection import OrphanEntry, ProjectionReport, ScenarioReplayBuilder, UnmatchedTarget
from .store import MissPolicy, ReplayStore

__all__ = [
    "ArchivedReplayStore",
    "MissPolicy",
    "OrphanEntry",
    "ProjectionReport",
    "ReplayEntry",
    "ReplayKey",
    "ReplayStore",
    "ScenarioReplayBuilder",
    "UnmatchedTarget",
    "capture_from_result_set",
    "capture_from_scenario_result",
    "dump",
    "hydrate_answer",
    "hydrate_trace_messages",
    "load",
    "model_id_of",
    "question_id_of",
]
