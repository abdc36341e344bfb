"""Any other fsspec filesystem: what it guarantees is not known, so that is said once, and checked where it can be."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Mapping
from typing import Any, Final

from replaypack.errors import WeakGuaranteeWarning
from replaypack.storage._options import StorageOptions
from replaypack.storage._protocol import ObjectInfo
from replaypack.storage._remote import Body, RemoteStorage
from replaypack.storage._tree import found_objects, join

__all__ = ["FsspecStorage"]

# Protocols whose writes with mode="create" are decided by the server.
_REAL_CREATE: Final = frozenset({"abfs", "adl", "az", "s3", "s3a", "gs", "gcs"})


class FsspecStorage(RemoteStorage):
    """Whatever ``url`` means to fsspec: ``sftp://``, ``ftp://``, ``hf://``, a protocol of one's own.

    `put_new` looks first and writes then, so two writers at the same moment may both succeed; `put` is as atomic
    as the filesystem makes it; that a write is durable on return is its word. A `WeakGuaranteeWarning` says so
    when the first object is written. Reading is as checked as elsewhere.
    """

    def __init__(self, address: str, options: StorageOptions, foreign: Mapping[str, Any]) -> None:
        super().__init__(address, options, foreign)
        self._root = ""
        self._warned = False
        self._turn = threading.RLock()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._turn = threading.RLock()

    def _connect(self) -> Any:
        from fsspec.core import url_to_fs

        private = {} if "::" in self._address else {"use_listings_cache": False, "skip_instance_cache": True}
        filesystem, self._root = url_to_fs(self._address, **{**self._foreign, **private})
        if type(filesystem).__module__.startswith("obstore"):
            raise self._unsupported(
                "open", "", "obstore's fsspec filesystem overwrites where it is asked to create", "use s3fs or gcsfs"
            )
        return filesystem

    def _path(self, key: str) -> str:
        return join(self._root, key)

    def _call(self, name: str, *args: Any, size: int | None = None, **kwargs: Any) -> Any:
        fs = self._fs()
        if getattr(fs, "async_impl", False):
            moved = {} if size is None else {"size": size}
            return self._await(getattr(fs, f"_{name}"), *args, **moved, **kwargs)
        with self._turn:  # one connection, which two threads must not use at once
            return getattr(fs, name)(*args, **kwargs)

    def _read(self, key: str, start: int | None, stop: int | None) -> Body:
        self._fs()
        size = None if start is None or stop is None else stop - start
        return Body(self._call("cat_file", self._path(key), size=size, start=start, end=stop))

    def _size(self, key: str) -> int | None:
        size = self._call("info", self._path(key)).get("size")
        return None if size is None else int(size)

    def _write(self, key: str, data: bytes, *, create: bool, cache_control: str | None) -> None:
        fs = self._fs()
        self._warn()
        path = self._path(key)
        if create and not self._creates(fs):
            if self._call("exists", path):
                raise FileExistsError(path)
            create = False
        self._call("makedirs", path.rpartition("/")[0], exist_ok=True)
        mode = {"mode": "create"} if create else {}
        self._call("pipe_file", path, data, size=len(data), **mode)

    def _creates(self, fs: Any) -> bool:
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        known = bool(protocols & _REAL_CREATE)
        return known and "mode" in inspect.signature(fs.pipe_file).parameters

    def _warn(self) -> None:
        with self._lock:
            if self._warned:
                return
            self._warned = True
        warnings.warn(
            f"{self.url}: on this filesystem two writers that create the same object at the same moment may both "
            "succeed, an interrupted write may leave part of an object, and a finished one may not be durable",
            WeakGuaranteeWarning,
            stacklevel=2,
        )

    def _remove(self, key: str) -> None:
        self._fs()
        self._call("rm_file", self._path(key))

    def _find(self, prefix: str) -> list[ObjectInfo]:
        fs = self._fs()
        with self._turn:
            return found_objects(fs, self._root, prefix, server_side=False)
