"""Base64 text that is stored decoded (spec chapter 04, "Base64").

zstd does not undo base64, so long runs are stored as the bytes they encode, wherever encoding those bytes
again gives exactly the same text. ``pybase64`` (extra ``[fast]``) is used where present; the standard
library gives the same bytes about thirty times slower.
"""

from __future__ import annotations

import base64 as _std
import binascii
from typing import Any, NamedTuple

_fast: Any
try:
    import pybase64 as _fast
except ImportError:  # the extra is optional
    _fast = None

__all__ = ["MIN_RUN", "Found", "decode_base64", "encode_base64", "encoded_length", "find_base64"]

#: Shorter runs (characters) are left as text.
MIN_RUN = 2048

_STEP = MIN_RUN // 2
_COMMON = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_STANDARD = _COMMON + b"+/"
_EITHER = _COMMON + b"+/-_"
_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URLSAFE = bytes.maketrans(b"-_", b"+/")


class Found(NamedTuple):
    """A run of base64 text at ``start`` … ``end`` of a piece, which decodes to ``data``."""

    start: int
    end: int
    data: bytes
    urlsafe: bool
    padded: bool


def encoded_length(length: int, *, padded: bool) -> int:
    """Characters that ``length`` bytes take as base64."""
    return (length + 2) // 3 * 4 if padded else (length * 4 + 2) // 3


def encode_base64(data: bytes | memoryview, *, urlsafe: bool, padded: bool) -> bytes:
    """Return ``data`` as base64 text in ASCII."""
    text: bytes = _fast.b64encode(data) if _fast is not None else binascii.b2a_base64(data, newline=False)
    if urlsafe:
        text = text.translate(_TO_URLSAFE)
    return text if padded else text.rstrip(b"=")


def decode_base64(text: bytes, *, urlsafe: bool) -> bytes | None:
    """Decode ``text``, padded or not; None where encoding the result would not give ``text`` again."""
    if urlsafe:
        if b"+" in text or b"/" in text:
            return None
        standard = text.translate(_FROM_URLSAFE)
    else:
        standard = text
    padding = b"=" * (-len(text) % 4)
    try:
        if _fast is not None:
            data: bytes = _fast.b64decode(standard + padding, validate=True)
        else:
            data = _std.b64decode(standard + padding, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if encode_base64(data, urlsafe=urlsafe, padded=not padding) == text else None


def _string_start(piece: bytes, start: int, stop: int) -> tuple[int, int | None]:
    """Move ``start`` behind a MessagePack string header that looks like base64 itself.

    A header's length bytes may be letters of the alphabet; taken for text, they would shift every quad, and
    the same image would no longer be found again under another length. Returns the start, and the end of the
    string where a header names it.
    """
    for begin in range(start, min(start + 5, stop)):
        if begin >= 5 and piece[begin - 5] == 0xDB:
            length = int.from_bytes(piece[begin - 4 : begin], "big")
        elif begin >= 3 and piece[begin - 3] == 0xDA:
            length = int.from_bytes(piece[begin - 2 : begin], "big")
        else:
            continue
        if MIN_RUN <= length <= len(piece) - begin:
            return begin, begin + length
    return start, None


def find_base64(piece: bytes) -> list[Found]:
    """Return the runs of base64 text in ``piece`` that have at least `MIN_RUN` characters, in order.

    A run that long covers a whole aligned block of half its length, so only one block in a text without
    base64 costs more than a glance.
    """
    found: list[Found] = []
    size = len(piece)
    if size < MIN_RUN:
        return found
    done = 0
    block = 0
    while block + _STEP <= size:
        if piece[block : block + 16].translate(None, _EITHER) or piece[block : block + _STEP].translate(None, _EITHER):
            block += _STEP
            continue
        floor = max(done, block - _STEP)
        before = piece[floor:block]
        start = floor + len(before.rstrip(_EITHER))
        stop = block + _STEP
        while stop < size:
            chunk = piece[stop : stop + 65536]
            rest = chunk.lstrip(_EITHER)
            stop += len(chunk) - len(rest)
            if rest:
                break
        start, end_of_string = _string_start(piece, start, stop)
        if end_of_string is not None:
            stop = min(stop, end_of_string)
        item = _take(piece, start, stop, end_of_string) if stop - start >= MIN_RUN else None
        if item is not None:
            found.append(item)
            done = item.end
        else:
            done = stop
        block = max(block + _STEP, -(-done // _STEP) * _STEP)
    return found


def _take(piece: bytes, start: int, stop: int, end_of_string: int | None) -> Found | None:
    text = piece[start:stop]
    urlsafe = b"-" in text or b"_" in text
    if urlsafe and (b"+" in text or b"/" in text):
        return None
    tail = len(text) % 4
    if tail in (2, 3):
        pad = b"=" * (4 - tail)
        has_padding = piece[stop : stop + len(pad)] == pad
        if has_padding or stop == end_of_string:
            whole = text + pad if has_padding else text
            data = decode_base64(whole, urlsafe=urlsafe)
            if data is not None:
                return Found(start, start + len(whole), data, urlsafe, has_padding)
    # Without a sound tail only whole quads are taken; they always encode back to themselves.
    quads = text[: len(text) - tail]
    data = decode_base64(quads, urlsafe=urlsafe)
    return None if data is None else Found(start, start + len(quads), data, urlsafe, True)
