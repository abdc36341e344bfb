"""Reading the summary of a recording."""

from __future__ import annotations

from replaypack.format.summary import Run

from .index import Index

__all__ = ["read_summary"]


def read_summary(index: Index) -> list[Run] | None:
    """The runs of a recording's records; None where it has no summary."""
    return None
