"""Where output goes: tables on a terminal, tab-separated lines in a pipe, or JSON."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from replaypack.errors import FormatError, ReplaypackError, StorageError

from ._text import dump_json, escape

__all__ = ["Output", "error_object", "print_error"]

_CHUNK = 100


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
            self.element({"error": error_object(error)})
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

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, chunk: int = _CHUNK) -> int:
        """Write rows as they come and return how many: aligned under headings on a terminal, else tab-separated.

        A column whose heading begins with ``>`` is aligned to the right.
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
        for first in iterator:
            part = [[escape(_cell(cell)) for cell in row] for row in chain([first], islice(iterator, chunk - 1))]
            self._part(columns, part, widths, header=count == 0)
            count += len(part)
        return count

    def _part(self, columns: Sequence[str], rows: list[list[str]], widths: list[int], *, header: bool) -> None:
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=header, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for number, name in enumerate(columns):
            longest = max((cell_len(row[number]) for row in rows), default=0)
            widths[number] = max(widths[number], min(40, longest), len(name.lstrip(">")))
            table.add_column(
                name.lstrip(">"),
                justify="right" if name.startswith(">") else "left",
                overflow="fold",
                min_width=min(widths[number], 20),
            )
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
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


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def error_object(error: ReplaypackError) -> dict[str, Any]:
    """An error as it stands in JSON output."""
    result: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
    if isinstance(error, FormatError):
        result["where"] = error.where
        result["reason"] = error.reason
    if isinstance(error, StorageError):
        result["url"] = error.url
        result["operation"] = error.operation
    return result


def print_error(message: str, hint: str | None = None) -> None:
    """One sentence on stderr."""
    text = escape(message) + (f" ({escape(hint)})" if hint else "")
    with contextlib.suppress(OSError):
        print(f"error: {text}", file=sys.stderr)


def silence(stream: Any) -> None:
    """Let what is left in a closed pipe's buffer go nowhere, so that the interpreter's exit does not complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
