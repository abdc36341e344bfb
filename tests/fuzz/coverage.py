"""One decoder under libFuzzer: ``python -m tests.fuzz.coverage NAME CORPUS [options of libFuzzer]``."""

from __future__ import annotations

import sys


def main() -> None:
    import atheris  # type: ignore[import-not-found,unused-ignore]

    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["replaypack"]):
        from .decoders import run
    atheris.Setup(sys.argv, lambda data: run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
