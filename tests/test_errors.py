"""The error tree, the fault codes and their documentation are one list."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

from replaypack import errors
from replaypack.audit import FAULTS, LEVELS
from replaypack.errors import FormatReason, ReplaypackError

DOCUMENT = (Path(__file__).parent.parent / "docs" / "errors.md").read_text(encoding="utf-8")


def rows(columns: int) -> list[list[str]]:
    """The rows of the document's tables that begin with a code and have this many columns."""
    lines = [line for line in DOCUMENT.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns]


def classes() -> dict[str, type[ReplaypackError]]:
    found = inspect.getmembers(errors, inspect.isclass)
    return {name: cls for name, cls in found if issubclass(cls, ReplaypackError)}


def codes(cls: type[ReplaypackError]) -> list[str]:
    if cls is errors.FormatError:
        return [f"format.{reason}" for reason in get_args(FormatReason)]
    return [cls.code]


def test_every_error_is_documented_with_its_code_and_its_place_in_the_tree() -> None:
    documented = {(code.strip("`"), name.strip("`"), bases) for code, name, bases, *_ in rows(5)}
    real = {
        (code, name, ", ".join(f"`{base.__name__}`" for base in cls.__bases__))
        for name, cls in classes().items()
        for code in codes(cls)
    }
    assert documented == real


def test_codes_are_unique() -> None:
    all_codes = [code for cls in classes().values() for code in codes(cls)]
    assert len(all_codes) == len(set(all_codes))


def test_what_the_module_exports_is_what_it_defines() -> None:
    warnings = {"ReplaypackWarning", "WeakGuaranteeWarning"}
    assert set(errors.__all__) == set(classes()) | warnings
    for name in warnings:
        assert name in DOCUMENT


def example(name: str) -> ReplaypackError:
    extra = {
        "CanonicalizationError": {"path": "/a"},
        "ValueEncodingError": {"path": "/a"},
        "PurgedError": {"recording": "u#r", "seq": 1, "reason": "asked", "time": "2025-06-15T00:00:00Z"},
        "WithheldError": {"recording": "u#r", "seq": 1, "role": "request"},
        "SharedBytesError": {"shared": {"a": [1]}},
        "PublishError": {"published": 1, "unpublished": 2, "journal": None},
    }.get(name, {})
    return classes()[name]("what happened", hint="what to do", **extra)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(classes()))
def test_every_error_shows_its_message_and_its_hint(name: str) -> None:
    error = example(name)
    assert str(error).endswith("what happened (what to do)")
    assert error.hint == "what to do"
    assert isinstance(error, Exception)
    assert not re.search(r"[A-Z]", error.code)


@pytest.mark.parametrize("name", sorted(classes()))
def test_every_error_reaches_another_process_as_it_is(name: str) -> None:
    error = example(name)
    error.add_note("a note")
    if isinstance(error, errors.ReplayedError):
        error.args = ("of", 2)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert (str(again), again.args) == (str(error), error.args)
        assert vars(again) == vars(error)


def test_every_fault_is_documented_and_only_those() -> None:
    documented = {code.strip("`"): level for code, level, _ in rows(3)}
    assert set(documented) == set(FAULTS)
    assert set(documented.values()) == set(LEVELS)


def test_every_fault_is_in_the_specification_with_its_place_and_remedy() -> None:
    text = (Path(__file__).parent.parent / "spec" / "v1" / "09-verification.md").read_text("utf-8")
    lines = text[text.index("## 9.6") :].splitlines()
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    assert {code.strip("`"): remedy for code, _, remedy in found} == FAULTS
    assert all(place for _, place, _ in found)


def test_the_specification_has_the_levels() -> None:
    text = (Path(__file__).parent.parent / "spec" / "v1" / "09-verification.md").read_text("utf-8")
    part = text[text.index("## 9.2") : text.index("## 9.3")]
    assert tuple(re.findall(r"^\| `(\w+)` \|", part, re.M)) == LEVELS
