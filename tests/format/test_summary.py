"""Summaries: runs that come together again, whatever stands before them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack.errors import FormatError
from replaypack.format.digests import digest
from replaypack.format.row import ABSENT_DIGEST, Row
from replaypack.format.summary import RUN_WIDTH, Run, Summary, outcome_bytes, parse_runs


def row(number: int, **changes: object) -> Row:
    made = Row(
        seq=number,
        kind="tool",
        name="f",
        key=digest(b"key %d" % number),
        scheme="identity",
        scope=None,
        request=None,
        identity=None,
        start=0,
        duration=number,
        status=0,
        flags=0,
        attributes=None,
        salt=bytes(8),
        response_size=2,
        response_encoding=2,
        response_digest=digest(b"response %d" % number),
    )
    return msgspec.structs.replace(made, **changes)


def runs_of(rows: list[Row]) -> list[Run]:
    summary = Summary()
    for item in rows:
        summary.add(item)
    assert summary.records == len(rows)
    return parse_runs(summary.encode(), len(rows))


def test_an_outcome_is_all_but_place_times_and_salt() -> None:
    same = row(1, seq=9, start=5, duration=7, salt=b"saltsalt")
    assert outcome_bytes(same) == outcome_bytes(row(1))
    others = {
        "kind": "model",
        "name": None,
        "key": bytes(32),
        "scheme": "opaque",
        "scope": "s",
        "status": 1,
        "flags": 1,
        "attributes": {"a": 1},
        "response_size": 3,
        "response_encoding": 1,
        "response_digest": ABSENT_DIGEST,
    }
    outcomes = {outcome_bytes(row(1, **{name: value})) for name, value in others.items()}
    assert len(outcomes | {outcome_bytes(row(1))}) == len(others) + 1


def test_runs_come_together_again_behind_a_difference() -> None:
    rows = [row(number) for number in range(5000)]
    runs = runs_of(rows)
    assert 40 < len(runs) < 120
    assert sum(run.duration for run in runs) == sum(range(5000))
    for changed in (
        rows[1:],
        [row(10**6), *rows],
        [*rows[:2000], row(10**6), *rows[2000:]],
        [*rows[:2000], row(2000, status=1), *rows[2001:]],
        rows[:700] + rows[900:],
    ):
        common = {run.digest for run in runs} & {run.digest for run in runs_of(changed)}
        assert len(runs) - len(common) < 12


@pytest.mark.parametrize("step", [1, 15, 16, 17, 32, 1024, 1500, 5000])
def test_records_may_be_added_together(step: int) -> None:
    rows = [row(number) for number in range(2000)] + [row(0, key=digest(b"key 0"))] * 1500
    summary = Summary()
    for start in range(0, len(rows), step):
        summary.add_all(rows[start : start + step])
    summary.add_all([])
    assert summary.records == len(rows)
    assert parse_runs(summary.encode(), len(rows)) == runs_of(rows)


def test_records_that_are_all_alike_make_runs_of_bounded_length() -> None:
    for key in (digest(b"key 0"), bytes(31) + bytes([digest(b"response 0")[-1]])):
        runs = runs_of([row(0, key=key)] * 3000)
        assert {run.records for run in runs[:-1]} <= {16, 1024}


def test_other_bytes_are_no_summary() -> None:
    summary = Summary()
    for number in range(100):
        summary.add(row(number))
    raw = summary.encode()
    for bad, records in ((raw[:-1], 100), (raw, 99), (raw + bytes(RUN_WIDTH), 100), (b"", 1)):
        with pytest.raises(FormatError):
            parse_runs(bad, records)
    assert parse_runs(b"", 0) == []


@given(st.binary(max_size=100), st.integers(0, 1 << 40))
def test_any_bytes(data: bytes, records: int) -> None:
    try:
        parse_runs(data, records)
    except FormatError:
        pass
