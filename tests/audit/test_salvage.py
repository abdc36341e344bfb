"""`salvage`: whatever is whole of a damaged archive is in the new one, and nothing else is said to be."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaypack import Archive
from replaypack._write.literals import Splitter
from replaypack.audit import (
    check_signature,
    copy,
    load_private_key,
    load_public_key,
    new_key,
    salvage,
    sign,
    signatures,
)
from replaypack.errors import ConflictError, UsageError
from replaypack.format.names import pack_key_of
from replaypack.format.pack import FrameKind, parse_pack
from replaypack.format.recipe import Op
from replaypack.storage import LocalStorage, MemoryStorage

from .salvage_support import TINY, Everything, build, check, known, run, tree


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Everything]:
    path = build(tmp_path_factory.mktemp("salvage") / "sample")
    return path, known(path)


@pytest.fixture(scope="module")
def tiny() -> tuple[Path, Everything]:
    return TINY, known(TINY)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Everything]:
    path = build(tmp_path_factory.mktemp("salvage") / "small", large=False)
    return path, known(path)


@pytest.fixture(scope="module")
def small_path(small: tuple[Path, Everything]) -> Path:
    return small[0]


@pytest.fixture
def copied(sample: tuple[Path, Everything], tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample[0], tmp_path / "source"))


def packs(path: Path) -> list[Path]:
    return sorted(path.rglob("*.rpk"))


def digests(path: Path) -> dict[str, str]:
    with Archive(path) as archive:
        return {name: archive.open(name).content_digest for name in archive.recordings()}


def test_the_sample_is_the_same_each_time(small: tuple[Path, Everything], tmp_path: Path) -> None:
    assert tree(build(tmp_path / "again", large=False)) == tree(small[0])


# Nothing lost


@pytest.mark.parametrize("path", [TINY, None])
def test_a_sound_archive_keeps_its_content_digests(
    sample: tuple[Path, Everything], tmp_path: Path, path: Path | None
) -> None:
    source = path or sample[0]
    result = run(source, tmp_path / "target")
    assert result.whole
    assert result.damage == []
    before = digests(source)
    after = digests(tmp_path / "target")
    with Archive(source) as archive:
        for name in before:
            if archive.open(name).state == "open":
                assert Archive(tmp_path / "target").open(name).state == "incomplete"
            else:
                assert after[name] == before[name]
    assert check(tmp_path / "target", known(source)) == 0


def test_content_that_was_replaced_is_kept_as_an_older_revision(copied: Path, tmp_path: Path) -> None:
    old = list(dict.fromkeys(m.content_digest for m in Archive(copied).revisions("replaced") if m.state == "sealed"))
    assert len(old) == 2
    run(copied, tmp_path / "target")
    assert [m.content_digest for m in Archive(tmp_path / "target").revisions("replaced")] == old


def test_objects_under_other_names_are_found(sample: tuple[Path, Everything], copied: Path, tmp_path: Path) -> None:
    for number, file in enumerate(sorted(p for p in copied.rglob("*") if p.is_file() and p.name != "replaypack.json")):
        if file.suffix == ".rpk":
            file.rename(copied / f"copy ({number}) of a pack")
    result = run(copied, tmp_path / "target")
    assert result.whole
    assert check(tmp_path / "target", sample[1]) == 0


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are text")
def test_names_that_are_no_text(sample: tuple[Path, Everything], copied: Path, tmp_path: Path) -> None:
    for number, file in enumerate(packs(copied)):
        os.rename(file, os.fsencode(copied) + b"/\xff\n%d" % number)
    (copied / "\\udcff\n0").write_text("no pack")
    with open(os.fsencode(copied) + b"/\xfe.json", "wb") as out:
        out.write(b"{}")
    assert run(copied, tmp_path / "target").whole
    assert check(tmp_path / "target", sample[1]) == 0


def test_signatures_come_along_and_what_is_only_called_like_one_does_not(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    archive = Archive(tmp_path / "source")
    with archive.recorder("run") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
    digest = archive.open("run").content_digest
    private, public = new_key()
    signed = sign(archive.open("run"), load_private_key(private))
    for name in (f"recordings/run/{digest}. .dsse.json", f"zz/{Path(signed.object).name}"):
        path = tmp_path / "source" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no envelope")
    assert run(tmp_path / "source", tmp_path / "target").whole
    with Archive(tmp_path / "target").open("run") as recording:
        assert check_signature(recording, load_public_key(public)).valid
        assert [found.object for found in signatures(recording)] == [signed.object]


def test_packs_with_each_other_s_names(sample: tuple[Path, Everything], copied: Path, tmp_path: Path) -> None:
    files = packs(copied)
    order = files[1:] + files[:1]
    for number, file in enumerate(files):
        file.rename(copied / f"{number}")
    for number, file in enumerate(order):
        (copied / f"{number}").rename(file)
    assert run(copied, tmp_path / "target").whole
    assert check(tmp_path / "target", sample[1]) == 0


def test_garbage_at_the_end_of_every_pack(sample: tuple[Path, Everything], copied: Path, tmp_path: Path) -> None:
    for file in packs(copied):
        with file.open("ab") as out:
            out.write(b"\x28\xb5\x2f\xfd" * 5 + random.Random(1).randbytes(500))
    result = run(copied, tmp_path / "target")
    assert result.whole
    assert result.damage
    assert check(tmp_path / "target", sample[1]) == 0


def test_an_inserted_byte_moves_everything_behind_it(
    sample: tuple[Path, Everything], copied: Path, tmp_path: Path
) -> None:
    for file in packs(copied):
        data = file.read_bytes()
        file.write_bytes(data[:24] + b"\0" + data[24:])
    result = run(copied, tmp_path / "target")
    assert result.whole
    assert check(tmp_path / "target", sample[1]) == 0


def test_tables_of_contents_that_are_gone_are_not_needed_beside_manifests(
    sample: tuple[Path, Everything], copied: Path, tmp_path: Path
) -> None:
    damaged = []
    for file in packs(copied):
        data = file.read_bytes()
        file.write_bytes(data[:-300] + bytes(300))
        damaged.append(hit(file, len(data) - 300, len(data), copied))
    run(copied, tmp_path / "target")
    check(tmp_path / "target", sample[1], damaged)


def test_what_was_purged_or_withheld_stays_so(tmp_path: Path) -> None:
    source = TINY.parent / "partial"
    result = run(source, tmp_path / "target")
    assert result.whole
    assert all(item.exact for item in result.recordings)
    assert digests(tmp_path / "target") == digests(source)
    with Archive(source) as before, Archive(tmp_path / "target") as after:
        for name in before.recordings():
            one, other = before.open(name).manifest, after.open(name).manifest
            assert other.storage.tombstones == one.storage.tombstones
            assert other.storage.withheld == one.storage.withheld


def test_responses_behind_withheld_requests(tmp_path: Path) -> None:
    rng, history = random.Random(5), []
    with Archive(tmp_path / "recorded") as archive, Archive(tmp_path / "source") as source:
        with archive.recorder("r") as recorder:
            for turn in range(12):
                history.append({"turn": turn, "text": rng.randbytes(600).hex()})
                recorder.append(kind="m", identity={"all": list(history)}, response={"all": list(history), "n": turn})
        known = [record.response for record in archive.open("r").records()]
        copy(archive, source, responses_only=True)
    result = run(tmp_path / "source", tmp_path / "target")
    assert result.whole
    assert [item.exact for item in result.recordings] == [True]
    with Archive(tmp_path / "target") as target:
        assert [record.response for record in target.open("r").records()] == known
        assert target.open("r").manifest.storage.literals < 1 << 20
        assert not any(record.recipe("request") for record in target.open("r").records())


def test_what_cannot_be_read_back_is_not_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason: here a writer of recipes that is wrong."""
    source = Path(shutil.copytree(TINY.parent / "partial", tmp_path / "source"))
    right = Splitter.recipe

    def wrong(self: Splitter, pieces: Sequence[bytes]) -> Sequence[Op]:
        ops = right(self, pieces)
        return ops if len(b"".join(pieces)) < 100 else ops[:-1]

    monkeypatch.setattr(Splitter, "recipe", wrong)
    with Archive(tmp_path / "target") as target:
        result = salvage(LocalStorage(source, fsync=False), target)
        assert result.faults
        assert not result.whole
        bad = {fault.recording.partition("@")[0] for fault in result.faults}
        for item in result.recordings:
            assert item.exact == (item.name not in bad)
            content = target.open(item.name).manifest.content
            assert (content.state, content.derived_from) == (
                ("incomplete", item.source) if item.name in bad else (content.state, content.derived_from)
            )


# No manifests


@pytest.mark.parametrize("loose", [False, True])
def test_packs_alone(sample: tuple[Path, Everything], copied: Path, tmp_path: Path, loose: bool) -> None:
    shutil.rmtree(copied / "recordings")
    if loose:
        for number, file in enumerate(packs(copied)):
            file.rename(copied / f"{number}.bin")
    result = run(copied, tmp_path / "target")
    assert {lost.what for lost in result.lost} == {"manifest"}
    assert check(tmp_path / "target", sample[1]) == 0
    assert {"run", "based", "large", "replaced", "replaced-2", "living"} == {r.name for r in result.recordings}
    recording = Archive(tmp_path / "target").open("run")
    assert (recording.state, len(recording), recording.manifest.storage.cause) == ("incomplete", 54, "recover")


def test_keys_of_a_match_policy_that_is_lost_can_be_had_again(tiny: tuple[Path, Everything], tmp_path: Path) -> None:
    shutil.copytree(TINY / "packs", tmp_path / "source/packs")
    run(tmp_path / "source", tmp_path / "target")
    assert check(tmp_path / "target", tiny[1], keys=False) == 0
    policy = Archive(TINY).open("matched").match
    with Archive(tmp_path / "target").open("matched", match=policy) as again:
        for record in Archive(TINY).open("matched").records():
            assert again.lookup(record.kind, record.identity) is not None


def test_packs_without_tables_of_contents_and_manifests(
    sample: tuple[Path, Everything], copied: Path, tmp_path: Path
) -> None:
    shutil.rmtree(copied / "recordings")
    for file in packs(copied):
        data = file.read_bytes()
        file.write_bytes(data[:-40])
    result = run(copied, tmp_path / "target")
    assert not result.whole
    assert result.recordings


def test_the_newest_manifest_is_gone(copied: Path, sample: tuple[Path, Everything], tmp_path: Path) -> None:
    """Records behind the end that the newest sound manifest knows become another revision."""
    for name in ("00000004.json", "00000003.json", "latest.json"):
        (copied / "recordings/run" / name).unlink()
    result = run(copied, tmp_path / "target")
    assert [(r.revision, r.records, r.exact) for r in result.recordings if r.name == "run"] == [
        (1, 40, True),
        (2, 54, False),
    ]
    assert check(tmp_path / "target", sample[1]) == 0
    newest = Archive(tmp_path / "target").open("run").manifest
    assert newest.content.extends == Archive(copied).open("run", 2).content_digest


# Losses


def hit(path: Path, start: int, stop: int, root: Path) -> tuple[str, int, int]:
    return path.relative_to(root).as_posix(), start, stop


@pytest.mark.parametrize("manifests", [True, False])
@pytest.mark.once
def test_each_pack_gone(sample: tuple[Path, Everything], copied: Path, tmp_path: Path, manifests: bool) -> None:
    if not manifests:
        shutil.rmtree(copied / "recordings")
    for number, gone in enumerate(packs(copied)):
        away = gone.rename(tmp_path / "away")
        result = run(copied, tmp_path / f"target {number}")
        lost = check(tmp_path / f"target {number}", sample[1], [hit(gone, 0, 1 << 40, copied)])
        assert lost == 0 or not result.whole, gone.name
        away.rename(gone)


@pytest.mark.parametrize("manifests", [True, False])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.once
def test_a_region_of_zeros(
    sample: tuple[Path, Everything], copied: Path, tmp_path: Path, seed: int, manifests: bool
) -> None:
    rng = random.Random(seed)
    if not manifests:
        shutil.rmtree(copied / "recordings")
    damaged = []
    for file in packs(copied):
        data = bytearray(file.read_bytes())
        start = rng.randrange(len(data))
        stop = min(len(data), start + 4096)
        data[start:stop] = bytes(stop - start)
        file.write_bytes(data)
        damaged.append(hit(file, start, stop, copied))
    result = run(copied, tmp_path / "target")
    lost = check(tmp_path / "target", sample[1], damaged)
    assert lost == 0 or not result.whole


@pytest.mark.parametrize("seed", range(6))
def test_packs_cut_short(sample: tuple[Path, Everything], copied: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    damaged = []
    for file in packs(copied):
        size = file.stat().st_size
        keep = rng.randrange(size)
        with file.open("r+b") as out:
            out.truncate(keep)
        damaged.append(hit(file, keep, size, copied))
    result = run(copied, tmp_path / "target")
    assert not result.whole
    check(tmp_path / "target", sample[1], damaged)


@pytest.mark.once
def test_single_bits(small: tuple[Path, Everything], tmp_path: Path) -> None:
    """A flip anywhere: other frames are not touched by it."""
    rng = random.Random(7)
    sizes = {file: file.stat().st_size for file in packs(small[0])}
    for number in range(16):
        source, target = tmp_path / "source", tmp_path / "target"
        shutil.copytree(small[0], source)
        if number % 3 == 0:
            shutil.rmtree(source / "recordings")
        file = rng.choices(list(sizes), weights=list(sizes.values()))[0]
        at = rng.randrange(sizes[file])
        path = source / file.relative_to(small[0])
        data = bytearray(path.read_bytes())
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        run(source, target)
        check(target, small[1], [hit(path, at, at + 1, source)])
        shutil.rmtree(source)
        shutil.rmtree(target)


def test_what_is_lost_is_said(copied: Path, sample: tuple[Path, Everything], tmp_path: Path) -> None:
    with Archive(copied).open("run") as recording:
        content = recording.content_digest
        [(first, frame), *_] = recording.index.frames(first=50)
        file = copied / "packs" / frame.pack.digest[:2] / f"{frame.pack.digest}.rpk"
    data = bytearray(file.read_bytes())
    data[frame.at.offset + 20] ^= 255
    file.write_bytes(data)
    result = run(copied, tmp_path / "target")
    lost = [item for item in result.lost if item.recording == "run"]
    assert (lost[0].what, lost[0].first, lost[0].last) == ("records", first.first, first.first + first.items - 1)
    manifest = Archive(tmp_path / "target").open("run").manifest
    assert manifest.content.derived_from == content
    assert manifest.content.state == "incomplete"
    assert manifest.content.error is not None
    assert manifest.content.error["lost"]["records"] == [[first.first, first.first + first.items - 1]]
    whole = {r.name for r in result.recordings if r.exact}
    assert {"large", "replaced"} <= whole


def test_a_record_without_its_request_answers_and_one_without_its_response_does_not(tmp_path: Path) -> None:
    rng = random.Random(3)
    source, target = tmp_path / "source", tmp_path / "target"
    with Archive(source).recorder("run") as recorder:
        recorder.append(kind="tool", identity={"a": rng.randbytes(900)}, response="short")
        recorder.append(kind="tool", identity="b", response=rng.randbytes(9000))
        recorder.append(kind="tool", identity="c", response="kept")
    with Archive(source).open("run") as recording:
        frames = {frame for entry, frame in recording.index.literal_entries([(0, 9000)])}
    for frame in frames:
        path = source / "packs" / frame.pack.digest[:2] / f"{frame.pack.digest}.rpk"
        data = bytearray(path.read_bytes())
        data[frame.at.offset + 50] ^= 1
        path.write_bytes(data)
    result = run(source, target)
    assert {(lost.what, lost.first, lost.last) for lost in result.lost} == {("request", 0, 2), ("response", 1, 1)}
    with Archive(target).open("run") as recording:
        records = list(recording.records())
        assert [record.status for record in records] == ["ok", "interrupted", "ok"]
        assert records[0].response == "short"
        assert records[0].attributes["recovered"] == {"lost": ["request"]}
        assert records[1].flags == {"truncated"}
        assert recording.lookup("tool", "c").response == "kept"  # type: ignore[union-attr]


@pytest.mark.parametrize("appended", [False, True])
def test_records_that_only_tables_of_contents_name_are_lost(appended: bool, tmp_path: Path) -> None:
    """Neither a manifest nor a sound frame tells of them."""
    source = tmp_path / "source"
    archive = Archive(source)
    for name in ("a", "b"):
        with archive.recorder(name, flush_interval=None) as recorder:
            for number in range(4):
                recorder.append(kind="tool", identity=number, response=name * 50)
    if appended:
        with archive.recorder("a", if_exists="append", flush_interval=None) as recorder:
            for number in range(3):
                recorder.append(kind="tool", identity=f"more {number}", response="c" * 50)
    with archive.open("a") as recording:
        frames = [frame for entry, frame in recording.index.frames() if not appended or entry.first]
    for frame in frames:
        file = source / "packs" / frame.pack.digest[:2] / f"{frame.pack.digest}.rpk"
        data = bytearray(file.read_bytes())
        data[frame.at.offset + frame.at.length // 2] ^= 255
        file.write_bytes(data)
    gone = ("00000003.json", "00000004.json", "latest.json") if appended else ("*.json",)
    for pattern in gone:
        for file in (source / "recordings/a").glob(pattern):
            file.unlink()
    result = run(source, tmp_path / "target")
    assert not result.whole
    first, last = (4, 6) if appended else (0, 3)
    assert [item[:4] for item in result.lost] == [("a", "records", first, last)]
    assert [(made.name, made.exact) for made in result.recordings] == [("a", True)] * appended + [("b", True)]


def test_small_packs_that_were_merged_and_damaged_later_are_no_loss(copied: Path, tmp_path: Path) -> None:
    """What they held is whole elsewhere, and their tables of contents name it still."""
    with Archive(copied) as archive:
        needed = {
            ref.digest
            for name in archive.recordings()
            for revision in [None, *(manifest.revision for manifest in archive.revisions(name))]
            for ref in archive.open(name, revision).index.packs
        }
    leftover = [file for file in packs(copied) if file.stem not in needed]
    assert leftover
    for file in leftover:
        data = bytearray(file.read_bytes())
        for frame in parse_pack(bytes(data)).frames:
            data[frame.offset + frame.length // 2] ^= 255
        file.write_bytes(data)
    result = run(copied, tmp_path / "target")
    assert result.damage
    assert result.lost == []


def test_a_pack_in_a_payload_tells_nothing_of_the_pack_around_it(tmp_path: Path) -> None:
    """Where the frame around it is damaged, its table of contents is found, and is not that of the object."""
    source = tmp_path / "source"
    archive = Archive(source)
    with archive.recorder("kept") as recorder:
        recorder.append(kind="tool", identity=1, response=random.Random(1).randbytes(9000))
    [inner] = packs(source)
    with archive.recorder("gone") as recorder:
        recorder.append(kind="tool", identity=1, response=inner.read_bytes())
    [outer] = [file for file in packs(source) if file != inner]
    data = bytearray(outer.read_bytes())
    for frame in parse_pack(bytes(data)).frames:
        if frame.kind != FrameKind.PAGE:
            data[frame.offset] ^= 255  # what follows is found only by scanning
    data[-300:] = bytes(300)
    outer.write_bytes(data)
    shutil.rmtree(source / "recordings/gone")
    result = run(source, tmp_path / "target")
    assert [(made.name, made.exact) for made in result.recordings] == [("kept", True)]
    assert [(lost.what, outer.stem in lost.reason) for lost in result.lost] == [("unknown", True)]


# The place where it goes


def test_the_source_is_never_the_target(copied: Path, tmp_path: Path) -> None:
    before = tree(copied)
    for target in (copied, copied / "new", copied.parent):
        with pytest.raises(UsageError, match="damaged archive lies"):
            salvage(LocalStorage(copied), Archive(target))
    with pytest.raises(UsageError, match="not empty"):
        salvage(LocalStorage(copied), Archive(TINY))
    assert tree(copied) == before


def test_it_can_be_run_again_and_goes_on(copied: Path, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def interrupt(progress: object) -> None:
        if next(steps) == 0:
            raise Stop

    for stop in (3, 14, 20, 40, 60):
        steps = iter(range(stop, -1, -1))
        with pytest.raises(Stop):
            salvage(LocalStorage(copied), Archive(tmp_path / "target"), progress=interrupt)
    first = run(copied, tmp_path / "target")
    before = tree(tmp_path / "target")
    again = run(copied, tmp_path / "target")
    assert again.recordings == first.recordings
    assert tree(tmp_path / "target") == before
    with pytest.raises(UsageError, match="something else"):
        salvage(LocalStorage(TINY), Archive(tmp_path / "target"))


@pytest.mark.parametrize("lost_at", ["before", "after"])
def test_packs_of_an_earlier_run_that_are_collected_meanwhile(lost_at: str, tmp_path: Path) -> None:
    archive = Archive(tmp_path / "source")
    with archive.recorder("run", flush_interval=None) as recorder:
        for number in range(12):
            recorder.append(kind="tool", identity={"n": number}, response=f"r{number}" * 400)
    revision = "recordings/run/00000001.json"

    class Losing(MemoryStorage):
        lost = 0

        def lose(self) -> None:
            packs = [info.key for info in self.list("packs/")]
            self.lost += len(packs)
            for key in packs:
                self.delete(key)

        def get_suffix(self, key: str, length: int) -> bytes:
            data = super().get_suffix(key, length)
            if lost_at == "before" and not self.lost:
                self.lose()  # right after it was found
            return data

        def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
            super().put_new(key, data)
            if lost_at == "after" and key == revision:
                self.lose()

    target = Archive("", storage=MemoryStorage())
    salvage(archive.storage, target)
    storage = Losing()
    for info in target.storage.list():
        if not info.key.startswith("recordings/"):
            storage.put(info.key, target.storage.get(info.key))
    again = salvage(archive.storage, Archive("", storage=storage))
    assert storage.lost
    assert again.whole


def test_another_result_is_not_written_over(copied: Path, tmp_path: Path) -> None:
    run(copied, tmp_path / "target")
    for pack in Archive(copied).open("run").manifest.storage.packs:
        (copied / pack_key_of(pack.digest)).unlink()
    with pytest.raises(ConflictError, match="another"):
        salvage(LocalStorage(copied), Archive(tmp_path / "target"))


def test_from_and_to_other_storages(copied: Path, sample: tuple[Path, Everything]) -> None:
    source, target = MemoryStorage(), Archive("", storage=MemoryStorage())
    for file in copied.rglob("*"):
        if file.is_file():
            source.put(file.relative_to(copied).as_posix(), file.read_bytes())
    result = salvage(source, target)
    assert result.whole
    assert sorted(target.recordings()) == sorted(sample[1])


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/notes.txt").write_text("no pack")
    (tmp_path / "source/empty").write_bytes(b"")
    result = run(tmp_path / "source", tmp_path / "target")
    assert result.recordings == []


# Whatever happens


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.once
def test_any_damage(small_path: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    base = tmp_path_factory.mktemp("any")
    source = Path(shutil.copytree(small_path, base / "source"))
    files = sorted(p for p in source.rglob("*") if p.is_file())
    for _ in range(data.draw(st.integers(1, 6))):
        file = data.draw(st.sampled_from(files))
        if not file.exists():
            continue
        body = bytearray(file.read_bytes())
        start = data.draw(st.integers(0, max(0, len(body) - 1)))
        stop = min(len(body), start + data.draw(st.sampled_from([1, 4, 100, 4096])))
        what = data.draw(st.sampled_from(["delete", "cut", "zero", "random", "remove", "insert", "swap"]))
        if what == "delete":
            file.unlink()
        elif what == "swap":
            other = data.draw(st.sampled_from(files))
            if other.exists():
                file.write_bytes(other.read_bytes())
                other.write_bytes(body)
        else:
            if what == "cut":
                del body[start:]
            elif what == "zero":
                body[start:stop] = bytes(stop - start)
            elif what == "random":
                body[start:stop] = random.Random(start).randbytes(stop - start)
            elif what == "remove":
                del body[start:stop]
            else:
                body[start:start] = random.Random(start).randbytes(stop - start)
            file.write_bytes(body)
    run(source, base / "target")
    shutil.rmtree(base)
