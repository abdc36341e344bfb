"""Chassis' own tests, from its source distribution, with our session in place of its `ReplaySession`.

`make test-hosts` fetches the source distribution of each release and sets REPLAYPACK_CHASSIS_SOURCE to it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytestmark = pytest.mark.hosts

SOURCE = os.environ.get("REPLAYPACK_CHASSIS_SOURCE", "")
HERE = Path(__file__).parent

#: Tests of Chassis that do not hold for our class, with the reason. There are none.
EXCEPTIONS: dict[str, str] = {}

#: What does not name `ReplaySession` and depends on it: the reference application, and the check of the public API.
MORE = ("tests/integration/test_reference_app.py", "tests/test_api_compat.py")


def files(source: Path) -> list[str]:
    """The files of tests that have to do with replay."""
    return [
        str(path.relative_to(source))
        for path in sorted((source / "tests").rglob("test_*.py"))
        if "ReplaySession" in path.read_text(encoding="utf-8")
    ]


@pytest.mark.skipif(not SOURCE, reason="needs the source distribution of chassis-harness: make test-hosts")
@pytest.mark.parametrize("backing", ["archive", "memory"])
def test_the_replay_tests_of_chassis_pass_with_our_session(backing: str, tmp_path: Path) -> None:
    source = Path(SOURCE).resolve()
    chosen = files(source) + (list(MORE) if backing == "archive" else [])
    assert len([name for name in chosen if name.startswith("tests/replay/")]) >= 3
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "chassis_substitute", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--junitxml={report}", *chosen],
        cwd=source,
        env={**os.environ, "REPLAYPACK_CHASSIS": backing, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
    )
    cases = {
        f"{case.get('classname')}::{case.get('name')}": [child.tag for child in case]
        for case in ET.parse(report).iter("testcase")
    }
    failed = {name for name, tags in cases.items() if {"failure", "error"} & set(tags)}
    assert failed == set(EXCEPTIONS), done.stdout[-10_000:]
    assert not [name for name, tags in cases.items() if "skipped" in tags]
    assert len(cases) > 70
    summary = re.search(r"replaypack: (\d+) sessions, (\d+) recordings, (\d+) faults", done.stdout)
    assert summary is not None
    sessions, recordings, faults = map(int, summary.groups())
    assert sessions >= 60
    assert faults == 0
    assert (recordings >= 60) == (backing == "archive")
    print(f"{source.name}, {backing}: {len(cases) - len(failed)} of {len(cases)} tests pass, {sessions} sessions")
