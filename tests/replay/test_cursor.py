"""The cursor answers as a plain model of its rules does, whatever is asked in whatever order."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack import Archive, Recording
from replaypack.canonical import key_digest
from replaypack.replay._cursor import Cursor
from replaypack.storage._memory import MemoryStorage

SCOPES = st.sampled_from([None, "a", "b"])
CALLS = st.tuples(st.integers(0, 2), SCOPES)
ASKED = st.tuples(st.integers(0, 2), SCOPES, st.booleans())


def opened(records: list[tuple[tuple[int, str | None], bool]]) -> Recording:
    storage = MemoryStorage()
    archive = Archive(storage.url, storage=storage)
    with archive.recorder("r", flush_interval=None) as recorder:
        for (call, scope), answers in records:
            status: Any = "ok" if answers else "interrupted"
            recorder.append(kind="tool", identity=call, scope=scope, response=[call], status=status)
    return archive.open("r")


@settings(max_examples=60, deadline=None)
@given(records=st.lists(st.tuples(CALLS, st.booleans()), max_size=20), asked=st.lists(ASKED, max_size=40))
def test_the_cursor_keeps_its_rules(records: Any, asked: list[tuple[int, str | None, bool]]) -> None:
    cursor = Cursor(opened(records), answers=lambda record: record.status != "interrupted")
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


def test_the_front_does_not_give_away_what_another_thread_is_reading() -> None:
    recording = opened([((call, None), True) for call in (0, 1, 0, 0, 0)])
    first, second, unknown = (key_digest("tool", call) for call in (0, 1, 2))
    cursor = Cursor(recording, answers=lambda record: True)
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
