"""Recording and reading back, on local disk and in memory, in one go, in flushes, appended and replaced."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import replaypack
from replaypack import ABSENT, Archive
from replaypack._read.packs import Frame, PackReader
from replaypack._write import publish
from replaypack.errors import (
    CanonicalizationError,
    FormatError,
    InvalidLocatorError,
    InvalidNameError,
    RecorderClosedError,
    RecordingExistsError,
    RecordingNotFoundError,
    UsageError,
    ValueEncodingError,
)
from replaypack.format.row import ABSENT_DIGEST, Row, encode_row, parse_row
from tests.archive.support import calls, check, same


@pytest.fixture(params=["local", "memory"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    if request.param == "local":
        # What is synced to the disk, and when, is the business of the storage and crash tests.
        return Archive(tmp_path / "archive", {"replaypack": {"fsync": False}})
    return Archive(f"memory://{tmp_path.name}-{id(tmp_path)}")


def record(archive: Archive, name: str, items: list[dict[str, Any]], flush_every: int = 0, **options: Any) -> None:
    with archive.recorder(name, flush_interval=None, **options) as recorder:
        for number, call in enumerate(items, 1):
            assert recorder.append(**call) == recorder.count - 1
            if flush_every and number % flush_every == 0:
                recorder.flush()


def test_a_recording_reads_back_exactly(archive: Archive) -> None:
    expected = list(calls(300, large=True))
    record(archive, "run/1", expected)
    check(archive.open("run/1"), expected)


@pytest.mark.parametrize("flush_every", [1, 7, 40])
@pytest.mark.once
def test_flushes_change_nothing(archive: Archive, flush_every: int) -> None:
    expected = list(calls(240))
    recorder = archive.recorder("run", flush_interval=None)
    for number, call in enumerate(expected, 1):
        recorder.append(**call)
        if number % flush_every == 0:
            recorder.flush()
            assert recorder.published == number
            if number in (flush_every, 7 * flush_every, 120):
                with archive.open("run", fresh=True) as live:
                    assert live.state == "open"
                    check(live, expected[:number])
    manifest = recorder.seal()
    assert len(manifest.storage.segments) == 1
    check(archive.open("run"), expected)


@pytest.mark.once
def test_live_segments_stay_few(archive: Archive) -> None:
    expected = list(calls(200))
    recorder = archive.recorder("run", flush_interval=None)
    most = 0
    for call in expected:
        recorder.append(**call)
        recorder.flush()
        most = max(most, len(archive.open("run", fresh=True).manifest.storage.segments))
    assert most == publish.MAX_LIVE
    check(archive.open("run", fresh=True), expected)
    recorder.seal()
    check(archive.open("run"), expected)


def test_large_segments_merge_their_tables_only(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "KEEP", 100)
    expected = list(calls(150))
    record(archive, "run", expected, flush_every=2)
    recording = archive.open("run")
    assert len(recording.manifest.storage.packs) > 70
    check(recording, expected)


def test_the_content_does_not_depend_on_storage(archive: Archive) -> None:
    items = [dict(call, start=1, duration=2, salt=bytes(8)) for call in calls(100)]
    roots = set()
    for number, flush_every in enumerate([0, 1, 13]):
        record(archive, f"run-{number}", items, flush_every=flush_every)
        roots.add(archive.open(f"run-{number}").manifest.content.merkle_root)
    assert len(roots) == 1


def test_append_continues_a_recording(archive: Archive) -> None:
    first, second, third = list(calls(50)), list(calls(60, seed=1)), list(calls(10, seed=2))
    record(archive, "run", first)
    before = archive.open("run")
    record(archive, "run", second, if_exists="append", flush_every=25)
    record(archive, "run", third, if_exists="append")
    after = archive.open("run")
    check(after, first + second + third)
    assert after.manifest.content.id == before.manifest.content.id
    causes = [m.storage.cause for m in archive.revisions("run")]
    assert causes == ["claim", "seal", "claim", "append", "claim", "append"]
    check(archive.open("run", 2), first)
    assert next(iter(archive.revisions("run"))).content.records == 0


def test_an_append_is_seen_at_its_first_flush_and_a_replacement_at_its_seal(archive: Archive) -> None:
    old = list(calls(30))
    record(archive, "run", old)
    recorder = archive.recorder("run", if_exists="append", flush_interval=None)
    check(archive.open("run", fresh=True), old)
    new = list(calls(5, seed=3))
    for call in new:
        recorder.append(**call)
    check(archive.open("run", fresh=True), old)
    recorder.flush()
    check(archive.open("run", fresh=True), old + new)
    recorder.seal()
    recorder = archive.recorder("run", if_exists="replace", flush_interval=None)
    for call in new:
        recorder.append(**call)
    recorder.flush()
    check(archive.open("run", fresh=True), old + new)
    recorder.seal()
    check(archive.open("run", fresh=True), new)
    assert archive.open("run").manifest.content.extends is None


def test_an_existing_recording_is_not_touched_by_default(archive: Archive) -> None:
    record(archive, "run", list(calls(3)))
    with pytest.raises(RecordingExistsError, match="3 records"):
        archive.recorder("run")
    assert len(list(archive.revisions("run"))) == 2


def test_a_response_as_a_type(archive: Archive) -> None:
    async def record_it() -> None:
        async with archive.recorder("run") as recorder:
            recorder.append(kind="t", identity=1, response={"city": "Bern", "degrees": [1, 2.5]})
            assert (await recorder.aseal()).content.records == 1

    class Weather(msgspec.Struct):
        city: str
        degrees: list[float]

    asyncio.run(record_it())
    record = archive.open("run").record(0)
    assert record.response_as(Weather) == Weather("Bern", [1.0, 2.5])
    with pytest.raises(UsageError, match="record 0 is no int"):
        record.response_as(int)


def test_sealing_as_incomplete_notes_the_error_without_secrets(archive: Archive) -> None:
    with archive.recorder("run", secrets=["hunter22"]) as recorder:
        with pytest.raises(UsageError, match="state='open'"):
            recorder.seal(state="open")  # type: ignore[arg-type]
        recorder.seal(state="incomplete", error={"type": "Timeout", "message": "no answer to hunter22"})
    recording = archive.open("run")
    assert recording.state == "incomplete"
    error = recording.manifest.content.error
    assert error is not None
    assert error["type"] == "Timeout"
    assert "hunter22" not in error["message"]


def test_an_exception_seals_as_incomplete_and_goes_on(archive: Archive) -> None:
    expected = list(calls(10))

    def explode() -> None:
        with archive.recorder("run") as recorder:
            for call in expected:
                recorder.append(**call)
            raise RuntimeError("tool exploded")

    with pytest.raises(RuntimeError, match="tool exploded"):
        explode()
    recording = archive.open("run")
    check(recording, expected)
    assert recording.state == "incomplete"
    error = recording.manifest.content.error
    assert error is not None
    assert error["type"] == "RuntimeError"
    assert error["message"] == "tool exploded"


@pytest.mark.parametrize("if_exists", ["error", "append", "replace"])
def test_an_exception_discards_where_that_was_asked_for(archive: Archive, if_exists: Literal["append"]) -> None:
    def explode() -> None:
        with archive.recorder("run", if_exists=if_exists, on_error="discard") as recorder:
            recorder.append(kind="tool", identity=1, response=2)
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        explode()
    assert not list(archive.recordings())
    with archive.recorder("run", on_error="discard") as recorder:
        recorder.append(kind="tool", identity=0, response=0)
    with pytest.raises((RuntimeError, RecordingExistsError)):
        explode()
    assert [record.identity for record in archive.open("run").records()] == [0]


def test_nothing_is_written_for_what_cannot_be_stored(archive: Archive) -> None:
    class Foo:
        pass

    with archive.recorder("run", flush_interval=None) as recorder:
        with pytest.raises((ValueEncodingError, CanonicalizationError), match="/args/session"):
            recorder.append(kind="tool", identity={"args": {"session": Foo()}})
        with pytest.raises(ValueEncodingError, match="/response/a/0"):
            recorder.append(kind="tool", identity=1, response={"a": [Foo()]})
        with pytest.raises(CanonicalizationError, match="/x"):
            recorder.append(kind="tool", identity={"x": float("nan")})
        with pytest.raises(UsageError):
            recorder.append(kind="tool")
        with pytest.raises(UsageError):
            recorder.append(kind="tool", identity=1, key="k")
        with pytest.raises(UsageError):
            recorder.append(kind="tool", identity=1, response=1, error=ValueError())
        with pytest.raises(UsageError, match="status"):
            recorder.append(kind="tool", identity=1, status="fine")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="flag"):
            recorder.append(kind="tool", identity=1, flags=["nope"])
        with pytest.raises(ValueEncodingError, match="5000 bytes"):
            recorder.append(kind="tool", identity=1, name="n" * 5000)
        with pytest.raises(ValueEncodingError, match="/scope"):
            recorder.append(kind="tool", identity=1, scope="\ud800")
        assert recorder.append(kind="tool", identity=1, response=2) == 0
    assert len(archive.open("run")) == 1


def test_a_sealed_recorder_says_so(archive: Archive) -> None:
    recorder = archive.recorder("run", flush_interval=None)
    recorder.append(kind="tool", identity=1, response=2)
    manifest = recorder.seal()
    assert recorder.seal() is manifest
    with pytest.raises(RecorderClosedError):
        recorder.append(kind="tool", identity=1)
    with pytest.raises(RecorderClosedError):
        recorder.flush()


def test_scopes_answer_for_themselves_then_for_everyone(archive: Archive) -> None:
    with archive.recorder("run", flush_interval=None) as recorder:
        for scope, response in [("a", 1), (None, 2), ("b", 3), ("a", 4), (None, 5)]:
            recorder.append(kind="tool", identity="x", response=response, scope=scope)
    recording = archive.open("run")

    def answers(scope: str | None) -> list[Any]:
        found = []
        while (record := recording.lookup("tool", "x", scope=scope, nth=len(found))) is not None:
            found.append(record.response)
        return found

    assert answers("a") == [1, 4]
    assert answers("b") == [3]
    assert answers("c") == [2, 5]
    assert answers(None) == [2, 5]
    assert recording.count("tool", "x") == 5


def test_filters(archive: Archive) -> None:
    expected = list(calls(60))
    record(archive, "run", expected, flush_every=17)
    recording = archive.open("run")
    assert [r.seq for r in recording.records(kinds=["model"])] == list(range(0, 60, 6))
    assert {r.name for r in recording.records(names=["odd", "fails"])} == {"odd", "fails"}
    assert [r.seq for r in recording.records(first=18, last=21)] == [18, 19, 20, 21]
    assert all(r.status == "error" for r in recording.records(statuses=["error"]))
    assert len(list(recording.records(statuses=["error"]))) == 10
    assert all(r.scope == "sample-0" for r in recording.records(scope="sample-0"))
    middle = recording.record(30).time
    assert next(recording.records(since=middle)).start >= recording.record(30).start // 1000 * 1000 - 1000
    late = [r.seq for r in recording.records(until=middle)]
    assert late == list(range(len(late)))
    with pytest.raises(UsageError):
        recording.record(60)


def test_follow_sees_what_is_recorded_meanwhile(archive: Archive) -> None:
    expected = list(calls(40))
    recorder = archive.recorder("run", flush_interval=None)
    seen: list[int] = []
    failure: list[BaseException] = []

    def follow() -> None:
        try:
            seen.extend(r.seq for r in archive.open("run", fresh=True).records(follow=True, poll_interval=0.01))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    for number, call in enumerate(expected, 1):
        recorder.append(**call)
        if number % 10 == 0:
            recorder.flush()
    recorder.seal()
    thread.join(30)
    assert not failure
    assert seen == list(range(40))


def test_many_threads_append(archive: Archive) -> None:
    recorder = archive.recorder("run", flush_interval=0.01)

    def work(worker: int) -> None:
        for number in range(100):
            recorder.append(kind="tool", identity=[worker, number], response=worker * 1000 + number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.seal()
    recording = archive.open("run")
    assert len(recording) == 800
    assert [r.seq for r in recording.records()] == list(range(800))
    for worker in range(8):
        for number in range(100):
            found = recording.lookup("tool", [worker, number])
            assert found is not None
            assert found.response == worker * 1000 + number


def test_many_threads_read(archive: Archive) -> None:
    expected = list(calls(120))
    record(archive, "run", expected, flush_every=31)
    recording = archive.open("run", cache_bytes=50_000)
    failure: list[BaseException] = []

    def work() -> None:
        try:
            check(recording, expected)
        except BaseException as error:
            failure.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failure


def test_records_stay_when_their_frames_do_not(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [{"kind": "tool", "identity": n, "response": f"{n:05}" * 200} for n in range(2000)]
    record(archive, "run", items)
    recording = archive.open("run", cache_bytes=800_000)
    frames: list[Frame] = []
    read = PackReader.read

    def counted(self: PackReader, wanted: Sequence[Frame]) -> list[bytes]:
        frames.extend(wanted)
        return read(self, wanted)

    monkeypatch.setattr(PackReader, "read", counted)
    for again in (False, True):
        frames.clear()
        for item in items[::150]:  # each in another frame, and there is room for four
            found = recording.lookup("tool", item["identity"])
            assert found is not None
            assert found.response == item["response"]
        assert bool(frames) is not again
    assert found.request == items[1950]["identity"]
    assert found.row_bytes == recording.record(1950).row_bytes


def test_blobs_are_found_by_digest(archive: Archive) -> None:
    record(archive, "run", list(calls(40)))
    recording = archive.open("run")
    for record_ in recording.records(first=0, last=13):
        for role in ("request", "response"):
            ref = getattr(record_.row, role)
            if ref is not None and ref.encoding:
                assert recording.blob(ref.digest.hex()) == record_.blob_bytes(role)
    with pytest.raises(UsageError):
        recording.blob("00" * 32)


def test_the_same_media_is_one_object(archive: Archive) -> None:
    media = bytes(range(256)) * (20 << 10)
    for name in ("a", "b"):
        record(archive, name, [{"kind": "tool", "identity": name, "response": media}])
    packs = list(archive.storage.list("packs/"))
    large = {p.digest for name in "ab" for p in archive.open(name).manifest.storage.packs}
    assert len(packs) == len(large) == 3


def test_requests_repeat_for_nearly_nothing(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    history: list[dict[str, str]] = []

    rng = random.Random(1)
    total = 0
    with archive.recorder("run", flush_interval=None) as recorder:
        for turn in range(80):
            history.append({"role": "user", "content": rng.randbytes(1000).hex()})
            recorder.append(kind="model", identity={"messages": list(history)}, response={"turn": turn})
            total += 1000
    stored = sum(info.size for info in archive.storage.list("packs/"))
    # Hex digits of random bytes, which zstd packs to about 1.13 bytes for each byte; rows and keys come on top.
    assert stored < total * 1.4
    recording = archive.open("run")
    assert recording.record(79).request == {"messages": history}


def test_wrong_locators_and_names() -> None:
    for locator in ["nowhere", "x#", "#y", "./a#b@0", "./a#b@x"]:
        with pytest.raises(InvalidLocatorError):
            replaypack.open(locator)
    for name in ["a/../b", "a//b", "con", "x.json", "a b", "a.", "ä", "a/LPT1.txt", "x" * 256, "x/" * 256 + "x"]:
        with pytest.raises(InvalidNameError):
            replaypack.open(f"./a#{name}")


def test_a_mistyped_name_suggests_the_nearest(archive: Archive) -> None:
    record(archive, "nightly/42", list(calls(2)))
    with pytest.raises(RecordingNotFoundError, match="did you mean nightly/42"):
        archive.open("nightly/24")
    with pytest.raises(RecordingNotFoundError, match="no revision 7"):
        archive.open("nightly/42", 7)
    with pytest.raises(KeyError):
        archive.open("nothing-like-it")


def test_names_that_differ_in_case_are_refused_on_disk(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    record(archive, "Run/a", list(calls(2)))
    with pytest.raises(InvalidNameError, match="case"):
        archive.recorder("run/b")


def test_expected_digests_bind(archive: Archive) -> None:
    record(archive, "run", list(calls(5)))
    recording = archive.open("run")
    archive.open("run", expect_digest=recording.content_digest, expect_manifest=recording.manifest.digest)
    for pin in ("expect_digest", "expect_manifest"):
        for nothing in ("", "xyz", recording.content_digest[:-1], recording.content_digest.upper()):
            with pytest.raises(UsageError):  # a variable that is not set must not look like a check
                archive.open("run", **{pin: nothing})
        with pytest.raises(FormatError, match="was expected"):
            archive.open("run", **{pin: "00" * 32})  # type: ignore[arg-type]


def test_delete_removes_the_recording_only(archive: Archive) -> None:
    record(archive, "run", list(calls(5)))
    record(archive, "run/inner", list(calls(6)))
    archive.delete("run")
    assert list(archive.recordings()) == ["run/inner"]
    check(archive.open("run/inner"), list(calls(6)))
    with pytest.raises(RecordingNotFoundError):
        archive.delete("run")
    record(archive, "run", list(calls(7)))
    check(archive.open("run"), list(calls(7)))


def test_absent_is_not_none(archive: Archive) -> None:
    with archive.recorder("run", flush_interval=None) as recorder:
        recorder.append(kind="t", identity=0)
        recorder.append(kind="t", identity=1, response=None)
        recorder.append(kind="t", identity=2, response="")
        recorder.append(kind="t", identity=3, response=b"")
    recording = archive.open("run")
    assert [r.response for r in recording.records()] == [ABSENT, None, "", b""]
    assert same(recording.record(3).response, b"")


def test_values_that_python_takes_for_equal_are_kept_apart(archive: Archive) -> None:
    """``==`` takes True, 1 and 1.0 for equal: bytes of an earlier request must not be reused for them."""
    filler = [{"role": "user", "content": "x" * 3000}, {"role": "user", "content": "y" * 3000}]
    requests = [{"messages": [*filler, {"v": v, "pad": "z" * 200}]} for v in (1, True, 1.0, 1, 1.0, True, -0.0, 0)]
    with archive.recorder("run", flush_interval=None) as recorder:
        for request in requests:
            recorder.append(kind="model", identity=request, response=request)
    recording = archive.open("run")
    for seq, request in enumerate(requests):
        assert same(recording.record(seq).request, request)
        assert same(recording.record(seq).response, request)


async def _use_from_asyncio(archive: Archive) -> None:

    async with archive.recorder("run", flush_interval=None) as recorder:

        async def task(n: int) -> None:
            recorder.append(kind="tool", identity=n, response=n)
            await asyncio.sleep(0)

        await asyncio.gather(*(task(n) for n in range(50)))
        await recorder.aflush()
    recording = await archive.aopen("run")
    found = await recording.alookup("tool", 7)
    assert found is not None
    assert found.response == 7
    assert await recording.acount("tool") == 50
    assert [r.seq async for r in recording.arecords(first=45)] == [45, 46, 47, 48, 49]
    async with await replaypack.aopen(recorder.locator) as other:
        assert len(other) == 50


def test_asyncio(archive: Archive) -> None:

    asyncio.run(_use_from_asyncio(archive))


@pytest.mark.parametrize("mode", ["create", "append"])
def test_requests_of_a_base_are_no_earlier_recipes_of_the_frame(archive: Archive, mode: str) -> None:
    """A request that resembles one of the base, behind others in the first frame, names its ranges one by one."""
    recorded = list(calls(40, seed=1))
    for name in ("base", *(["r"] if mode == "append" else [])):
        with archive.recorder(name) as recorder:
            for call in recorded:
                recorder.append(**call)
    with archive.recorder("r", base="base", if_exists="append") as recorder:
        for call in recorded[20:]:
            recorder.append(**call)
    check(archive.open("r"), [*(recorded if mode == "append" else []), *recorded[20:]])


@pytest.mark.parametrize("flush_every", [0, 20])
def test_a_base_lends_its_bytes(archive: Archive, flush_every: int) -> None:
    expected = [dict(call, identity={**call["identity"], "again": 1}) for call in calls(120) if call["kind"] == "model"]
    record(archive, "first", list(calls(120)))
    record(archive, "alone", expected)
    record(archive, "second", expected, base="first", flush_every=flush_every)
    record(archive, "third", expected, base=["second"])
    for name in ("second", "third"):
        check(archive.open(name), expected)
    own = {name: {p.digest: p.size for p in archive.open(name).manifest.storage.packs} for name in ("first", "alone")}
    second = {p.digest: p.size for p in archive.open("second").manifest.storage.packs}
    assert set(own["first"]) & set(second)
    assert sum(size for pack, size in second.items() if pack not in own["first"]) < sum(own["alone"].values())


@pytest.mark.parametrize("flush_every", [0, 50])
@pytest.mark.once
def test_segments_of_several_packs(archive: Archive, flush_every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._write.worker.PACK_TARGET", 20_000)
    monkeypatch.setattr("replaypack.recorder.RECORD_FRAME", 10_000)
    expected = list(calls(400, large=True))
    record(archive, "run", expected, flush_every=flush_every)
    recording = archive.open("run")
    assert len(recording.manifest.storage.packs) > (1 if flush_every else 4)
    check(recording, expected)


def test_long_histories_of_small_turns(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes grow with the turns: frames and recipes stay below what readers refuse."""
    monkeypatch.setattr("replaypack.recorder._FRAME_RANGES", 2000)
    monkeypatch.setattr("replaypack._write.literals._MAX_RANGES", 120)
    history = [{"role": "system", "content": "word " * 1500}]
    expected = []
    for turn in range(200):
        history.append({"role": "user", "content": f"turn {turn} " + "abc " * 30})
        expected.append({"kind": "model", "identity": {"messages": list(history)}, "response": turn})
    record(archive, "run", expected, flush_every=60)
    recording = archive.open("run")
    check(recording, expected)
    ranges = [r.recipe("request") for r in recording.records()]
    assert max(map(len, ranges)) <= 121
    assert max(map(len, ranges)) > 50


def test_attributes_with_extension_types_are_refused_by_readers() -> None:
    row = Row(0, "k", None, bytes(32), "opaque", None, None, None, 1, 1, 0, 0, {"x": 1}, bytes(8), 0, 0, ABSENT_DIGEST)
    data = encode_row(row)
    assert parse_row(data).attributes == {"x": 1}
    forged = data.replace(b"\x81\xa1x\x01", b"\x81\xa1x\xd4\x05\x00")
    with pytest.raises(FormatError, match="extension"):
        parse_row(forged)


@pytest.mark.parametrize("url", [None, 3, b"runs"])
def test_an_archive_is_named_by_a_url_or_a_path(url: Any) -> None:
    with pytest.raises(UsageError, match=f"a URL or a path, not {type(url).__name__}"):
        Archive(url)


def test_wrong_arguments_are_refused_before_anything_is_written(archive: Archive) -> None:
    bad: list[dict[str, Any]] = [
        {"kind": 5, "identity": 1},
        {"kind": "t", "identity": 1, "start": 1.5},
        {"kind": "t", "identity": 1, "start": "now"},
        {"kind": "t", "identity": 1, "duration": 0.25},
        {"kind": "t", "identity": 1, "duration": True},
        {"kind": "t", "identity": 1, "error": "boom"},
        {"kind": "t", "identity": 1, "attributes": [1]},
        {"kind": "t", "identity": 1, "salt": "x" * 8},
        {"kind": "t", "identity": 1, "flags": "nope"},
        {"kind": "t", "identity": 1, "flags": [1]},
    ]
    with archive.recorder("run", flush_interval=None) as recorder:
        for call in bad:
            with pytest.raises(UsageError):
                recorder.append(**call)
        recorder.append(kind="tool", identity=1, name="ls", flags="redacted")
        recorder.append(kind="too", identity=1)
    recording = archive.open("run")
    assert recording.record(0).flags == {"redacted"}
    assert [r.kind for r in recording.records(kinds="tool")] == ["tool"]
    assert [r.kind for r in recording.records(names="ls")] == ["tool"]
    wrong: list[dict[str, Any]] = [
        {"kinds": 3},
        {"kinds": [3]},
        {"statuses": "bogus"},
        {"first": -1},
        {"first": "1"},
        {"since": "2020"},
        {"until": datetime(2020, 1, 1)},
        {"scope": 3},
    ]
    for filters in wrong:
        with pytest.raises(UsageError):
            recording.records(**filters)
    for lookup in ({"nth": "0"}, {"nth": -1}, {"scope": 3}):
        with pytest.raises(UsageError):
            recording.lookup("tool", 1, **lookup)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        recording.blob("zz")
    with pytest.raises(UsageError):
        archive.open("run", "2")  # type: ignore[arg-type]
    with pytest.raises(InvalidLocatorError):
        replaypack.open(5)  # type: ignore[arg-type]


def test_wrong_options_leave_no_claim(archive: Archive) -> None:
    wrong: list[dict[str, Any]] = [
        {"flush_interval": "1"},
        {"flush_interval": -1},
        {"sync": "bogus"},
        {"level": 0},
        {"level": "3"},
        {"metadata": [1]},
        {"metadata": "x"},
        {"recorded_by": 5},
        {"if_exists": "maybe"},
    ]
    for options in wrong:
        with pytest.raises(UsageError):
            archive.recorder("run", **options)
    assert list(archive.recordings()) == []
    archive.recorder("run").seal()


def test_an_append_that_was_cut_short_is_discarded_too(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def cut_short() -> None:
        with archive.recorder("run", on_error="discard") as recorder:
            recorder.append(kind="tool", identity=1, response=2)
            monkeypatch.setattr("replaypack._write.journal.JournalFile.append", interrupted)
            recorder.append(kind="tool", identity=2, response=3)

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    assert not list(archive.recordings())
    assert not archive.leftovers()
