"""Finding recent small responses inside the requests that follow: an agent's history is made of them.

A response that stands inline in a record frame has addresses of its own (spec chapter 04, "Literals"), so that
a request that quotes it need not store it again. Writer's policy, no part of the format.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from .compare import same_beginning, same_end

__all__ = ["InlineWindow"]

#: Responses that are remembered, and the bytes of one from which on that is worth it.
_MAX_RESPONSES = 32
_MIN_RESPONSE = 96
#: Equal bytes that are worth a range, and what they are searched by.
_MIN_COPY = 64
_ANCHOR = 24
#: Responses that one piece may quote.
_MAX_QUOTES = 4


class InlineWindow:
    """The last small responses, and where record frames begin among them."""

    def __init__(self) -> None:
        #: Their offsets and bytes, oldest first.
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=_MAX_RESPONSES)
        self._frame_starts: list[int] = []

    def begin_frame(self, offset: int) -> None:
        """Note that the next record frame's inline section begins at ``offset`` of the address space."""
        if not self._frame_starts or self._frame_starts[-1] != offset:
            self._frame_starts.append(offset)

    @property
    def frames(self) -> int:
        """How many record frames there are so far."""
        return len(self._frame_starts)

    def frame_of(self, offset: int) -> int:
        """The number of the record frame that holds ``offset``, among those of this recorder."""
        return bisect_right(self._frame_starts, offset)

    def note(self, offset: int, response: bytes) -> None:
        """Remember a response that stands inline at ``offset``."""
        if len(response) >= _MIN_RESPONSE:
            self._recent.append((offset, response))

    def quotes(self, piece: bytes) -> list[tuple[int, int, int]]:
        """Where ``piece`` repeats recent responses: (start, end, offset in the address space), in order.

        A response is given once: what repeats it later repeats a request as well.
        """
        found: list[tuple[int, int, int]] = []
        if len(piece) < _MIN_COPY:
            return found
        for offset, response in reversed(self._recent):
            quote = _quote(piece, response)
            if quote is None:
                continue
            start, end, at = quote
            if all(end <= s or start >= e for s, e, _ in found):
                found.append((start, end, offset + at))
                if len(found) == _MAX_QUOTES:
                    break
        for _, _, offset in found:
            for known in reversed(self._recent):
                if known[0] <= offset:
                    self._recent.remove(known)
                    break
        found.sort()
        return found


def _quote(piece: bytes, response: bytes) -> tuple[int, int, int] | None:
    """The longest stretch around a few anchors of ``response`` that ``piece`` has: (start, end, start there)."""
    size = len(response)
    for at in (size // 2, size * 3 // 4, size // 4, 8):
        if at + _ANCHOR > size:
            continue
        place = piece.find(response[at : at + _ANCHOR])
        if place < 0:
            continue
        before = same_end(piece, response, place, at, min(place, at))
        after = same_beginning(piece, response, place, at, min(len(piece) - place, size - at))
        if before + after >= _MIN_COPY:
            return place - before, place + after, at - before
    return None
