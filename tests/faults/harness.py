"""One operation after another of a scenario goes wrong, until a run passes without reaching the next."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from replaypack import Archive
from replaypack.errors import ObjectMissingError, ReplaypackError
from replaypack.recover import recover
from replaypack.storage import LocalStorage, MemoryStorage, Storage

from .scenarios import Scenario, read
from .storage import DEAD, FaultyStorage, Kind, Plan

__all__ = ["points"]

_OBJECTS = "objects://faults"
_MEMORY = "memory://faults"
#: What a commit whose last step failed leaves, which is documented: readers find the revision where they look fresh.
_BEHIND = {"latest.missing", "latest.stale"}


class Point:
    """One run of a scenario with one operation that goes wrong, in a directory of its own."""

    def __init__(self, scenario: Scenario, storage: str, kind: Kind, at: int, directory: Path) -> None:
        self.scenario = scenario
        self.storage = storage
        self.plan = Plan(kind, at)
        self.directory = directory
        self._acks = directory / "acks"

    def __repr__(self) -> str:
        return f"{self.scenario.name} on {self.storage}: {self.plan.kind} at {self.plan.at} ({self.plan.hit})"

    def store(self, plan: Plan) -> Storage:
        return store(self.storage, self.directory, plan)

    def run(self) -> bool:
        """Run up to the fault and on; return whether it was reached."""
        if self.plan.kind in ("die", "end"):
            return self._run_in_child()
        try:
            self._run()
        except ReplaypackError:
            if not self.plan.reached:
                raise
        return self.plan.reached

    def _run(self) -> None:
        with Archive("", storage=self.store(self.plan)) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.scenario.run(archive, self._ack, self.directory)

    def _run_in_child(self) -> bool:
        child = os.fork()
        if not child:
            code = 1
            try:
                self._run()
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, DEAD), f"{self!r} ended with {code}"
        return code == DEAD

    def _ack(self, name: str, number: int) -> None:
        with self._acks.open("a") as file:
            file.write(f"{name} {number}\n")

    def acknowledged(self) -> set[tuple[str, int]]:
        lines = self._acks.read_text().splitlines() if self._acks.exists() else []
        acks = {(name, int(number)) for name, number in map(str.split, lines)}
        return acks | {(name, n) for name, numbers in self.scenario.prepared.items() for n in numbers}

    def check(self) -> None:
        """Nothing acknowledged is lost, what is there is sound, and a rerun completes it."""
        wanted = self.acknowledged()
        with Archive("", storage=self.store(Plan())) as archive:
            found = faults(archive)
            assert found <= _BEHIND | self.scenario.between, found
            self.scenario.interrupted(archive, found)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                problems = [item.error for item in recover(archive) if item.error is not None]
            assert problems == []
            assert wanted <= set(read(archive)), wanted - set(read(archive))
            self.scenario.rerun(archive, self.directory)
            assert faults(archive) <= _BEHIND, faults(archive)
            assert wanted <= set(read(archive)), wanted - set(read(archive))
            self.scenario.complete(archive)


def store(kind: str, directory: Path, plan: Plan) -> Storage:
    """The store of a point, with the fault of a plan."""
    if kind == "memory":
        return FaultyStorage(MemoryStorage(_MEMORY), plan)
    local = LocalStorage(directory / "archive", fsync=False)
    return FaultyStorage(local, plan, _OBJECTS if kind == "objects" else None)


def faults(archive: Archive) -> set[str]:
    """The codes of all that is wrong with an archive."""
    try:
        return {fault.code for fault in archive.verify()}
    except ObjectMissingError:
        return set()  # nothing was written yet


@contextmanager
def state(directory: Path) -> Iterator[None]:
    """Journals of stores that are no directory lie here. No power fails, so that no disk has to be waited for."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(directory / "state")
    try:
        with mock.patch("os.fsync"):
            yield
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


def points(scenario: Scenario, storage: str, kind: Kind, directory: Path) -> int:
    """Try every operation of a scenario; return how many there were. Raises `AssertionError` for a loss."""
    template, here = directory / "template", directory / "point"
    template.mkdir(parents=True)
    memory: dict[str, tuple[bytes, float]] = {}
    with state(template):
        MemoryStorage(_MEMORY)._space.objects.clear()
        with Archive("", storage=store(storage, template, Plan())) as archive:
            scenario.prepare(archive, template)
        memory.update(MemoryStorage(_MEMORY)._space.objects)
    number = 0
    while True:
        shutil.copytree(template, here)
        with state(here):
            MemoryStorage(_MEMORY)._space.objects.clear()
            MemoryStorage(_MEMORY)._space.objects.update(memory)
            point = Point(scenario, storage, kind, number, here)
            try:
                reached = point.run()
                if reached:
                    point.check()
            except Exception as error:
                error.add_note(repr(point))
                raise
        shutil.rmtree(here)
        if not reached:
            return number
        number += 1
