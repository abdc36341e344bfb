"""``python -m replaypack``: the command line."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from .cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # before `main` catches it, or behind it
        print("interrupted", file=sys.stderr)
        sys.exit(130)
