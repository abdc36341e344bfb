"""Progress on a terminal's standard error, and nothing where there is none."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ._text import escape

if TYPE_CHECKING:
    from replaypack.audit import Progress

__all__ = ["bytes_bar", "progress_bar", "record_counter", "steps"]


@contextlib.contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """What an audit reports to; None without a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with _bar(*columns, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=None)

        def report(progress: Progress) -> None:
            bar.update(
                task,
                description=escape(f"{progress.recording} {progress.stage}"),
                completed=progress.done,
                total=progress.total,
            )

        yield report


@contextlib.contextmanager
def record_counter(quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """What an import or export reports the number of its records to; None without a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import TextColumn

    with _bar(TextColumn("{task.completed} records")) as bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.update(task, completed=count) if count % 100 == 0 else None


@contextlib.contextmanager
def steps(quiet: bool, what: str) -> Iterator[Callable[[int, int], None] | None]:
    """What reports how many of how many are done; None without a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    with _bar(TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def bytes_bar(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """What reports bytes (stage ``bytes``), with their rate and the time left, and other stages before that."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with _bar(*columns, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=None)

        def report(progress: Progress) -> None:
            if progress.stage == "bytes":
                bar.update(task, description="bytes", completed=progress.done, total=progress.total)
            else:
                bar.update(task, description=f"{progress.done}/{progress.total} {progress.stage} looked at")

        yield report


def _bar(*columns: Any, redirect_stdout: bool = True) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(file=sys.stderr, markup=False, emoji=False, highlight=False)
    return Progress(*columns, console=console, transient=True, redirect_stdout=redirect_stdout)
