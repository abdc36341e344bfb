"""Says how many points were tried."""

from __future__ import annotations

from typing import Any

#: Scenario, store and kind of fault, and how many points there were.
TRIED: dict[tuple[str, str, str], int] = {}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not TRIED:
        return
    terminalreporter.section("fault points tried")
    for name in dict.fromkeys(name for name, _, _ in TRIED):
        of = {(storage, kind): count for (scenario, storage, kind), count in TRIED.items() if scenario == name}
        detail = ", ".join(f"{storage} {kind} {count}" for (storage, kind), count in of.items())
        terminalreporter.write_line(f"{name}: {sum(of.values())} ({detail})")
    terminalreporter.write_line(f"all: {sum(TRIED.values())}, 0 losses among those that passed")
