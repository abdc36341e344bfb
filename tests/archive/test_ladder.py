"""`Recording.latest`, `of_key` and `repeated`: what keyed stores read, against a walk over all records."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from replaypack import Archive, Recording, key_digest
from replaypack._read import ladder
from replaypack.format.table import KEYS


def naive(recording: Recording, key: bytes, scopes: list[str | None]) -> int | None:
    for scope in scopes:
        found = [record.seq for record in recording.records() if record.key == key and record.scope == scope]
        if found:
            return found[-1]
    return None


def check(recording: Recording, identities: list[str], scopes: list[str | None]) -> None:
    rng = random.Random(1)
    for identity in identities:
        key = key_digest("trace", identity)
        for _ in range(6):
            asked = rng.sample(scopes, rng.randint(0, len(scopes)))
            found = recording.latest(key, asked)
            assert (None if found is None else found.seq) == naive(recording, key, asked)
        everything = sorted(record.seq for record in recording.of_key(key, limit=10**6, frames=10**6))
        assert everything == [record.seq for record in recording.records() if record.key == key]
    places: dict[tuple[bytes, str | None], list[int]] = {}
    for record in recording.records():
        places.setdefault((record.key, record.scope), []).append(record.seq)
    assert sorted(recording.repeated()) == sorted(seqs for seqs in places.values() if len(seqs) > 1)


SCOPES = [None, *(f'["m{n}",{n % 3},null]' for n in range(9))]


@pytest.mark.parametrize("few", [0, 3, 64])
@pytest.mark.parametrize("flush_every", [0, 40])
def test_against_a_walk_over_all_records(
    tmp_path: Path, few: int, flush_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that are searched and runs that are looked through; one segment and several."""
    monkeypatch.setattr(ladder, "_FEW", few)
    rng = random.Random(2)
    archive = Archive(tmp_path, {"replaypack": {"fsync": False}})
    recorder = archive.recorder("r", flush_interval=None)
    for number in range(300):
        recorder.append(kind="trace", identity=f"i{rng.randrange(12)}", scope=rng.choice(SCOPES), response=number)
        if flush_every and number % flush_every == flush_every - 1:
            recorder.flush()
    identities = [f"i{n}" for n in range(13)]
    if flush_every:
        unsealed = archive.open("r")
        assert len(unsealed.manifest.storage.segments) > 1
        check(unsealed, identities, SCOPES)
    recorder.seal()
    check(archive.open("r"), identities, SCOPES)


def test_runs_that_span_pages(tmp_path: Path) -> None:
    archive = Archive(tmp_path, {"replaypack": {"fsync": False}})
    count = 3 * KEYS.page_entries
    with archive.recorder("r", flush_interval=None) as recorder:
        for number in range(count):
            # One long run, and short ones around it.
            scope = '["m",null,null]' if number % 8 else f'["m",{number},null]'
            recorder.append(kind="trace", identity="i" if number % 5 else f"i{number}", scope=scope, response=number)
    recording = archive.open("r")
    key = key_digest("trace", "i")
    for scopes in ([SCOPES[1], '["m",null,null]'], ['["m",8,null]', '["m",null,null]'], ['["m",0,null]']):
        found = recording.latest(key, scopes)  # type: ignore[arg-type]
        assert (None if found is None else found.seq) == naive(recording, key, scopes)  # type: ignore[arg-type]
    assert sum(len(seqs) for seqs in recording.repeated()) == sum(1 for n in range(count) if n % 5 and n % 8)


def test_of_a_recording_without_records(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.recorder("r"):
        pass
    recording = archive.open("r")
    assert recording.latest(key_digest("trace", "i"), [None, "x"]) is None
    assert recording.of_key(key_digest("trace", "i")) == []
    assert list(recording.repeated()) == []
