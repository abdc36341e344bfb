"""Encoded bodies: compressed bytes, base64 text, and how JSON text was laid out."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

import zstandard

__all__ = [
    "MAX_UNFOLDED",
    "base64_runs",
    "decode_base64",
    "dump_json",
    "encode_base64",
    "is_base64",
    "load_json",
    "tempting",
    "unfold",
]

#: Bytes that the compressed bodies of one payload may unfold to, all together; what is beyond is not looked into.
MAX_UNFOLDED: Final = 32 << 20
#: Runs of base64 from this size on (characters) are looked at apart from the text around them.
LONG_RUN: Final = 4096

_fast: Any
try:
    import pybase64 as _fast
except ImportError:  # the extra is optional
    _fast = None

_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_PACKED = (_GZIP, _ZSTD, *_ZLIB)
_BOTH = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_STANDARD = bytes.maketrans(b"-_", b"+/")
_HEAD = re.compile(r"[A-Za-z0-9+/_-]{16}")
_STEP = LONG_RUN // 2


def unfold(data: bytes, limit: int) -> bytes | None:
    """What a gzip, zlib or zstd body holds; None where it is none of them, damaged, or more than ``limit`` bytes.

    A body that is cut off gives what there is of it; what stands behind its end is kept behind the result.
    """
    try:
        if data.startswith(_GZIP):
            return _inflate(data, 31, limit)
        if data.startswith(_ZLIB):
            return _inflate(data, 15, limit)
        if data.startswith(_ZSTD):
            stream = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
            found = stream.read(limit + 1)
            return found if len(found) <= limit else None
    except (zlib.error, zstandard.ZstdError, MemoryError):
        pass
    return None


def _inflate(data: bytes, window: int, limit: int) -> bytes | None:
    parts = []
    while True:
        stream = zlib.decompressobj(window)
        part = stream.decompress(data, limit + 1)
        limit -= len(part)
        if limit < 0:
            return None
        parts.append(part)
        data = stream.unused_data
        if not data.startswith(_GZIP) or window != 31:
            return b"".join(parts) + data


def is_base64(text: str) -> bool:
    """Whether a text is base64 and nothing else: one alphabet, line breaks of mails aside."""
    if len(text) < 16 or not _HEAD.match(text) or not text.isascii():
        return False
    rest = text.encode().translate(None, _BOTH)
    return not rest or not rest.strip(b"=\r\n")


def decode_base64(text: str) -> bytes | None:
    """The bytes that a text encodes in either alphabet, padded or not; None where it is not sound."""
    data = text.encode().translate(_STANDARD, b"\r\n").rstrip(b"=")
    if len(data) % 4 == 1:
        return None
    data += b"=" * (-len(data) % 4)
    try:
        if _fast is not None:
            found: bytes = _fast.b64decode(data, validate=True)
            return found
        return binascii.a2b_base64(data)
    except (binascii.Error, ValueError):
        return None


def encode_base64(data: bytes, like: str) -> str:
    """``data`` as base64, in the alphabet and with the padding of ``like``."""
    urlsafe = "-" in like or "_" in like
    text = (base64.urlsafe_b64encode(data) if urlsafe else base64.b64encode(data)).decode()
    return text if like.endswith("=") or len(like) % 4 == 0 else text.rstrip("=")


#: How base64 begins that encodes gzip, zstd, zlib, or 12 bytes below 128: a quick look that rules most texts out.
_TEMPTING = re.compile(
    r"H4sI|KLUv|eJ[w-z]|eN[o-r]|eA[E-H]|eF[4-7]|(?:[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589].){4}"
)


def tempting(text: str) -> bool:
    """Whether base64 text, as its beginning tells, encodes something compressed or readable."""
    if not _TEMPTING.match(text):
        return False
    head = decode_base64("".join(text[:80].split())[:64])
    if head is None:
        return False
    return head.startswith(_PACKED) or not head.translate(None, _READABLE)


_READABLE = bytes((9, 10, 13, *range(32, 127)))


def base64_runs(text: str) -> Iterator[tuple[int, int]]:
    """The places of long runs of base64 in a text. A run that long covers a whole aligned block of half its length."""
    if len(text) < LONG_RUN:
        return
    data = text.encode("ascii") if text.isascii() else text.encode("latin-1", "replace")  # one byte a character
    done = block = 0
    while block + _STEP <= len(data):
        if data[block : block + 16].translate(None, _BOTH) or data[block : block + _STEP].translate(None, _BOTH):
            block += _STEP
            continue
        floor = max(done, block - _STEP)
        start = floor + len(data[floor:block].rstrip(_BOTH))
        stop = block + _STEP
        while stop < len(data):
            chunk = data[stop : stop + 65536]
            rest = chunk.lstrip(_BOTH)
            stop += len(chunk) - len(rest)
            if rest:
                break
        stop += len(data[stop : stop + 2]) - len(data[stop : stop + 2].lstrip(b"="))
        if stop - start >= LONG_RUN:
            yield start, stop
        done = stop
        block = max(block + _STEP, -(-done // _STEP) * _STEP)


class _Twice(ValueError):
    """An object that has a name twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Twice
    return found


def load_json(text: str) -> Any:
    """The object or array that a text is; None where it is none, or where writing it again would lose something."""
    bare = text.strip(" \t\r\n\ufeff")
    if not bare.startswith(("{", "[")) or not bare.endswith(("}", "]")):
        return None
    try:
        return json.loads(bare, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None


_INDENT = re.compile(r"\s*[\[{]\r?\n( {1,8}|\t)")


def dump_json(value: Any, like: str) -> str:
    """``value`` as JSON text, laid out as ``like`` is."""
    bare = like.strip(" \t\r\n\ufeff")
    begin = like.index(bare)
    indent = _INDENT.match(bare)
    item, colon = (", " if '", "' in bare or ', "' in bare else ","), (": " if '": ' in bare else ":")
    text = json.dumps(
        value,
        ensure_ascii=like.isascii(),
        indent=indent[1] if indent else None,
        separators=(",", ": ") if indent else (item, colon),
    )
    return like[:begin] + text + like[begin + len(bare) :]
