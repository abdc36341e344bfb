"""`gc` between any two storage operations of other work, other work between any two of `gc`, and both cut short.

Whatever the work is, one `Work` here is all that it needs.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from replaypack import Archive
from replaypack.audit import compact, copy, gc, load_private_key, new_key, purge, rekey, sign, verify_archive
from replaypack.errors import ConflictError, PublishError, ReplaypackError, StorageFullError, StorageUnavailableError
from replaypack.format.marks import MARKS
from replaypack.recover import recover
from replaypack.storage import Storage
from tests.support.between import Between
from tests.support.clock import DAY, ClockStorage

pytestmark = pytest.mark.once

WEEK = timedelta(days=7)
LARGE = b"large media of two recordings" * 200
SHORT = "what two small recordings have in common " * 50
OTHER = b"what the base asked" * 300


class Ledger:
    """The responses that were acknowledged, by recording."""

    def __init__(self) -> None:
        self.names: dict[str, list[object]] = {}
        self.objects: dict[str, bytes] = {}

    def note(self, name: str, response: object) -> None:
        self.names.setdefault(name, []).append(response)

    def check(self, store: Storage) -> None:
        """All of it can be read, and the archive is sound."""
        self.read(store)
        archive = Archive("memory://", storage=store)
        # A commit whose last step was cut off is one all the same.
        assert [fault for fault in verify_archive(archive) if not fault.code.startswith("latest.")] == []

    def read(self, store: Storage) -> None:
        archive = Archive("memory://", storage=store)
        for key, data in self.objects.items():
            assert store.get(key) == data
        for name, expected in self.names.items():
            with archive.open(name, fresh=True) as recording:
                records = list(recording.records())
                assert [record.response for record in records] == expected
                for record in records:
                    assert record.request is not None


class Work(NamedTuple):
    """``prepare`` makes what it needs, and the garbage of an earlier attempt; ``run`` does it and notes what was
    acknowledged; ``finish`` completes it after it was cut short."""

    prepare: Callable[[Archive, Ledger], None]
    run: Callable[[Archive, Ledger], None]
    finish: Callable[[Archive, Ledger], None]


def archive_of(store: Storage) -> Archive:
    return Archive("memory://", storage=store)


def record(archive: Archive, ledger: Ledger, name: str, responses: list[object], **options: object) -> None:
    """A flush after each record but the last."""
    with archive.recorder(name, flush_interval=None, **options) as recorder:  # type: ignore[arg-type]
        for number, response in enumerate(responses):
            identity = {"of": name, "n": number, "text": OTHER.decode()}
            recorder.append(kind="tool", identity=identity, response=response)
            ledger.note(name, response)
            if number + 1 < len(responses):
                recorder.flush()


def dies(archive: Archive, key: str, run: Callable[[Archive], object]) -> None:
    """Let ``run`` fail with its commit, when all its packs are up."""

    class Dying(Between):
        def put_new(self, created: str, data: bytes, *, cache_control: str | None = None) -> None:
            if created == key:
                self._number, self._action = self.count, None  # from here on everything fails
            super().put_new(created, data, cache_control=cache_control)

    with contextlib.suppress(ReplaypackError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(archive_of(Dying(archive.storage, 10**9, lambda: None)))


def with_base(archive: Archive, ledger: Ledger) -> None:
    record(archive, ledger, "base", ["b1", b"b2" * 3000])
    # A payload in a pack of its own, and nobody who needs it any more.
    record(archive, Ledger(), "old", [LARGE])
    archive.delete("old")


def nothing(archive: Archive, ledger: Ledger) -> None:
    pass


def recovers(archive: Archive, ledger: Ledger) -> None:
    for done in recover(archive):
        if done.error is not None:
            raise done.error


def killed_recorder(archive: Archive, ledger: Ledger) -> None:
    """Its recovery was cut short too."""
    with_base(archive, ledger)
    recorder = archive.recorder("killed", flush_interval=None, base="base")
    for number, response in enumerate([1, 2, LARGE, 4]):
        recorder.append(kind="tool", identity={"n": number, "text": OTHER.decode()}, response=response)
        ledger.note("killed", response)
        if number == 1:
            recorder.flush()
    recorder.close()
    dies(archive, "recordings/killed/00000002.json", lambda dying: list(recover(dying)))


def half_rekeyed(archive: Archive, ledger: Ledger) -> None:
    with_base(archive, ledger)
    dies(archive, "recordings/base/00000003.json", lambda dying: rekey(dying, "base", match="uuids"))


def half_rekeyed_to(archive: Archive, ledger: Ledger) -> None:
    with_base(archive, ledger)
    dies(archive, "recordings/other/00000001.json", lambda dying: rekey(dying, "base", match="uuids", to="other"))


def rekeys(archive: Archive, ledger: Ledger) -> None:
    if archive.open("base", fresh=True).match.name != "uuids":
        rekey(archive, "base", match="uuids")


def rekeys_to(archive: Archive, ledger: Ledger) -> None:
    if "other" not in archive.recordings():
        rekey(archive, "base", match="uuids", to="other")
    ledger.names["other"] = ledger.names["base"]


def half_compacted(archive: Archive, ledger: Ledger) -> None:
    with_base(archive, ledger)
    record(archive, ledger, "second", ["s1", LARGE], base="base")
    dies(archive, "recordings/base/00000003.json", lambda dying: compact(dying, level=3))


def compacts(archive: Archive, ledger: Ledger) -> None:
    done = compact(archive, ["base", "second"], level=3)
    for item in done.recordings:
        if item.error is not None:
            raise item.error


def half_compacted_together(archive: Archive, ledger: Ledger) -> None:
    """Two that are small enough to have their bytes in the same frames."""
    for name in ("one", "two"):
        with archive.recorder(name, flush_interval=None) as recorder:
            for number in range(2):
                recorder.append(kind="tool", identity={"of": name, "n": number, "text": SHORT}, response=[name, number])
                ledger.note(name, [name, number])
    with_base(archive, Ledger())
    archive.delete("base")
    dies(archive, "recordings/one/00000003.json", lambda dying: compact(dying, ["one", "two"], level=3))
    dies(archive, "recordings/two/00000003.json", lambda dying: compact(dying, ["one", "two"], level=3))
    assert archive.open("one", fresh=True).manifest.storage.cause == "compact"


def compacts_together(archive: Archive, ledger: Ledger) -> None:
    done = compact(archive, ["one", "two"], level=3)
    for item in done.recordings:
        if item.error is not None:
            raise item.error


def half_purged(archive: Archive, ledger: Ledger) -> None:
    record(archive, ledger, "purged", ["p1" * 512, "p2" * 512])
    with_base(archive, ledger)
    dies(archive, "recordings/purged/00000003.json", purges_one)


def purges_one(archive: Archive) -> None:
    purge(archive, "purged", [1], "a test", keep_shared=True)


def purges(archive: Archive, ledger: Ledger) -> None:
    # What is acknowledged from the first step on is that it may go.
    ledger.names["purged"] = ["p1" * 512]
    purges_one(archive)


def several_revisions(archive: Archive, ledger: Ledger) -> None:
    with_base(archive, Ledger())
    record(archive, ledger, "base", ["b3", LARGE], if_exists="replace")


def verifies(archive: Archive, ledger: Ledger) -> None:
    assert list(verify_archive(archive)) == []


_source = ClockStorage()


def half_copied(archive: Archive, ledger: Ledger) -> None:
    """Of two recordings that share packs one is copied: some of its packs as they are, others packed anew. The other
    is signed."""
    pytest.importorskip("cryptography", reason="signing needs replaypack[sign]")
    if not _source.under():
        other = archive_of(_source)
        record(other, Ledger(), "secret", [secrets.token_hex(3000)])
        record(other, Ledger(), "copied", ["c1", LARGE, "c3"], base="secret")
        record(other, Ledger(), "plain", ["d1", secrets.token_bytes(20_000)])
        sign(other.open("plain"), load_private_key(new_key()[0]))
    with_base(archive, ledger)
    for name in ("copied", "plain"):
        dies(archive, f"recordings/{name}/00000001.json", lambda dying: copy(archive_of(_source), dying, name))  # noqa: B023


def copies(archive: Archive, ledger: Ledger) -> None:
    copy(archive_of(_source), archive, ["copied", "plain"], jobs=1)
    for name in ("copied", "plain"):
        ledger.names[name] = [record.response for record in archive_of(_source).open(name).records()]
    signatures = [key for key in _source.under("recordings/plain/") if key.endswith(".dsse.json")]
    assert signatures
    ledger.objects.update((key, _source.get(key)) for key in signatures)


WORKS = {
    "record": Work(with_base, lambda a, ledger: record(a, ledger, "new", [1, LARGE, 3]), recovers),
    "record on a base": Work(with_base, lambda a, ledger: record(a, ledger, "new", [1, LARGE], base="base"), recovers),
    "append": Work(
        with_base, lambda a, ledger: record(a, ledger, "base", [3, LARGE], if_exists="append", base="base"), recovers
    ),
    "recover": Work(killed_recorder, recovers, recovers),
    "rekey": Work(half_rekeyed, rekeys, rekeys),
    "rekey to another": Work(half_rekeyed_to, rekeys_to, rekeys_to),
    "compact": Work(half_compacted, compacts, compacts),
    "compact together": Work(half_compacted_together, compacts_together, compacts_together),
    "copy": Work(half_copied, copies, copies),
    "purge": Work(half_purged, purges, purges),
    "verify": Work(several_revisions, verifies, verifies),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for module in ("_write.literals", "recorder", "recover"):
        monkeypatch.setattr(f"replaypack.{module}.LARGE", 5000)


class Prepared:
    """The state before the work: made once, with garbage that may go at once, and copied for each run."""

    def __init__(self, work: Work, state: Path) -> None:
        self._state = state
        self._store = ClockStorage()
        self._ledger = Ledger()
        archive = archive_of(self._store)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work.prepare(archive, self._ledger)
        self._store.now += 10
        gc(archive, apply=True)
        self._store.now += 7 * DAY
        self._objects = dict(self._store._space.objects)
        self._journals = {path: path.read_bytes() for path in state.rglob("*.rpj")}
        self.garbage = gc(archive, apply=True).removed["packs"].objects

    def copy(self) -> tuple[ClockStorage, Ledger]:
        for path in self._state.rglob("*.rpj"):
            path.unlink()
        for path, data in self._journals.items():
            path.write_bytes(data)
        # The same store and place of journals, as it was.
        self._store._space.objects = dict(self._objects)
        ledger = Ledger()
        ledger.names = {name: list(responses) for name, responses in self._ledger.names.items()}
        return self._store, ledger


def steps() -> Iterator[int]:
    yield from range(400)
    raise AssertionError("it never ends")


def collects(store: ClockStorage) -> Callable[[], object]:
    def collect() -> None:
        done = gc(archive_of(store), apply=True, grace=WEEK, keep_last=1)
        assert not done.unreadable

    return collect


@pytest.mark.parametrize("name", WORKS)
def test_gc_between_any_two_operations(name: str, tmp_path: Path) -> None:
    work = WORKS[name]
    prepared = Prepared(work, tmp_path)
    assert prepared.garbage > 0
    for number in steps():
        store, ledger = prepared.copy()
        between = Between(store, number, collects(store))
        work.run(archive_of(between), ledger)
        ledger.read(store)
        collects(store)()
        store.now += 8 * DAY
        collects(store)()
        ledger.check(store)
        if not between.reached:
            break


@pytest.mark.parametrize("name", WORKS)
def test_any_work_between_two_operations_of_gc(name: str, tmp_path: Path) -> None:
    work = WORKS[name]
    prepared = Prepared(work, tmp_path)
    for number in steps():
        store, ledger = prepared.copy()
        between = Between(store, number, lambda: work.run(archive_of(store), ledger))  # noqa: B023
        gc(archive_of(between), apply=True, grace=WEEK, keep_last=1)
        if not between.reached:
            break
        ledger.read(store)
        store.now += 8 * DAY
        collects(store)()
        ledger.check(store)


class Full(ClockStorage):
    """Has no room for ``gc.json`` until a pack is deleted."""

    full = True

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        if key == MARKS and self.full:
            raise StorageFullError("no space left", operation="put", url=self.url)
        super().put(key, data, cache_control=cache_control)

    def delete(self, key: str) -> None:
        super().delete(key)
        self.full = self.full and not key.startswith("packs/")


@pytest.mark.parametrize("name", WORKS)
def test_any_work_while_gc_makes_room(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[gc.__module__], "time", SimpleNamespace(time=lambda: 3e9))
    work = WORKS[name]
    prepared = Prepared(work, tmp_path)
    for number in steps():
        store, ledger = prepared.copy()
        store.put("note", b"")  # by its time the garbage is ripe
        store.__class__ = Full
        store.full = True  # type: ignore[attr-defined]
        between = Between(store, number, lambda: work.run(archive_of(store), ledger))  # noqa: B023
        with contextlib.suppress(ConflictError):  # the work may be another gc, or take what is garbage itself
            gc(archive_of(between), apply=True, grace=WEEK, keep_last=1)
        if not between.reached:
            assert not store.full  # type: ignore[attr-defined]
            break
        ledger.read(store)
        store.full = False  # type: ignore[attr-defined]
        store.now += 8 * DAY
        collects(store)()
        ledger.check(store)


@pytest.mark.parametrize("name", WORKS)
def test_work_that_dies_anywhere_is_finished_after_gc(name: str, tmp_path: Path) -> None:
    work = WORKS[name]
    prepared = Prepared(work, tmp_path)
    for number in steps():
        store, ledger = prepared.copy()
        dying = Between(store, number, changes=True)
        with contextlib.suppress(ReplaypackError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work.run(archive_of(dying), ledger)
        for _ in range(3):
            collects(store)()
            store.now += 8 * DAY
        work.finish(archive_of(store), ledger)
        ledger.check(store)
        if not dying.reached:
            break


@pytest.mark.parametrize("name", ["record on a base", "recover"])
def test_a_gc_that_dies_anywhere_is_finished_by_the_next(name: str, tmp_path: Path) -> None:
    work = WORKS[name]
    prepared = Prepared(work, tmp_path)
    store, ledger = prepared.copy()
    work.run(archive_of(store), ledger)
    collects(store)()
    expected = store.under() - {"gc.json"}
    for number in steps():
        store, ledger = prepared.copy()
        work.run(archive_of(store), ledger)
        dying = Between(store, number, changes=True)
        with contextlib.suppress(StorageUnavailableError):
            gc(archive_of(dying), apply=True, grace=WEEK, keep_last=1)
        ledger.check(store)
        collects(store)()
        # Packs have other names in each run: what counts is how many there are.
        assert len(store.under() - {"gc.json"}) == len(expected)
        ledger.check(store)
        if not dying.reached:
            break


def test_the_base_goes_while_it_is_reused(tmp_path: Path) -> None:
    """The packs of the base stay as long as what was recorded on it needs them."""
    work = WORKS["record on a base"]
    prepared = Prepared(work, tmp_path)
    for number in steps():
        store, ledger = prepared.copy()
        base = ledger.names.pop("base")

        def removes() -> None:
            archive = archive_of(store)  # noqa: B023
            archive.delete("base")
            collects(store)()  # noqa: B023

        between = Between(store, number, removes)
        with contextlib.suppress(ReplaypackError):
            work.run(archive_of(between), ledger)
        if not between.reached:
            ledger.names["base"] = base
            ledger.check(store)
            break
        ledger.check(store)
        for _ in range(3):
            store.now += 8 * DAY
            collects(store)()
        ledger.check(store)


def month_of_gc(store: ClockStorage) -> None:
    for _ in range(4):
        collects(store)()
        store.now += 8 * DAY


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("mode", ["error", "append"])
def test_a_recorder_on_a_base_that_does_not_flush_for_long(
    mode: str, paged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim names what it reuses."""
    if paged:
        monkeypatch.setattr("replaypack._write.publish._MAX_INLINE_PACKS", 0)
    store, ledger = ClockStorage(), Ledger()
    archive = archive_of(store)
    record(archive, Ledger(), "base", ["b1", "b2"])
    if mode == "append":
        record(archive, ledger, "new", [1, 2])
    with archive.recorder("new", if_exists=mode, base="base", flush_interval=None) as recorder:  # type: ignore[arg-type]
        archive.delete("base")
        month_of_gc(store)
        recorder.append(kind="tool", identity={"of": "new", "n": 2, "text": OTHER.decode()}, response=3)
        ledger.note("new", 3)
        ledger_before = Ledger()
        ledger_before.check(store)
    ledger.check(store)
    month_of_gc(store)
    ledger.check(store)


def test_a_base_that_goes_before_the_claim_is_noticed(tmp_path: Path) -> None:
    """With no grace at all: then nothing is claimed."""
    prepared = Prepared(WORKS["record on a base"], tmp_path)
    noticed = 0
    for number in steps():
        store, _ = prepared.copy()
        archive = archive_of(store)

        def removes() -> None:
            archive_of(store).delete("base")  # noqa: B023
            gc(archive_of(store), apply=True, grace=timedelta())  # noqa: B023

        between = Between(store, number, removes)
        try:
            recorder = archive_of(between).recorder("new", base="base", flush_interval=None)
        except ReplaypackError:
            noticed += 1
            assert "new" not in archive.recordings()
            archive.recorder("new").discard()  # the name is free
        else:
            recorder.close()
        if not between.reached:
            break
        assert list(verify_archive(archive)) == [] or not list(archive.recordings())
    assert noticed > 3


def test_packs_that_waited_too_long_for_their_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that does not flush for longer than the grace loses packs; it notices, and its journal has all."""
    monkeypatch.setattr("replaypack._write.worker.PACK_TARGET", 2000)
    monkeypatch.setattr("replaypack._write.publish.UPLOADED_LONG_AGO", -1)
    store, ledger = ClockStorage(), Ledger()
    archive = archive_of(store)
    recorder = archive.recorder("new", flush_interval=None)
    for number in range(300):
        response = f"{number} " * 200 + secrets.token_hex(400)
        recorder.append(kind="tool", identity=[number], response=response)
        ledger.note("new", response)
    recorder._worker.drain()  # a pack is up, and nothing names it
    assert store.under("packs/")
    month_of_gc(store)
    with pytest.raises(PublishError, match="collected"):
        recorder.seal()
    recorder.close()
    recovers(archive, ledger)
    ledger.check(store)
