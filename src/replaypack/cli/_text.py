"""Recorded values as text that is safe to show: nothing in it moves a cursor, hides, or reorders what is read."""

from __future__ import annotations

import base64
import json
import math
import re
import unicodedata
from typing import Any

__all__ = ["counted", "dump_json", "escape", "hexdump", "human_size", "jsonable", "pretty"]

# Joiners belong to the spelling of some scripts and of emoji, and do nothing else.
_HARMLESS = {"\u200c", "\u200d"}
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_MARKER = re.compile(r"\$+(?:bytes|float|int|map|surrogates)")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Larger integers take Python long to print in decimal.
_MAX_BITS = 14_000


def _unsafe(char: str) -> bool:
    return unicodedata.category(char) in _UNSAFE and char not in _HARMLESS


def escape(text: str, *, lines: bool = False) -> str:
    r"""Return ``text`` with control characters, bidi marks and other invisible ones as ``\x1b``, ``\u202e``, …

    ``lines`` keeps line breaks and tabs.
    """
    if text.isascii() and text.isprintable():
        return text
    out = []
    for char in text:
        if not _unsafe(char) or (lines and char in "\n\t"):
            out.append(char)
        elif char in _SHORT:
            out.append(_SHORT[char])
        else:
            code = ord(char)
            out.append(f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")
    return "".join(out)


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


def pretty(value: Any) -> str:
    """JSON for people: indented, letters of all scripts as they are, everything invisible escaped."""
    text = json.dumps(jsonable(value), ensure_ascii=False, allow_nan=False, indent=2)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(char if char == "\n" or not _unsafe(char) else json.dumps(char)[1:-1] for char in text)


def hexdump(data: bytes, limit: int = 4096) -> str:
    """The first ``limit`` bytes as offset, hex and ASCII."""
    lines = []
    for at in range(0, min(len(data), limit), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):47}  {text}")
    if len(data) > limit:
        lines.append(f"… {counted(len(data) - limit, 'more byte')} (--raw writes all of them)")
    return "\n".join(lines) if lines else "(no bytes)"


def counted(number: int, what: str) -> str:
    """A number with what it counts: one record, two records."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def human_size(size: float) -> str:
    """A number of bytes for people, in powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
