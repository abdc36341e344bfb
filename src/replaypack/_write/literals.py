"""Turning blobs into recipes over the literal address space: the writer's deduplication.

None of this is part of the format: any recipe that gives the right bytes is legal. What is found here decides
the size of an archive and the speed of recording.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress, count, islice
from operator import ne
from typing import NamedTuple

from replaypack.format.base64 import MIN_RUN, find_base64
from replaypack.format.recipe import BASE64, MAX_RANGES, UNPADDED, URLSAFE, Op, Range, Recipe, Run, cut
from replaypack.format.table import INLINE_SPACE

from .compare import same_beginning, same_end
from .inlines import InlineWindow

__all__ = ["CUT", "LARGE", "SPLIT", "Copy", "LiteralStream", "Splitter", "Tip"]

#: Literal frames are cut at this many bytes: just under 1 MiB, and a multiple of three (whole base64 quads).
CUT = 1_048_575
#: Blobs below this size are not split.
SPLIT = 4096
#: Literals of this size and more lie alone in a pack that names no recording.
LARGE = 4 << 20
#: A recipe over more frames than this stores its bytes anew; the format's readers expect at most 16. Frames of
#: neighbouring segments are cut short, so that the address space is counted a little stricter here.
MAX_FRAMES = 12

#: A recipe of more ranges stores its bytes anew; readers refuse eight times as many.
_MAX_RANGES = 8192
#: A piece with more runs of base64 is left as text: each is a range, and so is what stands between two.
MAX_RUNS = MAX_RANGES // 2 - 1

#: Pieces below this are not looked up by content: a reference would cost as much.
_MIN_ELEMENT = 96
#: Pieces up to this size that differ are stepped over when aligning with a parent: headers, counters.
_GLUE = 1024
#: Pieces from this size on are compared byte by byte with the parent's where they differ: an HTTP body is one
#: string, whatever it holds.
_LONG = 4096
#: Equal bytes inside of long pieces that are worth a range, and what they are searched by.
_MIN_COPY = 128
_ANCHOR = 32
#: How far a difference is searched for its end, and how many differences a pair of pieces may have.
_REACH = 1 << 16
_MAX_DIFFERENCES = 16
_NEVER = 1 << 62


class LiteralStream:
    """The end of the literal address space: what was added and is not yet cut into frames."""

    def __init__(self, end: int = 0, *, cut: int = CUT) -> None:
        self._cut_at = cut
        self.start = end
        self.end = end
        #: Closed frames (offset, bytes) that nobody has taken yet. One of `LARGE` bytes and more is a large literal.
        self.closed: list[tuple[int, bytes]] = []
        self._pending = bytearray()
        self._fresh: list[bytes] = []

    def add(self, data: bytes) -> int:
        """Append literals; return their offset."""
        offset = self.end
        self.end += len(data)
        self._fresh.append(data)
        if len(data) >= LARGE:
            self.cut()
            self.closed.append((offset, data))
            self.start = self.end
            return offset
        pending = self._pending
        pending += data
        most = self._cut_at
        while len(pending) >= most:
            self.closed.append((self.start, bytes(pending[:most])))
            del pending[:most]
            self.start += most
        return offset

    def cut(self) -> None:
        """Close the frame that is being filled."""
        if self._pending:
            self.closed.append((self.start, bytes(self._pending)))
            self._pending = bytearray()
            self.start = self.end

    def blank(self, start: int) -> None:
        """Make zeros of what lies at ``start`` and behind in the frame that is being filled."""
        kept = max(0, start - self.start)
        self._pending[kept:] = bytes(len(self._pending[kept:]))

    def take_fresh(self) -> bytes:
        """What was added since the last call: what a journal entry carries."""
        fresh = self._fresh
        if not fresh:
            return b""
        data = fresh[0] if len(fresh) == 1 else b"".join(fresh)
        fresh.clear()
        return data


class Tip(NamedTuple):
    """The latest request of one conversation: its pieces, where each ends, its ranges, its number in the stream."""

    pieces: list[bytes]
    ends: list[int]
    recipe: Recipe
    number: int


class Copy(NamedTuple):
    """Bytes ``start`` … ``end`` of the parent."""

    start: int
    end: int


class Splitter:
    """Finds, for each blob, which literals it can take from what was recorded before.

    ``tips`` conversations are followed at the same time; ``window`` bytes of elements are found by content.
    """

    def __init__(
        self, stream: LiteralStream, *, tips: int = 16, window: int = 16 << 20, memory: int = 48 << 20
    ) -> None:
        self.stream = stream
        self._max_tips = tips
        self._tips: list[Tip] = []
        self._tip_memory = memory
        self._window: OrderedDict[bytes, tuple[Range, ...]] = OrderedDict()
        self._window_size = 0
        self._window_limit = window
        #: Small responses that stand in record frames.
        self.inlines = InlineWindow()
        #: Recipes written so far, and the first of them that recipes in the current frame and journal may refer to.
        self.written = 0
        self.horizon = 0
        #: Ranges of the recipes in the current frame, all together.
        self.frame_ranges = 0

    def begin_frame(self) -> None:
        """From here on recipes are in another record frame: they refer to none before."""
        self.horizon = self.written
        self.frame_ranges = 0

    def empty(self) -> Sequence[Op]:
        """The recipe of a blob that is withheld: it has none, and is counted as one."""
        self.written += 1
        return ()

    def recipe(self, pieces: Sequence[bytes]) -> Sequence[Op]:
        """Return the recipe of the blob whose bytes are ``pieces``; new bytes go to the stream."""
        if len(pieces) == 1 and len(pieces[0]) < SPLIT:
            self.written += 1
            return self._ranges_of(pieces[0])
        size = sum(map(len, pieces))
        if size < SPLIT:
            self.written += 1
            return self._ranges_of(b"".join(pieces))
        pieces = list(pieces)
        ends = list(accumulate(map(len, pieces)))
        parent, plan = self._align(pieces, ends)
        ops, ranges = self._build(plan, parent)
        if len(ranges) > _MAX_RANGES or self._spread(ranges) > max(MAX_FRAMES, 2 + size // CUT):
            ops = list(self._store(b"".join(pieces)))
            ranges = [op for op in ops if type(op) is Range]
        self._remember(pieces, ends, ranges, parent, plan)
        self.written += 1
        self.frame_ranges += len(ranges)
        return ops

    def learn(self, pieces: Sequence[bytes], recipe: Sequence[Range]) -> None:
        """Let later blobs reuse a blob that is stored already (a request of a base recording)."""
        pieces = list(pieces)
        ends = list(accumulate(map(len, pieces)))
        whole = Recipe(recipe)
        self._remember(pieces, ends, whole.ranges, None, [])
        begin = 0
        for piece, end in zip(pieces, ends, strict=True):
            if len(piece) >= _MIN_ELEMENT:
                ranges = cut(whole, begin, end)
                if ranges is not None:
                    self._know(piece, tuple(ranges))
            begin = end
        # It stands in no frame of this recording: no recipe may refer to it as one that came before.
        self.written += 1

    # Alignment with an earlier blob

    def _align(self, pieces: list[bytes], ends: list[int]) -> tuple[Tip | None, list[Copy | bytes]]:
        best: tuple[Tip, list[tuple[int, int, int]]] | None = None
        best_size = 0
        long = max(map(len, pieces)) >= _LONG
        for tip in self._tips:
            runs = _matches(pieces, tip.pieces)
            size = sum(ends[i + n - 1] - (ends[i - 1] if i else 0) for i, _, n in runs)
            if long and size * 2 <= ends[-1]:
                size += _alike(pieces, tip.pieces, runs)
            if size > best_size:
                best, best_size = (tip, runs), size
                # Half of it in common is the same conversation, or as good as: no need to look at every tip.
                if size * 2 > ends[-1]:
                    break
        if best is None:
            return None, list(pieces)
        tip, runs = best
        plan: list[Copy | bytes] = []
        done = before = 0
        for i, j, n in (*runs, (len(pieces), len(tip.pieces), 0)):
            if long and before < j:
                self._compare(pieces[done:i], tip, before, j, plan)
            else:
                plan += pieces[done:i]
            if n:
                plan.append(Copy(tip.ends[j - 1] if j else 0, tip.ends[j + n - 1]))
                # The parent's objects take the place of equal new ones, which can then be freed.
                pieces[i : i + n] = tip.pieces[j : j + n]
            done, before = i + n, j + n
        return tip, plan

    def _compare(self, pieces: list[bytes], tip: Tip, first: int, last: int, plan: list[Copy | bytes]) -> None:
        """Plan ``pieces``, which stand where the parent has other ones (``first`` … ``last``), byte by byte."""
        number = first
        for piece in pieces:
            if len(piece) < _LONG or piece in self._window:
                plan.append(piece)
                number += 1
                continue
            while number < last and len(tip.pieces[number]) < _LONG:
                number += 1
            if number >= last:
                plan.append(piece)
                continue
            origin = tip.ends[number] - len(tip.pieces[number])
            done = 0
            for start, of, length in _common(piece, tip.pieces[number]):
                begin, end = tip.recipe.whole_quads(origin + of, origin + of + length)
                if end - begin < _MIN_COPY:
                    continue
                start += begin - origin - of
                if start > done:
                    plan.append(piece[done:start])
                plan.append(Copy(begin, end))
                done = start + end - begin
            if done < len(piece):
                plan.append(piece[done:])
            number += 1

    def _build(self, plan: list[Copy | bytes], parent: Tip | None) -> tuple[list[Op], list[Range]]:
        ops: list[Op] = []
        ranges: list[Range] = []
        back = 0
        if parent is not None and parent.number >= self.horizon:
            back = self.written - parent.number
        for item in plan:
            if type(item) is Copy:
                assert parent is not None
                self._copy(parent.recipe, item, back, ops, ranges)
                continue
            for new in self._new_ranges(item):  # type: ignore[arg-type]
                last = ranges[-1] if ranges else None
                if (
                    last is not None
                    and not last.flags
                    and not new.flags
                    and last.offset + last.length == new.offset
                    and type(ops[-1]) is Range
                ):
                    ranges[-1] = ops[-1] = Range(last.offset, last.length + new.length, 0)
                else:
                    ranges.append(new)
                    ops.append(new)
        return ops, ranges

    def _copy(self, recipe: Recipe, span: Copy, back: int, ops: list[Op], ranges: list[Range]) -> None:
        ends = recipe.ends
        first = bisect_right(ends, span.start)
        begin = ends[first - 1] if first else 0
        head_end = ends[first]
        if begin != span.start or head_end > span.end:
            stop = min(span.end, head_end)
            self._explicit(recipe, span.start, stop, ops, ranges)
            if stop == span.end:
                return
            first += 1
        last = bisect_right(ends, span.end, lo=first)
        if last > first:
            whole = recipe.ranges[first:last]
            ranges += whole
            if back and len(whole) > 1:
                ops.append(Run(back, first, last - first))
            else:
                ops += whole
        done = ends[last - 1] if last else 0
        if done < span.end:
            self._explicit(recipe, max(done, span.start), span.end, ops, ranges)

    def _explicit(self, recipe: Recipe, start: int, end: int, ops: list[Op], ranges: list[Range]) -> None:
        found = cut(recipe, start, end)
        if found is None:
            raise AssertionError("pieces end at quads")  # pragma: no cover - base64 runs lie inside one piece
        ranges += found
        ops += found

    def _spread(self, ranges: Sequence[Range]) -> int:
        """About how many frames a reader of these ranges needs, or so few that it does not matter."""
        frames = self.inlines.frames + self.stream.end // CUT + 1
        if frames <= MAX_FRAMES:
            return frames
        frame_of = self.inlines.frame_of
        inline = {frame_of(r.offset) for r in ranges if r.offset >= INLINE_SPACE}
        own = [r for r in ranges if r.offset < INLINE_SPACE]
        return len({r.offset // CUT for r in own} | {(r.offset + r.length - 1) // CUT for r in own}) + len(inline)

    # New bytes, or bytes known by content

    def _new_ranges(self, piece: bytes) -> Iterator[Range]:
        """The ranges of a piece that the parent does not have: known by content, quoted from responses, or stored."""
        if piece in self._window:
            yield from self._ranges_of(piece)
            return
        done = 0
        for start, end, offset in self.inlines.quotes(piece):
            if start > done:
                yield from self._ranges_of(piece[done:start])
            yield Range(offset, end - start, 0)
            done = end
        if done < len(piece):
            yield from self._ranges_of(piece[done:])

    def _ranges_of(self, piece: bytes) -> tuple[Range, ...]:
        if len(piece) < _MIN_ELEMENT:
            return self._store(piece)
        known = self._window.get(piece)
        if known is not None:
            self._window.move_to_end(piece)
            return known
        head = _bin_head(piece) if piece[0] in _BIN_SIZES else 0
        if head:
            # The bytes are to be found whatever stands before them, and as the decoded form of base64.
            body = piece[head:]
            known = self._window.get(body)
            if known is not None:
                self._window.move_to_end(body)
                return (*self._store(piece[:head]), *known)
        if not head and len(piece) < MIN_RUN:
            # What most pieces are: neither known nor with anything in them that is.
            ranges: tuple[Range, ...] = (Range(self.stream.add(piece), len(piece), 0),)
            self._know(piece, ranges)
            return ranges
        ranges = self._store(piece)
        if head and len(ranges) == 1:
            self._know(body, (Range(ranges[0].offset + head, len(body), 0),))
        else:
            self._know(piece, ranges)
        return ranges

    def _store(self, piece: bytes) -> tuple[Range, ...]:
        size = len(piece)
        found = find_base64(piece) if size >= MIN_RUN else ()
        if not found or len(found) > MAX_RUNS:
            return (Range(self.stream.add(piece), size, 0),) if size else ()
        ranges: list[Range] = []
        done = 0
        for item in found:
            if item.start > done:
                ranges.append(Range(self.stream.add(piece[done : item.start]), item.start - done, 0))
            flags = BASE64 | (URLSAFE if item.urlsafe else 0) | (0 if item.padded else UNPADDED)
            known = self._window.get(item.data)
            if known is not None and len(known) == 1 and not known[0].flags:
                self._window.move_to_end(item.data)
                offset = known[0].offset
            else:
                offset = self.stream.add(item.data)
                self._know(item.data, (Range(offset, len(item.data), 0),))
            ranges.append(Range(offset, len(item.data), flags))
            done = item.end
        if done < len(piece):
            ranges.append(Range(self.stream.add(piece[done:]), len(piece) - done, 0))
        return tuple(ranges)

    def _know(self, piece: bytes, ranges: tuple[Range, ...]) -> None:
        window = self._window
        if piece not in window:
            self._window_size += len(piece) + 200
        window[piece] = ranges
        while self._window_size > self._window_limit and len(window) > 1:
            old, _ = window.popitem(last=False)
            self._window_size -= len(old) + 200

    def _remember(
        self,
        pieces: list[bytes],
        ends: list[int],
        ranges: list[Range],
        parent: Tip | None,
        plan: Sequence[Copy | bytes],
    ) -> None:
        tip = Tip(pieces, ends, Recipe(ranges), self.written)
        tips = self._tips
        if parent is not None:
            shared = sum(item.end - item.start for item in plan if type(item) is Copy)
            if shared * 2 > parent.ends[-1]:
                tips.remove(parent)
        tips.insert(0, tip)
        kept = 0
        for index, old in enumerate(tips):
            kept += old.ends[-1]
            if index and (index >= self._max_tips or kept > self._tip_memory):
                del tips[index:]
                break


def _text_head(piece: bytes) -> int:
    """Bytes of the MessagePack header of a long string or binary value; its length differs from call to call."""
    return {0xDA: 3, 0xDB: 5, 0xC5: 3, 0xC6: 5}.get(piece[0], 0)


def _alike(pieces: Sequence[bytes], others: Sequence[bytes], runs: Sequence[tuple[int, int, int]]) -> int:
    """About how many bytes the long pieces outside of ``runs`` have in common at their beginnings and ends."""
    total = done = before = 0
    for i, j, n in (*runs, (len(pieces), len(others), 0)):
        theirs = [other for other in others[before:j] if len(other) >= _LONG]
        for new, old in zip((p for p in pieces[done:i] if len(p) >= _LONG), theirs, strict=False):
            a, b = _text_head(new), _text_head(old)
            limit = min(len(new) - a, len(old) - b)
            same = same_beginning(new, old, a, b, limit)
            total += same + same_end(new, old, len(new), len(old), limit - same)
        done, before = i + n, j + n
    return total


def _common(new: bytes, old: bytes) -> list[tuple[int, int, int]]:
    """Runs of equal bytes (start in new, start in old, length), in order, by few and cheap comparisons."""
    i, j = _text_head(new), _text_head(old)
    tail = same_end(new, old, len(new), len(old), min(len(new) - i, len(old) - j))
    end, stop = len(new) - tail, len(old) - tail
    runs: list[tuple[int, int, int]] = []
    for _ in range(_MAX_DIFFERENCES):
        same = same_beginning(new, old, i, j, min(end - i, stop - j))
        if same >= _MIN_COPY:
            runs.append((i, j, same))
        i += same
        j += same
        if end - i < _MIN_COPY or stop - j < _MIN_COPY:
            break
        # Go on behind the difference: bytes of the new piece, ever farther ahead, looked for in the old one.
        for ahead in (0, 32, 128, 512, 2048, 8192):
            if i + ahead + _ANCHOR > end:
                found = -1
                break
            found = old.find(new[i + ahead : i + ahead + _ANCHOR], j, min(stop, j + _REACH))
            if found >= 0:
                break
        if found < 0:
            break
        back = same_end(new, old, i + ahead, found, min(ahead, found - j))
        i, j = i + ahead - back, found - back
    if tail >= _MIN_COPY:
        runs.append((end, stop, tail))
    return runs


#: First bytes of a binary value, and the bytes that its length takes.
_BIN_SIZES = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def _bin_head(piece: bytes) -> int:
    """Bytes of the MessagePack header where ``piece`` is one binary value; 0 where it is not."""
    size = _BIN_SIZES.get(piece[0], 0)
    return 1 + size if size and int.from_bytes(piece[1 : 1 + size], "big") == len(piece) - 1 - size else 0


def _matches(new: list[bytes], old: list[bytes]) -> list[tuple[int, int, int]]:
    """Runs of equal pieces (start in new, start in old, count): from the beginning on, then at the end."""
    runs: list[tuple[int, int, int]] = []
    i = j = 0
    n, m = len(new), len(old)
    while i < n and j < m:
        same = next(compress(count(), map(ne, islice(new, i, None), islice(old, j, None))), _NEVER)
        same = min(same, n - i, m - j)
        if same:
            runs.append((i, j, same))
            i += same
            j += same
        elif len(new[i]) <= _GLUE and len(old[j]) <= _GLUE:
            i += 1
            j += 1
        else:
            break
    tail = min(n - i, m - j)
    if tail > 0:
        back = next(compress(count(), map(ne, reversed(new), reversed(old))), _NEVER)
        tail = min(tail, back)
        if tail:
            runs.append((n - tail, m - tail, tail))
    return runs
