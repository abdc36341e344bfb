"""Peak memory of recorder and reader at a million records, above what the imports take. Child processes."""

from __future__ import annotations

import subprocess
import sys

from .common import Row, note, scratch

__all__ = ["run"]

_CHILD = """
import re, resource, sys, random
from replaypack import Archive
import replaypack.recorder, replaypack.storage, pybase64
def peak():
    # ru_maxrss would begin with what the parent had when it forked.
    try:
        with open("/proc/self/status") as status:
            return int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
what, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
base = peak()
archive = Archive(path)
if what == "record":
    text = "".join(random.Random(1).choices("abcdefghij klmnop", k=100_000))
    with archive.recorder("r") as recorder:
        for n in range(count):
            at = n * 37 % 99_000
            identity = {"q": n, "text": text[at:at + 300]}
            recorder.append(kind="tool", identity=identity, response={"a": text[at:at + 700]})
elif what == "lookup":
    rng = random.Random(2)
    text = "".join(random.Random(1).choices("abcdefghij klmnop", k=100_000))
    with archive.open("r") as recording:
        for _ in range(5000):
            n = rng.randrange(count)
            at = n * 37 % 99_000
            found = recording.lookup("tool", {"q": n, "text": text[at:at + 300]})
            assert found is not None
        found.request
else:
    with archive.open("r") as recording:
        for found in recording.records():
            found.response
print(peak() - base, base)
"""


def _child(what: str, path: str, count: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, what, path, str(count)], check=True, capture_output=True, text=True
    )
    above, base = map(float, done.stdout.split())
    note(f"memory: {what} {count:,}: {above:.0f} MB above {base:.0f} MB")
    return above


def run(*, quick: bool = False) -> list[Row]:
    """The rows of the table."""
    few, many = (10_000, 50_000) if quick else (100_000, 1_000_000)
    with scratch() as directory:
        recorded = [_child("record", str(directory / str(count)), count) for count in (few, many)]
        looked = _child("lookup", str(directory / str(many)), many)
        read = _child("iterate", str(directory / str(many)), many)
    return [
        Row(
            f"recorder memory, {many:,} records",
            f"{recorded[1]:.0f} MB above imports",
            "≤ 300 MB, flat in N",
            f"records of 1 KB; {few:,} records: {recorded[0]:.0f} MB",
        ),
        Row(
            f"reader memory, {many:,} records",
            f"{looked:.0f} MB above imports",
            "≤ 80 MB",
            f"5,000 random lookups and a request; iterating all: {read:.0f} MB",
        ),
    ]
