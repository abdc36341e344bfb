"""Literals of many recordings in one address space: what one has, the others take from there.

Recordings that are written in one run share their literal frames. Each lists in its tables the frames that it uses, at
the same offsets; what it does not use are gaps for it. Frames with bytes of one recording alone go into its own packs;
those with bytes of several into packs that name no recording: whoever copies one of them must not copy the others.
A recording that is not written after all leaves no bytes in frames of others: whoever purges it would not find them.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from blake3 import blake3

from replaypack.format.frame import Compressor
from replaypack.format.manifest_members import PackRef
from replaypack.format.recipe import Op, Range, Recipe, cut
from replaypack.format.table import INLINE_SPACE

from .inlines import InlineWindow
from .literals import LARGE, Copy, LiteralStream, Splitter, Tip
from .segment import LiteralFrame, SegmentBuilder, Upload, UploadLarge

__all__ = ["GROUP", "LITERAL_FRAME", "SharedLiterals", "User"]

#: Literal frames are cut at this many raw bytes (a multiple of three, and less than a large literal has).
LITERAL_FRAME = (4 << 20) - 1
#: Recordings that have less are gathered until a frame of them has this much.
GROUP = 1 << 20
#: Each pack of shared frames has a name that no pack had before: what is marked for collection, or was deleted, is
#: never written again. A frame of it has zstd blocks that begin at random places; a small one has random bytes with it.
_CUTS = 4
_CUTTABLE = 1024
_SALT = 16
#: Fewer bytes are not taken from another recording: what is purged there should concern it only for something.
_MIN_SHARED = 96
#: Pieces that are found by their content, the last ones used.
_WINDOW = 1 << 19


class _DigestWindow:
    """What pieces are known, by their digests: the bytes themselves would be the whole archive."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[Range, ...]] = OrderedDict()

    def __contains__(self, piece: bytes) -> bool:
        return blake3(piece).digest() in self._known

    def get(self, piece: bytes) -> tuple[Range, ...] | None:
        key = blake3(piece).digest()
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def move_to_end(self, piece: bytes) -> None:
        """`get` did that."""

    def put(self, piece: bytes, ranges: tuple[Range, ...]) -> None:
        self._known[blake3(piece).digest()] = ranges
        if len(self._known) > _WINDOW:
            self._known.popitem(last=False)


class _WideSplitter(Splitter):
    """Finds pieces of all recordings of the run."""

    def __init__(self, stream: LiteralStream, frames_of: Callable[[Iterable[Range]], set[int]]) -> None:
        super().__init__(stream)
        self._frames_of = frames_of
        self._own = 0
        self.forget()

    def forget(self) -> None:
        """Know nothing from here on."""
        self._tips = []
        self._window = _DigestWindow()  # type: ignore[assignment]

    def begin_recording(self) -> None:
        """What follows is another recording's: inline responses of the one before cannot be reached from it."""
        self.inlines = InlineWindow()
        self._own = self.written
        tips, self._tips = self._tips, []
        for tip in tips:
            inline = (at for at, item in enumerate(tip.recipe.ranges) if item.offset >= INLINE_SPACE)
            first = next(inline, None)
            if first is not None:
                count = bisect_right(tip.ends, tip.recipe.ends[first - 1] if first else 0)
                ranges = cut(tip.recipe, 0, tip.ends[count - 1]) if count else None
                if ranges is None:
                    continue
                tip = tip._replace(pieces=tip.pieces[:count], ends=tip.ends[:count], recipe=Recipe(ranges))
            if all(tip.pieces != other.pieces for other in self._tips):
                self._tips.append(tip)

    def _align(self, pieces: list[bytes], ends: list[int]) -> tuple[Tip | None, list[Copy | bytes]]:
        tip, plan = super()._align(pieces, ends)
        if tip is not None and tip.number < self._own:
            done = 0
            for index, item in enumerate(plan):
                size = len(item) if isinstance(item, bytes) else item.end - item.start
                if size < _MIN_SHARED and not isinstance(item, bytes):
                    plan[index] = b"".join(pieces)[done : done + size]
                done += size
        return tip, plan

    def _know(self, piece: bytes, ranges: tuple[Range, ...]) -> None:
        self._window.put(piece, ranges)  # type: ignore[attr-defined]

    def _spread(self, ranges: Sequence[Range]) -> int:
        inline = {self.inlines.frame_of(item.offset) for item in ranges if item.offset >= INLINE_SPACE}
        return len(self._frames_of(ranges)) + len(inline)


class User:
    """One recording that is written: its segment, and the literal frames that it uses, by number."""

    def __init__(self, builder: SegmentBuilder, start: int) -> None:
        self.builder = builder
        #: Where its literals begin.
        self.start = start
        self.used: set[int] = set()
        self.own: set[int] = set()


class SharedLiterals:
    """The literals of a run, and who uses them. For one thread; frames are compressed by ``run`` (a ``map``)."""

    def __init__(self, compressor: Compressor, run: Callable[..., Iterable[bytes]]) -> None:
        self._compressor = compressor
        self._run = run
        self._stream = LiteralStream(cut=LITERAL_FRAME)
        self._frames: list[LiteralFrame] = []
        self._starts: list[int] = []
        self.splitter = _WideSplitter(self._stream, self._numbers)
        #: Frames that belong to several recordings, and who waits for the one that is being filled.
        self._common = SegmentBuilder(0, 0)
        self._sharers: list[User] = []
        self._last_common: LiteralFrame | None = None
        #: Frames of recordings that wait, in packs of theirs: what uses these waits, too.
        self._unsettled: set[int] = set()

    @property
    def size(self) -> int:
        """Bytes that are held of frames of several recordings."""
        return self._common.size

    @property
    def open_size(self) -> int:
        """Raw bytes of the frame that is being filled."""
        return self._stream.end - self._stream.start

    def begin(self, builder: SegmentBuilder) -> User:
        """Begin a recording, with ``builder`` for its segment."""
        self.splitter.begin_recording()
        return User(builder, self._stream.end)

    def _numbers(self, ranges: Iterable[Range]) -> set[int]:
        """The frames that ranges lie in; the one that is being filled has the number after the last."""
        found: set[int] = set()
        starts, open_start = self._starts, self._stream.start
        for offset, length, _ in ranges:
            if offset >= INLINE_SPACE:
                continue
            first, last = (
                len(starts) if at >= open_start else bisect_right(starts, at) - 1
                for at in (offset, offset + length - 1)
            )
            found.update(range(first, last + 1))
        return found

    def recipe(self, pieces: Sequence[bytes], user: User, upload_large: UploadLarge) -> Sequence[Op]:
        """The recipe of a blob of ``user``; closed frames go where they belong."""
        before = self._stream.end
        ops = self.splitter.recipe(pieces)
        if self._stream.closed:
            self._take_closed(user, upload_large)
        user.used |= self._numbers(op for op in ops if type(op) is Range)
        if self._stream.end > before and self.open_size:
            user.used.add(len(self._frames))  # it has bytes there, even if the recipe does without them
        self._stream.take_fresh()
        return ops

    def _take_closed(self, user: User | None, upload_large: UploadLarge) -> None:
        """Take in what was closed. Its bytes are those of ``user``, and of who waits for it."""
        for offset, raw in self._stream.closed:
            self._starts.append(offset)
            if len(raw) >= LARGE:
                placed = upload_large(raw)
                self._starts[-1:] = [offset + start for start, *_ in placed]
                self._frames += (
                    LiteralFrame.elsewhere(offset + start, size, size, digest, pack, at)
                    for start, size, digest, pack, at in placed
                )
                continue
            if user is None or any(other is not user for other in self._sharers):
                builder = self._common
            else:
                builder = user.builder
                user.own.add(len(self._frames))
            self._frames.append(builder.add_literal_frame(offset, raw))
            if builder is self._common:
                self._last_common = self._frames[-1]
            self._sharers = []
        self._stream.closed.clear()

    def cut(self, user: User | None, upload_large: UploadLarge) -> None:
        """Close the frame that is being filled; it is ``user``'s own where nobody else needs it."""
        self._stream.cut()
        self._take_closed(user, upload_large)

    def forget(self) -> None:
        """What was written so far is not to be used by recordings that follow."""
        self.splitter.forget()

    def give_up(self, user: User, upload_large: UploadLarge) -> None:
        """``user``, the last to write, is not written after all: its bytes in frames of others become zeros."""
        self.forget()
        self._take_closed(user, upload_large)
        self._stream.blank(user.start)
        for number, frame in enumerate(self._frames):
            if number not in user.own and frame.placed is None and frame.first + frame.items > user.start:
                frame.blank(user.start)
        self.cut(user, upload_large)

    def wait(self, user: User) -> None:
        """Note that ``user`` waits for frames of several recordings."""
        self._unsettled |= user.own
        if len(self._frames) in user.used:
            self._sharers.append(user)

    def ready(self, user: User) -> bool:
        """Whether all that ``user`` uses of others is in packs, of recordings that do not wait."""
        return user.used.isdisjoint(self._unsettled) and all(
            number < len(self._frames) and self._frames[number].placed is not None for number in user.used - user.own
        )

    def place(self, user: User | None, upload: Upload, upload_large: UploadLarge) -> None:
        """Close the frame that is being filled, as `cut` does; put the frames of several recordings in a pack."""
        self._unsettled.clear()
        self.cut(user, upload_large)
        if not self._common.size:
            return
        frame = self._last_common
        assert frame is not None
        raw = frame.frame
        if frame.raw < _CUTTABLE:
            self._stream.add(secrets.token_bytes(_SALT))
            self.cut(None, upload_large)
        self._common.compress(self._compressor, self._run)
        if frame.raw >= _CUTTABLE:
            cuts = sorted(secrets.randbelow(frame.raw) for _ in range(_CUTS))
            frame.frame = self._compressor.sections([raw[a:b] for a, b in pairwise([0, *cuts, frame.raw])])
        self._common.spill(None, upload, upload_large, self._compressor)
        self._common = SegmentBuilder(0, 0)

    def refer(self, user: User) -> tuple[int, list[PackRef]]:
        """Let the segment of ``user`` name the frames of others that it uses.

        Return where its literals end, and the packs that those frames lie in.
        """
        packs: dict[str, PackRef] = {}
        for number in sorted(user.used - user.own):
            frame = self._frames[number]
            assert frame.placed is not None
            user.builder.refer(frame)
            packs[frame.placed[0].digest] = frame.placed[0]
        last = max(user.used | user.own, default=None)
        end = 0 if last is None else self._frames[last].first + self._frames[last].items
        return end, list(packs.values())
