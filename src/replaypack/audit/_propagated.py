"""Differences that come again: what an answer said differently stands in every request that repeats the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replaypack import values
from replaypack._escape import escape
from replaypack.differences import Difference, shown_value
from replaypack.format.digests import digest
from replaypack.values import ABSENT

from ._textdiff import TextChange

__all__ = ["Delta", "Seen"]

#: Differences that are remembered, in fingerprints of 16 bytes.
_REMEMBERED = 200_000
#: Bytes from which on a value is recognised wherever it stands.
_TELLING = 16
_LATER = 8


class Delta:
    """One difference, where it was seen first, and how often it came again.

    ``difference`` has a pointer into the record (``/request/…``, ``/response/…``, ``/status``). ``texts`` are the
    differences inside of two texts. ``note`` says how values differ that are equal: in their bytes. ``later`` counts
    the records in which the same difference came again, ``later_seqs`` are the first of them (in the second
    recording).
    """

    __slots__ = ("difference", "later", "later_seqs", "note", "texts")

    def __init__(self, difference: Difference, texts: list[TextChange], note: str | None = None) -> None:
        self.difference = difference
        self.texts = texts
        self.note = note
        self.later = 0
        self.later_seqs: list[int] = []

    def __repr__(self) -> str:
        return f"<Delta {self.text()}>"

    def again(self, seq: int) -> None:
        """Note that it came again in record ``seq``."""
        if self.later_seqs and self.later_seqs[-1] == seq:
            return
        self.later += 1
        if len(self.later_seqs) < _LATER:
            self.later_seqs.append(seq)

    def text(self, width: int = 60) -> str:
        """One line for people."""
        difference = self.difference
        if self.note is not None:
            text = f"`{escape(difference.pointer)}`: {self.note}"
        elif self.texts and isinstance(difference.old, str):
            shown = [f"at character {change.old_at}: {_quoted(change, width // 2)}" for change in self.texts[:3]]
            more = f"; and in {len(self.texts) - 3} more places" if len(self.texts) > 3 else ""
            place = f"`{escape(difference.pointer)}`"
            text = f"{place} differs {'; '.join(shown)}{more}"
        else:
            text = difference.text(width)
        if self.later:
            text += f" (and in {self.later} later record{'s' if self.later > 1 else ''})"
        return text

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        result = self.difference.to_dict()
        if self.texts:
            result["texts"] = [change._asdict() for change in self.texts]
        if self.note is not None:
            result["note"] = self.note
        if self.later:
            result["later"], result["later_in"] = self.later, self.later_seqs
        return result


def _quoted(change: TextChange, width: int) -> str:
    return f"{shown_value(change.old, width)} → {shown_value(change.new, width)}"


class Seen:
    """Remembers differences by fingerprints."""

    def __init__(self) -> None:
        self._known: dict[bytes, Delta] = {}

    def find(self, difference: Difference, texts: list[TextChange]) -> Delta | None:
        """The earlier difference that this one repeats."""
        known = self._known
        for print_ in _prints(difference):
            if print_ in known:
                return known[print_]
        hunks = [known.get(_hunk(change)) if _telling(change.old, change.new) else None for change in texts]
        return hunks[0] if hunks and all(hunks) else None

    def add(self, delta: Delta) -> None:
        """Remember a difference."""
        known = self._known
        if len(known) >= _REMEMBERED:
            return
        for print_ in _prints(delta.difference):
            known.setdefault(print_, delta)
        for change in delta.texts:
            if _telling(change.old, change.new):
                known.setdefault(_hunk(change), delta)


def _prints(difference: Difference) -> Iterator[bytes]:
    """What a difference is known by: its place and values; its name and values; large values alone."""
    old, new = _bytes(difference.old), _bytes(difference.new)
    value = digest(difference.what.encode() + digest(old) + digest(new))
    yield _print("place", difference.pointer, value)
    part, _, below = difference.pointer[1:].partition("/")
    if part not in ("request", "identity", "response"):
        return
    # An answer is repeated below another pointer. What is short and has no name of its own may come by chance.
    name = below.rpartition("/")[2]
    if name and not name.isdigit():
        yield _print("name", name, value)
    if len(old) + len(new) >= _TELLING:
        yield _print("value", "", value)


def _print(how: str, place: str, value: bytes) -> bytes:
    return digest(b"\0".join((how.encode(), place.encode("utf-8", "surrogatepass"), value)))[:16]


def _hunk(change: TextChange) -> bytes:
    old, new = _bytes(change.old), _bytes(change.new)
    return _print("text", "", digest(digest(old) + digest(new)))


def _telling(old: str, new: str) -> bool:
    return len(old) + len(new) >= _TELLING


def _bytes(value: Any) -> bytes:
    return b"" if value is ABSENT else values.encode(value)
