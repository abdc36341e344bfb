"""Records in a child process, kills it at a random moment, recovers, checks. Run as a program by `test_crash`.

    python -m tests.archive.kill_loop DIRECTORY ROUNDS SEED

Every child writes the sequence number of each `append` that returned to a pipe. After the kill all of those
records must be there, in order and with their payloads, and the archive must be sound. Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from replaypack import Archive
from replaypack.errors import RecordingNotFoundError
from replaypack.recover import recover
from tests.archive.support import calls, expected_response, same


def child(directory: str, name: str, seed: int, pipe: int) -> None:
    """Record until killed, or to the end."""
    rng = random.Random(seed)
    items = list(calls(rng.choice([5, 40, 200]), seed))
    archive = Archive(directory)
    os.write(pipe, b"r")
    interval = rng.choice([None, 0.001, 0.01])
    with archive.recorder(name, if_exists="append", flush_interval=interval) as recorder:
        for number, call in enumerate(items):
            seq = recorder.append(**call)
            os.write(pipe, f"{seq}\n".encode())
            if rng.random() < 0.05:
                recorder.flush()
            if number % 50 == 0:
                time.sleep(0.001)
    os.write(pipe, b"s\n")


def check(archive: Archive, name: str, acknowledged: int, items: list[dict[str, object]], before: int) -> int:
    """Everything acknowledged is there; returns the number of records."""
    try:
        recording = archive.open(name)
    except RecordingNotFoundError:
        assert acknowledged == before, f"{name}: nothing there, {acknowledged} acknowledged"
        return before
    assert len(recording) >= acknowledged, f"{name}: {len(recording)} records, {acknowledged} acknowledged"
    for record in recording.records(first=before):
        call = items[record.seq - before]
        assert same(record.response, expected_response(call)), f"{name}: record {record.seq} differs"
        assert same(record.request, call.get("request", call.get("identity")))
        found = recording.lookup_digest(record.key, scope=record.scope)
        assert found is not None
    return len(recording)


def main(directory: str, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    archive = Archive(directory)
    totals = {"rounds": 0, "killed": 0, "acknowledged": 0, "recovered": 0, "sealed": 0}
    before = 0
    name = "run-0"
    for number in range(rounds):
        if number % 10 == 0:
            name, before = f"run-{number}", 0
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            status = 1
            try:
                child(directory, name, seed * 1000 + number, writer)
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        data = os.read(reader, 1)  # imports are done, recording begins
        time.sleep(rng.random() ** 2 * 0.12)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while chunk := os.read(reader, 65536):
            data += chunk
        os.close(reader)
        lines = data[1:].decode().split("\n")
        sealed = "s" in lines
        numbers = [int(line) for line in lines[:-1] if line and line != "s"]
        acknowledged = numbers[-1] + 1 if numbers else before
        results = list(recover(archive))
        assert all(result.error is None for result in results), results
        assert not list(Path(directory, "journal").glob("*"))
        items = list(calls(200, seed * 1000 + number))
        before = check(archive, name, acknowledged, items, before)
        totals["rounds"] += 1
        totals["killed"] += not sealed
        totals["sealed"] += sealed
        totals["acknowledged"] += len(numbers)
        totals["recovered"] += sum(result.from_journal for result in results)
    print(json.dumps(totals))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
