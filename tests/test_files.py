"""Files that appear whole or not at all, and what is left of those whose writer was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replaypack._files import atomic_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no locks, and nothing is deleted")

_WRITER = """
import sys
from replaypack._files import atomic_file
with atomic_file(sys.argv[1], overwrite=True) as file:
    file.write(b"half of it")
    file.flush()
    print("begun", flush=True)
    sys.stdin.readline()
    file.write(b", and the rest")
"""


@contextmanager
def writing(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has begun to write the file, and waits for a line."""
    command = [sys.executable, "-c", _WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def parts(path: Path) -> list[Path]:
    return sorted(path.parent.glob(".*.part"))


def test_what_a_killed_process_left_is_deleted_by_the_next_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with writing(path) as dead:
        dead.send_signal(signal.SIGKILL)
    [left] = parts(path)
    assert left.read_bytes() == b"half of it"
    others = [tmp_path / ".other.zip.0123456789ab.part", tmp_path / ".run.zip.mine.part"]
    for other in others:
        other.write_bytes(b"somebody else's")
    with writing(path) as living:
        assert left not in parts(path)
        before = parts(path)
        assert len(before) == 3
        with atomic_file(path, overwrite=True) as file:
            file.write(b"mine")
        assert path.read_bytes() == b"mine"
        assert parts(path) == before
        living.communicate("go on\n")
    assert path.read_bytes() == b"half of it, and the rest"
    assert parts(path) == sorted(others)


def test_what_only_looks_like_it_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    aim = tmp_path / "aim"
    aim.write_bytes(b"kept")
    link, directory = (tmp_path / f".run.zip.{digit * 12}.part" for digit in "01")
    link.symlink_to(aim)
    directory.mkdir()
    with atomic_file(path, overwrite=False) as file:
        file.write(b"x")
    assert link.is_symlink()
    assert directory.is_dir()
    assert (path.read_bytes(), aim.read_bytes()) == (b"x", b"kept")
