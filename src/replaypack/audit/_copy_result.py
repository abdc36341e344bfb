"""What a copy did."""

from __future__ import annotations

from typing import Literal, NamedTuple

from replaypack.errors import ReplaypackError

__all__ = ["Copied", "CopiedRecording"]


class CopiedRecording(NamedTuple):
    """What became of one recording.

    ``state``: ``copied``, ``there`` (nothing to do), ``left out`` (``note`` says why), or ``failed`` (it is damaged in
    the source, ``error`` says how; a recording that the destination has of that name is as it was). ``name`` and
    ``revision`` are those at the destination, ``from_name`` and ``from_revision`` those at the source, None where there
    is none, or it is not known; ``signatures`` counts those that were copied of a recording that is there now.
    """

    name: str
    from_name: str
    state: Literal["copied", "there", "left out", "failed"]
    revision: int | None
    from_revision: int | None
    content_digest: str | None
    records: int
    signatures: int = 0
    note: str | None = None
    error: ReplaypackError | None = None


class Copied(NamedTuple):
    """What `copy` did: ``packs`` and ``bytes`` were sent, ``repacked`` and ``repacked_bytes`` of them made anew;
    ``reused`` packs of ``reused_bytes`` were at the destination already; ``notes`` say what holds for all of it."""

    recordings: list[CopiedRecording]
    packs: int
    bytes: int
    repacked: int
    repacked_bytes: int
    reused: int
    reused_bytes: int
    notes: list[str]
