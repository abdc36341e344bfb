"""What both encodings share: the depth limit, the census of a value's types, and the object table.

A *plain* value is built of exactly ``None``, ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``list``, ``tuple``
and ``dict``. The two encoders (``canonical``, ``values``) only ever see plain values: ``survey`` looks at the
types in a value, level by level with iteration that stays in C, and sends whatever is not plain through the object
table. Types are compared exactly, never with ``isinstance``, because the C encoders accept subclasses, datetimes,
dataclasses and sets without a word and would choose a representation of their own.
"""

from __future__ import annotations

import contextvars
import dataclasses
import datetime as dt
import threading
from collections import UserDict, UserList, UserString, deque
from collections.abc import Callable, Collection, Mapping, Set
from decimal import Decimal
from enum import Enum
from itertools import chain
from math import isfinite
from pathlib import PurePath
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from replaypack.errors import CanonicalizationError, ReplaypackError, ValueEncodingError

__all__ = [
    "MAX_DEPTH",
    "SAFE_BITS",
    "SAFE_INT",
    "Census",
    "ErrorType",
    "Path",
    "on_fresh_stack",
    "pointer",
    "scan",
    "survey",
    "to_plain",
]

MAX_DEPTH = 256
"""Containers that may be nested in one another. ``1`` has depth 0, ``[]`` has depth 1, ``[[1]]`` has depth 2."""

SAFE_INT = 2**53
"""Integers up to this magnitude are doubles, and print in digits."""

_DEDUPE = 1024
"""Containers in one level from which shared ones are counted once, so that a cycle cannot grow without bound."""

ErrorType: TypeAlias = type[ValueEncodingError] | type[CanonicalizationError]

Path: TypeAlias = tuple[Any, Any] | None
"""Where a part lies: (path of its parent, key or index), or None for the whole. Cheap to extend while walking."""

SAFE_BITS = 53
"""Bits of integers that are doubles for certain."""

_SMALL = 64
"""Values up to which one loop in Python is faster than passes in C over each level."""

_HOPS = 8
"""Objects that may stand for one another, as an enum whose value is a model does."""

_T = TypeVar("_T")
_NoneType = type(None)
_CONTAINERS = frozenset({dict, list, tuple})
_PLAIN = frozenset({dict, list, tuple, str, int, float, bool, bytes, _NoneType})
_PLAIN_KEYS = frozenset({tuple, str, int, float, bool, bytes, _NoneType})
_STR_ONLY = frozenset({str})
_NO_TYPES: frozenset[type] = frozenset()
_dict_values = dict.values
_flatten = chain.from_iterable


def pointer(path: Path) -> str:
    """``path`` as a JSON pointer (RFC 6901); the whole is ``""``. Keys that are not strings appear as text."""
    parts: list[str] = []
    while path is not None:
        path, segment = path
        text = segment if type(segment) is str else _segment(segment)
        text = text.replace("~", "~0").replace("/", "~1")
        # An error message must be printable whatever the value holds.
        parts.append(text.encode("utf-8", "backslashreplace").decode())
    return "".join("/" + part for part in reversed(parts))


def _segment(key: object) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or type(key) in (bool, float, bytes) or (type(key) is int and key.bit_length() < 10_000):
        return str(key)
    return f"<{type(key).__qualname__}>"


class Census(msgspec.Struct, eq=False, gc=False):
    """What is in a plain value. ``value`` is the plain value itself (the original, unless objects were converted).

    ``key_types``: the exact types of map keys. ``keys``: map keys, perhaps repeated. ``count``: values seen.
    ``depth``: at least the depth of the value, and above MAX_DEPTH only if that is. ``low`` and ``high``: integers
    that enclose every integer. ``special_level``: the deepest level (0 = the whole, 1 = its children) that
    may hold what the C encoder prints otherwise than canonical JSON (bytes, some numbers), -1 for none.
    """

    value: Any
    key_types: Set[type] = frozenset()
    keys: Collection[Any] = ()
    depth: int = 0
    low: int = 0
    high: int = 0
    count: int = 0
    special_level: int = -1
    foreign: bool = False
    #: Of a small value: its texts, besides keys, and its bytes; whether a tuple is in it. None: nobody looked.
    texts: list[str] | None = None
    blobs: Collection[bytes] = ()
    tuples: bool | None = None


def scan(value: object) -> Census:
    """The census of ``value`` as it is; ``foreign`` when not all of it is plain, and then the rest says nothing."""
    # A small value is done before the passes over its levels would have begun.
    queue: list[Any] = [value]
    keys: list[Any] = []
    texts: list[str] = []
    blobs: list[bytes] = []
    special = tuples = False
    for part in queue:
        cls = type(part)
        if cls is str:
            texts.append(part)
        elif cls is dict:
            keys += part
            queue += part.values()
            if len(queue) > _SMALL:
                return _scan_levels(value)
        elif cls is int:
            if part.bit_length() > SAFE_BITS:
                return _scan_levels(value)
        elif cls is list or cls is tuple:
            queue += part
            if len(queue) > _SMALL:
                return _scan_levels(value)
            tuples = tuples or cls is tuple
        elif cls is float:
            # As in `_prints_alike`.
            if not (1e-4 <= part < SAFE_INT or -SAFE_INT < part <= -1e-4) or part.is_integer():
                special = True
        elif cls is bytes:
            blobs.append(part)
            special = True
        elif cls is not bool and part is not None:
            return _scan_levels(value)
    if not _STR_ONLY.issuperset(map(type, keys)):
        return _scan_levels(value)
    count = len(queue)
    level = count if special else -1
    key_types = _STR_ONLY if keys else _NO_TYPES
    return Census(value, key_types, keys, count, -SAFE_INT, SAFE_INT, count, level, False, texts, blobs, tuples)


def _scan_levels(value: object) -> Census:
    """``scan`` level by level, with passes that stay in C."""
    census = Census(value)
    known: set[Any] = set()
    seen_types: set[type] = set()
    census.keys, census.key_types = known, seen_types
    level: list[Any] = [value]
    depth = 0
    while level:
        here = set(map(type, level))
        if not here <= _PLAIN:
            census.foreign = True
            return census
        census.count += len(level)
        if int in here:
            ints = level if len(here) == 1 else [v for v in level if type(v) is int]
            low, high = min(ints), max(ints)
            if low < census.low:
                census.low = low
            if high > census.high:
                census.high = high
            if low < -SAFE_INT or high > SAFE_INT:
                census.special_level = depth
        if float in here:
            floats = level if len(here) == 1 else [v for v in level if type(v) is float]
            if not _prints_alike(floats):
                census.special_level = depth
        if bytes in here:
            census.special_level = depth
        nested = here & _CONTAINERS
        if not nested:
            break
        depth += 1
        if depth > MAX_DEPTH:
            break
        maps: list[Any] = []
        sequences: list[Any] = []
        containers = level if len(here) == 1 else [v for v in level if type(v) in nested]
        if len(containers) > _DEDUPE:
            containers = list(dict(zip(map(id, containers), containers, strict=True)).values())
        if dict not in nested:
            sequences = containers
        elif len(nested) == 1:
            maps = containers
        else:
            maps = [v for v in containers if type(v) is dict]
            sequences = [v for v in containers if type(v) is not dict]
        level = list(_flatten(sequences))
        if maps:
            level.extend(_flatten(map(_dict_values, maps)))
            keys = maps[0] if len(maps) == 1 else list(_flatten(maps))
            known.update(keys)
            key_types = set(map(type, keys))
            seen_types |= key_types
            if key_types and key_types != _STR_ONLY:
                if not key_types <= _PLAIN_KEYS:
                    census.foreign = True
                    return census
                level.extend([key for key in keys if type(key) is not str])
    census.depth = depth
    return census


def _prints_alike(floats: list[float]) -> bool:
    """True when msgspec prints every one of ``floats`` as ECMAScript does.

    It does for finite, non-integral numbers that neither prints with an exponent: from 1e-4 up, and every number
    beyond 2**53 is integral. (Integral ones print as ``1.0`` there and as ``1`` here, small ones as ``1e-6`` and
    ``0.000001``.) The window is narrower than what the present version agrees on.
    """
    return all(map(isfinite, floats)) and not any(map(float.is_integer, floats)) and min(map(abs, floats)) >= 1e-4


def survey(value: object, error: ErrorType = ValueEncodingError) -> Census:
    """The census of ``value`` made plain. A caller who needs both key and payload makes one and hands it to both.

    A census holds only as long as ``value`` does not change: use it up before anyone else gets hold of the value.

    Raises ``error`` with the JSON pointer of the first part that is outside the object table or deeper than
    MAX_DEPTH (which is how a value that contains itself is found).
    """
    census = scan(value)
    if census.foreign:
        census = scan(to_plain(value, error))
    if census.depth > MAX_DEPTH:
        raise _too_deep(_deep_path(census.value), error)
    return census


def _too_deep(path: Path, error: ErrorType) -> ValueEncodingError | CanonicalizationError:
    return error(f"nested deeper than {MAX_DEPTH} containers, or contains itself", path=pointer(path))


def _deep_path(value: object) -> Path:
    """The path of a container at depth MAX_DEPTH + 1, by a walk that needs no Python stack."""
    stack: list[tuple[Any, Path, int]] = [(value, None, 1)]
    seen: set[tuple[int, int]] = set()
    while stack:
        part, path, depth = stack.pop()
        if depth > MAX_DEPTH:
            return path
        if (id(part), depth) in seen:
            continue
        seen.add((id(part), depth))
        children: list[tuple[Any, Any]]
        children = [*part.items(), *((key, key) for key in part)] if type(part) is dict else list(enumerate(part))
        stack.extend((child, (path, key), depth + 1) for key, child in reversed(children) if type(child) in _CONTAINERS)
    return None


def on_fresh_stack(function: Callable[[], _T]) -> _T:
    """``function()``, run again on a new thread if the caller's stack leaves too little room for it.

    MAX_DEPTH containers fit a fresh stack with room to spare, but a caller may be 900 frames deep already. Whether a
    value can be stored must not depend on who stores it. A RecursionError on the fresh stack too is raised as such.
    """
    try:
        return function()
    except RecursionError:
        pass
    context = contextvars.copy_context()
    results: list[_T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(context.run(function))
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=run, name="replaypack-fresh-stack")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def to_plain(value: object, error: ErrorType = ValueEncodingError) -> Any:
    """``value`` as plain data, by the object table of the specification (chapter 02).

    The result is built of new containers throughout (tuples become lists, except in map keys), so that it does not
    change when ``value`` does. Raises ``error`` with the JSON pointer of the first part outside the table, of two
    map keys that become equal, or of a part nested too deeply. Nothing is ever represented by its ``repr``.
    """
    try:
        return on_fresh_stack(lambda: _plain(value, None, 0, error))
    except RecursionError as exc:
        raise error("objects are nested too deeply to be converted to plain data", path="") from exc


class _Pairs(list[tuple[Any, Any]]):
    """What an object unfolds to that becomes a map."""


def _plain(value: Any, path: Path, depth: int, error: ErrorType) -> Any:
    # ``depth`` is the number of containers around ``value``. Two Python frames a level, so that MAX_DEPTH of them fit.
    for _ in range(_HOPS):
        cls = type(value)
        if cls is str or cls is int or cls is float or cls is bool or value is None or cls is bytes:
            return value
        if cls is dict:
            return _plain_map(value.items(), path, depth, error)
        if cls is _Pairs:
            return _plain_map(value, path, depth, error)
        if cls is list or cls is tuple:
            return _plain_list(value, path, depth, error)
        if cls is set or cls is frozenset:
            return _sorted_set(_plain_list(value, path, depth, error))
        try:
            value = _unfold(value, cls, path, error)
        except (ReplaypackError, RecursionError):
            raise
        except Exception as exc:  # user code: model_dump, items, properties
            raise error(f"{cls!r} cannot be converted ({type(exc).__name__})", path=pointer(path)) from exc
    raise error(f"{cls!r} turns into ever more objects", path=pointer(path))


def _plain_map(items: Any, path: Path, depth: int, error: ErrorType) -> dict[Any, Any]:
    if depth >= MAX_DEPTH:
        raise _too_deep(path, error)
    result: dict[Any, Any] = {}
    for key, child in items:
        if type(key) is not str:
            plain_key = _as_key(_plain(key, (path, key), depth + 1, error), (path, key), error)
        else:
            plain_key = key
        if plain_key in result:
            raise error("two map keys become equal", path=pointer((path, plain_key)))
        result[plain_key] = _plain(child, (path, key), depth + 1, error)
    return result


def _as_key(key: Any, path: Path, error: ErrorType) -> Any:
    if type(key) is list:
        return tuple([_as_key(part, path, error) for part in key])
    if type(key) is dict:
        raise error("a map cannot be a map key", path=pointer(path))
    return key


def _plain_list(items: Any, path: Path, depth: int, error: ErrorType) -> list[Any]:
    if depth >= MAX_DEPTH:
        raise _too_deep(path, error)
    result: list[Any] = []
    for index, child in enumerate(items):
        result.append(_plain(child, (path, index), depth + 1, error))
    return result


def _unfold(value: Any, cls: type, path: Path, error: ErrorType) -> Any:
    """The object table, one step. The order matters: an enum may be a str, a model may be a Mapping."""
    if isinstance(value, Enum):
        return value.value
    scalar = _scalar(value)
    if scalar is not None:
        return scalar
    if isinstance(value, type):
        raise _unknown(cls, path, error)
    if callable(getattr(cls, "model_dump", None)):
        return value.model_dump(mode="python")
    if isinstance(value, msgspec.Struct):
        return _struct(value)
    if dataclasses.is_dataclass(value):
        return _Pairs((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    fields = getattr(cls, "__attrs_attrs__", None)
    if isinstance(fields, tuple):
        return _Pairs((field.name, getattr(value, field.name)) for field in fields)
    if isinstance(value, (Mapping, UserDict)):
        return _Pairs(value.items())
    if isinstance(value, (list, tuple, deque, UserList)):
        return list(value)
    if isinstance(value, (set, frozenset)):
        return frozenset(value)
    raise _unknown(cls, path, error)


def _unknown(cls: type, path: Path, error: ErrorType) -> ValueEncodingError | CanonicalizationError:
    return error(
        f"{cls!r} is not in the table of storable objects", path=pointer(path), hint="convert it to plain data"
    )


def _scalar(value: Any) -> str | int | float | bytes | None:
    """The scalar that stands for ``value``, or None when it is no scalar object. Overridden methods are bypassed."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).tobytes()
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return _duration(value)
    if isinstance(value, (Decimal, UUID, UserString)):
        return str(value)
    if isinstance(value, PurePath):
        # Forward slashes, so that a recording made on one system answers on another.
        return value.as_posix()
    return None


def _duration(value: dt.timedelta) -> str:
    """ISO 8601: ``-P1DT2.000003S``; zero is ``PT0S``. Days are whole, the rest is in seconds."""
    sign = "-" if value < dt.timedelta(0) else ""
    value = abs(value)
    days = f"{value.days}D" if value.days else ""
    fraction = f".{value.microseconds:06d}".rstrip("0") if value.microseconds else ""
    time = f"T{value.seconds}{fraction}S" if value.seconds or fraction or not days else ""
    return f"{sign}P{days}{time}"


def _struct(value: Any) -> list[Any] | _Pairs:
    """A msgspec Struct as msgspec would encode it, defaults included: encoded names, tag first, UNSET left out."""
    config = value.__struct_config__
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    pairs = _Pairs((name, getattr(value, field)) for name, field in names)
    if config.tag is not None:
        pairs.insert(0, (config.tag_field, config.tag))
    if config.array_like:
        return [child for _, child in pairs]
    return _Pairs(pair for pair in pairs if pair[1] is not msgspec.UNSET)


def _sorted_set(elements: list[Any]) -> list[Any]:
    # Imported here because both encoders are built on this module.
    from replaypack.canonical import canonical_json
    from replaypack.values import encode

    def order(element: Any) -> tuple[bool, bytes, bytes]:
        try:
            return False, canonical_json(element), encode(element)
        except CanonicalizationError:  # NaN and the like: behind the others
            return True, b"", encode(element)

    return sorted(elements, key=order)
