"""Text for people: recorded text so that nothing in it moves a cursor, hides, or reorders what is read; and counts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

__all__ = ["counted", "escape", "ranges", "unsafe"]

# Joiners belong to the spelling of some scripts and of emoji, and do nothing else.
_HARMLESS = {"\u200c", "\u200d"}
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def unsafe(char: str) -> bool:
    """Whether a character is one that `escape` spells out."""
    return unicodedata.category(char) in _UNSAFE and char not in _HARMLESS


def escape(text: str, *, lines: bool = False) -> str:
    r"""Return ``text`` with control characters, bidi marks and other invisible ones as ``\x1b``, ``\u202e``, …

    ``lines`` keeps line breaks and tabs.
    """
    if text.isascii() and text.isprintable():
        return text
    out = []
    for char in text:
        if not unsafe(char) or (lines and char in "\n\t"):
            out.append(char)
        elif char in _SHORT:
            out.append(_SHORT[char])
        else:
            code = ord(char)
            out.append(f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")
    return "".join(out)


def counted(number: int, what: str) -> str:
    """A number with what it counts: one record, two records."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def ranges(numbers: Iterable[int]) -> list[str]:
    """Ascending numbers as ranges: ``3``, ``7-9``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return [f"{first}" if first == last else f"{first}-{last}" for first, last in parts]
