"""The options that are this library's own, apart from those that a filesystem gets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from replaypack.errors import StorageUnsupportedError

__all__ = ["StorageOptions", "check_endpoint", "split_options"]

NAMESPACE: Final = "replaypack"
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Entries of ``storage_options["replaypack"]``.

    ``retry_seconds``: how long after the first attempt of an operation another one may still begin.
    ``request_seconds``: how long one request may take, and a second more for each 64 KiB it moves.
    ``max_concurrency``: requests at a time. ``max_gap``: bytes fetched for nothing, at most, to save a request
    between two ranges. ``max_fetch``: bytes of one merged request. ``read_only``: refuse every write.
    ``fsync``: make local writes durable.
    """

    retry_seconds: float = 60.0
    request_seconds: float = 60.0
    max_concurrency: int = 32
    max_gap: int = 256 * 1024
    max_fetch: int = 8 * MIB
    read_only: bool = False
    fsync: bool = True


_MAY_BE_ZERO: Final = frozenset({"retry_seconds", "max_gap"})


def split_options(storage_options: Mapping[str, Any] | None, *, url: str = "") -> tuple[StorageOptions, dict[str, Any]]:
    """This library's options, and those for the filesystem. ``url``, without credentials, is for errors.

    Raises `StorageUnsupportedError` for options that do not exist, and for values that they cannot have.
    """
    foreign = dict(storage_options or {})
    own = foreign.pop(NAMESPACE, None)
    own = {} if own is None else own
    if not isinstance(own, Mapping):
        raise StorageUnsupportedError(
            f"the storage option {NAMESPACE!r} is not a mapping of options",
            operation="open",
            url=url,
            hint='write e.g. {"retry_seconds": 10}',
        )
    defaults = {field.name: field.default for field in fields(StorageOptions)}
    for name, value in own.items():
        if name not in defaults:
            near = difflib.get_close_matches(str(name), defaults, n=1)
            known = f"known: {', '.join(sorted(defaults))}"
            raise StorageUnsupportedError(
                f"there is no storage option '{NAMESPACE}.{name}'",
                operation="open",
                url=url,
                hint=f"did you mean {near[0]}? {known}" if near else known,
            )
        wrong = _fault(value, defaults[name], zero=name in _MAY_BE_ZERO)
        if wrong is not None:
            raise StorageUnsupportedError(
                f"the storage option '{NAMESPACE}.{name}' {wrong}",
                operation="open",
                url=url,
                hint=f"the default is {str(defaults[name]).lower()}",
            )
    return StorageOptions(**own), foreign


def _fault(value: Any, default: object, *, zero: bool) -> str | None:
    """What is wrong with the value of an option, if anything is; the value itself is not shown."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else f"must be true or false, not {_kind(value)}"
    whole = isinstance(default, int)
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return f"must be a {'whole number' if whole else 'number'}, not {_kind(value)}"
    number: float = value
    if zero:
        return None if number >= 0 else "must be 0 or more"
    return None if number > 0 else "must be more than 0"


def _kind(value: object) -> str:
    names = {str: "text", type(None): "null", bool: "true or false", float: "a fraction"}
    return names.get(type(value), type(value).__name__)


def check_endpoint(foreign: Mapping[str, Any], *, url: str) -> None:
    """Raise `StorageUnsupportedError` for an endpoint that is no URL; the clients do not say what is wrong with it.

    The endpoint is not shown: options may hold secrets, in the wrong place too.
    """
    inner = foreign.get("client_kwargs")
    for name, options in (("endpoint_url", foreign), ("client_kwargs.endpoint_url", inner)):
        endpoint = options.get("endpoint_url") if isinstance(options, Mapping) else None
        if endpoint is None or endpoint == "":
            continue
        if not isinstance(endpoint, str) or not endpoint.lower().startswith(("http://", "https://")):
            raise StorageUnsupportedError(
                f"the storage option {name!r} does not begin with http:// or https://",
                operation="open",
                url=url,
                hint=f"write e.g. {name}=http://127.0.0.1:9000",
            )
