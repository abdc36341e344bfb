"""Keyed stores as JSON files, version 1: Karenina's format, byte for byte as it writes it."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from replaypack.errors import ReplayPersistenceError, ReplayValueError

from .entry import ReplayEntry
from .key import ReplayKey
from .store import MissPolicy, Pair, ReplayStore, check_policy

__all__ = ["VERSION", "Document", "dump", "load", "read", "write"]

logger = logging.getLogger("replaypack.replay")

VERSION = 1
_DEPTH_HINT = "its values are nested too deeply"


class Document(NamedTuple):
    """What a file holds. ``ignored`` names the members that no store has a place for."""

    miss_policy: MissPolicy
    entries: list[Pair]
    ignored: tuple[str, ...]


def dump(store: ReplayStore, path: str | os.PathLike[str]) -> None:
    """Write a store as JSON: sorted members, entries in their order; whole or not at all.

    Raises `ReplayPersistenceError` for values that JSON has not, ``OSError`` where the disk fails.
    """
    write(store.entries, store.miss_policy, path)


def load(path: str | os.PathLike[str], *, miss_policy: MissPolicy | None = None) -> ReplayStore:
    """Read a store; ``miss_policy`` instead of the one in the file.

    Raises `ReplayPersistenceError` where the file cannot be read, or is no store of version 1.
    """
    document = read(path, miss_policy=miss_policy)
    if document.ignored:
        logger.warning("%s: left out, as no replay store has a place for it: %s", path, ", ".join(document.ignored))
    return ReplayStore(miss_policy=document.miss_policy, entries=document.entries)


def read(path: str | os.PathLike[str], *, miss_policy: MissPolicy | None = None) -> Document:
    """Read and check a file. Raises `ReplayPersistenceError`, which says where the fault is."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReplayPersistenceError(f"{path} cannot be read: {error.strerror or error}") from error
    except RecursionError:
        raise ReplayPersistenceError(f"{path}: {_DEPTH_HINT}") from None
    except ValueError as error:
        raise ReplayPersistenceError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ReplayPersistenceError(f"{path} is no replay store: its JSON is no object")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        said = f"version {version!r}" if "version" in document else "no version"
        raise ReplayPersistenceError(f"{path} has {said}: replay stores of version {VERSION} are known")
    items = document.get("entries", [])
    if not isinstance(items, list):
        raise ReplayPersistenceError(f"{path}: entries is no array")
    ignored = [f"/{name}" for name in document if name not in ("version", "miss_policy", "entries")]
    try:
        policy = check_policy(document.get("miss_policy", "fall_through"))
        policy = policy if miss_policy is None else check_policy(miss_policy)
    except ReplayValueError as error:
        raise ReplayPersistenceError(f"{path}: {error.message}") from None
    return Document(policy, list(_pairs(items, path, ignored)), tuple(ignored))


def _pairs(items: list[Any], path: Path, ignored: list[str]) -> Iterator[Pair]:
    for number, item in enumerate(items):
        where = f"{path}: /entries/{number}"
        if not isinstance(item, dict):
            raise ReplayPersistenceError(f"{where} is no object")
        if missing := [name for name in ("key", "entry") if name not in item]:
            raise ReplayPersistenceError(f"{where} has no {' and no '.join(missing)}")
        if more := item.keys() - {"key", "entry"}:
            ignored += (f"/entries/{number}/{name}" for name in sorted(more))
        try:
            yield ReplayKey.model_validate(item["key"]), ReplayEntry.model_validate(item["entry"])
        except ReplayValueError as error:
            raise ReplayPersistenceError(f"{where}: {error.message}") from None


def write(entries: Iterable[Pair], miss_policy: MissPolicy, path: str | os.PathLike[str]) -> int:
    """Write pairs as they come, whatever their number, and return it. What stood at the path stays until all is
    written. Raises as `dump` does."""
    # A link stays one: what it points to is replaced.
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise ReplayPersistenceError(f"{path} is not a file", hint="a directory, device or pipe is not replaced")
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    number = 0
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write('{\n  "entries": [')
            for number, (key, entry) in enumerate(entries, 1):
                text = _text(key, entry, f"entry {number - 1}, {key!r}")
                file.write(("\n    " if number == 1 else ",\n    ") + text.replace("\n", "\n    "))
            file.write("\n  ]" if number else "]")
            file.write(f',\n  "miss_policy": {json.dumps(miss_policy)},\n  "version": {VERSION}\n}}')
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return number


def _text(key: ReplayKey, entry: ReplayEntry, where: str) -> str:
    item: Mapping[str, Any] = {"key": key.__dict__, "entry": entry.__dict__}
    try:
        return json.dumps(item, indent=2, sort_keys=True)
    except RecursionError:
        raise ReplayPersistenceError(f"{where}: {_DEPTH_HINT}") from None
    except (TypeError, ValueError) as error:
        raise ReplayPersistenceError(f"{where}: JSON cannot say this: {error}") from None
