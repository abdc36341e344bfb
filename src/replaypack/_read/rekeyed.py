"""Keys of a recording by another match policy than its own, in memory: what an overridden policy is looked up in."""

from __future__ import annotations

import threading
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from replaypack._escape import counted
from replaypack.errors import CanonicalizationError, FormatError, ReplaypackWarning, UsageError, WithheldError
from replaypack.format.row import FLAGS, discriminator
from replaypack.policies.matching import MatchPolicy
from replaypack.values import ABSENT

if TYPE_CHECKING:
    from replaypack.recording import Record, Recording

__all__ = ["Override", "new_key", "refuse_incomplete"]

#: Records up to which a match policy can be overridden, and from which on it is worth a warning.
MAX_RECORDS = 2_000_000
MANY_RECORDS = 100_000


def new_key(record: Record, old: MatchPolicy, new: MatchPolicy, *, where: str) -> bytes | None:
    """The key of a record by the policy ``new``; ``old`` is the one that it was recorded with.

    None where it keeps the key that it has: the host's own, or one of what was there before it was redacted.
    Raises `FormatError` where its identity does not give its key, `CanonicalizationError` where it gives none by
    ``new``.
    """
    row = record.row
    if row.scheme != "identity":
        return None
    identity = record.identity
    if identity is ABSENT:
        raise FormatError(f"record {row.seq} has a key of an identity, and none is recorded", where=where)
    if old.key(row.kind, identity) != row.key:
        if row.flags & FLAGS["redacted"]:
            return None
        raise FormatError(
            f"the identity of record {row.seq} does not give its key",
            where=where,
            hint="`replaypack verify` lists what is wrong",
        )
    try:
        return new.key(row.kind, identity)
    except CanonicalizationError as error:
        raise CanonicalizationError(
            f"the identity of record {row.seq} has no key by match policy {new}: {error.message.split(': ', 1)[-1]}",
            path=error.path,
        ) from None


def refuse_incomplete(recording: Recording) -> None:
    """Raise where keys cannot be computed anew, since identities are not there.

    `UsageError` where records were purged, `WithheldError` where requests are withheld.
    """
    if purged := recording.manifest.purged:
        raise UsageError(
            f"the keys of {recording.locator} cannot be computed anew: {counted(purged, 'record')} of it "
            f"{'was' if purged == 1 else 'were'} purged, and with {'it' if purged == 1 else 'them'} what "
            f"{'its key was' if purged == 1 else 'their keys were'} made of",
            hint="its own match policy still finds every record that is left",
        )
    for role in recording.index.withheld:
        raise WithheldError(
            f"the keys of {recording.locator} cannot be computed anew: what they were made of is withheld",
            recording=recording.locator,
            seq=None,
            role=role,
        )


class Override:
    """A policy that overrides the one of a recording, and the records by their keys of it.

    These are computed in one pass with the first lookup (and over what was appended since). About 110 bytes a record.
    """

    def __init__(self, recording: Recording, policy: MatchPolicy) -> None:
        self.policy = policy
        self._recording = recording
        self._keys = bytearray()
        self._entries: list[bytes] = []
        self._lock = threading.Lock()

    def key(self, seq: int) -> bytes:
        """The key of a record (32 bytes)."""
        self._all()
        return bytes(self._keys[32 * seq : 32 * seq + 32])

    def count(self, prefix: bytes) -> int:
        """How many records' keys (16 bytes), or keys and discriminators (24), begin with ``prefix``."""
        entries = self._all()
        return bisect_left(entries, prefix + b"\xff" * (31 - len(prefix))) - bisect_left(entries, prefix)

    def find(self, key: bytes, scope: str | None, nth: int) -> tuple[Record | None, bool]:
        """The ``nth`` record (from 0) of a key and scope, and whether there is any."""
        entries = self._all()
        prefix = key[:16] + discriminator(scope)
        start = bisect_left(entries, prefix)
        end = start + self.count(prefix)
        if start + nth >= end:
            return None, nth > 0 and start < end
        record = self._at(entries[start + nth])
        if self.key(record.seq) == key and record.scope == scope:
            return record, True
        # Another key or scope shares the truncated digests: only the rows tell.
        records = map(self._at, entries[start:end])
        hits = [record for record in records if self.key(record.seq) == key and record.scope == scope]
        return (hits[nth] if nth < len(hits) else None), bool(hits)

    def of_key(self, key: bytes, limit: int) -> list[Record]:
        """Up to ``limit`` records of a key, of whatever scope, in recording order."""
        entries = self._all()
        start = bisect_left(entries, key[:16])
        records = map(self._at, entries[start : start + min(limit, self.count(key[:16]))])
        return sorted((record for record in records if self.key(record.seq) == key), key=lambda record: record.seq)

    def latest(self, key: bytes, scopes: Sequence[str | None]) -> Record | None:
        """The last record of a key in the first of several scopes that has one."""
        for scope in scopes:
            count = self.count(key[:16] + discriminator(scope))
            if count and (record := self.find(key, scope, count - 1)[0]) is not None:
                return record
        return None

    def repeated(self) -> Iterator[list[int]]:
        """Yield the sequence numbers of the records of each key and scope that has several, in order."""
        for _, run in groupby(self._all(), key=lambda entry: entry[:24]):
            numbers = [int.from_bytes(entry[24:], "big") for entry in run]
            if len(numbers) > 1:
                yield numbers

    def _at(self, entry: bytes) -> Record:
        return self._recording.record(int.from_bytes(entry[24:], "big"))

    def _all(self) -> list[bytes]:
        recording = self._recording
        if len(self._entries) < len(recording):
            with self._lock:
                if len(self._entries) < len(recording):
                    refuse_incomplete(recording)
                    self._refuse_large()
                    self._add()
        return self._entries

    def _add(self) -> None:
        recording = self._recording
        keys = bytearray()
        entries = []
        for record in recording.records(first=len(self._entries)):
            key = new_key(record, recording.manifest.match, self.policy, where=recording.locator) or record.row.key
            keys += key
            entries.append(key[:16] + discriminator(record.scope) + record.seq.to_bytes(6, "big"))
        # A new list: another thread may be searching the old one. The keys first, which it must find.
        merged = sorted(self._entries + entries)
        self._keys += keys
        self._entries = merged

    def _refuse_large(self) -> None:
        count, where = len(self._recording), self._recording.locator
        lasting = "replaypack rekey computes the keys anew once and for all"
        if count > MAX_RECORDS:
            raise UsageError(
                f"{where} has {count} records; a match policy can be overridden up to {MAX_RECORDS}", hint=lasting
            )
        if count > MANY_RECORDS:
            message = f"the match policy of {where} is overridden: all {count} records are read; {lasting}"
            warnings.warn(message, ReplaypackWarning, stacklevel=2)
