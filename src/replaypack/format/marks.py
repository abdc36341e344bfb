"""``gc.json``: since when objects of an archive have been without a reference (spec chapter 08, "Deleting").

It is believed for times only, never for what is referenced. Whoever is about to name a pack that is merely there
looks here first: what is marked may be deleted at any moment, what is not stays for a grace period.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from replaypack.canonical import canonical_json

from .digests import digest

__all__ = ["MARKS", "Marks", "encode_marks", "parse_marks"]

#: Its key.
MARKS = "gc.json"
_FORMAT = "replaypack-gc"
_KEY = re.compile(r"(?:packs|recordings)/[A-Za-z0-9._/-]{1,900}")
#: Larger ones are refused, and not written (bytes).
MAX_MARKS = 16 << 20
#: Runs are counted to here: all integers up to it are the same in every JSON.
_MAX_RUN = 2**53 - 1


class Marks(NamedTuple):
    """The marks of the collector's last run.

    ``run`` counts its runs. ``since`` says of each key from when on (seconds since the epoch, by the store's clock) it
    was seen unreferenced; of those in ``new``, from when this object was written. ``tag`` is the digest of the object,
    empty where there is none. ``sound`` is false where there is one that cannot be read.
    """

    run: int = 0
    since: Mapping[str, float] = {}
    new: frozenset[str] = frozenset()
    tag: bytes = b""
    sound: bool = True

    def has(self, key: str) -> bool:
        """Whether ``key`` is marked, or may be."""
        return key in self.since or key in self.new or not self.sound

    def resolved(self, written: float) -> dict[str, float]:
        """Since when each key is marked, ``written`` being when the object was."""
        # A time to come is no time: the mark would not ripen.
        return {key: min(since, written) for key, since in self.since.items()} | dict.fromkeys(self.new, written)


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    run: int
    #: Time to keys.
    since: dict[str, list[str]]
    new: list[str]


def parse_marks(data: bytes) -> Marks:
    """Read ``gc.json``. What is not as this module writes it holds no marks and is not ``sound``."""
    tag = digest(data)
    broken = Marks(tag=tag, sound=False)
    if len(data) > MAX_MARKS:
        return broken
    try:
        document = msgspec.json.decode(data, type=_Document)
        since = {key: _seconds(time) for time, keys in document.since.items() for key in keys}
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return broken
    keys = [*since, *document.new]
    if (
        document.format != _FORMAT
        or document.version != 1
        or not 0 <= document.run <= _MAX_RUN
        or not all(_KEY.fullmatch(key) for key in keys)
    ):
        return broken
    return Marks(document.run, since, frozenset(document.new), tag)


def encode_marks(run: int, since: Mapping[str, float], new: Iterable[str]) -> bytes:
    """Return ``gc.json``. Where it would be too large the youngest marks are left to later runs."""
    by_time: dict[str, list[str]] = {}
    room = MAX_MARKS - 1024
    for key, moment in sorted(since.items(), key=lambda item: (item[1], item[0])):
        room -= len(key) + 40
        if room > 0:
            by_time.setdefault(_time(moment), []).append(key)
    fresh = []
    for key in sorted(new):
        room -= len(key) + 40
        if room > 0:
            fresh.append(key)
    document: dict[str, Any] = {
        "format": _FORMAT,
        "new": fresh,
        "run": min(run, _MAX_RUN),
        "since": by_time,
        "version": 1,
    }
    return canonical_json(document)


def _time(seconds: float) -> str:
    # Not strftime, which writes a year before 1000 with fewer digits than `fromisoformat` takes.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _seconds(time: str) -> float:
    if not time.endswith("Z"):
        raise ValueError(time)
    return datetime.fromisoformat(time[:-1]).replace(tzinfo=UTC).timestamp()
