"""Compacting: smaller, and nothing else."""

from __future__ import annotations

import base64
import importlib
import random
import re
import secrets
import shutil
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import replaypack
from replaypack import Archive
from replaypack.audit import compact, copy, gc, purge, salvage
from replaypack.audit._compacting import Job as Compacting
from replaypack.errors import (
    ConflictError,
    FormatError,
    PurgedError,
    RecordingNotFoundError,
    StorageError,
    UsageError,
    WithheldError,
)
from replaypack.format.frame import decompress
from replaypack.format.names import pack_key_of
from replaypack.format.pack import HEADER, check_header, parse_pack
from replaypack.storage import LocalStorage, MemoryStorage
from tests.support.between import Between

from .conftest import fill
from .support import NAME, faults, flip, packs

PARTIAL = Path(__file__).parents[2] / "spec" / "vectors" / "valid" / "archive" / "partial"


def words(rng: random.Random, size: int) -> str:
    return "".join(rng.choice("abcdefghijklmnop ") for _ in range(size))


def facts(recording: replaypack.Recording) -> list[Any]:
    """All there is of each record."""
    return [
        (item.row, *(item.blob_bytes(role) for role in ("request", "identity", "response")))
        for item in recording.records()
    ]


def answers(recording: replaypack.Recording) -> list[Any]:
    """What the calls of all records answer, each as often as it was recorded and once more."""
    found: list[Any] = []
    seen: dict[Any, int] = {}
    for item in recording.records():
        nth = seen[item.key, item.scope] = seen.get((item.key, item.scope), -1) + 1
        hit = recording.lookup_digest(item.key, scope=item.scope, nth=nth)
        found.append(None if hit is None else (hit.seq, hit.response_bytes))
        found.append(recording.count_keys([item.key]))
    found += [recording.lookup_digest(key, scope=scope, nth=nth + 1) for (key, scope), nth in seen.items()]
    return found


def shared_history(archive: Archive, name: str, seed: int, turns: int = 6, **options: Any) -> None:
    """An agent's run: instructions and tools that all runs have, documents that several have, answers of its own."""
    common, rng = random.Random(1), random.Random(seed)
    system = {"role": "system", "content": words(common, 6000)}
    documents = [words(common, 5000) for _ in range(12)]
    messages: list[Any] = [system, {"role": "user", "content": words(rng, 200)}]
    with archive.recorder(name, flush_interval=None, **options) as recorder:
        for turn in range(turns):
            answer = {"role": "assistant", "content": words(rng, 150)}
            recorder.append(
                kind="model", name="m", identity={"model": "m", "messages": list(messages)}, response=answer
            )
            document = documents[rng.randrange(12)]
            recorder.append(kind="tool", name="read", identity={"turn": turn, "of": seed}, response=document)
            messages += [answer, {"role": "tool", "content": document}]


def stored(archive: Archive) -> int:
    """Bytes of the packs that the newest revisions name."""
    used = {pack.digest: pack.size for name in archive.recordings() for pack in archive.open(name).index.packs}
    return sum(used.values())


def test_everything_but_the_size_stays(archive_path: Path) -> None:
    archive = Archive(archive_path)
    before = archive.open(NAME)
    known, answered = facts(before), answers(before)
    stages: list[tuple[str, int]] = []
    done = compact(archive, progress=lambda at: stages.append((at.stage, at.done)))
    [result] = done.recordings
    assert (result.name, result.outcome, result.revision, result.records) == (NAME, "compacted", 3, 300)
    assert result.after < result.before == done.freed
    assert result.after <= done.written < result.after + 10_000
    assert {("records", 300), ("check", 300)} <= set(stages)
    after = archive.open(NAME)
    assert after.content_digest == before.content_digest
    assert after.manifest.content == before.manifest.content
    storage = after.manifest.storage
    assert (storage.cause, storage.previous) == ("compact", before.manifest.digest)
    assert len(storage.segments) == 1
    assert facts(after) == known
    assert answers(after) == answered
    assert faults(archive_path) == []
    for pack in after.index.packs:
        head = archive.storage.get_range(pack_key_of(pack.digest), 0, len(HEADER))
        assert check_header(head) == 19
    # What was opened before goes on, and the older revision is still there.
    assert facts(before) == known
    assert facts(archive.open(NAME, 2)) == known
    # Large blobs by their digest, too.
    large = next(item for item in after.records() if item.name == "media")
    assert after.index.blob(large.row.response_digest) == (large.seq, 2)


def test_a_second_run_does_nothing(archive_path: Path) -> None:
    archive = Archive(archive_path)
    compact(archive)
    there = sorted(path for path in archive_path.rglob("*") if path.is_file())
    done = compact(archive)
    assert [item.outcome for item in done.recordings] == ["compact"]
    assert (done.written, done.freed) == (0, 0)
    assert compact(archive, level=12).recordings[0].outcome == "compact"
    assert sorted(path for path in archive_path.rglob("*") if path.is_file()) == there
    # A higher level, or asking for it, writes it again.
    assert compact(archive, level=20, dry_run=True).recordings[0].outcome == "compacted"
    assert sorted(path for path in archive_path.rglob("*") if path.is_file()) == there
    assert compact(archive, again=True).recordings[0].outcome == "compacted"
    assert faults(archive_path) == []


@pytest.mark.once
def test_many_small_recordings_share_their_bytes(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    for number in range(16):
        shared_history(archive, f"runs/{number:02d}", number)
    known = {name: (facts(archive.open(name)), archive.open(name).content_digest) for name in archive.recordings()}
    before = stored(archive)
    done = compact(archive)
    assert {item.outcome for item in done.recordings} == {"compacted"}
    assert done.freed == before
    assert stored(archive) * 3 < before
    assert list(archive.verify(level="full")) == []
    for name, (records, digest) in known.items():
        assert facts(archive.open(name)) == records
        assert archive.open(name).content_digest == digest
    # Documents lie in one pack for all, rows in one of each.
    assert len({pack.digest for name in known for pack in archive.open(name).index.packs}) == 17
    assert compact(archive).written == 0
    # A new one alone does not find them; together with the others it does.
    shared_history(archive, "runs/zz", 99)
    alone = compact(archive)
    assert [item.name for item in alone.recordings if item.outcome == "compacted"] == ["runs/zz"]
    size = stored(archive)
    assert compact(archive, again=True).written < size
    assert stored(archive) < size
    assert list(archive.verify(level="full")) == []
    # One that is removed takes nothing from the others.
    archive.delete("runs/00")
    assert facts(archive.open("runs/01")) == known["runs/01"][0]


def test_bytes_and_their_base64_are_one(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    image = random.Random(3).randbytes(60_000)
    for name, value in (
        ("a", image),
        ("b", {"image": base64.b64encode(image).decode()}),
        ("c", {"deep": [{"image": base64.urlsafe_b64encode(image).decode().rstrip("=")}]}),
        ("d", "data:" + base64.b64encode(image).decode()),
    ):
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", identity=name, request=value, response=value)
    known = [facts(archive.open(name)) for name in "abcd"]
    compact(archive)
    assert stored(archive) < 70_000
    assert [facts(archive.open(name)) for name in "abcd"] == known
    assert list(archive.verify(level="full")) == []


@pytest.mark.once
def test_appends_and_large_blobs_of_several_recordings(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    media = random.Random(4).randbytes(5 << 20)
    for name in ("a", "b"):
        for part in range(3):
            with archive.recorder(name, if_exists="append" if part else "error") as recorder:
                recorder.append(kind="tool", identity=("media", part), response=media)
                fill(recorder, part * 20, 20, flush_every=7)
    known = [(facts(archive.open(name)), answers(archive.open(name))) for name in "ab"]
    compact(archive)
    assert stored(archive) < 6 << 20
    assert [(facts(archive.open(name)), answers(archive.open(name))) for name in "ab"] == known
    # What was compacted can be continued, used as a base, and compacted again.
    with archive.recorder("a", if_exists="append") as recorder:
        fill(recorder, 60, 20)
    shared_history(archive, "c", 1, base="b")
    known = [(facts(archive.open(name)), answers(archive.open(name))) for name in "abc"]
    assert [item.outcome for item in compact(archive).recordings] == ["compacted", "compact", "compacted"]
    assert [(facts(archive.open(name)), answers(archive.open(name))) for name in "abc"] == known
    assert list(archive.verify(level="full")) == []


def test_several_frames_and_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small limits: recordings that fill frames and packs of their own, and use those of others."""
    module = importlib.import_module("replaypack.audit.compact")  # the package has the function under that name
    monkeypatch.setattr(module, "GROUP", 20_000)
    for name, size in (("RECORD_FRAME", 3000), ("PACK_TARGET", 60_000), ("_WAITING", 20_000)):
        monkeypatch.setattr(f"replaypack.audit._compacting.{name}", size)
    monkeypatch.setattr(module, "PACK_TARGET", 60_000)
    monkeypatch.setattr("replaypack._write.shared.LITERAL_FRAME", 30_000)
    archive = Archive(tmp_path)
    for number in range(6):
        shared_history(archive, f"{number:02d}", number, turns=(2, 5, 30)[number % 3])
    with archive.recorder("mixed") as recorder:
        fill(recorder, 0, 299, flush_every=110)
    known = {name: (facts(archive.open(name)), answers(archive.open(name))) for name in archive.recordings()}
    done = compact(archive)
    assert {item.outcome for item in done.recordings} == {"compacted"}
    assert {name: (facts(archive.open(name)), answers(archive.open(name))) for name in known} == known
    assert list(archive.verify(level="full")) == []
    assert max(len(archive.open(name).index.packs) for name in known) > 3


def test_recordings_that_are_not_touched(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    shared_history(archive, "done", 1)
    with archive.recorder("empty"):
        pass
    with archive.recorder("open") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
        recorder.flush()
        outcomes = {item.name: (item.outcome, item.error) for item in compact(archive).recordings}
    assert {name: outcome for name, (outcome, _) in outcomes.items()} == {
        "done": "compacted",
        "empty": "compact",
        "open": "skipped",
    }
    assert "being recorded" in str(outcomes["open"][1])
    with pytest.raises(RecordingNotFoundError):
        compact(archive, ["nowhere"])
    with pytest.raises(UsageError, match="levels"):
        compact(archive, level=23)


def test_a_damaged_recording_stays_as_it_is_and_the_others_are_compacted(archive_path: Path) -> None:
    archive = Archive(archive_path)
    shared_history(archive, "a", 1)
    shared_history(archive, "z", 1)
    flip(packs(archive_path)[1], 300)
    before = archive.open(NAME).manifest.digest
    results = {item.name: item for item in compact(archive).recordings}
    assert {name: item.outcome for name, item in results.items()} == {
        "a": "compacted",
        NAME: "failed",
        "z": "compacted",
    }
    assert isinstance(results[NAME].error, FormatError)
    assert archive.open(NAME).manifest.digest == before
    for name in ("a", "z"):
        assert len(facts(archive.open(name))) == 12
    packs(archive_path)[1].unlink()
    assert compact(archive, [NAME]).recordings[0].outcome == "failed"
    for path in (archive_path / "recordings" / NAME).glob("*.json"):
        path.write_bytes(b"{}")
    result = {item.name: item.outcome for item in compact(archive).recordings}
    assert result == {"a": "compact", NAME: "failed", "z": "compact"}


@pytest.mark.once
def test_interrupted_it_leaves_nothing_visible_that_is_not_whole(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    for name in "abc":
        shared_history(archive, name, 1, turns=3)
    known = [facts(archive.open(name)) for name in "abc"]
    reports = 0
    for stop in (1, 8, 15, 19, 24):
        reports = 0

        def report(at: Any, stop: int = stop) -> None:
            nonlocal reports
            reports += 1
            if reports == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            compact(archive, again=True, level=3, progress=report)
        assert [facts(archive.open(name)) for name in "abc"] == known
        assert list(archive.verify(level="full")) == []
    assert {item.outcome for item in compact(archive, level=3).recordings} <= {"compacted", "compact"}
    assert [facts(archive.open(name)) for name in "abc"] == known
    assert compact(archive, level=3).written == 0


def test_another_writer_first(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    shared_history(archive, "r", 1)

    def intrude(at: Any) -> None:
        if threading.current_thread() is threading.main_thread() and archive.open("r").manifest.revision == 2:
            with archive.recorder("r", if_exists="append") as recorder:
                recorder.append(kind="tool", identity="more", response=1)

    [result] = compact(archive, progress=intrude).recordings
    assert result.outcome == "failed"
    assert isinstance(result.error, ConflictError)
    assert len(archive.open("r")) == 13
    assert compact(archive).recordings[0].outcome == "compacted"
    assert len(facts(archive.open("r"))) == 13
    assert list(archive.verify(level="full")) == []


def test_what_was_purged_or_is_withheld_stays_so(tmp_path: Path) -> None:
    path = Path(shutil.copytree(PARTIAL, tmp_path / "archive"))
    archive = Archive(path)

    def seen(name: str) -> list[Any]:
        found: list[Any] = []
        recording = archive.open(name)
        for seq in range(len(recording)):
            try:
                record = recording.record(seq)
                roles = [role for role in ("request", "identity", "response") if role not in record.withheld]
                found.append((record.row, [record.blob_bytes(role) for role in roles]))
                found += [recording.lookup_digest(record.key, scope=record.scope, nth=0) is not None]
            except (PurgedError, WithheldError) as error:
                found.append(error.message.partition(" was ")[2])
        return found

    names = list(archive.recordings())
    known = {name: (seen(name), archive.open(name).content_digest) for name in names}
    faults_before = [fault.code for fault in archive.verify(level="full")]
    done = compact(archive)
    assert {item.outcome for item in done.recordings} == {"compacted"}, done
    assert {name: (seen(name), archive.open(name).content_digest) for name in names} == known
    for name in names:
        old, new = archive.open(name, 3).manifest.storage, archive.open(name).manifest.storage
        assert (new.tombstones, new.withheld, new.cause) == (old.tombstones, old.withheld, "compact")
    assert [fault.code for fault in archive.verify(level="full")] == faults_before
    # And once more, of what it made.
    assert {item.outcome for item in compact(archive, again=True).recordings} == {"compacted"}
    assert {name: (seen(name), archive.open(name).content_digest) for name in names} == known
    assert [fault.code for fault in archive.verify(level="full")] == faults_before


def test_recipes_behind_withheld_ones_count_these(tmp_path: Path) -> None:
    """Responses that continue each other, with withheld requests between them, refer to each other's ranges."""
    source, target = Archive(tmp_path / "source"), Archive(tmp_path / "target")
    rng, history = random.Random(5), []
    with source.recorder("r") as recorder:
        for turn in range(12):
            history.append({"turn": turn, "text": words(rng, 1200)})
            recorder.append(kind="model", identity={"all": list(history)}, response={"all": list(history), "n": turn})
    copy(source, target, responses_only=True)
    known = [item.response for item in source.open("r").records()]
    [result] = compact(target).recordings
    assert (result.outcome, result.error) == ("compacted", None)
    assert [item.response for item in target.open("r").records()] == known
    assert list(target.verify(level="full")) == []
    # The requests are not there, and have no recipes.
    assert not any(item.recipe("request") for item in target.open("r").records())


SECRET = "CANARY " + "of what is to be purged " * 20


def two_to_share(archive: Archive) -> None:
    """Two that share texts; ``a`` has the secret in its record 6, and ``b`` has it not."""
    rng = random.Random(8)
    texts = [words(rng, 3000) for _ in range(6)]
    for name in "ab":
        with archive.recorder(name, flush_interval=None) as recorder:
            for text in texts:
                recorder.append(kind="model", identity={"of": name, "text": [text]}, response=name)
            if name == "a":
                recorder.append(kind="model", identity={"other": SECRET}, response=1)


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.filterwarnings("ignore::replaypack.errors.ReplaypackWarning")
@pytest.mark.once
def test_a_purge_at_any_moment_leaves_nothing(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever comes first, and between whatever two operations of the compaction."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    source = MemoryStorage()
    two_to_share(Archive("", storage=source))
    known = [[item.response for item in Archive("", storage=source).open(name).records()] for name in "ab"]
    outcomes = set()
    for point in range(1000):
        storage = MemoryStorage()
        for info in source.list():
            storage.put(info.key, source.get(info.key))
        archive = Archive("", storage=storage)
        between = Between(storage, point, lambda: purge(archive, "a", [6], "a test"))  # noqa: B023
        with suppress(ConflictError):  # the purge lost, and says so
            done = compact(Archive("", storage=between), list(order), level=3)
            outcomes.add(tuple(item.outcome for item in sorted(done.recordings)))
        for name, before in zip("ab", known, strict=True):
            with archive.open(name, fresh=True) as recording:
                assert [item.response for item in recording.records()][:6] == before[:6]
        purge(archive, "a", [6], "a test")  # done already, or again
        gc(archive, grace=timedelta(), apply=True)
        assert SECRET.encode() not in packed(archive)
        assert list(archive.verify(level="full")) == []
        compact(archive, level=3)
        assert list(archive.verify(level="full")) == []
        if not between.reached:
            break
    assert {("compacted", "compacted"), ("failed", "failed")} <= outcomes


def test_a_group_of_which_one_fails_is_left_as_it_was(tmp_path: Path) -> None:
    """Those that were committed before it, too: what they would name has its bytes."""
    archive = Archive(tmp_path)
    for name in "abc":
        shared_history(archive, name, 1, turns=2)
    known = {name: facts(archive.open(name)) for name in "abc"}
    before = {info.key for info in archive.storage.list("packs/")}
    storage = Appending(tmp_path)
    results = compact(Archive("", storage=storage)).recordings
    assert [item.outcome for item in results] == ["failed"] * 3
    assert "'a' would share bytes with 'b'" in str(results[0].error)
    assert "another writer" in str(results[1].error)
    assert {name: facts(archive.open(name, fresh=True))[:4] for name in "abc"} == known
    # The revision of ``a`` with the bytes of ``b`` is gone, and so are its packs.
    assert [manifest.revision for manifest in archive.revisions("a")] == [1, 2, 4]
    left = {info.key for info in archive.storage.list("packs/")} - before
    assert left <= {pack_key_of(pack.digest) for pack in archive.open("b", fresh=True).index.packs}
    assert list(archive.verify(level="full")) == []
    assert {item.outcome for item in compact(archive).recordings} == {"compacted"}
    assert {name: facts(archive.open(name, fresh=True))[:4] for name in "abc"} == known
    assert list(archive.verify(level="full")) == []


def test_what_cannot_be_read_of_a_recorder_concerns_its_recording_alone() -> None:
    storage = MemoryStorage()
    archive = Archive("", storage=storage)
    for name in "abc":
        shared_history(archive, name, 1, turns=2)
    recorder = archive.recorder("b", if_exists="replace", flush_interval=None)
    recorder.append(kind="tool", identity=1, response=1)
    recorder.flush()
    key = "recordings/b/00000003.open.json"
    storage.put(key, storage.get(key)[:-7])
    results = {item.name: item for item in compact(archive).recordings}
    recorder.close()
    assert {name: item.outcome for name, item in results.items()} == {"a": "compacted", "b": "failed", "c": "compacted"}
    assert isinstance(results["b"].error, FormatError)


@pytest.mark.filterwarnings("ignore::replaypack.errors.ReplaypackWarning")
def test_a_recording_that_is_deleted_meanwhile_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    source = MemoryStorage()
    two_to_share(Archive("", storage=source))
    outcomes = set()
    for point in range(1000):
        archive = Archive("", storage=MemoryStorage())
        for info in source.list():
            archive.storage.put(info.key, source.get(info.key))
        between = Between(archive.storage, point, lambda: archive.delete("b"))  # noqa: B023
        done = compact(Archive("", storage=between), level=3)
        outcomes.add(tuple(item.outcome for item in done.recordings))
        if not between.reached:
            break
        assert list(archive.recordings()) == ["a"]
        assert list(archive.verify(level="full")) == []
    assert {("failed", "failed"), ("compacted", "failed"), ("compacted", "compacted")} <= outcomes


def test_so_many_wait_for_each_other_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of them fails, recordings behind these are compacted; and they share what others were compacted to."""
    monkeypatch.setattr(importlib.import_module("replaypack.audit.compact"), "_MOST_WAITING", 2)
    archive = Archive(tmp_path)
    for number, name in enumerate("abcdefg"):
        shared_history(archive, name, number, turns=2)
    results = compact(Archive("", storage=Appending(tmp_path))).recordings
    assert [item.outcome for item in results] == ["failed"] * 2 + ["compacted"] * 5
    packs = [{pack.digest for pack in archive.open(name).index.packs} for name in "cdefg"]
    assert packs[0] & packs[1] & packs[2] & packs[3] & packs[4]
    assert packs[2] & packs[3] - packs[0]
    assert list(archive.verify(level="full")) == []


class Appending(LocalStorage):
    """Another writer appends to ``b`` right before its revision 3 is created."""

    def put_new(self, key: str, data: bytes, **options: Any) -> None:
        if key == "recordings/b/00000003.json":
            with Archive(self.local_path).recorder("b", if_exists="append") as recorder:
                recorder.append(kind="tool", identity="more", response=1)
        super().put_new(key, data, **options)


def test_a_damaged_recording_leaves_no_bytes_in_frames_of_others(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    shared_history(archive, "a", 1, turns=2)
    two = "something that only the damaged one has, and that is read before the damage " * 4
    with archive.recorder("b", flush_interval=None) as recorder:
        recorder.append(kind="tool", identity={"n": 1}, response=two * 20)
        recorder.flush()
        recorder.append(kind="tool", identity={"n": 2}, response=secrets.token_hex(3000))
    shared_history(archive, "c", 1, turns=2)
    [*_, last] = archive.open("b").index.literal_entries([(archive.open("b").manifest.storage.literals - 100, 50)])
    flip(tmp_path / pack_key_of(last[1].pack.digest), last[1].at.offset + 20)
    results = {item.name: item.outcome for item in compact(archive).recordings}
    assert results == {"a": "compacted", "b": "failed", "c": "compacted"}
    for name in "ac":
        with archive.open(name, fresh=True) as recording:
            for pack in recording.index.packs:
                data = archive.storage.get(pack_key_of(pack.digest))
                raws = [decompress(data[f.offset : f.offset + f.length]) for f in parse_pack(data).frames]
                assert two.encode() not in b"".join(raws)
            assert len(facts(recording)) == 4


@pytest.mark.parametrize(("order", "again"), [("ab", True), ("ba", True), ("ab", False)])
@pytest.mark.filterwarnings("ignore::replaypack.errors.ReplaypackWarning")
@pytest.mark.once
def test_a_compaction_that_dies_anywhere_hides_nothing_from_a_purge(
    order: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In packs that the other names, or none: whether it was run again or not, and collected or not."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    source = MemoryStorage()
    two_to_share(Archive("", storage=source))
    for point in range(1000):
        storage = MemoryStorage()
        for info in source.list():
            storage.put(info.key, source.get(info.key))
        archive = Archive("", storage=storage)
        dying = Between(storage, point, changes=True)
        with suppress(StorageError):
            compact(Archive("", storage=dying), list(order), level=3)
        if again:
            done = compact(archive, list(order), level=3)
            assert {item.outcome for item in done.recordings} <= {"compacted", "compact"}
            assert {item.outcome for item in compact(archive, level=3).recordings} == {"compact"}
            assert list(archive.verify(level="full")) == []
            purge(archive, "a", [6], "a test")
        else:
            purge(archive, "a", [6], "a test", also={"b": [0]}, keep_shared=True)
        assert SECRET.encode() not in packed(archive)
        assert list(archive.verify(level="full")) == []
        if not dying.reached:
            break


def packed(archive: Archive) -> bytes:
    """All frames of all packs."""
    found = []
    for info in archive.storage.list("packs/"):
        data = archive.storage.get(info.key)
        toc = parse_pack(data)
        found += [decompress(data[f.offset : f.offset + f.length]) for f in toc.frames]
    return b"".join(found)


@pytest.mark.parametrize("turns", [2, 60])
@pytest.mark.once
def test_a_copy_of_one_has_nothing_of_the_others(tmp_path: Path, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._write.shared.LITERAL_FRAME", 90_000)
    archive = Archive(tmp_path / "archive")
    names = [f"{number:02d}" for number in range(6)]
    for number, name in enumerate(names):
        shared_history(archive, name, number, turns=turns)
        with archive.recorder(name, if_exists="append") as recorder:
            recorder.append(kind="tool", identity={"text": f"canary-{name}-8517 " * 300}, response="x" * 5000)
    with archive.recorder("damaged") as recorder:
        recorder.append(kind="tool", identity={"text": "canary-dd-8517 " * 300}, response=1)
        recorder.append(kind="tool", identity=2, response={"wrong": "y" * 5000})
    rename = archive.open("damaged")
    monkeypatch.setattr(Compacting, "_pieces", failing_at(Compacting._pieces, rename.locator))
    done = compact(archive, ["damaged", *names])
    assert [item.outcome for item in done.recordings] == ["failed"] + ["compacted"] * 6
    assert packed(archive).count(b"canary-03-8517") >= 300
    for name in names:
        target = Archive(tmp_path / f"copy-{name}")
        copy(archive, target, [name])
        assert facts(target.open(name)) == facts(archive.open(name))
        assert list(target.verify(level="full")) == []
        found = {match.decode() for match in re.findall(b"canary-(..)-8517", packed(target))}
        assert found == {name}


def failing_at(pieces: Any, locator: str) -> Any:
    """As if the second payload of one recording did not match its digest."""

    def checked(job: Any, found: Any, role: str) -> Any:
        if job._source.locator == locator and found.row.seq == 1:
            raise FormatError("the blob does not match its digest", where=locator)
        return pieces(job, found, role)

    return checked


def test_what_else_is_done_to_archives(tmp_path: Path) -> None:
    """Collecting, purging and salvaging what was compacted together."""
    archive = Archive(tmp_path / "archive")
    names = ["a", "b", "c"]
    for number, name in enumerate(names):
        shared_history(archive, name, number)
        with archive.recorder(name, if_exists="append") as recorder:
            recorder.append(kind="tool", identity={"text": f"canary-{name}-8517 " * 300}, response=name * 5000)
    compact(archive)
    known = {name: facts(archive.open(name)) for name in names}
    gc(archive, keep_last=1, grace=timedelta(0), apply=True)
    assert {name: facts(archive.open(name)) for name in names} == known
    assert len(list(archive.storage.list("packs/"))) == 4
    # With nothing left but packs.
    bare = Archive(tmp_path / "bare")
    for info in archive.storage.list("packs/"):
        bare.storage.put_new(info.key, archive.storage.get(info.key))
    salvaged = Archive(tmp_path / "salvaged")
    salvage(bare.storage, salvaged)
    assert {name: facts(salvaged.open(name)) for name in salvaged.recordings()} == known
    # A payload that lies beside those of others.
    purge(archive, "b", [12], "test")
    assert b"canary-b" not in packed(archive)
    assert {name: facts(archive.open(name)) for name in "ac"} == {name: known[name] for name in "ac"}
    assert facts(archive.open("b")) == known["b"][:12]
    assert list(archive.verify(level="full")) == []
    compact(archive, again=True)
    assert facts(archive.open("b")) == known["b"][:12]
    assert facts(archive.open("c")) == known["c"]
    assert list(archive.verify(level="full")) == []


class Failing(MemoryStorage):
    """Fails at the ``left``-th operation: before it, or behind it, as when a reply is lost."""

    left = 1 << 30
    behind = False

    def copy(self) -> Failing:
        """The same objects once more."""
        other = Failing()
        for info in self.list(""):
            other.put(info.key, self.get(info.key))
        return other

    def _count(self) -> bool:
        self.left -= 1
        if self.left == 0 and not self.behind:
            raise StorageError("gone", operation="any", url="memory://")
        return self.left == 0

    def _done(self, failing: bool) -> None:
        if failing:
            raise StorageError("gone", operation="any", url="memory://")

    def put_new(self, key: str, data: bytes, **options: Any) -> None:
        failing = self._count()
        super().put_new(key, data, **options)
        self._done(failing)

    def put(self, key: str, data: bytes, **options: Any) -> None:
        failing = self._count()
        super().put(key, data, **options)
        self._done(failing)

    def get(self, key: str, **options: Any) -> bytes:
        self._count()
        return super().get(key, **options)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._count()
        return super().get_range(key, start, length)


@pytest.mark.filterwarnings("ignore::replaypack.errors.ReplaypackWarning")
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.once
def test_a_fault_at_each_operation_loses_nothing_and_a_rerun_completes(behind: bool) -> None:
    source = Failing()
    for number in range(3):
        shared_history(Archive("", storage=source), str(number), number, turns=2)
    known = [facts(Archive("", storage=source).open(str(number))) for number in range(3)]
    point = 0
    while True:
        point += 1
        storage = source.copy()
        archive = Archive("", storage=storage)
        storage.left, storage.behind = point, behind
        failed = False
        try:
            compact(archive, level=3)
        except StorageError:
            failed = True
        reached = storage.left <= 0
        storage.left = 1 << 30
        assert [facts(archive.open(str(number), fresh=True)) for number in range(3)] == known
        assert {fault.code for fault in archive.verify()} <= {"latest.stale"}
        if failed:
            done = compact(archive, level=3)
            assert {item.outcome for item in done.recordings} <= {"compacted", "compact"}
            assert [facts(archive.open(str(number), fresh=True)) for number in range(3)] == known
            assert {item.outcome for item in compact(archive, level=3).recordings} == {"compact"}
        if not reached:
            break
    assert point > 20


@pytest.mark.parametrize("behind", ["stale", "missing", "damaged"])
def test_latest_json_that_is_behind_is_written_again(tmp_path: Path, behind: str) -> None:
    archive = Archive(tmp_path / "archive")
    shared_history(archive, NAME, 1)
    latest = tmp_path / "archive" / "recordings" / NAME / "latest.json"
    old = latest.read_bytes()
    compact(archive, NAME)
    new = latest.read_bytes()
    if behind == "missing":
        latest.unlink()
    else:
        latest.write_bytes(old if behind == "stale" else new[:-5])
    left = {fault.code for fault in archive.verify()}
    assert left == {f"latest.{'corrupted' if behind == 'damaged' else behind}"}
    compact(archive, dry_run=True)
    assert {fault.code for fault in archive.verify()} == left
    compact(archive)  # it may be that one of a group was not finished: it is made again
    assert list(archive.verify()) == []
    assert [item.outcome for item in compact(archive).recordings] == ["compact"]


def test_patterns_and_totals(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive")
    for number, name in enumerate(("eval/a", "eval/b", "other")):
        shared_history(archive, name, number)
    before = {ref.digest: ref.size for name in ("eval/a", "eval/b") for ref in archive.open(name).index.packs}
    done = compact(archive, "eval/*")
    assert [item.name for item in done.recordings] == ["eval/a", "eval/b"]
    after = {ref.digest: ref.size for name in ("eval/a", "eval/b") for ref in archive.open(name).index.packs}
    assert (done.before, done.after) == (sum(before.values()), sum(after.values()))
    with pytest.raises(RecordingNotFoundError):
        compact(archive, ["nothing/*"])
