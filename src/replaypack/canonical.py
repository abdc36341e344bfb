"""Canonical JSON, and the keys made of it: RFC 8785 (JCS) with the extensions of spec chapter 03.

Equal values have equal canonical bytes and different values different ones. Maps are equal whatever their order,
numbers when their values are, tuples and lists alike. RFC 8785 covers I-JSON (RFC 7493); the extensions give what
lies outside of it a form of its own: integers that no double holds, lone surrogates, bytes and sets.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from replaypack._digest import digest, digests
from replaypack._plain import MAX_DEPTH, SAFE_BITS, SAFE_INT, Census, Path, on_fresh_stack, pointer, scan, survey
from replaypack.errors import CanonicalizationError, UsageError, ValueEncodingError

__all__ = ["SplitIdentity", "canonical_json", "key_digest", "key_digests", "key_of_canonical", "opaque_key", "split_at"]

_SPECIAL = frozenset({int, float, bytes})
_STR_ONLY = frozenset({str})
_BYTES_MARKER = re.compile(r"\$+bytes\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_PRIVATE_UP = re.compile("[\ue000-\uffff]")
_DIGITS = 4000  # Python converts at most 4300 digits at once unless told otherwise.

_FEW = 64  # values of an identity that are looked at one by one
_COPY = 16_384  # bytes up to which one copy is cheaper than hashing in steps

_MANY_NAMES, _SHORT_NAME = 4096, 64

_encode = msgspec.json.Encoder(order="sorted").encode
#: Names of fields that were seen to be printed as they are.
_plain_names: set[str] = set()


def canonical_json(value: object, *, census: Census | None = None) -> bytes:
    """The canonical JSON of ``value``, as UTF-8.

    Takes None, bool, int, float, str, bytes, lists, maps with string keys, and the objects of the table in spec
    chapter 02 (sets among them). Raises CanonicalizationError with the JSON pointer of the first part that has no
    canonical form: NaN, an infinity, a map key that is not a string, a surrogate pair in two halves, an object
    outside the table, more than 256 nested containers.

    ``census`` is that of ``value`` from ``survey``, for a caller who has it already.
    """
    if census is None:
        census = survey(value, CanonicalizationError)
    value = census.value
    if census.key_types <= _STR_ONLY and not _keys_need_care(census.keys):
        try:
            if census.special_level < 0:
                return _encode(value)
            level = census.special_level
            return on_fresh_stack(lambda: _encode(_for_c(value, level)))
        except (_NotFinite, UnicodeEncodeError, RecursionError):
            pass  # The walk below names the place, escapes the surrogate, or gets a fresh stack.
    return on_fresh_stack(lambda: _slow(value))


def key_digest(kind: str, identity: object, *, census: Census | None = None) -> bytes:
    """The key (32 bytes): BLAKE3-256 of the canonical JSON of ``[kind, identity]``.

    ``kind`` (str) is the record kind, ``identity`` whatever tells one call from another. Raises
    CanonicalizationError as ``canonical_json`` does, with paths inside ``identity``.
    """
    if type(kind) is str and (_prints_as_is(identity) if census is None else _all_prints_as_is(census)):
        try:
            return digest(_encode((kind, identity if census is None else census.value)))
        except (UnicodeEncodeError, RecursionError, TypeError):
            pass
    return key_of_canonical(kind, canonical_json(identity, census=census))


def key_digests(kinds: Sequence[str], identities: Sequence[object], *, plain: bool = False) -> list[bytes]:
    """`key_digest` of several calls, of which one look tells that they print as they are. Raises as that does.

    ``plain`` says that the caller had them from `decode_plain`.
    """
    try:
        texts = list(map(_encode, zip(kinds, identities, strict=True)))
        if not plain or not _harmless(b"".join(texts)):
            census = scan(identities)
            plain = not census.foreign and census.depth <= MAX_DEPTH and _all_prints_as_is(census)
        if plain:
            return digests(texts)
    except Exception:  # whatever it is, it is found again where it belongs
        pass
    return list(map(key_digest, kinds, identities))


def _harmless(text: bytes) -> bool:
    """Whether the C encoder puts all keys of a map in order, and none looks like the bytes marker."""
    return text.isascii() and b"$" not in text


def _prints_as_is(value: object) -> bool:
    """Whether a glance tells that the C encoder prints ``value`` as canonical JSON has it.

    What most calls are made of: a few texts, small integers and the like, whose census would cost more than the rest.
    """
    if type(value) is dict and _plain_names.issuperset(value):
        # A name and a map of scalars, as the call of a tool has them: seen before a walk would have begun.
        for part in value.values():
            if type(part) is str:
                continue
            if type(part) is not dict or len(part) > _FEW or not _plain_names.issuperset(part):
                break
            for child in part.values():
                cls = type(child)
                if cls is str:
                    continue
                if cls is int:
                    if child.bit_length() > SAFE_BITS:
                        return False
                elif cls is not bool and child is not None:
                    return _walk_prints_as_is(value)
        else:
            return True
    return _walk_prints_as_is(value)


def _walk_prints_as_is(value: object) -> bool:
    """`_prints_as_is` of a value of any form."""
    queue: list[Any] = [value]
    for part in queue:
        cls = type(part)
        if cls is str:
            continue
        if cls is dict:
            if len(queue) + len(part) > _FEW or not (_plain_names.issuperset(part) or _learn_names(part)):
                return False
            queue += part.values()
        elif cls is int:
            if part.bit_length() > SAFE_BITS:
                return False
        elif cls is list or cls is tuple:
            if len(queue) + len(part) > _FEW:
                return False
            queue += part
        elif cls is not bool and part is not None:
            return False
    return True


def _all_prints_as_is(census: Census) -> bool:
    """Whether the C encoder prints a value, of which this is the census, as canonical JSON has it."""
    return census.special_level < 0 and census.key_types <= _STR_ONLY and not _keys_need_care(census.keys)


def _learn_names(names: Collection[object]) -> bool:
    """Whether names of fields are printed as they are; those that are will be known, for they come again."""
    for name in names:
        if type(name) is not str or not name.isascii() or "$" in name:
            return False
    if len(_plain_names) > _MANY_NAMES:
        _plain_names.clear()
    _plain_names.update(name for name in names if len(name) <= _SHORT_NAME)  # type: ignore[arg-type, misc]
    return True


def key_of_canonical(kind: str, canonical_identity: bytes) -> bytes:
    """``key_digest`` for a caller who holds the canonical JSON of the identity already."""
    if len(canonical_identity) < _COPY:
        return digest(b"".join((_head(kind), canonical_identity, b"]")))
    hasher = blake3(_head(kind))
    hasher.update(canonical_identity)
    hasher.update(b"]")
    return hasher.digest()


def opaque_key(key: str | bytes) -> bytes:
    """The key of a record whose host supplies one: BLAKE3-256 of it (text as UTF-8), 32 bytes.

    Raises `UsageError` for what is neither text nor bytes, `ValueEncodingError` for lone surrogates.
    """
    if isinstance(key, str):
        try:
            key = key.encode()
        except UnicodeEncodeError:
            raise ValueEncodingError("lone surrogates are not allowed here", path="/key") from None
    if not isinstance(key, bytes):
        raise UsageError(f"a key is text or bytes, not {type(key).__name__}")
    return digest(key)


@lru_cache(maxsize=64, typed=True)
def _head(kind: str) -> bytes:
    """What stands before the identity. There are few kinds."""
    return b"[%b," % _text(kind, None)


class SplitIdentity(NamedTuple):
    """The canonical JSON of ``[kind, identity]`` around the elements of one list at the top of the identity."""

    before: bytes
    behind: bytes

    @staticmethod
    def text(items: list[Any]) -> bytes:
        """The canonical JSON of elements of that list, with commas between them; UnicodeEncodeError for surrogates."""
        return _encode(items)[1:-1]


def split_at(kind: str, census: Census, name: str) -> SplitIdentity | None:
    """The canonical JSON of ``[kind, identity]`` around the elements of ``identity[name]``, a list in a map.

    None where the C encoder does not print all below the entries of the map as canonical JSON has it, and nothing
    that `canonical_json` would not give without an error.
    """
    value: Any = census.value
    level = census.special_level
    if level > 1 or not census.key_types <= _STR_ONLY or _keys_need_care(census.keys):
        return None
    before = [_head(kind), b"{"]
    behind = [b"]"]
    try:
        for key in sorted(value):
            if key == name:
                before.append(b"%b:[" % _encode(key))
                continue
            child = value[key]
            text = _encode(_special(child) if level == 1 and type(child) in _SPECIAL else child)
            if key < name:
                before.append(b"%b:%b," % (_encode(key), text))
            else:
                behind.append(b",%b:%b" % (_encode(key), text))
    except (_NotFinite, UnicodeEncodeError, RecursionError):
        return None
    behind.append(b"}]")
    return SplitIdentity(b"".join(before), b"".join(behind))


class _NotFinite(Exception):
    """A NaN or an infinity; the caller does not know where."""


def _keys_need_care(keys: Collection[Any]) -> bool:
    """Whether the C encoder may order ``keys`` wrongly (it sorts by code point), or one looks like the bytes marker."""
    text = "".join(keys)
    if "$" in text and any(map(_BYTES_MARKER.match, keys)):
        return True
    # Code point order and UTF-16 order differ only between astral characters and U+E000 to U+FFFF.
    return not text.isascii() and _ASTRAL.search(text) is not None and _PRIVATE_UP.search(text) is not None


def _for_c(value: Any, level: int) -> Any:
    """A copy of ``value`` in which, down to ``level``, numbers and bytes are replaced by what prints right in C."""
    cls = type(value)
    if cls in _SPECIAL:
        return _special(value)
    if level == 0:
        return value
    # Scalars are dealt with here rather than in a call of their own: most children are some.
    if cls is dict:
        result = {}
        for key, child in value.items():
            kind = type(child)
            if kind is dict or kind is list or kind is tuple:
                result[key] = _for_c(child, level - 1)
            else:
                result[key] = _special(child) if kind in _SPECIAL else child
        return result
    if cls is list or cls is tuple:
        items = []
        for child in value:
            kind = type(child)
            if kind is dict or kind is list or kind is tuple:
                items.append(_for_c(child, level - 1))
            else:
                items.append(_special(child) if kind in _SPECIAL else child)
        return items
    return value


def _special(value: int | float | bytes) -> object:
    if type(value) is int:
        return value if -SAFE_INT <= value <= SAFE_INT else msgspec.Raw(_int_text(value).encode())
    if type(value) is float:
        if value - value != 0.0:
            raise _NotFinite
        return msgspec.Raw(_float_text(value).encode())
    return msgspec.Raw(_bytes_text(value))


def _bytes_text(value: Any) -> bytes:
    return b'{"$bytes":"%b"}' % b64encode(value)


def _slow(value: Any) -> bytes:
    """The canonical JSON of any plain value: the rules one by one, with the path at hand for errors."""
    out: list[bytes] = []
    _write(value, out, None)
    return b"".join(out)


def _write(value: Any, out: list[bytes], path: Path) -> None:
    cls = type(value)
    if cls is str:
        out.append(_text(value, path))
    elif cls is dict:
        _write_map(value, out, path)
    elif cls is list or cls is tuple:
        separator = b"["
        for index, child in enumerate(value):
            out.append(separator)
            _write(child, out, (path, index))
            separator = b","
        out.append(b"]" if separator == b"," else b"[]")
    elif cls is int:
        out.append(_int_text(value).encode())
    elif cls is float:
        if value - value != 0.0:
            raise CanonicalizationError("NaN and infinities have no canonical form", path=pointer(path))
        out.append(_float_text(value).encode())
    elif cls is bytes:
        out.append(_bytes_text(value))
    else:
        out.append(b"null" if value is None else b"true" if value else b"false")


def _write_map(value: dict[Any, Any], out: list[bytes], path: Path) -> None:
    for key in value:
        if type(key) is not str:
            raise CanonicalizationError(
                f"a map key is {type(key)!r}, and keys can only be computed of maps with string keys",
                path=pointer(path),
                hint="use strings as keys",
            )
    if len(value) == 1:
        (key,) = value
        name = "$" + key if _BYTES_MARKER.match(key) else key
        out.append(b"{%b:" % _text(name, (path, key)))
        _write(value[key], out, (path, key))
        out.append(b"}")
        return
    separator = b"{"
    for key in sorted(value, key=_utf16):
        out.append(b"%b%b:" % (separator, _text(key, (path, key))))
        _write(value[key], out, (path, key))
        separator = b","
    out.append(b"}" if separator == b"," else b"{}")


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _text(text: str, path: Path) -> bytes:
    r"""RFC 8785 section 3.2.2.2, with lone surrogates as ``\udxxx`` (ECMAScript's well-formed JSON.stringify)."""
    try:
        return _encode(text)
    except UnicodeEncodeError:
        pass
    if _PAIR.search(text):
        # In UTF-16 this is the same string as the one character, so it must not have a form of its own.
        raise CanonicalizationError(
            "a string holds the two halves of a surrogate pair as separate characters",
            path=pointer(path),
            hint='join them with text.encode("utf-16", "surrogatepass").decode("utf-16")',
        )
    parts = [b'"']
    start = 0
    for match in _SURROGATE.finditer(text):
        parts.append(_encode(text[start : match.start()])[1:-1])
        parts.append(b"\\u%04x" % ord(match.group()))
        start = match.end()
    parts.append(_encode(text[start:])[1:])
    return b"".join(parts)


def _int_text(number: int) -> str:
    """As the double of the same value prints; an integer that no double holds prints its digits and ``e0``."""
    if -SAFE_INT <= number <= SAFE_INT:
        return str(number)
    try:
        double = float(number)
    except OverflowError:
        double = 0.0
    return _float_text(double) if double == number else _decimal(number) + "e0"


def _decimal(number: int) -> str:
    """``str(number)`` at any size."""
    if number < 0:
        return "-" + _decimal(-number)
    if number.bit_length() <= 3 * _DIGITS:
        return str(number)
    half = max(number.bit_length() * 3 // 20, 1)  # about half of its decimal digits
    high, low = divmod(number, 10**half)
    return _decimal(high) + _decimal(low).rjust(half, "0")


def _float_text(number: float) -> str:
    """ECMAScript's Number::toString of a finite double (RFC 8785 section 3.2.2.3).

    Python's ``repr`` yields the same shortest digits; only their layout differs.
    """
    if number == 0.0:
        return "0"
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # ``point``: where the decimal point lies, counted from the first significant digit (ECMAScript's n).
    point = int(exponent or 0) + len(whole) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"
