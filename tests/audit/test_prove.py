"""Proofs of real recordings: sealed, appended, live; and of such as were tampered with."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import replaypack
from replaypack.audit import Progress, check_payload, check_proof, prove, purge
from replaypack.errors import FormatError, ProofError, UsageError

from .support import NAME, revise


def test_every_record_of_a_recording_can_be_proven(sound_archive: Path) -> None:
    seen: list[Progress] = []
    with replaypack.Archive(sound_archive).open(NAME) as recording:
        for record in recording.records():
            if record.seq % 7 and record.seq < 290:
                continue
            large = record.name == "media"
            found = check_proof(
                prove(recording, record.seq, payloads=not large, progress=seen.append), recording.content_digest
            )
            assert found.row_bytes == record.row_bytes
            assert found.content.metadata == {"by": "test"}
            if not large:
                assert found.payloads["request"] == record.blob_bytes("request")
            check_payload(found, "response", record.response_bytes)
    assert {report.stage for report in seen} == {"records"}


def test_appended_and_live_recordings(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    for part in range(3):
        with archive.recorder("r", if_exists="append") as recorder:
            for number in range(5):
                recorder.append(kind="tool", identity=[part, number], response="x" * 1500 * number)
            recorder.flush()
            with archive.open("r", fresh=True) as live:
                assert live.state == "open"
                for seq in (0, len(live) - 1):
                    assert check_proof(prove(live, seq), live.content_digest).seq == seq
    with archive.open("r") as recording:
        assert len(recording.manifest.storage.segments) >= 1
        for seq in range(15):
            found = check_proof(prove(recording, seq), recording.content_digest)
            check_payload(found, "response", recording.record(seq).response_bytes)
        first = archive.open("r", 2)
        with pytest.raises(ProofError):
            check_proof(prove(first, 0), recording.content_digest)


def test_purged_records_are_proven_by_their_leaf(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    with archive.recorder("r") as recorder:
        for number in range(7):
            recorder.append(kind="tool", identity=number, response=number)
    before = [prove(archive.open("r"), seq) for seq in range(7)]
    purge(archive, "r", [2, 3], reason="a test")
    with archive.open("r") as recording:
        for seq in range(7):
            found = check_proof(prove(recording, seq, payloads=True), recording.content_digest)
            assert found.leaf == check_proof(before[seq], recording.content_digest).leaf
            assert (found.row is None) is (seq in (2, 3))
            assert bool(found.payloads) is (seq not in (2, 3))
    with pytest.raises(ProofError, match="purged"):
        check_payload(check_proof(prove(archive.open("r"), 2), archive.open("r").content_digest), "request", b"")


def test_records_that_are_not_there(sound_archive: Path) -> None:
    with replaypack.Archive(sound_archive).open(NAME) as recording:
        for seq in (-1, 300, 10**20):
            with pytest.raises(UsageError):
                prove(recording, seq)


def test_payloads_too_large_for_a_proof_are_refused_before_they_are_read(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    with archive.recorder("r") as recorder:
        recorder.append(kind="tool", identity=1, response=bytes(30 << 20))
    for pack in tmp_path.glob("packs/*/*.rpk"):
        if pack.stat().st_size > 3000:
            pack.unlink()
    with archive.open("r") as recording, pytest.raises(UsageError, match="payloads of record 0"):
        prove(recording, 0, payloads=True)


def test_no_proof_of_rows_that_are_not_those_of_the_content(archive_path: Path) -> None:
    with replaypack.Archive(archive_path).open(NAME) as recording:
        edge = list(recording.manifest.storage.merkle_edge)
        tree = recording.manifest.merkle
    edge[0] = "00" * 32
    tree = type(tree)(300, [bytes.fromhex(node) for node in edge])
    revise(archive_path, storage={"merkle_edge": edge}, content={"merkle_root": tree.root.hex()})
    with replaypack.Archive(archive_path).open(NAME) as recording:
        with pytest.raises(FormatError, match="Merkle root"):
            prove(recording, 3)
        # The other subtrees are as they were: what is proven is what the content digest stands for.
        assert check_proof(prove(recording, 299), recording.content_digest).seq == 299


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    with archive.recorder("r") as recorder:
        for number in range(12_000):
            recorder.append(kind="tool", identity=number, response="x" * 200)
    with archive.open("r", cache_bytes=1 << 20) as recording:
        prove(recording, 1)
        tracemalloc.start()
        data = prove(recording, 11_999)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(data) < 4000
    assert peak < 8 << 20
