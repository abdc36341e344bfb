"""A disk that really fills up: a small tmpfs. Needs the right to mount one, and skips where there is none."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replaypack import Archive, Recorder
from replaypack.audit import gc
from replaypack.errors import JournalError, PublishError, RecorderClosedError, ReplaypackError, StorageFullError
from replaypack.format.marks import MARKS, encode_marks
from replaypack.format.names import pack_key_of
from replaypack.recover import recover
from tests.archive.support import calls, expected_response, same

pytestmark = pytest.mark.once


class Disk:
    """A tmpfs of some size, which can be enlarged."""

    def __init__(self, path: Path, size: str) -> None:
        self.path = path
        self._mount("size=" + size)

    def _mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command")
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")

    def enlarge(self) -> None:
        self._mount("remount,size=100m")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    yield Disk(path, "400k")
    subprocess.run(["umount", "-l", str(path)], check=False)


def fill(recorder: Recorder, flush_every: int) -> tuple[int, ReplaypackError]:
    """Record until it fails; return how many appends returned, and the error."""
    acknowledged = 0
    try:
        for number, call in enumerate(calls(5000), 1):
            recorder.append(**call)
            acknowledged = number
            if flush_every and number % flush_every == 0:
                recorder.flush()
    except (JournalError, PublishError) as error:
        return acknowledged, error
    raise AssertionError("the disk never filled up")


@pytest.mark.parametrize("flush_every", [0, 20])
def test_a_full_disk_loses_nothing(disk: Disk, flush_every: int) -> None:
    archive = Archive(disk.path / "archive")
    recorder = archive.recorder("run", flush_interval=None)
    acknowledged, error = fill(recorder, flush_every)
    assert acknowledged > 20
    assert "No space left" in str(error) or "no space" in str(error).lower()
    if flush_every:
        # What was published before is there for others, disk full or not.
        published = archive.open("run", fresh=True)
        assert len(published) >= 20
        assert all(
            same(r.response, expected_response(c)) for r, c in zip(published.records(), calls(5000), strict=False)
        )
    with pytest.raises((RecorderClosedError, PublishError, JournalError)):
        recorder.seal()
    recorder.close()
    still_full = list(recover(archive))
    assert all(result.error is not None for result in still_full)
    disk.enlarge()
    results = list(recover(archive))
    assert [result.error for result in results] == [None]
    recording = archive.open("run")
    assert len(recording) == acknowledged
    for record, call in zip(recording.records(), calls(5000), strict=False):
        assert same(record.response, expected_response(call))
    assert not list((disk.path / "archive" / "journal").glob("*"))


def test_gc_frees_a_full_disk(disk: Disk) -> None:
    archive = Archive(disk.path / "archive")
    for name in ("kept", "gone"):
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", identity=name, response=secrets.token_bytes(40_000))
    gone = [disk.path / "archive" / pack_key_of(ref.digest) for ref in archive.open("gone").index.packs]
    archive.delete("gone")
    long_ago = time.time() - 8 * 86_400
    for pack in gone:
        os.utime(pack, (long_ago - 60, long_ago - 60))
    marks = {f"packs/{pack.parent.name}/{pack.name}": long_ago for pack in gone}
    archive.storage.put(MARKS, encode_marks(1, marks, ()))
    with contextlib.suppress(OSError), (disk.path / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with pytest.raises(StorageFullError):
        archive.storage.put("note", b"x" * 4096)
    assert gc(archive, apply=True).removed["packs"].objects == len(gone)
    assert not any(pack.exists() for pack in gone)
    assert list(archive.verify()) == []
