"""From a URL to the backend that serves it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from replaypack.errors import StorageUnsupportedError
from replaypack.storage._credentials import links, safe_url
from replaypack.storage._local import LocalStorage
from replaypack.storage._memory import MemoryStorage
from replaypack.storage._options import StorageOptions, check_endpoint, split_options
from replaypack.storage._protocol import Storage

if TYPE_CHECKING:
    from replaypack.storage._remote import RemoteStorage

__all__ = ["open_storage"]

_PROTOCOL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?:://|::)")  # two letters at least: "C:" is a drive

#: Protocols whose URLs may name a port, and those whose URLs name a host or a bucket.
_WITH_PORT = frozenset({"http", "https", "ftp", "sftp", "ssh"})
_WITH_HOST = _WITH_PORT | {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
_CACHES = frozenset({"simplecache", "filecache", "blockcache", "cached"})


def open_storage(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """The storage behind ``url``; nothing is asked of it yet.

    A path or ``file://`` URL is a directory on this machine, ``memory://name`` objects in this process; ``s3://``,
    ``gs://``, ``az://`` and ``https://`` are object stores and web servers, and anything else that fsspec knows is
    taken with a `WeakGuaranteeWarning`. ``zip::URL``, or a URL that ends in ``.zip``, is one zip file.

    ``storage_options`` go to the fsspec filesystem as they are, apart from the entry ``"replaypack"``, a mapping
    of this library's own (see `StorageOptions`).

    Raises `StorageUnsupportedError` for an unknown protocol, for what is no URL, and for an option of this library
    that does not exist or cannot have the value given; a missing package, and an option that the filesystem does not
    know, are reported by the first operation.
    """
    address = os.fspath(url)
    options, foreign = split_options(storage_options, url=safe_url(address))
    zipped = re.match(r"zip(?:://([^:]*))?::", address)
    if zipped:
        return _open_zip(address[zipped.end() :], (zipped[1] or "").strip("/"), options, foreign)
    protocol = _protocol(address)
    if protocol == "zip":
        return _open_zip(address.removeprefix("zip://"), "", options, foreign)
    if protocol == "memory":
        memory = MemoryStorage(address)
        memory.read_only = options.read_only
        return memory
    path = re.split(r"[?#]", address, maxsplit=1)[0] if protocol != "file" else address
    if path.lower().endswith(".zip") and not (protocol == "file" and os.path.isdir(_local_path(address))):
        return _open_zip(address, "", options, foreign)
    if protocol == "file":
        return LocalStorage(_local_path(address), fsync=options.fsync, read_only=options.read_only)
    return _open_remote(protocol, address, options, foreign)


def _open_zip(address: str, prefix: str, options: StorageOptions, foreign: Mapping[str, Any]) -> Storage:
    from replaypack.storage._zip import ZipStorage
    from replaypack.storage._zip_sources import LocalZip, RemoteZip

    protocol = _protocol(address)
    if protocol == "file":
        return ZipStorage(LocalZip(_local_path(address)), prefix)
    return ZipStorage(RemoteZip(_open_remote(protocol, address, options, foreign)), prefix)


def _open_remote(protocol: str, address: str, options: StorageOptions, foreign: Mapping[str, Any]) -> RemoteStorage:
    _check_url(protocol, address)
    # Imported here: an archive on a disk is opened without the modules of all the others.
    if len(links(address)) == 1:
        if protocol in ("s3", "s3a", "gs", "gcs"):
            check_endpoint(foreign, url=safe_url(address))
        if protocol in ("s3", "s3a"):
            from replaypack.storage._s3 import S3Storage

            return S3Storage(address, options, foreign)
        if protocol in ("gs", "gcs"):
            from replaypack.storage._gcs import GCSStorage

            return GCSStorage(address, options, foreign)
        if protocol in ("az", "abfs", "abfss", "adl"):
            from replaypack.storage._azure import AzureStorage

            return AzureStorage(address, options, foreign)
        if protocol in ("http", "https"):
            from replaypack.storage._http import HttpStorage

            return HttpStorage(address, options, foreign)
    if protocol in _CACHES:
        raise StorageUnsupportedError(
            f"{protocol}:: keeps copies and never sees another writer", operation="open", url=safe_url(address)
        )
    from fsspec.registry import known_implementations, registry

    from replaypack.storage._fsspec import FsspecStorage

    if protocol not in known_implementations and protocol not in registry:
        raise StorageUnsupportedError(
            f"no filesystem is known for {protocol}://", operation="open", url=safe_url(address)
        )
    return FsspecStorage(address, options, foreign)


def _check_url(protocol: str, address: str) -> None:
    """Raise `StorageUnsupportedError` for what is no URL: client libraries say so in many ways, some of them late."""
    problem = None
    try:
        parts = [urlsplit(part) for part in links(address)]
        if any(part.scheme in _WITH_PORT and part.port == 0 for part in parts):
            problem = "there is no port 0"
    except ValueError as error:
        # The words may quote a part of it, and what of that is a password cannot be told.
        problem = "it is no URL" if "@" in address else f"it is no URL: {error}"
    if problem is not None:
        hint = "write e.g. https://host:8080/path; in a password letters such as @ : / # stand as %40 %3A %2F %23"
        raise StorageUnsupportedError(problem, operation="open", url=f"{protocol}://…", hint=hint)
    if protocol in _WITH_HOST and len(parts) == 1 and not parts[0].netloc:
        raise StorageUnsupportedError(
            "the URL names no host or bucket",
            operation="open",
            url=safe_url(address),
            hint=f"write e.g. {protocol}://name/path",
        )


def _protocol(address: str) -> str:
    found = _PROTOCOL.match(address)
    protocol = found[1].lower() if found else "file"
    return "file" if protocol == "local" else protocol


def _local_path(address: str) -> str:
    return os.path.expanduser(re.sub(r"^(?:file|local)://", "", address))
