"""`gc`: what goes, what stays, and when."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack._write.journal import journal_directory
from replaypack.audit import Collected, compact, gc, rekey, verify_archive
from replaypack.errors import ConflictError, ObjectMissingError, RecordingNotFoundError, StorageFullError, UsageError
from replaypack.format.marks import MARKS, Marks, encode_marks, parse_marks
from replaypack.format.names import latest_key, open_key, revision_key
from replaypack.recover import recover
from replaypack.storage import ObjectInfo
from tests.support.clock import DAY, ClockStorage

WEEK = 7 * DAY


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClockStorage:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return ClockStorage()


@pytest.fixture
def archive(store: ClockStorage) -> Archive:
    return Archive("memory://", storage=store)


def record(archive: Archive, name: str, count: int = 3, *, flushes: int = 1, **options: object) -> None:
    with archive.recorder(name, flush_interval=None, **options) as recorder:  # type: ignore[arg-type]
        for flush in range(flushes):
            for number in range(count):
                recorder.append(kind="tool", identity=[name, flush, number], response="r" * 5000 + str(number))
            if flushes > 1:
                recorder.flush()


def sound(archive: Archive) -> None:
    assert list(verify_archive(archive)) == []


def packs(archive: Archive, name: str, revision: int | None = None) -> set[str]:
    return {ref.digest for ref in archive.open(name, revision).manifest.storage.packs}


def stored(store: ClockStorage) -> set[str]:
    return {key[-68:-4] for key in store.under("packs/")}


def apply(archive: Archive, **options: object) -> Collected:
    return gc(archive, apply=True, **options)  # type: ignore[arg-type]


class Full(ClockStorage):
    """A store that has room for so many bytes, all objects together."""

    room = 1 << 40

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        used = sum(len(there) for name, (there, _) in self._space.objects.items())
        if used + len(data) > self.room:  # what is replaced is there until it is
            raise StorageFullError("no space left", operation="put", url=f"{self.url}/{key}")
        super().put(key, data, cache_control=cache_control)

    def fill(self) -> None:
        self.room = sum(len(data) for data, _ in self._space.objects.values())


class TestFullStore:
    """Nothing can be written: what was marked for long enough goes all the same, and nothing else."""

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Full:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        store = Full()
        store.now = time.time() - 100 * DAY  # that clocks of stores are not ahead of this one's is checked
        return store

    def prepared(self, archive: Archive, store: Full) -> set[str]:
        """Packs of `gone` and of the first `back` are marked, those of `late` are garbage that no run saw."""
        for name in ("kept", "gone", "late", "back"):
            record(archive, name)
        gone = packs(archive, "gone") | packs(archive, "back")
        for name in ("gone", "back"):
            archive.delete(name)
        store.now += 10
        apply(archive)
        archive.delete("late")
        record(archive, "back")
        return gone

    def test_what_is_ripe_goes_first(self, archive: Archive, store: Full) -> None:
        gone = self.prepared(archive, store)
        before = stored(store)
        store.now += WEEK
        record(archive, "new")  # says how late it is
        store.fill()
        done = apply(archive)
        assert stored(store) == before - gone | packs(archive, "new")
        assert (done.removed["packs"].objects, done.waiting.objects) == (2, 1)
        assert parse_marks(store.get(MARKS)).sound
        sound(archive)

    def test_where_nothing_is_known_to_be_ripe_nothing_goes(self, archive: Archive, store: Full) -> None:
        self.prepared(archive, store)
        store.now += WEEK  # and nothing in the store says so
        store.fill()
        before = dict(store._space.objects)
        with pytest.raises(StorageFullError, match="--grace 0"):
            apply(archive)
        assert store._space.objects == before
        assert apply(archive, grace=timedelta()).removed["packs"].objects > 0
        sound(archive)

    def test_a_time_to_come_ripens_nothing(self, archive: Archive, store: Full) -> None:
        self.prepared(archive, store)
        store.now += 200 * DAY
        record(archive, "new")
        before = stored(store)
        store.now -= 200 * DAY
        store.fill()
        store._space.objects = {
            key: (data, moment if moment < time.time() else time.time() + 200 * DAY)
            for key, (data, moment) in store._space.objects.items()
        }
        marks = Marks(since={key: time.time() - 1 for key in store.under("packs/")})
        store._space.objects[MARKS] = (encode_marks(1, marks.since, ()), time.time())
        store.fill()
        with pytest.raises(StorageFullError):
            apply(archive)
        assert stored(store) == before

    def test_a_manifest_that_cannot_be_read_keeps_all(self, archive: Archive, store: Full) -> None:
        self.prepared(archive, store)
        store.now += WEEK
        store.put("recordings/kept/00000009.json", b"{}")
        store.fill()
        before = dict(store._space.objects)
        with pytest.raises(StorageFullError):
            apply(archive)
        assert store._space.objects == before

    def test_another_collector_is_noticed(self, archive: Archive, store: Full) -> None:
        self.prepared(archive, store)
        store.now += WEEK
        record(archive, "new")
        store.fill()
        before = stored(store)
        marks = parse_marks(store.get(MARKS))

        class Meanwhile(Full):
            calls = 0

            def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
                if prefix == "" and not self.calls:
                    self.calls += 1
                    data = encode_marks(marks.run + 1, {}, ())
                    self._space.objects[MARKS] = (data, self.now)
                return super().list(prefix)

        store.__class__ = Meanwhile
        with pytest.raises(ConflictError, match="another gc"):
            apply(archive)
        assert stored(store) == before


class TestGrace:
    def test_nothing_is_written_without_apply(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a", flushes=3)
        before = dict(store._space.objects)
        done = gc(archive, grace=timedelta())
        assert not done.applied
        assert done.removed["claims"].objects == 2
        assert done.removed["packs"].objects > 0
        assert store._space.objects == before

    def test_a_pack_goes_after_two_runs_and_the_grace_between(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        record(archive, "b")
        mine = packs(archive, "b")
        archive.delete("b")
        store.now += 100 * DAY  # old is not enough: it must have been seen
        done = apply(archive)
        assert done.removed["packs"].objects == 0
        assert done.waiting.objects == len(mine)
        assert done.next == store.now + WEEK
        store.now += WEEK - 1
        assert apply(archive).removed["packs"].objects == 0
        store.now += 1
        forecast = gc(archive)
        assert forecast.removed["packs"].objects in (0, len(mine))  # by this machine's clock
        done = apply(archive)
        assert done.removed["packs"].objects == len(mine)
        assert not stored(store) & mine
        assert parse_marks(store.get(MARKS)).since == {}
        sound(archive)

    def test_zero_grace_is_at_once(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        record(archive, "b", flushes=3)
        archive.delete("b")
        apply(archive, grace=timedelta())
        assert stored(store) == packs(archive, "a")
        assert len(store.under("recordings/")) == 2
        sound(archive)

    def test_what_was_needed_meanwhile_waits_anew(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        objects = {key: store.get(key) for key in store.under("recordings/a/")}
        archive.delete("a")
        store.now += 10
        apply(archive)
        for key, data in objects.items():
            store.put(key, data)
        store.now += WEEK
        assert apply(archive).kept.objects == 1
        archive.delete("a")
        store.now += DAY
        assert apply(archive).removed["packs"].objects == 0
        store.now += WEEK
        assert apply(archive).removed["packs"].objects == 1

    def test_a_pack_written_again_waits_anew(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        archive.delete("a")
        store.now += 10
        apply(archive)
        [key] = store.under("packs/")
        store.now += WEEK
        store.put(key, store.get(key))
        store.now += 10
        assert apply(archive).removed["packs"].objects == 0
        store.now += WEEK
        assert apply(archive).removed["packs"].objects == 1

    def test_one_written_again_right_before_stays(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        archive.delete("a")
        store.now += 10
        apply(archive)
        store.now += WEEK
        [key] = store.under("packs/")

        class Busy(ClockStorage):
            def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
                if prefix.startswith("packs/"):
                    self.put(key, self.get(key))
                return super().list(prefix)

        busy = Busy()
        busy._space, busy.now = store._space, store.now
        assert apply(Archive("memory://", storage=busy)).removed["packs"].objects == 0
        assert store.under("packs/") == {key}

    def test_marks_that_cannot_be_read_are_made_anew(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        archive.delete("a")
        store.now += 10
        apply(archive)
        store.put(MARKS, b"{}")
        store.now += WEEK
        assert apply(archive).removed["packs"].objects == 0
        store.now += WEEK
        assert apply(archive).removed["packs"].objects == 1

    def test_a_store_without_times(
        self, archive: Archive, store: ClockStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Timeless(ClockStorage):
            def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
                return iter([ObjectInfo(info.key, info.size) for info in super().list(prefix)])

        timeless = Timeless()
        timeless._space = store._space
        archive = Archive("memory://", storage=timeless)
        record(archive, "a")
        archive.delete("a")
        now = 2e9
        monkeypatch.setattr("time.time", lambda: now)
        assert apply(archive).removed["packs"].objects == 0
        now += WEEK - 1
        assert apply(archive).removed["packs"].objects == 0
        now += 2
        assert apply(archive).removed["packs"].objects == 1

    def test_two_collectors_at_once(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        archive.delete("a")

        class Rival(ClockStorage):
            armed = True

            def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
                if prefix == "" and self.armed:
                    self.armed = False
                    apply(archive)
                return super().list(prefix)

        rival = Rival()
        rival._space = store._space
        with pytest.raises(ConflictError):
            apply(Archive("memory://", storage=rival))
        assert len(store.under("packs/")) == 1


class TestRevisions:
    def test_all_committed_ones_stay_by_default(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a", flushes=2)
        record(archive, "a", if_exists="append")
        record(archive, "a", if_exists="replace")
        done = apply(archive, grace=timedelta())
        assert done.removed["claims"].objects == 4
        assert {manifest.storage.revision for manifest in archive.revisions("a")} == {2, 4, 6}
        assert len(archive.open("a", 2)) == 6
        sound(archive)

    def test_keep_last(self, archive: Archive, store: ClockStorage) -> None:
        for _ in range(3):
            record(archive, "a", if_exists="replace")
        record(archive, "b")
        done = apply(archive, keep_last=2, grace=timedelta())
        assert done.removed["revisions"].objects == 1
        assert done.removed["packs"].objects == 1
        assert [manifest.storage.revision for manifest in archive.revisions("a")] == [4, 6]
        with pytest.raises(RecordingNotFoundError):
            archive.open("a", 2)
        sound(archive)
        assert apply(archive, keep_last=1, grace=timedelta()).removed["revisions"].objects == 1
        assert stored(store) == packs(archive, "a") | packs(archive, "b")

    def test_keep_within(self, archive: Archive, store: ClockStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        # The writers' clock stands still long ago: the store's says when.
        monkeypatch.setattr("time.time_ns", lambda: 10**18)
        for _ in range(3):
            record(archive, "a", if_exists="replace")
            store.now += 30 * DAY
        month = timedelta(days=40)
        assert gc(archive, keep_within=month, keep_last=3).removed["revisions"].objects == 0
        done = apply(archive, keep_within=month)
        assert done.removed["revisions"].objects == 2
        assert [manifest.storage.revision for manifest in archive.revisions("a")] == [6]
        sound(archive)

    def test_a_writers_clock_keeps_too(
        self, archive: Archive, store: ClockStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("time.time_ns", lambda: 3 * 10**18)
        for _ in range(2):
            record(archive, "a", if_exists="replace")
        store.now += 100 * DAY
        assert apply(archive, keep_within=timedelta(days=1)).removed["revisions"].objects == 0

    def test_an_active_claim_keeps_what_it_is_based_on(self, archive: Archive, store: ClockStorage) -> None:
        for _ in range(2):
            record(archive, "a", if_exists="replace")
        recorder = archive.recorder("a", if_exists="append", flush_interval=None)
        recorder.append(kind="tool", identity="one", response=1)
        recorder.flush()
        recorder.append(kind="tool", identity="two", response=2)
        done = apply(archive, keep_last=1, grace=timedelta())
        assert done.removed["revisions"].objects == 1
        assert set(store.under("recordings/a/")) == {
            revision_key("a", 4), revision_key("a", 5), open_key("a", 5), latest_key("a")
        }  # fmt: skip
        recorder.seal()
        assert len(archive.open("a")) == 5
        sound(archive)
        apply(archive, grace=timedelta(), keep_last=1)
        assert set(store.under("recordings/a/")) == {revision_key("a", 6), latest_key("a")}
        sound(archive)

    def test_nothing_above_what_latest_json_names(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a", flushes=2)
        old = store.get(latest_key("a"))
        record(archive, "a", if_exists="replace")
        store.put(latest_key("a"), old)  # as where writing it failed
        apply(archive, keep_last=1, grace=timedelta())
        assert [manifest.storage.revision for manifest in archive.revisions("a")] == [2, 3, 4]
        assert archive.open("a", fresh=True).manifest.storage.revision == 4
        store.delete(latest_key("a"))
        apply(archive, keep_last=1, grace=timedelta())
        assert [manifest.storage.revision for manifest in archive.revisions("a")] == [2, 3, 4]

    def test_pruned_revisions_are_found_without_latest_json(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "x")
        rekey(archive, "x", match="uuids", to="a")  # revision 1 is a committed one
        record(archive, "a", if_exists="append")
        apply(archive)
        assert [manifest.storage.revision for manifest in archive.revisions("a")] == [1, 3]
        store.delete(latest_key("a"))
        assert archive.open("a").manifest.storage.revision == 3
        record(archive, "a", if_exists="append")
        assert archive.open("a", fresh=True).manifest.storage.revision == 5


class TestLostClaims:
    """A recorder whose claim was taken over may come back."""

    def lose(self, archive: Archive, monkeypatch: pytest.MonkeyPatch, mode: str) -> object:
        loser = archive.recorder("a", flush_interval=None)
        loser.append(kind="tool", identity="mine", response="m" * 5000)
        loser.flush()
        monkeypatch.setattr("replaypack._write.claim.CLAIM_EXPIRES", timedelta())
        monkeypatch.setattr("replaypack._write.claim.writer_is_alive", lambda *_: None)
        monkeypatch.setattr(
            sys.modules["replaypack.audit.gc"], "writers_of", lambda *_: set()
        )  # it is on another machine
        record(archive, "a", if_exists=mode)
        return loser

    @pytest.mark.parametrize("mode", ["append", "replace"])
    def test_it_finds_its_records_and_its_conflict(
        self, archive: Archive, store: ClockStorage, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        loser = self.lose(archive, monkeypatch, mode)
        for _ in range(3):
            store.now += 100 * DAY
            apply(archive, keep_last=1)
        sound(archive)
        loser.append(kind="tool", identity="more", response=2)  # type: ignore[attr-defined]
        with pytest.raises(ConflictError) as caught:
            loser.seal()  # type: ignore[attr-defined]
        assert caught.value.sibling is not None
        assert [record.response for record in archive.open(caught.value.sibling).records()] == ["m" * 5000, 2]
        sound(archive)
        # From then on nothing needs them.
        apply(archive, keep_last=1)
        apply(archive, keep_last=1)
        assert set(store.under("recordings/a/")) == {revision_key("a", 3), latest_key("a")}

    def test_a_journal_here_keeps_what_its_recovery_looks_for(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        recorder = archive.recorder("a", if_exists="append", flush_interval=None)
        recorder.append(kind="tool", identity="x", response=1)
        recorder.close()
        apply(archive, keep_last=1)
        [done] = recover(archive, keep_journals=True)
        apply(archive, keep_last=1)
        assert revision_key("a", 4) in store.under()
        journals = {path: path.read_bytes() for path in journal_directory(store).glob("*.rpj")}
        record(archive, "a", if_exists="replace")
        for path, data in journals.items():
            path.write_bytes(data)  # as where it died before it deleted them
        apply(archive, keep_last=1)
        assert revision_key("a", 4) in store.under()
        [done] = recover(archive)
        assert (done.error, done.from_journal) == (None, 0)
        assert len(list(archive.recordings())) == 1

    def test_a_journal_whose_revisions_were_collected(self, archive: Archive, store: ClockStorage) -> None:
        """One of another machine, which died between its commit and the deletion of its journal."""
        recorder = archive.recorder("a", flush_interval=None)
        recorder.append(kind="tool", identity="x", response=1)
        recorder.close()
        journals = {path: path.read_bytes() for path in journal_directory(store).glob("*.rpj")}
        list(recover(archive))
        for _ in range(2):
            record(archive, "a", if_exists="replace")
        apply(archive, keep_last=1)
        before = store.get(latest_key("a"))
        assert not {revision_key("a", 1), revision_key("a", 2)} & store.under()
        for path, data in journals.items():
            path.write_bytes(data)
        [done] = recover(archive)
        assert done.error is None
        assert done.name.startswith("a.")
        assert store.get(latest_key("a")) == before
        assert revision_key("a", 2) not in store.under()
        sound(archive)


class TestCaution:
    def test_a_manifest_that_cannot_be_read_stops_it(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        record(archive, "b")
        archive.delete("b")
        key = revision_key("a", 2)
        for data in (b"{}", store.get(key).replace(b'"version":1}', b'"version":9}'), store.get(latest_key("a"))[:-1]):
            good = store.get(key)
            store.put(key, data)
            before = stored(store)
            done = apply(archive, grace=timedelta())
            assert [item.key for item in done.unreadable] == [key]
            assert done.total.objects == 0
            assert stored(store) == before
            store.put(key, good)
        assert apply(archive, grace=timedelta()).removed["packs"].objects == 1

    def test_unknown_objects_and_journals_are_left_alone(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        mine = {
            "notes.txt", "packs/readme", "packs/ab/x.rpk", "recordings/a/notes.md", "recordings/a/x/y.json",
            "recordings/con/00000001.json", "recordings/00000001.json",
        }  # fmt: skip
        for key in mine:
            store.put(key, b"1234")
        store.put("journal/x", b"")
        done = apply(archive, grace=timedelta())
        assert done.unknown.objects == len(mine)
        assert mine <= store.under()

    def test_there_must_be_an_archive(self, archive: Archive, store: ClockStorage) -> None:
        with pytest.raises(ObjectMissingError):
            apply(archive)
        assert not store.under()

    @pytest.mark.parametrize("options", [{"keep_last": 0}, {"keep_last": True}, {"grace": 7}, {"grace": timedelta(-1)}])
    def test_wrong_arguments(self, archive: Archive, options: dict[str, object]) -> None:
        with pytest.raises(UsageError):
            apply(archive, **options)

    def test_signatures_go_with_what_they_sign(self, archive: Archive, store: ClockStorage) -> None:
        record(archive, "a")
        old = f"recordings/a/{archive.open('a').content_digest}.{'1' * 16}.dsse.json"
        record(archive, "a", if_exists="replace")
        new = f"recordings/a/{archive.open('a').content_digest}.{'1' * 16}.dsse.json"
        for key in (old, new):
            store.put(key, b"{}")
        store.now += 10
        apply(archive)
        assert {old, new} <= store.under()
        done = apply(archive, keep_last=1)
        assert done.removed["signatures"].objects == 0
        store.now += WEEK
        done = apply(archive, keep_last=1)
        assert done.removed["signatures"].objects == 1
        assert new in store.under()
        assert old not in store.under()

    def test_roots_in_pages_are_references(
        self, archive: Archive, store: ClockStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("replaypack._write.publish._MAX_INLINE_PACKS", 0)
        monkeypatch.setattr("replaypack._write.publish.INLINE_LIMIT", 10)
        record(archive, "a", flushes=3)
        manifest = archive.open("a").manifest
        assert manifest.storage.pack_pages
        assert manifest.storage.segments[0].keys.page
        apply(archive, grace=timedelta())
        sound(archive)
        assert len(list(archive.open("a").records())) == 9
        store.delete(f"packs/{manifest.storage.pack_pages[0].pack[:2]}/{manifest.storage.pack_pages[0].pack}.rpk")
        assert {item.key for item in apply(archive).unreadable} == {revision_key("a", 2), latest_key("a")}


def test_temporary_files_of_killed_writers(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive")
    record(archive, "a")
    old, new = tmp_path / "archive/packs/~tmp-1", tmp_path / "archive/recordings/a/~tmp-2"
    for path in (old, new, tmp_path / "archive/journal/~tmp-3"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"123")
    os.utime(old, (10**9, 10**9))
    os.utime(tmp_path / "archive/journal/~tmp-3", (10**9, 10**9))
    assert gc(archive).removed["leftovers"] == (1, 3)
    assert old.exists()
    assert apply(archive).removed["leftovers"] == (1, 3)
    assert not old.exists()
    assert new.exists()
    assert (tmp_path / "archive/journal/~tmp-3").exists()


def test_many_recordings_are_read_by_many_threads(archive: Archive, store: ClockStorage) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(40):
            record(archive, f"r{number}", count=1)
    stages: list[tuple[str, int, int]] = []
    done = apply(archive, grace=timedelta(), progress=lambda p: stages.append((p.stage, p.done, p.total)))
    assert done.removed["claims"].objects == 40
    assert done.kept.objects == 40
    assert ("manifests", 120, 120) in stages
    sound(archive)


def test_marks_round_trip_and_refuse_what_is_none() -> None:
    key = "packs/aa/" + "a" * 64 + ".rpk"
    data = encode_marks(3, {key: 1_700_000_000.25}, ["recordings/a/x"])
    marks = parse_marks(data)
    assert (marks.run, marks.since, marks.new, marks.sound) == (3, {key: 1_700_000_000.25}, {"recordings/a/x"}, True)
    assert marks.has(key)
    assert not marks.has("packs/x")
    assert marks.resolved(1.5) == {key: 1.5, "recordings/a/x": 1.5}
    assert not Marks().has("packs/x")
    most = data.replace(b'"run":3', b'"run":9007199254740991')
    assert encode_marks(parse_marks(most).run + 1, marks.since, marks.new) == most
    for broken in (
        b"",
        b"[]",
        data[:-1],
        data.replace(b"packs/", b"/etc//"),
        data.replace(b'"run":3', b'"run":-3'),
        data.replace(b'"run":3', b'"run":1' + b"0" * 30),
        data.replace(b"2023-", b"9999999-"),
        b"{" * 10**6,
        b" " * (17 << 20),
    ):
        marks = parse_marks(broken)
        assert not marks.sound
        assert marks.has("packs/x")  # whoever asks must not rely on it


@pytest.mark.parametrize("missing", [False, True])
def test_latest_json_that_is_behind_is_written_again(archive: Archive, store: ClockStorage, missing: bool) -> None:
    record(archive, "a")
    key = latest_key("a")
    old = store.get(key)
    compact(archive)
    new = store.get(key)
    if missing:
        store.delete(key)
    else:
        store.put(key, old)
    gc(archive)
    apply(archive)
    # Whoever commits may be at it: the revision before is what it relies on.
    assert latest_key("a") not in store.under() if missing else store.get(key) == old
    store.now += 3601
    apply(archive, keep_last=1)
    assert store.get(key) == new
    assert revision_key("a", 2) in store.under()
    apply(archive, keep_last=1)
    assert revision_key("a", 2) not in store.under()
    sound(archive)
