"""What ``import replaypack`` gives, which is loaded when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import replaypack


def test_each_public_name_is_what_its_module_defines() -> None:
    given: dict[str, object] = {}
    exec("from replaypack import *", given)
    assert set(replaypack.__all__) == {*replaypack._HOMES, "__version__"}
    for name, home in replaypack._HOMES.items():
        assert given[name] is getattr(replaypack, name) is getattr(import_module(f"replaypack.{home}"), name)


@pytest.mark.parametrize("first", ["import replaypack", "from replaypack import *"])
def test_modules_are_there_and_what_there_is_not_is_an_attribute_error(first: str) -> None:
    code = (
        f"{first}\nimport replaypack, types\n"
        "for name in replaypack._MODULES: assert type(getattr(replaypack, name)) is types.ModuleType, name\n"
        "assert {*replaypack.__all__, *replaypack._MODULES} <= {*dir(replaypack)}\n"
        "assert not hasattr(replaypack, 'nothing') and callable(replaypack.open)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert isinstance(replaypack.errors, ModuleType)


def test_many_threads_may_be_the_first_to_ask() -> None:
    code = """
import sys, threading, replaypack
sys.setswitchinterval(1e-5)
barrier, failed = threading.Barrier(8), []
def ask(number):
    names = sorted(replaypack.__all__, key=lambda name: hash((name, number)))
    barrier.wait()
    for name in names:
        try:
            getattr(replaypack, name)
        except BaseException as error:
            failed.append(f"{name}: {error!r}")
threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit("; ".join(failed) or None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
