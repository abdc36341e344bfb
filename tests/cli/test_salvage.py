"""``replaypack recover SRC --into DST``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from replaypack import Archive

from .conftest import run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with Archive(tmp_path / "source") as archive:
        for name in ("a", "b"):
            with archive.recorder(name) as recorder:
                for number in range(4):
                    recorder.append(kind="tool", name="f", identity=number, response=name)
    return tmp_path / "source"


def test_nothing_lost(source: Path, tmp_path: Path) -> None:
    result = run("recover", str(source), "--into", str(tmp_path / "new"))
    assert (result.code, result.err) == (0, "")
    assert result.out == "a@1: 4 records, whole\nb@1: 4 records, whole\nnothing is lost: 2 recordings\n"
    assert Archive(tmp_path / "new").open("a").content_digest == Archive(source).open("a").content_digest
    assert run("verify", str(tmp_path / "new")).code == 0


def test_something_lost(source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "recordings/a")
    result = run("recover", str(source), "--into", str(tmp_path / "new"))
    assert result.code == 1
    assert "a@1: 4 records, not as it was" in result.out
    assert "lost: a: manifest: no manifest of it is left" in result.out
    shown = json.loads(run("recover", str(source), "--into", str(tmp_path / "json"), "--json").out)
    assert shown["whole"] is False
    assert [(item["name"], item["exact"]) for item in shown["recordings"]] == [("b", True), ("a", False)]
    assert json.loads((tmp_path / "json/recovery.json").read_bytes())["lost"] == shown["lost"]


def test_what_is_refused(source: Path, tmp_path: Path) -> None:
    for target in (source, source / "inside"):
        refused = run("recover", str(source), "--into", str(target))
        assert refused.code == 2
        assert "damaged archive lies" in refused.err


def test_nothing_found(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run("recover", str(tmp_path / "empty"), "--into", str(tmp_path / "new"))
    assert (result.code, result.out) == (1, "nothing was found that can be recovered\n")
    # It was the wrong place perhaps: the right one can be recovered into the same.
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]


def test_a_source_that_is_not_there_leaves_nothing(source: Path, tmp_path: Path) -> None:
    for name, hint in (("nope", "is the URL right?"), ("surce", f"did you mean {source}?")):
        result = run("recover", str(tmp_path / name), "--into", str(tmp_path / "new"))
        assert (result.code, result.out) == (2, "")
        assert f"there is no directory {tmp_path / name} ({hint})" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
