"""Karenina's JSON files: told apart, imported, exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive, ReplayEntry, ReplayKey, ReplayStore
from replaypack.errors import ExportError, ImportFormatError, RecordingNotFoundError, UsageError
from replaypack.integrations import karenina_json
from tests.replay.keyed.corpus import karenina_directory, karenina_file

ITEM = {"key": {"question_id": "q"}, "entry": {"raw_trace": "x"}}


@pytest.mark.parametrize(
    ("document", "is_one"),
    [
        ({"version": 1, "miss_policy": "strict", "entries": [ITEM]}, True),
        ({"entries": [dict(reversed(ITEM.items()))], "version": 1}, True),
        ({"entries": [], "miss_policy": "strict", "version": 1}, True),
        ({"entries": []}, False),
        ({"log": {"entries": [{"startedDateTime": "2026"}], "version": "1.2"}}, False),
        ({"format_version": 1, "records": []}, False),
        ([ITEM], False),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_detects(document: Any, is_one: bool, indent: int | None) -> None:
    head = json.dumps(document, indent=indent).encode()[: 1 << 16]
    assert karenina_json.detects(head, Path("run.json")) is is_one


def test_detects_what_a_store_saved(tmp_path: Path) -> None:
    for entries in ([], [(ReplayKey(question_id="q"), ReplayEntry(raw_trace="x" * 200_000))]):
        path = tmp_path / "run.json"
        ReplayStore(entries=entries).save(path)
        assert karenina_json.detects(path.read_bytes()[: 1 << 16], path)


def test_load_says_what_could_not_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"version": 1, "entries": [ITEM, {**ITEM, "note": 1}], "author": "me"}))
    summary = karenina_json.load(path, Archive(tmp_path / "archive"), "r", metadata={"from": "test"})
    assert (summary.format, summary.records) == ("karenina", 2)
    assert [note.split(":")[-1].strip() for note in summary.notes[:2]] == ["/author", "/entries/1/note"]
    assert "1 entries stand at the place of a later one" in summary.notes[2]
    assert Archive(tmp_path / "archive").open("r").metadata["from"] == "test"


def test_a_file_with_a_fault_records_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"version": 1, "entries": [ITEM, {}]}))
    archive = Archive(tmp_path / "archive")
    with pytest.raises(ImportFormatError, match="/entries/1"):
        karenina_json.load(path, archive, "r")
    with pytest.raises(RecordingNotFoundError):
        archive.open("r")


def test_dump_says_what_it_left_out(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive")
    entries = [(ReplayKey(question_id="q"), ReplayEntry(raw_trace=text)) for text in "ab"]
    ReplayStore(entries=entries).save_to(archive, "r")
    with archive.recorder("r", if_exists="append") as recorder:
        recorder.append(kind="tool", identity="t", response=1)
    summary = karenina_json.dump(archive.open("r"), tmp_path / "run.json")
    assert summary.records == 1
    assert [" ".join(note.split()[:2]) for note in summary.notes] == ["1 record", "1 entries"]
    assert ReplayStore.load(tmp_path / "run.json").entries == entries[1:]
    with archive.recorder("r", if_exists="append") as recorder:
        recorder.append(kind="trace", identity="no entry", response=1)
    with pytest.raises(ExportError, match="record 3 of"):
        karenina_json.dump(archive.open("r"), tmp_path / "run.json")
    with pytest.raises(UsageError, match="no such option"):
        karenina_json.dump(archive.open("r"), tmp_path / "run.json", bogus=1)


def test_a_recording_without_entries_is_not_exported_as_an_empty_store(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive")
    with archive.recorder("r") as recorder:
        recorder.append(kind="tool", identity="t", response=1)
    with pytest.raises(ExportError, match="no entries of a replay store"):
        karenina_json.dump(archive.open("r"), tmp_path / "run.json")
    assert not (tmp_path / "run.json").exists()
    ReplayStore().save_to(archive, "empty")
    assert karenina_json.dump(archive.open("empty"), tmp_path / "run.json").records == 0


@pytest.mark.corpus
def test_what_the_disk_refuses_is_an_export_error(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive")
    ReplayStore(entries=[]).save_to(archive, "r")
    with pytest.raises(ExportError, match="cannot be written: No such file"):
        karenina_json.dump(archive.open("r"), tmp_path / "no" / "such.json")


def test_the_first_release_s_file_comes_back(tmp_path: Path) -> None:
    seed = karenina_directory() / "seeds" / "karenina-replay-v1.json"
    archive = Archive(tmp_path / "archive")
    assert karenina_json.detects(seed.read_bytes(), seed)
    assert karenina_json.load(seed, archive, "seed") == karenina_json.Summary("karenina", 1)
    karenina_json.dump(archive.open("seed"), tmp_path / "out.json")
    before, after = (json.loads(path.read_bytes()) for path in (seed, tmp_path / "out.json"))
    assert after["version"] == before["version"]
    assert after["miss_policy"] == before["miss_policy"]
    [old], [new] = before["entries"], after["entries"]
    for part in ("key", "entry"):
        assert {name: new[part][name] for name in old[part]} == old[part]
        assert all(value is None for name, value in new[part].items() if name not in old[part])


@pytest.mark.corpus
def test_a_recorded_agent_trace_is_stored_once(tmp_path: Path) -> None:
    """A quarter of a megabyte of messages, as a hundred replicates: they are the same bytes."""
    messages = json.loads(karenina_file("trace_ef6792eb3a399334.json"))["trace_messages"]
    store = ReplayStore()
    for replicate in range(100):
        store.register(
            ReplayKey(question_id="q", replicate=replicate),
            ReplayEntry(raw_trace=f"{replicate}", trace_messages=messages),
        )
    first, second = tmp_path / "run.json", tmp_path / "back.json"
    store.save(first)
    archive = Archive(tmp_path / "archive")
    karenina_json.load(first, archive, "r")
    size = sum(path.stat().st_size for path in (tmp_path / "archive").rglob("*") if path.is_file())
    assert size * 100 < first.stat().st_size
    karenina_json.dump(archive.open("r"), second)
    assert second.read_bytes() == first.read_bytes()
