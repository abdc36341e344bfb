"""Payloads: each has the digest and the encoding that its row names, and makes the key that the row has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from blake3 import blake3

from replaypack._read.blobs import is_withheld, recipe_of
from replaypack._read.index import Found, check_proportion
from replaypack.errors import CanonicalizationError, FormatError, ObjectMissingError, ObjectTooShortError
from replaypack.format.base64 import encode_base64
from replaypack.format.recipe import UNPADDED, URLSAFE, output_length
from replaypack.format.row import FLAGS, BlobRef, Row
from replaypack.recording import Recording
from replaypack.values import decode_payload

from ._faults import Fault, fault

__all__ = ["PayloadChecker", "Spans"]

_GONE = (FormatError, ObjectMissingError, ObjectTooShortError)
#: Literals fetched at a time while a payload is hashed (bytes; a multiple of three, so that base64 can be cut there).
_PIECE = 6 << 20
#: Larger payloads are hashed and not decoded.
_DECODED = 64 << 20


class Spans:
    """Sequence numbers, kept as ranges while they come in order."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, first: int, end: int) -> None:
        if self.ends and first <= self.ends[-1]:
            self.ends[-1] = max(end, self.ends[-1])
        else:
            self.starts.append(first)
            self.ends.append(end)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.starts, number) - 1
        return at >= 0 and number < self.ends[at]

    def __bool__(self) -> bool:
        return bool(self.starts)

    @property
    def count(self) -> int:
        return sum(self.ends) - sum(self.starts)

    def __str__(self) -> str:
        parts = [f"{a}" if b == a + 1 else f"{a}–{b - 1}" for a, b in zip(self.starts, self.ends, strict=True)]
        return ", ".join(parts[:12]) + (f" and {len(parts) - 12} more ranges" if len(parts) > 12 else "")


class PayloadChecker:
    """Checks the payloads of a recording's records."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._unreadable: dict[str, Spans] = {}
        self._match = recording.manifest.match

    def unreadable(self) -> Iterator[Fault]:
        """Yield which records have payloads that could not be read, one fault for each cause."""
        for cause, spans in sorted(self._unreadable.items()):
            yield fault("blob.unreadable", f"records {spans}", f"payloads of {spans.count} records: {cause}")

    def check(self, found: Found) -> Iterator[Fault]:
        """Yield what is wrong with the payloads of one record, and whether its key is that of its identity."""
        row = found.row
        for role, ref in (("request", row.request), ("identity", row.identity), ("response", row.response)):
            if ref is None or ref.encoding == 0 or is_withheld(self._recording.index, row, role):
                continue
            where = f"{role} of record {row.seq}"
            # The key of a redacted record is of what was there before.
            named = row.scheme == "identity" and not row.flags & FLAGS["redacted"]
            is_identity = named and (role == "identity" or (role == "request" and row.identity is None))
            try:
                if role == "response" and found.inline is not None:
                    data: bytes | None = found.inline
                else:
                    data = self._hashed(found, role, ref)
            except _Mismatch as error:
                yield fault("blob.mismatch", where, str(error))
                continue
            except _GONE as error:
                self._unreadable.setdefault(str(error), Spans()).add(row.seq, row.seq + 1)
                continue
            if data is None:
                continue  # too large to be held: its digest is right
            try:
                value = decode_payload(ref.encoding, data)
            except FormatError as error:
                yield fault("blob.encoding", where, error.detail)
                continue
            if is_identity:
                yield from self._key_fault(row, value)
        if row.scheme == "identity" and row.request is None and row.identity is None:
            yield fault("key.mismatch", f"record {row.seq}", "its key is of an identity, and none is recorded")

    def _hashed(self, found: Found, role: str, ref: BlobRef) -> bytes | None:
        """The payload once its digest is checked; None where it is larger than a piece held at a time allows."""
        try:
            ranges = recipe_of(self._recording.index, found, role)
        except FormatError as error:
            raise _Mismatch(f"it has no sound recipe: {error.detail}") from None
        size = sum(map(output_length, ranges))
        if size != ref.size:
            raise _Mismatch(f"its recipe makes {size} bytes, the row names {ref.size}")
        if size > self._recording.blob_limit:
            frames = self._recording.index.literal_entries([(item.offset, item.length) for item in ranges])
            check_proportion([frame for _, frame in frames], size, self._recording.blob_limit, where="payload")
        hasher = blake3()
        keep = size <= _DECODED
        kept: list[bytes] = []
        batch: list[tuple[int, int, int]] = []
        held = 0

        def flush() -> None:
            spans = [(offset, length) for offset, length, _ in batch]
            for (_, _, flags), data in zip(batch, self._recording.index.literals(spans), strict=True):
                text = (
                    encode_base64(data, urlsafe=bool(flags & URLSAFE), padded=not flags & UNPADDED) if flags else data
                )
                hasher.update(text)
                if keep:
                    kept.append(bytes(text))

        for offset, length, flags in ranges:
            for start in range(0, length, _PIECE):
                take = min(_PIECE, length - start)
                batch.append((offset + start, take, flags))
                held += take
                if held >= _PIECE:
                    flush()
                    batch.clear()
                    held = 0
        flush()
        if hasher.digest() != ref.digest:
            raise _Mismatch("its bytes do not match the digest in its row")
        return b"".join(kept) if keep else None

    def _key_fault(self, row: Row, identity: object) -> Iterator[Fault]:
        try:
            key = self._match.key(row.kind, identity)
        except CanonicalizationError as error:
            yield fault("key.mismatch", f"record {row.seq}", f"its identity has no key: {error}")
            return
        if key != row.key:
            yield fault(
                "key.mismatch", f"record {row.seq}", f"its identity has the key {key.hex()}, not {row.key.hex()}"
            )


class _Mismatch(Exception):
    """A payload that is not what its row says."""
