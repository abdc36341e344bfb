"""Every storage operation of whatever writes goes wrong, in every way: nothing is lost, and a rerun completes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fault_points import POINTS

from .harness import points
from .scenarios import SCENARIOS, Scenario
from .storage import KINDS, Kind

#: In memory nothing outlives a process, and nothing of a write that was cut short stays.
KINDS_OF: dict[str, tuple[Kind, ...]] = {"local": KINDS, "objects": ("die",), "memory": ("fail", "down", "lost")}
#: The rest takes minutes.
ALWAYS = {("local", "fail"), ("memory", "lost")}
#: A process for each operation; what leaves nothing but what is in the store is tried where that changes.
DIE = {("record", "die"), ("compact", "end"), ("purge", "end"), ("purge compacted", "end")}


def is_daily(scenario: Scenario, storage: str, kind: Kind) -> bool:
    """Whether a case is not heavy."""
    if storage == "local" and kind in ("die", "end"):
        return (scenario.name, kind) in DIE
    return (storage, kind) in ALWAYS and not scenario.rare and not (scenario.heavy and kind != "fail")


CASES = [
    pytest.param(
        scenario,
        storage,
        kind,
        id=f"{scenario.name}-{storage}-{kind}",
        marks=() if is_daily(scenario, storage, kind) else pytest.mark.heavy,
    )
    for scenario in SCENARIOS
    for storage in scenario.storages
    for kind in KINDS_OF[storage]
    if kind != "end" or (scenario.name, kind) in DIE
]


@pytest.mark.parametrize(("scenario", "storage", "kind"), CASES)
def test_every_operation(
    scenario: Scenario, storage: str, kind: Kind, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    count = points(scenario, storage, kind, tmp_path)
    record_property(POINTS, ((scenario.name, storage, kind), count))
    assert count > 3
