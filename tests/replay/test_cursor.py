"""The cursor answers as a plain model of its rules does, whatever is asked in whatever order."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack import Archive, Record, Recording
from replaypack.audit import purge
from replaypack.canonical import key_digest
from replaypack.errors import PurgedError
from replaypack.format.row import STATUSES
from replaypack.replay._cursor import Cursor
from replaypack.storage._memory import MemoryStorage

INTERRUPTED = STATUSES.index("interrupted")
SCOPES = st.sampled_from([None, "a", "b"])
CALLS = st.tuples(st.integers(1, 3), SCOPES)
ASKED = st.tuples(st.integers(1, 3), SCOPES, st.booleans())


def opened(records: list[tuple[tuple[int, str | None], bool]], purged: list[int] | None = None) -> Recording:
    storage = MemoryStorage()
    archive = Archive(storage.url, storage=storage)
    with archive.recorder("r", flush_interval=None) as recorder:
        for seq, ((call, scope), answers) in enumerate(records):
            status: Any = "ok" if answers else "interrupted"
            recorder.append(kind="tool", identity=call, scope=scope, response=f"answer {seq}", status=status)
    if purged:
        purge(archive, "r", purged, "asked to")
    return archive.open("r")


@settings(max_examples=60, deadline=None)
@given(records=st.lists(st.tuples(CALLS, st.booleans()), max_size=20), asked=st.lists(ASKED, max_size=40))
def test_the_cursor_keeps_its_rules(records: Any, asked: list[tuple[int, str | None, bool]]) -> None:
    cursor = Cursor(opened(records), answers=lambda row: row.status != INTERRUPTED)
    places: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    left: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    for seq, (place, answers) in enumerate(records):
        places[place] += [seq] if answers else []
        left[place] += [seq] if answers else []
    exist = {place for place, _ in records}
    for call, scope, given_back in asked:
        place = (call, scope if (call, scope) in exist else None)
        key = key_digest("tool", call)
        expected = left[place][0] if left[place] else None
        peeked = cursor.peek(key, scope)
        taken = cursor.take_next("tool", call, scope)
        assert taken is None or taken.seq == expected
        if taken is None:
            taken = cursor.take(key, scope)
        assert (taken.seq if taken is not None else None) == expected
        assert (peeked.seq if peeked is not None else None) == expected
        if taken is not None and given_back:
            cursor.give_back(taken)
        else:
            left[place] = left[place][1:]
        assert cursor.recorded(key, scope) == len(places[place])
        last = cursor.last(key, scope)
        assert (last.seq if last is not None else None) == (places[place][-1] if places[place] else None)
        assert [r.seq for r in cursor.unplayed()] == sorted(seq for seqs in left.values() for seq in seqs)


@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(st.tuples(CALLS, st.booleans()), max_size=30),
    asked=st.lists(CALLS, max_size=10),
    wrong=st.sampled_from([0, 0, 1, 5]),
)
def test_the_turns_of_purged_records_are_told(
    records: list[tuple[tuple[int, str | None], bool]], asked: Any, wrong: int
) -> None:
    # The first record of a place stays: where all were purged, nothing says that there were any.
    first = {place: seq for seq, (place, _) in reversed(list(enumerate(records)))}
    purged = [seq for seq, (place, gone) in enumerate(records) if gone and seq != first[place]]
    recording = opened([(place, True) for place, _ in records], purged)
    left: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    for seq, (place, _) in enumerate(records):
        left[place].append(seq)
    cursor = Cursor(recording, answers=lambda row: True)
    # In recorded order, with a few calls of another.
    in_order = [place for place, _ in records]
    for call, scope in [*in_order[:wrong], *asked[:wrong], *in_order[wrong:], *asked]:
        place = (call, scope if (call, scope) in first else None)
        expected = left[place].pop(0) if left[place] else None
        taken: Record | PurgedError | None
        try:
            taken = cursor.take_next("tool", call, scope) or cursor.take(key_digest("tool", call), scope)
        except PurgedError as error:
            taken = error
        assert (taken.seq if taken is not None else None) == expected
        assert isinstance(taken, PurgedError) == (expected in purged)
        assert not isinstance(taken, Record) or taken.response == f"answer {expected}"


def test_what_was_purged_meanwhile_is_told() -> None:
    storage = MemoryStorage()
    archive = Archive(storage.url, storage=storage)
    with archive.recorder("r", flush_interval=None) as recorder:
        for number in range(20):
            recorder.append(kind="tool", identity=number % 10, response=[number])
    recording = archive.open("r")
    cursor = Cursor(recording, answers=lambda row: True)
    for number in range(9):
        assert cursor.take(key_digest("tool", number)).response == [number]  # type: ignore[union-attr]
    purge(archive, "r", [12], "asked to")
    newer = archive.open("r")
    recording._index, recording._manifest = newer._index, newer._manifest  # as where a pack was collected
    answers: list[Any] = []
    for number in range(9, 20):
        try:
            taken = cursor.take_next("tool", number % 10, None) or cursor.take(key_digest("tool", number % 10))
            answers.append(taken.response[0])  # type: ignore[union-attr]
        except PurgedError as error:
            answers.append(-error.seq)
    assert answers == [9, 10, 11, -12, *range(13, 20)]


def test_what_was_appended_meanwhile_never_answers() -> None:
    storage = MemoryStorage()
    archive = Archive(storage.url, storage=storage)
    with archive.recorder("r", flush_interval=None) as recorder:
        recorder.append(kind="tool", identity=0, response=0)
        recorder.flush()
        recording = archive.open("r")
        cursor = Cursor(recording, answers=lambda row: True)
        for call in (0, 0, 1):
            recorder.append(kind="tool", identity=call, response=[call])
        recorder.flush()
        newer = archive.open("r")
    recording._index, recording._manifest = newer._index, newer._manifest  # as where a pack was collected
    for call, expected in ((0, 0), (0, None), (1, None)):
        taken = cursor.take(key_digest("tool", call))
        assert (taken.seq if taken is not None else None) == expected
    assert list(cursor.unplayed()) == []


def test_the_front_does_not_give_away_what_another_thread_is_reading() -> None:
    recording = opened([((call, None), True) for call in (0, 1, 0, 0, 0)])
    first, second, unknown = (key_digest("tool", call) for call in (0, 1, 2))
    cursor = Cursor(recording, answers=lambda row: True)
    assert cursor.take(first).seq == 0  # type: ignore[union-attr]
    assert cursor.take(unknown) is None

    reading, go_on = threading.Event(), threading.Event()
    look_up = recording.lookup_digest
    slow: list[Any] = []

    def lookup(key: bytes, **options: Any) -> Any:
        if threading.current_thread() is other and options.get("nth"):
            reading.set()
            assert go_on.wait(60)
        return look_up(key, **options)

    recording.lookup_digest = lookup  # type: ignore[method-assign, assignment]
    other = threading.Thread(target=lambda: slow.append(cursor.take(first)))
    other.start()
    assert reading.wait(60)
    taken = [cursor.take(key) for key in (first, second, first)]
    go_on.set()
    other.join(60)
    assert [record.seq for record in (*taken, *slow)] == [3, 1, 4, 2]  # type: ignore[union-attr]
