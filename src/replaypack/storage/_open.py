"""From a URL to the backend that serves it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from replaypack.errors import StorageUnsupportedError
from replaypack.storage._local import LocalStorage
from replaypack.storage._memory import MemoryStorage
from replaypack.storage._options import split_options
from replaypack.storage._protocol import Storage

__all__ = ["open_storage"]

_PROTOCOL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?:://|::)")  # two letters at least: "C:" is a drive


def open_storage(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """The storage behind ``url``; nothing is asked of it yet.

    A path or ``file://`` URL is a directory on this machine, ``memory://name`` objects in this process.

    ``storage_options`` go to the fsspec filesystem as they are, apart from the entry ``"replaypack"``, a mapping
    of this library's own (see `StorageOptions`).

    Raises `StorageUnsupportedError` for an unknown protocol, a missing package or an option that does not exist.
    """
    address = os.fspath(url)
    options, _foreign = split_options(storage_options)
    found = _PROTOCOL.match(address)
    protocol = found[1].lower() if found else "file"
    if protocol in ("file", "local"):
        path = re.sub(r"^(?:file|local)://", "", address)
        return LocalStorage(path, fsync=options.fsync, read_only=options.read_only)
    if protocol == "memory":
        memory = MemoryStorage(address)
        memory.read_only = options.read_only
        return memory
    raise StorageUnsupportedError(f"no storage for {protocol}://", operation="open")
