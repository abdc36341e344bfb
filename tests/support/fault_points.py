"""Says how many fault points were tried."""

from __future__ import annotations

from typing import Any

#: A property of a test's report, so that it is there whichever process the test ran in.
POINTS = "fault points"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    tried: dict[tuple[str, str, str], int] = {}
    for report in terminalreporter.stats.get("passed", ()):
        tried.update((tuple(case), count) for name, (case, count) in report.user_properties if name == POINTS)
    if not tried:
        return
    terminalreporter.section("fault points tried")
    for name in dict.fromkeys(name for name, _, _ in tried):
        of = {(storage, kind): count for (scenario, storage, kind), count in tried.items() if scenario == name}
        detail = ", ".join(f"{storage} {kind} {count}" for (storage, kind), count in of.items())
        terminalreporter.write_line(f"{name}: {sum(of.values())} ({detail})")
    terminalreporter.write_line(f"all: {sum(tried.values())}, 0 losses among those that passed")
