"""Many writers and readers on one archive, with `gc` and `compact` running: nothing lost, nothing wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.audit import gc

from .scenarios import call

ROOT = Path(__file__).parents[2]


def garbage(path: Path) -> int:
    """Packs that nothing refers to and that were marked long ago: what `gc` is to delete meanwhile; how many."""
    with Archive(path) as archive:
        for number in range(8):
            with archive.recorder(f"gone/{number}") as recorder:
                recorder.append(**call(number))
            archive.delete(f"gone/{number}")
        gc(archive, apply=True)
    packs = list(path.rglob("*.rpk"))
    before = time.time() - 3 * 86400
    for file in (*packs, path / "gc.json"):
        os.utime(file, (before, before))
    return len(packs)


def start(role: str, url: Path, number: int, rounds: int, directory: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.faults.soak", role, str(url), str(number), str(rounds), str(directory)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("count", "rounds"), [(4, 6), pytest.param(16, 60, marks=pytest.mark.heavy)], ids=["small", "full"]
)
def test_writers_and_readers(tmp_path: Path, count: int, rounds: int) -> None:
    url = tmp_path / "archive"
    old = garbage(url)
    readers = [start("read", url, number, rounds, tmp_path) for number in range(count)]
    keepers = [start("keep", url, number, rounds, tmp_path) for number in range(2)]
    writers = [start("write", url, number, rounds, tmp_path) for number in range(count)]
    problems = []
    for process in writers:
        _, errors = process.communicate()
        problems += [errors] if process.returncode else []
    (tmp_path / "done").touch()
    for process in (*readers, *keepers):
        _, errors = process.communicate()
        problems += [errors] if process.returncode else []
    assert problems == [], problems[0]
    expected: dict[str, list[int]] = {}
    for number in range(count):
        expected.update(json.loads((tmp_path / f"writer-{number}.json").read_text()))
    with Archive(url) as archive:
        assert list(archive.verify()) == []
        found = {
            name: [record.identity["n"] for record in archive.open(name).records()] for name in archive.recordings()
        }
        assert found == expected
        # What was unreferenced from the beginning is gone, and what is there is what is referred to, or young.
        assert old > 0
        assert gc(archive, grace=timedelta(days=1)).removed["packs"].objects == 0
