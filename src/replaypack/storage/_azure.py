"""Azure Blob Storage, through adlfs."""

from __future__ import annotations

from typing import Any

from replaypack.storage._fsspec import FsspecStorage
from replaypack.storage._remote import Body

__all__ = ["AzureStorage"]


class AzureStorage(FsspecStorage):
    """``az://container/prefix`` (also ``abfs://``). Objects are created with ``If-None-Match: *``.

    Azure has no suffix ranges, so `get_suffix` asks for the size first. The Azure SDK's own three retries remain
    inside each attempt: adlfs passes no way to switch them off.
    """

    extra = "azure"

    def _read(self, key: str, start: int | None, stop: int | None) -> Body:
        if start is not None and start < 0:
            size = self._size(key) or 0
            if not size:
                return Body(b"", 0, 0)
            first = max(0, size + start)
            return Body(super()._read(key, first, size).data, first, size)
        return super()._read(key, start, stop)

    def _write(self, key: str, data: bytes, *, create: bool, cache_control: str | None) -> None:
        extra: dict[str, Any] = {"mode": "create"} if create else {}
        if cache_control:
            from azure.storage.blob import ContentSettings  # type: ignore[import-not-found,unused-ignore]

            extra["content_settings"] = ContentSettings(cache_control=cache_control)
        self._fs()
        self._call("pipe_file", self._path(key), data, size=len(data), **extra)
