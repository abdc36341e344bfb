"""Paths and listings of fsspec filesystems."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from replaypack.storage._protocol import ObjectInfo, is_key

__all__ = ["found_objects", "join"]


def join(root: str, key: str) -> str:
    """The path of ``key`` below ``root``; the root itself for the empty key."""
    return f"{root.rstrip('/')}/{key}" if key else root.rstrip("/")


def found_objects(fs: Any, root: str, prefix: str, *, server_side: bool) -> list[ObjectInfo]:
    """The objects below ``root`` whose key begins with ``prefix``.

    ``server_side``: the filesystem's ``find`` takes a beginning of names, so that less has to be listed.
    """
    # Where the store itself filters, it gets the whole prefix: of an empty directory s3fs asks whether it is a file.
    top = root.rstrip("/") if server_side else join(root, prefix.rpartition("/")[0])
    arguments: dict[str, Any] = {"prefix": prefix} if server_side and prefix else {}
    try:
        found = fs.find(top, detail=True, **arguments)
    except FileNotFoundError:
        return []  # a directory that is not there has nothing in it
    base = root.strip("/") + "/"
    objects = []
    for path, info in found.items():
        key = path.strip("/").removeprefix(base)
        if is_key(key) and key != path.strip("/") and key.startswith(prefix) and info.get("type") == "file":
            objects.append(ObjectInfo(key, int(info.get("size") or 0), _modified(info)))
    return objects


def _modified(info: Any) -> float | None:
    for name in ("LastModified", "last_modified", "mtime", "updated", "modified", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            try:
                return datetime.fromisoformat(value).timestamp()
            except ValueError:
                continue
    return None
