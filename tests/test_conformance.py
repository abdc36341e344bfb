"""The independent reader, the JSON Schemas, and the table of test cases."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .test_vectors_values import cases

SPEC = Path(__file__).parent.parent / "spec"
READER = SPEC / "conformance" / "read_vectors.py"


@pytest.mark.once
def test_independent_reader() -> None:
    """It reads every vector, and shares no code with the library."""
    done = subprocess.run([sys.executable, "-I", str(READER)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"^\d{3,} vectors, 0 failures$", done.stdout, re.M)
    for source in READER.parent.glob("*.py"):
        assert not re.search(r"^\s*(import|from) (replaypack|msgspec)", source.read_text("utf-8"), re.M)


_READ_ALL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import rpk, rpk_archive
root = Path(sys.argv[2])
for latest in sorted(root.glob("recordings/**/latest.json")):
    name = latest.parent.relative_to(root / "recordings").as_posix()
    recording = rpk_archive.Recording(lambda key: (root / key).read_bytes(), name)
    leaves, blobs = [], 0
    for row, inline, recipe in recording.records():
        if not row:
            leaves.append(recording.purged[len(leaves)])
            continue
        leaves.append(rpk.leaf(row))
        blobs += len(recording.blobs(row, inline, recipe))
    assert rpk.merkle(leaves).hex() == recording.manifest["content"]["merkle_root"], name
    print(name, len(leaves), blobs)
"""


@pytest.mark.once
def test_independent_reader_of_archives_of_earlier_releases() -> None:
    for archive in sorted((SPEC / "vectors" / "historical").glob("*/archive")):
        command = [sys.executable, "-I", "-c", _READ_ALL, str(READER.parent), str(archive)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]
        assert "small/two 5 " in done.stdout


@functools.cache
def schema(name: str) -> Any:
    document = json.loads((SPEC / "schema" / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


@pytest.mark.parametrize("case", cases("valid", "manifest"))
def test_schemas_accept(case: dict[str, Any]) -> None:
    if "marker" in case:
        schema("marker").validate(json.loads(case["marker"]))
    else:
        schema("manifest").validate(json.loads(case["manifest"]))


@pytest.mark.once
def test_schemas_accept_the_archive() -> None:
    archives = SPEC / "vectors" / "valid" / "archive"
    manifests = [path for name in ("tiny", "partial") for path in (archives / name / "recordings").rglob("*.json")]
    assert len(manifests) > 10
    for path in manifests:
        schema("manifest").validate(json.loads(path.read_text("utf-8")))
    schema("marker").validate(json.loads((SPEC / "vectors/valid/archive/tiny/replaypack.json").read_text("utf-8")))


#: Invalid manifests whose fault no schema can see.
BEYOND_SCHEMA = (
    "changed byte|white space|number in another form|counts that do not|records without|edge that does not|"
    "another Merkle|packs here and in|segment of a pack|begins elsewhere|of other records|inline bytes behind|"
    "fewer keys|more record frames|root that is no|root cut off|pattern that is none|"
    "beyond the last|records of a tombstone out|two tombstones|a key less|a key more"
)


@pytest.mark.parametrize("case", cases("invalid", "manifest"))
def test_schemas_refuse(case: dict[str, Any]) -> None:
    name = "marker" if "marker" in case else "manifest"
    try:
        document = json.loads(case[name])
    except ValueError:
        return
    assert schema(name).is_valid(document) is bool(re.search(BEYOND_SCHEMA, case["name"]))


def test_cases_table_names_what_exists() -> None:
    """Every vector file and test that ``TEST_CASES.md`` names exists, and every vector file is named."""
    text = (SPEC / "conformance" / "TEST_CASES.md").read_text("utf-8")
    named = set(re.findall(r"`((?:valid|invalid)/[\w/]+\.json)`", text))
    there = {
        path.relative_to(SPEC / "vectors").as_posix()
        for validity in ("valid", "invalid")
        for path in (SPEC / "vectors" / validity).rglob("*.json")
        if not re.search("/archive/(tiny|partial)", path.parent.as_posix())
    }
    assert named == there
    for file, function in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        source = SPEC.parent / file
        assert source.exists(), file
        assert not function or f"def {function}(" in source.read_text("utf-8"), f"{file}::{function}"
