"""The command line: one file a command group, no logic of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 fine, 1 faults or failed, 2 usage or could not check."""
    try:
        return _main(arguments)
    except KeyboardInterrupt:  # while modules load, which takes a moment, or behind the command
        print("interrupted", file=sys.stderr)
        return 130


def _main(arguments: Sequence[str] | None) -> int:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print("replaypack: the command line needs two more packages: pip install 'replaypack[cli]'", file=sys.stderr)
        return 2
    from ._app import run

    return run(sys.argv[1:] if arguments is None else list(arguments))
