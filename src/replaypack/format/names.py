"""Names of recordings, keys of objects, and locators (spec chapters 06 and 07)."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from replaypack.errors import InvalidLocatorError, InvalidNameError

__all__ = [
    "LATEST",
    "MARKER",
    "Locator",
    "ManifestKey",
    "SignatureKey",
    "check_name",
    "is_name",
    "latest_key",
    "manifest_parts",
    "open_key",
    "pack_key_of",
    "pack_of_key",
    "parse_locator",
    "revision_key",
    "sibling_name",
    "signature_key",
    "signature_of",
    "signature_parts",
]

MARKER = "replaypack.json"
LATEST = "latest.json"
_MAX_NAME = 512
#: What a directory may be called on common file systems.
_MAX_SEGMENT = 255
_MANIFEST = re.compile(r"recordings/(?P<name>.+)/(?:(?P<revision>\d{8})(?P<open>\.open)?|latest)\.json")
_SIGNATURE = re.compile(r"recordings/(.+)/([0-9a-f]{64})\.([0-9a-f]{16})\.dsse\.json")
_PACK = re.compile(r"packs/[0-9a-f]{2}/([0-9a-f]{64})\.rpk")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_REVISION = re.compile(r"[1-9][0-9]{0,7}")
_DEVICES = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10))}


class Locator(NamedTuple):
    """``URL#name`` or ``URL#name@revision``."""

    url: str
    name: str
    revision: int | None

    def __str__(self) -> str:
        return f"{self.url}#{self.name}" + (f"@{self.revision}" if self.revision is not None else "")


def check_name(name: str) -> str:
    """Return ``name`` if it may name a recording; raises `InvalidNameError` that says which rule it breaks."""

    def refuse(why: str) -> InvalidNameError:
        return InvalidNameError(
            f"{name!r} cannot name a recording: {why}",
            hint="names are segments of letters, digits, '.', '_' and '-' joined by '/', "
            "at most 255 bytes each and 512 in all",
        )

    if not isinstance(name, str) or not name:
        raise refuse("it is empty" if name == "" else "it is not a string")
    if len(name) > _MAX_NAME:
        raise refuse(f"it has {len(name)} characters")
    for segment in name.split("/"):
        if not segment:
            raise refuse("a segment is empty")
        if not _SEGMENT.fullmatch(segment):
            raise refuse(f"{segment!r} has other characters")
        if len(segment) > _MAX_SEGMENT:
            raise refuse(f"a segment has {len(segment)} characters, more than {_MAX_SEGMENT}")
        if segment in (".", "..") or segment.lower().endswith((".", ".json")):
            raise refuse(f"the segment {segment!r} is '.', '..', or ends in '.' or '.json'")
        if segment.split(".")[0].lower() in _DEVICES:
            raise refuse(f"the segment {segment!r} is a device name on Windows")
    return name


def is_name(name: str) -> bool:
    """Whether ``name`` may name a recording."""
    try:
        check_name(name)
    except InvalidNameError:
        return False
    return True


def parse_locator(text: str) -> Locator:
    """Take ``URL#name`` or ``URL#name@revision`` apart.

    Raises `InvalidLocatorError` or `InvalidNameError`. The URL is not looked at.
    """
    if not isinstance(text, str):
        raise InvalidLocatorError(f"a locator is text, not {type(text).__name__}")
    url, mark, fragment = text.rpartition("#")
    if not mark or not url or not fragment:
        raise InvalidLocatorError(
            f"{text!r} is not a locator", hint="write URL#name or URL#name@revision, e.g. ./runs#nightly/42"
        )
    name, at, revision = fragment.partition("@")
    if at and not _REVISION.fullmatch(revision):
        raise InvalidLocatorError(f"{revision!r} is not a revision number", hint="write e.g. URL#name@2")
    return Locator(url, check_name(name), int(revision) if at else None)


def sibling_name(name: str, writer: str) -> str:
    """The recording that keeps the records of ``writer`` (16 hex digits) when it loses ``name`` to another."""
    for candidate in (f"{name}.{writer}", f"{name[:200]}-.{writer}"):
        try:
            return check_name(candidate)
        except InvalidNameError:
            continue
    return f"sibling.{writer}"


def revision_key(name: str, revision: int) -> str:
    """Key of the manifest of one revision."""
    return f"recordings/{name}/{revision:08d}.json"


def open_key(name: str, revision: int) -> str:
    """Key of what the recorder that claimed ``revision`` has published so far."""
    return f"recordings/{name}/{revision:08d}.open.json"


def latest_key(name: str) -> str:
    """Key of the copy of the newest manifest."""
    return f"recordings/{name}/{LATEST}"


def signature_key(name: str, content_digest: str, key_id: str) -> str:
    """Key of a signature over the content (64 hex digits) by the key of that id (its first 16 hex digits count)."""
    return f"recordings/{name}/{content_digest}.{key_id[:16]}.dsse.json"


class ManifestKey(NamedTuple):
    """What the key of a manifest says; ``revision`` is None of ``latest``."""

    name: str
    kind: Literal["revision", "open", "latest"]
    revision: int | None


def manifest_parts(key: str) -> ManifestKey | None:
    """Take the key of a manifest of any kind apart; None for other objects."""
    match = _MANIFEST.fullmatch(key)
    if match is None or not is_name(match["name"]):
        return None
    if match["revision"] is None:
        return ManifestKey(match["name"], "latest", None)
    return ManifestKey(match["name"], "open" if match["open"] else "revision", int(match["revision"]))


class SignatureKey(NamedTuple):
    """What the key of a signature says: the recording, its content digest, the id of the key (16 hex digits)."""

    name: str
    content: str
    key_id: str


def signature_of(key: str) -> SignatureKey | None:
    """Take the key of a signature apart; None for other objects. The name is not looked at."""
    match = _SIGNATURE.fullmatch(key)
    return SignatureKey(*match.groups()) if match else None


def signature_parts(name: str, key: str) -> tuple[str, str] | None:
    """Content digest and key id (16 hex digits) of a signature of the recording ``name``; None for other objects."""
    found = signature_of(key)
    return (found.content, found.key_id) if found is not None and found.name == name else None


def pack_of_key(key: str) -> str | None:
    """The digest (64 hex digits) that the key of a pack names, in whatever directory; None for other objects."""
    match = _PACK.fullmatch(key)
    return match[1] if match else None


def pack_key_of(digest: str) -> str:
    """Key of the pack whose bytes have the BLAKE3-256 ``digest`` (64 hex digits)."""
    return f"packs/{digest[:2]}/{digest}.rpk"
