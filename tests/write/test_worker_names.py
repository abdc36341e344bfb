"""The background thread is a `Thread`, whose own attributes differ from one version of Python to the next."""

from __future__ import annotations

import threading

from replaypack._write.worker import Worker


def test_the_worker_hides_nothing_of_a_thread() -> None:
    thread = threading.Thread(target=print)
    own = {name for name in vars(Worker) if not name.startswith("__")} - {"run"}
    assert not own & (set(vars(thread)) | set(dir(threading.Thread)))
