"""Mistakes, recorded text that must not act, and how the process behaves among others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import replaypack
from replaypack.cli import _app

from .conftest import CANARY, environment, is_safe, run, run_on_terminal, run_process

# Mistakes


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["ls", "{archive}x"], 1, "did you mean {archive}?"),
        (["ls", "{archive}/nowhere"], 1, "no archive"),
        (["ls", "s4://bucket/runs"], 2, "did you mean s3://?"),
        (["ls", ""], 2, "empty"),
        (["ls", "{archive}#team/mixed"], 2, "one recording"),
        (["show", "{archive}"], 2, "not a locator"),
        (["show", "{archive}#team/mixt"], 1, "did you mean team/mixed?"),
        (["show", "{archive}#team/mixed@9"], 1, "no revision 9"),
        (["show", "{archive}#team/mixed@x"], 2, "revision number"),
        (["show", "{archive}#../up"], 2, "cannot name a recording"),
        (["show", "{archive}#team/mixed", "--status", "good"], 2, "interrupted"),
        (["show", "{archive}#team/mixed", "--since", "soon"], 2, "not a time"),
        (["cat", "{archive}#team/mixed", "99"], 1, "no record 99"),
        (["cat", "{archive}#team/mixed", "blake3:" + "0" * 64], 1, "no blob"),
        (["cat", "{archive}#team/mixed", "blake3:" + "0" * 64, "--request"], 2, "one payload already"),
        (["cat", "{archive}#team/mixed", "first"], 2, "sequence number"),
        (["cat", "{archive}#team/mixed", "0", "--request", "--response"], 2, "one of"),
        (["verify", "{archive}", "--level", "deep"], 2, "deep"),
        (["verify", "{archive}#nothing"], 2, "nothing"),
        (["verify", "{archive}#team/mixed@9"], 2, "no revision 9"),
        (["verify", "{archive}/nowhere"], 2, "no archive"),
        (["verify", "{archive}#nothing", "--expect-digest", "0" * 64], 2, "nothing"),
        (["log", "{archive}#team/mixed@1"], 2, "@revision"),
        (["recover", "{archive}x"], 1, "no archive"),
        (["rm", "{archive}#nothing", "--yes"], 1, "nothing"),
        (["shwo", "{archive}"], 2, "did you mean 'show'?"),
        (["show", "{archive}#team/mixed", "--recods"], 2, "--records"),
        (["ls"], 2, "URL"),
        (["ls", "{archive}", "--option", "novalue-hunter2"], 2, "KEY=VALUE"),
    ],
)
def test_a_mistake_gets_one_sentence(archive: str, arguments: list[str], code: int, says: str) -> None:
    result = run(*(part.format(archive=archive) for part in arguments))
    assert result.code == code
    assert result.out == ""
    [line] = result.err.splitlines()
    assert line.startswith("error: ")
    assert says.format(archive=archive) in line
    assert "hunter2" not in line
    document = run(*(part.format(archive=archive) for part in arguments), "--json").json
    assert document["error"]["code"]
    assert document["error"]["message"] in line.replace("\\\\", "\\")


def test_all_is_the_same_in_a_process_of_its_own(archive: str) -> None:
    for arguments in (["show", f"{archive}#team/mixt"], ["ls"], ["verify", f"{archive}#nothing"]):
        assert run_process(*arguments) == run(*arguments)
    arguments = ["show", f"{archive}#team/mixed"]
    assert run_on_terminal(*arguments, process=True) == run_on_terminal(*arguments)


def test_debug_shows_the_traceback(archive: str) -> None:
    result = run_process("show", f"{archive}#nope", env={"REPLAYPACK_DEBUG": "1"})
    assert "Traceback" in result.err
    assert result.code == 1


def test_json_that_is_nested_too_deeply_is_wrong_usage(archive: str, tmp_path: Path) -> None:
    deep = "[" * 50_000
    assert run_process("ls", archive, env={"REPLAYPACK_STORAGE_OPTIONS": deep}).code == 2
    (tmp_path / "deep.json").write_text(deep)
    for command in (["rekey"], ["show"], ["explain", "--kind", "tool", "--request", f"{tmp_path}/deep.json"]):
        failed = run(*command, f"{archive}#team/mixed", "--match", f"@{tmp_path}/deep.json", "--json")
        assert (failed.code, failed.json["error"]["code"]) == (2, "usage"), command


def test_storage_options(archive: str) -> None:
    bad = {"REPLAYPACK_STORAGE_OPTIONS": "{hunter2"}
    result = run("ls", archive, env=bad)
    assert result.code == 2
    assert "hunter2" not in result.err
    assert "REPLAYPACK_STORAGE_OPTIONS" in result.err
    read_only = {"REPLAYPACK_STORAGE_OPTIONS": '{"replaypack": {"read_only": true}}'}
    assert run("rm", f"{archive}#incomplete", "--yes", env=read_only).code == 1
    for option in ('replaypack={"read_only": true}', "replaypack.read_only=true"):
        result = run("rm", f"{archive}#incomplete", "--yes", "--option", option)
        assert result.code == 1
        assert "only be read" in result.err
    assert run("ls", archive, "-o", "replaypack.no_such_option=hunter2").code == 2


# Text that must not act


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls", "--long", "{archive}"],
        ["show", "{archive}#team/mixed"],
        ["show", "{archive}#team/mixed", "--records"],
        *(["cat", "{archive}#team/mixed", str(seq)] for seq in range(6)),
        ["cat", "{archive}#team/mixed", "1", "--response"],
    ],
)
def test_recorded_text_is_escaped(archive: str, arguments: list[str]) -> None:
    arguments = [part.format(archive=archive) for part in arguments]
    plain = run(*arguments)
    assert plain.code == 0
    assert is_safe(plain.out)
    assert is_safe(run(*arguments, "--json").out)
    shown = run_on_terminal(*arguments)
    assert shown.code == 0
    for sequence in ("\x1b[1m", "\x1b[0m"):  # bold headings are ours
        shown = shown._replace(out=shown.out.replace(sequence, ""))
    assert is_safe(shown.out)
    if "\\x1b" in plain.out or "\\u001b" in plain.out:
        assert "[bold]markup[/bold]" in shown.out.replace("\r\n", "")


def test_a_hostile_argument_is_escaped_in_the_error(archive: str) -> None:
    for arguments in (["show", f"{archive}#{CANARY}"], ["ls", f"/nowhere/{CANARY}"], [CANARY], ["show", CANARY]):
        result = run(*arguments)
        assert result.code in (1, 2)
        assert is_safe(result.err)


# Processes


def test_the_reader_of_a_pipe_may_go_away(archive: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "replaypack", "cat", f"{archive}#team/mixed", "2"],
        env=environment({"PYTHONUNBUFFERED": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_is_clean(tmp_path: Path) -> None:
    recorder = replaypack.Archive(tmp_path).recorder("live", flush_interval=None)
    recorder.append(kind="tool", identity=0, response=0)
    recorder.flush()
    process = subprocess.Popen(
        [sys.executable, "-m", "replaypack", "show", f"{tmp_path}#live", "--follow"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts jobs in the background lets them ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "interrupted\n"
    recorder.close()


LOADING = ["replaypack.errors", "replaypack.archive", "msgspec", "typer", "rich", "replaypack.cli.verify", "difflib"]
SCRIPT = ["-c", "import sys; from replaypack.cli import main; sys.exit(main())"]


@pytest.mark.parametrize(
    ("how", "module"),
    [*((["-m", "replaypack"], module) for module in ("replaypack.cli", *LOADING)), *((SCRIPT, m) for m in LOADING)],
)
def test_an_interrupt_while_modules_load_is_clean(tmp_path: Path, how: list[str], module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"""
import signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
    )
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    done = subprocess.run([sys.executable, *how, "ls", str(tmp_path)], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("step", ["make_context", "parse_args", "resolve_command"])
def test_an_interrupt_while_the_command_line_is_parsed_is_said(
    archive: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_app._Group, step, interrupted)
    done = run("ls", archive)
    assert (done.code, done.out, done.err) == (130, "", "interrupted\n")


def test_help_and_version_are_there_without_loading_filesystems(archive: str) -> None:
    assert run_process("--version").out == f"replaypack {replaypack.__version__}\n"
    assert "--install-completion" in run("--help").out
    script = (
        "import sys; from replaypack.cli import main; main(['--help'])\n"
        "print([m for m in ('s3fs', 'gcsfs', 'aiohttp', 'botocore', 'rich.table') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_arguments_show_the_help() -> None:
    result = run_process()
    assert (result.code, result.err) == (0, "")
    assert result.out == run_process("--help").out
    assert result.out.startswith("Usage: replaypack [OPTIONS] COMMAND [ARGS]...\n\n")


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('no typer')")
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "replaypack", "ls", "x"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "replaypack: the command line needs two more packages: pip install 'replaypack[cli]'\n"


def test_completion_lists_the_commands() -> None:
    result = run_process(
        env={"_REPLAYPACK_COMPLETE": "complete_bash", "COMP_WORDS": "replaypack ver", "COMP_CWORD": "1"}
    )
    assert "verify" in result.out
