"""Recordings of which something is missing, made as the vectors' are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from replaypack import Archive
from replaypack.format.manifest import Manifest

VECTORS = Path(__file__).parents[2] / "spec" / "vectors"


def without(
    archive: Archive, name: str, purged: Mapping[str, Sequence[int]] | None = None, withheld: Sequence[str] = ()
) -> Manifest:
    """Purge records (by reason) of a recording that has one segment, or withhold roles."""
    sys.path.insert(0, str(VECTORS))
    try:
        import build_partial
    finally:
        sys.path.remove(str(VECTORS))
    return build_partial.partial(archive, name, purged, withheld)  # type: ignore[no-any-return]
