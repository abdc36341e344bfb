"""One comparison of two recordings: what is read, and what is found."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from itertools import accumulate

from replaypack import values
from replaypack._read.summary import read_summary
from replaypack.format.row import Row
from replaypack.recording import Record, Recording
from replaypack.values import ABSENT

from ._align import align, gaps
from ._diff_result import Change, Diff, Entry, Side
from ._diff_rows import Numbers, Rows
from ._faults import Progress, Report
from ._ignore import Ignore
from ._pairing import Gap, Pair, align_scope, alike, by_scope, moved
from ._propagated import Delta, Seen
from ._record_differences import record_differences
from ._textdiff import TextChange, text_changes

__all__ = ["Comparison"]

#: Bytes of values that are kept.
_KEPT = 64 << 20

# Ranges of sequence numbers that belong together: low, high in the old recording, first, last in the new one.
_Region = tuple[int, int, int, int]


class Comparison:
    """Compares ``old`` and ``new``; see `replaypack.audit.diff.diff` for the rest.

    ``kinds`` are those to be compared, ``limit`` is the number of entries that are kept.
    """

    def __init__(
        self,
        old: Recording,
        new: Recording,
        ignore: Ignore,
        kinds: Collection[str] | None,
        limit: int | None,
        progress: Report | None,
    ) -> None:
        self._sides = (old, new)
        self._ignore = ignore
        self._kinds = kinds
        self._limit = limit
        self._progress = progress
        self._result = Diff(old, new)
        self._failed = [0, 0]
        self._duration = [0, 0]
        self._of_old = 0
        self._seen = Seen()
        self._kept = 0

    def run(self) -> Diff:
        result = self._result
        if self._sides[0].content_digest == self._sides[1].content_digest:
            result.counts["same"] = self._compared()
            return result
        regions, skipped = self._regions()
        rows = (Rows(), Rows())
        numbers = Numbers()
        pairs: list[Pair] = []
        rest: list[Gap] = []
        total = sum(high - low + last - first for low, high, first, last in regions)
        for low, high, first, last in regions:
            begins = (len(rows[0]), len(rows[1]))
            for side, start, end in ((0, low, high), (1, first, last)):
                self._read(side, start, end, rows[side], numbers)
                result.read += end - start
                self._report("rows", result.read, total)
            for left, right in by_scope(rows, begins):
                align_scope(rows, left, right, pairs, rest)
        before, after = result.totals
        result.totals = (
            before._replace(failed=self._failed[0], duration=self._duration[0] / 1e9),
            after._replace(failed=self._failed[1], duration=self._duration[1] / 1e9),
        )
        displaced = moved(rows, rest)
        changed = [pair for gap in rest for pair in alike(rows, *gap)]
        # Runs that were not read may hold records of kinds that are not compared.
        result.counts["same"] += self._compared() - self._of_old if skipped else 0
        self._collect(rows, pairs, displaced, changed, rest)
        return result

    def _compared(self) -> int:
        """How many records of the old recording are of kinds that are compared."""
        counts = self._sides[0].manifest.content.counts
        return sum(count for kind, count in counts.items() if self._wanted(kind))

    def _wanted(self, kind: str) -> bool:
        return (self._kinds is None or kind in self._kinds) and kind not in self._ignore.kinds

    # What is read

    def _regions(self) -> tuple[list[_Region], bool]:
        """What has to be read of both, and whether anything is left out because it is the same."""
        old, new = self._sides
        before, after = (read_summary(side.manifest, side.index) for side in self._sides)
        if before is None or after is None:
            return [(0, len(old), 0, len(new))], False
        matched = align(*([(run.digest, run.records) for run in runs] for runs in (before, after)))
        starts = [list(accumulate((run.records for run in runs), initial=0)) for runs in (before, after)]
        for pair in matched:
            for side, run in enumerate((before[pair[0]], after[pair[1]])):
                self._failed[side] += run.failed
                self._duration[side] += run.duration
        regions = [
            (starts[0][low], starts[0][high], starts[1][first], starts[1][last])
            for low, high, first, last in gaps(matched, (0, 0), (len(before), len(after)))
        ]
        return regions, bool(matched)

    def _read(self, side: int, start: int, end: int, rows: Rows, numbers: Numbers) -> None:
        def wanted(row: Row) -> bool:
            self._failed[side] += row.status != 0
            self._duration[side] += row.duration
            if not self._wanted(row.kind):
                return False
            self._of_old += side == 0
            return row.name not in self._ignore.names

        rows.read(self._sides[side].index, start, end, numbers, wanted)

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(Progress(self._sides[1].name, stage, done, total))

    # What is found

    def _collect(
        self,
        rows: tuple[Rows, Rows],
        pairs: list[Pair],
        displaced: list[Pair],
        changed: list[Pair],
        rest: list[Gap],
    ) -> None:
        old, new = rows
        counts = self._result.counts
        found: list[tuple[int, int, Change, int, int]] = []
        anchors = sorted((*pairs, *changed))
        lefts = [left for left, _ in anchors]

        def place(left: int) -> int:
            """Where in the new recording a record belongs that only the old one has: behind the one before it."""
            at = bisect_right(lefts, left) - 1
            return new.seq[anchors[at][1]] + 1 if at >= 0 else 0

        for left, right in pairs:
            if old.outcome[left] == new.outcome[right]:
                counts["same"] += 1
            else:
                found.append((new.seq[right], 1, "changed", left, right))
        found += ((new.seq[right], 1, "changed", left, right) for left, right in changed)
        if "moved" in self._ignore.words:
            for left, right in displaced:
                if old.outcome[left] == new.outcome[right]:
                    counts["same"] += 1
                else:
                    found.append((new.seq[right], 1, "changed", left, right))
        else:
            found += ((new.seq[right], 1, "moved", left, right) for left, right in displaced)
        if "removed" not in self._ignore.words:
            found += ((place(left), 0, "removed", left, -1) for gap, _ in rest for left in gap)
        if "added" not in self._ignore.words:
            found += ((new.seq[right], 1, "added", -1, right) for _, gap in rest for right in gap)
        found.sort()
        for number, (_, _, what, left, right) in enumerate(found):
            self._report("differences", number, len(found))
            self._entry(what, rows, left, right)
        self._report("differences", len(found), len(found))

    def _entry(self, what: Change, rows: tuple[Rows, Rows], left: int, right: int) -> None:
        """Look into the records at two places in the rows that were read (-1: there is none) and count them."""
        result = self._result
        full = (self._limit is not None and len(result.entries) >= self._limit) or self._kept > _KEPT
        differing = left >= 0 and right >= 0 and rows[0].outcome[left] != rows[1].outcome[right]
        fresh: list[Delta] = []
        repeated = 0
        sides: list[Record | None] = [None, None]
        # Whether records of unequal outcome are the same after all: only what is left out can make them.
        doubtful = differing and (self._ignore.partial or rows[0].timed[left])
        if doubtful or not full:
            for number, place in enumerate((left, right)):
                if place >= 0:
                    sides[number] = self._sides[number].record(rows[number].seq[place])
            if differing:
                fresh, repeated = self._compare(*sides)
                differing = bool(fresh or repeated)
                result.repeats += differing and not fresh
                if what == "changed" and not differing:
                    result.counts["same"] += 1
                    return
        result.counts[what] += 1
        result.counts["changed"] += what == "moved" and differing
        if full:
            result.truncated = True
        else:
            result.entries.append(Entry(what, _side(sides[0]), _side(sides[1]), fresh, repeated))

    def _compare(self, old: Record | None, new: Record | None) -> tuple[list[Delta], int]:
        """The differences of two records that no earlier ones show, and how many others there are."""
        assert old is not None
        assert new is not None
        fresh: list[Delta] = []
        repeated = 0
        for difference, note in record_differences(old, new, self._ignore):
            texts: list[TextChange] = []
            if note is None and isinstance(difference.old, str) and isinstance(difference.new, str):
                texts = text_changes(difference.old, difference.new)
            before = self._seen.find(difference, texts) if note is None else None
            if before is not None:
                before.again(new.seq)
                repeated += 1
                continue
            delta = Delta(difference, texts, note)
            if note is None:
                self._seen.add(delta)
                for value in (difference.old, difference.new):
                    self._kept += len(values.encode(value)) if value is not ABSENT else 0
            fresh.append(delta)
        return fresh, repeated


def _side(record: Record | None) -> Side | None:
    if record is None:
        return None
    return Side(record.seq, record.kind, record.name, record.scope, record.status, record.row.key.hex())
