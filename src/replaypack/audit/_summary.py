"""The summary of a recording against its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replaypack._read.index import Index
from replaypack._read.summary import summary_frame
from replaypack.errors import DAMAGED, FormatError
from replaypack.format.manifest import Manifest
from replaypack.format.row import Row
from replaypack.format.summary import Run, RunSum, parse_runs

from ._faults import Fault, fault

__all__ = ["SummaryChecker"]


class SummaryChecker:
    """Takes the rows in order, and compares what they sum up to with the runs of the summary."""

    def __init__(self, manifest: Manifest, index: Index) -> None:
        self._runs: list[Run] = []
        self._number = 0
        self._sum = RunSum()
        self._faults: list[Fault] = []
        try:
            frame = summary_frame(manifest, index)
            if frame is not None:
                [raw] = index.reader.read([frame])
                self._runs = parse_runs(raw, manifest.content.records, where=frame.where)
        except DAMAGED as error:
            where = error.where if isinstance(error, FormatError) else None
            self._faults.append(fault("summary.unreadable", where or "summary", str(error)))

    def add(self, rows: Sequence[Row]) -> None:
        """Take the next rows."""
        while rows and self._number < len(self._runs):
            run = self._runs[self._number]
            own, rows = rows[: (left := run.records - self._sum.records)], rows[left:]
            self._sum.add_all(own)
            if self._sum.records < run.records:
                return
            if self._sum.run() != run:
                message = f"run {self._number} of the summary does not say what its {run.records} records say"
                self._faults.append(fault("summary.mismatch", f"record {own[-1].seq - run.records + 1}", message))
                self._runs = []  # one is enough: all of it is made anew
            self._sum = RunSum()
            self._number += 1 if self._runs else 0

    def faults(self) -> Iterator[Fault]:
        """What is wrong, once all rows were taken."""
        yield from self._faults
