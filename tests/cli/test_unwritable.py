"""Files that commands write, on a disk that is full and in places that are none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from replaypack import Archive

from .conftest import run

_FULL = "free some space, or name another place"
_NOWHERE = "name a place that can be written"


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk that is full: a small tmpfs."""
    path = tmp_path / "full"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a tmpfs cannot be mounted here")
    (path / "fill").write_bytes(bytes(64 << 10))
    yield path
    subprocess.run(["umount", "-l", str(path)], check=False)


def commands(url: str, place: Path, key: Path) -> list[tuple[list[str], Path]]:
    """Every command that writes a file of its own, and the file."""
    made = [
        (["zip", url, "-o"], place / "a.zip"),
        (["export", f"{url}#a"], place / "a.jsonl"),
        (["prove", f"{url}#a", "0", "--out"], place / "proof"),
        (["verify", url, "--state"], place / "state"),
        (
            ["export", f"{url}#a", "--to", f"{url}-{place.name}#a", "--secret-env", "SECRET", "--report"],
            place / "report",
        ),
    ]
    if key.exists():
        made += [
            (["sign", f"{url}#a", "--key", str(key), "--detached", "--out"], place / "signature"),
            (["keygen"], place / "new.pem"),
        ]
    return [([*arguments, str(file)], file) for arguments, file in made]


def some_key(tmp_path: Path) -> Path:
    key = tmp_path / "key.pem"
    run("keygen", str(key))  # where the extra is not installed there is none
    return key


def check(url: str, place: Path, tmp_path: Path, hint: str) -> None:
    for arguments, file in commands(url, place, some_key(tmp_path)):
        result = run(*arguments, env={"SECRET": "response"})
        assert result.code == 2, (arguments, result)
        assert result.err.startswith("error: "), (arguments, result.err)
        assert str(file) in result.err, (arguments, result.err)
        assert "unexpected" not in result.err
        assert hint in result.err or "name another place for it" in result.err, (arguments, result.err)


def test_a_full_disk(url: str, full: Path, tmp_path: Path) -> None:
    # A report has a line for each removal: here there is one.
    with Archive(url).recorder("a", if_exists="replace", redact=None) as recorder:
        recorder.append(kind="tool", identity="secret response", response="x")
    check(url, full, tmp_path, _FULL)
    # verify opens its state first: the file has a name, and nothing in it.
    assert {path.name for path in full.iterdir()} <= {"fill", "state"}
    result = run("recover", url, "--into", str(full / "new"))
    assert (result.code, "recovery.json: no space left" in result.err, "free some space" in result.err) == (
        2,
        True,
        True,
    )


def test_no_such_directory(url: str, tmp_path: Path) -> None:
    check(url, tmp_path / "nowhere", tmp_path, _NOWHERE)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.name == "nt", reason="no devices")
def test_devices_are_not_replaced(url: str) -> None:
    result = run("zip", url, "-o", "/dev/full", "--overwrite")
    assert (result.code, "opening /dev/full: " in result.err) == (2, True)
