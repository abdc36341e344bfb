"""Rekeying: other keys, nothing else; visible at once or not at all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import replaypack
from replaypack import Archive
from replaypack.audit import rekey
from replaypack.errors import (
    CanonicalizationError,
    ConflictError,
    FormatError,
    RecordingExistsError,
    StorageError,
    UsageError,
)
from replaypack.policies.matching import MatchPolicy, ignore
from replaypack.storage import MemoryStorage

from .conftest import fill
from .support import NAME, codes, faults, revise

UUID = "123e4567-e89b-12d3-a456-4266141740"


def facts(recording: replaypack.Recording) -> list[Any]:
    """All there is of each record but its key."""
    return [
        (
            msgspec.structs.replace(record.row, key=bytes(32)),
            repr((record.request, record.identity, record.response)),
        )
        for record in recording.records()
    ]


def call(number: int) -> dict[str, Any]:
    return {"name": "f", "arguments": {"id": f"{UUID}{number:02d}", "n": number // 4, "nan": "x"}}


def record(archive: Archive, name: str = "r", count: int = 12, **options: Any) -> None:
    with archive.recorder(name, metadata={"by": "test"}, **options) as recorder:
        for number in range(count):
            recorder.append(kind="tool", identity=call(number), response=number, scope="s" if number % 5 == 0 else None)


def test_a_large_recording_keeps_everything_but_its_keys(archive_path: Path) -> None:
    archive = Archive(archive_path)
    before = archive.open(NAME)
    packs = set(archive_path.glob("packs/*/*"))
    seen: list[int] = []
    policy = MatchPolicy("mine", rules=[ignore("/n", "/1/s", "/messages")])
    done = rekey(archive, NAME, match=policy, progress=lambda at: seen.append(at.done))
    after = archive.open(NAME)
    assert (done.name, done.revision, done.records) == (NAME, 3, 300)
    assert done.content_digest == after.content_digest != before.content_digest
    assert facts(after) == facts(before)
    keys = [[item.key for item in recording.records()] for recording in (before, after)]
    assert done.changed == sum(a != b for a, b in zip(*keys, strict=True)) > 100
    assert done.kept == 60  # those with a key of the host
    assert (done.keys_before, done.keys_after) == (len(set(keys[0])), len(set(keys[1])))
    assert done.keys_after < done.keys_before
    assert seen[-1] == 300
    assert faults(archive_path) == []
    content = after.manifest.content
    assert content.derived_from == before.content_digest
    assert (content.extends, content.id, content.state) == (None, before.manifest.content.id, "sealed")
    assert content.metadata == {"by": "test"}
    assert after.match == policy
    assert after.manifest.storage.cause == "rekey"
    # Payloads were not written again.
    new = sum(path.stat().st_size for path in set(archive_path.glob("packs/*/*")) - packs)
    assert new < sum(path.stat().st_size for path in packs) / 2
    for item in before.records():
        if item.key_scheme == "identity":
            assert after.count(item.kind, item.identity) >= 1
    # And back again: the very keys, under another content digest, since it is another derivation.
    again = rekey(archive, NAME, match=None)
    assert [item.key for item in archive.open(NAME).records()] == keys[0]
    assert again.keys_after == done.keys_before
    assert faults(archive_path) == []
    assert archive.open(NAME, 2).content_digest == before.content_digest


def test_as_another_recording(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    record(archive)
    record(archive, if_exists="append")
    source = archive.open("r")
    done = rekey(archive, "r", match="uuids", to="sub/other")
    other = archive.open("sub/other")
    assert done.content_digest == other.content_digest
    assert (done.records, done.changed, done.keys_before, done.keys_after) == (24, 24, 12, 3)
    assert facts(other) == facts(source)
    assert other.count("tool", call(99) | {"arguments": {"id": f"{UUID}99", "n": 1, "nan": "x"}}) == 8
    assert other.lookup("tool", call(0), scope="s") is not None
    assert list(archive.verify()) == []
    assert archive.open("r").content_digest == source.content_digest
    with pytest.raises(RecordingExistsError):
        rekey(archive, "r", match="uuids", to="sub/other")
    # An older revision, and the same rekeying gives the same content and the same packs.
    rekey(archive, "r", match="uuids", to="third", revision=source.manifest.revision)
    assert archive.open("third").content_digest == done.content_digest
    with pytest.raises(UsageError, match="to="):
        rekey(archive, "r", match="uuids", revision=1)
    # An append goes on with the policy.
    record(archive, "third", if_exists="append")
    assert archive.open("third").count("tool", call(77)) == 0
    assert (
        archive.open("third").count("tool", {"name": "f", "arguments": {"id": UUID + "77", "n": 1, "nan": "x"}}) == 12
    )
    assert list(archive.verify()) == []


def test_what_was_left_incomplete_stays_so(tmp_path: Path) -> None:
    archive = Archive(tmp_path)

    def fail() -> None:
        with archive.recorder("r") as recorder:
            recorder.append(kind="tool", identity=call(0), response=1)
            raise TimeoutError("late")

    with pytest.raises(TimeoutError):
        fail()
    rekey(archive, "r", match="uuids")
    content = archive.open("r").manifest.content
    assert content.state == "incomplete"
    assert content.error is not None
    assert content.error["type"] == "TimeoutError"


def test_an_empty_recording(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("r"):
        pass
    done = rekey(archive, "r", match="uuids")
    assert (done.records, done.keys_before, done.keys_after) == (0, 0, 0)
    assert list(archive.verify()) == []


@pytest.mark.parametrize("flags", [[], ["redacted"]])
def test_a_key_that_the_identity_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    archive = Archive(tmp_path)
    with monkeypatch.context() as patch, archive.recorder("r") as recorder:
        patch.setattr("replaypack.policies.matching.MatchPolicy.key", lambda *_, census: bytes(32))
        recorder.append(kind="tool", identity=call(0), response=1, flags=flags)
    with archive.recorder("r", if_exists="append") as recorder:
        recorder.append(kind="tool", identity=call(1), response=1, flags=["redacted"])
    if flags:
        done = rekey(archive, "r", match="uuids")
        assert (done.changed, done.kept) == (1, 1)
        assert archive.open("r").count("tool", call(50) | {"arguments": {"id": UUID + "50", "n": 0, "nan": "x"}}) == 1
        assert archive.open("r").record(0).key == bytes(32)
        return
    with pytest.raises(FormatError, match="record 0 does not give its key"):
        rekey(archive, "r", match="uuids")
    assert archive.open("r").manifest.revision == 4


def test_an_identity_without_a_key_by_the_new_policy(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("r", match=ignore("/at")) as recorder:
        recorder.append(kind="tool", identity={"at": float("nan"), "n": 1}, response=1)
    assert archive.open("r").lookup("tool", {"n": 1}) is not None
    with pytest.raises(CanonicalizationError, match="record 0") as caught:
        rekey(archive, "r", match=None)
    assert caught.value.path == "/at"


def test_refusals(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("r") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
        recorder.flush()
        with pytest.raises(RecordingExistsError, match="being recorded"):
            rekey(archive, "r", match="uuids")
        with pytest.raises(UsageError, match="still being recorded"):
            rekey(archive, "r", match="uuids", to="x")
    with pytest.raises(UsageError, match="already"):
        rekey(archive, "r", match="none")
    with pytest.raises(replaypack.ReplaypackError, match="no recording"):
        rekey(archive, "missing", match="uuids")


class Failing(MemoryStorage):
    """Refuses every object from the ``left``-th on."""

    left = 1 << 30

    def put_new(self, key: str, data: bytes, **options: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise StorageError("full", operation="put", url="memory://")
        super().put_new(key, data, **options)


def test_interrupted_anywhere_it_leaves_nothing_visible_and_can_be_run_again() -> None:
    storage = Failing()
    archive = Archive("", storage=storage)
    with archive.recorder("r") as recorder:
        fill(recorder, 0, 60, flush_every=25)
    digest = archive.open("r").content_digest
    packs = {info.key for info in storage.list("packs/")}
    failures = 0
    while True:
        storage.left = failures
        try:
            done = rekey(archive, "r", match="uuids")
            break
        except StorageError:
            failures += 1
        storage.left = 1 << 30
        assert archive.open("r").content_digest == digest
        assert list(archive.verify()) == []
    assert failures >= 2
    assert done.revision == 3
    storage.left = 1 << 30
    assert list(archive.verify()) == []
    # Every run made the same packs: nothing was left over.
    made = {info.key for info in storage.list("packs/")} - packs
    assert made <= {f"packs/{ref.digest[:2]}/{ref.digest}.rpk" for ref in archive.open("r").manifest.storage.packs}


def test_another_writer_first(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    record(archive)

    def intrude(at: Any) -> None:
        if threading.current_thread() is threading.main_thread() and archive.open("r").manifest.revision == 2:
            rekey(archive, "r", match="timestamps")

    with pytest.raises(ConflictError, match="nothing was changed"):
        rekey(archive, "r", match="uuids", progress=intrude)
    assert archive.open("r").match == MatchPolicy.of("timestamps")
    assert list(archive.verify()) == []


def test_verify_uses_the_policy_in_the_manifest(archive_path: Path) -> None:
    archive = Archive(archive_path)
    rekey(archive, NAME, match=ignore("/n"))
    assert faults(archive_path) == []
    key = archive_path / "recordings" / NAME / "00000003.json"
    (archive_path / "recordings" / NAME / "00000002.json").write_bytes(key.read_bytes())
    key.unlink()
    revise(archive_path, {"revision": 2}, {"match": msgspec.convert(MatchPolicy.of(ignore("/m")).to_data(), Any)})
    assert "key.mismatch" in codes(archive_path)
