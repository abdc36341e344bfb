"""Keeps credentials out of whatever a person or a log may see."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

__all__ = ["CredentialFilter", "links", "safe_url"]

HIDDEN: Final = "***"

# Options whose values are no secret; any other text in the options is treated as one.
_PUBLIC: Final = frozenset(
    {"region_name", "project", "account_name", "default_location", "signature_version", "addressing_style", "host"}
    | {"access", "consistency", "profile", "username", "protocol", "target_protocol"}
)
# Up to the last "@": a password may have one.
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]*@")
_USER_INFO_OF_URL = re.compile(r"(?<=://)[^/?#]*@")
# The whole query goes: which of its parameters are secret differs from store to store.
_QUERY = re.compile(r"(?<=\S)\?[^\s'\"<>]*=[^\s'\"<>]*")
_PARAMETER = re.compile(
    r"(?i)\b(x-amz-[a-z-]+|x-goog-[a-z-]+|signature|awsaccesskeyid|sig|se|sp|token|access_token|authorization|password)"
    r"(['\"]?\s*(?:=|%3D|:)\s*['\"]?)(bearer\s+|basic\s+|aws4-hmac-sha256\s+)?[^\s&'\"<>,]+"
)


def links(url: str) -> list[str]:
    """The parts of a chained URL (``zip::https://…``); one of any other. Colons of an IPv6 address part nothing."""
    return re.split(r"::(?![^][/]*\])", url)


def safe_url(url: str) -> str:
    """``url`` without user, password, query and fragment; chained URLs part by part."""
    # Of the whole first: a password may look like a chain.
    parts = links(_USER_INFO_OF_URL.sub("", url))
    return "::".join(re.split(r"[?#]", part, maxsplit=1)[0] if "://" in part else part for part in parts)


class CredentialFilter:
    """Removes from texts what looks like a credential, and what is known to be one from the options and the URL."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        secrets = set(_secrets(options))
        for part in links(url):
            if "://" in part:
                secrets.update(_secrets_of_url(part))
        # Short values would blank out half of a message, and guard nothing.
        wanted = {text for text in secrets if len(text) >= 4}
        wanted |= {quote(text, safe="") for text in wanted}
        self._secrets: Sequence[str] = sorted(wanted, key=len, reverse=True)

    def clean(self, text: str) -> str:
        """``text`` on one line, at most 300 characters, without credentials."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        text = _USER_INFO.sub("", text)
        text = _QUERY.sub("", text)
        text = _PARAMETER.sub(rf"\1\2{HIDDEN}", text)
        text = " ".join(text.split())
        return text if len(text) <= 300 else f"{text[:300]}…"

    def __repr__(self) -> str:
        return "CredentialFilter()"


def _secrets(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, str(key))
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _secrets(item, name)
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, str) and name not in _PUBLIC:
        if "://" in value:  # an endpoint: its host is no secret, what stands before and after it may be
            yield from _secrets_of_url(value)
        else:
            yield value
    elif hasattr(value, "get_secret_value"):
        yield str(value.get_secret_value())


def _secrets_of_url(url: str) -> Iterator[str]:
    split = urlsplit(url)
    if split.password:
        yield from (split.password, unquote(split.password))
    for pair in split.query.split("&"):
        value = pair.partition("=")[2]
        yield from (value, unquote(value))
