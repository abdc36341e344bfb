"""The options that are this library's own, apart from those that a filesystem gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from replaypack.errors import StorageUnsupportedError

__all__ = ["StorageOptions", "split_options"]

NAMESPACE: Final = "replaypack"
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Entries of ``storage_options["replaypack"]``.

    ``retry_seconds``: how long after the first attempt of an operation another one may still begin.
    ``request_seconds``: how long one request may take, and a second more for each 64 KiB it moves.
    ``max_concurrency``: requests at a time. ``max_gap``: bytes fetched for nothing, at most, to save a request
    between two ranges. ``max_fetch``: bytes of one merged request. ``read_only``: refuse every write.
    ``fsync``: make local writes durable.
    """

    retry_seconds: float = 60.0
    request_seconds: float = 60.0
    max_concurrency: int = 32
    max_gap: int = 256 * 1024
    max_fetch: int = 8 * MIB
    read_only: bool = False
    fsync: bool = True


def split_options(storage_options: Mapping[str, Any] | None) -> tuple[StorageOptions, dict[str, Any]]:
    """This library's options, and those for the filesystem. Raises `StorageUnsupportedError` for unknown ones."""
    foreign = dict(storage_options or {})
    own = foreign.pop(NAMESPACE, None) or {}
    known = {field.name for field in fields(StorageOptions)}
    for name in own:
        if name not in known:
            raise StorageUnsupportedError(
                f"there is no storage option {name!r}", operation="open", hint=f"known: {', '.join(sorted(known))}"
            )
    return StorageOptions(**own), foreign
