"""Each byte of a small archive flipped in turn: every flip is detected or harmless, none gives a wrong answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive
from replaypack.errors import FormatError, ReplaypackError
from replaypack.format.names import latest_key
from replaypack.storage import MemoryStorage
from tests.archive.support import expected_response, same

pytestmark = pytest.mark.once

CALLS: list[dict[str, Any]] = [
    {"kind": "model", "name": "m", "identity": {"messages": ["hello " * 900]}, "response": {"text": "hi"}},
    {"kind": "tool", "name": "t", "identity": {"name": "t", "arguments": {"x": 1}}, "response": "one"},
    {"kind": "tool", "name": "t", "identity": {"name": "t", "arguments": {"x": 1}}, "response": "two", "scope": "s"},
    {"kind": "model", "name": "m", "identity": {"messages": ["hello " * 900, "more"]}, "response": "long " * 1000},
    {"kind": "http", "identity": {"uri": "u"}, "request": b"raw", "error": ValueError("no")},
]


def build(flush: bool, seal: bool) -> MemoryStorage:
    storage = MemoryStorage()
    recorder = Archive("", storage=storage).recorder("run", flush_interval=None)
    for number, call in enumerate(CALLS):
        recorder.append(**call, start=number, salt=bytes(8))
        if flush and number % 2:
            recorder.flush()
    if seal:
        recorder.seal()
    else:
        recorder.flush()
        recorder.close()
    return storage


def answers(storage: MemoryStorage) -> Iterator[bool]:
    """Ask everything there is to ask; yield whether each answer is right. Raises what the library raises."""
    recording = Archive("", storage=storage).open("run", fresh=True)
    for call in CALLS:
        found = recording.lookup(call["kind"], call["identity"], scope=call.get("scope"))
        yield found is not None and same(found.response, expected_response(call))
        if found is not None:
            yield same(found.request, call.get("request", call["identity"]))
            yield same(found.identity, call["identity"])
    records = list(recording.records())
    yield len(records) == len(CALLS)
    yield all(same(r.response, expected_response(c)) for r, c in zip(records, CALLS, strict=True))
    yield recording.count("tool", CALLS[1]["identity"]) == 2


#: Every so many bytes of a manifest: each member and each digest of it has its share.
STEPS = [4, pytest.param(1, marks=pytest.mark.heavy)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("flush", "seal"), [(False, True), (True, False)], ids=["sealed", "open"])
def test_every_flipped_byte_is_detected_or_harmless(
    flush: bool, seal: bool, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    storage = build(flush, seal)
    objects = {info.key: storage.get(info.key) for info in storage.list("")}
    assert all(answers(storage))
    rng = random.Random(7)
    flips = detected = 0
    for key, data in objects.items():
        for position in range(0, len(data), step if key.endswith(".json") else 1):
            damaged = bytearray(data)
            damaged[position] ^= 1 << rng.randrange(8)
            storage.put(key, bytes(damaged))
            flips += 1
            try:
                assert all(answers(storage)), f"wrong answer after byte {position} of {key} was flipped"
            except ReplaypackError:
                detected += 1
        storage.put(key, data)
    assert all(answers(storage))
    # Of what is not detected most was never read: superseded revisions, and the hint where revisions say the same.
    assert detected > flips // 10


def test_every_cut_is_detected_or_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    storage = build(False, True)
    objects = {info.key: storage.get(info.key) for info in storage.list("")}
    for key, data in objects.items():
        for size in range(0, len(data), 13):
            storage.put(key, data[:size])
            try:
                assert all(answers(storage)), f"wrong answer after {key} was cut to {size} bytes"
            except ReplaypackError:
                pass
        storage.put(key, data)


def test_a_swapped_manifest_is_noticed_by_a_pin() -> None:
    storage = build(False, True)
    archive = Archive("", storage=storage)
    pinned = archive.open("run").manifest.digest
    with archive.recorder("run", if_exists="replace", flush_interval=None) as recorder:
        recorder.append(kind="tool", identity=1, response=2)
    assert storage.get(latest_key("run"))
    with pytest.raises(FormatError, match="was expected"):
        archive.open("run", expect_manifest=pinned)


def test_a_damaged_latest_is_a_hint_less() -> None:
    storage = build(False, True)
    key = latest_key("run")
    whole = storage.get(key)
    storage.put(key, whole[:-20])
    archive = Archive("", storage=storage)
    with pytest.raises(FormatError):
        archive.open("run")
    assert archive.open("run", fresh=True).manifest.raw == whole
    with archive.recorder("run", if_exists="append", flush_interval=None) as recorder:
        recorder.append(kind="tool", identity=1, response=2)
    assert len(archive.open("run")) == len(CALLS) + 1


def test_a_damaged_pack_of_large_media_is_in_nobodys_way(tmp_path: Path) -> None:
    """The same media has the same pack: where that is cut short, it gets another one."""
    archive = Archive(tmp_path)
    media = random.Random(4).randbytes(4 << 20)

    def record(name: str) -> None:
        with archive.recorder(name, flush_interval=None) as recorder:
            recorder.append(kind="tool", identity=1, response=media)

    record("first")
    pack = max((tmp_path / "packs").rglob("*.rpk"), key=lambda path: path.stat().st_size)
    pack.write_bytes(pack.read_bytes()[:-100])
    record("second")
    assert archive.open("second").record(0).response == media
