"""Karenina's replay stores as JSON files (version 1): imported and exported without loss."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from replaypack._escape import counted
from replaypack.archive import Archive
from replaypack.errors import ExportError, ReplayPersistenceError, UsageError
from replaypack.recording import Recording
from replaypack.replay.keyed import ArchivedReplayStore, MissPolicy
from replaypack.replay.keyed.archived import KIND, record_entries
from replaypack.replay.keyed.persistence import read, write

from .interchange import Summary, as_it_is, exporting, left_out

__all__ = ["detects", "dump", "load", "name"]

name = "karenina"

_ENTRY = re.compile(rb'"entries"\s*:\s*\[\s*\{\s*"(?:entry|key)"\s*:\s*\{')
_EMPTY = re.compile(rb'"entries"\s*:\s*\[\s*\]')


def detects(head: bytes, path: Path) -> bool:
    """Whether a file that begins with ``head`` is a replay store."""
    if not head.lstrip().startswith(b"{"):
        return False
    return _ENTRY.search(head) is not None or (_EMPTY.search(head) is not None and b'"miss_policy"' in head)


def load(
    path: Path, archive: Archive, recording: str, *, miss_policy: MissPolicy | None = None, **options: Any
) -> Summary:
    """Record the entries of a file, in their order. ``miss_policy`` instead of the one in the file; ``options`` go to
    `Archive.recorder`. Raises `ReplayPersistenceError`, an `ImportFormatError`, before anything is recorded."""
    document = read(path, miss_policy=miss_policy)
    record_entries(
        document.entries, archive, recording, miss_policy=document.miss_policy, **as_it_is(archive, recording, options)
    )
    notes = [f"left out, as a replay store has no place for it: {pointer}" for pointer in document.ignored]
    places = {(key.outer, key.rung) for key, _ in document.entries}
    if len(places) < len(document.entries):
        notes.append(f"{len(document.entries) - len(places)} entries stand at the place of a later one, which answers")
    return Summary(name, len(document.entries), tuple(notes))


def dump(recording: Recording, path: Path, *, miss_policy: MissPolicy | None = None, **options: Any) -> Summary:
    """Write the entries of a recording, atomically. ``miss_policy`` instead of the one the recording notes.

    Raises `ExportError` for records that are no entries and for values that JSON has not, `UsageError` for other
    options.
    """
    if options:
        raise UsageError(f"{', '.join(sorted(options))}: the format {name} has no such option")
    if len(recording) and not recording.count(KIND):
        raise ExportError(
            f"{recording.locator} has no entries of a replay store", hint="an export to jsonl holds every record"
        )
    try:
        store = ArchivedReplayStore.of(recording, miss_policy=miss_policy)
        with exporting(path):
            count = write(store.entries, store.miss_policy, path)
    except ReplayPersistenceError as error:
        raise ExportError(error.message, hint=error.hint) from error
    notes = list(left_out(recording))
    if others := len(recording) - recording.count(KIND):
        notes.append(f"{counted(others, 'record')} of other kinds left out: no entries of a replay store")
    # Of those that were purged nothing says whether they were entries.
    if not recording.manifest.purged and (overwritten := recording.count(KIND) - count):
        notes.append(f"{overwritten} entries were overwritten by later ones and were left out")
    return Summary(name, count, tuple(notes))
