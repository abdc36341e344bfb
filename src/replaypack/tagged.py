"""Recorded values as JSON, and back: what JSON cannot say is a map whose one member begins with ``$``."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

__all__ = ["dump_json", "jsonable"]

_MARKER = re.compile(r"\$+(?:bytes|float|int|map|surrogates)")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Larger integers take Python long to print in decimal.
_MAX_BITS = 14_000


def jsonable(value: Any) -> Any:
    """A recorded value as JSON. What JSON cannot say becomes a map with one member whose name begins with ``$``.

    ``{"$bytes": base64}``, ``{"$float": "nan" | "inf" | "-inf"}``, ``{"$int": "0x…"}`` (more than 14000 bits: Python
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
        return {"$float": "nan" if value != value else "inf" if value > 0 else "-inf"}
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
