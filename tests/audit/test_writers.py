"""What `verify` says of archives whose writer did it wrong: every digest fits, and the contents do not."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import replaypack
from replaypack.audit import _batch, _rows
from replaypack.format import merkle
from replaypack.policies.matching import MatchPolicy

from .conftest import fill
from .support import NAME, codes, faults, revise


def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, replacement: Any) -> set[str]:
    with monkeypatch.context() as patch:
        patch.setattr(target, replacement)
        with replaypack.Archive(tmp_path).recorder(NAME, flush_interval=None) as recorder:
            fill(recorder, 0, 150)
    found = faults(tmp_path)
    for at_once in (1, 7):
        # Records looked at one by one, or in other batches, have the same faults in the same order.
        with monkeypatch.context() as patch:
            patch.setattr(_batch, "AT_ONCE", at_once)
            patch.setattr(_rows, "AT_ONCE", at_once)
            assert faults(tmp_path) == found
    return {fault.code for fault in found}


def test_a_key_that_is_not_the_identitys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1000))
    key = MatchPolicy.key

    def lie(self: MatchPolicy, kind: str, identity: object, *, census: Any = None) -> bytes:
        return key(self, "x" if next(calls) == 7 else kind, identity, census=census)

    assert wrong(tmp_path, monkeypatch, "replaypack.policies.matching.MatchPolicy.key", lie) == {"key.mismatch"}
    assert next(calls) > 7


def test_the_key_of_a_redacted_record_is_not_recomputed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, replaypack.Archive(tmp_path).recorder(NAME) as recorder:
        patch.setattr("replaypack.policies.matching.MatchPolicy.key", lambda *_, census: bytes(32))
        recorder.append(kind="tool", identity="[redacted]", response=1, flags=["redacted"])
    assert replaypack.Archive(tmp_path).open(NAME).record(0).key == bytes(32)
    assert codes(tmp_path) == set()


def test_a_record_that_keys_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.table import pack_key

    def lie(key: bytes, disc: bytes, seq: int) -> bytes:
        return pack_key(key, disc, 9 if seq == 10 else seq)

    assert wrong(tmp_path, monkeypatch, "replaypack.recorder.pack_key", lie) == {"key.index"}
    assert {fault.where for fault in faults(tmp_path)} == {"record 9", "record 10"}


def test_an_entry_of_keys_in_another_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.table import pack_key

    def lie(key: bytes, disc: bytes, seq: int) -> bytes:
        return pack_key(key, b"12345678" if seq == 9 else disc, seq)

    assert wrong(tmp_path, monkeypatch, "replaypack.recorder.pack_key", lie) == {"key.index"}
    [fault] = faults(tmp_path)
    assert fault.where == "record 9"
    assert fault.message.endswith("differ in discriminator")


def test_keys_whose_frames_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.table import FrameRef, key_page

    def lie(rows: bytes, frames: list[FrameRef]) -> bytes:
        return key_page(rows, [ref._replace(digest=bytes(16)) for ref in frames])

    assert wrong(tmp_path, monkeypatch, "replaypack._write.segment.key_page", lie) == {"key.index"}
    assert len(faults(tmp_path)) == 150


def test_a_payload_that_is_not_what_its_row_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.digests import digest

    def lie(data: bytes) -> bytes:
        return digest(data + b"!") if len(data) > 4096 and data.startswith(b"xxx") else digest(data)

    found = wrong(tmp_path, monkeypatch, "replaypack._write.prepare.digest", lie)
    assert found == {"blob.mismatch"}
    assert all(fault.where.startswith("request of record ") for fault in faults(tmp_path))


def test_a_tree_over_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Liar(merkle.MerkleTree):
        def add_all(self, leaves: Sequence[bytes]) -> None:
            super().add_all([bytes(32), *leaves[1:]])

    monkeypatch.setattr("replaypack._write.publish.MerkleTree", Liar)
    with replaypack.Archive(tmp_path).recorder(NAME, flush_interval=None) as recorder:
        fill(recorder, 0, 50)
    monkeypatch.undo()
    assert codes(tmp_path) == {"merkle.mismatch"}


def test_a_blob_that_the_index_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack.format.table import BlobEntry, pack_blob

    def lie(entry: BlobEntry) -> bytes:
        return pack_blob(entry._replace(role=1) if entry.role == 2 else entry)

    assert wrong(tmp_path, monkeypatch, "replaypack.recorder.pack_blob", lie) == {"blob.index"}


def test_a_payload_in_another_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replaypack import values

    def pieces(value: object, **others: Any) -> tuple[int, list[bytes]]:
        encoding, parts = values.payload_pieces(value, **others)
        return (1, parts) if encoding == 3 and len(parts[0]) > 30 else (encoding, parts)

    assert "blob.encoding" in wrong(tmp_path, monkeypatch, "replaypack._write.prepare.payload_pieces", pieces)


@pytest.mark.parametrize(
    ("content", "code"), [({"counts": {"tool": 300}}, "counts.mismatch"), ({"recorded_by": "else"}, None)]
)
def test_counts_are_compared_with_the_rows(archive_path: Path, content: dict[str, Any], code: str | None) -> None:
    revise(archive_path, content=content)
    assert codes(archive_path) == ({code} if code else set())


def test_literals_that_end_elsewhere(archive_path: Path) -> None:
    literals = replaypack.Archive(archive_path).open(NAME).manifest.storage.literals
    revise(archive_path, {"literals": literals - 1})
    assert codes(archive_path, "structure") == {"literals.gap"}
    # Bytes that no frame holds are legal, as long as no recipe names them.
    revise(archive_path, {"literals": literals + 1})
    assert codes(archive_path) == set()


def test_a_near_range_beyond_its_pack(archive_path: Path) -> None:
    from replaypack.format.manifest_members import Near

    [segment] = replaypack.Archive(archive_path).open(NAME).manifest.storage.segments
    near = Near(pack=0, offset=(1 << 31), length=1000)
    revise(archive_path, {"segments": [msgspec.structs.replace(segment, near=near)]})
    assert "segment.near" in codes(archive_path, "structure")


def test_tables_that_name_frames_elsewhere(archive_path: Path) -> None:
    from replaypack.format.manifest_pages import inline_root
    from replaypack.format.table import KEYS, Root

    [segment] = replaypack.Archive(archive_path).open(NAME).manifest.storage.segments
    root = Root.parse(KEYS, segment.keys.count, base64.b64decode(segment.keys.root or ""))
    moved = Root(
        KEYS, root.count, root.fences, root.digests, [at._replace(offset=at.offset + 1) for at in root.locations]
    )
    revise(archive_path, {"segments": [msgspec.structs.replace(segment, keys=inline_root(moved), near=None)]})
    assert codes(archive_path, "structure") == {"toc.mismatch"}
    assert "page.corrupted" in codes(archive_path)
    fence = Root(KEYS, root.count, [bytes(KEYS.key)], root.digests, root.locations)
    revise(archive_path, {"segments": [msgspec.structs.replace(segment, keys=inline_root(fence))]})
    assert codes(archive_path) == {"page.order"}


def test_records_and_literals_tables_exchanged_gives_gaps(archive_path: Path) -> None:
    from replaypack.format.manifest_pages import inline_root
    from replaypack.format.table import RECORDS, Root

    [segment] = replaypack.Archive(archive_path).open(NAME).manifest.storage.segments
    other = Root.parse(RECORDS, segment.literals.count, base64.b64decode(segment.literals.root or ""))
    revise(archive_path, {"segments": [msgspec.structs.replace(segment, records=inline_root(other))]})
    assert codes(archive_path, "structure") & {"records.gap", "toc.mismatch"}
