"""What the command line says where something is in the way."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.errors import JournalError, UsageError
from replaypack.format.names import pack_key_of

from .conftest import environment, run, run_process


@pytest.fixture
def down() -> str:
    """A web server that is not there: whoever asks it waits until the retries are over."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/runs"


@pytest.fixture
def half(tmp_path: Path) -> str:
    """An archive in which a recorder was killed; another recording in it is sealed."""
    path = tmp_path / "half"
    program = (
        "import os, sys, replaypack\n"
        "archive = replaypack.Archive(sys.argv[1])\n"
        "with archive.recorder('done') as recorder: recorder.append(kind='tool', identity=1, response=1)\n"
        "recorder = archive.recorder('dead')\n"
        "recorder.append(kind='tool', identity=1, response=1)\n"
        "recorder.flush()\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], env=environment()).returncode == 9
    return str(path)


def limited(*arguments: str) -> tuple[int, str]:
    """Run it where no file can grow, as on a disk that is full."""
    command = f"ulimit -f 0; exec {shlex.join([sys.executable, '-m', 'replaypack', *arguments])}"
    done = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, encoding="utf-8", timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_what_can_only_be_read_is_refused_at_once(url: str, down: str, tmp_path: Path) -> None:
    for arguments in (
        ("copy", url, down),
        ("catalog", down),
        ("compact", down),
        ("gc", down, "--apply"),
    ):
        result = run(*arguments)
        assert result.code != 0
        assert "http can only be read" in result.err, arguments
    packed = tmp_path / "a.zip"
    assert run("zip", url, "-o", str(packed)).code == 0
    for arguments in (
        ("copy", url, f"zip::{packed}"),
        ("unzip", str(packed), f"zip::{packed}"),
        ("compact", str(packed)),
        ("gc", str(packed), "--apply"),
        ("catalog", str(packed)),
        ("rm", f"{packed}#a", "--yes"),
    ):
        result = run(*arguments)
        assert result.code != 0
        assert "a zip file can only be read" in result.err, arguments
    assert run("gc", str(packed)).code == 0
    assert run("compact", str(packed), "--dry-run").code == 0
    assert "can only be read" in run("compact", url, "-o", "replaypack.read_only=true").err


def test_signing_in_a_zip_file(url: str, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    packed, key = tmp_path / "a.zip", tmp_path / "key.pem"
    run("zip", url, "-o", str(packed))
    run("keygen", str(key))
    assert "a zip file can only be read" in run("sign", f"{packed}#a", "--key", str(key)).err
    result = run("sign", f"{url}#a", "--key", str(tmp_path / "none.pem"))
    assert (result.code, "(`replaypack keygen FILE` makes a key pair)" in result.err) == (2, True)
    assert "keygen" not in run("sign", f"{url}#a", "--key", str(tmp_path)).err
    result = run("sign", f"{url}#a", "--key", f"{key}.pub")
    assert (result.code, f"{key}.pub: " in result.err, "sign with the private one" in result.err) == (2, True, True)
    result = run("verify", f"{url}#a", "--key", str(key))
    assert (result.code, f"{key}: " in result.err) == (2, True)


def test_zip_files_that_are_none(url: str, tmp_path: Path) -> None:
    assert "it is a directory, not a zip file" in run("unzip", url, str(tmp_path / "to")).err
    assert "there is no such zip file" in run("unzip", str(tmp_path / "nope.zip"), str(tmp_path / "to")).err
    result = run("zip", url, "-o", "s3://bucket/runs.zip")
    assert (result.code, "writes files of this machine only" in result.err) == (2, True)


def test_zip_conflicts(url: str, tmp_path: Path) -> None:
    other = Archive(tmp_path / "other")
    with other.recorder("a") as recorder:
        recorder.append(kind="tool", identity=2, response="y")
    error = run("zip", url, other.url, "-o", str(tmp_path / "both.zip")).err
    assert "one name in a zip file" in error
    assert "--if-exists" not in error


def test_copy_hints(url: str, tmp_path: Path) -> None:
    result = run("copy", url, f"{tmp_path}/to#other")
    assert (result.code, "so SRC must name one" in result.err) == (2, True)
    assert run("copy", url, f"{tmp_path}/to#other", "a").code == 0
    file = tmp_path / "file.py"
    file.write_text("")
    assert "a file lies where a directory has to be" in run("copy", url, str(file)).err
    result = run("copy", f"{url}#a@1", f"{tmp_path}/to")
    assert (result.code, "not finished" in result.err, "still" in result.err) == (2, True, False)


def test_a_copy_that_fails_says_what_arrived(url: str, tmp_path: Path) -> None:
    archive = Archive(url)
    with archive.recorder("b") as recorder:
        recorder.append(kind="tool", identity=2, response="y")
    to = Archive(tmp_path / "to")
    [pack] = archive.open("b").index.packs
    to.storage.put(pack_key_of(pack.digest), b"in the way")
    result = run("copy", url, to.url, "a", "b", "--jobs", "1")
    assert result.code == 1
    assert "a damaged pack is in the way" in result.err
    assert list(to.recordings()) == ["a"]
    assert "a@1: copied" in result.err


def test_recorders_that_died(half: str, tmp_path: Path) -> None:
    hint = f"`replaypack recover {half}`"
    for arguments in (("ls", half), ("show", f"{half}#dead"), ("copy", half, str(tmp_path / "to"))):
        assert hint in run(*arguments).err, arguments
    assert run("show", f"{half}#done").err == ""
    assert run("recover", half).code == 0
    assert run("ls", half).err == ""


@pytest.mark.skipif(os.name == "nt", reason="no ulimit")
def test_full_disks(url: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    code, error = limited("verify", url, "--state", str(state))
    assert (code, f"the state file {state} cannot be written" in error) == (2, True)
    pytest.importorskip("cryptography")
    key = tmp_path / "key.pem"
    code, error = limited("keygen", str(key))
    assert (code, "cannot be written" in error) == (2, True)
    assert not key.exists()


def test_imports(url: str, tmp_path: Path) -> None:
    lines = tmp_path / "x.jsonl"
    assert run("import", str(lines), f"{url}#new").code == 2
    lines.write_text(json.dumps({"kind": "tool", "identity": 1, "response": 2, "odd": 3}) + "\n")
    result = run("import", str(lines), f"{url}#new")
    assert "--skip-unknown" in result.err
    assert "--member" in result.err
    error = run("export", f"{url}#a", "--to", f"{url}#a").err
    assert "--to" in error
    assert "if_exists" not in error


def test_journals_of_local_archives(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "journal").write_text("in the way")
    (tmp_path / "call.json").write_text("{}")
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"kind": "tool", "identity": 1, "response": 2}\n')
    error = run("import", str(lines), f"{tmp_path}/runs#a").err
    assert "lies in the archive" in error
    assert "XDG_STATE_HOME" not in error
    with pytest.raises(
        JournalError, match=r"call\.json is a file, and an archive that is recorded into is a directory"
    ):
        Archive(tmp_path / "call.json").recorder("a")
    assert (tmp_path / "call.json").read_text() == "{}"


def test_help_of_commands_that_take_no_revision() -> None:
    for command in ("rm", "purge"):
        assert "@revision" not in run(command, "--help").out


@pytest.mark.skipif(os.name == "nt", reason="no signals to send")
def test_interrupted(tmp_path: Path) -> None:
    """A signal that comes while modules load, or in the middle of the work."""
    program = (
        "import os, signal, sys, replaypack.audit as audit\n"
        "from replaypack.cli import main\n"
        "def faults(*_, **__):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    yield\n"
        "audit.verify_archive = faults\n"
        "sys.exit(main(['verify', sys.argv[1]]))\n"
    )
    archive = Archive(tmp_path / "runs")
    with archive.recorder("a"):
        pass
    done = subprocess.run(
        [sys.executable, "-c", program, archive.url], env=environment(), capture_output=True, encoding="utf-8"
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        130,
        "",
        "interrupted: with --state FILE it can be continued\n",
    )
    assert signal.SIGINT
    assert run_process("verify", archive.url).code == 0


@pytest.mark.parametrize("digest", ["", "zz", "AB" * 32, "0" * 63])
def test_what_is_no_digest_is_wrong_usage(url: str, tmp_path: Path, digest: str) -> None:
    for arguments in (
        ("verify", f"{url}#a", "--expect-digest", digest),
        ("verify", f"{url}#a", "--expect-manifest", digest),
        ("verify", f"{url}#a@1", "--expect-digest", digest),
    ):
        result = run(*arguments)
        assert (result.code, result.out, "64 lower-case hex" in result.err) == (2, "", True), arguments
    proof = tmp_path / "proof"
    assert run("prove", f"{url}#a", "0", "--out", str(proof)).code == 0
    result = run("check-proof", str(proof), "--digest", digest)
    assert (result.code, "64 lower-case hex" in result.err) == (2, True)
    with pytest.raises(UsageError, match="64 lower-case hex"):
        Archive(url).open("a", expect_digest=digest)
    assert run("verify", f"{url}#a", "--expect-digest", "0" * 64).code == 1
