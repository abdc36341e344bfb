"""Payloads: each has the digest and the encoding that its row names, and makes the key that the row has."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, compress
from operator import itemgetter, not_

from blake3 import blake3

from replaypack._read.blobs import is_withheld, recipe_of
from replaypack._read.index import Found, check_proportion
from replaypack.errors import DAMAGED, CanonicalizationError, FormatError
from replaypack.format.base64 import encode_base64
from replaypack.format.digests import digest, digests
from replaypack.format.recipe import UNPADDED, URLSAFE, Range, output_length
from replaypack.format.record_frame import RecordFrame
from replaypack.format.row import FLAGS, BlobRef, Row
from replaypack.recording import Recording
from replaypack.values import ENCODING_NONE, ENCODING_STRUCTURED, decode_payload, decode_plain, decode_together

from ._batch import Batch
from ._faults import Fault, fault
from ._literals import LiteralReader

__all__ = ["PayloadChecker", "Spans"]

#: Literals fetched at a time while a payload is hashed (bytes; a multiple of three, so that base64 can be cut there).
_PIECE = 6 << 20
#: Larger payloads are hashed and not decoded.
_DECODED = 64 << 20
#: Requests up to this size (bytes) are checked several at a time, with responses that stand behind their rows.
_SMALL = 4096
_length, _flags = itemgetter(1), itemgetter(2)
_REDACTED = FLAGS["redacted"]
_OTHER = "its bytes do not match the digest in its row"


def _sound_responses(rows: Sequence[Row], inlines: Sequence[bytes]) -> bool:
    """Whether the responses behind rows are in the encodings that those name. Raises `FormatError` where not."""
    others = [at for at, row in enumerate(rows) if row.response_encoding != ENCODING_STRUCTURED]
    for at in others:
        decode_payload(rows[at].response_encoding, inlines[at])
    if others:
        inlines = [inlines[at] for at, row in enumerate(rows) if row.response_encoding == ENCODING_STRUCTURED]
    return decode_together(inlines) is not None


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

    def covers(self, first: int, end: int) -> bool:
        """Whether all numbers from ``first`` up to ``end``, which is not included, are in it."""
        at = bisect_right(self.starts, first) - 1
        return at >= 0 and end <= self.ends[at]

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
        self._index = recording.index
        self._literals = LiteralReader(recording.index, recording.blob_limit)
        self._frame: RecordFrame | None = None
        self._lone_frame: RecordFrame | None = None
        self._lone: tuple[list[int], list[int]] | None = None

    def unreadable(self) -> Iterator[Fault]:
        """Yield which records have payloads that could not be read, one fault for each cause."""
        for cause, spans in sorted(self._unreadable.items()):
            yield fault("blob.unreadable", f"records {spans}", f"payloads of {spans.count} records: {cause}")

    def check_all(self, batch: Batch) -> Iterator[Fault]:
        """Yield what is wrong with the payloads of several records, and with their keys."""
        for at in self._doubtful(batch):
            yield from self.check(batch.found(at))

    def _doubtful(self, batch: Batch) -> Sequence[int]:
        """Which of the records have to be looked at one by one: all where of the others not everything is right."""
        every = range(len(batch.rows))
        if len(every) == 1 or self._index.withheld:
            return every
        limit = min(_SMALL, self._recording.blob_limit)
        small = [
            (request := row.request) is not None
            and request.size <= limit
            and request.encoding == ENCODING_STRUCTURED
            and row.identity is None
            and row.response_encoding != ENCODING_NONE
            and inline is not None
            for row, inline in zip(batch.rows, batch.inlines, strict=True)
        ]
        rows = list(compress(batch.rows, small))
        try:
            blobs = self._requests(batch, small, [row.request for row in rows if row.request is not None])
            inlines = [inline for inline in compress(batch.inlines, small) if inline is not None]
            if blobs is None or not _sound_responses(rows, inlines):
                return every
            plain = decode_plain(blobs)
            identities = plain if plain is not None else decode_together(blobs)
            if identities is None:
                return every
            named = [row.scheme == "identity" and not row.flags & _REDACTED for row in rows]
            if not all(named):
                rows, identities = list(compress(rows, named)), list(compress(identities, named))
            keys = self._match.keys([row.kind for row in rows], identities, plain=plain is not None)
        except (*DAMAGED, CanonicalizationError):
            return every
        if keys != [row.key for row in rows]:
            return every
        return list(compress(every, map(not_, small)))

    def _requests(self, batch: Batch, wanted: Sequence[bool], refs: Sequence[BlobRef]) -> list[bytes] | None:
        """The requests of the records ``wanted`` of a batch; None unless they are all as ``refs`` say."""
        frame, first, end = batch.frame, batch.number, batch.number + len(batch.rows)
        if frame is not self._lone_frame:
            self._lone_frame, self._lone = frame, frame.lone_ranges()
        sizes = [ref.size for ref in refs]
        if self._lone is None:
            self._index.recipes(frame, frame.count - 1)
            recipes = list(compress(map(frame.recipes, range(first, end)), wanted))
            if any(len(found) != 1 for found in recipes):
                return None
            blobs = self._literals.blobs(chain.from_iterable(recipes), sizes)
        else:
            offsets, lengths = (list(compress(column[first:end], wanted)) for column in self._lone)
            if lengths != sizes:
                return None
            blobs = self._literals.slices(offsets, sizes) if sizes else []
        return blobs if digests(blobs) == [ref.digest for ref in refs] else None

    def check(self, found: Found) -> list[Fault]:
        """What is wrong with the payloads of one record, and whether its key is that of its identity."""
        row = found.row
        faults: list[Fault] = []
        request, identity, response = row.request, row.identity, row.response
        # The key of a redacted record is of what was there before.
        named = row.scheme == "identity" and not row.flags & _REDACTED
        if request is not None:
            self._check(found, "request", request, named and identity is None, faults)
        if identity is not None:
            self._check(found, "identity", identity, named, faults)
        if response.encoding:
            self._check(found, "response", response, False, faults)
        if request is None and identity is None and row.scheme == "identity":
            faults.append(fault("key.mismatch", f"record {row.seq}", "its key is of an identity, and none is recorded"))
        return faults

    def _check(self, found: Found, role: str, ref: BlobRef, is_identity: bool, faults: list[Fault]) -> None:
        row = found.row
        if self._index.withheld and is_withheld(self._index, row, role):
            return
        try:
            inline = found.inline if role == "response" else None
            data = self._hashed(found, role, ref) if inline is None else inline
            if data is None:
                return  # too large to be held: its digest is right
            value = _decoded(ref.encoding, data)
        except _Mismatch as error:
            faults.append(fault("blob.mismatch", f"{role} of record {row.seq}", str(error)))
        except _Encoding as error:
            faults.append(fault("blob.encoding", f"{role} of record {row.seq}", str(error)))
        except DAMAGED as error:
            self._unreadable.setdefault(str(error), Spans()).add(row.seq, row.seq + 1)
        else:
            if is_identity:
                faults += self._key_fault(row, value)

    def _recipe(self, found: Found, role: str) -> list[Range]:
        """As `recipe_of`; the recipes of a frame are resolved once, all of them."""
        frame = found.frame
        if frame is not self._frame and isinstance(frame, RecordFrame):
            self._frame = frame
            with contextlib.suppress(FormatError):  # those before the broken one are found below
                self._index.recipes(frame, frame.count - 1)
        return recipe_of(self._index, found, role)

    def _hashed(self, found: Found, role: str, ref: BlobRef) -> bytes | None:
        """The payload once its digest is checked; None where it is larger than a piece held at a time allows."""
        try:
            ranges = self._recipe(found, role)
        except FormatError as error:
            raise _Mismatch(f"it has no sound recipe: {error.detail}") from None
        size = sum(map(output_length if any(map(_flags, ranges)) else _length, ranges))
        if size != ref.size:
            raise _Mismatch(f"its recipe makes {size} bytes, the row names {ref.size}")
        if size > self._recording.blob_limit:
            frames = self._index.literal_entries([(item.offset, item.length) for item in ranges])
            check_proportion([frame for _, frame in frames], size, self._recording.blob_limit, where="payload")
        if size <= _DECODED:
            parts = self._literals.parts(ranges)
            data = bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
            if digest(data) != ref.digest:
                raise _Mismatch(_OTHER)
            return data
        hasher = blake3()
        batch: list[tuple[int, int, int]] = []
        held = 0

        def flush() -> None:
            spans = [(offset, length) for offset, length, _ in batch]
            for (_, _, flags), data in zip(batch, self._index.literals(spans), strict=True):
                text = (
                    encode_base64(data, urlsafe=bool(flags & URLSAFE), padded=not flags & UNPADDED) if flags else data
                )
                hasher.update(text)

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
            raise _Mismatch(_OTHER)
        return None

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


def _decoded(encoding: int, data: bytes) -> object:
    try:
        return decode_payload(encoding, data)
    except FormatError as error:
        raise _Encoding(error.detail) from None


class _Encoding(Exception):
    """A payload that is not in the encoding that its row names."""


class _Mismatch(Exception):
    """A payload that is not what its row says."""
