"""One process of the soak: ``python -m tests.faults.soak ROLE URL NUMBER ROUNDS DIRECTORY``.

Writers record, append, replace, and delete some of what they made; what stays they note in a file. Readers read what
there is until the writers are done. Keepers collect and compact meanwhile. Each ends with an error where anything is
not as it must be.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

from replaypack import Archive
from replaypack.audit import compact, gc
from replaypack.errors import ConflictError, RecordingNotFoundError

from .scenarios import call


def write(archive: Archive, number: int, rounds: int, directory: Path) -> None:
    """Make recordings of this writer's own names; one in four is deleted again."""
    rng = random.Random(number)
    made: dict[str, list[int]] = {}
    for turn in range(rounds):
        name = f"w{number}/r{turn}"
        kept = [rng.randrange(1000) for _ in range(rng.randrange(3, 12))]
        base = rng.choice(sorted(made)) if made and rng.random() < 0.5 else None
        _record(archive, name, kept, rng, base=base)
        if rng.random() < 0.4:
            more = [rng.randrange(1000) for _ in range(4)]
            if rng.random() < 0.5:
                _record(archive, name, more, rng, if_exists="append")
                kept = kept + more
            else:
                _record(archive, name, more, rng, if_exists="replace")
                kept = more
        made[name] = kept
        if turn % 4 == 3:
            gone = rng.choice(sorted(made))
            archive.delete(gone)
            del made[gone]
    (directory / f"writer-{number}.json").write_text(json.dumps(made))


def _record(archive: Archive, name: str, numbers: list[int], rng: random.Random, **options: object) -> None:
    while True:
        try:
            recorder = archive.recorder(name, flush_interval=None, **options)  # type: ignore[arg-type]
            break
        except ConflictError:
            continue  # a compaction was faster: the recording is the same
    with recorder:
        for number in numbers:
            recorder.append(**call(number))
            if rng.random() < 0.2:
                recorder.flush()


def read(archive: Archive, number: int, directory: Path) -> None:
    """Read recordings at random until the writers are done: every answer is right."""
    rng = random.Random(1000 + number)
    seen = 0
    while not (directory / "done").exists() or not seen:
        names = list(archive.recordings())
        if not names:
            time.sleep(0.01)
            continue
        name = rng.choice(names)
        try:
            recording = archive.open(name, fresh=True)
        except RecordingNotFoundError:
            continue  # it was deleted in between
        with recording:
            for record in recording.records():
                asked = record.identity["n"]
                assert record.identity == call(asked)["identity"], (name, record.seq)
                assert record.response == call(asked)["response"], (name, record.seq)
                seen += 1
            if len(recording):
                found = recording.lookup("tool", recording.record(0).identity)
                assert found is not None, name
                assert found.response == recording.record(0).response, name


def keep(archive: Archive, number: int, directory: Path) -> None:
    """Collect, or compact, over and over."""
    runs = 0
    while not (directory / "done").exists() or runs < 2:
        try:
            if number == 0:
                gc(archive, grace=timedelta(days=1), apply=True)
            else:
                done = compact(archive, level=3)
                bad = [item for item in done.recordings if item.outcome == "failed" and not _expected(item.error)]
                assert not bad, bad
        except (ConflictError, RecordingNotFoundError):
            continue  # another was faster, or deleted it
        runs += 1


def _expected(error: Exception | None) -> bool:
    return isinstance(error, ConflictError | RecordingNotFoundError | FileNotFoundError)


def main() -> None:
    """Take one role."""
    role, url, number, rounds, directory = sys.argv[1:]
    warnings.simplefilter("ignore")
    with Archive(url, {"replaypack": {"fsync": False}}) as archive:
        if role == "write":
            write(archive, int(number), int(rounds), Path(directory))
        elif role == "read":
            read(archive, int(number), Path(directory))
        else:
            keep(archive, int(number), Path(directory))


if __name__ == "__main__":
    main()
