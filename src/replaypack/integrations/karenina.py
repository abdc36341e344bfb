"""Karenina: a replay store in an archive for ``VerificationConfig(replay_store=…)``, and ``captures/run.json`` files.

    from replaypack.integrations.karenina import ArchiveReplayStore

    store = ArchiveReplayStore("s3://evals/replay#runs/42", miss_policy="strict")
    benchmark.run_verification(VerificationConfig(..., replay_store=store))

Where Karenina is installed, a strict miss is a ``karenina.replay.ReplayMissError`` as well, which its pipeline catches.
It works without Karenina too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from replaypack.archive import Archive
from replaypack.errors import ReplayMissError
from replaypack.recording import Recording
from replaypack.replay.keyed import ArchivedReplayStore, MissPolicy

from . import karenina_json
from .interchange import Summary

__all__ = ["ArchiveReplayStore", "export_captures", "import_captures"]


def _miss_error() -> type[ReplayMissError]:
    try:
        from karenina.replay import ReplayMissError as HostMissError
    except ImportError:
        return ReplayMissError
    # The same name: logs and tests that go by it find it.
    return type("ReplayMissError", (ReplayMissError, HostMissError), {"__module__": __name__})


class ArchiveReplayStore(ArchivedReplayStore):
    """An `ArchivedReplayStore` whose misses Karenina's pipeline knows; the arguments are the same."""

    miss_error = _miss_error()


def import_captures(
    path: str | os.PathLike[str],
    archive: Archive,
    name: str,
    *,
    miss_policy: MissPolicy | None = None,
    **options: Any,
) -> Summary:
    """Record a file that Karenina saved (``captures/run.json``) as a recording.

    ``miss_policy`` instead of the one in the file; ``options`` go to `Archive.recorder`. Raises
    `ReplayPersistenceError`.
    """
    return karenina_json.load(Path(path), archive, name, miss_policy=miss_policy, **options)


def export_captures(
    recording: Recording, path: str | os.PathLike[str], *, miss_policy: MissPolicy | None = None
) -> Summary:
    """Write a recording as a file for ``karenina verify --replay``. Raises `ExportError`."""
    return karenina_json.dump(recording, Path(path), miss_policy=miss_policy)
