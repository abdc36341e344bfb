"""``python -m benchmarks [size] [--quick]``: all benchmarks, or those named; prints one table."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

from .common import Row, note, table

PARTS = (
    "size", "record", "redact", "replay", "sessions", "chassis", "keyed", "remote", "memory", "flushes",
    "verify", "copy", "diff",
)  # fmt: skip
_BEGIN, _END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS), help="all by default")
    parser.add_argument("--quick", action="store_true", help="small workloads: a check that it runs, not a result")
    parser.add_argument("--only", action="append", default=[], help="size: this corpus or workload only")
    parser.add_argument("--update-readme", action="store_true", help="put the table into README.md")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    for name in options.parts or PARTS:
        module = importlib.import_module(f".{name}", __package__)
        extra = {"only": options.only} if name == "size" else {}
        rows += module.run(quick=options.quick, **extra)
    text = table(rows)
    print(text)
    if options.update_readme:
        readme = Path(__file__).resolve().parent.parent / "README.md"
        old = readme.read_text()
        if _BEGIN not in old or _END not in old:
            raise SystemExit(f"README.md has no {_BEGIN} … {_END}")
        between = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
        readme.write_text(between.sub(lambda _: f"{_BEGIN}\n{text}\n{_END}", old, count=1))
        note(f"written to {readme.name}")


if __name__ == "__main__":
    main()
