"""`purge`: what records say is gone from every byte of the archive, and all else is as it was."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from replaypack import Archive, ReplayMismatch
from replaypack._read.manifests import Manifests
from replaypack._write import publish
from replaypack.audit import compact, copy, diff, gc, prove, purge, rekey, stats, verify_archive
from replaypack.audit._inventory import Inventory
from replaypack.errors import (
    AccessDeniedError,
    ConflictError,
    ObjectExistsError,
    ObjectMissingError,
    PurgedError,
    ReadOnlyStorageError,
    RecordingExistsError,
    SharedBytesError,
    StorageUnavailableError,
    StorageUnsupportedError,
    UsageError,
)
from replaypack.format.digests import digest
from replaypack.format.frame import decompress
from replaypack.format.manifest import encode_manifest
from replaypack.format.names import pack_key_of
from replaypack.format.pack import FrameKind, parse_pack
from replaypack.storage import MemoryStorage, Storage
from tests.support.between import Between

#: In every part of the records that are purged, and nowhere else.
CANARIES = [
    f"canary-{part}-8517" for part in "request response large error attribute tool scope identity media".split()
]
SEARCH = {"name": "search", "args": {"q": "x"}}


def every_byte(storage: Storage) -> Iterator[tuple[str, bytes]]:
    """Every object, and every frame of every pack, decompressed."""
    for info in storage.list():
        data = storage.get(info.key)
        yield info.key, data
        if info.key.endswith(".rpk"):
            toc = parse_pack(data)
            for frame in toc.frames:
                yield info.key, decompress(data[frame.offset : frame.offset + frame.length], frame.raw)


def found(storage: Storage, *canaries: str) -> set[str]:
    return {canary for _, data in every_byte(storage) for canary in (canaries or CANARIES) if canary.encode() in data}


def options() -> dict[str, Any]:
    return {"flush_interval": None, "redact": None}


def tools(recorder: Any, count: int = 3) -> None:
    for number in range(count):
        recorder.append(kind="tool", name="search", identity=SEARCH, response=f"answer {number}")


def secret(recorder: Any) -> None:
    """Three records (3, 4, 5 behind three of `tools`) that have canaries in all of their parts."""
    recorder.append(
        kind="tool",
        name=CANARIES[5],
        identity={"a": CANARIES[7]},
        request={"q": CANARIES[0] + " r" * 3000},
        response=CANARIES[1],
        attributes={"note": CANARIES[4]},
        scope=CANARIES[6],
    )
    recorder.append(kind="tool", name="search", identity=SEARCH, response=CANARIES[2] + " l" * 5000)
    recorder.append(kind="tool", name="fails", identity=1, error={"type": "ValueError", "message": CANARIES[3]})


def conversation(recorder: Any, turns: int, answers: dict[int, str] | None = None) -> None:
    messages: list[dict[str, str]] = [{"role": "system", "content": "be brief and kind " * 300}]
    for turn in range(turns):
        messages = [*messages, {"role": "user", "content": f"question number {turn} " * 30}]
        answer = {"role": "assistant", "content": (answers or {}).get(turn, f"reply number {turn} ") * 20}
        recorder.append(kind="model", name="m", identity={"model": "m", "messages": messages}, response=answer)
        messages = [*messages, answer]


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Archive:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Archive("", storage=MemoryStorage())


def fill(archive: Archive, name: str = "r", *, flush: bool = False) -> None:
    with archive.recorder(name, **options()) as recorder:
        tools(recorder)
        if flush:
            recorder.flush()
        secret(recorder)
        if flush:
            recorder.flush()
        tools(recorder, 1)
        conversation(recorder, 3)


def sound(archive: Archive) -> None:
    assert list(verify_archive(archive)) == []


@pytest.mark.parametrize("flush", [False, True])
def test_every_byte_is_gone(archive: Archive, flush: bool) -> None:
    fill(archive, flush=flush)
    fill(archive, "other")
    with archive.recorder("other", if_exists="replace", **options()) as recorder:
        tools(recorder)
    archive.delete("other")
    assert found(archive.storage) == set(CANARIES[:-1])
    before = archive.open("r")
    rows = {record.seq: (record.row_bytes, record.request, record.response) for record in before.records()}
    leaves = list(before.leaves())
    forecast = purge(archive, "r", [3, 4, 5], "asked to", dry_run=True)
    assert found(archive.storage) == set(CANARIES[:-1])
    done = purge(archive, "r", [5, 3, 4, 4], "asked to")
    # What was deleted under another name is another recording's garbage.
    garbage = {info.key for info in archive.storage.list("packs/")} - {
        pack_key_of(ref.digest) for ref in archive.open("r").index.packs
    }
    for key in garbage:
        archive.storage.delete(key)
    assert found(archive.storage) == set()
    assert (done.records, done.rewritten, done.applied, done.shared) == ([3, 4, 5], ["r"], True, {})
    assert done.copies == {"r": [0, 1, 2, 6]}  # the same request as that of 4
    assert done.packs > 0
    assert (forecast.applied, forecast.records, forecast.packs) == (False, [3, 4, 5], done.packs)
    assert sorted(forecast.revisions) == sorted(done.revisions)
    after = archive.open("r")
    assert after.content_digest == before.content_digest == done.content_digest
    assert list(after.leaves()) == leaves
    assert {r.seq: (r.row_bytes, r.request, r.response) for r in after.records()} == {
        seq: row for seq, row in rows.items() if seq not in (3, 4, 5)
    }
    sound(archive)
    assert [(m.storage.cause, m.records) for m in archive.revisions("r")] == [("claim", 0), ("purge", 10)]
    with pytest.raises(PurgedError):
        after.lookup("tool", SEARCH, nth=3)
    assert after.lookup("tool", SEARCH, nth=4).response == "answer 0"  # type: ignore[union-attr]
    with archive.session("r", "replay") as session:
        asked = []
        for _ in range(5):
            try:
                asked.append(session.tool("search", {"q": "x"}, lambda: "live"))
            except ReplayMismatch as error:
                asked.append(error.reason)
        assert asked == ["answer 0", "answer 1", "answer 2", "purged", "answer 0"]


def test_a_payload_of_zeros(archive: Archive) -> None:
    """What takes its place is the same bytes: that is no reason to begin again."""
    with archive.recorder("a", **options()) as recorder:
        recorder.append(kind="tool", key="1", request=bytes(5000), response=1)
        recorder.append(kind="tool", key="2", request=bytes(range(250)) * 24, response=2)
    assert purge(archive, "a", [0], "why").revision == 3
    assert not list(archive.verify())
    assert archive.open("a").record(1).request == bytes(range(250)) * 24


def test_a_copy_beside_it_that_keeps_the_records(archive: Archive) -> None:
    """A recording of the same id under another name has the same keys and rows, and is not touched."""
    with archive.recorder("a", **options()) as recorder:
        tools(recorder)
    copy(archive, archive, ["a"], to="b")
    with pytest.raises(UsageError, match="other record"):
        purge(archive, "b", [1], "why")
    assert purge(archive, "b", [1], "why", keep_shared=True).rewritten == ["b"]
    assert [record.seq for record in archive.open("a").records()] == [0, 1, 2]
    with pytest.raises(PurgedError):
        archive.open("b").record(1)
    assert not list(archive.verify())


def test_again_is_nothing(archive: Archive) -> None:
    fill(archive)
    purge(archive, "r", [3], "asked to")
    before = {info.key: archive.storage.get(info.key) for info in archive.storage.list()}
    done = purge(archive, "r", [3], "asked to")
    assert (done.records, done.rewritten, done.revisions, done.packs) == ([], [], [], 0)
    assert {info.key: archive.storage.get(info.key) for info in archive.storage.list()} == before
    done = purge(archive, "r", [3, 4], "once more")
    assert done.records == [4]
    assert [(t.reason, [seq for seq, _ in t.records]) for t in archive.open("r").tombstones] == [
        ("asked to", [3]),
        ("once more", [4]),
    ]
    sound(archive)


def test_bytes_that_others_take(archive: Archive) -> None:
    canary = "canary-in-a-turn-8517 "
    with archive.recorder("r", **options()) as recorder:
        conversation(recorder, 4, {1: canary})
    with pytest.raises(
        SharedBytesError, match=r"3 other records take bytes of what is to be purged: 0, 2, 3"
    ) as caught:
        purge(archive, "r", [1], "asked to")
    assert caught.value.shared == {"r": [0, 2, 3]}
    assert archive.open("r").tombstones == []
    done = purge(archive, "r", [1], "asked to", keep_shared=True)
    assert done.shared == {"r": [0, 2, 3]}
    sound(archive)
    assert found(archive.storage, canary) == {canary}
    # With those that quote it nothing is left.
    done = purge(archive, "r", [2, 3], "asked to", keep_shared=True)
    assert done.shared == {"r": [0]}
    assert found(archive.storage, canary) == set()
    sound(archive)
    assert archive.open("r").record(0).request["messages"][0]["role"] == "system"


def recorded_with_base(archive: Archive) -> tuple[str, dict[str, str]]:
    """``r``; ``next`` and ``third`` with it as their base. What stands in turn 2 of the first two, and the digests."""
    canary = "canary-in-a-turn-8517 "
    with archive.recorder("r", **options()) as recorder:
        conversation(recorder, 4, {2: canary})
    for name in ("next", "third"):
        with archive.recorder(name, base="r", **options()) as recorder:
            conversation(recorder, 4, {2: canary} if name == "next" else {1: "other "})
    return canary, {name: archive.open(name).content_digest for name in ("r", "next", "third")}


def test_a_recording_that_others_are_based_on(archive: Archive) -> None:
    canary, digests = recorded_with_base(archive)
    rows = {name: [(r.request, r.response) for r in archive.open(name).records()] for name in ("next", "third")}
    with pytest.raises(UsageError, match="of next"):
        purge(archive, "r", [2, 3], "asked to")
    forecast = purge(archive, "r", [2, 3], "asked to", keep_shared=True, dry_run=True)
    done = purge(archive, "r", [2, 3], "asked to", keep_shared=True)
    assert (forecast.packs, forecast.bytes, sorted(forecast.revisions)) == (
        done.packs,
        done.bytes,
        sorted(done.revisions),
    )
    assert set(done.shared) == {"r", "next", "third"}
    assert done.copies["next"] == [2, 3]
    sound(archive)
    assert found(archive.storage, canary) == {canary}  # next has it
    done = purge(archive, "next", [2, 3], "asked to", keep_shared=True)
    assert found(archive.storage, canary) == set()
    sound(archive)
    assert {name: archive.open(name).content_digest for name in digests} == digests
    assert [(r.request, r.response) for r in archive.open("third").records()] == rows["third"]
    assert [(r.request, r.response) for r in archive.open("next").records()] == rows["next"][:2]


def test_several_recordings_at_once(archive: Archive) -> None:
    canary, digests = recorded_with_base(archive)
    before = objects_of(archive.storage)
    hint = r"--records 0-3 --also next=0-3 --also third=0-3"
    with pytest.raises(UsageError, match="of what is to be purged") as error:
        purge(archive, "r", [2, 3], "asked to", also={"next": [2, 3]})
    assert hint in str(error.value)
    assert objects_of(archive.storage) == before
    for also in ({"r": [1]}, {"next": []}, {"next": [9]}):
        with pytest.raises(UsageError):
            purge(archive, "r", [0, 1, 2, 3], "asked to", also=also)
    assert objects_of(archive.storage) == before
    everything = {"next": range(4), "third": range(4)}
    forecast = purge(archive, "r", range(4), "asked to", also=everything, dry_run=True)
    assert objects_of(archive.storage) == before
    done = purge(archive, "r", range(4), "asked to", also=everything)
    assert [(item.name, item.records, item.shared) for item in (done, *done.others)] == [
        (name, [0, 1, 2, 3], {}) for name in ("r", "next", "third")
    ]
    assert [item.name for item in forecast.others] == ["next", "third"]
    assert found(archive.storage, canary, "question number", "be brief and kind") == set()
    assert {name: archive.open(name).content_digest for name in digests} == digests
    sound(archive)
    again = purge(archive, "r", range(4), "asked to", also=everything)
    assert [item.rewritten for item in (again, *again.others)] == [[], [], []]


def test_several_recordings_at_once_where_it_is_interrupted(archive: Archive) -> None:
    canary = "canary-in-a-turn-8517 "
    for name, base in (("r", None), ("next", "r")):
        with archive.recorder(name, base=base, **options()) as recorder:
            conversation(recorder, 2, {1: canary})
            recorder.append(kind="tool", identity=1, response=1)
    objects = objects_of(archive.storage)
    for tried in range(1, 1000):
        storage = Dying(objects, tried, Stop, after=False)
        try:
            purge(Archive("", storage=storage), "r", [0, 1], "asked to", also={"next": [0, 1]})
        except Stop:
            pass
        else:
            break
        here = Archive("", storage=storage)
        assert [here.open(name, fresh=True).record(2).response for name in ("r", "next")] == [1, 1]
        purge(here, "r", [0, 1], "asked to", also={"next": [0, 1]})
        assert found(storage, canary, "question number") == set(), tried
        sound(here)
    assert found(storage, canary, "question number") == set()
    assert tried > 10


def test_large_media_in_a_pack_of_its_own(archive: Archive) -> None:
    media = CANARIES[-1].encode() + bytes(range(256)) * (18 << 10)
    for name in ("r", "same"):
        with archive.recorder(name, **options()) as recorder:
            recorder.append(kind="tool", identity=1, response="first")
            recorder.append(kind="tool", identity=2, response=media)
    packs = archive.open("r").index.packs
    with pytest.raises(UsageError, match="1 other record takes bytes of what is to be purged: 1 of same"):
        purge(archive, "r", [1], "asked to")
    done = purge(archive, "r", [1], "asked to", keep_shared=True)
    assert (done.shared, done.copies) == ({"same": [1]}, {"same": [1]})
    assert archive.open("same").record(1).response == media
    sound(archive)
    purge(archive, "same", [1], "asked to")
    assert found(archive.storage) == set()
    assert not [pack for pack in packs if pack.size > 4 << 20 and list(archive.storage.list(pack_key_of(pack.digest)))]
    sound(archive)


def test_older_revisions(archive: Archive) -> None:
    with archive.recorder("r", **options()) as recorder:
        tools(recorder)
    with archive.recorder("r", if_exists="append", **options()) as recorder:
        secret(recorder)
    with archive.recorder("r", if_exists="append", **options()) as recorder:
        tools(recorder, 2)
    done = purge(archive, "r", [3, 4, 5], "asked to")
    assert found(archive.storage) == set()
    # Revisions without the records, whose packs have nothing of them, stay.
    assert [m.revision for m in archive.revisions("r")][:1] == [1]
    assert [m.records for m in archive.revisions("r")] == [0, 3, 3, 8]
    assert all(revision.startswith("r@") for revision in done.revisions)
    sound(archive)


def test_an_append_goes_on(archive: Archive) -> None:
    fill(archive)
    purge(archive, "r", [3, 4, 5], "asked to")
    with archive.recorder("r", if_exists="append", **options()) as recorder:
        secret(recorder)
    last = len(archive.open("r"))
    purge(archive, "r", [last - 1, last - 2, last - 3], "again")
    assert found(archive.storage) == set()
    sound(archive)


def test_keys_that_others_have(archive: Archive) -> None:
    with archive.recorder("r", **options()) as recorder:
        tools(recorder, 3)
        recorder.append(kind="tool", identity="alone", response=1)
    key = archive.open("r").record(0).key[:16]
    for number, left in ((1, 3), (0, 3), (2, 0)):
        purge(archive, "r", [number], "asked to")
        assert archive.open("r").count("tool", SEARCH) == left
        sound(archive)
    assert not any(key in data for _, data in every_byte(archive.storage))
    purge(archive, "r", [3], "asked to")
    assert archive.open("r").manifest.storage.segments[0].keys.count == 0
    assert list(archive.open("r").records()) == []
    assert archive.open("r").lookup("tool", "alone") is None
    sound(archive)


def test_refused(archive: Archive) -> None:
    fill(archive)
    for records in ([], [-1], [99], ["1"], ["1", 2], [True]):
        with pytest.raises(UsageError):
            purge(archive, "r", records, "asked to")  # type: ignore[arg-type]
    for reason in ("", "r" * 5000):
        with pytest.raises(UsageError, match="reason"):
            purge(archive, "r", [3], reason)
    recorder = archive.recorder("live", base="r", **options())
    conversation(recorder, 3)
    with pytest.raises(RecordingExistsError, match="live is being recorded"):
        purge(archive, "r", [7, 8, 9], "asked to", keep_shared=True)
    recorder.flush()
    with pytest.raises(RecordingExistsError, match="is being recorded"):
        purge(archive, "r", [7, 8, 9], "asked to", keep_shared=True)
    recorder.close()
    with pytest.raises(RecordingExistsError, match="died and left records"):
        purge(archive, "r", [7, 8, 9], "asked to", keep_shared=True)
    assert archive.open("r").tombstones == []
    with archive.recorder("r", if_exists="append", **options()), pytest.raises(RecordingExistsError):
        purge(archive, "r", [3], "asked to")


def test_a_store_that_keeps_what_is_deleted(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(archive)
    monkeypatch.setattr(archive.storage, "keeps_deleted", lambda: "it keeps versions")
    with pytest.raises(StorageUnsupportedError, match="cannot forget: it keeps versions"):
        purge(archive, "r", [3], "asked to", unchecked_bucket=True)

    def denied() -> None:
        raise AccessDeniedError("not permitted")

    monkeypatch.setattr(archive.storage, "keeps_deleted", denied)
    with pytest.raises(AccessDeniedError, match="it cannot be told"):
        purge(archive, "r", [3], "asked to")
    purge(archive, "r", [3], "asked to", unchecked_bucket=True)
    assert archive.open("r").manifest.purged == 1
    archive.storage.read_only = True
    with pytest.raises(ReadOnlyStorageError):
        purge(archive, "r", [4], "asked to")


def test_a_pack_that_only_another_recording_names_any_more(archive: Archive) -> None:
    canary, answer = "canary-in-a-request-8517 ", "canary-in-an-answer-8517 "
    recorder = archive.recorder("r", **options())
    conversation(recorder, 2, {0: answer})
    recorder.append(kind="model", name="m", identity={"model": "m", "messages": ["x" * 9000, canary * 99]}, response=1)
    recorder.append(kind="model", name="m", identity={"model": "m", "messages": ["y " * 9000]}, response=1)
    recorder.flush()
    with archive.recorder("next", base="r", **options()) as other:
        other.append(kind="model", name="m", identity={"model": "m", "messages": ["y " * 9000, "more"]}, response=2)
    for number in range(20):
        recorder.append(kind="tool", identity=number, response=number)
        recorder.flush()
    recorder.seal()
    named = {ref.digest for ref in archive.open("r").index.packs}
    assert any(ref.digest not in named and ref.size for ref in archive.open("next").index.packs[:1])
    wanted = [(r.request, r.response) for r in archive.open("next").records()]
    purge(archive, "r", [0, 1, 2], "asked to")
    assert found(archive.storage, canary, answer) == set()
    assert [(r.request, r.response) for r in archive.open("next").records()] == wanted
    sound(archive)


def test_a_recording_made_of_it_by_rekeying(archive: Archive) -> None:
    fill(archive)
    rekey(archive, "r", match="uuids", to="rekeyed")
    with pytest.raises(UsageError, match="3, 4, 5 of rekeyed"):
        purge(archive, "r", [3, 4, 5], "asked to")
    done = purge(archive, "r", [3, 4, 5], "asked to", keep_shared=True)
    assert done.shared["rekeyed"] == [3, 4, 5]
    sound(archive)
    assert archive.open("rekeyed").record(3).response == CANARIES[1]
    purge(archive, "rekeyed", [3, 4, 5], "asked to")
    assert found(archive.storage) == set()
    sound(archive)


def test_a_revision_made_by_rekeying(archive: Archive) -> None:
    """Rows are others then, and the packs of before are still named, for the literals in them."""
    uuid = "123e4567-e89b-12d3-a456-426614174000"
    fill(archive)
    with archive.recorder("small", **options()) as recorder:
        recorder.append(kind="tool", identity={"id": uuid, "n": "large " * 99}, response=1)
        recorder.append(kind="tool", key=CANARIES[6], request=None, response=CANARIES[1], attributes={"a": CANARIES[4]})
        recorder.append(kind="tool", identity={"id": uuid}, response=CANARIES[3])
    for name in ("r", "small"):
        before = archive.open(name).record(0).key
        rekey(archive, name, match="uuids")
        assert (archive.open(name).record(0).key != before) == (name == "small")
    purge(archive, "small", [1, 2], "asked to")
    purge(archive, "r", [3, 4, 5], "asked to")
    assert found(archive.storage) == set()
    sound(archive)


def test_a_local_archive_and_its_journals(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    fill(archive, flush=True)
    left = archive.recorder("r", if_exists="append", **options())
    tools(left, 1)
    journal = left._journal.path
    kept = journal.read_bytes()
    left.seal()
    assert not journal.exists()
    journal.write_bytes(kept)  # as where its recorder died right behind the commit
    done = purge(archive, "r", [3, 4, 5], "asked to")
    assert done.journals == [str(journal)]
    assert not journal.exists()
    assert found(archive.storage) == set()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or not any(canary.encode() in path.read_bytes() for canary in CANARIES)
    sound(archive)


def test_what_killed_writers_left(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    archive = Archive(tmp_path)
    fill(archive)
    left = [tmp_path / "packs/~tmp-1", tmp_path / "recordings/r/~tmp-2"]
    unnamed = tmp_path / "journal" / ("0" * 16 + "-000000.new")
    for path in (*left, unnamed):
        path.write_text(CANARIES[0])
    held = tmp_path / "packs/~tmp-3"
    unreadable = tmp_path / "journal" / ("1" * 16 + "-000000.rpj")
    unreadable.write_bytes(b"no journal")
    with held.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        forecast = purge(archive, "r", [3, 4, 5], "asked to", dry_run=True)
        assert all(path.exists() for path in (*left, unnamed))
        done = purge(archive, "r", [3, 4, 5], "asked to")
    assert sorted(done.temporary) == sorted(forecast.temporary) == sorted(map(str, left))
    assert done.left == forecast.left == [str(unreadable)]
    assert not any(path.exists() for path in (*left, unnamed))
    assert held.exists()
    with mock.patch.object(fcntl, "flock", side_effect=OSError(errno.ENOTSUP, "no locks here")):
        assert purge(archive, "r", [3], "asked to").left == [str(unreadable), str(held)]
    assert held.exists()


def test_where_tables_need_pages(archive: Archive) -> None:
    with archive.recorder("r", **options()) as recorder:
        for number in range(2400):
            recorder.append(kind="tool", name="f", identity=number, response=f"canary-{number}-8517")
    summary = archive.open("r").manifest.storage.summary
    assert summary is not None
    assert any(digest(data)[:16].hex() == summary.digest for _, data in every_byte(archive.storage))
    with mock.patch.object(publish, "INLINE_LIMIT", 100), mock.patch.object(publish, "_MAX_INLINE_PACKS", 0):
        gone = [0, *range(1000, 1200), 2399]
        purge(archive, "r", gone, "asked to")
        assert archive.open("r").manifest.storage.segments[0].keys.page is not None
        assert archive.open("r").manifest.storage.summary is None
        assert not any(digest(data)[:16].hex() == summary.digest for _, data in every_byte(archive.storage))
        sound(archive)
        assert purge(archive, "r", gone, "asked to").rewritten == []
        done = purge(archive, "r", [7], "asked to")
        assert done.rewritten == ["r"]
    assert found(archive.storage, *(f"canary-{number}-8517" for number in (*gone[:9], 2399, 7))) == set()
    assert len(list(archive.open("r").records())) == 2400 - len(gone) - 1
    sound(archive)


def test_after_compaction(archive: Archive) -> None:
    """Recordings share literals then, and what was before may lie there still."""
    canary = "canary-in-a-turn-8517 "
    fill(archive, flush=True)
    with archive.recorder("one", **options()) as recorder:
        conversation(recorder, 4, {2: canary})
    with archive.recorder("two", base="one", **options()) as recorder:
        conversation(recorder, 4, {2: canary})
    compact(archive)
    sound(archive)
    wanted = [r.request for r in archive.open("two").records()]
    done = purge(archive, "one", [2, 3], "asked to", keep_shared=True, dry_run=True)
    assert "two" in done.shared
    purge(archive, "r", [3, 4, 5], "asked to")
    assert found(archive.storage) == set()
    # What they shared was written anew, for each of them what it uses.
    done = purge(archive, "one", [2, 3], "asked to", keep_shared=True)
    assert done.copies["two"] == [2, 3]
    assert [r.request for r in archive.open("two").records()] == wanted
    sound(archive)
    purge(archive, "two", [2, 3], "asked to", keep_shared=True)
    assert found(archive.storage, canary) == set()
    sound(archive)
    compact(archive)
    sound(archive)
    assert [r.seq for r in archive.open("two").records()] == [0, 1]
    assert archive.open("r").manifest.purged == 3


def test_comparing(archive: Archive) -> None:
    for name in ("r", "whole"):
        fill(archive, name)
    with archive.recorder("other", **options()) as recorder:
        recorder.append(kind="tool", name="search", identity=SEARCH, response="another")
    purge(archive, "r", [3, 4, 5], "asked to", keep_shared=True)
    bare = Archive("", storage=MemoryStorage())
    copy(archive, bare, ["r", "other"], responses_only=True)
    found_ = diff(archive.open("whole"), archive.open("r"))
    assert (found_.counts["removed"], found_.counts["added"], found_.counts["changed"]) == (3, 0, 0)
    assert found_.counts["same"] == 7
    assert diff(archive.open("r"), bare.open("r")).counts["same"]
    changed = diff(archive.open("r"), bare.open("other"), kinds=["tool"])
    assert changed.counts["changed"] + changed.counts["removed"] > 0
    assert stats(archive.open("r")).records == 10
    # A copy without requests is purged like any other.
    purge(bare, "r", [7], "asked to", keep_shared=True)
    assert (bare.open("r").manifest.purged, bare.open("r").withheld) == (4, {"request", "identity"})
    assert bare.open("r").content_digest == archive.open("r").content_digest
    sound(bare)


def test_it_can_be_proved_and_copied(archive: Archive) -> None:
    fill(archive)
    whole = archive.open("r")
    proofs = [prove(whole, seq) for seq in (3, 7)]
    purge(archive, "r", [3, 4, 5], "asked to")
    assert [prove(archive.open("r"), 7)] == proofs[1:]
    other = Archive("", storage=MemoryStorage())
    copy(archive, other, ["r"])
    assert other.open("r").content_digest == whole.content_digest
    assert [r.seq for r in other.open("r").records()] == [0, 1, 2, 6, 7, 8, 9]
    assert found(other.storage) == set()
    sound(other)


# Others at work


class Meddling(MemoryStorage):
    """Does ``between`` before the first deletion, and ``each`` behind every one."""

    def __init__(self, objects: Mapping[str, bytes] = {}) -> None:
        super().__init__()
        for key, data in objects.items():
            self.put(key, data)
        self.between: Callable[[], object] | None = None
        self.each: Callable[[str, bytes], object] | None = None

    def delete(self, key: str) -> None:
        between, self.between = self.between, None
        if between is not None:
            between()
        data = self.get(key) if self.each is not None else b""
        super().delete(key)
        if self.each is not None:
            self.each(key, data)


def objects_of(storage: Storage) -> dict[str, bytes]:
    return {info.key: storage.get(info.key) for info in storage.list()}


def compacted_without(archive: Archive) -> dict[str, bytes]:
    """Record ``a`` (a secret in record 24) and ``b``, with much in common, and return what is there once they were
    compacted together, where the commit of ``a`` failed."""
    rng = random.Random(7)
    common = [f"{number} " + rng.randbytes(2000).hex() for number in range(24)]
    for name, last in (("a", CANARIES[0] + rng.randbytes(2000).hex()), ("b", "of b")):
        with archive.recorder(name, **options()) as recorder:
            for number, text in enumerate(common):
                recorder.append(kind="model", identity={name: [text]}, response={"n": number})
            recorder.append(kind="model", identity={"secret": last}, response={"n": 99})
    objects = objects_of(archive.storage)
    elsewhere = Archive("", storage=Meddling(objects))
    put_new = elsewhere.storage.put_new

    def faster(key: str, data: bytes, **more: Any) -> None:
        if key == "recordings/a/00000003.json":
            raise ObjectExistsError("another writer was faster")
        put_new(key, data, **more)

    with mock.patch.object(elsewhere.storage, "put_new", faster):
        outcomes = {item.name: item.outcome for item in compact(elsewhere, level=3).recordings}
    assert outcomes["a"] == "failed"
    return objects_of(elsewhere.storage)


def test_what_a_compaction_left_with_others(archive: Archive) -> None:
    """Its literals lie in a pack that another recording names, and that names no recording."""
    archive = Archive("", storage=Meddling(compacted_without(archive)))
    wanted = [r.request for r in archive.open("b").records()]
    purge(archive, "a", [24], "asked to", keep_shared=True)
    assert found(archive.storage) == set()
    assert [r.request for r in archive.open("b").records()] == wanted
    sound(archive)
    archive.delete("a")
    assert purge(archive, "b", [24], "asked to", keep_shared=True).rewritten == ["b"]
    sound(archive)


def test_a_compaction_that_commits_meanwhile(archive: Archive) -> None:
    after = compacted_without(archive)
    storage = Meddling(objects_of(archive.storage))
    archive = Archive("", storage=storage)
    for key, data in after.items():
        if key.startswith("packs/"):
            storage.put(key, data)
    wanted = [r.request for r in archive.open("b").records()]
    committed = [key for key in after if key.startswith("recordings/b/")]
    storage.between = lambda: [storage.put(key, after[key]) for key in committed]
    done = purge(archive, "a", [24], "asked to", keep_shared=True)
    assert storage.between is None
    if archive.open("b").manifest.storage.cause == "purge":  # else the compaction gave itself up
        assert done.rewritten == ["a", "b"]
    assert found(storage) == set()
    assert [r.request for r in archive.open("b", fresh=True).records()] == wanted
    sound(archive)


def test_what_is_appended_meanwhile(archive: Archive) -> None:
    """At any moment: all of it is there, and nothing of what was purged."""
    fill(archive)
    objects = objects_of(archive.storage)
    outcomes = set()
    for point in range(1000):
        here = Archive("", storage=Meddling(objects))

        def more() -> None:
            with here.recorder("r", if_exists="append", **options()) as recorder:  # noqa: B023
                tools(recorder, 2)

        between = Between(here.storage, point, more)
        try:
            outcomes.add(purge(Archive("", storage=between), "r", [3, 4, 5], "asked to").applied)
        except ConflictError:  # the append was faster
            outcomes.add(False)
        assert len(here.open("r", fresh=True)) == (12 if between.reached else 10)
        purge(here, "r", [3, 4, 5], "asked to")
        assert found(here.storage) == set(), point
        sound(here)
        if not between.reached:
            break
    assert outcomes == {True, False}


def test_another_purge_meanwhile(archive: Archive) -> None:
    """Of the same records: both are done, or one says that the other was faster."""
    fill(archive)
    with archive.recorder("next", base="r", **options()) as recorder:
        conversation(recorder, 3)
    objects = objects_of(archive.storage)
    for point in range(1000):
        here = Archive("", storage=Meddling(objects))
        between = Between(here.storage, point, lambda: purge(here, "r", [3, 4, 5], "asked to"))  # noqa: B023
        with suppress(ConflictError):
            purge(Archive("", storage=between), "r", [3, 4, 5], "asked to")
        assert found(here.storage) == set(), point
        assert {fault.code for fault in verify_archive(here)} <= {"latest.stale"}
        if not between.reached:
            break


def test_the_same_large_media_in_a_recording_that_is_purged_meanwhile(archive: Archive) -> None:
    """At any moment: its pack has the same name, and whoever records it has uploaded it, and named it nowhere yet."""
    media = random.Random(9).randbytes(4 << 20)

    def meanwhile() -> None:
        with here.recorder("r", **options()) as recorder:
            recorder.append(kind="tool", identity=1, response=media)
        purge(here, "r", [0], "asked to", keep_shared=True)

    for point in range(1000):
        here = Archive("", storage=MemoryStorage())
        between = Between(here.storage, point, meanwhile)
        with Archive("", storage=between).recorder("x", **options()) as recorder:
            recorder.append(kind="tool", identity=1, response=media)
        with here.open("x", fresh=True) as recording:
            assert recording.record(0).response == media, point
        sound(here)
        if not between.reached:
            break
    assert point > 5


def test_a_rekeying_under_another_name_meanwhile(archive: Archive) -> None:
    """Its packs are of the same recording, and nothing names them before it is done."""
    fill(archive)
    objects = objects_of(archive.storage)
    outcomes = set()
    for point in range(1000):
        here = Archive("", storage=MemoryStorage())
        for key, data in objects.items():
            here.storage.put(key, data)
        between = Between(here.storage, point, lambda: purge(here, "r", [3, 4, 5], "asked to", keep_shared=True))  # noqa: B023
        try:
            rekey(Archive("", storage=between), "r", match="uuids", to="s")
        except (ConflictError, ObjectMissingError, UsageError):
            assert list(here.recordings()) == ["r"], point
            outcomes.add("failed")
        else:
            outcomes.add("rekeyed")
            assert len(here.open("s")) == 10
        assert {fault.code for fault in verify_archive(here)} <= {"pack.loose"}, point
        if not between.reached:
            break
    assert outcomes == {"rekeyed", "failed"}


def test_a_copy_under_another_name_meanwhile(archive: Archive) -> None:
    """Its packs are of the same recording, too; what is gone is sent again."""
    fill(archive)
    rows = [record.row_bytes for record in archive.open("r").records()]
    elsewhere = Archive("", storage=MemoryStorage())
    copy(archive, elsewhere)
    compact(elsewhere, level=3)  # in packs of its own
    gc(elsewhere, keep_last=1, grace=timedelta(), apply=True)
    objects = objects_of(elsewhere.storage)
    copied = 0
    for point in range(1000):
        target = Archive("", storage=MemoryStorage())
        for key, data in objects.items():
            target.storage.put(key, data)
        between = Between(target.storage, point, lambda: purge(target, "r", [3, 4, 5], "asked to", keep_shared=True))  # noqa: B023
        try:
            copy(archive, Archive("", storage=between), ["r"], to="y", jobs=1)
        except RecordingExistsError:  # the purge came first
            assert not copied, point
            assert "y" not in target.recordings()
        else:
            copied += 1
            assert [record.row_bytes for record in target.open("y").records()] == rows, point
        assert {fault.code for fault in verify_archive(target)} <= {"pack.loose"}, point
        if not between.reached:
            break
    assert copied > 1


def test_a_pack_that_comes_again_and_again(archive: Archive) -> None:
    storage = Meddling()
    archive = Archive("", storage=storage)
    fill(archive)
    storage.each = lambda key, data: storage.put(key, data) if key.startswith("packs/") else None
    with pytest.raises(ConflictError, match=r"packs to delete: [0-9a-f]{64}") as error:
        purge(archive, "r", [3], "asked to")
    assert "run it again" in str(error.value)
    storage.each = None
    assert purge(archive, "r", [3], "asked to").packs == 1
    sound(archive)


def test_a_pack_that_is_named_while_it_is_deleted(archive: Archive) -> None:
    """That revision cannot be saved from here; but it is not passed over, and nothing else is lost."""
    storage = Meddling()
    archive = Archive("", storage=storage)
    fill(archive)
    with archive.recorder("late", **options()) as recorder:
        tools(recorder)
    newest = archive.open("late").manifest
    packs = archive.open("r").manifest.storage.packs
    packs = [*newest.storage.packs, *packs]
    section = msgspec.structs.replace(newest.storage, revision=3, previous=newest.digest, packs=packs)
    named = encode_manifest(newest.content, section)
    storage.between = lambda: storage.put("recordings/late/00000003.json", named.raw)
    with pytest.raises(ConflictError, match="another writer named packs that were being deleted: late@3"):
        purge(archive, "r", [3], "asked to")
    storage.delete("recordings/late/00000003.json")
    assert purge(archive, "r", [3], "asked to").records == []
    sound(archive)


def test_a_recording_of_which_the_hint_is_left(archive: Archive) -> None:
    """An interrupted deletion leaves what can be read still, by everyone."""
    with archive.recorder("x", **options()) as recorder:
        conversation(recorder, 3)
    with archive.recorder("y", base="x", **options()) as recorder:
        conversation(recorder, 3)
    for revision in (1, 2):
        archive.storage.delete(f"recordings/y/0000000{revision}.json")
    with pytest.raises(UsageError, match="of y"):
        purge(archive, "x", [1], "asked to")
    with pytest.raises(ConflictError, match="y is half deleted"):
        purge(archive, "x", [1], "asked to", keep_shared=True)
    assert len([r.request for r in archive.open("y").records()]) == 3
    with pytest.raises(ConflictError, match="y is half deleted"):
        purge(archive, "y", [1], "asked to", keep_shared=True)
    archive.delete("y")
    purge(archive, "x", [1], "asked to", keep_shared=True)
    sound(archive)


def test_manifests_are_read_once(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the archive is looked over: revisions do not change."""
    for name in ("r", "other"):
        fill(archive, name)
    read: list[str] = []
    get = archive.storage.get
    monkeypatch.setattr(archive.storage, "get", lambda key: (read.append(key), get(key))[1])
    purge(archive, "r", [3], "asked to", keep_shared=True)
    assert read.count("recordings/other/00000001.json") == 1
    assert read.count("recordings/other/latest.json") > 2
    sound(archive)


def test_what_is_newest(archive: Archive) -> None:
    """The same as for readers, whatever is there of a recording."""
    with archive.recorder("r", **options()) as recorder:
        tools(recorder, 1)
    with archive.recorder("r", if_exists="append", **options()) as recorder:
        tools(recorder, 1)
        recorder.flush()
        before = objects_of(archive.storage)
        tools(recorder, 1)
        recorder.flush()
        during = objects_of(archive.storage)
    with archive.recorder("r", if_exists="replace", **options()) as recorder:
        tools(recorder, 1)
        recorder.flush()
        replacing = objects_of(archive.storage)
    for objects in (before, during, replacing, objects_of(archive.storage)):
        keys = [key for key in objects if key.startswith("recordings/")]
        for gone in ((), *((key,) for key in keys), [key for key in keys if not key.endswith("latest.json")]):
            storage = Meddling({key: data for key, data in objects.items() if key not in gone})
            expected = Manifests(storage).newest("r", fresh=True)
            assert expected is not None
            assert Inventory(storage).newest()["r"].digest == expected.digest, gone


# Interruption


class Stop(BaseException):
    """The process dies."""


class Dying(MemoryStorage):
    """Dies with operation number ``at``, before it is done or right after."""

    def __init__(self, objects: dict[str, bytes], at: int, failure: type[BaseException], *, after: bool) -> None:
        super().__init__()
        self._failure = failure
        for key, data in objects.items():
            MemoryStorage.put(self, key, data)
        self.count, self._at_, self._after = 0, at, after

    def _step(self, work: Any) -> Any:
        self.count += 1
        if self.count == self._at_:
            if self._after:
                work()
            raise self._failure("the store is gone")
        return work()

    def put_new(self, key: str, data: bytes, **options: Any) -> None:
        self._step(lambda: super(Dying, self).put_new(key, data, **options))

    def put(self, key: str, data: bytes, **options: Any) -> None:
        self._step(lambda: super(Dying, self).put(key, data, **options))

    def delete(self, key: str) -> None:
        self._step(lambda: super(Dying, self).delete(key))


def test_what_is_left_is_told_until_it_is_gone(archive: Archive) -> None:
    """Also when no manifest is left that has the records. Garbage that has none of them is no fault."""
    fill(archive)
    with archive.recorder("r", if_exists="append", **options()) as recorder:
        tools(recorder, 1)
    old = {info.key: archive.storage.get(info.key) for info in archive.storage.list("packs/")}
    revisions = {info.key: archive.storage.get(info.key) for info in archive.storage.list("recordings/r/0000000")}
    purge(archive, "r", [3, 4, 5], "asked to")
    sound(archive)
    there = objects_of(archive.storage)

    def told(level: Any = "structure", names: Any = None) -> list[tuple[str, str, str]]:
        found = verify_archive(archive, names, level=level)
        return [(fault.code, fault.where, fault.recording) for fault in found]

    back = [key for key in old if key not in there]
    rows = []
    for key in back:
        archive.storage.put_new(key, old[key])
        toc = parse_pack(old[key])
        if any(
            info.kind == FrameKind.RECORD and info.first <= 5 and info.first + info.count > 3 for info in toc.frames
        ):
            rows.append(key)
    assert rows
    assert told() == [("purge.unfinished", key, "r") for key in sorted(rows)]
    assert told("manifest") == []
    compact(archive)
    gc(archive, keep_last=1, apply=True)  # marks what the compaction replaced
    purge(archive, "r", [3, 4, 5], "asked to")
    sound(archive)
    with archive.recorder("r", if_exists="append", **options()) as recorder:
        tools(recorder, 1)
    compact(archive)
    gc(archive, keep_last=1, apply=True)
    sound(archive)
    archive.storage.put_new("recordings/r/00000003.json", revisions["recordings/r/00000003.json"])
    assert told("manifest", ["r"]) == [("purge.unfinished", "recordings/r/00000003.json", "r")]


@pytest.mark.parametrize(("after", "failure"), [(False, Stop), (True, StorageUnavailableError)])
@pytest.mark.once
def test_interrupted_anywhere(archive: Archive, after: bool, failure: type[BaseException]) -> None:
    canary = "canary-in-a-turn-8517 "
    media = CANARIES[-1].encode() + bytes(range(256)) * (17 << 10)
    with archive.recorder("r", **options()) as recorder:
        recorder.append(kind="tool", identity=2, response=media)
        conversation(recorder, 3, {1: canary})
        recorder.flush()
        secret(recorder)
    with archive.recorder("next", base="r", **options()) as recorder:
        conversation(recorder, 3, {1: "other "})
    objects = {info.key: archive.storage.get(info.key) for info in archive.storage.list()}
    rows = {name: [r.row_bytes for r in archive.open(name).records()] for name in ("r", "next")}
    gone = [0, 2, 3, 4, 5, 6]
    tried = 0
    unfinished: list[int] = []
    while True:
        tried += 1
        storage = Dying(objects, tried, failure, after=after)
        dying = Archive("", storage=storage)
        try:
            purge(dying, "r", gone, "asked to", keep_shared=True)
        except failure:
            pass
        else:
            break
        here = Archive("", storage=storage)
        for name, wanted in rows.items():
            left = [r.row_bytes for r in here.open(name, fresh=True).records()]
            kept = [row for seq, row in enumerate(wanted) if seq not in gone] if name == "r" else wanted
            assert left in (wanted, kept), f"operation {tried}"
            for record in here.open(name, fresh=True).records():
                assert record.request is not None
                record.response  # noqa: B018
        told = {fault.code for fault in verify_archive(here, level="structure")} - {"latest.stale"}
        assert told <= {"purge.unfinished"}
        if here.open("r", fresh=True).manifest.purged and found(storage, *CANARIES, canary):
            unfinished.append(tried)
            assert told, f"operation {tried}"
        purge(here, "r", gone, "asked to", keep_shared=True)
        assert found(storage, *CANARIES, canary) == set(), f"operation {tried}"
        sound(here)
    assert tried > 10
    assert len(unfinished) > 5
    assert found(storage, *CANARIES, canary) == set()
    print(f"{tried - 1} operations, interrupted one after another")
