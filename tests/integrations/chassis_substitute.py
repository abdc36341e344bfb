"""A pytest plugin: Chassis' own tests get `ArchiveReplaySession` where they ask for `ReplaySession`.

    REPLAYPACK_CHASSIS=archive|memory python -m pytest -p chassis_substitute tests/replay

With ``archive`` every session records to, or is answered from, a recording of one archive in a directory that is
removed afterwards. Records that a test gives to a session are written there first, and read back by another one.
The last line says how many sessions there were, so that whoever runs it sees that ours were used.
"""

from __future__ import annotations

import inspect
import itertools
import os
import shutil
import tempfile
from typing import Any

import chassis.replay
import pytest
from chassis.replay import ReplayMode, ReplaySession

from replaypack import Archive
from replaypack.integrations.chassis import ArchiveReplaySession

BACKED = os.environ.get("REPLAYPACK_CHASSIS", "archive") == "archive"
DIRECTORY = tempfile.mkdtemp(prefix="replaypack-chassis-")
ARCHIVE = Archive(os.path.join(DIRECTORY, "archive"))
numbers = itertools.count(1)
sessions: list[ArchiveReplaySession] = []


class Substitute(ArchiveReplaySession):
    """What Chassis' constructor takes, over an archive."""

    __signature__ = inspect.signature(ArchiveReplaySession)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        sessions.append(self)
        records = kwargs.get("records")
        if not BACKED:
            super().__init__(*args, **kwargs)
            return
        name = f"s{next(numbers)}"
        if kwargs.get("mode") is ReplayMode.REPLAY:
            with ArchiveReplaySession(ReplayMode.RECORD, records=records or (), archive=ARCHIVE, name=name):
                pass
            kwargs.pop("records", None)
        super().__init__(*args, archive=ARCHIVE, name=name, **kwargs)


assert issubclass(Substitute, ReplaySession)
chassis.replay.ReplaySession = Substitute  # type: ignore[misc]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    recordings = sum(1 for _ in ARCHIVE.recordings())
    faults = list(ARCHIVE.verify()) if recordings else []
    terminalreporter.write_line(f"replaypack: {len(sessions)} sessions, {recordings} recordings, {len(faults)} faults")


def pytest_unconfigure() -> None:
    for session in sessions:
        try:
            session.close()
        except Exception:
            pass
    shutil.rmtree(DIRECTORY, ignore_errors=True)
