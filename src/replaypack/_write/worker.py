"""The recorder's background thread: compresses, builds segments, uploads, publishes."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from replaypack.errors import ConflictError, JournalError, PublishError, ReplaypackWarning
from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import State
from replaypack.format.record_frame import encode_frame

from .journal import JournalFile
from .publish import Progress, Publisher
from .segment import PACK_TARGET, SegmentBuilder

__all__ = ["Worker"]

#: Raw bytes that may wait for the background thread before `append` does.
MAX_WAITING = 48 << 20
#: Bytes that may be held, compressed, for a store that fails before `append` raises.
MAX_STUCK = 64 << 20


class Worker(threading.Thread):
    """The background thread: compresses, builds segments, uploads, publishes. Alone uses the publisher.

    It owns the journals that were handed to it: each is deleted when its records are published, else closed when
    the thread ends. ``close_segment`` asks the recorder to hand over what was appended, ``count`` says how much
    that is; ``journals`` is where they lie, for messages.
    """

    def __init__(
        self,
        publisher: Publisher,
        builder: SegmentBuilder,
        *,
        interval: float | None,
        close_segment: Callable[[], None],
        count: Callable[[], int],
        journals: Path,
    ) -> None:
        super().__init__(name=f"replaypack-{publisher.name}", daemon=True)
        self._close_segment = close_segment
        self._count = count
        self._journals = journals
        self._publisher = publisher
        self._builder = builder
        self._interval = interval
        self._next_flush = time.monotonic() + interval if interval else None
        self._queue: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self._room = threading.Condition()
        self._waiting = 0
        #: Finished segments that the store did not take yet, with the journal that still covers them.
        self._pending: list[tuple[SegmentBuilder, Any, JournalFile | None]] = []
        self._error: Exception | None = None
        self._handed = publisher.published
        self._stopped = False
        self._keeps_journals = False
        self._died: BaseException | None = None
        self._stuck = 0
        #: Journals of segments that are uploaded and stand in no manifest yet, and the state after them.
        self._unwritten: list[JournalFile] = []
        self._state: Progress | None = None
        self.segment_keys = 0

    # Called by the recorder's threads

    def put(self, item: tuple[Any, ...], size: int) -> None:
        if item[0] == "finish":
            self._handed = item[1].tree.count
        with self._room:
            self._waiting += size
        self._queue.put((*item, size))

    def wait_for_room(self) -> None:
        """Wait while too much is waiting; raise where nothing moves because the store fails."""
        if self._died is not None:
            raise self._publish_error(self._died)
        if self._error is not None and self._stuck + self._builder.size > MAX_STUCK:
            raise self._publish_error(self._error)
        if self._waiting <= MAX_WAITING:
            return
        with self._room:
            while self._waiting > MAX_WAITING and self.is_alive():
                if self._error is not None:
                    raise self._publish_error(self._error)
                self._room.wait(1.0)

    def unpublished(self, count: int) -> bool:
        """Whether records were appended that no segment to be published holds yet."""
        return count > self._handed

    def drain(self) -> None:
        """Wait until everything put so far is published; raises `PublishError`."""
        self._ask("drain")

    def seal(self, state: State, error: dict[str, Any] | None, progress: Progress, journal: JournalFile) -> Manifest:
        """Publish the rest, what is in ``journal`` included, and commit the revision; the thread ends."""
        result: Manifest = self._ask("seal", state, error, progress, journal)
        return result

    def stop(self) -> None:
        """End the thread without publishing what is waiting."""
        self._stopped = True
        self._queue.put(("stop", 0))
        self.join()
        self._release_journals()

    def halt(self) -> list[JournalFile]:
        """End the thread without publishing; return the journals of what it has not published, open and locked."""
        self._keeps_journals = self._stopped = True
        self._queue.put(("stop", 0))
        self.join()
        return self._unpublished_journals()

    def _ask(self, what: str, *arguments: Any) -> Any:
        reply: queue.Queue[tuple[Any, Exception | None]] = queue.Queue()
        self._queue.put((what, *arguments, reply, 0))
        while True:
            alive = self.is_alive()  # asked first: what it answered before it ended is there then
            try:
                result, error = reply.get(timeout=1.0 if alive else 0)
                break
            except queue.Empty:
                if not alive:
                    raise self._publish_error(self._died or RuntimeError("the background thread ended")) from self._died
        if error is not None:
            raise error
        return result

    def _publish_error(self, cause: BaseException) -> PublishError:
        count = self._count()
        done = self._publisher.published
        return PublishError(
            f"{done} of {count} records of {self._publisher.name!r} are published, {count - done} are safe in the "
            f"journal only: {str(cause) or type(cause).__name__}",
            published=done,
            unpublished=count - done,
            journal=str(self._journals),
            hint="mend the cause, then flush again or run `replaypack recover`",
        )

    # The thread

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # no memory, or a bug: `append` and `flush` say so from here on
            self._died = error
        finally:
            self._release_journals()
            with self._room:
                self._room.notify_all()

    def _unpublished_journals(self) -> list[JournalFile]:
        with self._queue.mutex:
            waiting = [part for item in self._queue.queue for part in item if isinstance(part, JournalFile)]
        handed = (*waiting, *self._unwritten, *(journal for _, _, journal in self._pending))
        return [journal for journal in handed if journal is not None]

    def _release_journals(self) -> None:
        """Close whatever journals were handed over and are not published."""
        if not self._keeps_journals:
            for journal in self._unpublished_journals():
                journal.close(delete=False)

    def _work(self) -> None:
        while True:
            timeout = None if self._next_flush is None else self._next_flush - time.monotonic()
            if timeout is not None and timeout <= 0:
                self._flush_by_time()
                continue
            try:
                item = self._queue.get(timeout=timeout)
            except queue.Empty:
                continue
            size = item[-1]
            try:
                if self._take(item) or self._stopped:
                    return
            finally:
                with self._room:
                    self._waiting -= size
                    self._room.notify_all()

    def _take(self, item: tuple[Any, ...]) -> bool:
        what = item[0]
        builder = self._builder
        if what == "record":
            builder.add_record_frame(len(item[1]), encode_frame(item[1]))
            builder.add_keys(item[2])
            for entry in item[3]:
                builder.add_blob(entry)
        elif what == "literal":
            builder.add_literal_frame(*item[1:3])
        elif what == "large":
            builder.add_large(item[1], item[2])
        elif what == "finish":
            _, state, journal, _ = item
            self._pending.append((builder, state, journal))
            self._stuck += builder.size
            self._builder = SegmentBuilder(state.tree.count, state.inlines)
            self.segment_keys = 0
            if journal is not None and not self._try(self._publish):
                # It may be long before the store takes them: until then the journal is all there is.
                try:
                    journal.sync()
                except JournalError as error:
                    self._warn(error)
            return False
        elif what in ("drain", "seal"):
            return self._answer(what, item)
        elif what == "stop":
            return True
        builder.compress(self._publisher.compressor)
        self.segment_keys = builder.keys_size
        if builder.size >= PACK_TARGET:
            self._try(partial(self._publisher.spill, builder))
        return False

    def _answer(self, what: str, item: tuple[Any, ...]) -> bool:
        reply = item[-2]
        result: Manifest | None = None
        problem: Exception | None = None
        try:
            if what == "drain":
                self._publish()
            else:
                result = self._commit(*item[1:-2])
            self._error = None
        except ConflictError as error:
            problem = self._error = error
        except Exception as error:
            self._error = error
            problem = self._wrap(error)
        if what == "seal":
            # Before the answer: whoever waits for it may want to recover at once.
            self._release_journals()
            item[4].close(delete=False)
        reply.put((result, problem))
        return what == "seal"

    def _wrap(self, error: Exception) -> PublishError:
        wrapped = self._publish_error(error)
        wrapped.__cause__ = error
        return wrapped

    def _try(self, action: Callable[[], None]) -> bool:
        """Publish in the background: a failure is a warning, since the journal has everything."""
        try:
            action()
        except Exception as error:
            self._error = error
            self._warn(self._publish_error(error))
            return False
        self._error = None
        return True

    def _warn(self, error: Exception) -> None:
        try:
            warnings.warn(f"replaypack: {error}", ReplaypackWarning, stacklevel=3)
        except ReplaypackWarning:
            pass  # warnings are errors here: nobody catches them in this thread, and `flush` raises the cause

    def _upload_pending(self) -> None:
        """Upload finished segments; what succeeded is not done again after a failure."""
        while self._pending:
            builder, state, journal = self._pending[0]
            if builder.count:
                self._publisher.add_segment(builder)
            del self._pending[0]
            self._stuck = sum(waiting.size for waiting, _, _ in self._pending)
            self._state = state
            if journal is not None:
                self._unwritten.append(journal)

    def _publish(self) -> None:
        self._upload_pending()
        if not self._unwritten or self._state is None:
            return
        self._publisher.merge_live()
        self._publisher.publish_checkpoint(self._state)
        self._drop_journals()

    def _drop_journals(self) -> None:
        for journal in self._unwritten:
            journal.close(delete=True)
        self._unwritten.clear()

    def _commit(self, state: State, error: dict[str, Any] | None, progress: Progress, journal: JournalFile) -> Manifest:
        self._upload_pending()
        self._unwritten.append(journal)
        publisher = self._publisher
        publisher.merge_all()
        cause: Any = {"create": "seal", "append": "append", "replace": "replace"}[publisher.mode]
        try:
            manifest = publisher.commit(cause, state, progress, error)
        except ConflictError:
            self._drop_journals()  # the records are safe in a sibling recording
            raise
        self._drop_journals()
        return manifest

    def _flush_by_time(self) -> None:
        interval = self._interval or 0.0
        # From seconds to minutes: a long run is published often enough, and not over and over.
        self._interval = max(interval, min(interval * 2, 300.0))
        self._next_flush = time.monotonic() + self._interval
        if self._pending or self._unwritten:
            self._try(self._publish)  # what the store did not take the last time
        try:
            self._close_segment()
        except JournalError as error:
            self._warn(error)  # the old journal goes on; so does the recorder, as long as it can be written
