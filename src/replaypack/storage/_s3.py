"""Amazon S3 and what speaks its protocol, through s3fs."""

from __future__ import annotations

import inspect
from typing import Any, Final

from replaypack.storage._protocol import ObjectInfo
from replaypack.storage._remote import Body, RemoteStorage, content_range
from replaypack.storage._tree import found_objects, join

__all__ = ["S3Storage"]

PART: Final = 64 << 20
"""Bytes of one part of a large upload. s3fs sends what is smaller than two parts as one request."""


class S3Storage(RemoteStorage):
    """``s3://bucket/prefix``. Objects are created with ``If-None-Match: *``.

    Requests are sent through s3fs's client one by one: its ``cat_file`` sends a HEAD first unless a range is
    given, its ``open`` always does and reads ahead 50 MiB, and its listing cache never sees another writer.
    """

    extra = "s3"

    def _connect(self) -> Any:
        from s3fs import S3FileSystem

        options = dict(self._foreign)
        # One attempt of ours is one request: retries that multiply would outlast any limit in time.
        config = {"retries": {"max_attempts": 0}, "max_pool_connections": self._options.max_concurrency}
        options["config_kwargs"] = {**config, **(options.get("config_kwargs") or {})}
        options.update(use_listings_cache=False, skip_instance_cache=True)
        filesystem = S3FileSystem(**options)
        filesystem.retries = 1
        return filesystem

    def _path(self, key: str) -> str:
        return join(self._address.partition("://")[2], key)

    def _read(self, key: str, start: int | None, stop: int | None) -> Body:
        size = {} if stop is None or start is None else {"size": stop - start}
        return self._await(self._get_object, self._fs(), self._path(key), start, stop, **size)

    async def _get_object(self, fs: Any, path: str, start: int | None, stop: int | None) -> Body:
        bucket, key, _ = fs.split_path(path)
        asked = {} if start is None else {"Range": range_header(start, stop)}
        answer = await fs._call_s3("get_object", Bucket=bucket, Key=key, **asked, **fs.req_kw)
        stream = answer["Body"]
        try:
            status = answer["ResponseMetadata"]["HTTPStatusCode"]
            first, total = content_range(answer.get("ContentRange"), status=status, announced=answer["ContentLength"])
            if status != 200 or start is None or stop is None:
                data = await stream.read()
            else:
                data = await read_up_to(stream.read, stop)  # ranges are ignored: no more of the object than needed
        finally:
            stream.close()
        return Body(data, first, total)

    def _write(self, key: str, data: bytes, *, create: bool, cache_control: str | None) -> None:
        fs = self._fs()
        if create and not _creates(fs):
            raise self._unsupported("put_new", key, "this s3fs or botocore is too old to create", "update s3fs")
        extra = {"CacheControl": cache_control} if cache_control else {}
        mode = {"mode": "create"} if create else {}
        self._await(fs._pipe_file, self._path(key), data, chunksize=PART, size=len(data), **mode, **extra)

    def _remove(self, key: str) -> None:
        fs = self._fs()
        self._await(fs._rm_file, self._path(key))

    def _find(self, prefix: str) -> list[ObjectInfo]:
        return found_objects(self._fs(), self._path(""), prefix, server_side=True)

    def keeps_deleted(self) -> str | None:
        bucket = self._path("").strip("/").partition("/")[0]
        status = self._run("keeps_deleted", "", lambda: self._await(self._versioning, self._fs(), bucket, size=0))
        if status is None:
            return None
        return (
            f"bucket {bucket} keeps versions of deleted objects"
            if status == "Enabled"
            else f"bucket {bucket} kept versions of deleted objects once, and may have them still"
        )

    async def _versioning(self, fs: Any, bucket: str) -> str | None:
        # Locked objects and retention need versions: where there are none, there is no lock either.
        answer = await fs._call_s3("get_bucket_versioning", Bucket=bucket, **fs.req_kw)
        status: str | None = answer.get("Status")
        return status


def _creates(fs: Any) -> bool:
    """Old versions take ``mode`` for one more header, and silently overwrite."""
    import botocore

    version = tuple(int(part) for part in botocore.__version__.split(".")[:3])
    return "mode" in inspect.signature(fs._pipe_file).parameters and version >= (1, 35, 20)


def range_header(start: int, stop: int | None) -> str:
    """The ``Range`` for bytes from ``start`` up to, not including, ``stop``; the last ones for a negative start."""
    if start < 0:
        return f"bytes={start}"
    return f"bytes={start}-{'' if stop is None else stop - 1}"


async def read_up_to(read: Any, limit: int) -> bytes:
    """The first ``limit`` bytes of a stream, or all of a shorter one."""
    pieces = []
    while limit > 0:
        piece = await read(limit)
        if not piece:
            break
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)
