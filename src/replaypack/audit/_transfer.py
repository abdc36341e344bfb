"""Packs on their way from one store to another: a few at a time, checked, never twice."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from replaypack._write.publish import UPLOADED_LONG_AGO
from replaypack.errors import (
    DAMAGED,
    FormatError,
    ObjectExistsError,
    ObjectMissingError,
    ObjectTooShortError,
    ReplaypackError,
    without_frames,
)
from replaypack.format.digests import digest
from replaypack.format.manifest_members import PackRef
from replaypack.format.names import pack_key_of
from replaypack.format.pack import TRAILER_SIZE, parse_trailer
from replaypack.storage import Storage

__all__ = ["Damaged", "Stopped", "Transfer", "has_pack", "reading"]

#: Bytes of packs in memory at a time. A larger one goes alone.
_IN_FLIGHT = 128 << 20
#: Bytes that are compared of a pack that both sides have.
_SAMPLE = 1024


def has_pack(storage: Storage, name: str, size: int | None) -> bool:
    """Whether a store has a pack that ends as one, at ``size`` bytes where that is known. What is in it is not read."""
    key = pack_key_of(name)
    try:
        if size is None:
            parse_trailer(storage.get_suffix(key, TRAILER_SIZE))
        else:
            parse_trailer(storage.get_range(key, size - TRAILER_SIZE, TRAILER_SIZE))
    except DAMAGED:
        return False
    return True


class Stopped(Exception):
    """Another part of the work failed, or was interrupted; whoever did the former raises what it was."""


class Damaged(Exception):
    """What is to be copied is damaged in the source, or not there: ``error`` says what of it."""

    def __init__(self, error: ReplaypackError) -> None:
        super().__init__(error.message)
        error.hint = error.hint or "see what `verify` says of the source, or `recover` it into another place"
        self.error = error


@contextmanager
def reading() -> Iterator[None]:
    """Where nothing but the source is asked: what is wrong with it is `Damaged`; other trouble is raised as it is."""
    try:
        yield
    except DAMAGED as error:
        raise Damaged(error) from error


class Transfer:
    """Sends packs to ``target``, ``jobs`` at a time; leaving the context waits for those under way.

    ``moved`` is told the bytes of each pack of the source that has arrived. Safe for threads.
    """

    def __init__(self, source: Storage, target: Storage, *, jobs: int, new: bool, moved: Callable[[int], None]) -> None:
        self._source = source
        self.target = target
        #: Whether the target has nothing yet: then nothing needs to be asked for.
        self._new = new
        self._moved = moved
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="replaypack-copy")
        self._room = threading.Condition()
        self._flying = 0
        self._stopped = False
        self._sent: dict[str, Future[bool]] = {}
        #: When packs were sent (seconds since the epoch).
        self._when: dict[str, float] = {}
        self.packs = self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.stop()
        self._pool.shutdown(wait=True, cancel_futures=error is not None)

    def stop(self) -> None:
        """Send nothing more: from here on `Stopped` is raised."""
        with self._room:
            self._stopped = True
            self._room.notify_all()

    def _there(self, ref: PackRef) -> bool:
        return has_pack(self.target, ref.digest, ref.size)

    def missing(self, refs: Collection[PackRef]) -> set[str]:
        """The digests of those packs that the target does not have yet; asks for all of them at the same time."""
        return {ref.digest for ref in refs} if self._new else self.gone(refs)

    def gone(self, refs: Collection[PackRef]) -> set[str]:
        """The digests of those packs that are not there (any more). They may be sent again."""
        found = self._pool.map(self._there, refs)
        gone = {ref.digest for ref, there in zip(refs, found, strict=True) if not there}
        with self._room:
            for name in gone:
                self._sent.pop(name, None)
        return gone

    def long_ago(self, ref: PackRef) -> bool:
        """Whether a pack was sent so long ago that it is to be looked for before a manifest names it."""
        with self._room:
            return self._when.get(ref.digest, math.inf) < time.time() - UPLOADED_LONG_AGO

    def doubtful(self, ref: PackRef) -> bool:
        """Whether a pack was sent to where there are recordings: a purge of one may have taken it for a leftover."""
        with self._room:
            return not self._new and ref.digest in self._when

    def unproven(self, refs: Collection[PackRef]) -> set[str]:
        """The digests of those packs, all of them `there`, of which the source does not show that it has them too.

        A manifest that names a pack is no proof: whoever knows a pack's digest would have its bytes become theirs. A
        few bytes at a place that nobody knows before are compared.
        """
        found = self._pool.map(self._same, refs)
        return {ref.digest for ref, same in zip(refs, found, strict=True) if not same}

    def _same(self, ref: PackRef, made: bytes | None = None) -> bool:
        """Whether both sides have the same few bytes of a pack; ``made`` is the pack where it is not the source's."""
        key, size = pack_key_of(ref.digest), min(ref.size, _SAMPLE)
        start = secrets.randbelow(ref.size - size + 1)
        try:
            own = self._source.get_range(key, start, size) if made is None else made[start : start + size]
            return own == self.target.get_range(key, start, size)
        except (ObjectMissingError, ObjectTooShortError):
            return False

    def send(self, ref: PackRef) -> Future[bool]:
        """Send a whole pack of the source; blocks while there is no room. Not sent again where it was."""
        with self._room:
            known = self._sent.get(ref.digest)
            if known is not None:
                return known
            self._make_room(ref.size)
            # Another thread may have taken it up meanwhile.
            if ref.digest in self._sent:
                self._free(ref.size)
                return self._sent[ref.digest]
            future = self._sent[ref.digest] = self._pool.submit(self._carry, ref, None)
        return future

    def upload(self, ref: PackRef, data: bytes) -> Future[bool]:
        """Send a pack that was made here; blocks while there is no room. The result: whether it was sent, or there."""
        with self._room:
            self._make_room(ref.size)
            return self._pool.submit(self._carry, ref, data)

    def _make_room(self, size: int) -> None:
        while not self._stopped and self._flying and self._flying + size > _IN_FLIGHT:
            self._room.wait()
        if self._stopped:
            raise Stopped("stopped")
        self._flying += size

    def _free(self, size: int) -> None:
        self._flying -= size
        self._room.notify_all()

    def _carry(self, ref: PackRef, data: bytes | None) -> bool:
        key = pack_key_of(ref.digest)
        whole = data is None
        try:
            if self._stopped:
                raise Stopped("stopped")
            if data is None:
                data = self._fetch(ref)
            elif not self._new and self._there(ref) and self._same(ref, data):
                return False
            try:
                self.target.put_new(key, data)
            except ObjectExistsError as error:
                error.hint = (
                    "a damaged pack is in the way: `replaypack verify` names it; "
                    "delete it and copy again with --if-exists replace"
                )
                raise
            with self._room:
                self.packs += 1
                self.bytes += ref.size
                self._when[ref.digest] = time.time()
            if whole:
                self._moved(ref.size)
            return True
        except Damaged as damage:
            without_frames(damage)  # it is kept until the end, and would keep what was read
            raise
        finally:
            with self._room:
                self._free(ref.size)

    def _fetch(self, ref: PackRef) -> bytes:
        key = pack_key_of(ref.digest)
        with reading():
            data = self._source.get(key)
            if len(data) != ref.size or digest(data).hex() != ref.digest:
                raise FormatError("the pack's bytes do not match the digest that is its name", where=key)
        return data
