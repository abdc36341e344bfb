"""Everything that is done with an archive of somebody else's, one operation after another, each on a copy of it."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from replaypack import Archive
from replaypack.audit import (
    Wanted,
    compact,
    copy,
    diff,
    gc,
    migrate,
    prove,
    purge,
    rekey,
    salvage,
    sanitise,
    scan,
    signatures,
    stats,
    stats_archive,
    verify_archive,
    write_catalog,
    zip_recordings,
)
from replaypack.errors import ReplaypackError
from replaypack.storage import MemoryStorage

#: A recording that lies beside the hostile one, and whose every byte must outlive whatever is done to that.
BYSTANDER = "bystander"


def clone(store: MemoryStorage) -> MemoryStorage:
    """The same objects, of the same times."""
    twin = MemoryStorage()
    twin._space.objects.update(store._space.objects)
    return twin


@functools.cache
def bystander() -> MemoryStorage:
    """An archive of one sound recording."""
    store = MemoryStorage()
    with Archive("", storage=store).recorder(BYSTANDER, flush_interval=None) as recorder:
        for number in range(5):
            recorder.append(
                kind="k", identity={"n": number}, request=bytes(5000), response={"n": number, "t": "r" * 5000}
            )
    return store


def is_whole(store: MemoryStorage) -> bool:
    """Whether the bystander is there, answers, and is sound."""
    with Archive("", storage=store).open(BYSTANDER) as recording:
        answers = [record.response["n"] for record in recording.records()]
        found = recording.lookup(kind="k", identity={"n": 3})
    return (
        answers == [*range(5)]
        and found is not None
        and not list(verify_archive(Archive("", storage=store), [BYSTANDER]))
    )


def _to_zip(archive: Archive) -> object:
    with tempfile.TemporaryDirectory() as directory:
        return zip_recordings([Wanted(archive, ["x"])], Path(directory) / "x.zip")


def _sanitise(archive: Archive, target: Archive) -> object:
    with archive.open("x") as recording:
        return sanitise(recording, target, "y")


def _last(archive: Archive) -> int:
    with archive.open("x") as recording:
        return max(0, len(recording) - 1)


#: Each gets the archive and another one, which has the bystander.
OPERATIONS: dict[str, Callable[[Archive, Archive], Any]] = {
    "verify": lambda a, _: list(a.verify()),
    "copy": lambda a, b: copy(a, b, ["x"], jobs=2),
    "copy over": lambda a, b: copy(a, b, ["x"], to=BYSTANDER, jobs=2),
    "copy responses": lambda a, b: copy(a, b, ["x"], responses_only=True, jobs=2),
    "copy beside": lambda a, _: copy(a, a, ["x"], to="y", jobs=2),
    "zip": lambda a, _: _to_zip(a),
    "gc": lambda a, _: gc(a),
    "gc apply": lambda a, _: gc(a, keep_last=1, grace=timedelta(), apply=True),
    "purge": lambda a, _: purge(a, "x", [0], "r", dry_run=True),
    "purge first": lambda a, _: purge(a, "x", [0], "r", keep_shared=True),
    "purge last": lambda a, _: purge(a, "x", [_last(a)], "r"),
    "compact": lambda a, _: compact(a, level=3),
    "salvage": lambda a, _: salvage(a.storage, Archive("", storage=MemoryStorage())),
    "diff": lambda a, _: diff(a.open("x"), a.open("x")),
    "diff other": lambda a, b: str(diff(a.open("x"), b.open(BYSTANDER))),
    "other diff": lambda a, b: str(diff(b.open(BYSTANDER), a.open("x"))),
    "stats": lambda a, _: stats(a.open("x")),
    "stats archive": lambda a, _: stats_archive(a),
    "prove": lambda a, _: prove(a.open("x"), 0, payloads=True),
    "prove last": lambda a, _: prove(a.open("x"), _last(a)),
    "signatures": lambda a, _: list(signatures(a.open("x"))),
    "catalog": lambda a, _: write_catalog(a),
    "sanitise": _sanitise,
    "scan": lambda a, _: list(scan(a.open("x"))),
    "rekey": lambda a, _: rekey(a, "x", match="message-ids"),
    "migrate": lambda a, _: migrate(a),
}


def operate(
    store: MemoryStorage, *names: str, timed: Callable[[str, float], object] | None = None
) -> dict[str, str | None]:
    """Do everything, or what is named; return what each said: an error of ours, or None.

    What is at a destination, and what lies beside, is whole afterwards.
    """
    said: dict[str, str | None] = {}
    beside = bystander()._space.objects
    for name in names or OPERATIONS:
        source, target = clone(store), clone(bystander())
        source._space.objects.update(beside)
        said[name] = None
        began = time.process_time()
        try:
            OPERATIONS[name](Archive("", storage=source), Archive("", storage=target))
        except ReplaypackError as error:
            said[name] = f"{error.code}: {error}"
        if timed is not None:
            timed(name, time.process_time() - began)
        for after in (source, target):
            if any(after._space.objects.get(key) != value for key, value in beside.items()):
                assert after is source or said[name] is None, name
                assert is_whole(after), name
    return said
