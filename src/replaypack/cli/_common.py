"""What the commands share: options, and how a URL or locator becomes an archive or recording."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replaypack.errors import DAMAGED, ReplaypackError, StorageUnsupportedError, UsageError

from ._text import escape

if TYPE_CHECKING:
    from replaypack import Archive, MatchPolicy, Recording
    from replaypack.format.names import Locator

__all__ = [
    "JsonFlag",
    "LocatorArgument",
    "MatchOption",
    "OptionList",
    "UrlArgument",
    "archive_at",
    "located",
    "match_of",
    "note_dead",
    "opened",
    "reading",
    "recording_at",
    "say_what_helps",
    "size_of",
    "storage_options",
    "values_of",
]

_PROTOCOLS = ("s3", "gs", "az", "https", "file", "memory")
#: A note on an error whose message names the recording.
_NAMED = "named"
ENVIRONMENT = "REPLAYPACK_STORAGE_OPTIONS"

JsonFlag = Annotated[bool, typer.Option("--json", help="Write JSON: one document on standard output.")]
OptionList = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help="Option of the filesystem behind the URL; VALUE may be JSON, KEY may be dotted. Repeatable. "
        f"{ENVIRONMENT} holds more of them as one JSON object.",
    ),
]
UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="A directory, s3://…, gs://…, https://…")]
MatchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--match",
        metavar="NAME",
        help="A match policy: what of a call does not count for its key. A ready-made one (uuids, timestamps, "
        "tool-call-ids, message-ids, none), or @FILE with one as JSON. Repeatable.",
    ),
]
LocatorArgument = Annotated[str, typer.Argument(metavar="LOCATOR", help="URL#name or URL#name@revision")]


def storage_options(options: list[str] | None) -> dict[str, Any]:
    """Options of the environment, and over them those of the command line. Values are never shown: some are secret."""
    result: dict[str, Any] = {}
    text = os.environ.get(ENVIRONMENT)
    if text:
        try:
            result = json.loads(text)
        except (ValueError, RecursionError):
            result = None  # type: ignore[assignment]
        if not isinstance(result, dict):
            raise UsageError(f"{ENVIRONMENT} is not a JSON object", hint='write e.g. {"anon": true}')
    for option in options or ():
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise UsageError("an --option is not KEY=VALUE", hint="write e.g. --option anon=true")
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = value
        target = result
        *parents, last = key.split(".")
        for parent in parents:
            inner = target.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise UsageError(f"--option {key}: {parent} is not an object")
            target = inner
        target[last] = parsed
    return result


def archive_at(url: str, options: list[str] | None) -> Archive:
    """The archive at a URL."""
    if "#" in url:
        raise UsageError(f"{url!r} names one recording; this command takes the URL of an archive")
    if not url:
        raise UsageError("the URL is empty")
    from replaypack import Archive

    try:
        return Archive(url, storage_options(options))
    except StorageUnsupportedError as error:
        protocol, mark, _ = url.partition("://")
        near = difflib.get_close_matches(protocol.lower(), _PROTOCOLS, n=1, cutoff=0.4) if mark else []
        if error.hint is None and near and near[0] != protocol:
            error.hint = f"did you mean {near[0]}://?"
        raise


def located(locator: str, options: list[str] | None) -> tuple[Archive, Locator]:
    """The archive that a locator is in, and the locator."""
    from replaypack.format.names import parse_locator

    at = parse_locator(locator)
    return archive_at(at.url, options), at


def match_of(names: list[str] | None) -> MatchPolicy | None:
    """The match policy of ``--match`` options; None where there are none."""
    if not names:
        return None
    from pathlib import Path

    from replaypack import MatchPolicy

    parts: list[Any] = []
    for name in names:
        if not name.startswith("@"):
            parts += [part.strip() for part in name.split(",")]
            continue
        try:
            parts.append(json.loads(Path(name[1:]).read_text("utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"--match {name}: {error}", hint="write a policy as it stands in a manifest") from None
        if not isinstance(parts[-1], dict):
            raise UsageError(f"--match {name} holds no match policy", hint="an object with name, version and rules")
    return MatchPolicy.of(parts)


def opened(
    locator: str, options: list[str] | None, *, fresh: bool = False, match: list[str] | None = None
) -> Recording:
    """The recording that a locator names. For commands that read other things beside it; else `recording_at`."""
    archive, at = located(locator, options)
    policy = match_of(match)
    with reading(at.url, at.name):
        recording = archive.open(at.name, at.revision, fresh=fresh, match=policy)
    recording.owns_storage = True
    return recording


@contextmanager
def recording_at(
    locator: str, options: list[str] | None, *, fresh: bool = False, match: list[str] | None = None
) -> Iterator[Recording]:
    """The recording that a locator names. An error of damage says that it is the one that is damaged."""
    from replaypack.format.names import parse_locator

    recording = opened(locator, options, fresh=fresh, match=match)
    at = parse_locator(locator)
    with reading(at.url, at.name), recording:
        yield recording


@contextmanager
def reading(url: str, name: str) -> Iterator[None]:
    """Where nothing but one recording is read: an error of damage names it, and says what helps."""
    try:
        yield
    except DAMAGED as error:
        if _NAMED not in getattr(error, "__notes__", ()):
            error.message = f"{name}: {error.message}"
            say_what_helps(error, url, name)
            error.add_note(_NAMED)
        raise


def say_what_helps(error: ReplaypackError, url: str, name: str) -> None:
    """Give an error of damage to a recording its hint, if it has none."""
    error.hint = error.hint or f"see what `verify` says of {url}#{name}, or `recover` it into another place"


def note_dead(archive: Archive, names: Collection[str]) -> None:
    """Say on standard error which of these recordings, which are open, have a recorder that died on this machine."""
    dead = sorted({leftover.head.name for leftover in archive.leftovers()} & set(names)) if names else []
    if dead:
        which = ", ".join(dead[:5]) + (", …" if len(dead) > 5 else "")
        note = f"note: who recorded {which} died: `replaypack recover {archive.url}` finishes what is there"
        print(escape(note), file=sys.stderr)


def values_of(variables: list[str]) -> list[str]:
    """The values of environment variables (``--secret-env``). Raises `UsageError` where one is missing or short."""
    from replaypack.policies.redaction import secrets_of_environment

    for name in variables:
        if not os.environ.get(name):
            raise UsageError(f"the environment variable {name} is not set, or empty")
    return secrets_of_environment(variables)


def size_of(recording: Recording) -> int:
    """Bytes of the packs that a recording uses."""
    return sum(pack.size for pack in recording.index.packs)
