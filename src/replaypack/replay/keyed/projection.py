"""`ScenarioReplayBuilder`: entries captured of questions become entries of the scenario nodes that ask them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

from replaypack.errors import ProjectionError, ReplayValueError, UsageError

from .identity import get, model_id_of, question_id_of
from .key import ReplayKey
from .store import MissPolicy, Pair, ReplayStore, check_policy

__all__ = ["Benchmark", "Config", "OrphanEntry", "ProjectionReport", "ScenarioReplayBuilder", "UnmatchedTarget"]

logger = logging.getLogger("replaypack.replay")


class Scenario(Protocol):
    """A scenario: its name, and its nodes by id. A node has ``question.question``, the text, and may have
    ``model_override.answering_model``."""

    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> Mapping[str, Any]: ...


class Benchmark(Protocol):
    """Where scenarios are found."""

    def get_scenarios(self) -> Iterable[Scenario]:
        """All scenarios."""

    def get_scenario(self, name: str, /) -> Scenario:
        """One of them; raises ``KeyError``."""


class Config(Protocol):
    """What a run is made with: the first of ``answering_models`` answers where a node names no other."""

    @property
    def answering_models(self) -> Sequence[Any]: ...


@dataclass(frozen=True, kw_only=True)
class UnmatchedTarget:
    """A node that got no entry. Question and model are None where the scenario or the node was not found."""

    scenario_id: str
    node_id: str
    question_id: str | None
    answering_model_id: str | None
    reason: Literal["missing_scenario", "missing_node", "no_qa_entry"]


@dataclass(frozen=True, kw_only=True)
class OrphanEntry:
    """An entry that no target took: none asks its question, or all that do are answered by another entry."""

    question_id: str
    answering_model_id: str | None
    reason: Literal["no_target_scenario", "model_id_never_requested"]


@dataclass(frozen=True, kw_only=True)
class ProjectionReport:
    """What a projection does: the keys it makes, and what does not fit."""

    projected_keys: list[ReplayKey]
    unmatched_targets: list[UnmatchedTarget]
    orphan_qa_entries: list[OrphanEntry]
    duplicate_targets: list[tuple[str, str]]

    @property
    def matched(self) -> int:
        """Targets that got an entry."""
        return len(self.projected_keys)


class _Staged(NamedTuple):
    store: ReplayStore
    nodes: list[str]
    scenarios: list[str] | None
    model_id: str


class ScenarioReplayBuilder:
    """Makes a store for scenarios of stores for questions.

    ``benchmark`` and ``config`` are shaped like `Benchmark` and `Config`; ``model_id`` names an answering model and
    ``question_id`` a question by its text, by default as Karenina does. ``miss_policy`` is that of the store built.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        *,
        config: Config,
        miss_policy: MissPolicy = "strict",
        model_id: Callable[[Any], str] = model_id_of,
        question_id: Callable[[str], str] = question_id_of,
    ) -> None:
        if benchmark is None or config is None:
            raise UsageError("a projection needs a benchmark and a config")
        self.benchmark = benchmark
        self.config = config
        self.miss_policy = check_policy(miss_policy)
        self._model_id = model_id
        self._question_id = question_id
        self._default_model = self._model_of(config)
        self._staged: list[_Staged] = []

    def add_qa(
        self,
        qa_store: ReplayStore,
        *,
        target_nodes: Sequence[str],
        scenarios: Sequence[str] | None = None,
        config: Config | None = None,
    ) -> Self:
        """Say that nodes of scenarios (of all by default) are answered from a store of questions. Returns itself.

        ``config`` takes the place of the builder's; it is looked at now, and later changes of it do not matter.

        Raises `ReplayValueError` for no nodes, no scenarios, entries of scenarios, and entries of one replicate.
        """
        if qa_store is None:
            raise UsageError("qa_store is None")
        nodes = _names("target_nodes", target_nodes)
        names = None if scenarios is None else _names("scenarios", scenarios)
        for key, _ in qa_store.entries:
            if key.scenario_id is not None:
                raise ReplayValueError(f"qa_store has entries of scenarios, and must be one of questions: {key!r}")
            if key.replicate is not None:
                raise ReplayValueError(
                    f"qa_store has entries of single replicates, which would answer no other: {key!r}",
                    hint="capture with replicate_selector='first' or 'last'",
                )
        model = self._default_model if config is None else self._model_of(config)
        self._staged.append(_Staged(qa_store, nodes, names, model))
        return self

    def validate(self) -> ProjectionReport:
        """What `build` would do. Nothing is changed; calling it again gives the same."""
        return self._project()[0]

    def build(self, *, strict: bool = False) -> ReplayStore:
        """Return a new store with an entry for each target, for any visit and replicate.

        Where targets have no entry, or more than one, ``strict`` raises `ProjectionError` with the report; else a
        warning goes to the log, and of several entries that of the last `add_qa` stays.
        """
        if not self._staged:
            logger.warning("build() of an empty builder: no add_qa() before it, the store is empty")
        report, pairs = self._project()
        if report.unmatched_targets or report.duplicate_targets:
            message = _problems(report)
            if strict:
                raise ProjectionError(message, report=report, hint="`report` lists all of them")
            logger.warning("projection report: %s", message)
        # The last of a key stays, and needs no warning of its own.
        return ReplayStore(miss_policy=self.miss_policy, entries=dict(pairs).items())

    def _project(self) -> tuple[ProjectionReport, list[Pair]]:
        pairs: list[Pair] = []
        unmatched: list[UnmatchedTarget] = []
        orphans: list[OrphanEntry] = []
        for staged in self._staged:
            asked: set[str] = set()
            taken: set[ReplayKey] = set()
            for scenario_id, node_id, node, reason in self._targets(staged):
                if reason is not None:
                    unmatched.append(
                        UnmatchedTarget(
                            scenario_id=scenario_id,
                            node_id=node_id,
                            question_id=None,
                            answering_model_id=None,
                            reason=reason,
                        )
                    )
                    continue
                question = self._question_id(get(get(node, "question"), "question"))
                override = get(get(node, "model_override"), "answering_model")
                model = staged.model_id if override is None else self._model_id(override)
                asked.add(question)
                found = staged.store.find(ReplayKey(question_id=question, answering_model_id=model))
                if found is None:
                    unmatched.append(
                        UnmatchedTarget(
                            scenario_id=scenario_id,
                            node_id=node_id,
                            question_id=question,
                            answering_model_id=model,
                            reason="no_qa_entry",
                        )
                    )
                    continue
                taken.add(found[0])
                key = ReplayKey(
                    question_id=question, scenario_id=scenario_id, scenario_node=node_id, answering_model_id=model
                )
                pairs.append((key, found[1]))
            orphans += (
                OrphanEntry(
                    question_id=key.question_id,
                    answering_model_id=key.answering_model_id,
                    reason="model_id_never_requested" if key.question_id in asked else "no_target_scenario",
                )
                for key, _ in staged.store.entries
                if key not in taken
            )
        places = Counter((key.scenario_id or "", key.scenario_node or "") for key, _ in pairs)
        report = ProjectionReport(
            projected_keys=[key for key, _ in pairs],
            unmatched_targets=unmatched,
            orphan_qa_entries=orphans,
            duplicate_targets=[place for place, count in places.items() if count > 1],
        )
        return report, pairs

    def _targets(
        self, staged: _Staged
    ) -> Iterator[tuple[str, str, Any, Literal["missing_scenario", "missing_node"] | None]]:
        """Yield scenario, node id, node, and why there is none."""
        names = staged.scenarios
        if names is None:
            names = [scenario.name for scenario in self.benchmark.get_scenarios()]
        for name in names:
            try:
                nodes = self.benchmark.get_scenario(name).nodes
            except KeyError:
                yield from ((name, node_id, None, "missing_scenario") for node_id in staged.nodes)
                continue
            for node_id in staged.nodes:
                node = nodes.get(node_id)
                yield name, node_id, node, "missing_node" if node is None else None

    def _model_of(self, config: Config) -> str:
        if not config.answering_models:
            raise ReplayValueError("config.answering_models is empty")
        return self._model_id(config.answering_models[0])


def _names(label: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not names:
        raise ReplayValueError(f"{label} is a list of names, and not empty: {names!r}")
    unique = list(dict.fromkeys(names))
    if len(unique) != len(names):
        logger.warning("projection: names that stand twice in %s count once", label)
    return unique


def _problems(report: ProjectionReport) -> str:
    targets = report.unmatched_targets
    shown = [f"{t.scenario_id}/{t.node_id} ({t.reason})" for t in targets[:3]]
    doubled = [f"{scenario}/{node}" for scenario, node in report.duplicate_targets[:3]]
    parts = []
    if targets:
        parts.append(f"{len(targets)} unmatched targets: {', '.join(shown)}{', …' if len(targets) > 3 else ''}")
    if doubled:
        more = ", …" if len(report.duplicate_targets) > 3 else ""
        parts.append(f"{len(report.duplicate_targets)} targets projected more than once: {', '.join(doubled)}{more}")
    return "; ".join(parts)
