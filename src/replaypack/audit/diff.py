"""`diff`: how two recordings differ, record by record, and inside of what they hold.

Records are aligned by what they say, then by key, in order within their scope: a turn more does not make what comes
after it look changed. Where both recordings have a summary, runs of records that are the same are never read.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from replaypack._arguments import check_number, names_of
from replaypack.archive import open as open_recording
from replaypack.errors import UsageError
from replaypack.recording import Recording

from ._comparison import Comparison
from ._diff_result import Change, Diff, Entry, Side, Totals
from ._faults import Report
from ._ignore import Ignore

__all__ = ["Change", "Diff", "Entry", "Side", "Totals", "assert_same", "diff"]


def diff(
    a: str | Recording,
    b: str | Recording,
    *,
    ignore: str | Iterable[str] = (),
    kinds: str | Collection[str] | None = None,
    limit: int | None = 1000,
    storage_options: Mapping[str, Any] | None = None,
    progress: Report | None = None,
) -> Diff:
    """Compare two recordings, of whatever archives, given as locators or opened.

    ``ignore`` leaves out parts of records by JSON pointer (``/request/messages/*/id``, ``/response/**/created``,
    ``/attributes``; ``*`` is any one segment, ``**`` any number), records by ``kind:NAME`` or ``name:NAME``, and
    classes of differences: ``added``, ``removed``, ``moved``, ``encoding``. ``kinds`` compares records of some kinds
    only (totals are of all). ``limit`` bounds the entries that are kept; the counts are exact all the same.
    ``storage_options`` are for both locators. Times never make a difference.

    Payloads of equal digest are not read, nor, where both recordings have a summary, the rows of runs that are the
    same. Time is that of reading rows and what differs (aligning takes n log n); memory is about 40 bytes for each
    row read, and what is kept.

    Raises `UsageError`, `RecordingNotFoundError`, `FormatError`, `StorageError`.
    """
    rules = Ignore(ignore)
    check_number("limit", limit, "a number of entries, or None")
    wanted = names_of("kinds", kinds)
    with ExitStack() as stack:
        sides = []
        for given in (a, b):
            if isinstance(given, str):
                given = stack.enter_context(open_recording(given, storage_options))
            elif not isinstance(given, Recording):
                raise UsageError(f"diff compares locators and recordings, not {type(given).__name__}")
            sides.append(given)
        for kind in wanted or ():
            known = {kind for side in sides for kind in side.manifest.content.counts}
            if kind not in known:
                near = difflib.get_close_matches(kind, sorted(known), n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)) or 'no records'}"
                raise UsageError(f"neither recording has records of kind {kind!r}", hint=hint)
        comparison = Comparison(sides[0], sides[1], rules, wanted, limit, progress)
        return comparison.run()


def assert_same(
    a: str | Recording,
    b: str | Recording,
    *,
    ignore: str | Iterable[str] = (),
    kinds: str | Collection[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Raise `AssertionError` with a readable report where two recordings differ; the rest is as in `diff`."""
    __tracebackhide__ = True
    found = diff(a, b, ignore=ignore, kinds=kinds, limit=50, storage_options=storage_options)
    if found:
        raise AssertionError(f"two recordings differ\n{found}")
