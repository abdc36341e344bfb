"""Where output goes: tables on a terminal, tab-separated lines in a pipe, or JSON."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from replaypack.errors import (
    AccessDeniedError,
    InvalidLocatorError,
    InvalidNameError,
    ReplaypackError,
    StorageUnavailableError,
    StorageUnsupportedError,
    UsageError,
)

from ._text import dump_json, escape

__all__ = ["NOT_FOUND", "NO_ANSWER", "Output", "checking", "exit_code", "print_error"]

_CHUNK = 100
_FOLD = 20  # where a column is wrapped at the earliest
#: A note on an error of wrong usage that is none: what was asked for is well named, and is not there.
NOT_FOUND = "not found"
#: A note on errors that end with exit code 2 whatever they are: of a command whose 1 is an answer, or of its output.
NO_ANSWER = "no answer"

_CANNOT_CHECK = (
    UsageError,
    InvalidLocatorError,
    InvalidNameError,
    StorageUnsupportedError,
    StorageUnavailableError,
    AccessDeniedError,
)


@contextlib.contextmanager
def checking() -> Iterator[None]:
    """Errors in it end the command with exit code 2: 1 says that something was found."""
    try:
        yield
    except ReplaypackError as error:
        error.add_note(NO_ANSWER)
        raise


class Output:
    """One command's output. Everything recorded that passes through it is escaped."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.terminal = sys.stdout.isatty() and not json
        self._console: Any = None
        self._open_array = False

    @property
    def console(self) -> Any:
        """A rich console for the terminal: no markup, no emoji names, no highlighting of what was recorded."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False, soft_wrap=False)
        return self._console

    def line(self, text: str = "", *, lines: bool = False) -> None:
        """Write one line, escaped; ``lines`` lets line breaks inside of it through."""
        sys.stdout.write(escape(text, lines=lines) + "\n")

    def document(self, value: Any) -> None:
        """Write one JSON document."""
        sys.stdout.write(dump_json(value, indent=2) + "\n")

    @contextlib.contextmanager
    def array(self) -> Iterator[None]:
        """A JSON array whose elements `element` writes one to a line, as they come."""
        self._open_array, first = True, True
        self._first = first
        sys.stdout.write("[")
        try:
            yield
        except ReplaypackError as error:
            self.element({"error": error.to_dict()})
            error.add_note("in output")
            raise
        finally:
            sys.stdout.write("\n]\n")
            self._open_array = False

    def element(self, value: Any) -> None:
        """Write an element of the open array, or a line of JSON Lines where none is open."""
        if self._open_array:
            sys.stdout.write("\n" if self._first else ",\n")
            self._first = False
            sys.stdout.write(dump_json(value))
        else:
            sys.stdout.write(dump_json(value) + "\n")
            sys.stdout.flush()

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        chunk: int = _CHUNK,
        drop: Sequence[str] = (),
        empty: str = "",
    ) -> int:
        """Write rows as they come and return how many: aligned under headings on a terminal, else tab-separated.

        A column whose heading begins with ``>`` is aligned to the right. Where a terminal is too narrow, columns
        of ``drop`` are left out, the first of them first, and a line says so. ``empty`` is said there of no rows.
        """
        count = 0
        if not self.terminal:
            for row in rows:
                sys.stdout.write("\t".join(escape(_cell(cell)) for cell in row) + "\n")
                count += 1
                if chunk == 1:
                    sys.stdout.flush()
            return count
        iterator = iter(rows)
        widths = [0] * len(columns)
        shown, left_out = list(range(len(columns))), ""
        for first in iterator:
            part = [[escape(_cell(cell)) for cell in row] for row in chain([first], islice(iterator, chunk - 1))]
            for number, name in enumerate(columns):
                longest = max(cell_width(row[number]) for row in part)
                widths[number] = max(widths[number], min(40, longest), len(name.lstrip(">")))
            if count == 0:
                shown, left_out = self._fitting(columns, widths, drop)
                if left_out and chunk == 1:  # the end may never come
                    self.line(left_out)
            self._part(columns, part, widths, shown, header=count == 0)
            count += len(part)
        if left_out and chunk != 1:
            self.line(left_out)
        if not count and empty:
            self.line(empty)
        return count

    def _fitting(self, columns: Sequence[str], widths: Sequence[int], drop: Sequence[str]) -> tuple[list[int], str]:
        """The columns that the terminal has room for, and what to say of the others."""
        names = [name.lstrip(">") for name in columns]
        gone: set[str] = set()
        for name in drop:
            needed = [min(width, _FOLD) + 2 for at, width in zip(names, widths, strict=True) if at not in gone]
            if sum(needed) - 2 <= self.console.width:
                break
            gone.add(name)
        said = ", ".join(name for name in names if name in gone)
        said = f"(too narrow for {said}; a pipe or --json has all columns)" if gone else ""
        return [number for number, name in enumerate(names) if name not in gone], said

    def _part(
        self,
        columns: Sequence[str],
        rows: list[list[str]],
        widths: Sequence[int],
        shown: Sequence[int],
        *,
        header: bool,
    ) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=header, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        fits = sum(min(widths[number], _FOLD) + 2 for number in shown) - 2 <= self.console.width
        for number in shown:
            name = columns[number]
            table.add_column(
                name.lstrip(">"),
                justify="right" if name.startswith(">") else "left",
                overflow="fold",
                min_width=min(widths[number], _FOLD) if fits else 1,
            )
        for row in rows:
            table.add_row(*(Text(row[number]) for number in shown))
        self.console.print(table)

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Write names with values."""
        if not self.terminal:
            for name, value in pairs:
                sys.stdout.write(f"{escape(name)}\t{escape(_cell(value))}\n")
            return
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in pairs:
            table.add_row(Text(escape(name)), Text(escape(_cell(value))))
        self.console.print(table)


def cell_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def exit_code(error: ReplaypackError) -> int:
    """2 for wrong usage and where the store could not be asked, or nothing be `checking`, else 1."""
    notes = getattr(error, "__notes__", ())
    if NO_ANSWER in notes:
        return 2
    if NOT_FOUND in notes:
        return 1
    return 2 if isinstance(error, _CANNOT_CHECK) else 1


def print_error(message: str, hint: str | None = None) -> None:
    """One sentence on stderr."""
    text = escape(message) + (f" ({escape(hint)})" if hint else "")
    with contextlib.suppress(OSError):
        print(f"error: {text}", file=sys.stderr)


def silence(stream: Any) -> None:
    """Let what is left in a closed pipe's buffer go nowhere, so that the interpreter's exit does not complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
