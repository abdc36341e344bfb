"""Karenina's JSON, version 1."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive, ReplayEntry, ReplayKey, ReplaypackError, ReplayPersistenceError, ReplayStore
from replaypack.errors import ReplayValueError
from replaypack.replay.keyed import dump, load

from .contract import SCENARIO, entry, key, trace


def mixed() -> ReplayStore:
    """Entries of both modes, in an order that is not the sorted one, with text of every kind."""
    pairs = [
        (
            key("z", answering_model_id="langchain:gpt-5", replicate=1),
            entry("é \ud800 \u2028 \n", parsed_answer_fields={"b": 1, "a": [1.5, None]}, captured_at="2026-04-08"),
        ),
        (
            key("a", visit_index=0, **SCENARIO),
            entry("", trace_messages=[], agent_metrics={"nan": float("nan"), "big": 1 << 70, "none": None}),
        ),
    ]
    return ReplayStore(miss_policy="strict", entries=pairs)


def as_karenina_writes(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True)


def test_the_file_is_what_karenina_writes(tmp_path: Path) -> None:
    for store in (mixed(), ReplayStore()):
        path = tmp_path / "replay.json"
        dump(store, path)
        assert path.read_text() == as_karenina_writes(
            {
                "version": 1,
                "miss_policy": store.miss_policy,
                "entries": [{"key": at.model_dump(), "entry": what.model_dump()} for at, what in store.entries],
            }
        )


def test_saving_what_was_loaded_gives_the_same_document(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    mixed().save(first)
    ReplayStore.load(first).save(second)
    assert second.read_bytes() == first.read_bytes()


def test_saving_from_an_archive_gives_the_same_document(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    archive = Archive(tmp_path / "archive")
    store = mixed()
    store.register(key("plain"), entry("x" * 10_000))
    store.save(first)
    store.save_to(archive, "r")
    ReplayStore.open(f"{archive.url}#r").save(second)
    assert second.read_bytes() == first.read_bytes()


def test_entries_of_a_file_that_stand_twice_are_all_kept(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    ReplayStore(entries=[(key(), entry("1")), (key(), entry("2"))]).save(first)
    loaded = load(first)
    assert trace(loaded.lookup(question_id="q")) == "2"
    loaded.save(second)
    assert second.read_bytes() == first.read_bytes()


def test_files_without_replicate_load(tmp_path: Path) -> None:
    """As the first release wrote them: fewer fields, members in another order."""
    path = tmp_path / "legacy.json"
    path.write_text(
        json.dumps(
            {
                "version": 1,
                "miss_policy": "fall_through",
                "entries": [
                    {
                        "key": {
                            "answering_model_id": "gpt-5",
                            "question_id": "q-legacy-1",
                            "scenario_id": None,
                            "scenario_node": None,
                            "visit_index": None,
                        },
                        "entry": {"raw_trace": "legacy-trace", "captured_at": "2026-04-08T12:00:00Z"},
                    }
                ],
            }
        )
    )
    [(at, what)] = load(path).entries
    assert at == key("q-legacy-1", answering_model_id="gpt-5")
    assert what == ReplayEntry(raw_trace="legacy-trace", captured_at="2026-04-08T12:00:00Z")


def test_miss_policy_override(tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    mixed().save(path)
    assert load(path).miss_policy == "strict"
    assert load(path, miss_policy="fall_through").miss_policy == "fall_through"
    path.write_text('{"version": 1, "entries": []}')
    assert load(path).miss_policy == "fall_through"


ITEM = {"key": {"question_id": "q"}, "entry": {"raw_trace": "x"}}


def document(**members: Any) -> str:
    return json.dumps({"version": 1, "miss_policy": "strict", "entries": [], **members})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{not json", "is not JSON"),
        ("", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        ("\ufeff{}", "is not JSON"),
        ("[" * 200_000, "nested too deeply"),
        ("[]", "no object"),
        ("{}", "no version"),
        (document(version=99), "version 99"),
        (document(version="1"), "version '1'"),
        (document(version=True), "version True"),
        (document(version=1.0), "version 1.0"),
        (document(entries={}), "entries is no array"),
        (document(entries=["x"]), "/entries/0 is no object"),
        (document(entries=[ITEM, {"key": {}}]), "/entries/1 has no entry"),
        (document(entries=[{}]), "/entries/0 has no key and no entry"),
        (document(entries=[{**ITEM, "key": {}}]), "/entries/0: .*question_id"),
        (document(entries=[{**ITEM, "key": None}]), "/entries/0: .*mapping"),
        (document(entries=[{**ITEM, "entry": {"raw_trace": "x", "BOGUS": 1}}]), "/entries/0: .*BOGUS"),
        (document(miss_policy="garbage"), "miss_policy"),
        (document(miss_policy=None), "miss_policy"),
        (document(miss_policy=[]), "miss_policy"),
    ],
)
def test_what_is_no_replay_store_is_refused(tmp_path: Path, text: str | bytes, says: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ReplayPersistenceError, match=says) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_policy_that_does_not_exist_and_a_file_that_does_not(tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    with pytest.raises(ReplayPersistenceError, match="cannot be read: No such file"):
        load(path)
    mixed().save(path)
    with pytest.raises(ReplayPersistenceError, match="loud"):
        load(path, miss_policy="loud")  # type: ignore[arg-type]


def test_members_that_have_no_place_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "more.json"
    path.write_text(document(entries=[{**ITEM, "note": 1}], author="me"))
    assert len(load(path).entries) == 1
    assert "/author, /entries/0/note" in caplog.text


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x"])
def test_values_that_json_has_not_are_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "replay.json"
    path.write_text("old")
    store = ReplayStore(entries=[(key(), entry("x")), (key("bad"), entry("x", agent_metrics={"v": value}))])
    with pytest.raises(ReplayPersistenceError, match=r"entry 1, .*'bad'"):
        store.save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["replay.json"]


def test_a_save_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "replay.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        mixed().save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["replay.json"]


def test_a_save_follows_links_and_honours_the_umask(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    before = os.umask(0o027)
    try:
        mixed().save(link)
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert len(load(target).entries) == 2
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_an_import_is_whole_or_not_at_all(tmp_path: Path) -> None:
    fine, long = ReplayEntry(raw_trace="a"), ReplayKey(question_id="q", answering_model_id="m" * 5000)
    store = ReplayStore(entries=[(ReplayKey(question_id="p"), fine), (long, fine)])
    archive = Archive(tmp_path)
    with pytest.raises(ReplaypackError, match="4096"):
        store.save_to(archive, "run")
    assert not list(archive.recordings())


def test_a_match_policy_of_the_recording_is_heeded(tmp_path: Path) -> None:
    question = "2f1c9d3e-0b6f-4a68-9c65-1f2f3a4b5c6d"
    store = ReplayStore(entries=[(ReplayKey(question_id=question), ReplayEntry(raw_trace="a"))])
    store.save_to(Archive(tmp_path), "run", match="uuids")
    found = ReplayStore.open(f"{tmp_path}#run").lookup(question_id=question)
    assert found is not None
    assert found.raw_trace == "a"


def test_fields_with_names_that_are_no_text_are_refused_like_others(tmp_path: Path) -> None:
    with pytest.raises(ReplayValueError):
        ReplayEntry.model_validate({"raw_trace": "a", "\ud800": 1})
    archive = Archive(tmp_path)
    with archive.recorder("run") as recorder:
        identity, attributes = {"question_id": "q"}, {"question_id": "q"}
        response = {"raw_trace": "a", "\ud800": 1}
        recorder.append(kind="trace", identity=identity, response=response, attributes=attributes)
    store = ReplayStore.open(f"{tmp_path}#run")
    for look in (lambda: store.lookup(question_id="q"), lambda: list(store.entries)):
        with pytest.raises(ReplaypackError):
            look()
