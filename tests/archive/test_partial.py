"""Recordings with purged records, and copies without requests: what readers, writers and replay make of them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack import Archive, ReplayMismatch
from replaypack.audit import rekey
from replaypack.audit.scan import scan
from replaypack.errors import PurgedError, UsageError, WithheldError
from replaypack.format.recipe import Range, Run, encode_ops
from replaypack.format.record_frame import Entry, RecordFrame, blank_records, encode_frame
from replaypack.integrations.interchange import format_named
from replaypack.replay.keyed import ArchivedReplayStore, ReplayEntry, ReplayKey
from tests.support.partial import without

SEARCH = {"name": "search", "args": {"q": "x"}}
LARGE = "a large answer " * 400


def fill(archive: Archive, name: str = "r") -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "be brief " * 600}]
    with archive.recorder(name, flush_interval=None) as recorder:
        for number in range(3):
            recorder.append(kind="tool", name="search", identity=SEARCH, response=f"answer {number}")
        recorder.append(kind="tool", name="search", identity=SEARCH, response="scoped", scope="s")
        for turn in range(3):
            messages = [*messages, {"role": "user", "content": f"question {turn} " * 20}]
            answer = {"role": "assistant", "content": f"reply {turn} " * 20}
            recorder.append(kind="model", name="m", identity={"model": "m", "messages": messages}, response=answer)
            messages = [*messages, answer]
        recorder.append(kind="tool", name="read", identity={"name": "read", "args": {"path": "/a"}}, response=LARGE)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "archive")
    fill(archive)
    return archive


@pytest.fixture
def purged(archive: Archive) -> Archive:
    """Without the second of three, the one in a scope, a turn, and the only call of its key."""
    without(archive, "r", {"asked to": [1, 5, 7], "again": [3]})
    return archive


@pytest.fixture
def withheld(archive: Archive) -> Archive:
    without(archive, "r", withheld=["request", "identity"])
    return archive


# Purged records


def test_reading(archive: Archive) -> None:
    whole = archive.open("r")
    leaves, root = list(whole.leaves()), whole.manifest.content.merkle_root
    digest = whole.content_digest
    rows = {record.seq: record.row_bytes for record in whole.records()}
    without(archive, "r", {"asked to": [1, 5, 7], "again": [3]})
    recording = archive.open("r")
    assert (recording.content_digest, recording.manifest.content.merkle_root) == (digest, root)
    assert len(recording) == recording.count() == 8
    assert recording.count("tool", SEARCH) == 4
    assert [record.seq for record in recording.records()] == [0, 2, 4, 6]
    assert [record.seq for record in recording.records(first=5)] == [6]
    assert {record.seq: record.row_bytes for record in recording.records()} == {n: rows[n] for n in (0, 2, 4, 6)}
    for record in recording.records():
        assert record.request is not None
        assert record.response is not None
    assert list(recording.leaves()) == leaves
    assert list(recording.leaves(5)) == leaves[5:]
    assert [recording.leaf(seq) for seq in range(8)] == leaves
    assert [(t.reason, [seq for seq, _ in t.records]) for t in recording.tombstones] == [
        ("asked to", [1, 5, 7]),
        ("again", [3]),
    ]
    with pytest.raises(PurgedError, match=r"record 1 of .*#r@3 was purged on 2025-06-16: asked to") as caught:
        recording.record(1)
    assert (caught.value.seq, caught.value.reason, caught.value.code) == (1, "asked to", "record.purged")
    assert [record.seq for record in recording.around(0)] == [0, 2, 4, 6]
    assert list(archive.verify("r")) == []


def test_the_nth_repetition_stays_the_nth(purged: Archive) -> None:
    recording = purged.open("r")
    assert recording.lookup("tool", SEARCH).response == "answer 0"  # type: ignore[union-attr]
    with pytest.raises(PurgedError):
        recording.lookup("tool", SEARCH, nth=1)
    assert recording.lookup("tool", SEARCH, nth=2).response == "answer 2"  # type: ignore[union-attr]
    assert recording.lookup("tool", SEARCH, nth=3) is None
    # The scope had such a call: those without a scope do not answer for it.
    with pytest.raises(PurgedError) as caught:
        recording.lookup("tool", SEARCH, scope="s")
    assert caught.value.scope == "s"
    # Of a key that nobody else has nothing is left.
    assert recording.lookup("tool", {"name": "read", "args": {"path": "/a"}}) is None
    assert recording.count("tool", {"name": "read", "args": {"path": "/a"}}) == 0


def test_replay(purged: Archive) -> None:
    with purged.session("r", "replay") as session:
        assert session.tool("search", {"q": "x"}, lambda: "live") == "answer 0"
        assert "purged" in str(session.explain("tool", SEARCH))
        with pytest.raises(ReplayMismatch, match="the record was purged") as caught:
            session.tool("search", {"q": "x"}, lambda: "live")
        assert (caught.value.reason, caught.value.asked, caught.value.recorded) == ("purged", 2, 3)
        assert "was purged on 2025-06-16: asked to; call number 2 of it was that record" in str(caught.value)
        assert isinstance(caught.value.__cause__, PurgedError)
        assert session.tool("search", {"q": "x"}, lambda: "live") == "answer 2"
        with pytest.raises(ReplayMismatch) as caught:
            session.tool("search", {"q": "x"}, lambda: "live")
        assert caught.value.reason == "exhausted"
        with session.scope("s"), pytest.raises(ReplayMismatch) as caught:
            session.tool("search", {"q": "x"}, lambda: "live")
        assert caught.value.reason == "purged"
        with pytest.raises(ReplayMismatch) as caught:
            session.tool("read", {"path": "/a"}, lambda: "live")
        assert caught.value.reason == "missing"
        assert "4 records of the recording were purged, and it may have been one" in str(caught.value)
        assert [record.seq for record in session.unplayed()] == [4, 6]
    with purged.session("r", "replay", on_missing="live", on_exhausted="last") as session:
        asked = [session.tool("search", {"q": "x"}, lambda: "live") for _ in range(4)]
        assert asked == ["answer 0", "live", "answer 2", "answer 2"]


def test_an_append_carries_tombstones_along(purged: Archive) -> None:
    before = purged.open("r")
    with purged.recorder("r", if_exists="append", flush_interval=None) as recorder:
        recorder.append(kind="tool", name="search", identity=SEARCH, response="answer 4")
        recorder.flush()
        assert purged.open("r").tombstones == before.tombstones
        recorder.append(kind="tool", name="search", identity=SEARCH, response="answer 5")
    recording = purged.open("r")
    assert recording.tombstones == before.tombstones
    assert recording.manifest.content.extends == before.content_digest
    assert recording.lookup("tool", SEARCH, nth=3).response == "answer 4"  # type: ignore[union-attr]
    assert [record.seq for record in recording.records()] == [0, 2, 4, 6, 8, 9]
    assert list(recording.leaves(3))[:5] == list(before.leaves())[3:]
    assert list(purged.verify("r")) == []
    with purged.recorder("r", if_exists="replace", flush_interval=None) as recorder:
        recorder.append(kind="tool", identity=1, response=1)
    assert purged.open("r").tombstones == []
    assert list(purged.verify("r")) == []


def test_bytes_of_it_can_be_built_upon(purged: Archive) -> None:
    with purged.recorder("next", base="r", flush_interval=None) as recorder:
        last = purged.open("r").record(6)
        recorder.append(kind="model", name="m", identity=last.request, response="new")
    assert purged.open("next").record(0).request == last.request
    assert list(purged.verify()) == []


def test_keys_are_not_computed_anew(purged: Archive) -> None:
    with pytest.raises(UsageError, match="4 records of it were purged"):
        rekey(purged, "r", match="uuids")
    with pytest.raises(UsageError, match="4 records of it were purged"):
        purged.open("r", match="uuids").lookup("tool", SEARCH)


def test_export(purged: Archive, tmp_path: Path) -> None:
    lines = format_named("jsonl")
    summary = lines.dump(purged.open("r"), tmp_path / "r.jsonl")
    assert (summary.records, summary.notes) == (4, ("4 records were purged, and not written",))
    summary = lines.load(tmp_path / "r.jsonl", purged, "back")
    assert summary.notes == ("4 records had been purged before it was exported",)
    assert [r.response for r in purged.open("back").records()] == [r.response for r in purged.open("r").records()]


def test_a_keyed_store(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with _store(archive, "record") as store:
        for number, model in enumerate([None, "m", "m", None]):
            store.register(
                ReplayKey(question_id=f"q{number // 3}", answering_model_id=model), ReplayEntry(raw_trace=f"t{number}")
            )
    without(archive, "store", {"asked to": [2]})
    with _store(archive, "replay", miss_policy="strict") as store:
        assert store.lookup(question_id="q0").raw_trace == "t0"
        with pytest.raises(Exception, match=r"1 record of .*#store@3 was purged"):
            store.lookup(question_id="q0", answering_model_id="m")
        assert [entry.raw_trace for _, entry in store.entries] == ["t0", "t1", "t3"]
        assert store.entries[2][1].raw_trace == "t3"
        assert len(store.entries) == 3
        store.miss_policy = "fall_through"
        assert store.lookup(question_id="q0", answering_model_id="m") is None


def _store(archive: Archive, mode: Any, **options: Any) -> Any:
    return ArchivedReplayStore(archive=archive, name="store", mode=mode, **options)


# Withheld requests


def test_a_copy_without_requests_replays(withheld: Archive) -> None:
    recording = withheld.open("r")
    assert recording.withheld == {"request", "identity"}
    assert [record.seq for record in recording.records()] == list(range(8))
    record = recording.lookup("tool", {"name": "read", "args": {"path": "/a"}})
    assert record is not None
    assert record.response == LARGE
    assert record.withheld == {"request"}
    for read in (lambda: record.request, lambda: record.identity, lambda: record.blob_bytes("request")):
        with pytest.raises(WithheldError, match=r"the request of record 7 is withheld in .*#r@3") as caught:
            read()
        assert (caught.value.seq, caught.value.role, caught.value.code) == (7, "request", "record.withheld")
    assert record.row.request is not None
    with pytest.raises(WithheldError, match="which is withheld"):
        recording.blob(record.row.request.digest.hex())
    with withheld.session("r", "replay") as session:
        assert session.tool("search", {"q": "x"}, lambda: "live") == "answer 0"
        with pytest.raises(ReplayMismatch) as caught_miss:
            session.tool("search", {"q": "y"}, lambda: "live")
        assert "what was asked is withheld in this copy" in str(caught_miss.value)
    assert list(withheld.verify("r")) == []
    assert list(scan(recording)) == []


def test_what_needs_requests_says_so(withheld: Archive, tmp_path: Path) -> None:
    with pytest.raises(WithheldError, match="what they were made of is withheld"):
        rekey(withheld, "r", match="uuids")
    with pytest.raises(WithheldError, match="what they were made of is withheld"):
        withheld.open("r", match="uuids").lookup("tool", SEARCH)
    with pytest.raises(WithheldError, match="nothing can be appended to"):
        withheld.recorder("r", if_exists="append")
    with pytest.raises(WithheldError):
        format_named("jsonl").dump(withheld.open("r"), tmp_path / "r.jsonl")
    assert not (tmp_path / "r.jsonl").exists()
    # A recorder takes what is there, which is nothing.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with withheld.recorder("next", base="r", flush_interval=None) as recorder:
            recorder.append(kind="tool", identity=SEARCH, response=1)
        with withheld.recorder("r", if_exists="replace", flush_interval=None) as recorder:
            recorder.append(kind="tool", identity=SEARCH, response=1)
    assert withheld.open("r").withheld == frozenset()
    assert list(withheld.verify()) == []


# Frames


@settings(max_examples=40)
@given(st.data())
def test_records_that_stay_are_made_of_what_they_were(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    entries, sizes = [], []
    for number in range(count):
        recipes = []
        for _ in range(data.draw(st.integers(0, 2))):
            ops: list[Any] = [Range(data.draw(st.integers(0, 99)), 5, 0)]
            size = 1
            if sizes and data.draw(st.booleans()):
                back = data.draw(st.integers(1, len(sizes)))
                start = data.draw(st.integers(0, sizes[-back] - 1))
                items = data.draw(st.integers(1, sizes[-back] - start))
                ops.append(Run(back, start, items))
                size += items
            sizes.append(size)
            recipes.append(encode_ops(ops))
        inline = data.draw(st.none() | st.binary(max_size=9))
        entries.append(Entry(b"row %d" % number, b"".join(recipes), inline))
    frame = RecordFrame(b"".join(encode_frame(entries)))
    gone = data.draw(st.sets(st.integers(0, count - 1)))
    spans = data.draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=2))
    spans = [(min(span), min(frame.inline_size, max(span))) for span in spans]
    spans = [(low, high) for low, high in spans if low < high]
    blank = RecordFrame(b"".join(blank_records(frame, gone, spans)))
    assert blank.inline_size == frame.inline_size
    place = 0
    for number in range(count):
        old, new = frame.entry(number), blank.entry(number)
        if number in gone:
            assert (new.row, new.recipes, blank.recipes(number)) == (b"", b"", [])
            assert (old.inline is None) == (new.inline is None)
            for at, byte in enumerate(new.inline or b""):
                kept = any(low <= place + at < high for low, high in spans)
                assert byte == (old.inline[at] if kept else 0)  # type: ignore[index]
        else:
            assert (new.row, new.inline) == (old.row, old.inline)
            assert blank.recipes(number) == frame.recipes(number)
        place += len(old.inline or b"")
