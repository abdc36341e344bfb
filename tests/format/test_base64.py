"""Finding base64 that encodes back to itself, in text and in MessagePack."""

from __future__ import annotations

import base64
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaypack.format import base64 as module
from replaypack.format.base64 import (
    MIN_RUN,
    decode_base64,
    encode_base64,
    encoded_length,
    find_base64,
)


@pytest.fixture(params=["fast", "standard library"], autouse=True)
def implementation(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both must do the same."""
    if request.param == "standard library":
        monkeypatch.setattr(module, "_fast", None)
    elif module._fast is None:
        pytest.skip("pybase64 is not installed")


def check(piece: bytes) -> list[module.Found]:
    """What is found is in order, and encodes to the very text."""
    found = find_base64(piece)
    end = 0
    for item in found:
        assert end <= item.start < item.end <= len(piece)
        text = piece[item.start : item.end]
        assert encode_base64(item.data, urlsafe=item.urlsafe, padded=item.padded) == text
        assert encoded_length(len(item.data), padded=item.padded) == len(text)
        end = item.end
    return found


def encoded(seed: int, size: int, *, urlsafe: bool, padded: bool) -> bytes:
    return encode_base64(random.Random(seed).randbytes(size), urlsafe=urlsafe, padded=padded)


BOOL = st.booleans()
SETTINGS = settings(max_examples=60, suppress_health_check=[])


@SETTINGS
@given(st.binary(max_size=40), BOOL, BOOL)
def test_encoding(data: bytes, urlsafe: bool, padded: bool) -> None:
    text = encode_base64(data, urlsafe=urlsafe, padded=padded)
    assert len(text) == encoded_length(len(data), padded=padded)
    plain = base64.urlsafe_b64encode(data) if urlsafe else base64.b64encode(data)
    assert text == (plain if padded else plain.rstrip(b"="))
    assert decode_base64(text, urlsafe=urlsafe) == data


@SETTINGS
@given(st.text("AQZaz09+/-_=\n ", max_size=12), BOOL)
def test_decoding_is_exact_or_nothing(text: str, urlsafe: bool) -> None:
    data = decode_base64(text.encode(), urlsafe=urlsafe)
    if data is not None:
        assert text.encode() in [encode_base64(data, urlsafe=urlsafe, padded=padded) for padded in (True, False)]


@SETTINGS
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 3, 700, 1535, 1536, 1540, 2500, 5001]), BOOL, BOOL, st.text(max_size=30)),
        max_size=4,
    ),
    st.integers(0, 9),
)
def test_whatever_is_found_encodes_to_the_text(parts: list[tuple[int, bool, bool, str]], seed: int) -> None:
    piece = b"".join(
        text.encode("utf-8", "replace") + encoded(seed + number, size, urlsafe=urlsafe, padded=padded)
        for number, (size, urlsafe, padded, text) in enumerate(parts)
    )
    check(piece)


@SETTINGS
@given(
    st.integers(MIN_RUN, 3 * MIN_RUN), BOOL, BOOL, st.sampled_from([b"", b" ", b"data:image/png;base64,", b'{"x": "'])
)
def test_a_whole_string_is_found(size: int, urlsafe: bool, padded: bool, before: bytes) -> None:
    """In quotes, with padding: nothing is left over. Unpadded: all of its whole quads."""
    text = encoded(size, size, urlsafe=urlsafe, padded=padded)
    piece = before + text + b'", "more": 1}'
    [item] = check(piece)
    # Letters right before the text belong to the run, as in `base64,`: there the comma ends it.
    assert item.start == len(before)
    if padded or len(text) % 4 == 0:
        assert piece[item.start : item.end] == text
    else:
        assert item.end == len(before) + len(text) // 4 * 4


@SETTINGS
@given(st.integers(MIN_RUN, 70000), BOOL, BOOL, st.integers(0, 5))
def test_message_pack_headers_are_not_text(size: int, urlsafe: bool, padded: bool, seed: int) -> None:
    """The two or four bytes of length before a string may be letters themselves."""
    text = encoded(seed, size, urlsafe=urlsafe, padded=padded)
    piece = msgspec.msgpack.encode({"image": text.decode(), "n": 1})
    [item] = check(piece)
    assert piece[item.start : item.end] == text


def test_a_header_of_letters() -> None:
    """0x41414141 and 0x4141 are ``AAAA`` and ``AA``: strings of just those lengths."""
    size = 0x4142
    text = encoded(1, size * 3 // 4, urlsafe=False, padded=True)[:size]
    piece = b"\xda" + size.to_bytes(2, "big") + text
    assert piece[1:3] == b"AB"
    [item] = check(piece)
    assert item.start == 3
    same = b"\xdb" + size.to_bytes(4, "big") + text
    assert check(same)[0].start == 5


@pytest.mark.parametrize(
    "text",
    [
        b"A" * (MIN_RUN - 1),
        b"\xff" * 5000,
        b"word " * 1000,
        (b"A" * 76 + b"\n") * 100,
        b"+" * 1500 + b"-" * 1500,
        b"=" * 5000,
    ],
)
def test_what_is_left_as_it_is(text: bytes) -> None:
    assert check(text) == []


def test_letters_are_base64_too() -> None:
    """A long run of letters encodes back exactly; stored decoded it is smaller."""
    [item] = check(b"a" * 5000)
    assert (item.start, item.end) == (0, 5000)
    [short] = check(b"a" * 4999 + b"!")
    assert short.end == 4996
