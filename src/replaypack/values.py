"""The stored form of values: MessagePack in one fixed form (spec chapter 02), and which encoding a payload has.

Map order, NaN, infinities, -0.0, the difference between ``1``, ``1.0`` and ``True``, integers of any size and lone
surrogates survive a round trip. Every value has exactly one encoding, which ``decode`` insists on.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import add
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from replaypack._plain import MAX_DEPTH, SAFE_INT, Census, Path, on_fresh_stack, pointer, scan, survey, to_plain
from replaypack.errors import FormatError, ValueEncodingError

__all__ = [
    "ABSENT",
    "ENCODING_BYTES",
    "ENCODING_NONE",
    "ENCODING_STRUCTURED",
    "ENCODING_TEXT",
    "MAX_DEPTH",
    "Absent",
    "decode",
    "decode_payload",
    "decode_plain",
    "decode_together",
    "encode",
    "encode_payload",
    "encode_pieces",
    "payload_pieces",
    "to_plain",
]

ENCODING_NONE: Final = 0
ENCODING_STRUCTURED: Final = 1
ENCODING_TEXT: Final = 2
ENCODING_BYTES: Final = 3

_EXT_BIG_INT = 1
_EXT_SURROGATES = 2
_MIN_INT = -(2**63)
_MAX_INT = 2**64 - 1
_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_CONTAINERS = frozenset({dict, list, tuple})

_WHOLE = 4096  # bytes: an encoding below this is one piece
_GLUE = 1024  # bytes: what is smaller is glued to its neighbours
_DIVIDE = 8192  # bytes: an element of a list from this size on is looked into
_LEVELS = 6  # containers that are looked into, counted from the top
_MANY = 64  # entries: a map with more is split in C, one piece per entry
_TINY = 64  # bytes: very many elements that are smaller on average are taken in runs

_encode_c = msgspec.msgpack.Encoder().encode

#: Encodings of the elements of lists, by the ``id`` of the list, and none.
_Encoded: TypeAlias = Mapping[int, list[bytes]]
_NOTHING: Final[_Encoded] = {}


class Absent:
    """The type of ABSENT."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent()
"""There is no payload. Not the same as the payload None."""


def encode(value: object, *, census: Census | None = None) -> bytes:
    """The structured encoding of ``value`` (MessagePack, spec chapter 02).

    Raises ValueEncodingError with the JSON pointer of the first part that cannot be stored: an object outside the
    table, more than MAX_DEPTH nested containers, a surrogate pair in two halves. ``census`` is that of ``value``
    from ``survey``, for a caller who has it already.
    """
    if census is None:
        census = survey(value)
    return _encode(census)


def _encode(census: Census) -> bytes:
    if census.low >= _MIN_INT and census.high <= _MAX_INT:
        try:
            return _encode_c(census.value)
        except (UnicodeEncodeError, RecursionError):
            pass  # lone surrogates, or too little room on the caller's stack
    return on_fresh_stack(lambda: _slow(census.value))


def _encode_any(value: Any) -> bytes:
    """The encoding of a plain value, part of one whose census has been taken."""
    try:
        return _encode_c(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return on_fresh_stack(lambda: _slow(value))


def _slow(value: Any) -> bytes:
    """The encoding of any plain value: the rules one by one, with the path at hand for errors."""
    out: list[bytes] = []
    _write(value, out, None)
    return b"".join(out)


def _write(value: Any, out: list[bytes], path: Path) -> None:
    cls = type(value)
    if cls is dict:
        out.append(_map_header(len(value)))
        for key, child in value.items():
            _write(key, out, (path, key))
            _write(child, out, (path, key))
    elif cls is list or cls is tuple:
        out.append(_array_header(len(value)))
        for index, child in enumerate(value):
            _write(child, out, (path, index))
    elif cls is int and not _MIN_INT <= value <= _MAX_INT:
        size = (value if value >= 0 else ~value).bit_length() // 8 + 1
        out.append(_ext(_EXT_BIG_INT, value.to_bytes(size, "big", signed=True)))
    elif cls is str:
        try:
            out.append(_encode_c(value))
        except UnicodeEncodeError:
            if _PAIR.search(value):
                raise ValueEncodingError(
                    "a string holds the two halves of a surrogate pair as separate characters",
                    path=pointer(path),
                    hint='join them with text.encode("utf-16", "surrogatepass").decode("utf-16")',
                ) from None
            out.append(_ext(_EXT_SURROGATES, value.encode("utf-8", "surrogatepass")))
    else:
        out.append(_encode_c(value))


def _map_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x80 | count,))
    return b"\xde" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdf" + count.to_bytes(4, "big")


def _array_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


_FIXED_EXT = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}


def _ext(code: int, data: bytes) -> bytes:
    size = len(data)
    if size in _FIXED_EXT:
        return bytes((_FIXED_EXT[size], code)) + data
    if size < 1 << 8:
        return bytes((0xC7, size, code)) + data
    if size < 1 << 16:
        return struct.pack(">BHB", 0xC8, size, code) + data
    return struct.pack(">BIB", 0xC9, size, code) + data


def decode(data: bytes | memoryview) -> Any:
    """The value whose structured encoding is ``data``; arrays come back as lists (in map keys as tuples).

    Raises FormatError for anything that ``encode`` would not have written: bytes that are no MessagePack or go on
    behind the value, other extension types, equal map keys, other than the shortest forms, too deep a nesting.
    """
    if type(data) is bytes and len(data) < _SHORT:
        try:
            value = _decode_c(data)
            # Neither a timestamp nor nested too deep, as a glance at the bytes tells; the form is what is left.
            if (
                (0xFF not in data or _no_timestamp(data))  # one byte is found much faster than two
                and (len(data) < MAX_DEPTH or len(data.translate(None, _NO_CONTAINERS)) < MAX_DEPTH)
                and _encode_c(value) == data
            ):
                return value
        except Exception:  # whatever it is, the rules one by one find it again
            pass
    try:
        return _decode(data)
    except RecursionError:
        pass
    try:
        return on_fresh_stack(lambda: _decode(data))
    except RecursionError:
        raise FormatError(f"value nested deeper than {MAX_DEPTH} containers") from None


def decode_plain(encodings: Sequence[bytes]) -> list[Any] | None:
    """`decode` of several; None where one is not sound, or is not plain.

    Plain are None, booleans, integers of up to `SAFE_INT`, text, and few levels of lists and maps with string keys.
    """
    return _decode_all(_few_levels(None | bool | Annotated[int, Meta(ge=-SAFE_INT, le=SAFE_INT)] | str), encodings)


def decode_together(encodings: Sequence[bytes]) -> list[Any] | None:
    """`decode` of several; None where they have to be decoded one by one."""
    # Types tell that nothing is nested too deep, and that there are no times, as fast as without them.
    values = _decode_all(_few_levels(None | bool | int | float | str), encodings)
    if values is None:
        values = _decode_all(_decode_c, encodings)
        census = scan(values)
        if census.foreign or census.depth > MAX_DEPTH:
            return None
    return values


def _decode_all(decode: Callable[[bytes], Any], encodings: Sequence[bytes]) -> list[Any] | None:
    try:
        values = list(map(decode, encodings))
        # Each of them ends where it says itself: where the whole is the same, so is every part.
        return values if _encode_c(values) == b"".join((_array_header(len(values)), *encodings)) else None
    except Exception:  # whatever it is, it is found again where it belongs
        return None


@cache
def _few_levels(leaf: Any) -> Callable[[bytes], Any]:
    value = leaf
    for _ in range(5):
        value = leaf | list[value] | dict[str, value]  # type: ignore[valid-type]
    return msgspec.msgpack.Decoder(value).decode


_SHORT = 1 << 14  # bytes: in what is longer too many bytes look like containers for the glance to be worth it
_NO_CONTAINERS = bytes(set(range(256)) - {*range(0x80, 0xA0), *range(0xDC, 0xE0)})


def _no_timestamp(data: bytes) -> bool:
    """Whether the bytes hold no head of a timestamp, be it by chance."""
    return b"\xd6\xff" not in data and b"\xd7\xff" not in data and b"\xc7\x0c\xff" not in data


def _decode(data: bytes | memoryview) -> Any:
    try:
        value = _decode_c(data)
    except (FormatError, RecursionError):
        raise
    except Exception as exc:
        raise FormatError(f"not a structured value: {exc}") from exc
    census = scan(value)
    if census.foreign:  # msgspec decodes the timestamp extension by itself
        raise FormatError("extension type that is not one of this format (timestamp)")
    if census.depth > MAX_DEPTH:
        raise FormatError(f"value nested deeper than {MAX_DEPTH} containers")
    try:
        again = _encode(census)
    except ValueEncodingError as exc:  # pragma: no cover - the hook refuses everything that encoding would
        raise FormatError(f"not a structured value: {exc}") from exc
    if again != data:
        raise FormatError("structured value with equal map keys, or not in its shortest form")
    return value


def _extension(code: int, data: memoryview) -> int | str:
    raw = bytes(data)
    if code == _EXT_BIG_INT:
        number = int.from_bytes(raw, "big", signed=True)
        if _MIN_INT <= number <= _MAX_INT:
            raise FormatError("big integer that fits an ordinary one")
        return number  # that its form is minimal is seen when it is encoded again
    if code == _EXT_SURROGATES:
        try:
            text = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as exc:
            raise FormatError("surrogate string that is not generalized UTF-8") from exc
        if not _SURROGATE.search(text):
            raise FormatError("surrogate string without a lone surrogate")
        if _PAIR.search(text):
            raise FormatError("surrogate string with a pair in two halves")
        return text
    raise FormatError(f"extension type {code} that is not one of this format")


_decode_c = msgspec.msgpack.Decoder(ext_hook=_extension).decode


def encode_pieces(value: object, *, census: Census | None = None) -> list[bytes]:
    """``encode(value)`` in pieces: ``b"".join(encode_pieces(value)) == encode(value)``.

    The cuts lie where the requests of an agent repeat: around the entries of maps near the top, around the elements
    of lists of containers, and inside large elements. Headers and small entries are glued to their neighbours, and
    an encoding under 4 KiB is one piece. The cuts are no part of the format. Raises as ``encode`` does.
    """
    if census is None:
        census = survey(value)
    if type(census.value) not in _CONTAINERS:
        return [_encode(census)]
    return _pieces(census)


def _pieces(census: Census, encoded: _Encoded = _NOTHING) -> list[bytes]:
    value = census.value
    fits = census.low >= _MIN_INT and census.high <= _MAX_INT
    if fits and census.count <= _MANY:
        # What most payloads are.
        try:
            whole = _encode_c(value)
            if len(whole) < _WHOLE:
                return [whole]
        except (UnicodeEncodeError, RecursionError):
            pass
    if fits:
        try:
            return _cut_whole(value, _encode_c, encoded)
        except (UnicodeEncodeError, RecursionError):
            pass
    try:
        return on_fresh_stack(lambda: _cut_whole(value, _encode_any))
    except ValueEncodingError:
        _encode(census)  # raises the same error, with the path from the top
        raise  # pragma: no cover


def _cut_whole(value: Any, enc: Callable[[Any], bytes], encoded: _Encoded = _NOTHING) -> list[bytes]:
    pieces: list[bytes] = []
    glue: list[bytes] = []
    _cut(value, enc, pieces, glue, _LEVELS, encoded)
    if glue:
        pieces.append(b"".join(glue))
    if sum(map(len, pieces)) < _WHOLE:
        return [b"".join(pieces)]
    return pieces


def _cut(
    value: Any, enc: Callable[[Any], bytes], pieces: list[bytes], glue: list[bytes], levels: int, encoded: _Encoded
) -> None:
    """Append the pieces of ``value``; ``glue`` holds what is to precede the next piece and is not one itself."""
    if type(value) is dict:
        inner = set(map(type, value.values()))
        if levels == 0:
            _place(enc(value), pieces, glue)
        elif len(value) <= _MANY:
            glue.append(_map_header(len(value)))
            for key, child in value.items():
                glue.append(enc(key))
                if levels > 1 and type(child) in _CONTAINERS and child:
                    _cut(child, enc, pieces, glue, levels - 1, encoded)
                else:
                    _place(enc(child), pieces, glue)
        elif inner.isdisjoint(_CONTAINERS) and inner.isdisjoint((str, bytes)):
            _place(enc(value), pieces, glue)
        else:
            glue.append(_map_header(len(value)))
            _place_all(list(map(add, map(enc, value), map(enc, value.values()))), pieces, glue)
    elif not value or levels == 0:
        _place(enc(value), pieces, glue)
    else:
        inner = set(map(type, value))
        if inner.isdisjoint(_CONTAINERS) and inner.isdisjoint((str, bytes)):
            _place(enc(value), pieces, glue)
            return
        glue.append(_array_header(len(value)))
        parts = encoded.get(id(value)) or list(map(enc, value))
        if levels > 1 and max(map(len, parts)) >= _DIVIDE:
            done = 0
            for index, size in enumerate(map(len, parts)):
                if size >= _DIVIDE and _has_containers(value[index]):
                    if done < index:
                        _flush(pieces, glue)
                        pieces.extend(parts[done:index])
                    _cut(value[index], enc, pieces, glue, levels - 1, encoded)
                    done = index + 1
            if done < len(parts):
                _flush(pieces, glue)
                pieces.extend(parts[done:])
        else:
            _place_all(parts, pieces, glue)


def _has_containers(value: Any) -> bool:
    if type(value) not in _CONTAINERS:
        return False
    inside = value.values() if type(value) is dict else value
    return not _CONTAINERS.isdisjoint(map(type, inside))


def _place(part: bytes, pieces: list[bytes], glue: list[bytes]) -> None:
    if len(part) < _GLUE:
        glue.append(part)
    else:
        _flush(pieces, glue)
        pieces.append(part)


def _place_all(parts: list[bytes], pieces: list[bytes], glue: list[bytes]) -> None:
    """One piece each; as glue when all are small together; in runs when there are very many of a few bytes."""
    total = sum(map(len, parts))
    if total < _GLUE and len(parts) < _MANY:
        glue.extend(parts)
        return
    _flush(pieces, glue)
    if len(parts) > 4 * _MANY and total < _TINY * len(parts):
        # Runs are counted from the first, so that appending to the list leaves all but the last as they were.
        parts = [b"".join(parts[start : start + _MANY]) for start in range(0, len(parts), _MANY)]
    pieces.extend(parts)


def _flush(pieces: list[bytes], glue: list[bytes]) -> None:
    if glue:
        pieces.append(b"".join(glue))
        glue.clear()


def encode_payload(value: object, *, census: Census | None = None) -> tuple[int, bytes]:
    """The encoding number and bytes of a payload: ABSENT, text, bytes, or any other value.

    Raises ValueEncodingError as ``encode`` does.
    """
    number, pieces = _payload(value, census, cut=False)
    return number, pieces[0] if pieces else b""


def payload_pieces(
    value: object, *, census: Census | None = None, encoded: _Encoded = _NOTHING
) -> tuple[int, list[bytes]]:
    """``encode_payload`` with the bytes in pieces as of ``encode_pieces``; none for ABSENT.

    ``encoded`` may have a list in ``value``, or several, by ``id``: the encodings of its elements.
    """
    if census is not None and census.texts is not None and type(census.value) in _CONTAINERS:
        # What most payloads are: a few values, whose integers are small.
        try:
            whole = _encode_c(census.value)
            if len(whole) < _WHOLE:
                return ENCODING_STRUCTURED, [whole]
        except (UnicodeEncodeError, RecursionError):
            pass
    return _payload(value, census, cut=True, encoded=encoded)


def _payload(
    value: object, census: Census | None, *, cut: bool, encoded: _Encoded = _NOTHING
) -> tuple[int, list[bytes]]:
    if value is ABSENT:
        return ENCODING_NONE, []
    if census is None:
        census = survey(value)
    plain = census.value
    if type(plain) in _CONTAINERS:
        return ENCODING_STRUCTURED, _pieces(census, encoded) if cut else [_encode(census)]
    if type(plain) is bytes:
        return ENCODING_BYTES, [plain]
    if type(plain) is str:
        try:
            return ENCODING_TEXT, [plain.encode()]
        except UnicodeEncodeError:
            pass
    return ENCODING_STRUCTURED, [_encode(census)]


def decode_payload(encoding: int, data: bytes | memoryview) -> Any:
    """The payload that ``encode_payload`` gave as ``(encoding, data)``; ABSENT for encoding 0.

    Raises FormatError for an unknown encoding number and for data that is not in that encoding.
    """
    if encoding == ENCODING_STRUCTURED:
        return decode(data)
    if encoding == ENCODING_TEXT:
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as exc:
            raise FormatError(f"text payload is not UTF-8: {exc}") from exc
    if encoding == ENCODING_BYTES:
        return bytes(data)
    if encoding == ENCODING_NONE:
        if len(data):
            raise FormatError("absent payload that has bytes")
        return ABSENT
    raise FormatError(f"unknown payload encoding {encoding}")
