"""Differences inside of texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replaypack.audit._textdiff import TextChange, text_changes

texts = st.text("ab \n.", max_size=60)


@given(texts, texts)
def test_the_changes_make_the_new_text_of_the_old(old: str, new: str) -> None:
    result, at = "", 0
    for change in text_changes(old, new):
        assert old[change.old_at : change.old_at + len(change.old)] == change.old
        assert new[change.new_at : change.new_at + len(change.new)] == change.new
        assert change.old != change.new
        result += old[at : change.old_at]
        assert len(result) == change.new_at
        result += change.new
        at = change.old_at + len(change.old)
    assert result + old[at:] == new


def test_words_lines_and_the_whole() -> None:
    assert text_changes("the quick fox jumps", "the slow fox jumps high") == [
        TextChange(4, 4, "quick", "slow"),
        TextChange(19, 18, "", " high"),
    ]
    assert text_changes("a b c d", "a x y d") == [TextChange(2, 2, "b c", "x y")]
    old = "".join(f"line {at} of a long text\n" for at in range(500))
    new = old.replace("line 30 ", "line thirty ").replace("line 400 of", "line 400 OF")
    changes = text_changes(old, new)
    assert [change.new for change in changes] == ["line thirty of a long text\n", "line 400 OF a long text"]
    long = "x y " * 200_000
    assert len(text_changes("a" + long + "b", "c" + long.replace("x", "z") + "d")) == 1
    assert text_changes("same", "same") == []
