"""Segments: what bounds their memory changes nothing in what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaypack import Archive
from tests.archive.support import calls, check


def test_keys_are_merged_from_sorted_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._write.segment._RUN", 30 * 7)
    archive = Archive(tmp_path, {"replaypack": {"fsync": False}})
    expected = list(calls(150))
    with archive.recorder("run", flush_interval=None) as recorder:
        for call in expected:
            recorder.append(**call)
    check(archive.open("run"), expected)
    assert not list(archive.verify("run"))
