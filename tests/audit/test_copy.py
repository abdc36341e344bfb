"""Copying recordings to another archive: only what is missing, nothing of others, all at once or not at all."""

from __future__ import annotations

import functools
import http.server
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from benchmarks.workloads import agent

from replaypack import Archive
from replaypack.audit import Copied, CopiedRecording, compact, copy, gc, purge, rekey
from replaypack.errors import (
    ConflictError,
    FormatError,
    InvalidNameError,
    ObjectMissingError,
    ReadOnlyStorageError,
    RecordingExistsError,
    RecordingNotFoundError,
    StorageError,
    StorageUnsupportedError,
    UsageError,
    WithheldError,
)
from replaypack.format.frame import decompress
from replaypack.format.manifest_members import Source
from replaypack.format.marks import MARKS, encode_marks
from replaypack.format.names import latest_key, pack_key_of, revision_key
from replaypack.format.pack import TRAILER_SIZE, FrameKind, parse_pack
from replaypack.storage import MemoryStorage, ObjectInfo
from tests.archive.support import calls, check
from tests.storage.conftest import Bucket
from tests.support.partial import without

CANARY = "canary-8517-of-another-recording"


def memory() -> Archive:
    return Archive("", storage=MemoryStorage())


def record(archive: Archive, name: str, items: list[dict[str, Any]], **options: Any) -> None:
    with archive.recorder(name, flush_interval=None, **options) as recorder:
        for item in items:
            recorder.append(**item)


def objects(archive: Archive) -> dict[str, bytes]:
    return {info.key: archive.storage.get(info.key) for info in archive.storage.list()}


def packs(archive: Archive) -> set[str]:
    return {key for key in objects(archive) if key.startswith("packs/")}


def everything(archive: Archive) -> bytes:
    """All that can be read in an archive: every object, every frame and table of contents decompressed."""
    parts = []
    for key, data in objects(archive).items():
        parts += [key.encode(), data]
        if key.startswith("packs/"):
            toc = parse_pack(data)
            parts.append(repr(toc.origins).encode())
            parts += [decompress(data[f.offset : f.offset + f.length], f.raw) for f in toc.frames]
    return b"\0".join(parts)


def sound(archive: Archive) -> None:
    assert list(archive.verify()) == []


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    return list(calls(90, large=True))


@pytest.fixture(scope="module")
def source(expected: list[dict[str, Any]]) -> Archive:
    """``a``; ``b``, recorded with ``a`` as base; ``c/d``, which has one of their large payloads."""
    archive = memory()
    record(archive, "a", expected)
    record(archive, "b", expected[:60], base="a")
    record(archive, "c/d", expected[-2:])
    return archive


# What arrives


def test_an_archive(source: Archive, expected: list[dict[str, Any]]) -> None:
    target = memory()
    seen: list[tuple[str, int, int]] = []
    done = source.copy_to(target, progress=lambda at: seen.append((at.stage, at.done, at.total)))
    assert [found.name for found in done.recordings] == ["a", "b", "c/d"]
    assert {found.state for found in done.recordings} == {"copied"}
    assert list(target.recordings()) == ["a", "b", "c/d"]
    check(target.open("a"), expected)
    check(target.open("b"), expected[:60])
    for name in target.recordings():
        old, new = source.open(name).manifest, target.open(name).manifest
        assert (new.content, new.content_digest, new.revision) == (old.content, old.content_digest, 1)
        assert new.storage.source == Source(manifest=old.digest, policy="whole")
        assert (new.storage.cause, new.storage.previous, new.storage.claim) == ("copy", None, None)
        assert target.open(name, 1).manifest.digest == new.digest
    sound(target)
    # All belongs to them, so that all went as it was.
    assert packs(target) == packs(source)
    assert (done.packs, done.repacked, done.reused) == (len(packs(source)), 0, 0)
    assert done.bytes == sum(len(data) for key, data in objects(target).items() if key.startswith("packs/"))
    assert [at for at in seen if at[0] == "recordings"][-1] == ("recordings", 3, 3)
    assert seen[-1] == ("bytes", done.bytes, done.bytes)
    assert [done_ for stage, done_, _ in seen if stage == "bytes"] == sorted(d for s, d, _ in seen if s == "bytes")

    again = source.copy_to(target)
    assert {found.state for found in again.recordings} == {"there"}
    assert (again.packs, again.bytes) == (0, 0)
    assert {found.revision for found in again.recordings} == {1}


def test_what_another_copy_brought_is_not_sent(source: Archive, expected: list[dict[str, Any]]) -> None:
    target = memory()
    source.copy_to(target, "a")
    done = source.copy_to(target, ["b", "c/d"])
    # What `b` has of `a` is there, and so is the payload that `c/d` shares with it.
    assert done.repacked == 0
    assert (done.packs, done.reused >= 2) == (2, True)
    assert done.bytes < done.reused_bytes / 20
    assert packs(target) == packs(source)
    check(target.open("b"), expected[:60])
    sound(target)


def test_a_base_is_not_needed(source: Archive, expected: list[dict[str, Any]]) -> None:
    target = memory()
    done = source.copy_to(target, "b")
    assert done.repacked == done.packs == 1
    check(target.open("b"), expected[:60])
    assert not packs(target) & packs(source)
    # As small as it was: page of keys and record frames lie together again.
    assert target.open("b").index.segments[0].near() is not None
    sound(target)
    # The same again makes the same.
    other = memory()
    source.copy_to(other, "b")
    assert packs(other) == packs(target)
    # And from there it goes on whole.
    further = memory()
    done = target.copy_to(further)
    assert (done.repacked, packs(further)) == (0, packs(target))


def test_names_and_revisions(source: Archive, expected: list[dict[str, Any]]) -> None:
    target = memory()
    copy(source, target, ["[ab]"], if_exists="error")
    assert list(target.recordings()) == ["a", "b"]
    copy(source, target, "c/*")
    assert list(target.recordings()) == ["a", "b", "c/d"]
    done = copy(source, target, "a", to="x/y", revision=2)
    assert done.recordings[0][:5] == ("x/y", "a", "copied", 1, 2)
    assert done.packs == 0
    check(target.open("x/y"), expected)
    with pytest.raises(RecordingNotFoundError, match="matches 'z"):
        copy(source, target, "z*")
    with pytest.raises(RecordingNotFoundError):
        copy(source, target, "zzz")
    with pytest.raises(UsageError, match="of one recording"):
        copy(source, target, ["a", "b"], to="x")
    with pytest.raises(UsageError, match="of one recording"):
        copy(source, target, "*", revision=1)
    with pytest.raises(UsageError):
        copy(source, target, if_exists="maybe")  # type: ignore[arg-type]
    with pytest.raises(InvalidNameError):
        copy(source, target, "a", to="..")
    # A claim without records is no recording that could be copied.
    with pytest.raises(UsageError, match="it is not finished"):
        copy(source, target, "a", revision=1)


def test_within_one_archive() -> None:
    archive = memory()
    items = list(calls(20))
    record(archive, "a", items)
    before = packs(archive)
    copy(archive, archive, "a", to="b")
    check(archive.open("b"), items)
    assert packs(archive) == before
    assert copy(archive, archive).recordings[0].state == "there"


def test_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no archive"):
        Archive(tmp_path / "none").copy_to(memory())
    archive = memory()
    record(archive, "empty", [])
    target = memory()
    archive.copy_to(target)
    assert len(target.open("empty")) == 0
    sound(target)


# What does not


def shared_history(secret: str, large: bytes) -> list[dict[str, Any]]:
    """Requests with the same beginning; ``secret`` stands in a request, an answer that is repeated, a larger one, …"""
    rng = random.Random(7)
    system = " ".join(f"{rng.getrandbits(64):x}" for _ in range(600))
    history: list[Any] = [{"role": "system", "content": system}]
    items: list[dict[str, Any]] = []
    for turn in range(6):
        history.append({"role": "user", "content": f"question {turn} {secret} " + system[turn * 300 :][:2000]})
        answer = {"role": "assistant", "content": f"answer {turn} {secret} " + system[turn * 100 :][:1500]}
        image = large if turn in (1, 5) else None
        items.append({"kind": "model", "identity": {"messages": list(history), "image": image}, "response": answer})
        history.append(answer)
        result = f"{secret} {turn}" + system * 2
        items.append({"kind": "tool", "identity": {"n": turn, "what": secret}, "response": result})
        history.append({"role": "tool", "content": result})
    items.append({"kind": "tool", "identity": secret, "response": f"{secret} at the end"})
    return items


@pytest.mark.parametrize("base_has_it", [True, False])
@pytest.mark.parametrize("policy", ["whole", "responses-only"])
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.once
def test_nothing_of_another_recording_arrives(base_has_it: bool, policy: str, flush: bool) -> None:
    large = random.Random(1).randbytes((4 << 20) + 5000)
    theirs = shared_history(CANARY, large[: len(large) // 2] + CANARY.encode() * 9 + large[len(large) // 2 :])
    ours = shared_history("nothing to see", large)
    first, second = ("theirs", "ours") if base_has_it else ("ours", "theirs")
    archive = memory()
    for name, base in ((first, None), (second, first)):
        with archive.recorder(name, flush_interval=None, base=base, metadata={"of": name}) as recorder:
            for number, item in enumerate(theirs if name == "theirs" else ours):
                recorder.append(**item)
                if flush and number == 5:
                    recorder.flush()
    assert CANARY.encode() in everything(archive)
    target = memory()
    done = archive.copy_to(target, "ours", responses_only=policy == "responses-only")
    found = everything(target)
    assert CANARY.encode() not in found
    assert b"theirs" not in found
    if base_has_it:
        assert done.repacked
    recording = target.open("ours")
    if policy == "whole":
        check(recording, ours)
    for seq, item in enumerate(ours):
        assert recording.record(seq).response == item["response"]
    sound(target)
    # Copied together it goes along, of course.
    assert CANARY.encode() in everything(_copied(archive, "*"))


def _copied(archive: Archive, names: str, **options: Any) -> Archive:
    target = memory()
    archive.copy_to(target, names, **options)
    return target


def test_a_sibling_is_another_recording() -> None:
    """Both have the same id, and literals of the same offsets."""
    archive = memory()
    common, history = list(calls(6)), shared_history("common", b"x" * 9000)
    record(archive, "base", common)
    # What went on of it elsewhere, brought here under another name.
    elsewhere = _copied(archive, "base")
    record(elsewhere, "base", shared_history(CANARY, b"x" * 9000), if_exists="append")
    copy(elsewhere, archive, "base", to="sibling")
    record(archive, "base", history, if_exists="append", base="sibling")
    ours, theirs = archive.open("base"), archive.open("sibling")
    assert ours.manifest.content.id == theirs.manifest.content.id
    target = _copied(archive, "base")
    assert CANARY.encode() not in everything(target)
    check(target.open("base"), [*common, *history])
    sound(target)


def test_frames_that_no_table_names_stay_behind() -> None:
    """A rekeyed recording leaves its literals in packs with the record frames of the one that it was made of."""
    archive = memory()
    uuid = "123e4567-e89b-12d3-a456-4266141740"
    items = [{"kind": "tool", "identity": {"id": f"{uuid}{n}"}, "response": f"{CANARY} {n}"} for n in range(10, 30)]
    record(archive, "a", items)
    rekey(archive, "a", match="uuids", to="b")
    old = {frame.digest for frame in _record_frames(archive.open("a"))}
    target = _copied(archive, "b")
    there = {f.digest for key in packs(target) for f in parse_pack(target.storage.get(key)).frames}
    assert not old & there
    assert [item.response for item in target.open("b").records()] == [f"{CANARY} {n}" for n in range(10, 30)]
    sound(target)


def _record_frames(recording: Any) -> list[Any]:
    return [frame for _, frame in recording.index.frames()]


def test_responses_only(expected: list[dict[str, Any]]) -> None:
    archive = memory()
    items = [
        {"kind": "tool", "identity": {"n": n, "ask": CANARY * (1 + 200 * (n % 2))}, "response": "z" * n * 700}
        for n in range(30)
    ]
    record(archive, "r", items)
    target = memory()
    done = archive.copy_to(target, responses_only=True)
    assert CANARY.encode() not in everything(target)
    recording = target.open("r")
    assert recording.content_digest == archive.open("r").content_digest
    assert recording.manifest.storage.withheld == ["identity", "request"]
    assert recording.manifest.storage.source == Source(
        manifest=archive.open("r").manifest.digest, policy="responses-only"
    )
    for item in items:
        found = recording.lookup("tool", item["identity"])
        assert found is not None
        assert found.response == item["response"]
        with pytest.raises(WithheldError):
            _ = found.request
    sound(target)
    assert done.packs == 1
    # A second one is recognised, a copy of the copy lacks the same.
    assert archive.copy_to(target, responses_only=True).packs == 0
    further = memory()
    target.copy_to(further)
    assert further.open("r").manifest.storage.withheld == ["identity", "request"]
    assert packs(further) == packs(target)
    # What is missing can be brought later; what is there is not taken away.
    assert archive.copy_to(target).recordings[0].revision == 2
    check(target.open("r"), items)
    assert archive.copy_to(target, responses_only=True).recordings[0][2:4] == ("there", 2)
    sound(target)


# A name that is taken


def test_a_recording_that_went_on() -> None:
    archive, target = memory(), memory()
    first, more = list(calls(60)), list(calls(40, seed=5))
    record(archive, "r", first)
    archive.copy_to(target)
    before = packs(target)
    record(archive, "r", more, if_exists="append")
    done = archive.copy_to(target)
    assert done.recordings[0][:4] == ("r", "r", "copied", 2)
    assert done.reused == len(before)
    assert done.repacked == 0
    check(target.open("r"), first + more)
    assert target.open("r").manifest.storage.previous == target.open("r", 1).manifest.digest
    check(target.open("r", 1), first)
    # Several appends later, and rekeyed.
    for seed in (7, 8):
        record(archive, "r", list(calls(5, seed=seed)), if_exists="append")
    rekey(archive, "r", match="uuids")
    assert archive.copy_to(target).recordings[0].revision == 3
    sound(target)
    # An older revision is no continuation.
    with pytest.raises(RecordingExistsError):
        copy(archive, target, "r", revision=2)
    copy(archive, target, "r", revision=2, if_exists="replace")
    check(target.open("r"), first)


def test_another_recording_of_that_name_is_not_replaced_unasked() -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(10)))
    record(archive, "s", list(calls(3)))
    record(target, "r", list(calls(4, seed=3)))
    before = objects(target)
    with pytest.raises(RecordingExistsError, match="another recording"):
        archive.copy_to(target)
    assert objects(target) == before
    assert archive.copy_to(target, if_exists="replace").recordings[0].revision == 3
    check(target.open("r"), list(calls(10)))
    check(target.open("r", 2), list(calls(4, seed=3)))


def test_a_copy_that_went_on_by_itself() -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(10)))
    archive.copy_to(target)
    record(target, "r", list(calls(3, seed=1)), if_exists="append")
    with pytest.raises(RecordingExistsError, match="went on by itself"):
        archive.copy_to(target)
    # The other way it is a continuation.
    target.copy_to(archive)
    check(archive.open("r"), [*calls(10), *calls(3, seed=1)])


def test_a_name_that_is_being_recorded_there(tmp_path: Path) -> None:
    archive, target = memory(), Archive(tmp_path / "target")
    record(archive, "r", list(calls(5)))
    recorder = target.recorder("r")
    with pytest.raises(RecordingExistsError):
        archive.copy_to(target, if_exists="replace")
    recorder.seal()
    with pytest.raises(InvalidNameError, match="case"):
        copy(archive, target, "r", to="R")


def test_what_is_being_recorded(expected: list[dict[str, Any]]) -> None:
    archive, target = memory(), memory()
    record(archive, "done", expected[:5])
    record(archive, "more", expected[:20])
    fresh = archive.recorder("new", flush_interval=None)
    more = archive.recorder("more", if_exists="append", flush_interval=None)
    for recorder in (fresh, more):
        recorder.append(kind="tool", identity=1, response=1)
        recorder.flush()
    done = archive.copy_to(target)
    states = {found.name: (found.state, found.from_revision, found.note) for found in done.recordings}
    assert states["done"] == ("copied", 2, None)
    assert states["more"][0] == "copied"
    assert "it is being recorded" in str(states["more"][2])
    assert states["new"] == ("left out", None, "it is still being recorded")
    check(target.open("more"), expected[:20])
    with pytest.raises(UsageError, match="still being recorded"):
        archive.copy_to(target, "new")
    more.seal()
    fresh.seal()
    assert archive.copy_to(target).recordings[1].revision == 2
    assert len(target.open("more")) == 21


def test_purged_records(expected: list[dict[str, Any]]) -> None:
    archive, target, other = memory(), memory(), memory()
    record(archive, "r", expected[:24])
    archive.copy_to(target)
    archive.copy_to(other)
    without(archive, "r", {"asked to": [1, 5, 7]})
    assert archive.copy_to(target).recordings[0][2:4] == ("copied", 2)
    assert target.open("r").manifest.storage.tombstones == archive.open("r").manifest.storage.tombstones
    assert archive.copy_to(target).recordings[0].state == "there"
    sound(archive)
    assert [(fault.code, fault.where) for fault in target.verify(revisions=False)] == [
        ("purge.unfinished", "recordings/r/00000001.json")
    ]
    # What was purged at the destination does not come back unasked.
    without(other, "r", {"asked to, too": [9]})
    with pytest.raises(RecordingExistsError, match="purged there"):
        archive.copy_to(other)
    assert archive.copy_to(other, if_exists="replace").recordings[0].state == "copied"
    alone = memory()
    archive.copy_to(alone, responses_only=True)
    sound(alone)


@pytest.mark.parametrize("command", ["purge", "gc"])
def test_older_revisions_at_the_destination_keep_what_was_purged_until_told(command: str) -> None:
    archive, target = memory(), memory()
    items = [{"kind": "tool", "identity": {"n": n}, "response": f"{CANARY} {n} " * 90} for n in range(6)]
    record(archive, "r", items)
    archive.copy_to(target)
    purge(archive, "r", [2], "asked to", keep_shared=True)
    archive.copy_to(target)
    gone = f"{CANARY} 2 ".encode()
    assert gone not in everything(archive)
    assert gone in everything(target)
    assert target.open("r", 1).record(2).response
    assert {fault.code for fault in target.verify(level="manifest")} == {"purge.unfinished"}
    if command == "purge":
        purge(target, "r", [2], "asked to", keep_shared=True)
    else:
        gc(target, keep_last=1, grace=timedelta(), apply=True)
    assert gone not in everything(target)
    assert target.open("r", fresh=True).manifest.purged == 1
    sound(target)
    sound(target)


def appended_or_rekeyed(archive: Archive, how: str) -> None:
    if how == "rekey":
        rekey(archive, "r", match="uuids")
    else:
        record(archive, "r", list(calls(3, seed=4)), if_exists="append")


@pytest.mark.parametrize("how", ["append", "rekey"])
def test_what_was_purged_there_does_not_come_back_with_what_follows(how: str) -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(12)))
    archive.copy_to(target)
    purge(target, "r", [2], "asked to", keep_shared=True)
    appended_or_rekeyed(archive, how)
    before = objects(target)
    with pytest.raises(RecordingExistsError, match="purged there"):
        archive.copy_to(target)
    assert objects(target) == before
    if how == "append":
        # Purged in the source too, it is what follows.
        purge(archive, "r", [2, 4], "asked to", keep_shared=True)
        assert archive.copy_to(target).recordings[0].state == "copied"
        assert target.open("r").manifest.purged == 2
    else:
        archive.copy_to(target, if_exists="replace")
        assert not target.open("r").manifest.purged


@pytest.mark.parametrize("how", ["append", "rekey", "purge"])
def test_requests_that_are_there_are_not_taken_away_unasked(how: str) -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(12)))
    archive.copy_to(target)
    if how == "purge":
        purge(archive, "r", [2], "asked to", keep_shared=True)
    else:
        appended_or_rekeyed(archive, how)
    before = objects(target)
    with pytest.raises(RecordingExistsError, match="would lack"):
        archive.copy_to(target, responses_only=True)
    assert objects(target) == before
    archive.copy_to(target, responses_only=True, if_exists="replace")
    assert target.open("r").manifest.storage.withheld
    # Where they are withheld already, what follows is as well.
    other = memory()
    archive.copy_to(other, responses_only=True)
    record(archive, "r", list(calls(2, seed=9)), if_exists="append")
    assert archive.copy_to(other, responses_only=True).recordings[0].revision == 2


@pytest.mark.parametrize("purged_as", ["r", "other/name"])
@pytest.mark.parametrize("how", ["as it was", "append", "rekey"])
def test_what_was_purged_there_does_not_come_back_under_another_name(purged_as: str, how: str) -> None:
    archive, target = memory(), memory()
    items = [{"kind": "tool", "identity": {"n": n}, "response": f"{CANARY} {n} " * 90} for n in range(6)]
    record(archive, "r", items)
    copy(archive, target, "r", to=purged_as)
    for name in ("x", "y"):
        record(target, name, list(calls(3)))
    purge(target, purged_as, [2], "asked to", keep_shared=True)
    if how != "as it was":
        appended_or_rekeyed(archive, how)
    before = objects(target)
    with pytest.raises(RecordingExistsError, match=f"were purged in .*, where it is '{purged_as}'"):
        copy(archive, target, "r", to="z")
    with pytest.raises(RecordingExistsError, match="were purged"):
        copy(archive, target, "r", to="z", responses_only=True)
    assert objects(target) == before
    # Asked for, it does; and then it is there.
    copy(archive, target, "r", to="z", if_exists="replace")
    assert target.open("z").record(2).response == items[2]["response"]
    copy(archive, target, "r", to="zz")
    if how != "rekey":
        # Purged in the source too, nothing comes back.
        for name in ("z", "zz"):
            target.delete(name)
        purge(archive, "r", [2, 3], "asked to", keep_shared=True)
        assert copy(archive, target, "r", to="z").recordings[0].state == "copied"
        assert target.open("z").manifest.purged == 2


def test_what_the_source_purged_and_kept_under_another_name_follows() -> None:
    """Whoever purged there saw the other one, and an interrupted copy of both goes on."""
    archive, target = memory(), memory()
    record(archive, "r", list(calls(12)))
    copy(archive, archive, "r", to="kept")
    purge(archive, "r", [2], "asked to", keep_shared=True)
    copy(archive, target, "r")
    copy(archive, target, ["r", "kept"])
    check(target.open("kept"), list(calls(12)))
    # What was purged there besides does not.
    other = memory()
    copy(archive, other, "r")
    purge(other, "r", [3], "asked to, here", keep_shared=True)
    with pytest.raises(RecordingExistsError, match="were purged"):
        copy(archive, other, "kept")


def test_a_destination_that_cannot_be_looked_through_for_purges_is_noted() -> None:
    archive = memory()
    record(archive, "r", list(calls(5)))

    class Unlisted(MemoryStorage):
        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            raise StorageUnsupportedError("no listing", operation="list", url=self.url)

    assert any(
        "purged there under other names" in note for note in archive.copy_to(Archive("", storage=Unlisted())).notes
    )
    target = memory()
    record(target, "broken", list(calls(2)))
    for key in objects(target):
        if key.startswith("recordings/"):
            target.storage.put(key, b"{}")
    [note] = archive.copy_to(target).notes
    assert "broken cannot be read" in note


# What is gone at the destination


@pytest.mark.parametrize("gone", ["all", "with pages"])
def test_packs_that_are_gone_from_what_is_there_are_brought_again(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if gone == "with pages":
        monkeypatch.setattr("replaypack._write.publish.INLINE_LIMIT", 10)
        monkeypatch.setattr("replaypack._write.publish._MAX_INLINE_PACKS", 0)
    archive, target = memory(), memory()
    record(archive, "r", list(calls(40)))
    archive.copy_to(target)
    assert copy(archive, target, "r", if_exists="replace").recordings[0].state == "there"
    for key in packs(target):
        target.storage.delete(key)
    assert archive.copy_to(target).recordings[0].state == "there"
    done = copy(archive, target, "r", if_exists="replace")
    assert done.recordings[0][2:4] == ("copied", 2)
    check(target.open("r"), list(calls(40)))
    sound(target)


def test_a_pack_in_the_place_of_one_that_is_made_is_not_taken_for_it(
    source: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the name, the size and the end; the copy looks at a few of the other bytes."""
    monkeypatch.setattr("replaypack.audit._transfer._SAMPLE", 1 << 30)
    target, other = memory(), memory()
    source.copy_to(other, "b")
    [key] = packs(other)
    data = other.storage.get(key)
    record(target, "x", list(calls(1)))
    target.storage.put(key, bytes(len(data) - TRAILER_SIZE) + data[-TRAILER_SIZE:])
    with pytest.raises(StorageError, match="damaged pack is in the way"):
        source.copy_to(target, "b")
    assert list(target.recordings()) == ["x"]


# What is damaged in the source


def flip(archive: Archive, key: str, at: int) -> bytes:
    """Change a byte of an object; return what it was."""
    data = archive.storage.get(key)
    archive.storage.put(key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    return data


def own_pack(archive: Archive, name: str, *others: str) -> str:
    """The key of a pack that a recording needs, and no other of these."""
    own, *rest = ({pack.digest for pack in archive.open(one).index.packs} for one in (name, *others))
    return pack_key_of(min(own.difference(*rest)))


def states(done: Copied) -> dict[str, str]:
    return {found.name: found.state for found in done.recordings}


@pytest.mark.parametrize("jobs", [1, 8])
def test_of_several_that_are_damaged_each_is_named_and_the_others_arrive(jobs: int) -> None:
    archive, target = memory(), memory()
    names = ["frame", "hint", "latest", "newer", "nothing", "pack", "revision", "sound/1", "sound/2"]
    items = {name: list(calls(12, seed=number)) for number, name in enumerate(names)}
    for name in names:
        record(archive, name, items[name])
    whole = objects(archive)
    gone = own_pack(archive, "pack")
    archive.storage.delete(gone)
    key = own_pack(archive, "frame")
    flip(archive, key, len(whole[key]) // 2)
    archive.storage.put(latest_key("hint"), b"{")  # a hint and no more: the revisions are there
    for part in (latest_key("latest"), revision_key("latest", 2), revision_key("revision", 2)):
        archive.storage.put(part, whole[part][:-9])
    version = whole[latest_key("newer")].replace(b'"version":1', b'"version":9')
    for part in (latest_key("newer"), revision_key("newer", 2)):
        archive.storage.put(part, version)
    for part in (revision_key("nothing", 1), revision_key("nothing", 2)):
        archive.storage.delete(part)
    archive.storage.put(latest_key("nothing"), b"{")

    told: list[CopiedRecording] = []
    seen: list[Any] = []
    done = copy(archive, target, jobs=jobs, keep_going=True, done=told.append, progress=seen.append)
    failed = {found.name: found for found in done.recordings if found.state == "failed"}
    assert sorted(failed) == ["frame", "latest", "newer", "nothing", "pack", "revision"]
    assert {name for name, state in states(done).items() if state == "copied"} == {"hint", "sound/1", "sound/2"}
    assert sorted(told) == done.recordings
    assert key in str(failed["frame"].error)
    assert gone in str(failed["pack"].error)
    assert "see what `verify` says" in str(failed["pack"].error)
    assert revision_key("latest", 2) in str(failed["latest"].error)
    assert revision_key("revision", 2) in str(failed["revision"].error)
    assert isinstance(failed["nothing"].error, RecordingNotFoundError)
    assert {type(failed[name].error) for name in ("frame", "latest", "newer", "revision")} == {FormatError}
    assert isinstance(failed["pack"].error, ObjectMissingError)
    for found in failed.values():
        assert (found.revision, found.signatures) == (None, 0)
        link: BaseException | None = found.error
        while link is not None:
            assert link.__traceback__ is None
            link = link.__cause__ or link.__context__
    assert seen[-1].done <= seen[-1].total
    assert [at.done for at in seen if at.stage == "bytes"] == sorted(at.done for at in seen if at.stage == "bytes")

    # Nothing of them is to be seen, and what had arrived of them goes with a collection.
    assert list(target.recordings()) == ["hint", "sound/1", "sound/2"]
    sound(target)
    gc(target, grace=timedelta(), apply=True)
    assert {key for key in objects(target) if key.startswith("recordings/")} == {
        part for name in target.recordings() for part in (latest_key(name), revision_key(name, 1))
    }
    assert packs(target) == {own_pack(target, name) for name in target.recordings()}
    for name in target.recordings():
        check(target.open(name), items[name])

    # Mended, the rest follows.
    for part, data in whole.items():
        archive.storage.put(part, data)
    seen.clear()
    again = copy(archive, target, jobs=jobs, progress=seen.append)
    assert {name for name, state in states(again).items() if state == "copied"} == set(failed)
    assert {name for name, state in states(again).items() if state == "there"} == {"hint", "sound/1", "sound/2"}
    assert (seen[-1].stage, seen[-1].done) == ("bytes", seen[-1].total)
    for name in names:
        check(target.open(name), items[name])
    sound(target)


def test_one_that_is_named_is_reported_too(expected: list[dict[str, Any]]) -> None:
    source = memory()
    record(source, "a", expected[:20])
    record(source, "b", expected[20:60], base="a")
    key = own_pack(source, "b", "a")
    flip(source, key, 100)
    for broken in (FormatError, ObjectMissingError):
        target = memory()
        [found] = source.copy_to(target, "b", keep_going=True).recordings
        assert (found.state, type(found.error), found.from_revision, found.records) == ("failed", broken, 2, 40)
        assert key in str(found.error)
        assert states(source.copy_to(target, keep_going=True)) == {"a": "copied", "b": "failed"}
        # Whoever does not ask for that is told by an exception.
        with pytest.raises(broken, match="cannot be copied: 'b'; see what `verify` says"):
            copy(source, memory())
        source.storage.delete(key)
    with pytest.raises(RecordingNotFoundError):
        source.copy_to(memory(), "c")


def test_stopped_at_damage_all_are_named_that_were_found(expected: list[dict[str, Any]]) -> None:
    source, target = memory(), memory()
    for number in range(15):
        record(source, f"r/{number:02}", expected[number : number + 3])
        if number:
            source.storage.delete(own_pack(source, f"r/{number:02}"))
    with pytest.raises(ObjectMissingError, match=r"'r/01', 'r/02', .*, 'r/10' and 4 more; see"):
        copy(source, target)
    assert list(target.recordings()) == []
    assert packs(target) == set()
    source.storage.put(latest_key("r/03"), b"{}")
    source.storage.put(revision_key("r/03", 2), b"{}")
    with pytest.raises(FormatError, match="cannot be copied: 'r/03'; see"):
        copy(source, target)


def test_what_two_recordings_need_fails_both(expected: list[dict[str, Any]]) -> None:
    archive, target = memory(), memory()
    record(archive, "a", expected[:30])
    record(archive, "b", expected[:30], base="a")
    record(archive, "c", expected[30:50])
    [key] = {pack_key_of(pack.digest) for pack in archive.open("a").index.packs} & {
        pack_key_of(pack.digest) for pack in archive.open("b").index.packs
    }
    data = archive.storage.get(key)
    for damage in ("flipped", "cut", "gone"):
        if damage == "flipped":
            flip(archive, key, len(data) // 2)
        elif damage == "cut":
            archive.storage.put(key, data[:-1])
        else:
            archive.storage.delete(key)
        done = archive.copy_to(target, keep_going=True)
        assert states(done) == {"a": "failed", "b": "failed", "c": "there" if damage != "flipped" else "copied"}
        assert all(key in str(found.error) for found in done.recordings[:2])
        assert list(target.recordings()) == ["c"]
    archive.storage.put(key, data)
    assert states(archive.copy_to(target)) == {"a": "copied", "b": "copied", "c": "there"}
    check(target.open("b"), expected[:30])
    sound(target)


@pytest.mark.parametrize("how", ["a pack", "a record frame"])
def test_what_is_found_damaged_beforehand_does_not_come_with_others(how: str) -> None:
    """What another was recorded of with it as base comes, and no byte besides."""
    archive, target = memory(), memory()
    one, two = (random.Random(number).randbytes(9000).hex() for number in (1, 2))
    items = {
        "first": [{"kind": "tool", "identity": one, "response": 1}],
        "ours": [{"kind": "tool", "identity": two, "response": 2}],
    }
    record(archive, "first", items["first"])
    record(archive, "theirs", [{"kind": "tool", "identity": [one, two, CANARY * 99], "response": CANARY}], base="first")
    if how == "a pack":
        record(archive, "theirs", list(calls(9)), if_exists="append")
    record(archive, "ours", items["ours"], base="theirs")
    if how == "a pack":
        key = own_pack(archive, "theirs", "first", "ours")
        data = archive.storage.get(key)
        archive.storage.delete(key)
    else:
        # Read where it is looked for what it uses of `first`, when its own frames were noted as its own.
        key = own_pack(archive, "theirs", "first")
        frame = next(frame for frame in parse_pack(archive.storage.get(key)).frames if frame.kind == FrameKind.RECORD)
        data = flip(archive, key, frame.offset + frame.length // 2)
    assert states(archive.copy_to(target, keep_going=True)) == {"first": "copied", "ours": "copied", "theirs": "failed"}
    assert CANARY.encode() not in everything(target)
    for name in items:
        check(target.open(name), items[name])
    sound(target)
    archive.storage.put(key, data)
    assert states(archive.copy_to(target)) == {"first": "there", "ours": "there", "theirs": "copied"}
    assert CANARY.encode() in everything(target)
    sound(target)


def test_a_sound_one_that_shares_a_damaged_pack_arrives_alone() -> None:
    archive, target = memory(), memory()
    text = random.Random(1).randbytes(9000).hex()
    record(archive, "theirs", [{"kind": "tool", "identity": [text, CANARY * 99], "response": CANARY}])
    record(archive, "ours", [{"kind": "tool", "identity": text, "response": 2}], base="theirs")
    [key] = {pack_key_of(pack.digest) for pack in archive.open("theirs").index.packs}
    frame = next(frame for frame in parse_pack(archive.storage.get(key)).frames if frame.kind == FrameKind.RECORD)
    flip(archive, key, frame.offset + frame.length // 2)
    assert states(archive.copy_to(target, keep_going=True)) == {"ours": "failed", "theirs": "failed"}
    assert states(archive.copy_to(target, "ours")) == {"ours": "copied"}
    assert target.open("ours").record(0).request == text
    assert CANARY.encode() not in everything(target)
    sound(target)


def test_a_recording_that_went_on_and_is_damaged_stays_as_it_is_there() -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(20)))
    archive.copy_to(target)
    before, digest = objects(target), target.open("r").content_digest
    record(archive, "r", list(calls(5, seed=3)), if_exists="append")
    new = {pack.digest for pack in archive.open("r").index.packs} - {
        pack.digest for pack in target.open("r").index.packs
    }
    flip(archive, pack_key_of(min(new)), 60)
    assert states(archive.copy_to(target, keep_going=True)) == {"r": "failed"}
    assert target.open("r", fresh=True).content_digest == digest
    gc(target, keep_last=1, grace=timedelta(), apply=True)
    assert packs(target) == {key for key in before if key.startswith("packs/")}


def test_damage_of_the_destination_stops_it(expected: list[dict[str, Any]]) -> None:
    source = memory()
    record(source, "a", expected[:9])
    record(source, "b", expected[9:12])

    class Deleted(MemoryStorage):
        """A bucket that somebody deletes: whatever is put there, it says that something is missing."""

        def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
            raise ObjectMissingError("no such bucket", operation="put_new", url=key)

    with pytest.raises(ObjectMissingError, match="no such bucket"):
        copy(source, Archive("", storage=Deleted()), keep_going=True)
    target = memory()
    source.copy_to(target, "b")
    for key in objects(target):
        if key.startswith("recordings/"):
            target.storage.put(key, b"{}")
    with pytest.raises(FormatError, match="recordings/b/"):
        source.copy_to(target, keep_going=True)
    assert packs(target) == {own_pack(source, "b")}


class Vanishing(MemoryStorage):
    """At operation number ``at`` an object is gone, or is another, for once."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 1 << 60
        self.count = 0
        self.mode = "gone"
        self.lock = threading.Lock()

    def _had(self, key: str, data: bytes) -> bytes:
        with self.lock:
            self.count += 1
            if self.count != self.at:
                return data
        if self.mode == "gone":
            raise ObjectMissingError("no such object", operation="get", url=key)
        return data[:-3] + bytes(byte ^ 1 for byte in data[-3:])

    def get(self, key: str) -> bytes:
        return self._had(key, super().get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._had(key, super().get_range(key, start, length))

    def get_suffix(self, key: str, length: int) -> bytes:
        return self._had(key, super().get_suffix(key, length))


@pytest.mark.parametrize("mode", ["gone", "other bytes"])
@pytest.mark.parametrize("policy", ["whole", "responses-only"])
@pytest.mark.once
def test_whatever_is_damaged_for_a_moment(mode: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two recordings, one made with a base that stays behind: nothing is raised, and what arrives is whole."""
    monkeypatch.setattr("replaypack._write.segment.PACK_TARGET", 20_000)
    storage = Vanishing()
    archive = Archive("", storage=storage)
    record(archive, "base", list(calls(12)))
    expected = {"x/b": list(calls(12, seed=1)), "x/c": list(calls(8, seed=2))}
    record(archive, "x/b", expected["x/b"], base="base")
    record(archive, "x/c", expected["x/c"])
    storage.put(f"recordings/x/b/{archive.open('x/b').content_digest}.{'0' * 16}.dsse.json", b"{}")
    outcomes = Counter[tuple[str, ...]]()
    tried = 0
    while True:
        target = memory()
        storage.count, storage.at, storage.mode = 0, tried + 1, mode
        done = archive.copy_to(target, "x/*", responses_only=policy != "whole", keep_going=True)
        if storage.count < storage.at:
            break
        tried += 1
        storage.at = 1 << 60
        outcomes[tuple(found.state for found in done.recordings)] += 1
        assert list(target.recordings()) == [found.name for found in done.recordings if found.state == "copied"]
        assert {fault.code for fault in target.verify()} <= {"signature.unreadable"}
        again = archive.copy_to(target, "x/*", responses_only=policy != "whole")
        assert {found.state for found in again.recordings} <= {"copied", "there"}
        if policy == "whole":
            for name, items in expected.items():
                check(target.open(name), items)
    assert {("failed", "copied"), ("copied", "failed")} <= set(outcomes)
    assert ("failed", "failed") not in outcomes
    print(f"{tried} points tried: {outcomes}")


# Signatures


def test_signatures_go_along() -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(5)))
    digest = archive.open("r").content_digest
    mine = f"{digest}.{'a' * 16}.dsse.json"
    archive.storage.put(f"recordings/r/{mine}", b"{}")
    archive.storage.put(f"recordings/r/{'0' * 64}.{'a' * 16}.dsse.json", b"of an older one")
    assert copy(archive, target, "r", to="x").recordings[0].signatures == 1
    assert [key for key in objects(target) if key.endswith(".dsse.json")] == [f"recordings/x/{mine}"]
    # One that was made later follows; none is replaced.
    archive.storage.put(f"recordings/r/{digest}.{'b' * 16}.dsse.json", b"{}")
    target.storage.put(f"recordings/x/{mine}", b"theirs")
    done = copy(archive, target, "r", to="x").recordings[0]
    assert (done.state, done.signatures) == ("there", 1)
    assert "left alone" in str(done.note)
    assert target.storage.get(f"recordings/x/{mine}") == b"theirs"


# Faults


class Failing(MemoryStorage):
    """Fails at operation number ``at``; ``mode``: before it, after it was done, or with a part of the object."""

    def __init__(self, at: int = 1 << 60, mode: str = "before") -> None:
        super().__init__()
        self.at = at
        self.mode = mode
        self.count = 0
        self.sent: list[str] = []
        self.lock = threading.Lock()

    def _step(self) -> bool:
        with self.lock:
            self.count += 1
            return self.count == self.at

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self.sent.append(key)
        self._write(key, lambda: super(Failing, self).put_new(key, data))

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._write(key, lambda: super(Failing, self).put(key, data))

    def _write(self, key: str, write: Callable[[], None]) -> None:
        failing = self._step()
        if not failing or self.mode == "after":
            write()
        if failing:
            raise StorageError("the disk is on fire", operation="put", url=key)

    def get(self, key: str) -> bytes:
        if self._step():
            raise StorageError("the disk is on fire", operation="get", url=key)
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if self._step():
            raise StorageError("the disk is on fire", operation="get_range", url=key)
        return super().get_range(key, start, length)


@pytest.mark.filterwarnings("ignore:.*latest.json could not be written")
@pytest.mark.parametrize("mode", ["before", "after", "source"])
@pytest.mark.once
def test_every_operation_fails(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the destination, also where its reply is lost, or of the source."""
    monkeypatch.setattr("replaypack.audit._copy_run._SMALL", 0)
    monkeypatch.setattr("replaypack._write.segment.PACK_TARGET", 20_000)
    origin = Failing()
    archive = Archive("", storage=origin)
    record(archive, "a", list(calls(40)))
    record(archive, "b", list(calls(30, seed=1)), base="a")
    record(archive, "c", list(calls(30, seed=2)))
    record(archive, "d", list(calls(2)))
    archive.storage.put(f"recordings/b/{archive.open('b').content_digest}.{'0' * 16}.dsse.json", b"{}")
    expected = {"b": list(calls(30, seed=1)), "c": list(calls(30, seed=2))}
    tried = 0
    while True:
        storage = Failing(mode=mode)
        target = Archive("", storage=storage)
        archive.copy_to(target, "d")
        failing = origin if mode == "source" else storage
        failing.count, failing.at = 0, tried + 1
        try:
            archive.copy_to(target, list(expected))
        except StorageError:
            pass
        if failing.count < failing.at:
            break
        tried += 1
        failing.at = 1 << 60
        arrived = packs(target)
        for name in target.recordings():
            if name in expected:
                check(target.open(name), expected[name])
        storage.sent.clear()
        archive.copy_to(target, list(expected))
        assert {fault.code for fault in target.verify()} == {"signature.unreadable"}
        assert not arrived & set(storage.sent)
        assert any(key.endswith(".dsse.json") for key in objects(target))
        for name in expected:
            assert target.manifests.newest(name, fresh=False) is not None
    print(f"{tried} points tried")
    assert tried > 20


def test_damage_does_not_travel() -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(40)))
    key = next(iter(packs(archive)))
    data = bytearray(archive.storage.get(key))
    data[len(data) // 2] ^= 1
    archive.storage.put(key, bytes(data))
    with pytest.raises(FormatError, match="digest"):
        archive.copy_to(target)
    assert list(target.recordings()) == []
    assert packs(target) == set()
    archive.storage.delete(key)
    with pytest.raises(ObjectMissingError):
        archive.copy_to(target)


def test_a_damaged_pack_in_the_way() -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(40)))
    [key] = packs(archive)
    archive.copy_to(target)
    for part in (revision_key("r", 1), latest_key("r")):
        target.storage.delete(part)
    target.storage.put(key, archive.storage.get(key)[:-40])
    with pytest.raises(StorageError, match="damaged pack is in the way"):
        archive.copy_to(target)
    assert list(target.recordings()) == []


def test_an_interruption(source: Archive) -> None:
    target = memory()

    def interrupt(at: Any) -> None:
        if at.stage == "bytes":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.copy_to(target, progress=interrupt)
    sound(target)
    source.copy_to(target)
    assert list(target.recordings()) == ["a", "b", "c/d"]
    sound(target)


def test_a_revision_that_the_source_deletes_meanwhile() -> None:
    archive, target = memory(), memory()
    record(archive, "r", list(calls(20)))

    def went_on(at: Any) -> None:
        if at.stage == "recordings":
            record(archive, "r", list(calls(2, seed=3)), if_exists="append")
            gc(archive, keep_last=1, grace=timedelta(), apply=True)

    with pytest.raises(ConflictError, match="#r@2 was deleted while it was copied"):
        archive.copy_to(target, progress=went_on)
    assert list(target.recordings()) == []
    archive.copy_to(target)
    assert len(target.open("r")) == 22
    sound(target)


def test_another_writer_comes_first(source: Archive) -> None:
    class Raced(MemoryStorage):
        def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
            if key == revision_key("b", 1):
                super().put_new(key, b"another's")
            super().put_new(key, data)

    with pytest.raises(ConflictError, match="committed revision 1"):
        source.copy_to(Archive("", storage=Raced()), "b")


def test_a_pack_that_is_collected_meanwhile_is_brought(expected: list[dict[str, Any]]) -> None:
    archive = memory()
    record(archive, "r", expected[:40])

    class Collected(MemoryStorage):
        def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
            super().put_new(key, data)
            if key == revision_key("r", 1):
                for pack in [info.key for info in self.list("packs/")]:
                    self.delete(pack)

    target = Archive("", storage=Collected())
    archive.copy_to(target, "r")
    for part in (revision_key("r", 1), latest_key("r")):
        target.storage.delete(part)
    for pack in packs(archive):
        target.storage.put(pack, archive.storage.get(pack))
    done = archive.copy_to(target, "r")
    assert done.recordings[0].revision == 2
    check(target.open("r"), expected[:40])


class Losing(MemoryStorage):
    """Loses packs that are there at a moment: when ``when`` says so of an operation and a key, once."""

    def __init__(self, when: Callable[[str, str], bool]) -> None:
        super().__init__()
        self.when: Callable[[str, str], bool] | None = None
        self.later = when
        self.lost: set[str] = set()

    def _after(self, operation: str, key: str) -> None:
        if self.when is not None and self.when(operation, key):
            self.when = None
            self.lost = {info.key for info in self.list("packs/")}
            for pack in self.lost:
                self.delete(pack)

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        super().put_new(key, data)
        self._after("put_new", key)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        if key.endswith("latest.json"):
            # What it is going to name is there.
            found = list(Archive("", storage=self).verify())
            assert [fault for fault in found if not fault.code.startswith("latest.")] == []
        super().put(key, data)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data = super().get_range(key, start, length)
        self._after("get_range", key)
        return data


def interrupted_copy(archive: Archive, name: str, when: Callable[[str, str], bool]) -> tuple[Archive, Losing]:
    """A destination where the packs of an interrupted run lie."""
    storage = Losing(when)
    target = Archive("", storage=storage)
    archive.copy_to(target, name)
    for key in objects(target):
        if key.startswith("recordings/"):
            storage.delete(key)
    storage.when = storage.later
    return target, storage


@pytest.mark.parametrize("name", ["a", "b"])
def test_packs_that_are_collected_between_being_found_and_the_commit(source: Archive, name: str) -> None:
    """``b`` is packed anew: its packs are made once more, and found."""
    target, storage = interrupted_copy(source, name, lambda operation, key: operation == "get_range")
    done = source.copy_to(target, name)
    assert storage.lost
    assert done.recordings[0].revision == 1
    sound(target)


@pytest.mark.parametrize("name", ["a", "b"])
def test_packs_that_are_collected_right_behind_the_commit(source: Archive, name: str) -> None:
    target, storage = interrupted_copy(source, name, lambda _, key: key == revision_key(name, 1))
    done = source.copy_to(target, name)
    assert storage.lost
    assert done.recordings[0].revision == 2
    assert target.open(name, fresh=True).manifest.revision == 2
    sound(target)


def test_a_purge_between_two_recordings_that_share_packs() -> None:
    """It deletes what the second one is about to name, at any moment until that is visible."""

    class Purging(MemoryStorage):
        """Purges a record of ``a`` before operation number ``at``."""

        at = 1 << 60
        count = 0

        def _step(self) -> None:
            self.count += 1
            if self.count == self.at:
                purge(Archive("", storage=self), "a", [2], "asked to", keep_shared=True)

        def get_range(self, key: str, start: int, length: int) -> bytes:
            self._step()
            return super().get_range(key, start, length)

        def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
            self._step()
            super().put_new(key, data)

    archive = memory()
    record(archive, "a", list(calls(25)))
    record(archive, "b", list(calls(20, seed=1)), base="a")
    tried = 0
    while True:
        storage = Purging()
        target = Archive("", storage=storage)
        copy(archive, target, "a")
        storage.count, storage.at = 0, tried + 1
        with suppress(ConflictError):  # the purge wrote `b` anew before the copy pointed to it
            copy(archive, target, "b")
        if storage.count < storage.at:
            break
        tried += 1
        assert list(target.verify()) == []
        check(target.open("b", fresh=True), list(calls(20, seed=1)))
    assert tried > 5


@pytest.mark.parametrize("name", ["a", "b"])
def test_packs_that_were_sent_long_ago_are_looked_for(
    source: Archive, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replaypack.audit._transfer.UPLOADED_LONG_AGO", -1)
    storage = Losing(lambda _, key: key.startswith("packs/"))
    storage.when = storage.later
    target = Archive("", storage=storage)
    assert source.copy_to(target, name).recordings[0].revision == 1
    assert storage.lost
    sound(target)


def test_a_pack_that_a_collector_has_marked_is_not_relied_on(expected: list[dict[str, Any]]) -> None:
    archive, target = memory(), memory()
    record(archive, "r", expected[:40])
    archive.copy_to(target, "r")
    before = packs(target)
    for part in (revision_key("r", 1), latest_key("r")):
        target.storage.delete(part)
    target.storage.put(MARKS, encode_marks(1, {}, before))
    done = archive.copy_to(target, "r")
    assert done.reused == 0
    assert not {f"packs/{ref.digest[:2]}/{ref.digest}.rpk" for ref in target.open("r").index.packs} & before
    for pack in before:
        target.storage.delete(pack)
    check(target.open("r"), expected[:40])
    sound(target)


def test_a_destination_that_can_only_be_read(source: Archive) -> None:
    target = memory()
    target.storage.read_only = True
    with pytest.raises(ReadOnlyStorageError):
        source.copy_to(target)


# Other stores


def test_s3_and_back(s3_bucket: Bucket, tmp_path: Path, source: Archive, expected: list[dict[str, Any]]) -> None:
    remote = Archive("", storage=s3_bucket.open())
    source.copy_to(remote)
    sound(remote)
    s3_bucket.proxy.clear()
    again = source.copy_to(Archive("", storage=s3_bucket.open()))
    assert again.bytes == 0
    assert not any("/packs/" in request.path for request in s3_bucket.proxy.requests)
    back = Archive(tmp_path / "back", {"replaypack": {"fsync": False}})
    copy(Archive("", storage=s3_bucket.open()), back, ["b", "c/d"])
    check(back.open("b"), expected[:60])
    sound(back)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Archive, str]]:
    archive = Archive(tmp_path / "served")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield archive, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_from_a_web_server(served: tuple[Archive, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    archive, url = served
    items = list(calls(20))
    record(archive, "r", items)
    target = memory()
    done = copy(Archive(url), target, "r")
    check(target.open("r"), items)
    assert "signatures were not looked for" in done.notes[0]


# How much travels


def payload_bytes(archive: Archive, name: str) -> int:
    rows = [item.row for item in archive.open(name).records()]
    return sum(ref.size for row in rows for ref in (row.request, row.identity, row.response) if ref is not None)


def test_of_a_run_recorded_again_only_what_changed_travels() -> None:
    archive, target = memory(), memory()
    turns = list(agent(40))

    def run(name: str, changed: Callable[[int], bool], **options: Any) -> None:
        with archive.recorder(name, flush_interval=None, redact=None, **options) as recorder:
            for number, call in enumerate(turns):
                response = call.response
                if changed(number):
                    response = {
                        "content": f"changed {number} " + "".join(random.Random(number).choices("abcdef ", k=900))
                    }
                recorder.append(kind=call.kind, name=call.name, identity=call.request, response=response)

    run("one", lambda _: False)
    run("two", lambda number: number % 25 == 24, base="one")
    archive.copy_to(target)
    alone = memory()
    archive.copy_to(alone, "one")
    done = archive.copy_to(alone, "two")
    records = sum(frame.at.length for _, frame in archive.open("two").index.frames())
    assert done.bytes <= 0.03 * payload_bytes(archive, "two") + records
    assert packs(alone) == packs(target)


def test_a_manifest_with_roots_in_pages(monkeypatch: pytest.MonkeyPatch, expected: list[dict[str, Any]]) -> None:
    monkeypatch.setattr("replaypack._write.publish.INLINE_LIMIT", 10)
    monkeypatch.setattr("replaypack._write.publish._MAX_INLINE_PACKS", 1)
    monkeypatch.setattr("replaypack._write.publish.KEEP", 1)
    archive = memory()
    with archive.recorder("a", flush_interval=None) as recorder:
        for number, item in enumerate(expected[:80]):
            recorder.append(**item)
            if number % 20 == 19:
                recorder.flush()
    record(archive, "b", expected[:50], base="a")
    manifest = archive.open("a").manifest.storage
    assert manifest.pack_pages
    assert manifest.segments[0].keys.page is not None
    for names in ("*", "a", "b"):
        read: Counter[str] = Counter()
        get = archive.storage.get
        with monkeypatch.context() as counting:
            counting.setattr(archive.storage, "get", lambda key: (read.update([key]), get(key))[1])  # noqa: B023
            target = _copied(archive, names)
        # Once to know its size where no manifest says it, once to send it.
        assert max(count for key, count in read.items() if key.startswith("packs/")) <= 2
        for name in target.recordings():
            check(target.open(name), expected[: 80 if name == "a" else 50])
        sound(target)
        assert source_moves_nothing(archive, target, names)


def source_moves_nothing(archive: Archive, target: Archive, names: str) -> bool:
    return archive.copy_to(target, names).packs == 0


@pytest.mark.parametrize(
    "order", [["ours", "theirs"], ["theirs", "ours"], ["theirs", "broken", "ours"], ["broken", "ours", "theirs"]]
)
@pytest.mark.parametrize("size", [1, 12])
@pytest.mark.once
def test_nothing_of_another_recording_arrives_after_compaction(order: list[str], size: int) -> None:
    archive = memory()
    large = random.Random(1).randbytes(100_000 * size)
    items = {
        "ours": shared_history("nothing to see", large),
        "theirs": shared_history(CANARY, large[:50_000] + CANARY.encode() * 5 + large[50_000:]),
        "broken": [*shared_history(CANARY, large[:10]), {"kind": "tool", "identity": 1, "response": CANARY * 900}],
    }
    for name in order:
        record(archive, name, items[name])
    if "broken" in order:
        # The last payload cannot be read: compaction gives it up half way.
        recording = archive.open("broken")
        [(_, frame)] = recording.index.literal_entries(
            [(r.offset, r.length) for r in recording.record(len(recording) - 1).recipe("response")]
        )
        key = f"packs/{frame.pack.digest[:2]}/{frame.pack.digest}.rpk"
        data = bytearray(archive.storage.get(key))
        data[frame.at.offset + frame.at.length - 2] ^= 1
        archive.storage.put(key, bytes(data))
    results = {found.name: found.outcome for found in compact(archive, order, level=1).recordings}
    assert results["ours"] == results["theirs"] == "compacted"
    target = memory()
    archive.copy_to(target, "ours")
    found = everything(target)
    assert CANARY.encode() not in found
    assert b"theirs" not in found
    check(target.open("ours"), items["ours"])
    sound(target)
    if "broken" not in order:
        both = memory()
        assert archive.copy_to(both).repacked == 0
        assert packs(both) < packs(archive)
        for name in order:
            check(both.open(name), items[name])


@pytest.mark.parametrize("base", [None, "theirs"])
@pytest.mark.parametrize("compacted", [True, False])
def test_nothing_of_another_recording_arrives_after_a_purge(compacted: bool, base: str | None) -> None:
    """A purge writes anew what others share frames with: from then on these are in packs of their own."""
    archive = memory()
    items = {"theirs": shared_history(CANARY, b"x" * 9000), "ours": shared_history("nothing to see", b"x" * 9000)}
    record(archive, "theirs", items["theirs"])
    record(archive, "ours", items["ours"], base=base)
    if compacted:
        compact(archive, level=1)
    purge(archive, "theirs" if base is None else "ours", [3], "asked to", keep_shared=True)
    purge(archive, "theirs", [4], "asked to, too", keep_shared=True)
    target = memory()
    archive.copy_to(target, "ours")
    found = everything(target)
    assert CANARY.encode() not in found
    assert b"theirs" not in found
    for seq, item in enumerate(items["ours"]):
        if base is None or seq != 3:
            assert target.open("ours").record(seq).response == item["response"]
    sound(target)
    sound(archive)


def test_what_is_packed_anew_is_as_compact_as_it_was() -> None:
    archive = memory()
    for number, name in enumerate(("y", "z")):
        record(archive, name, list(calls(12, seed=number)))
    compact(archive, level=12)
    target = memory()
    assert archive.copy_to(target, "y").repacked
    sound(target)
    assert [found.outcome for found in compact(target, level=12, dry_run=True).recordings] == ["compact"]
    assert [found.outcome for found in compact(target, level=13, dry_run=True).recordings] == ["compacted"]
    # Where one pack says nothing, nothing is said.
    record(archive, "y", list(calls(3, seed=5)), if_exists="append")
    other = memory()
    archive.copy_to(other, "y")
    assert [found.outcome for found in compact(other, level=12, dry_run=True).recordings] == ["compacted"]
