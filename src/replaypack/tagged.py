"""Recorded values as JSON, and back: what JSON cannot say is a map whose one member begins with ``$``."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from ._plain import on_fresh_stack

__all__ = ["dump_json", "from_jsonable", "jsonable", "load_json"]

_MARKER = re.compile(r"\$+(?:bytes|float|int|map|surrogates)")
_SPELLED = re.compile(r"\\(?:\\|u(d[89a-f][0-9a-f]{2})|)")
_NAN = struct.pack(">d", math.nan)
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Larger integers take Python long to print in decimal.
_MAX_BITS = 14_000


def jsonable(value: Any) -> Any:
    """A recorded value as JSON. What JSON cannot say becomes a map with one member whose name begins with ``$``.

    ``{"$bytes": base64}``, ``{"$float": "nan" | "inf" | "-inf"}`` (``"nan:"`` and 16 hex digits where a NaN has other
    bits than the usual one), ``{"$int": "0x…"}`` (more than 14000 bits: Python
    reads no more digits), ``{"$surrogates": text}`` (text with lone surrogates, each of them written ``\\udXXX`` and
    each backslash twice) and ``{"$map": [[key, value], …]}`` where a key is not text, or has lone surrogates. A
    recorded map that looks like one of these has one more ``$`` in front of its key.
    """
    cls = type(value)
    if cls is str:
        return {"$surrogates": _spelled(value)} if _SURROGATE.search(value) else value
    if value is None or cls is bool:
        return value
    if cls is int:
        return value if value.bit_length() <= _MAX_BITS else {"$int": hex(value)}
    if cls is float:
        if math.isfinite(value):
            return value
        return {"$float": _nan(value) if value != value else "inf" if value > 0 else "-inf"}
    if cls is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if cls is dict:
        if not all(type(key) is str and not _SURROGATE.search(key) for key in value):
            return {"$map": [[jsonable(key), jsonable(item)] for key, item in value.items()]}
        result = {key: jsonable(item) for key, item in value.items()}
        if len(result) == 1:
            [(key, item)] = result.items()
            if _MARKER.fullmatch(key):
                return {"$" + key: item}
        return result
    if cls is list or cls is tuple:
        return [jsonable(item) for item in value]
    return str(value)


def _nan(value: float) -> str:
    bits = struct.pack(">d", value)
    return "nan" if bits == _NAN else f"nan:{bits.hex()}"


def from_jsonable(value: Any) -> Any:
    """The recorded value that `jsonable` made JSON of.

    Raises `ValueError` for a tag that does not hold what it says.
    """
    cls = type(value)
    if cls is dict:
        if len(value) == 1:
            [(tag, content)] = value.items()
            if _MARKER.fullmatch(tag):
                if tag[1] == "$":
                    return {tag[1:]: from_jsonable(content)}
                return _TAGS[tag](content)
        return {key: from_jsonable(item) for key, item in value.items()}
    if cls is list:
        return [from_jsonable(item) for item in value]
    return value


def _bytes(content: Any) -> bytes:
    try:
        return base64.b64decode(content, validate=True) if isinstance(content, str) else _no("$bytes", content)
    except (binascii.Error, ValueError):
        return _no("$bytes", content)


def _float(content: Any) -> float:
    if content in ("nan", "inf", "-inf"):
        return float(content)
    if isinstance(content, str) and re.fullmatch("nan:[0-9a-f]{16}", content):
        value: float = struct.unpack(">d", bytes.fromhex(content[4:]))[0]
        if value != value:
            return value
    return _no("$float", content)


def _int(content: Any) -> int:
    if isinstance(content, str) and re.fullmatch("-?0x[0-9a-f]+", content):
        return int(content, 16)
    return _no("$int", content)


def _map(content: Any) -> dict[Any, Any]:
    if not isinstance(content, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
        return _no("$map", content)
    pairs = [(_key(from_jsonable(key)), from_jsonable(item)) for key, item in content]
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a $map has a key twice")
    return result


def _key(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(map(_key, key))
    if isinstance(key, dict):
        raise ValueError("a $map has a map as a key")
    return key


def _text(content: Any) -> str:
    if not isinstance(content, str):
        return _no("$surrogates", content)

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return "\\" if found[0] == "\\\\" else _no("$surrogates", content)

    return _SPELLED.sub(one, content)


def _no(tag: str, content: Any) -> NoReturn:
    raise ValueError(f"{tag} with {str(content)[:80]!r} is not a value")


_TAGS: dict[str, Callable[[Any], Any]] = {
    "$bytes": _bytes,
    "$float": _float,
    "$int": _int,
    "$map": _map,
    "$surrogates": _text,
}


def load_json(data: bytes) -> Any:
    """The recorded value that one JSON document, in UTF-8, stands for (see `from_jsonable`).

    Raises `ValueError`, in words for people, for what is no JSON, and for what a reader may take for different things:
    a member that an object has twice, a number beyond a double.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
    try:
        return on_fresh_stack(lambda: from_jsonable(_decode(text)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _decode(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_members, parse_float=_finite, parse_int=_whole)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise ValueError(f"{error.msg[:1].lower()}{error.msg[1:]} at {place}") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"an object has the member {twice!r} twice")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is beyond what a double holds")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"an integer of {len(text)} digits is too long; write it as $int") from None


def _spelled(text: str) -> str:
    return text.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode()


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """JSON in ASCII alone, whatever is in it: safe in every terminal and every encoding.

    Lone surrogates, which only arguments that are no UTF-8 bring here, are spelled as text.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)
    if "\\ud" not in text:
        return text
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if _SURROGATE.search(plain) is None:
        return text
    spelled = _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", plain)
    return json.dumps(json.loads(spelled), ensure_ascii=True, allow_nan=False, indent=indent)
