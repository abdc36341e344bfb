"""The command line: one file a command group, no logic of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 fine, 1 faults or failed, 2 usage or could not check."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print("replaypack: the command line needs two more packages: pip install 'replaypack[cli]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _interrupted()
    try:
        from ._app import run
    except KeyboardInterrupt:
        return _interrupted()
    return run(sys.argv[1:] if arguments is None else list(arguments))


def _interrupted() -> int:
    # While the modules were still loading, which takes a moment.
    print("interrupted", file=sys.stderr)
    return 130
