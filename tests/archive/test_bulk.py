"""Rows that are parsed many at a time are those that are parsed one by one, and their responses too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from replaypack import Archive
from replaypack._read.ahead import UNREAD, Ahead
from replaypack._read.bulk import BulkRow, bulk_rows, bulk_size, response_behind
from replaypack.errors import FormatError
from replaypack.format.record_frame import RecordFrame
from replaypack.record import Record
from replaypack.values import decode_payload, decode_together
from tests.archive.support import calls, same


def test_rows_and_responses_are_those_of_lookups(tmp_path: Path) -> None:
    with Archive(tmp_path, {"replaypack": {"fsync": False}}) as archive:
        with archive.recorder("run") as recorder:
            for number, call in enumerate(calls(300, 5)):
                recorder.append(**call)
                if number % 100 == 0:
                    recorder.flush()
        recording = archive.open("run")
        found = list(bulk_rows(recording.index))
        assert [row.seq for row, _ in found] == list(range(len(recording)))
        assert bulk_size(recording.index) > 0
        for (row, blob), record in zip(found, recording.records(), strict=True):
            for name in ("seq", "kind", "name", "key", "scheme", "scope", "start", "status", "flags", "attributes"):
                assert getattr(row, name) == getattr(record.row, name)
            if blob is None:
                assert record.row.response_size >= 4096
            else:
                assert same(response_behind(row, blob), record.response)


def test_what_lies_ahead_is_what_lookups_find(tmp_path: Path) -> None:
    with Archive(tmp_path, {"replaypack": {"fsync": False}}) as archive:
        with archive.recorder("run") as recorder:
            for call in calls(200, 5):
                recorder.append(**call)
            for number in range(200):
                recorder.append(kind="tool", identity=number, response={"n": number})
        recording = archive.open("run")
        for seq in (0, 150, 203):
            before = recording.record(seq)
            ahead = recording.ahead(before, 20)
            assert ahead.first == seq + 1
            assert 0 < ahead.count <= 20
            for at in range(ahead.count):
                expected = recording.record(seq + 1 + at)
                response = ahead.responses[at]
                assert response is UNREAD or same(response, expected.response)
                found = Record(recording, ahead.found(at), recording._index, response)
                assert same(found.response, expected.response)
                assert found.head.status == expected.row.status
                assert (ahead.keys[at], ahead.rows[at].seq) == (expected.key, expected.seq)
                assert (found.row, found.row_bytes) == (expected.row, expected.row_bytes)
                assert same(found.request, expected.request)
            further = recording.ahead(ahead, 3)
            assert [row.seq for row in further.rows] == [ahead.first + ahead.count + more for more in range(3)]
        assert not Ahead().count
        assert not recording.ahead(Ahead(), 20).count
        assert not recording.ahead(recording.record(399), 20).count
        # The first of other rows than those that are expected there.
        frame = before._found.frame
        assert isinstance(frame, RecordFrame)
        assert not Ahead(recording._index, frame, 0, seq, 20).count


def row(encoding: int) -> BulkRow:
    raw = msgspec.Raw(b"\xc0")
    return BulkRow(0, "tool", None, b"", "opaque", None, raw, raw, 0, 0, 0, 0, None, raw, 0, encoding)


WRONG = {
    "a timestamp": b"\xd6\xff\x00\x00\x00\x01",
    "another extension": b"\xd4\x07\x00",
    "not the shortest form": b"\xcd\x00\x01",
    "equal keys": b"\x82\xa1a\x01\xa1a\x02",
    "two values": b"\x01\x02",
    "cut": b"\x92\x01",
    "nested too deep": b"\x91" * 300 + b"\x90",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_lookups_refuse_is_refused(name: str) -> None:
    for refuse in (lambda blob: decode_payload(1, blob), lambda blob: response_behind(row(1), blob)):
        with pytest.raises(FormatError):
            refuse(WRONG[name])
    assert decode_together([b"\x01", WRONG[name], b"\x02"]) is None


@pytest.mark.parametrize("value", [None, 2**80, "\ud800", [float("nan")], {"a": [b"\xff"]}, -0.0, {}, "é" * 300])
def test_what_lookups_give_is_given(value: Any) -> None:
    from replaypack.values import encode

    assert same(response_behind(row(1), encode(value)), value)
    together = decode_together([encode(value), encode([value])])
    assert together is None or same(together, [value, [value]])
    assert response_behind(row(2), b"text") == "text"
    assert response_behind(row(3), b"\xff") == b"\xff"
