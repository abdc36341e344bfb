"""Signatures survive wrapping, for a type checker too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import replaypack

pytest.importorskip("mypy")

GOOD = """
from collections.abc import AsyncIterator, Iterator
from typing import assert_type
import replaypack
from replaypack import ReplaySession
from replaypack.errors import UsageError

@replaypack.tool
def search(query: str, limit: int = 5) -> list[str]:
    return []

@replaypack.tool(name="fetch", ignore=("client",))
async def fetch(url: str, client: object = None) -> bytes:
    return b""

@replaypack.tool
def count(to: int) -> Iterator[int]:
    yield 1

@replaypack.tool(kind="model")
async def acount(to: int) -> AsyncIterator[int]:
    yield 1

class Shop:
    @replaypack.tool
    def price(self, item: str) -> float:
        return 1.0

async def later() -> int:
    return 1

async def main(session: ReplaySession) -> None:
    assert_type(search("q", limit=3), list[str])
    assert_type(await fetch("u"), bytes)
    assert_type(next(count(3)), int)
    assert_type([n async for n in acount(3)], list[int])
    assert_type(Shop().price("tea"), float)
    assert_type(session.tool("t", {}, lambda: 1), int)
    assert_type(session.model("m", {}, lambda: "text"), str)
    assert_type(session.call("tool", 1, lambda: b""), bytes)
    assert_type(await session.atool("t", {}, later), int)
    assert_type(await session.acall("t", {}, later), int)
    assert_type(await replaypack.acall("tool", 1, later), int)
    assert_type(replaypack.call("tool", 1, lambda: 1), int)
    assert_type(replaypack.errors.UsageError("no"), UsageError)
    assert_type(list(session.stream("model", 1, lambda: iter([1]))), list[int])
    assert_type([n async for n in session.astream("model", 1, lambda: acount(1))], list[int])

    def plain(a: int, *, b: str = "") -> set[int]:
        return set()

    assert_type(session.wrap(plain)(1, b="x"), set[int])
    assert_type(session.bind(plain)(1), set[int])
    with session.scope("s") as label, replaypack.ReplaySession("record") as inner:
        assert_type(label, str)
        assert_type(inner, ReplaySession)
"""

BAD = """
import replaypack
from replaypack import ReplaySession

@replaypack.tool
def search(query: str, limit: int = 5) -> list[str]:
    return []

@replaypack.tool(name="other")
def other(a: int) -> None: ...

def check(session: ReplaySession) -> None:
    search(1)
    search("q", colour="red")
    other("text")
    session.wrap(search)(limit=1)
    ReplaySession("loud")
    ReplaySession("replay", on_missing="last")
    replaypack.curent_session()
"""


def mypy(path: Path, program: str) -> list[str]:
    path.write_text(program)
    source = str(Path(replaypack.__file__).parent.parent)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        str(path.parent / "cache"),
    ]
    environment = {**os.environ, "MYPYPATH": source}
    command += ["--follow-imports=silent", str(path)]
    done = subprocess.run(command, env=environment, cwd=path.parent, capture_output=True, text=True, check=False)
    return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(path.name) and "error" in line]


def test_signatures_survive_for_a_type_checker(tmp_path: Path) -> None:
    assert mypy(tmp_path / "good.py", GOOD) == []
    wrong = {int(line.split(":")[1]) for line in mypy(tmp_path / "bad.py", BAD)}
    assert wrong == {13, 14, 15, 16, 17, 18, 19}
