"""What a purge that was interrupted left in older manifests of its recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replaypack._escape import counted, ranges
from replaypack.format.manifest import Manifest

from ._faults import Fault, fault

__all__ = ["UNFINISHED", "left_behind", "unfinished"]

UNFINISHED = "purge.unfinished"
#: Ranges of records that a message names.
_SHOWN = 12


def left_behind(manifests: Sequence[tuple[str, Manifest]]) -> Iterator[Fault]:
    """Yield a fault for each manifest of a recording (key, manifest; oldest first) that has records purged since.

    Purged since are those that have a tombstone in a newer manifest of the same recording id.
    """
    since: dict[str, set[int]] = {}
    for key, manifest in reversed(manifests):
        purged = manifest.purged_records
        gone = since.setdefault(manifest.content.id, set())
        there = sorted(seq for seq in gone - purged if seq < manifest.records)
        if there:
            yield unfinished(key, there, "a newer revision has a tombstone of each, and this one still has them")
        gone |= purged


def unfinished(where: str, seqs: Sequence[int], how: str) -> Fault:
    """The fault of an object that has records (ascending) which were purged."""
    parts = ranges(seqs)
    shown = ", ".join(parts[:_SHOWN]) + (f" and {len(parts) - _SHOWN} more ranges" if len(parts) > _SHOWN else "")
    return fault(UNFINISHED, where, f"{counted(len(seqs), 'purged record')} ({shown}): {how}")
