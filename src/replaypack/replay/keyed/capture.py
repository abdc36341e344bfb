"""Making keyed stores of the results of an evaluation: objects, or mappings, shaped like Karenina's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from replaypack.errors import ReplayValueError

from .entry import ReplayEntry
from .identity import get, model_id_of, question_id_of
from .key import ReplayKey
from .store import ReplayStore

__all__ = ["capture_from_result_set", "capture_from_scenario_result"]

_TOKENS = ("input_tokens", "output_tokens", "total_tokens")


def capture_from_result_set(
    result_set: Any,
    *,
    include_parsed: bool = True,
    include_agent_traces: bool = True,
    only_successful: bool = True,
    answering_model_ids: Collection[str] | None = None,
    scenario_ids: Collection[str] | None = None,
    replicate_selector: Literal["all", "first", "last"] = "all",
    store: ReplayStore | None = None,
) -> ReplayStore:
    """Register one entry for each result of a run.

    ``result_set`` has ``results``, or is the results themselves; each has ``metadata`` and ``template``. A result
    with a scenario becomes a turn of that scenario: its visits are counted by node and replicate, in the order of
    ``scenario_turn``. ``include_parsed`` and ``include_agent_traces``: whether the parsed fields and the messages
    are kept. ``only_successful`` leaves out results that failed, except where only the content was wrong.
    ``answering_model_ids`` and ``scenario_ids`` are the only ones taken; results without a scenario are not held to
    the latter. ``replicate_selector`` keeps ``"all"`` replicates apart, or takes those of the smallest (``"first"``)
    or largest (``"last"``) number in the whole set, to answer for any replicate.

    Entries go to ``store``, by default a new one in memory. Raises `ReplayValueError`.
    """
    if replicate_selector not in ("all", "first", "last"):
        raise ReplayValueError(f"replicate_selector is 'all', 'first' or 'last', not {replicate_selector!r}")
    models, scenarios = _names("answering_model_ids", answering_model_ids), _names("scenario_ids", scenario_ids)
    store = ReplayStore() if store is None else store
    results = list(_results(result_set))
    if replicate_selector != "all":
        numbers = [number for result in results if (number := _meta(result, "replicate")) is not None]
        if numbers:
            chosen = min(numbers) if replicate_selector == "first" else max(numbers)
            results = [result for result in results if _meta(result, "replicate") == chosen]
    order = ("scenario_id", "scenario_node", "replicate", "scenario_turn")
    results.sort(key=lambda result: [_none_last(_meta(result, name)) for name in order])
    visits: dict[tuple[str, str, int | None], int] = {}
    for result in results:
        metadata, template = get(result, "metadata"), get(result, "template")
        answering = get(metadata, "answering")
        model = "unknown" if answering is None else model_id_of(answering)
        scenario, node = get(metadata, "scenario_id"), get(metadata, "scenario_node")
        if (
            (only_successful and not _keeps(get(metadata, "failure")))
            or (models is not None and model not in models)
            or (scenarios is not None and scenario is not None and scenario not in scenarios)
        ):
            continue
        replicate = get(metadata, "replicate") if replicate_selector == "all" else None
        visit = None
        if scenario is not None:
            place = (scenario, node or "", replicate)
            visit = visits.get(place, 0)
            visits[place] = visit + 1
        key = ReplayKey(
            question_id=get(metadata, "question_id"),
            scenario_id=scenario,
            scenario_node=node,
            answering_model_id=model,
            visit_index=visit,
            replicate=replicate,
        )
        entry = ReplayEntry(
            raw_trace=get(template, "raw_llm_response") or "",
            trace_messages=_messages(get(template, "trace_messages")) if include_agent_traces else None,
            parsed_answer_fields=_plain(get(template, "parsed_llm_response")) if include_parsed else None,
            verify_result=get(template, "verify_result"),
            usage_metadata=_usage(get(template, "usage_metadata")),
            agent_metrics=_plain(get(template, "agent_metrics")),
            captured_model_id=model,
            captured_at=get(metadata, "completed_at") or get(metadata, "timestamp") or _now(),
        )
        store.register(key, entry)
    return store


def capture_from_scenario_result(
    scenario_result: Any,
    *,
    answering_model_id: str,
    scenario_id: str | None = None,
    nodes: Collection[str] | None = None,
    include_parsed: bool = True,
    include_agent_traces: bool = True,
    replicate: int | None = None,
    store: ReplayStore | None = None,
) -> ReplayStore:
    """Register one entry for each turn of a scenario that was run.

    ``scenario_result`` has ``scenario_id`` and ``history``, whose turns have ``node_id``, ``question_text``,
    ``raw_response``, ``parsed_fields``, ``trace_messages`` and maybe ``verify_result``. They do not say which model
    answered: ``answering_model_id`` does. ``nodes`` are the only ones taken. ``replicate`` goes into every key.

    Entries go to ``store``, by default a new one in memory. Raises `ReplayValueError`.
    """
    only = _names("nodes", nodes)
    scenario = scenario_id or get(scenario_result, "scenario_id")
    if scenario is None:
        raise ReplayValueError("the result names no scenario", hint="pass scenario_id=")
    store = ReplayStore() if store is None else store
    visits: dict[str, int] = {}
    for turn in get(scenario_result, "history") or ():
        node = get(turn, "node_id")
        if only is not None and node not in only:
            continue
        visit = visits.get(node, 0)
        visits[node] = visit + 1
        key = ReplayKey(
            question_id=question_id_of(get(turn, "question_text") or ""),
            scenario_id=scenario,
            scenario_node=node,
            answering_model_id=answering_model_id,
            visit_index=visit,
            replicate=replicate,
        )
        entry = ReplayEntry(
            raw_trace=get(turn, "raw_response") or "",
            trace_messages=_messages(get(turn, "trace_messages")) if include_agent_traces else None,
            parsed_answer_fields=_plain(get(turn, "parsed_fields")) if include_parsed else None,
            verify_result=get(turn, "verify_result"),
            captured_model_id=answering_model_id,
            captured_at=_now(),
        )
        store.register(key, entry)
    return store


def _names(label: str, names: Collection[str] | None) -> frozenset[str] | None:
    if isinstance(names, str):
        raise ReplayValueError(f"{label} is a collection of names, not one", hint=f"{{{names!r}}}")
    return None if names is None else frozenset(names)


def _results(result_set: Any) -> Iterable[Any]:
    results = get(result_set, "results")
    if results is None and not isinstance(result_set, Mapping) and isinstance(result_set, Iterable):
        results = result_set
    return results or ()


def _meta(result: Any, name: str) -> Any:
    return get(get(result, "metadata"), name)


def _none_last(value: Any) -> tuple[bool, Any]:
    return (value is None, 0 if value is None else value)


def _keeps(failure: Any) -> bool:
    """Whether a result was a success, or failed only in what the model said."""
    if failure is None:
        return True
    category = get(failure, "category")
    return bool(getattr(category, "value", category) == "content")


def _plain(value: Any) -> Any:
    """A mapping as it is; of a pydantic model its fields."""
    if not isinstance(value, Mapping) and callable(dump := getattr(value, "model_dump", None)):
        return dump()
    return value


def _messages(messages: Iterable[Any] | None) -> list[dict[str, Any]] | None:
    if messages is None:
        return None
    plain = []
    for message in messages:
        if isinstance(message, Mapping):
            plain.append(dict(message))
            continue
        as_dict = message.to_dict() if callable(getattr(message, "to_dict", None)) else _plain(message)
        if not isinstance(as_dict, dict):
            raise ReplayValueError(f"a trace message of type {type(message).__name__} has no to_dict()")
        plain.append(as_dict)
    return plain


def _usage(usage: Any) -> dict[str, Any] | None:
    """Usage by stage, with the total summed up anew: a result may hold stages that its total does not."""
    usage = _plain(usage)
    if not isinstance(usage, Mapping):
        return None
    stages = [
        stage
        for name, stage in usage.items()
        if name != "total" and isinstance(stage, Mapping) and any(tokens in stage for tokens in _TOKENS)
    ]
    if not stages:
        return dict(usage)
    before = usage.get("total")
    sums = {tokens: sum(stage.get(tokens) or 0 for stage in stages) for tokens in _TOKENS}
    return {**usage, "total": {**(before if isinstance(before, Mapping) else {}), **sums}}


def _now() -> str:
    return datetime.now(UTC).isoformat()
