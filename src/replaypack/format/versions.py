"""Version dispatch of JSON documents: manifest and marker (spec chapter 12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from replaypack.errors import FormatError

__all__ = ["CURRENT_VERSION", "FORMAT", "KNOWN_FEATURES", "check_features", "parse_document"]

FORMAT = "replaypack"
CURRENT_VERSION = 1
#: Required features that this reader understands. None are defined by version 1.
KNOWN_FEATURES: frozenset[str] = frozenset()
#: How to bring a document of an older version up by one. Version 1 is the first.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def parse_document(data: bytes, *, where: str) -> dict[str, Any]:
    """Parse a JSON document of the format and look only at its format and version.

    Raises `FormatError` with reason ``future_version``, ``malformed_version``, ``unmigratable`` or ``corrupted``.
    """
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FormatError(f"not a JSON document: {error}", where=where) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError(f'not a document of this format ("format" is not "{FORMAT}")', where=where)
    version = document.get("version")
    if type(version) is not int:
        raise FormatError(f"the version is {version!r}, not an integer", reason="malformed_version", where=where)
    if version > CURRENT_VERSION:
        raise FormatError(
            f"version {version} is newer than {CURRENT_VERSION}, the newest this replaypack reads",
            reason="future_version",
            where=where,
            hint="upgrade replaypack",
        )
    while version < CURRENT_VERSION:
        migrate = MIGRATIONS.get(version)
        if migrate is None:
            raise FormatError(f"nothing can bring version {version} up to date", reason="unmigratable", where=where)
        document = migrate(document)
        version += 1
    result: dict[str, Any] = document
    return result


def check_features(document: dict[str, Any], *, where: str) -> None:
    """Refuse required features that this reader does not know, as ``future_version``."""
    features = document.get("features")
    if not isinstance(features, list) or not all(isinstance(item, str) for item in features):
        raise FormatError('"features" is not a list of names', where=where)
    unknown = sorted(set(features) - KNOWN_FEATURES)
    if unknown:
        raise FormatError(
            f"needs features that this replaypack does not know: {', '.join(unknown)}",
            reason="future_version",
            where=where,
            hint="upgrade replaypack",
        )
