"""Recorded values as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from replaypack._escape import counted, escape, ranges, unsafe
from replaypack.tagged import dump_json, jsonable

__all__ = [
    "counted",
    "dump_json",
    "escape",
    "hexdump",
    "human_size",
    "jsonable",
    "missing",
    "pretty",
    "spans",
]


def pretty(value: Any) -> str:
    """JSON for people: indented, letters of all scripts as they are, everything invisible escaped."""
    text = json.dumps(jsonable(value), ensure_ascii=False, allow_nan=False, indent=2)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(char if char == "\n" or not unsafe(char) else json.dumps(char)[1:-1] for char in text)


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


def human_size(size: float) -> str:
    """A number of bytes for people, in powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def spans(numbers: Iterable[int]) -> str:
    """Ascending numbers as ranges: ``3, 7-9``."""
    parts = ranges(numbers)
    return ", ".join(parts[:12]) + (f" and {len(parts) - 12} more ranges" if len(parts) > 12 else "")


def missing(purged: int, withheld: Iterable[str]) -> str:
    """What of a recording is not there, to be put behind something: ``, 2 purged, requests withheld``."""
    names = {"request": "requests", "identity": "identities"}
    roles = " and ".join(names[role] for role in sorted(withheld, reverse=True))
    return (f", {purged} purged" if purged else "") + (f", {roles} withheld" if roles else "")
