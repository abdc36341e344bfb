"""Packs: there, of their size, under their digest, every frame sound. Read in pieces, never whole."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from blake3 import blake3

from replaypack._read.packs import Frame
from replaypack.errors import FormatError, ObjectMissingError, ObjectTooShortError
from replaypack.format.digests import short_digest
from replaypack.format.frame import MAX_COMPRESSED, decompress
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import pack_key_of
from replaypack.format.pack import HEADER, TRAILER_SIZE, FrameInfo, FrameKind, Toc, check_header, parse_toc
from replaypack.format.pack import parse_trailer as _parse_trailer
from replaypack.format.table import Location
from replaypack.storage import Storage

from ._faults import Fault, Level, fault
from ._state import State

__all__ = ["PackChecker"]

_Hold = Callable[[Frame, bytes], None]

_TAIL = 64 << 10
_CHUNK = 8 << 20
_TOCS = 64
_MOST_THREADS = 8
#: Frames with more raw bytes are decompressed one at a time, whatever the number of threads.
_LARGE = 8 << 20


class PackChecker:
    """Checks packs, each once, and remembers which of them, and which frames, cannot be used."""

    def __init__(self, storage: Storage, state: State | None = None) -> None:
        self._storage = storage
        self._state = state if state is not None else State(None, "")
        # Several threads check packs: the tables of contents are shared, and one at a time holds a large frame.
        self._lock = threading.Lock()
        self._large = threading.Lock()
        self._tocs: OrderedDict[PackRef, dict[int, FrameInfo]] = OrderedDict()
        # By size too: two manifests may name one pack and disagree.
        self._seen: dict[PackRef, int] = {}
        #: Packs that are missing or not of their size.
        self.lost: set[PackRef] = set()
        #: Packs without a usable table of contents.
        self.untold: set[PackRef] = set()
        #: Frames that were reported, by pack and byte offset.
        self.bad_frames: set[tuple[str, int]] = set()

    def check_all(
        self,
        refs: Sequence[PackRef],
        *,
        frames: bool,
        progress: Callable[[int, int], None],
        hold: _Hold | None = None,
    ) -> Iterator[Fault]:
        """Yield what is wrong with the packs, in their order; as many are checked at a time as there are cores.

        ``hold`` is told the raw bytes of each sound frame, but for large ones, by any thread.
        """
        wanted = list(dict.fromkeys(refs))

        def check(ref: PackRef) -> list[Fault]:
            fresh = frames and self._seen.get(ref, 0) < 2
            with self._lock:
                known = fresh and self._state.has_pack(ref.digest, ref.size)
            found = list(self.check(ref, frames=frames and not known, hold=hold))
            if known:
                self._seen[ref] = 2
            elif fresh and not found and ref not in self.lost and ref not in self.untold:
                with self._lock:
                    self._state.add_pack(ref.digest, ref.size)
            return found

        workers = min(_cores(), _MOST_THREADS)
        if workers == 1 or len(wanted) < 2:
            for number, ref in enumerate(wanted):
                progress(number, len(wanted))
                yield from check(ref)
        else:
            pool = ThreadPoolExecutor(workers, thread_name_prefix="replaypack-verify")
            try:
                ahead: deque[Future[list[Fault]]] = deque()
                waiting = iter(wanted)
                for number in range(len(wanted)):
                    progress(number, len(wanted))
                    while len(ahead) < 2 * workers and (ref_ := next(waiting, None)) is not None:
                        ahead.append(pool.submit(check, ref_))
                    yield from ahead.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)
        progress(len(wanted), len(wanted))

    def check(self, ref: PackRef, *, frames: bool, hold: _Hold | None = None) -> Iterator[Fault]:
        """Yield what is wrong with one pack; with ``frames`` it is read from its first byte to its last.

        ``hold`` as in `check_all`.
        """
        depth = 2 if frames else 1
        before = self._seen.get(ref, 0)
        self._seen[ref] = max(before, depth)
        toc: Toc | None = None
        if not before:
            toc, faults = self._structure(ref)
            yield from faults
        if frames and before < depth and ref not in self.lost:
            if toc is None and ref not in self.untold:
                toc, _ = self._structure(ref)
            try:
                yield from self._frames(ref, toc, hold)
            except (ObjectMissingError, ObjectTooShortError):
                self.lost.add(ref)
                yield fault("pack.missing", pack_key_of(ref.digest), "the pack vanished while it was read")

    def named(self) -> set[str]:
        """The digests of the packs that it was asked to check: some manifest names each of them."""
        return {ref.digest for ref in self._seen}

    def seen(self, refs: Iterable[PackRef], level: Level) -> None:
        """Take packs as checked at a level, and what is wrong with them as told."""
        for ref in refs:
            self._seen[ref] = max(self._seen.get(ref, 0), 1 if level == "structure" else 2)

    def missing(self, ref: PackRef) -> bool:
        """Whether the pack was reported as missing or cut off."""
        return ref in self.lost

    def frame(self, ref: PackRef, offset: int) -> FrameInfo | None:
        """What the pack's table of contents says of the frame at ``offset``."""
        with self._lock:
            frames = self._tocs.get(ref)
            if frames is not None:
                self._tocs.move_to_end(ref)
        if frames is None:
            toc, _ = self._structure(ref)
            frames = {frame.offset: frame for frame in toc.frames} if toc is not None else {}
        return frames.get(offset)

    def _structure(self, ref: PackRef) -> tuple[Toc | None, list[Fault]]:
        key, size = pack_key_of(ref.digest), ref.size
        tail_size = min(size, _TAIL)
        try:
            head, tail = self._storage.get_ranges(
                [(key, 0, min(size, len(HEADER))), (key, size - tail_size, tail_size)]
            )
        except ObjectMissingError as error:
            self.lost.add(ref)
            what = "missing, or not permitted to be seen" if error.may_be_denied else "missing"
            return None, [fault("pack.missing", key, f"the pack of {size} bytes is {what}")]
        except ObjectTooShortError:
            self.lost.add(ref)
            return None, [fault("pack.size", key, f"the pack is shorter than the {size} bytes it should have")]
        if self._is_longer(key, size):
            self.untold.add(ref)
            return None, [fault("pack.size", key, f"the pack does not end at the {size} bytes it should have")]
        faults = []
        try:
            check_header(head, where=key)
        except FormatError as error:
            faults.append(fault("pack.header", key, error.detail))
        try:
            length, raw, digest = _parse_trailer(tail, where=key)
            end = size - TRAILER_SIZE
            if length > end - len(HEADER):
                raise FormatError("the table of contents is longer than the pack", where=key)
            body = (
                tail[-TRAILER_SIZE - length : -TRAILER_SIZE]
                if length + TRAILER_SIZE <= tail_size
                else self._storage.get_range(key, end - length, length)
            )
            toc = parse_toc(body, raw, digest, size, where=key)
        except FormatError as error:
            self.untold.add(ref)
            return None, [*faults, fault("toc.corrupted", key, error.detail)]
        with self._lock:
            self._tocs[ref] = {frame.offset: frame for frame in toc.frames}
            while len(self._tocs) > _TOCS:
                self._tocs.popitem(last=False)
        return toc, faults

    def _is_longer(self, key: str, size: int) -> bool:
        # The last bytes would not tell: they may be the same again.
        with contextlib.suppress(ObjectTooShortError, ObjectMissingError):
            return bool(self._storage.get_range(key, size, 1))
        return False

    def _frames(self, ref: PackRef, toc: Toc | None, hold: _Hold | None) -> Iterator[Fault]:
        key = pack_key_of(ref.digest)
        hasher = blake3()
        buffer = bytearray()
        start = 0  # of the buffer, in the pack
        waiting = iter(toc.frames if toc is not None else ())
        frame = next(waiting, None)
        found = 0
        for position in range(0, ref.size, _CHUNK):
            chunk = self._storage.get_range(key, position, min(_CHUNK, ref.size - position))
            hasher.update(chunk)
            buffer += chunk
            while frame is not None and (
                frame.offset + frame.length <= start + len(buffer) or frame.length > MAX_COMPRESSED
            ):
                at = frame.offset - start
                with self._large if frame.raw > _LARGE else contextlib.nullcontext():
                    problem, raw = _checked(frame, memoryview(buffer)[at : at + frame.length])
                    if hold is not None and raw is not None and frame.raw <= _LARGE:
                        hold(Frame(ref, Location(0, frame.offset, frame.length), frame.raw, frame.digest), raw)
                    del raw
                if problem is not None:
                    found += 1
                    self.bad_frames.add((ref.digest, frame.offset))
                    code = "page.corrupted" if frame.kind == FrameKind.PAGE else "frame.corrupted"
                    yield fault(code, f"{key} at byte {frame.offset}", f"{_describe(frame)}: {problem}")
                frame = next(waiting, None)
            keep = frame.offset if frame is not None else position + len(chunk)
            cut = min(max(0, keep - start), len(buffer))
            del buffer[:cut]
            start += cut
        if hasher.hexdigest() != ref.digest and not found and toc is not None:
            yield fault("pack.digest", key, "the pack's bytes do not match the digest that is its name")


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _checked(frame: FrameInfo, data: memoryview) -> tuple[str, None] | tuple[None, bytes]:
    """What is wrong with a frame, or else its raw bytes."""
    if frame.length > MAX_COMPRESSED:
        return f"{frame.length} bytes are more than a frame may have", None
    try:
        raw = decompress(data, frame.raw)
    except FormatError as error:
        return error.detail, None
    return (None, raw) if short_digest(raw) == frame.digest else ("its bytes do not match their digest", None)


def _describe(frame: FrameInfo) -> str:
    if frame.kind == FrameKind.RECORD:
        return f"record frame with records {frame.first} to {frame.first + frame.count - 1}"
    if frame.kind == FrameKind.LITERAL:
        return f"literal frame with {frame.count} bytes from {frame.first}"
    return f"page of table {frame.first} with {frame.count} entries"
