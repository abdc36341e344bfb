"""Scan: likely secrets in what was recorded. Whatever is found is masked; a secret is never shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from replaypack._plain import Path, pointer
from replaypack.canonical import opaque_key
from replaypack.errors import FormatError
from replaypack.format.notes import redaction_policy
from replaypack.format.row import Row
from replaypack.policies._names import PLACEHOLDER, words
from replaypack.policies.redaction import DEFAULT, Redactor
from replaypack.recording import Record, Recording
from replaypack.values import ABSENT

from ._faults import Progress, Report

__all__ = ["Finding", "scan"]

_ROLES = ("request", "identity", "response")
#: Digests of payloads in which nothing was found; a payload that is repeated is not read again.
_REMEMBERED = 200_000
#: A high-entropy value is suspicious in a field whose name ends in one of these and has none of those.
_TELLING = frozenset("auth bearer credential credentials key pat pwd token".split())
_INNOCENT = frozenset(
    "cache column continuation cursor foreign idempotency index max min next page partition primary public sort total "
    "tool".split()
)
_SHORTEST, _LONGEST, _BITS = 20, 512, 3.5


class Finding(NamedTuple):
    """One likely secret: in which record (None: the manifest), part and place, by which rule, and a masked glimpse.

    ``rule`` is ``name`` (a field, header or cookie by its name), ``field``, ``header``, ``parameter``, ``bearer`` or
    ``url.password`` (in a text), ``token.…`` (by its form), ``known``, or ``entropy`` (a guess).
    """

    recording: str
    seq: int | None
    role: str
    pointer: str
    rule: str
    masked: str

    def __str__(self) -> str:
        where = "manifest" if self.seq is None else f"record {self.seq}"
        return f"{self.recording}: {where}, {self.role}{self.pointer}: {self.rule}: {self.masked}"


def scan(
    recording: Recording, *, secrets: Iterable[str | bytes] = (), progress: Report | None = None
) -> Iterator[Finding]:
    """Yield likely secrets in a recording, in recording order; placeholders of redaction are none.

    The rules are those of the default policy, and what the recording's own adds; ``secrets`` are values to be found
    as well. Time is linear in the payloads, memory is that of the largest record.

    What was purged or is withheld is not there to be looked at.

    Raises `FormatError` and `StorageError` where the recording cannot be read, `UsageError` for an unsound secret.
    """
    finder = _Finder(recording, secrets)
    content = recording.manifest.content
    for role, value in (
        ("recorded_by", content.recorded_by),
        ("metadata", content.metadata),
        ("error", content.error),
    ):
        yield from finder.findings(value, None, role)
    total = len(recording)
    for record in recording.records():
        if progress is not None and record.seq % 64 == 0:
            progress(Progress(recording.name, "records", record.seq, total))
        yield from finder.of_record(record)
    if progress is not None:
        progress(Progress(recording.name, "records", total, total))


class _Finder:
    def __init__(self, recording: Recording, secrets: Iterable[str | bytes]) -> None:
        self._name = recording.name
        try:
            policy = redaction_policy(recording.manifest.content.redaction)
        except FormatError:
            policy = None  # whatever it removed, there may be more
        own = policy is not None and policy.name.startswith("x-")
        self._redactor = Redactor(policy if policy is not None and own else DEFAULT, secrets)
        self._clean: set[bytes] = set()

    def of_record(self, record: Record) -> Iterator[Finding]:
        row = record.row
        for role, value in (
            ("kind", row.kind),
            ("name", row.name),
            ("scope", row.scope),
        ):
            yield from self.findings(value, record.seq, role)
        yield from self.findings(row.attributes, record.seq, "attributes", innocent=_host_key(row))
        refs = (row.request, row.identity, row.response)
        for role, ref in zip(_ROLES, refs, strict=True):
            if ref is None or not ref.encoding or ref.digest in self._clean:
                continue
            if role == "identity" and row.scheme == "opaque":
                continue
            if role in record.withheld:
                continue
            found = list(self.findings(getattr(record, role), record.seq, role))
            if found:
                yield from found
            else:
                if len(self._clean) >= _REMEMBERED:
                    self._clean.clear()
                self._clean.add(ref.digest)

    def findings(self, value: Any, seq: int | None, role: str, *, innocent: str | None = None) -> Iterator[Finding]:
        if value is None or value is ABSENT:
            return
        seen = set()
        for path, rule, secret in chain(self._redactor.find(value), self._guesses(value)):
            if rule == "entropy" and secret == innocent:
                continue
            place = self._redactor.redact(pointer(path).replace(secret, PLACEHOLDER) if secret else pointer(path))
            finding = Finding(self._name, seq, role, str(place), rule, _mask(secret))
            if finding not in seen:
                seen.add(finding)
                yield finding

    def _guesses(self, value: Any) -> Iterator[tuple[Path, str, str]]:
        """Values that look random, in fields whose names suggest a secret without being one of the list."""
        queue: list[tuple[Any, Path]] = [(value, None)]
        for part, path in queue:
            if type(part) is dict:
                for key, child in part.items():
                    if type(child) is str:
                        if type(key) is str and _telling(key) and _random(child) and not self._redactor.names(key):
                            yield (path, key), "entropy", child
                    elif type(child) is dict or type(child) is list:
                        queue.append((child, (path, key)))
            elif type(part) is list:
                queue += [
                    (child, (path, index))
                    for index, child in enumerate(part)
                    if type(child) is dict or type(child) is list
                ]


def _host_key(row: Row) -> str | None:
    """The text of a host's key, where the attributes hold it: it looks random beside its name, and is no secret."""
    key = row.attributes.get("key") if row.attributes and row.scheme == "opaque" else None
    return key if isinstance(key, str) and opaque_key(key) == row.key else None


def _telling(name: str) -> bool:
    if len(name) > 64:
        return False
    parts = words(name)
    return bool(parts) and parts[-1] in _TELLING and _INNOCENT.isdisjoint(parts)


def _random(text: str) -> bool:
    if not _SHORTEST <= len(text) <= _LONGEST or PLACEHOLDER in text or not any(map(str.isdigit, text)):
        return False
    if any(map(str.isspace, text)) or "://" in text:
        return False
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts) >= _BITS


def _mask(secret: str) -> str:
    """The first three characters of what is long enough to spare them, and the length."""
    if not secret:
        return "(no text)"
    head = secret[:3] if len(secret) >= 10 else ""
    return f"{head}… ({len(secret)} characters)"
