"""`verify` that was interrupted and goes on; packs checked by several threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import replaypack
from replaypack.audit import LEVELS, Fault, Resumed, verify_archive
from replaypack.audit import _packs as packs_module
from replaypack.errors import ObjectMissingError, UsageError
from replaypack.format.names import pack_key_of
from replaypack.storage import Storage, open_storage

from .support import NAME, flip, packs


@pytest.fixture
def two(archive_path: Path, fill_recorder: Callable[..., None]) -> Path:
    with replaypack.Archive(archive_path).recorder("another") as recorder:
        fill_recorder(recorder, 0, 40)
    return archive_path


def run(path: Path, state: Path | None, **options: Any) -> tuple[list[Fault], Resumed]:
    seen: list[Resumed] = []
    found = list(verify_archive(replaypack.Archive(path), state=state, on_resume=seen.append, **options))
    return found, seen[0]


def interrupt(path: Path, state: Path, stage: str, **options: Any) -> None:
    """Stop where the recording with this stage is reported first."""

    class Stop(BaseException):
        pass

    def progress(report: Any) -> None:
        if (report.recording, report.stage) == (NAME, stage):
            raise Stop

    with pytest.raises(Stop):
        list(verify_archive(replaypack.Archive(path), state=state, progress=progress, **options))


@pytest.mark.parametrize("stage", ["packs", "tables", "records"])
def test_a_run_goes_on_where_it_was(two: Path, tmp_path: Path, stage: str) -> None:
    state = tmp_path / "state"
    [used, *_] = replaypack.Archive(two).open("another").manifest.storage.packs
    flip(two / pack_key_of(used.digest), 60)
    expected, nothing = run(two, None)
    assert expected
    assert nothing == Resumed(0, 0)
    interrupt(two, state, stage)
    found, resumed = run(two, state)
    assert found == expected
    assert resumed.recordings == 2  # revisions: the claim, and what was sealed
    assert bool(resumed.packs) is (stage != "packs")
    assert not state.exists()


def test_what_was_sound_is_not_read_again_but_must_be_there(two: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    interrupt(two, state, "tables", level="frames")
    first, *_ = packs(two)
    flip(first, 60)
    kept = state.read_bytes()
    assert run(two, state, level="frames")[0] == []
    state.write_bytes(kept)
    first.unlink()
    assert {fault.code for fault in run(two, state, level="frames")[0]} == {"pack.missing"}
    assert not state.exists()


def test_the_packs_of_finished_recordings_must_be_there_too(two: Path, tmp_path: Path) -> None:
    [used, *_] = replaypack.Archive(two).open("another").manifest.storage.packs
    pack = two / pack_key_of(used.digest)
    data = pack.read_bytes()
    state = tmp_path / "state"
    for level in LEVELS[1:]:
        for broken in (None, data[:-1], data[:8] + b"\7" + data[9:]):
            pack.write_bytes(data)
            interrupt(two, state, "packs", level=level)
            if broken is None:
                pack.unlink()
            else:
                pack.write_bytes(broken)
            found, resumed = run(two, state, level=level)
            assert resumed.recordings == 2
            assert [fault.recording for fault in found] == ["another"]
    # Nor is it told twice.
    interrupt(two, state, "packs")
    assert [fault.code for fault in run(two, state)[0]].count("pack.header") == 1


def test_faults_of_packs_that_recordings_share_are_told_once(two: Path, tmp_path: Path) -> None:
    with replaypack.Archive(two).recorder(NAME + "2", base=NAME) as recorder:
        recorder.append(kind="tool", identity=1, response=1)
    packs(two)[0].unlink()
    expected, _ = run(two, None, level="frames")
    state = tmp_path / "state"
    for stop in range(1, len(expected) + 1):
        partial: Iterator[Fault] = verify_archive(replaypack.Archive(two), level="frames", state=state)
        assert len(list(islice(partial, stop))) == stop
        partial.close()  # type: ignore[attr-defined]
        found, _ = run(two, state, level="frames")
        assert found == expected


def test_a_cut_off_last_line_is_no_loss(two: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    interrupt(two, state, "tables")
    whole = state.read_bytes()
    for cut in range(0, len(whole), 41):
        state.write_bytes(whole[:cut])
        assert run(two, state, level="structure")[0] == []


def test_a_lower_level_is_no_higher_one(two: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    interrupt(two, state, "tables", level="structure")
    assert run(two, state, level="full")[1] == Resumed(0, 0)


def test_other_files_are_left_alone(two: Path, tmp_path: Path) -> None:
    other = tmp_path / "file"
    for content in (b"precious", b"precious\n", b'{"kind":"pack"}\n', b'{"kind":"pack","digest":"","size":1}\n'):
        other.write_bytes(content)
        with pytest.raises(UsageError):
            run(two, other)
        assert other.read_bytes() == content
    state = tmp_path / "state"
    interrupt(two, state, "tables")
    with replaypack.Archive(tmp_path / "else").recorder("r"):
        pass
    with pytest.raises(UsageError, match="state of verifying"):
        run(tmp_path / "else", state)
    with pytest.raises(UsageError):
        run(two, tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_on_the_command_line(two: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv.pop(1)); import replaypack.audit._rows as rows;"
        "rows.RowChecker.run = lambda self: (os.kill(os.getpid(), signal.SIGINT) or iter(()));"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from replaypack.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    source = str(Path(replaypack.__file__).parent.parent)
    command = [sys.executable, "-c", code, source, "verify", str(two), "--state", str(state)]
    stopped = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert stopped.returncode in (130, -signal.SIGINT), stopped.stderr
    again = subprocess.run(
        [sys.executable, "-m", "replaypack", "verify", str(two), "--state", str(state)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert again.returncode == 0
    assert "resumed: " in again.stdout
    assert not state.exists()


def test_threads_find_the_same_in_the_same_order(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (NAME, "another"):
        for pack in replaypack.Archive(two).open(name).manifest.storage.packs:
            flip(two / pack_key_of(pack.digest), pack.size // 2)
    found = {}
    for cores in (1, 2, 8):
        monkeypatch.setattr(packs_module, "_cores", lambda cores=cores: cores)
        found[cores] = [list(replaypack.Archive(two).verify(level=level)) for level in LEVELS]
    assert found[1] == found[2] == found[8]
    assert {fault.recording.partition("@")[0] for fault in found[1][2]} == {NAME, "another"}


class _Denied:
    """A store that does not tell missing from denied for packs, as S3 without LIST permission."""

    def __init__(self, inner: Storage, gone: str) -> None:
        self._inner, self._gone = inner, gone

    def __getattr__(self, name: str) -> Any:
        whole = getattr(self._inner, name)
        if not name.startswith("get"):
            return whole

        def asked(keys: Any, *rest: Any) -> Any:
            wanted = [keys] if isinstance(keys, str) else [key for key, _, _ in keys]
            if self._gone in wanted:
                error = ObjectMissingError("403")
                error.may_be_denied = True
                raise error
            return whole(keys, *rest)

        return asked


@pytest.mark.parametrize("level", LEVELS[1:])
def test_what_may_not_be_seen_is_missing_and_never_corrupt(archive_path: Path, level: Any) -> None:
    for pack in packs(archive_path):
        gone = pack.relative_to(archive_path).as_posix()
        store: Any = _Denied(open_storage(archive_path), gone)
        found = list(verify_archive(replaypack.Archive(archive_path, storage=store), level=level))
        assert {fault.code for fault in found} <= {"pack.missing", "blob.unreadable"}
        [missing] = [fault for fault in found if fault.code == "pack.missing"]
        assert missing.where == gone
        assert "not permitted" in missing.message


@pytest.mark.parametrize("gone", ["00000002.json", "0" * 64 + "." + "0" * 16 + ".dsse.json"])
def test_listed_objects_that_cannot_be_read_are_missing(archive_path: Path, gone: str) -> None:
    key = f"recordings/{NAME}/{gone}"
    if not (archive_path / key).exists():
        (archive_path / key).write_bytes(b"{}")
    store: Any = _Denied(open_storage(archive_path), key)
    found = list(verify_archive(replaypack.Archive(archive_path, storage=store), [NAME], level="manifest"))
    assert {fault.code for fault in found} == {f"{'manifest' if gone[-9:] != 'dsse.json' else 'signature'}.missing"}
    assert {fault.where for fault in found} == {key}
