"""Imports point one way: from the command line down to values and errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import replaypack

pytestmark = pytest.mark.once

SOURCE = Path(replaypack.__file__).parent

#: Modules and packages directly in replaypack, lowest first; those of one line do not know each other.
LAYERS = [
    {"errors"},
    {"_arguments", "_digest", "_escape", "_locks", "_plain", "_process", "_threads"},
    {"_files", "canonical", "tagged", "values"},
    {"policies"},
    {"format", "storage"},
    {"differences"},
    {"_read"},
    {"_write"},
    {"record"},
    {"recording"},
    {"recorder", "recover"},
    {"archive"},
    {"_learn"},
    {"audit", "replay"},
    {"integrations"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
#: Imported upwards for types, or in a function of the facade; never when the module is imported.
UPWARDS = {
    ("_plain", "canonical"),
    ("_plain", "values"),
    ("_read", "recording"),
    ("_write", "recording"),
    ("record", "recording"),
    ("recorder", "_learn"),
    ("recover", "archive"),
    ("archive", "audit"),
    ("archive", "replay"),
}


def imports(path: Path) -> Iterator[tuple[list[str], str, bool]]:
    """Yield what a module imports of replaypack: the module (parts of its name), the name, and whether at once."""
    package = ["replaypack", *path.relative_to(SOURCE).parent.parts]

    def visit(node: ast.AST, at_once: bool) -> Iterator[tuple[list[str], str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                assert not any(alias.name.startswith("replaypack.") for alias in child.names), f"{path}: from … import"
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) + 1 - child.level] if child.level else []
                parts = [*base, *(child.module or "").split(".")] if child.module else base
                if parts[0] == "replaypack":
                    for alias in child.names:
                        yield parts, alias.name, at_once
            else:
                later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or (
                    isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
                )
                yield from visit(child, at_once and not later)

    yield from visit(ast.parse(path.read_text("utf-8")), True)


def test_imports_point_downwards() -> None:
    upwards = set()
    for path in sorted(SOURCE.rglob("*.py")):
        own = path.relative_to(SOURCE).with_suffix("").parts[0]
        if own == "__init__":
            continue
        for parts, name, at_once in imports(path):
            other = parts[1] if len(parts) > 1 else name
            if other == own or other == "__version__":
                continue
            if other not in RANK:
                assert own == "cli", f"{path} imports {name} from the package that it is part of"
            elif RANK[other] >= RANK[own]:
                assert not at_once, f"{path} imports {other}, which is not below {own}"
                upwards.add((own, other))
    assert upwards == UPWARDS


def test_private_names_stay_in_their_module() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        for parts, name, _ in imports(path):
            of_a_module = (SOURCE.joinpath(*parts[1:]).with_suffix(".py")).exists() if len(parts) > 1 else False
            private = name.startswith("_") and not name.startswith("__")
            assert not (of_a_module and private), f"{path} imports {name} of {'.'.join(parts)}"
