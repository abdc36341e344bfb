"""Runs the command line as a user does: in a process of its own, into pipes or on a terminal."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

import replaypack
from replaypack.cli import main
from replaypack.format.names import pack_key_of

SOURCE = str(Path(replaypack.__file__).parent.parent)

#: Text that would do something to a terminal, or to a reader, if it were shown as it is.
CANARY = "\x1b[31mred\x1b]0;title\x07\x9b2J \u202egnp.exe\u2069 \u200b\u2028 \x7f [bold]markup[/bold] :smile: é 漢字"
DANGEROUS = "\x1b\x07\x9b\u202e\u2069\u200b\u2028\x7f"


def is_safe(text: str) -> bool:
    """Whether nothing in it acts on a terminal or a reader."""
    return not any(char in text for char in DANGEROUS)


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("REPLAYPACK_")}
    env.update(PYTHONPATH=SOURCE, PYTHONIOENCODING="utf-8", TERM="xterm", COLUMNS="200", LINES="50")
    env.update(extra or {})
    return env


def _run(arguments: Sequence[str], streams: Sequence[IO[str]], env: dict[str, str]) -> int:
    """Run the command line in this process, with these streams for its input, output and errors."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("REPLAYPACK_")]:
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        patch.setattr("warnings.showwarning", warnings.showwarning)
        code = main(arguments)
        for stream in streams[1:]:
            stream.flush()
    return code


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """Run the command line in this process, with its streams as in a pipe."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2))
    code = _run(arguments, [io.StringIO(""), out, err], env or {})
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    assert "Traceback" not in texts[1] or (env or {}).get("REPLAYPACK_DEBUG")
    return Result(code, *texts)


def run_process(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """Run the command line in a process of its own, with pipes for its output."""
    done = subprocess.run(
        [sys.executable, "-m", "replaypack", *arguments],
        env=environment(env),
        input="",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert "Traceback" not in done.stderr or (env or {}).get("REPLAYPACK_DEBUG")
    return Result(done.returncode, done.stdout, done.stderr)


def run_on_terminal(
    *arguments: str, typed: str = "", prompt: str = "", columns: int = 200, process: bool = False
) -> Result:
    """Run it with a terminal for input and output; what both streams wrote is in ``out``.

    ``typed`` is typed at once, or when ``prompt`` was shown: a password typed before it is asked for is thrown away.
    With ``process`` it runs in a process of its own, as for a user.
    """
    pty = pytest.importorskip("pty")
    screen, side = pty.openpty()
    env = {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "50"}
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(_at_the_screen, screen, typed, prompt)
        if process:
            command = [sys.executable, "-m", "replaypack", *arguments]
            started = subprocess.Popen(command, env=environment(env), stdin=side, stdout=side, stderr=side)
            os.close(side)
            code = started.wait(60)
        else:
            with ExitStack() as stack:
                streams = [stack.enter_context(open(os.dup(side), mode, encoding="utf-8")) for mode in "rww"]
                os.close(side)
                code = _run(arguments, streams, env)
        text = seen.result().decode("utf-8")
    os.close(screen)
    assert "Traceback" not in text
    return Result(code, text, "")


def _at_the_screen(screen: int, typed: str, prompt: str) -> bytes:
    """Type, and read until nobody writes any more."""
    data = b""
    while True:
        if typed and prompt.encode() in data:
            os.write(screen, typed.encode())
            typed = ""
        try:
            piece = os.read(screen, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return data
        if not piece:
            return data
        data += piece


@pytest.fixture(autouse=True)
def _own_journals(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals of remote archives away from the user's, and from those of test runs beside this one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def without_pack(archive: replaypack.Archive, name: str) -> Path:
    """Delete the only pack of a recording; return where it was."""
    [pack] = archive.open(name).index.packs
    path = Path(archive.url) / pack_key_of(pack.digest)
    path.unlink()
    return path


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An archive with one sealed recording, which fits into any buffer: a full disk is noticed at the end."""
    archive = replaypack.Archive(tmp_path / "runs")
    with archive.recorder("a") as recorder:
        recorder.append(kind="tool", identity=1, response="x")
    return archive.url


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three recordings: mixed values and canaries, an appended one, and an incomplete one."""
    path = tmp_path_factory.mktemp("cli") / "runs"
    here = replaypack.Archive(path)
    with here.recorder("team/mixed", metadata={"note": CANARY, CANARY: 1}, recorded_by=CANARY) as recorder:
        recorder.append(
            kind="tool",
            name="search",
            identity={"q": "weather"},
            response={"answer": CANARY, "list": [1, 1.0, True, None]},
            start=1_700_000_000_000_000_000,
            duration=1_500_000_000,
        )
        recorder.append(kind="tool", name=CANARY, identity=CANARY, response=CANARY, scope=CANARY)
        recorder.append(kind="model", identity={"n": 2}, response=b"\x00\x01\xff" * 2000)
        recorder.append(
            kind="model",
            identity={"n": 3},
            response={1: float("nan"), "inf": float("-inf"), "b": b"\xff", "big": 2**70},
        )
        recorder.append(kind="http", key="own", request={"$bytes": "x"}, response=10**6000)
        recorder.append(kind="tool", name="search", identity={"q": "fail"}, error=ValueError(CANARY))
        recorder.append(kind="tool", identity="nothing")
    for count in (2, 3):
        with here.recorder("team/appended", if_exists="append") as recorder:
            for i in range(count):
                recorder.append(kind="tool", identity={"i": i, "of": count}, response="x" * 5000 * i)
    with pytest.raises(ZeroDivisionError), here.recorder("incomplete") as recorder:  # noqa: PT012
        recorder.append(kind="tool", identity=1, response=1)
        _ = 1 / 0
    return str(path)
