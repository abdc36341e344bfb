"""Storage: one small protocol and its backends (spec chapter 07)."""

from __future__ import annotations

from replaypack.storage._local import LocalStorage
from replaypack.storage._memory import MemoryStorage
from replaypack.storage._open import open_storage
from replaypack.storage._options import StorageOptions
from replaypack.storage._plan import Fetch, Part, assemble, plan_ranges
from replaypack.storage._protocol import KeyRange, ObjectInfo, Storage
from replaypack.storage._zip_writer import ZipWriter

__all__ = [
    "Fetch",
    "KeyRange",
    "LocalStorage",
    "MemoryStorage",
    "ObjectInfo",
    "Part",
    "Storage",
    "StorageOptions",
    "ZipWriter",
    "assemble",
    "open_storage",
    "plan_ranges",
]
