"""Which manifests of a recording may go. Nothing here reads or deletes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ._survey import Seen

__all__ = ["Keep", "superseded"]

_CLAIMS = ("claim", "checkpoint")


class Keep(NamedTuple):
    """Which committed revisions are kept: the ``last`` ones (a number), those since a time (seconds since the epoch),
    and the newest in any case; all where both are None."""

    last: int | None = None
    since: float | None = None

    def drops(self, place: int, revision: Seen) -> bool:
        """Whether a committed revision goes, of which ``place`` newer ones are there."""
        if place == 0 or (self.last is None and self.since is None):
            return False
        if self.last is not None and place < self.last:
            return False
        # Of the writer's clock and the store's, whichever makes it younger.
        return self.since is None or max(revision.created, revision.info.modified or 0) < self.since


def superseded(
    seen: Sequence[Seen], keep: Keep, journals: Collection[str], has_sibling: Callable[[str], bool]
) -> list[Seen]:
    """The manifests of one recording that may go, in the order in which to delete them.

    ``journals`` are the writers (16 hex digits) whose journals lie on this machine; ``has_sibling`` says whether a
    writer committed its records under a name of its own.

    Only what is below the revision that ``latest.json`` names goes. A claim goes once its recorder committed: the
    revision behind it is by the same writer, or a sibling is. Where another writer took it over, the recorder may yet
    come back, with records that only its ``.open.json`` names; the revision behind the claim is then what tells it of
    the conflict. Both stay.
    """
    latest = max((item.number for item in seen if item.kind == "latest"), default=0)
    revisions = {item.number: item for item in seen if item.kind == "revision"}
    opened = {item.number: item for item in seen if item.kind == "open"}
    committed = sorted((n for n, item in revisions.items() if item.cause not in _CLAIMS), reverse=True)
    if not committed:
        return []
    newest = committed[0]
    dropped = {n for place, n in enumerate(committed) if keep.drops(place, revisions[n])}
    going: set[int] = set()
    lost: set[int] = set()
    for number in {*revisions, *opened}:
        claim = revisions.get(number, opened.get(number))
        behind = revisions.get(number + 1)
        if claim is None or claim.cause not in _CLAIMS:
            continue
        if claim.writer in journals:
            lost |= {number, number + 1}  # it has records to recover, or a journal that looks for its revision
        elif number > newest or behind is None:
            lost.add(number)
        elif behind.writer == claim.writer or has_sibling(claim.writer):
            going.add(number)
        else:
            lost |= {number, number + 1}
    result = []
    for number in sorted({*revisions, *opened}):
        if number >= latest:
            break
        if number in going - lost or (number in dropped and number not in lost):
            # The claim before what it published: `previous` of the revision behind it may name either.
            result += [item for item in (revisions.get(number), opened.get(number)) if item is not None]
        elif number in going and number in opened:
            result.append(opened[number])
    return result
