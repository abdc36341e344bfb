"""The recorder's background thread: compresses, builds segments, uploads, publishes."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from replaypack.errors import JournalError, PublishError, ReplaypackError, ReplaypackWarning
from replaypack.format.manifest import Manifest, State
from replaypack.format.record_frame import encode_frame

from .journal import JournalFile
from .publish import Progress, Publisher
from .segment import PACK_TARGET, SegmentBuilder

if TYPE_CHECKING:
    from replaypack.recorder import Recorder

__all__ = ["Worker"]

#: Raw bytes that may wait for the background thread before `append` does.
MAX_WAITING = 48 << 20
#: Bytes of finished segments that may wait for a store that fails before `append` raises.
MAX_STUCK = 64 << 20


class Worker(threading.Thread):
    """The background thread: compresses, builds segments, uploads, publishes. Alone uses the publisher."""

    def __init__(
        self, recorder: Recorder, publisher: Publisher, builder: SegmentBuilder, interval: float | None
    ) -> None:
        super().__init__(name=f"replaypack-{publisher.name}", daemon=True)
        self._recorder = recorder
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
        if self._error is not None and self._stuck > MAX_STUCK:
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

    def seal(self, state: State, error: dict[str, Any] | None, progress: Progress) -> Manifest:
        """Publish the rest and commit the revision; the thread ends."""
        result: Manifest = self._ask("seal", state, error, progress)
        return result

    def stop(self) -> None:
        """End the thread without publishing what is waiting."""
        self._stopped = True
        self._queue.put(("stop", 0))
        self.join()
        for _, _, journal in self._pending:
            if journal is not None:
                journal.close(delete=False)

    def _ask(self, what: str, *arguments: Any) -> Any:
        reply: queue.Queue[tuple[Any, Exception | None]] = queue.Queue()
        self._queue.put((what, *arguments, reply, 0))
        while True:
            try:
                result, error = reply.get(timeout=1.0)
                break
            except queue.Empty:
                if not self.is_alive():
                    raise self._publish_error(self._error or RuntimeError("the background thread ended")) from None
        if error is not None:
            raise error
        return result

    def _publish_error(self, cause: Exception) -> PublishError:
        count = self._recorder.count
        done = self._publisher.published
        return PublishError(
            f"{done} of {count} records of {self._publisher.name!r} are published, {count - done} are safe in the "
            f"journal only: {cause}",
            published=done,
            unpublished=count - done,
            journal=str(self._recorder._journal_directory),
            hint="mend the cause, then flush again or run `replaypack recover`",
        )

    # The thread

    def run(self) -> None:
        while True:
            timeout = None if self._next_flush is None else max(0.0, self._next_flush - time.monotonic())
            try:
                item = self._queue.get(timeout=timeout)
            except queue.Empty:
                self._flush_by_time()
                continue
            size = item[-1]
            try:
                if self._handle(item) or self._stopped:
                    return
            finally:
                with self._room:
                    self._waiting -= size
                    self._room.notify_all()

    def _handle(self, item: tuple[Any, ...]) -> bool:
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
            if journal is not None:
                self._try(self._publish)
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
        try:
            if what == "drain":
                self._publish()
                reply.put((None, None))
                return False
            reply.put((self._commit(*item[1:-2]), None))
        except PublishError as error:
            reply.put((None, error))
            return what == "seal"
        except ReplaypackError as error:
            self._error = error
            reply.put((None, error if what == "seal" and error.code == "archive.conflict" else self._wrap(error)))
        except Exception as error:
            self._error = error
            reply.put((None, self._wrap(error)))
        return what == "seal"

    def _wrap(self, error: Exception) -> PublishError:
        wrapped = self._publish_error(error)
        wrapped.__cause__ = error
        return wrapped

    def _try(self, action: Any) -> None:
        """Publish in the background: a failure is a warning, since the journal has everything."""
        try:
            action()
            self._error = None
        except Exception as error:
            self._error = error
            warnings.warn(f"replaypack: {self._publish_error(error)}", ReplaypackWarning, stacklevel=2)

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

    def _commit(self, state: State, error: dict[str, Any] | None, progress: Progress) -> Manifest:
        self._upload_pending()
        publisher = self._publisher
        publisher.merge_all()
        cause: Any = {"create": "seal", "append": "append", "replace": "replace"}[publisher.mode]
        manifest = publisher.commit(cause, state, progress, error)
        self._drop_journals()
        return manifest

    def _flush_by_time(self) -> None:
        interval = self._interval or 0.0
        # From seconds to minutes: a long run is published often enough, and not over and over.
        self._interval = min(interval * 2, 300.0)
        self._next_flush = time.monotonic() + self._interval
        recorder = self._recorder
        if not recorder._lock.acquire(timeout=1.0):
            return
        try:
            if not recorder._closed and recorder._failure is None and self.unpublished(recorder.count):
                recorder._close_segment(publish=True)
        except JournalError as error:
            recorder._failure = error
        finally:
            recorder._lock.release()
