"""What is done while a store fails: one class for each operation. To add one is to write its class."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from replaypack import Archive
from replaypack.audit import compact, copy, gc, purge, rekey, salvage, write_catalog
from replaypack.audit._salvage_frames import frames_in
from replaypack.errors import RecordingNotFoundError, UsageError
from replaypack.recover import recover
from replaypack.storage import LocalStorage

from .storage import FaultyStorage

__all__ = ["SCENARIOS", "Ack", "Scenario", "call", "read"]

#: Says that a record of a recording, by its number, was acknowledged.
Ack = Callable[[str, int], None]
_TEXT = "what was said before is said again, and a little more of it each time. "


def call(number: int) -> dict[str, Any]:
    """The arguments of record ``number``: its payloads tell which it is."""
    return {
        "kind": "tool",
        "name": "f",
        "identity": {"n": number, "history": [_TEXT * 3 + str(step) for step in range(min(number, 6))]},
        "response": f"answer {number} " + _TEXT * (80 if number % 3 == 2 else 1),
    }


def fill(archive: Archive, name: str, numbers: Iterable[int], ack: Ack, every: int = 2, **options: Any) -> None:
    """Record, with a flush behind every few records, and seal."""
    with archive.recorder(name, flush_interval=None, **options) as recorder:
        for number in numbers:
            recorder.append(**call(number))
            ack(name, number)
            if number % every == every - 1:
                recorder.flush()


def read(archive: Archive) -> Iterator[tuple[str, int]]:
    """The records there are, checked; those of a sibling count as those of the recording that it is one of."""
    for name in archive.recordings():
        with archive.open(name, fresh=True) as recording:
            for record in recording.records():
                number = record.identity["n"]
                assert record.identity == call(number)["identity"]
                assert record.response == call(number)["response"]
                yield name.split(".")[0], number


def _nobody(name: str, number: int) -> None:
    """Nobody listens."""


def _beside(archive: Archive, path: Path) -> FaultyStorage:
    """Another store, whose operations count like those of the archive's."""
    assert isinstance(archive.storage, FaultyStorage)
    return FaultyStorage(LocalStorage(path, fsync=False), archive.storage.plan, f"objects://{path.name}")


class Scenario:
    """Something that writes. ``prepared`` are records that are there before, and stay."""

    name: ClassVar[str]
    storages: ClassVar[tuple[str, ...]] = ("local", "objects", "memory")
    prepared: ClassVar[dict[str, range]] = {}
    #: Whether one kind of fault is enough for every day.
    heavy: ClassVar[bool] = False
    #: Whether every day it is enough to see what it leaves where it dies.
    rare: ClassVar[bool] = False
    #: Faults that `verify` may find after an interruption, besides those of ``latest.json``.
    between: ClassVar[set[str]] = set()

    def prepare(self, archive: Archive, directory: Path) -> None:
        """Make what is there before; ``directory`` is for what is not part of the archive."""

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        """Do it, with the store that fails."""
        raise NotImplementedError

    def interrupted(self, archive: Archive, faults: set[str]) -> None:
        """Check what an interruption left; ``faults`` are those that `verify` finds there."""

    def rerun(self, archive: Archive, directory: Path) -> None:
        """Do it again, or what is left of it, with a store that works."""
        self.run(archive, _nobody, directory)

    def complete(self, archive: Archive) -> None:
        """Check that all is done."""


class Record(Scenario):
    name = "record"
    _numbers: ClassVar[range] = range(6)
    _options: ClassVar[dict[str, Any]] = {}

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        fill(archive, "run", self._numbers, ack, **self._options)

    def rerun(self, archive: Archive, directory: Path) -> None:
        there = len(set(read(archive)) & {("run", number) for number in self._numbers})
        left = [number for number in self._numbers if number >= self._numbers[0] + there]
        if left or "run" not in archive.recordings():
            fill(archive, "run", left, _nobody, if_exists="append")

    def complete(self, archive: Archive) -> None:
        assert {number for name, number in read(archive) if name == "run"} >= set(self._numbers)
        assert archive.open("run", fresh=True).state != "open"


class Append(Record):
    name = "append"
    prepared: ClassVar[dict[str, range]] = {"run": range(4)}
    _numbers: ClassVar[range] = range(4, 8)
    _options: ClassVar[dict[str, Any]] = {"if_exists": "append"}

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "run", range(4), _nobody)


class Replace(Record):
    name = "replace"
    heavy = True
    _numbers: ClassVar[range] = range(4, 8)
    _options: ClassVar[dict[str, Any]] = {"if_exists": "replace"}

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "run", range(4), _nobody)

    def rerun(self, archive: Archive, directory: Path) -> None:
        if {number for _, number in read(archive)} < set(self._numbers):
            fill(archive, "run", self._numbers, _nobody, if_exists="replace")
        else:
            super().rerun(archive, directory)


class Based(Record):
    name = "base"
    heavy = True
    prepared: ClassVar[dict[str, range]] = {"old": range(6)}
    _numbers: ClassVar[range] = range(6, 10)
    _options: ClassVar[dict[str, Any]] = {"base": "old"}

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "old", range(6), _nobody)


class Recover(Scenario):
    """The journal of a recorder that was killed."""

    name = "recover"
    storages = ("local", "objects")
    prepared: ClassVar[dict[str, range]] = {"run": range(5)}

    def prepare(self, archive: Archive, directory: Path) -> None:
        if not os.fork():
            recorder = archive.recorder("run", flush_interval=None)
            for number in range(5):
                recorder.append(**call(number))
                if number == 2:
                    recorder.flush()
            os._exit(0)
        os.wait()

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        for item in recover(archive):
            if item.error is not None:
                raise item.error

    def complete(self, archive: Archive) -> None:
        assert archive.open("run", fresh=True).state == "incomplete"
        assert archive.leftovers() == []


class Rekey(Scenario):
    name = "rekey"
    prepared: ClassVar[dict[str, range]] = {"run": range(5)}

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "run", range(5), _nobody)

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        rekey(archive, "run", match="uuids")

    def rerun(self, archive: Archive, directory: Path) -> None:
        with suppress(UsageError):  # it has that policy already
            rekey(archive, "run", match="uuids")

    def complete(self, archive: Archive) -> None:
        assert archive.open("run", fresh=True).match.name == "uuids"


class Delete(Scenario):
    """What is deleted last can still be read, and deleted again."""

    name = "delete"
    between: ClassVar[set[str]] = {"manifest.missing"}
    prepared: ClassVar[dict[str, range]] = {"other": range(2)}

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "run", range(3), _nobody)
        fill(archive, "other", range(2), _nobody)

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        archive.delete("run")

    def rerun(self, archive: Archive, directory: Path) -> None:
        with suppress(RecordingNotFoundError):
            archive.delete("run")

    def complete(self, archive: Archive) -> None:
        assert list(archive.recordings()) == ["other"]


class Catalog(Scenario):
    name = "catalog"
    prepared: ClassVar[dict[str, range]] = {"a": range(2), "b": range(2)}

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "a", range(2), _nobody)
        fill(archive, "b", range(2), _nobody)

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        write_catalog(archive)

    def complete(self, archive: Archive) -> None:
        catalog = archive.manifests.catalog()
        assert catalog is not None
        assert [(entry.name, entry.records) for entry in catalog.entries] == [("a", 2), ("b", 2)]


class Collect(Scenario):
    """Packs that nothing refers to, superseded checkpoints, a recording that was deleted."""

    name = "gc"
    prepared: ClassVar[dict[str, range]] = {"run": range(8)}

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "run", range(4), _nobody)
        fill(archive, "run", range(4, 8), _nobody, if_exists="append")
        fill(archive, "gone", range(4), _nobody)
        archive.delete("gone")

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        gc(archive, grace=timedelta(0), apply=True)

    def complete(self, archive: Archive) -> None:
        assert gc(archive, grace=timedelta(0)).total.objects == 0


class Compact(Scenario):
    name = "compact"
    prepared: ClassVar[dict[str, range]] = {"run": range(6), "other": range(3)}

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "run", range(4), _nobody)
        fill(archive, "run", range(4, 6), _nobody, if_exists="append")
        fill(archive, "other", range(3), _nobody, base="run")

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        compact(archive, level=3)

    def complete(self, archive: Archive) -> None:
        for name in ("run", "other"):
            assert archive.open(name, fresh=True).manifest.storage.cause == "compact"


class Copy(Scenario):
    """An archive beside the one that is written; the stores of both fail."""

    name = "copy"

    def prepare(self, archive: Archive, directory: Path) -> None:
        with Archive(directory / "source") as source:
            fill(source, "run", range(5), _nobody)
            fill(source, "other", range(2), _nobody, base="run")

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        copy(Archive("", storage=_beside(archive, directory / "source")), archive)

    def complete(self, archive: Archive) -> None:
        assert set(read(archive)) == {*(("run", number) for number in range(5)), ("other", 0), ("other", 1)}


class Purge(Scenario):
    name = "purge"
    between: ClassVar[set[str]] = {"purge.unfinished"}
    prepared: ClassVar[dict[str, range]] = {"run": range(2, 4), "other": range(2)}
    heavy = True

    def prepare(self, archive: Archive, directory: Path) -> None:
        fill(archive, "run", range(4), _nobody, 4)
        fill(archive, "other", range(2), _nobody)

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        purge(archive, "run", [0, 1], "asked for", keep_shared=True)

    def interrupted(self, archive: Archive, faults: set[str]) -> None:
        purged = archive.open("run", fresh=True).manifest.purged
        assert not (purged and _is_left(archive)) or "purge.unfinished" in faults

    def complete(self, archive: Archive) -> None:
        manifest = archive.open("run", fresh=True).manifest
        assert (manifest.purged, manifest.records) == (2, 4)
        assert not _is_left(archive)


class PurgeCompacted(Purge):
    """The recordings share packs that name neither."""

    name = "purge compacted"
    rare = True

    def prepare(self, archive: Archive, directory: Path) -> None:
        super().prepare(archive, directory)
        compact(archive, level=3)


def _is_left(archive: Archive) -> bool:
    """Whether a pack has what was purged; `other` has an answer like it, which is not purged."""
    for info in archive.storage.list("packs/"):
        pack = archive.storage.get(info.key)
        for piece in frames_in(lambda start, size, pack=pack: pack[start : start + size], len(pack)):
            if b"answer 1 " in piece.raw and b"answer 3 " in piece.raw:
                return True
    return False


class Salvage(Scenario):
    """A damaged archive beside the one that is written; the store of both fails."""

    name = "salvage"
    heavy = True

    def prepare(self, archive: Archive, directory: Path) -> None:
        with Archive(directory / "damaged") as source:
            fill(source, "run", range(2), _nobody)
            fill(source, "run", range(2, 4), _nobody, if_exists="append")
        for name in ("00000003.json", "00000004.json", "latest.json"):
            (directory / "damaged/recordings/run" / name).unlink()

    def run(self, archive: Archive, ack: Ack, directory: Path) -> None:
        result = salvage(_beside(archive, directory / "damaged"), archive)
        assert all(fault.code.startswith("latest.") for fault in result.faults)

    def complete(self, archive: Archive) -> None:
        assert set(read(archive)) == {("run", number) for number in range(4)}


SCENARIOS: list[Scenario] = [
    Record(),
    Append(),
    Replace(),
    Based(),
    Recover(),
    Rekey(),
    Delete(),
    Catalog(),
    Collect(),
    Compact(),
    Copy(),
    Purge(),
    PurgeCompacted(),
    Salvage(),
]
