"""`stats`: what a recording consists of: calls, errors, bytes, times and tokens by kind and name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from replaypack.errors import DAMAGED, ReplaypackError, without_frames
from replaypack.format.row import Row
from replaypack.recording import Record, Recording

from ._faults import Progress, Report
from ._tokens import Tokens, may_name_tokens, tokens_of

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["ArchiveStats", "FailedRecording", "Group", "Percentiles", "RecordingStats", "stats", "stats_archive"]

#: Digests that are remembered; beyond, every second one, every fourth, …
_REMEMBERED = 1 << 18
#: Kinds and names that are told apart.
_GROUPS = 2000
_MOST_GROUPS = _GROUPS + 1
_OTHERS = "(others)"
#: A power of two is divided into so many steps: a percentile is off by 3 % at most.
_STEPS = 32


class Percentiles(NamedTuple):
    """Durations in seconds: at most so much in 50, 90, 99 % of the calls (to within 3 %), and at most at all."""

    p50: float
    p90: float
    p99: float
    max: float


class Group(NamedTuple):
    """The calls of one kind and name.

    ``errors`` counts those that failed or were interrupted. ``bytes`` are those of requests, identities and
    responses, ``unique_bytes`` of those that no record before had (in a recording of very many payloads an estimate:
    see `RecordingStats`). ``duration`` is their sum in seconds; ``tokens`` is None where no response names any.
    """

    kind: str
    name: str | None
    calls: int
    errors: int
    bytes: int
    unique_bytes: int
    duration: float
    percentiles: Percentiles
    tokens: Tokens | None


class RecordingStats(NamedTuple):
    """One recording. ``stored_bytes`` are those of the packs that it uses, which other recordings may use as well.

    ``estimated``: there were so many different payloads that the unique bytes are estimated from a sample of them.
    """

    locator: str
    content_digest: str
    state: str
    records: int
    errors: int
    bytes: int
    unique_bytes: int
    stored_bytes: int
    duration: float
    tokens: Tokens | None
    estimated: bool
    groups: list[Group]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON, with the ratios."""
        return {
            **_plain(self),
            "groups": [{**_plain(group), "percentiles": group.percentiles._asdict()} for group in self.groups],
            "ratios": ratios(self.bytes, self.unique_bytes, self.stored_bytes),
        }


class FailedRecording(NamedTuple):
    """A recording that is damaged: ``error`` says how."""

    name: str
    error: ReplaypackError


class ArchiveStats(NamedTuple):
    """The recordings of an archive. ``unique_bytes`` of all of them together, ``stored_bytes`` of all packs that they
    use, each counted once. Of those that ``failed`` nothing is counted."""

    url: str
    recordings: list[RecordingStats]
    records: int
    bytes: int
    unique_bytes: int
    stored_bytes: int
    tokens: Tokens | None
    estimated: bool
    failed: list[FailedRecording]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON, with the ratios."""
        failed = [{"name": name, "error": error.to_dict()} for name, error in self.failed]
        return {
            **_plain(self),
            "recordings": [recording.to_dict() for recording in self.recordings],
            "failed": failed,
            "ratios": ratios(self.bytes, self.unique_bytes, self.stored_bytes),
        }


def _plain(of: Any) -> dict[str, Any]:
    result: dict[str, Any] = of._asdict()
    if result["tokens"] is not None:
        result["tokens"] = result["tokens"]._asdict()
    return result


def ratios(logical: int, unique: int, stored: int) -> dict[str, float | None]:
    """How many times smaller: by storing payloads once (``dedup``), by everything else (``compression``), in all."""
    return {
        "dedup": round(logical / unique, 3) if unique else None,
        "compression": round(unique / stored, 3) if stored else None,
        "total": round(logical / stored, 3) if stored else None,
    }


def stats(recording: Recording, *, tokens: bool = True, progress: Report | None = None) -> RecordingStats:
    """Read the rows of a recording and sum them up by kind and name.

    With ``tokens`` the responses that name a usage are read too: small ones stand with the rows, of larger ones those
    of kind ``model`` and ``http`` are fetched. Requests are never read. Memory is bounded (some 50 MiB) whatever the
    size: percentiles come from histograms, and unique bytes of very many payloads from a sample.

    Raises `FormatError`, `StorageError`.
    """
    return _of_recording(recording, _Distinct(), tokens, progress)


def stats_archive(
    archive: Archive,
    names: Iterable[str] | None = None,
    *,
    tokens: bool = True,
    progress: Report | None = None,
    keep_going: bool = False,
) -> ArchiveStats:
    """`stats` of the newest revision of each recording (of those named), and of all together.

    With ``keep_going`` a recording that is damaged, or lacks an object, is listed as ``failed``, and the others are
    summed up. A store that does not answer ends it all the same.

    Raises `FormatError`, `RecordingNotFoundError`, `StorageError`.
    """
    distinct = _Distinct()
    packs: dict[str, int] = {}
    found, failed = [], []
    for name in archive.recordings() if names is None else names:
        own = _Distinct()
        try:
            with archive.open(name) as recording:
                found.append(_of_recording(recording, own, tokens, progress))
                packs.update((pack.digest, pack.size) for pack in recording.index.packs)
        except DAMAGED as error:
            if not keep_going:
                raise
            failed.append(FailedRecording(name, without_frames(error)))
        else:
            distinct.add_all(own)
    return ArchiveStats(
        archive.url,
        found,
        sum(item.records for item in found),
        sum(item.bytes for item in found),
        distinct.size(),
        sum(packs.values()),
        _sum(item.tokens for item in found),
        distinct.level > 0,
        failed,
    )


def _sum(tokens: Iterable[Tokens | None]) -> Tokens | None:
    total: Tokens | None = None
    for item in tokens:
        if item is not None:
            total = item if total is None else total + item
    return total


class _Distinct:
    """Bytes of different payloads, by the group that had them first: exact while they are few, else of a sample."""

    def __init__(self) -> None:
        self.level = 0
        #: By digest: the size, times the number of groups, and the group.
        self._sizes: dict[int, int] = {}

    def add(self, digest: bytes, size: int, group: int) -> None:
        number = int.from_bytes(digest[:8], "big")
        if number & ((1 << self.level) - 1):
            return
        self._sizes.setdefault(number, size * _MOST_GROUPS + group)
        while len(self._sizes) > _REMEMBERED:
            self._sample(self.level + 1)

    def add_all(self, other: _Distinct) -> None:
        """Add what another has; the groups are those of each."""
        if other.level > self.level:
            self._sample(other.level)
        mask = (1 << self.level) - 1
        for number, item in other._sizes.items():
            if not number & mask:
                self._sizes.setdefault(number, item)
        while len(self._sizes) > _REMEMBERED:
            self._sample(self.level + 1)

    def _sample(self, level: int) -> None:
        self.level = level
        mask = (1 << level) - 1
        self._sizes = {number: item for number, item in self._sizes.items() if not number & mask}

    def size(self) -> int:
        return sum(packed // _MOST_GROUPS for packed in self._sizes.values()) << self.level

    def by_group(self) -> dict[int, int]:
        sums: dict[int, int] = {}
        for packed in self._sizes.values():
            size, group = divmod(packed, _MOST_GROUPS)
            sums[group] = sums.get(group, 0) + size
        return {group: total << self.level for group, total in sums.items()}


class _Sum:
    """The calls of one kind and name, while they are counted."""

    def __init__(self, number: int, kind: str, name: str | None) -> None:
        self.number = number
        self.kind = kind
        self.name = name
        self.calls = self.errors = self.bytes = self.duration = self.longest = 0
        self.tokens: Tokens | None = None
        self._histogram: dict[int, int] = {}

    def add(self, row: Row) -> None:
        self.calls += 1
        self.errors += row.status != 0
        self.duration += row.duration
        self.longest = max(self.longest, row.duration)
        step = _step(row.duration)
        self._histogram[step] = self._histogram.get(step, 0) + 1

    def percentiles(self) -> Percentiles:
        found = []
        counted, wanted = 0, [50, 90, 99]
        for step in sorted(self._histogram):
            counted += self._histogram[step]
            while wanted and counted * 100 >= self.calls * wanted[0]:
                found.append(min(_value(step), self.longest) / 1e9)
                del wanted[0]
        return Percentiles(found[0], found[1], found[2], self.longest / 1e9)

    def group(self, unique: int) -> Group:
        return Group(
            self.kind,
            self.name,
            self.calls,
            self.errors,
            self.bytes,
            unique,
            self.duration / 1e9,
            self.percentiles(),
            self.tokens,
        )


def _step(duration: int) -> int:
    """The step of a histogram that a duration (nanoseconds) belongs to; they are exact below 32 ns."""
    shift = max(0, duration.bit_length() - _STEPS.bit_length())
    return shift * _STEPS + (duration >> shift)


def _value(step: int) -> int:
    """The middle of what belongs to a step."""
    if step < 2 * _STEPS:
        return step
    shift = step // _STEPS - 1
    low = (step - shift * _STEPS) << shift
    return low + (1 << shift >> 1)


def _of_recording(recording: Recording, distinct: _Distinct, tokens: bool, progress: Report | None) -> RecordingStats:
    sums: dict[tuple[str, str | None], _Sum] = {}
    total = len(recording)
    for record in recording.records():
        if progress is not None and record.seq % 256 == 0:
            progress(Progress(recording.name, "records", record.seq, total))
        row = record.row
        which = (row.kind, row.name)
        group = sums.get(which)
        if group is None:
            if len(sums) >= _GROUPS:
                which = (_OTHERS, None)
            group = sums.setdefault(which, _Sum(len(sums), *which))
        group.add(row)
        for ref in (row.request, row.identity, row.response):
            if ref is not None and ref.encoding:
                group.bytes += ref.size
                distinct.add(ref.digest, ref.size, group.number)
        if tokens and (named := _tokens_of(record)) is not None:
            group.tokens = named if group.tokens is None else group.tokens + named
    if progress is not None:
        progress(Progress(recording.name, "records", total, total))
    unique = distinct.by_group()
    groups = [group.group(unique.get(group.number, 0)) for group in sums.values()]
    groups.sort(key=lambda group: (group.kind, -group.calls, group.name or ""))
    return RecordingStats(
        recording.locator,
        recording.content_digest,
        recording.state,
        total,
        sum(group.errors for group in groups),
        sum(group.bytes for group in groups),
        distinct.size(),
        sum(pack.size for pack in recording.index.packs),
        sum(group.duration for group in groups),
        _sum(group.tokens for group in groups),
        distinct.level > 0,
        groups,
    )


def _tokens_of(record: Record) -> Tokens | None:
    row = record.row
    inline = record._found.inline
    if inline is None and row.kind not in ("model", "http"):
        return None
    data = record.response_bytes if inline is None else inline
    return tokens_of(record.response) if may_name_tokens(data) else None
