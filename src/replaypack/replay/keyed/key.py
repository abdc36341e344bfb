"""`ReplayKey`: where in an evaluation a turn stands; and the ladder by which it is found."""

from __future__ import annotations

from itertools import product
from typing import Literal, TypeAlias

from .model import Model

__all__ = ["Outer", "ReplayKey", "Rung", "ladder"]

#: What must be equal: the question, or the scenario and its node.
Outer: TypeAlias = tuple[Literal["question"], str] | tuple[Literal["scenario"], str, str]
#: Answering model, visit and replicate; None is a wildcard.
Rung: TypeAlias = tuple[str | None, int | None, int | None]


class ReplayKey(Model, frozen=True):
    """Names one captured turn. Without a ``scenario_id`` it is found by ``question_id``; with one, by
    ``scenario_id`` and ``scenario_node``, and ``question_id`` is information only.

    ``answering_model_id``, ``visit_index`` (counted from 0) and ``replicate`` narrow it down: an entry that is
    registered without one of them answers for every value.
    """

    question_id: str
    scenario_id: str | None = None
    scenario_node: str | None = None
    answering_model_id: str | None = None
    visit_index: int | None = None
    replicate: int | None = None

    @property
    def outer(self) -> Outer:
        """The part that must be equal."""
        if self.scenario_id is None:
            return ("question", self.question_id)
        return ("scenario", self.scenario_id, self.scenario_node or "")

    @property
    def rung(self) -> Rung:
        """The part that may be a wildcard."""
        return (self.answering_model_id, self.visit_index, self.replicate)


def ladder(rung: Rung) -> list[Rung]:
    """The rungs that answer a request, most specific first: model before visit before replicate.

    Up to eight; what is None in the request is only looked for as None.
    """
    return list(product(*((axis,) if axis is None else (axis, None) for axis in rung)))  # type: ignore[arg-type]
