"""Karenina's store in an archive.

Karenina is not on PyPI. What the host contributes are the classes of its errors: a package of the same name with the
same tree stands in for it, in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import replaypack
from replaypack import Archive, ReplayEntry, ReplayKey, ReplayMissError, ReplayStore
from replaypack.integrations.karenina import ArchiveReplayStore, export_captures, import_captures

STAND_IN = {
    "karenina/__init__.py": "",
    "karenina/exceptions.py": "class KareninaError(Exception): pass\n",
    "karenina/replay/__init__.py": "from .exceptions import ReplayError, ReplayMissError\n",
    "karenina/replay/exceptions.py": (
        "from karenina.exceptions import KareninaError\n"
        "class ReplayError(KareninaError): pass\n"
        "class ReplayMissError(ReplayError):\n"
        "    def __init__(self, message, *, key=None):\n"
        "        super().__init__(message)\n"
        "        self.key = key\n"
    ),
}
# What the pipeline does with a store: ask, read by attribute, catch its own error.
PIPELINE = """
import copy, sys
from karenina.exceptions import KareninaError
from karenina.replay import ReplayMissError
from replaypack import ReplayMissError as Ours
from replaypack.integrations.karenina import ArchiveReplayStore

store = copy.deepcopy({"replay_store": ArchiveReplayStore(sys.argv[1], miss_policy="strict")})["replay_store"]
assert store.has_any_for(question_id="q", scenario_id="s", scenario_node="n")
asked = {"question_id": "q", "scenario_id": "s", "answering_model_id": "m"}
entry = store.lookup(**asked, scenario_node="n", visit_index=0, replicate=1)
assert (entry.raw_trace, entry.agent_metrics["limit_reached"]) == ("x", False)
try:
    store.lookup(**asked, scenario_node="other")
except ReplayMissError as error:
    assert isinstance(error, KareninaError) and isinstance(error, Ours) and isinstance(error, LookupError)
    assert error.key.scenario_node == "other" and error.code == "replay.miss"
    assert type(error).__name__ == "ReplayMissError" and "nothing is registered" in str(error)
    print("caught")
"""


def store() -> ReplayStore:
    key = ReplayKey(question_id="q", scenario_id="s", scenario_node="n", visit_index=0)
    return ReplayStore(entries=[(key, ReplayEntry(raw_trace="x", agent_metrics={"limit_reached": False}))])


def test_a_strict_miss_is_the_host_s_error(tmp_path: Path) -> None:
    for name, text in STAND_IN.items():
        path = tmp_path / "host" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    archive = Archive(tmp_path / "archive")
    store().save_to(archive, "run")
    source = str(Path(replaypack.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "host"), source])}
    done = subprocess.run(
        [sys.executable, "-c", PIPELINE, f"{archive.url}#run"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "caught\n", done.stderr


def test_it_works_without_the_host() -> None:
    assert issubclass(ArchiveReplayStore.miss_error, ReplayMissError)


def test_captures_go_to_a_recording_and_back(tmp_path: Path) -> None:
    first, second = tmp_path / "run.json", tmp_path / "back.json"
    store().save(first)
    archive = Archive(tmp_path / "archive")
    assert import_captures(first, archive, "captures/run", miss_policy="strict").records == 1
    opened = ArchiveReplayStore(f"{archive.url}#captures/run")
    assert opened.miss_policy == "strict"
    assert opened.entries == store().entries
    export_captures(opened.recording, second, miss_policy="fall_through")
    assert second.read_bytes() == first.read_bytes()
