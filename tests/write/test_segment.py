"""Segments: what bounds their memory changes nothing in what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaypack import Archive
from replaypack._write.segment import SegmentBuilder
from replaypack.format.frame import Compressor, decompress
from tests.archive.support import calls, check


def test_keys_are_merged_from_sorted_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replaypack._write.segment._RUN", 30 * 7)
    archive = Archive(tmp_path, {"replaypack": {"fsync": False}})
    expected = list(calls(150))
    with archive.recorder("run", flush_interval=None) as recorder:
        for call in expected:
            recorder.append(**call)
    check(archive.open("run"), expected)
    assert not list(archive.verify("run"))


def test_a_frame_whose_compression_failed_is_compressed_later() -> None:
    class Once(Compressor):
        failed = False

        def __call__(self, raw: bytes | bytearray | memoryview) -> bytes:
            if not self.failed:
                self.failed = True
                raise MemoryError
            return super().__call__(raw)

    builder = SegmentBuilder(0, 0)
    builder.add_literal_frame(0, b"literals" * 100)
    compressor = Once()
    with pytest.raises(MemoryError):
        builder.compress(compressor)
    builder.compress(compressor)
    assert decompress(builder._literals[0].frame) == b"literals" * 100
