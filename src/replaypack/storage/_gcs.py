"""Google Cloud Storage, through gcsfs."""

from __future__ import annotations

import functools
import os
from typing import Any, Final

from replaypack.storage._protocol import ObjectInfo
from replaypack.storage._remote import Body, RemoteStorage, content_range
from replaypack.storage._s3 import range_header
from replaypack.storage._tree import found_objects, join

__all__ = ["GCSStorage"]

LARGEST_NEW: Final = 512 << 20
"""Bytes of the largest object created. It has to travel in one request: gcsfs's resumable uploads, its choice from
50 MiB on, carried no precondition in many of its releases."""

PART: Final = 50 << 20
"""Bytes from which on an object is replaced by a resumable upload."""


class GCSStorage(RemoteStorage):
    """``gs://bucket/prefix``. Objects are created with ``ifGenerationMatch=0``, in one request, up to 512 MiB.

    The plain filesystem of gcsfs is used, not the one that asks for each bucket's type first: over plain http
    that question blocks for a minute, and elsewhere it costs a round trip. Zonal buckets are not supported.
    """

    extra = "gcs"

    def _connect(self) -> Any:
        endpoint = str(self._foreign.get("endpoint_url") or os.environ.get("STORAGE_EMULATOR_HOST") or "")
        if endpoint and not endpoint.startswith("https://"):
            # Read when gcsfs is imported; without it other code in this process would block for a minute.
            os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        from gcsfs.core import GCSFileSystem

        options = {**self._foreign, "use_listings_cache": False, "skip_instance_cache": True}
        filesystem = GCSFileSystem(**options)
        once = getattr(GCSFileSystem._request, "__wrapped__", None)
        if once is not None:
            # One attempt of ours is one request; gcsfs would make six of it, and log each failure with its text.
            filesystem._request = functools.partial(once, filesystem)
        return filesystem

    def _path(self, key: str) -> str:
        return join(self._address.partition("://")[2], key)

    def _read(self, key: str, start: int | None, stop: int | None) -> Body:
        size = {} if stop is None or start is None else {"size": stop - start}
        return self._await(self._get_media, self._fs(), self._path(key), start, stop, **size)

    async def _get_media(self, fs: Any, path: str, start: int | None, stop: int | None) -> Body:
        asked = {} if start is None else {"Range": range_header(start, stop)}
        status, headers, _, data = await fs._request("GET", fs.url(path), headers=asked)
        announced = headers.get("Content-Length")
        encoded = headers.get("Content-Encoding", "identity") != "identity"
        first, total = content_range(
            headers.get("Content-Range"),
            status=status,
            announced=int(announced) if announced and announced.isdigit() and not encoded else None,
        )
        return Body(data, first, total)

    def _write(self, key: str, data: bytes, *, create: bool, cache_control: str | None) -> None:
        if create and len(data) > LARGEST_NEW:
            raise self._unsupported(
                "put_new", key, f"gcsfs cannot create an object of {len(data)} bytes without the risk of replacing one"
            )
        fs = self._fs()
        # What is smaller than a chunk goes in one request, so a create names a chunk that is larger than its object.
        extra: dict[str, Any] = {"mode": "create", "chunksize": len(data) + 1} if create else {"chunksize": PART}
        if cache_control:
            extra["fixed_key_metadata"] = {"cache_control": cache_control}
        self._await(fs._pipe_file, self._path(key), data, size=len(data), **extra)

    def _remove(self, key: str) -> None:
        fs = self._fs()
        self._await(fs._rm_file, self._path(key))

    def _find(self, prefix: str) -> list[ObjectInfo]:
        return found_objects(self._fs(), self._path(""), prefix, server_side=True)

    def keeps_deleted(self) -> str | None:
        bucket = self._path("").strip("/").partition("/")[0]
        info = self._run("keeps_deleted", "", lambda: self._await(self._bucket, self._fs(), bucket, size=0))
        if (info.get("versioning") or {}).get("enabled"):
            return f"bucket {bucket} keeps versions of deleted objects"
        if info.get("retentionPolicy"):
            return f"bucket {bucket} has a retention policy: its objects cannot be deleted"
        seconds = str((info.get("softDeletePolicy") or {}).get("retentionDurationSeconds", "0"))
        if seconds != "0":
            return f"bucket {bucket} keeps deleted objects for {seconds} seconds (soft delete)"
        return None

    async def _bucket(self, fs: Any, bucket: str) -> dict[str, Any]:
        info: dict[str, Any] = await fs._call("GET", "b/{}", bucket, json_out=True)
        return info
