"""`replaypack import` and `replaypack export`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import replaypack

from .conftest import environment, run, run_on_terminal, run_process

LINE = '{"kind": "tool", "name": "search", "args": {"q": "x"}, "result": [1]}\n'


def roots(*locators: str) -> set[str]:
    return {replaypack.open(locator).manifest.content.merkle_root for locator in locators}


def test_out_and_in_again(archive: str, tmp_path: Path) -> None:
    file, new = str(tmp_path / "out.jsonl"), f"{tmp_path}/new#copy"
    result = run_process("export", f"{archive}#team/mixed", file)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("exported 7 records of ")
    done = run("import", file, new, "--json")
    assert (done.code, done.json["records"], done.json["format"], done.json["notes"]) == (0, 7, "jsonl", [])
    assert len(roots(f"{archive}#team/mixed", new)) == 1


def test_through_pipes(archive: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "replaypack"]
    out = subprocess.run(
        [*command, "export", f"{archive}#team/mixed", "-"], capture_output=True, env=environment(), check=True
    )
    assert out.stderr == b""
    assert len([json.loads(line) for line in out.stdout.splitlines()]) == 8
    done = subprocess.run(
        [*command, "import", "-", f"{tmp_path}#copy"], input=out.stdout, capture_output=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(roots(f"{archive}#team/mixed", f"{tmp_path}#copy")) == 1
    cut = subprocess.run(
        [*command, "import", "-", f"{tmp_path}#cut"], input=out.stdout[:-5], capture_output=True, env=environment()
    )
    assert cut.returncode == 1
    assert b"standard input, line 8 is not a line of JSON" in cut.stderr
    assert run("ls", str(tmp_path)).out.split("\t")[0] == "copy"


def test_options_of_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text('{"prompt": "p", "result": 1, "id": 7}\n')
    options = ["import", str(file), f"{tmp_path}/a#r", "--kind", "model", "--member", "request=prompt"]
    result = run(*options)
    assert result.code == 1
    assert "line 1: the member 'id' is not known" in result.err
    result = run(*options, "--skip-unknown")
    assert result.code == 0
    assert "note: the member 'id' was skipped in 1 line" in result.out
    again = run(*options, "--skip-unknown", "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "archive.recording_exists")
    assert "--if-exists append" in again.json["error"]["hint"]
    assert run(*options, "--skip-unknown", "--if-exists", "append").code == 0
    assert len(replaypack.open(f"{tmp_path}/a#r")) == 2


def test_on_a_terminal_progress_is_shown(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(LINE * 500)
    result = run_on_terminal("import", str(tmp_path / "in.jsonl"), f"{tmp_path}/a#r")
    assert result.code == 0
    assert "imported 500 records" in result.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["import", "{tmp}/none", "{tmp}/a#r"], 2, "is not there"),
        (["import", "{tmp}", "{tmp}/a#r"], 2, "not a file"),
        (["import", "{tmp}/in.jsonl", "{tmp}/a"], 2, "not a locator"),
        (["import", "{tmp}/in.jsonl", "{tmp}/a#r@2"], 2, "leave out the @revision"),
        (["import", "{tmp}/in.jsonl", "{tmp}/a#r", "--format", "yaml"], 2, "'yaml' is not a format"),
        (["import", "{tmp}/in.jsonl", "{tmp}/a#r", "--member", "request"], 2, "OURS=THEIRS"),
        (["import", "{tmp}/in.jsonl", "{tmp}/a#r", "--if-exists", "merge"], 2, "merge"),
        (["import", "{tmp}/odd.bin", "{tmp}/a#r"], 1, "of no format that is known"),
        (["export", "{archive}#team/mixed", "{tmp}/in.jsonl"], 1, "--overwrite"),
        (["export", "{archive}#team/mixed", "{tmp}/out.json"], 2, "add --format"),
        (["export", "{archive}#team/mixed", "{tmp}/no/out.jsonl"], 2, "cannot be written"),
        (["export", "{archive}#team/mixt", "{tmp}/out.jsonl"], 1, "did you mean team/mixed?"),
        (["export", "{archive}#team/mixed", "-", "--json"], 2, "cannot both"),
    ],
)
def test_mistakes(archive: str, tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
    (tmp_path / "in.jsonl").write_text(LINE)
    (tmp_path / "odd.bin").write_bytes(b"\x00\x01")
    result = run(*(part.format(archive=archive, tmp=tmp_path) for part in arguments))
    assert (result.code, says in result.err) == (code, True), result.err
    assert not (tmp_path / "a").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "odd.bin"]


@pytest.mark.parametrize("format_", ["jsonl", "chassis", "karenina"])
def test_what_cannot_be_read_or_written_is_named(archive: str, tmp_path: Path, format_: str) -> None:
    empty = f"{tmp_path}/new#empty"
    with replaypack.Archive(f"{tmp_path}/new").recorder("empty"):
        pass
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for place in ("pipe", "directory", "nowhere/file", "directory/../nowhere/file"):
        failed = run("export", empty, str(tmp_path / place), "--format", format_, "--overwrite", "--json")
        assert (failed.code, failed.json["error"]["code"]) == (2, "export.failed"), place
    assert (tmp_path / "pipe").is_fifo()
    assert run("export", empty, str(tmp_path / "loop"), "--format", format_, "--overwrite").code == 0
    for place in ("pipe", "directory", "nowhere"):
        failed = run("import", str(tmp_path / place), f"{archive}#new", "--format", format_, "--json")
        assert (failed.code, failed.json["error"]["code"]) == (2, "usage"), place
