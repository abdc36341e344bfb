"""Values that are known to be secret, in every form in which they may stand in what is recorded."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

from replaypack.errors import UsageError

__all__ = ["MAX_SECRETS", "MIN_SECRET", "KnownSecrets"]

#: A shorter value (characters) is not accepted: it would be found in what has nothing to do with it.
MIN_SECRET: Final = 6
MAX_SECRETS: Final = 1000


class KnownSecrets:
    """Secret values; never changed once made, `adding` makes another. Their ``repr`` does not show them."""

    __slots__ = ("_values", "aligned", "plain", "plain_bytes", "raw")

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        self._values = frozenset(values)
        if len(self._values) > MAX_SECRETS:
            raise UsageError(f"more than {MAX_SECRETS} secrets")
        plain: set[str] = set()
        aligned: set[str] = set()
        for value in self._values:
            plain |= _plain(value)
            aligned |= _aligned(value)
        #: Forms to be replaced where they stand, longest first: one may be part of another.
        self.plain = sorted(plain, key=lambda form: (-len(form), form))
        #: The same in bytes that are read as Latin-1.
        self.plain_bytes = sorted({_as_latin(form) for form in plain}, key=lambda form: (-len(form), form))
        #: What base64 text has in it where the secret is in what it encodes.
        self.aligned = sorted(aligned)
        self.raw = sorted(self._values)

    def __repr__(self) -> str:
        return f"KnownSecrets(<{len(self._values)}>)"

    def __bool__(self) -> bool:
        return bool(self._values)

    def adding(self, values: Iterable[str | bytes]) -> KnownSecrets:
        """These and ``values``; the same object where all are known. Raises `UsageError` for one that is too short."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise UsageError("secrets are several values: give a list")
        more: set[bytes] = set()
        for value in values:
            if not isinstance(value, str | bytes):
                raise UsageError(f"a secret is text or bytes, not {type(value).__name__}")
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            data = data.strip()
            if len(data) < MIN_SECRET:
                raise UsageError(
                    f"a secret has at least {MIN_SECRET} bytes",
                    hint="a shorter one would be found in what has nothing to do with it; remove it by its name",
                )
            more.add(data)
        return self if more <= self._values else KnownSecrets(self._values | more)


def _plain(value: bytes) -> set[str]:
    """The value as it is, and as JSON, URLs, HTML and Python write it."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {value.decode("latin-1"), quote(value, safe="")}
    forms = {text, text.replace("/", "\\/"), repr(text)[1:-1], html.escape(text), html.escape(text, quote=False)}
    for ascii_only in (True, False):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        forms |= {once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]}
    for coded in (quote(value, safe=""), quote(value), quote_plus(value), quote(value, safe="!$&'()*+,;=:@/?~-._")):
        forms |= {coded, _lower_hex(coded)}
    return forms


def _lower_hex(coded: str) -> str:
    head, *rest = coded.split("%")
    return head + "".join("%" + part[:2].lower() + part[2:] for part in rest)


def _as_latin(form: str) -> str:
    return form if form.isascii() else form.encode("utf-8", "surrogatepass").decode("latin-1")


def _aligned(value: bytes) -> set[str]:
    """The characters of base64 that the value alone decides, for each of the places where it may begin."""
    forms = set()
    for offset in range(3):
        coded = base64.b64encode(bytes(offset) + value).decode()
        part = coded[(offset * 8 + 5) // 6 : (offset + len(value)) * 8 // 6]
        forms |= {part, part.replace("+", "-").replace("/", "_")}
    return forms
