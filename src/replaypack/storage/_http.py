"""Web servers: read-only, GET alone, no listing."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from replaypack.storage._errors import StatusError
from replaypack.storage._protocol import ObjectInfo
from replaypack.storage._remote import Body, RemoteStorage, content_range
from replaypack.storage._s3 import range_header, read_up_to
from replaypack.storage._tree import join

__all__ = ["HttpStorage"]

_LARGEST_COMPLAINT = 64 * 1024
"""Bytes read of the body of an error, to find the store's own code in it."""


class HttpStorage(RemoteStorage):
    """``https://host/prefix``. A query of the URL, such as an access signature, is sent with every request.

    A server that ignores ``Range`` and answers 200 is noticed by that status; of its answer no more is read than
    the range needs. ``storage_options`` are those of fsspec's http filesystem (``headers``, ``client_kwargs``).
    """

    extra = "http"

    def __init__(self, address: str, options: Any, foreign: Any) -> None:
        super().__init__(address, options, foreign)
        self.read_only = True

    def _connect(self) -> Any:
        from fsspec.implementations.http import HTTPFileSystem

        return HTTPFileSystem(**{**self._foreign, "use_listings_cache": False, "skip_instance_cache": True})

    def _object_url(self, key: str) -> str:
        parts = urlsplit(self._address)
        return urlunsplit(parts._replace(path=join(parts.path, key), fragment=""))

    def _read(self, key: str, start: int | None, stop: int | None) -> Body:
        size = {} if stop is None or start is None else {"size": stop - start}
        return self._await(self._get_url, self._fs(), self._object_url(key), start, stop, **size)

    async def _get_url(self, fs: Any, url: str, start: int | None, stop: int | None) -> Body:
        arguments = dict(fs.kwargs)
        # Compressed on the way, the bytes counted by a range would be others.
        headers = {**(arguments.pop("headers", None) or {}), "Accept-Encoding": "identity"}
        if start is not None:
            headers["Range"] = range_header(start, stop)
        session = await fs.set_session()
        async with session.get(fs.encode_url(url), headers=headers, **arguments) as answer:
            if answer.status not in (200, 206):
                raise _complaint(answer.status, await read_up_to(answer.content.read, _LARGEST_COMPLAINT))
            first, total = content_range(
                answer.headers.get("Content-Range"), status=answer.status, announced=answer.content_length
            )
            whole = answer.status == 200 and start is not None and stop is not None
            data = await read_up_to(answer.content.read, stop or 0) if whole else await answer.read()
            chunked = "chunked" in answer.headers.get("Transfer-Encoding", "").lower()
            if whole and chunked and len(data) < (stop or 0):
                total = len(data)  # the last chunk says that it is
        return Body(data, first, total)

    def _write(self, key: str, data: bytes, *, create: bool, cache_control: str | None) -> None:
        raise NotImplementedError

    def _remove(self, key: str) -> None:
        raise NotImplementedError

    def _find(self, prefix: str) -> list[ObjectInfo]:
        raise self._unsupported("list", prefix, "a web server has no listing", "use the archive's catalog")


def _complaint(status: int, body: bytes) -> StatusError:
    """S3, Azure and GCS say in a small XML document what was wrong."""
    text = body.decode("utf-8", "replace")
    code = re.search(r"<Code>([^<]{1,100})</Code>", text)
    message = re.search(r"<Message>([^<]{1,300})", text)
    return StatusError(status, code[1] if code else "", message[1] if message else "")
