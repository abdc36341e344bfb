"""Journals cut anywhere; names and locators."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack.errors import FormatError, InvalidLocatorError, InvalidNameError
from replaypack.format.journal import (
    JournalHead,
    JournalRecord,
    encode_head,
    encode_record,
    read_journal,
)
from replaypack.format.names import check_name, parse_locator, sibling_name
from replaypack.format.record_frame import Entry, stored_row
from replaypack.format.row import encode_row
from replaypack.storage._protocol import is_key

from .strategies import mutated, rows

HEAD = JournalHead(
    version=1,
    archive="memory://x",
    name="a",
    revision=1,
    claim="create",
    writer="0" * 16,
    number=0,
    first=0,
    literals=0,
    inlines=0,
    external=[(0, 5, 5, b"d" * 16, "0" * 64, 99, 0, 24, 9)],
    content={"x": 1},
)


@st.composite
def records(draw: Any) -> list[JournalRecord]:
    found = []
    for _ in range(draw(st.integers(0, 4))):
        response = draw(st.none() | st.binary(max_size=9))
        row = encode_row(draw(rows(response=response)))
        entry = Entry(stored_row(row, response), draw(st.binary(max_size=9)), response)
        found.append(JournalRecord(entry, draw(st.binary(max_size=9)), draw(st.booleans())))
    return found


def journal_of(items: list[JournalRecord]) -> bytes:
    return encode_head(HEAD) + b"".join(
        encode_record(item.entry, item.literals, starts_frame=item.starts_frame) for item in items
    )


@settings(max_examples=25)
@given(records())
def test_cut_at_every_byte(items: list[JournalRecord]) -> None:
    """What is left is a beginning of the records; nothing but the head can make it unreadable."""
    data = journal_of(items)
    ends = [len(journal_of(items[:count])) for count in range(len(items) + 1)]
    for cut in range(len(data) + 1):
        if cut < ends[0]:
            with pytest.raises(FormatError):
                read_journal(data[:cut])
            continue
        head, found = read_journal(data[:cut])
        assert head == HEAD
        assert list(found) == items[: sum(end <= cut for end in ends) - 1]


@settings(max_examples=50)
@given(records().map(journal_of).flatmap(mutated) | st.binary(max_size=60))
def test_other_bytes_are_refused_or_journals(data: bytes) -> None:
    try:
        list(read_journal(data)[1])
    except FormatError:
        pass


@settings(max_examples=30)
@given(records(), st.integers(1, 40))
def test_zeros_behind_the_end(items: list[JournalRecord], count: int) -> None:
    """Some file systems show zeros where a write was lost."""
    assert list(read_journal(journal_of(items) + bytes(count))[1]) == items


# Names


@given(st.text("aZ0._-/@# é", max_size=12))
def test_names_are_safe_keys(name: str) -> None:
    try:
        check_name(name)
    except InvalidNameError:
        return
    assert is_key(f"recordings/{name}/latest.json")
    assert not {"", ".", ".."} & {*name.split("/")}
    assert not any(segment.lower().endswith((".", ".json")) for segment in name.split("/"))
    for revision in (None, 1, 99999999):
        text = f"s3://b/p#{name}" + (f"@{revision}" if revision else "")
        at = parse_locator(text)
        assert (at.url, at.name, at.revision, str(at)) == ("s3://b/p", name, revision, text)


@given(st.text(max_size=20))
def test_other_text_is_refused_or_a_locator(text: str) -> None:
    try:
        assert str(parse_locator(text)) == text
    except (InvalidLocatorError, InvalidNameError):
        pass


def test_no_name_at_all() -> None:
    for bad in (None, 5, b"a"):
        with pytest.raises(InvalidNameError):
            check_name(bad)  # type: ignore[arg-type]


def test_a_sibling_has_a_legal_name_whatever_the_recording_is_called() -> None:
    writer = "0123456789abcdef"
    assert sibling_name("runs/a", writer) == f"runs/a.{writer}"
    for name in ("x" * 255, "a/" * 255 + "b", "y" * 199 + "/con-fused" + "z" * 90, "y" * 197 + "/c" + "z" * 100):
        assert check_name(name) == name
        assert check_name(sibling_name(name, writer)).endswith(writer)
