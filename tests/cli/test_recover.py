"""``replaypack recover`` where there is little to see."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replaypack import Archive

from .conftest import environment, run

_NOBODY = 65534


def dead(path: Path) -> None:
    """Let a recorder die in an archive."""
    program = (
        "import os, sys, replaypack\n"
        "recorder = replaypack.Archive(sys.argv[1]).recorder('dead')\n"
        "recorder.append(kind='tool', identity=1, response=1)\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], env=environment()).returncode == 9


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Path]:
    """An archive with the journal of a recorder that died; its permissions are given back in the end."""
    path = tmp_path / "theirs"
    dead(path)
    for parent in path.parents:
        if parent.owner() == path.owner() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    yield path
    for each in (path, path / "journal"):
        each.chmod(0o755)


def run_as_another(*arguments: str, warm: Path) -> tuple[int, str, str]:
    """Run the command line as a user who may read nothing but what all may. Needs root.

    The command runs with ``warm`` as its archive first, as root: modules may lie where nobody else may read.
    """
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("only root can be another user")
    program = (
        "import contextlib, io, os, sys\n"
        "from replaypack.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): assert main([sys.argv[2], sys.argv[1]]) == 0\n"
        f"os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY})\n"
        "sys.exit(main(sys.argv[2:]))\n"
    )
    command = [sys.executable, "-c", program, str(warm), *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, encoding="utf-8")
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("closed", [".", "journal", "journal/file", "journal without names"])
def test_journals_of_another_user(theirs: Path, tmp_path: Path, closed: str) -> None:
    warm = tmp_path / "warm"
    dead(warm)
    (theirs / "journal").chmod(0o755)
    [journal] = (theirs / "journal").glob("*.rpj")
    where, mode = {
        ".": (theirs, 0),
        "journal": (theirs / "journal", 0o700),
        "journal/file": (journal, 0o600),
        "journal without names": (theirs / "journal", 0o744),
    }[closed]
    where.chmod(mode)
    code, out, err = run_as_another("recover", str(theirs), warm=warm)
    assert code == 2, (out, err)
    assert "Permission denied" in out + err
    assert "unexpected" not in out + err
    # Whoever only reads is not kept from it.
    if closed != ".":
        assert "run it as that user" in out + err
        assert run_as_another("ls", str(theirs), warm=warm)[0] == 0
    where.chmod(0o755)
    assert run("recover", str(theirs)).out == "dead: 1 record, 1 of them from the journal\n"


def test_packs_that_no_recording_names(tmp_path: Path) -> None:
    """Whoever lost all manifests is told how to get at what is left."""
    runs = tmp_path / "runs"
    for name in "ab":
        with Archive(runs).recorder(name) as recorder:
            recorder.append(kind="tool", identity=name, response=name)
    command = f"`replaypack recover {runs} --into NEW`"
    assert run("recover", str(runs)).out == "nothing to recover\n"
    shutil.rmtree(runs / "recordings")
    result = run("recover", str(runs))
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        f"nothing to recover, but 2 packs that no recording names: {command} finds recordings in them\n"
    )
    assert run("recover", str(runs), "--json").json == []
    (runs / "replaypack.json").unlink()
    result = run("recover", str(runs))
    assert result.code == 1
    assert f"there is no archive at {runs} (it holds packs: {command} makes an archive of them)" in result.err
    loose = tmp_path / "loose"
    loose.mkdir()
    for pack in runs.rglob("*.rpk"):
        pack.rename(loose / pack.name)
    assert f"(it holds packs: `replaypack recover {loose} --into NEW`" in run("recover", str(loose)).err
    assert run("recover", str(loose), "--into", str(tmp_path / "new")).out.count("1 record") == 2
    (tmp_path / "empty").mkdir()
    assert "--into" not in run("recover", str(tmp_path / "empty")).err
