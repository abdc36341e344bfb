"""Chassis' JSON goes into an archive and comes out byte for byte, on machines without Chassis."""

from __future__ import annotations

import copy
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.corpora import corpora_directory
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from replaypack import Archive
from replaypack.errors import (
    CanonicalizationError,
    ExportError,
    FormatError,
    ImportFormatError,
    RecordingNotFoundError,
)
from replaypack.integrations.chassis_json import ChassisJson, pack_session, unpack_session

FORMAT = ChassisJson()
numbers = itertools.count()


def record(sequence: int, kind: str = "tool", **fields: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "sequence": sequence,
        "key": "07705eb2e4c605f80e39a12f2be34ba9",
        "request": {"tool": "echo", "args": {"text": "é"}},
        "response": None,
        "generation_id": None,
        "run_id": None,
        "created_at": 1760000000.0,
        **fields,
    }


def document(*records: dict[str, Any], **members: Any) -> dict[str, Any]:
    head = {"format_version": 1, "mode": "record", "fallback": "error", "metadata": {"dataset": "d"}}
    return {**head, "records": list(records), **members}


def text(value: Any) -> str:
    """As Chassis writes it."""
    return json.dumps(value, indent=2, sort_keys=True)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "archive", {"replaypack": {"fsync": False}}) as opened:
        yield opened


def round_trip(archive: Archive, tmp_path: Path, before: str) -> str:
    source, target, name = tmp_path / "in.json", tmp_path / "out.json", f"r{next(numbers)}"
    source.write_text(before, encoding="utf-8")
    loaded = FORMAT.load(source, archive, name)
    dumped = FORMAT.dump(archive.open(name), target)
    assert loaded.records == dumped.records
    return target.read_text(encoding="utf-8")


DOCUMENTS = {
    "empty": document(),
    "repeated keys, null and other responses": document(record(0), record(1, response=[1.0]), record(2)),
    "every kind": document(*(record(n, kind) for n, kind in enumerate(["tool", "model", "interrupt", "snapshot"]))),
    "ids": document(record(0, run_id="r", generation_id="g"), record(1, run_id="")),
    "sequences of their own": document(record(7), record(3), record(3), record(-1)),
    "moments": document(*(record(n, created_at=t) for n, t in enumerate([0.0, 0.1 + 0.2, -1.5, 1e300, 1e-9, 5e-324]))),
    "not numbers": document(record(0, created_at=float("nan"), response={"x": [float("inf"), -0.0, 2**80]})),
    "metadata that manifests change": document(metadata={"a": 1.0, "b": 2**60, "c": float("nan"), "$bytes": "x"}),
    "names that are none": document(record(0, request={"tool": 5}), record(1, request={"tool": "x" * 5000})),
    "surrogates": document(record(0, request={"tool": "\ud800"}, response="\udfff")),
    "members of a user's own": document(record(0, mine={"a": [1]}), theirs=[1, {"b": None}]),
    "other modes": document(mode="replay", fallback="live"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_comes_back_byte_for_byte(name: str, archive: Archive, tmp_path: Path) -> None:
    before = text(DOCUMENTS[name])
    assert round_trip(archive, tmp_path, before) == before
    assert not list(archive.verify())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)
objects = st.dictionaries(st.text(max_size=6), values, max_size=4)
records = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["tool", "model", "interrupt", "snapshot", "lifecycle"]),
        "sequence": st.integers(-5, 5) | st.integers(0, 2**62),
        "key": st.text(max_size=20),
        "request": objects,
        "response": values,
        "generation_id": st.none() | st.text(max_size=5),
        "run_id": st.none() | st.text(max_size=5),
        "created_at": st.floats(),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(metadata=objects, found=st.lists(records, max_size=5))
@example(metadata={}, found=[{**record(0), "created_at": -0.0}])
def test_any_document_comes_back_byte_for_byte(
    metadata: dict[str, Any], found: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = text(document(*found, metadata=metadata))
    with Archive("memory://chassis-json") as archive:
        assert round_trip(archive, tmp_path_factory.mktemp("json"), before) == before


def test_the_shape_of_0_8_1_names_no_version_and_is_exported_as_version_1(archive: Archive, tmp_path: Path) -> None:
    legacy = document(record(0), record(1, "model"))
    del legacy["format_version"]
    assert json.loads(round_trip(archive, tmp_path, text(legacy))) == {"format_version": 1, **legacy}
    assert FORMAT.load(tmp_path / "in.json", archive, "again").notes


@pytest.mark.corpus
def test_the_recording_of_0_8_1_comes_back(archive: Archive, tmp_path: Path) -> None:
    seed = (corpora_directory() / "seeds" / "chassis-0.8.1-recording.json") if corpora_directory() else None
    if seed is None or not seed.exists():
        pytest.skip("the corpora are not here: set REPLAYPACK_CORPORA to the directory of the .tar.zst files")
    legacy = json.loads(seed.read_text(encoding="utf-8"))
    assert FORMAT.detects(seed.read_bytes()[:65536], seed)
    assert round_trip(archive, tmp_path, seed.read_text(encoding="utf-8")) == text({"format_version": 1, **legacy})


def test_a_record_lies_in_a_row_as_documented(archive: Archive, tmp_path: Path) -> None:
    model = record(5, "model", request={"model": "m"}, response={"generations": []}, run_id="r", created_at=1.25)
    round_trip(archive, tmp_path, text(document(record(0, key="k"), model)))
    recording = archive.open(f"r{next(numbers) - 1}")
    assert recording.metadata == {"chassis": {"mode": "record", "fallback": "error", "metadata": {"dataset": "d"}}}
    found = recording.lookup(key="k")
    assert found is not None
    assert (found.kind, found.name, found.key_scheme, found.attributes) == ("tool", "echo", "opaque", {"key": "k"})
    other = recording.record(1)
    assert (other.name, other.start, other.request) == ("m", 1_250_000_000, {"model": "m"})
    assert other.attributes == {"key": model["key"], "run_id": "r", "sequence": 5}


WRONG: dict[str, tuple[Any, str]] = {
    "no object": ([], "it is an array"),
    "a later version": (document(format_version=2), "newer than 1"),
    "no version": (document(format_version="1"), "format_version is '1'"),
    "a version that is true": (document(format_version=True), "format_version is True"),
    "an unknown mode": (document(mode="auto"), "mode is 'auto'"),
    "an unknown fallback": (document(fallback=[]), "fallback is"),
    "metadata": (document(metadata=[]), "metadata is an array"),
    "records": (document(records={}), "records is an object"),
    "a record": (document(record(0), 5), "record 1 is a number"),  # type: ignore[arg-type]
    "a kind": (document(record(0, "http")), "kind is 'http'"),
    "a sequence": (document(record("0")), "sequence is text"),  # type: ignore[arg-type]
    "a sequence that is true": (document(record(True)), "sequence is true"),
    "a sequence out of range": (document(record(2**70)), "record 0 cannot be kept"),
    "a key": (document(record(0, key=1)), "key is a number"),
    "a request": (document(record(0, request=[])), "request is an array"),
    "a run": (document(record(0, run_id=1)), "run_id is a number"),
    "a generation": (document(record(0, generation_id={})), "generation_id is an object"),
    "a moment": (document(record(0, created_at="now")), "created_at is text"),
    "a moment out of range": (document(record(0, created_at=10**400)), "out of range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_malformed_is_refused_before_anything_is_written(name: str, archive: Archive, tmp_path: Path) -> None:
    wrong, message = WRONG[name]
    (tmp_path / "in.json").write_text(text(wrong))
    with pytest.raises(ImportFormatError, match=message) as error:
        FORMAT.load(tmp_path / "in.json", archive, "run")
    assert "in.json" in str(error.value)
    with pytest.raises(RecordingNotFoundError):
        archive.open("run")


@pytest.mark.parametrize("member", ["mode", "fallback", "metadata", "records"])
def test_a_document_that_was_cut_is_refused(member: str, archive: Archive, tmp_path: Path) -> None:
    cut = document(record(0))
    del cut[member]
    (tmp_path / "in.json").write_text(text(cut))
    with pytest.raises(ImportFormatError, match=f"'{member}' is missing"):
        FORMAT.load(tmp_path / "in.json", archive, "run")
    (tmp_path / "in.json").write_bytes(text(document(record(0))).encode()[:-20] + b"\xff")
    with pytest.raises(ImportFormatError, match="no JSON"):
        FORMAT.load(tmp_path / "in.json", archive, "run")


def test_what_chassis_would_fill_in_is_filled_in(archive: Archive, tmp_path: Path) -> None:
    sparse = document({"kind": "tool", "sequence": 0, "key": "k"})
    full = record(0, key="k", request={}, created_at=0.0)
    assert json.loads(round_trip(archive, tmp_path, text(sparse))) == document(full)


def test_what_json_cannot_say_is_refused_and_the_file_stays(archive: Archive, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")
    for name, row, message in [
        ("bytes", {"key": "k", "attributes": {"key": "k"}, "response": [b"x"]}, "/records/0/response/0: .* for bytes"),
        ("keys", {"key": "k", "attributes": {"key": "k"}, "request": {1: 2}}, "the key 1 is int"),
        ("foreign", {"identity": {"a": 1}}, "not recorded through Chassis"),
        ("forged", {"key": "k", "attributes": {"key": "other"}}, "not recorded through Chassis"),
    ]:
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", **row)  # type: ignore[arg-type]
        with pytest.raises(ExportError, match=message):
            FORMAT.dump(archive.open(name), target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.glob("*out.json*")] == ["out.json"]


def test_what_the_disk_refuses_is_an_export_error(archive: Archive, tmp_path: Path) -> None:
    with archive.recorder("run") as recorder:
        recorder.append(kind="tool", key="k", attributes={"key": "k"}, request={}, response=1)
    with pytest.raises(ExportError, match="cannot be written: No such file"):
        FORMAT.dump(archive.open("run"), tmp_path / "no" / "such.json")


def test_detection(tmp_path: Path) -> None:
    for yes in (text(document()), json.dumps(document()), " \ufeff\n".strip(" ") + text(document())):
        assert FORMAT.detects(yes.encode()[:65536], tmp_path)
    karenina = {"format_version": 1, "miss_policy": "strict", "entries": []}
    lines = json.dumps({"kind": "tool", "response": text(document())}) + "\n"
    for no in ("", "[]", text(karenina), lines, "not json"):
        assert not FORMAT.detects(no.encode(), tmp_path)


def test_metadata_of_a_session() -> None:
    with pytest.raises(CanonicalizationError):
        pack_session("record", "error", {"x": object()})
    with pytest.raises(CanonicalizationError):
        pack_session("record", "error", {1: "x"})  # type: ignore[dict-item]
    # Recordings that no session wrote, or that somebody else did.
    assert unpack_session({"a": 1})["metadata"] == {"a": 1}
    odd = {"chassis": {"mode": "odd", "fallback": 1, "metadata": [], "extra": None}}
    assert unpack_session(odd) == {"mode": "record", "fallback": "error", "metadata": {}, "extra": {}}
    assert copy.deepcopy(odd) == odd
    for text in ("{", "[" * 100_000):
        with pytest.raises(FormatError, match="/chassis/metadata_json"):
            unpack_session({"chassis": {"metadata_json": text}})


def test_without_chassis_the_session_says_what_to_install() -> None:
    code = "import sys; sys.modules['chassis'] = None\nimport replaypack.integrations.chassis"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert "UsageError" in done.stderr
    assert "pip install 'replaypack[chassis]'" in done.stderr
