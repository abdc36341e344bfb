"""What of one salvaged recording is lost, and how its manifest says so."""

from __future__ import annotations

from typing import Any

import msgspec

from replaypack.format.manifest_members import Content

__all__ = ["Losses", "damaged"]

#: Ranges of losses that are listed of one recording and kind.
_MOST_RANGES = 1000
_NOTED_RANGES = 64


class Losses:
    """What of one recording is lost, as ranges of sequence numbers."""

    def __init__(self) -> None:
        self.ranges: dict[str, list[tuple[int, int, str]]] = {}
        self.counts: dict[str, int] = {}
        #: Records that were purged, and those of them without a tombstone, which cannot have a place.
        self.purged = self.dropped = 0

    def add(self, what: str, first: int, last: int, reason: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + last - first + 1
        ranges = self.ranges.setdefault(what, [])
        if ranges and ranges[-1][1] + 1 >= first:
            ranges[-1] = (ranges[-1][0], last, ranges[-1][2])
        elif len(ranges) < _MOST_RANGES:
            ranges.append((first, last, reason))

    def note(self, before: dict[str, Any] | None) -> dict[str, Any]:
        """The ``error`` of a manifest that says so."""
        text = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items())) or "no record"
        note: dict[str, Any] = {"type": "Damaged", "message": f"recovered from a damaged archive: lost {text}"}
        note["lost"] = {what: [[a, b] for a, b, _ in ranges[:_NOTED_RANGES]] for what, ranges in self.ranges.items()}
        if before is not None:
            note["cause"] = before
        return note


def damaged(content: Content, source: str | None, losses: Losses) -> Content:
    """The content of what is not as it was in ``source`` (a content digest)."""
    return msgspec.structs.replace(
        content, state="incomplete", extends=None, derived_from=source, error=losses.note(content.error)
    )
