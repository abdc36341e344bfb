"""`copy`: recordings of one archive, taken to another, wherever either lies.

Only what is missing travels. A pack goes whole where all of it belongs to the recordings that are copied; of others
the frames that do are packed anew. Packs go first, then signatures, then one `put_new` of the next revision makes a
recording visible, all of it at once. Interrupted, it is run again: what has arrived is not sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from replaypack._arguments import check_number
from replaypack.errors import UsageError
from replaypack.format.names import check_name

from ._copy_plan import RESPONSES_ONLY, WHOLE, IfExists, Planner, is_pattern, names_of
from ._copy_purged import refuse_purged
from ._copy_result import Copied, CopiedRecording
from ._copy_run import CopyRun
from ._faults import Report

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["Copied", "CopiedRecording", "copy"]


def copy(
    source: Archive,
    target: Archive,
    names: str | Iterable[str] | None = None,
    *,
    revision: int | None = None,
    to: str | None = None,
    if_exists: IfExists = "error",
    responses_only: bool = False,
    jobs: int = 8,
    progress: Report | None = None,
    done: Callable[[CopiedRecording], None] | None = None,
    keep_going: bool = False,
) -> Copied:
    """Copy recordings of ``source`` to ``target``: their newest revisions, or ``revision`` of the one named.

    ``names`` are names, or patterns with ``*``, ``?`` and ``[…]``; None stands for all. ``to`` renames one recording.
    With ``responses_only`` the bytes of requests and identities stay behind; their digests do not, so that the copy
    has the same content digest, replays, and says what it lacks.

    A recording that the target has is left alone. One of the same name that this one continues gets a new revision;
    any other is refused, and so is a copy that would bring back what was purged there, under whatever name, or lack
    requests that are there, unless ``if_exists`` is ``"replace"``: then it gets a new revision too, and its older ones
    stay; and so does one that is there of which packs are gone. Of a recording that is being recorded its last finished
    revision is copied, if it has one.

    Where one is damaged in the source, or something of it is missing there, its error is raised, with a hint that names
    all that were found damaged by then; manifests and tables are looked at before any recording is copied. With
    ``keep_going`` it is reported as ``failed`` instead, also where it alone was asked for, and the others are copied.
    Nothing of it can be seen; packs that had arrived are of no use, as after an interruption.

    ``done`` is told of each recording that is done, in no order, from several threads one after another: what there is
    when the rest fails. ``jobs`` packs and recordings are under way at a time; ``progress`` is told how many
    recordings were looked at, then bytes, from several threads one after another. Memory: about 128 MiB of packs (or
    the largest one), 100 MiB for a recording that is packed anew, some 500 bytes for each of its frames.

    Raises `UsageError`, `RecordingNotFoundError`, `RecordingExistsError`, `ConflictError` (another writer came first),
    `FormatError`, `ObjectMissingError`, `ObjectTooShortError` (damage), other `StorageError`. What was committed before
    stays; packs may too.
    """
    check_number("jobs", jobs, "a number from 1 on", least=1)
    if if_exists not in ("error", "replace"):
        raise UsageError(f"if_exists={if_exists!r} is not 'error' or 'replace'")
    target.storage.require_writable("copy")
    patterns = [names] if isinstance(names, str) else None if names is None else list(names)
    explicit = patterns is not None and not any(map(is_pattern, patterns))
    chosen = names_of(source, patterns)
    for label, value in (("revision", revision), ("to", to)):
        if value is not None and (not explicit or len(chosen) != 1):
            raise UsageError(f"{label} is of one recording: name the one that is to be copied")
    if to is not None:
        check_name(to)
    policy = RESPONSES_ONLY if responses_only else WHOLE
    planner = Planner(source, target, policy, if_exists, named=set(patterns or ()), refuse_open=explicit)
    with ThreadPoolExecutor(jobs, thread_name_prefix="replaypack-plan") as pool:
        try:
            plans = list(pool.map(lambda name: planner.plan(name, revision, to or name), chosen))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    notes = refuse_purged(source, target, plans) if if_exists == "error" else []
    run = CopyRun(source, target, policy, plans, jobs, progress, done, notes, keep_going=keep_going)
    return run.run()
