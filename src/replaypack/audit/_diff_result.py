"""What a comparison of two recordings found, as objects, text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from replaypack._escape import counted, escape
from replaypack.recording import Recording

from ._propagated import Delta

__all__ = ["Change", "Diff", "Entry", "Side", "Totals"]

Change = Literal["added", "removed", "moved", "changed"]

_MARKS = {"added": "+", "removed": "-", "moved": ">", "changed": "~"}
#: Differences of one record that are shown.
_SHOWN = 12


class Side(NamedTuple):
    """A record, as one of the recordings has it. ``key`` is 64 hex digits."""

    seq: int
    kind: str
    name: str | None
    scope: str | None
    status: str
    key: str


class Entry(NamedTuple):
    """One record that differs. ``old`` is None where it was ``added``, ``new`` where it was ``removed``.

    A record that ``moved`` may have ``differences`` too. ``repeated`` counts further differences, which an earlier
    entry shows: there they are counted as ``later``.
    """

    what: Change
    old: Side | None
    new: Side | None
    differences: list[Delta]
    repeated: int


class Totals(NamedTuple):
    """What one recording has: its records by kind, how many failed, and how long calls took (seconds).

    ``failed`` and ``duration`` are None where nothing had to be read, the content digests being equal.
    """

    records: int
    counts: dict[str, int]
    failed: int | None
    duration: float | None


class Diff:
    """How two recordings differ. ``bool(diff)`` is True where they do.

    ``entries`` come in the order of the new recording; ``truncated`` says that there are more than were asked for.
    ``counts`` has how many records were ``added``, ``removed``, ``moved`` and ``changed`` (a record that moved and
    changed is in both), and how many are the ``same``; those are exact. ``old`` and ``new`` are the locators.
    Timings are in ``totals``, and never make a difference.
    """

    def __init__(self, old: Recording, new: Recording) -> None:
        self.old = old.locator
        self.new = new.locator
        self.content_digests = (old.content_digest, new.content_digest)
        self.entries: list[Entry] = []
        self.truncated = False
        self.counts: dict[str, int] = {"same": 0, "changed": 0, "added": 0, "removed": 0, "moved": 0}
        #: How many records that changed only repeat what earlier ones show.
        self.repeats = 0
        self.totals: tuple[Totals, Totals] = (_totals(old), _totals(new))
        #: Records whose rows were read, of both.
        self.read = 0
        #: How many records of either were purged: they cannot be compared, and are left out.
        self.purged = (old.manifest.purged, new.manifest.purged)

    def __bool__(self) -> bool:
        return any(count for what, count in self.counts.items() if what != "same")

    def __repr__(self) -> str:
        return f"<Diff of {self.old} and {self.new}: {self.summary()}>"

    @property
    def same(self) -> bool:
        """Whether nothing differs that was to be compared."""
        return not self

    def summary(self) -> str:
        """One line for people: the counts."""
        if not self:
            return f"no differences in {self.counts['same']} records"
        parts = [f"{count} {what}" for what, count in self.counts.items() if what != "same" and count]
        return f"{', '.join(parts)}, {self.counts['same']} the same"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, width: int = 60) -> Iterator[str]:
        """The lines of a report; values are cut to about ``width`` characters, everything recorded is escaped."""
        yield escape(f"--- {self.old}")
        yield escape(f"+++ {self.new}")
        for entry in self.entries:
            if entry.repeated and not entry.differences and entry.what == "changed":
                continue
            yield escape(f"{_MARKS[entry.what]} {entry.what} {_label(entry)}")
            for delta in entry.differences[:_SHOWN]:
                yield f"    {delta.text(width)}"
            if len(entry.differences) > _SHOWN:
                yield f"    and {len(entry.differences) - _SHOWN} more differences"
            if entry.repeated:
                yield f"    and {counted(entry.repeated, 'difference')} that earlier records show"
        if self.truncated:
            if self.entries:
                yield f"({counted(len(self.entries), 'record')} looked into; there are more that differ)"
            else:
                yield "(counted only: no record was looked into)"
        if self.repeats:
            yield f"{counted(self.repeats, 'changed record')} with nothing but differences of earlier ones"
        yield from self.footer()

    def footer(self) -> Iterator[str]:
        """The last lines of a report: counts, purged records where there are any, and statistics."""
        yield self.summary()
        if any(self.purged):
            yield f"records that were purged, and are not compared: {_both(*self.purged)}"
        yield self.statistics()

    def statistics(self) -> str:
        """One line for people: records by kind, failures and time on either side."""
        old, new = self.totals
        kinds = ", ".join(
            f"{kind} {_both(old.counts.get(kind, 0), new.counts.get(kind, 0))}"
            for kind in sorted({**old.counts, **new.counts})
        )
        parts = [f"records {_both(old.records, new.records)}" + (f" ({kinds})" if kinds else "")]
        if old.failed is not None and new.failed is not None:
            parts.append(f"failed {_both(old.failed, new.failed)}")
        if old.duration is not None and new.duration is not None:
            parts.append(f"time in calls {old.duration:.3f} s → {new.duration:.3f} s")
        return escape("; ".join(parts))

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "old": self.old,
            "new": self.new,
            "content_digests": list(self.content_digests),
            "same": self.same,
            "counts": self.counts,
            "repeats": self.repeats,
            "purged": list(self.purged),
            "totals": [totals._asdict() for totals in self.totals],
            "truncated": self.truncated,
            "entries": [
                {
                    "what": entry.what,
                    "old": entry.old._asdict() if entry.old is not None else None,
                    "new": entry.new._asdict() if entry.new is not None else None,
                    "differences": [delta.to_dict() for delta in entry.differences],
                    "repeated": entry.repeated,
                }
                for entry in self.entries
            ],
        }


def _totals(recording: Recording) -> Totals:
    content = recording.manifest.content
    return Totals(content.records, dict(content.counts), None, None)


def _both(old: int, new: int) -> str:
    return str(old) if old == new else f"{old} → {new}"


def _label(entry: Entry) -> str:
    side = entry.new or entry.old
    assert side is not None
    places = [str(place.seq) for place in (entry.old, entry.new) if place is not None]
    name = f" {side.name}" if side.name is not None else ""
    scope = f" [{side.scope}]" if side.scope is not None else ""
    status = f" ({side.status})" if side.status != "ok" else ""
    return f"{' → '.join(places)}: {side.kind}{name}{scope}{status}"
