"""Unsigned LEB128 integers (spec chapter 01, "Variable-length integers")."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import unpack

from replaypack.errors import FormatError

__all__ = ["append_uvarint", "read_columns", "read_uvarint", "read_uvarints", "uvarint"]

_ONE = [bytes((i,)) for i in range(128)]
_MAX = (1 << 64) - 1
#: Bytes that end an integer, and the lower seven bits of any.
_LAST = bytes(range(128))
_LOW = _LAST * 2


def uvarint(value: int) -> bytes:
    """Encode ``value`` (0 … 2**64-1) in as few bytes as it takes."""
    if value < 128:
        return _ONE[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if value < 1 << 28:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21))
    out = bytearray()
    append_uvarint(out, value)
    return bytes(out)


def append_uvarint(out: bytearray, value: int) -> None:
    """Append the encoding of ``value`` (0 … 2**64-1) to ``out``."""
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)


def read_uvarint(data: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Decode one integer at ``pos``; return it and the position behind it.

    Raises `FormatError` (``corrupted``) where the bytes end early, are longer than needed, or exceed 64 bits.
    """
    value = shift = 0
    try:
        byte = data[pos]
        if byte < 128:
            return byte, pos + 1
        following = data[pos + 1]
        if 0 < following < 128:
            return byte & 127 | following << 7, pos + 2
        if following:
            third = data[pos + 2]
            if 0 < third < 128:
                return byte & 127 | (following & 127) << 7 | third << 14, pos + 3
            if third and 0 < (fourth := data[pos + 3]) < 128:
                return byte & 127 | (following & 127) << 7 | (third & 127) << 14 | fourth << 21, pos + 4
        while True:
            byte = data[pos]
            pos += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise FormatError("a variable-length integer has more than 64 bits")
    except IndexError:
        raise FormatError("a variable-length integer is cut off") from None
    if value > _MAX or (byte == 0 and shift):
        raise FormatError("a variable-length integer is not in its shortest form")
    return value, pos


def read_uvarints(data: bytes | memoryview, pos: int, count: int) -> tuple[list[int], int]:
    """Decode ``count`` integers at ``pos``; return them and the position behind the last."""
    values = []
    for _ in range(count):
        value, pos = read_uvarint(data, pos)
        values.append(value)
    return values, pos


def read_columns(columns: Sequence[bytes]) -> list[Sequence[int]] | None:
    """Decode integers of many rows at once, whose first, second, … bytes are the ``columns``, none of them empty.

    Returns the first integer of every row, then the second of every row, …; None where those of one place are not of
    one length in all rows, or `read_uvarint` might refuse one.
    """
    found: list[Sequence[int]] = []
    begin = 0
    for at, column in enumerate(columns):
        if column.isascii():
            if at > begin and (0 in column or at - begin > 7):
                return None
            found.append(_joined(columns[begin : at + 1]) if at > begin else list(column))
            begin = at + 1
        elif len(column.translate(None, _LAST)) != len(column):
            return None
    return found if begin == len(columns) else None


@lru_cache(maxsize=8)
def _masks(count: int) -> list[tuple[int, int, int]]:
    """Which bits of so many times eight bytes stay, and which move how far, until eight times seven are together."""
    return [
        (int.from_bytes(low * count, "little"), int.from_bytes(high * count, "little"), gap)
        for low, high, gap in (
            (b"\x7f\0" * 4, b"\0\x7f" * 4, 1),
            (b"\xff\x3f\0\0" * 2, b"\0\0\xff\x3f" * 2, 2),
            (b"\xff\xff\xff\x0f\0\0\0\0", b"\0\0\0\0\xff\xff\xff\x0f", 4),
        )
    ]


def _joined(columns: Sequence[bytes]) -> Sequence[int]:
    """The integers of up to eight bytes in ``columns``: all of them are put together at once, in one long number."""
    count = len(columns[0])
    lanes = bytearray(8 * count)
    for at, column in enumerate(columns):
        lanes[at::8] = column.translate(_LOW)
    number = int.from_bytes(lanes, "little")
    # Neighbours move together: two of 7 bits, two of 14, two of 28.
    for low, high, gap in _masks(count):
        number = number & low | (number & high) >> gap
    return unpack(f"<{count}Q", number.to_bytes(8 * count, "little"))
