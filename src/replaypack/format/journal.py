"""The journal: what `append` leaves on the local disk before it returns (spec chapter 08, "Journal").

A journal is a sequence of entries ``length (u32) ‖ BLAKE3 of the body, 8 bytes ‖ body``. The first body
describes the recording, every other one is a record with the literals that it added. A process that dies
leaves at most one entry cut off, at the end, whose `append` never returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Any, Literal, NamedTuple

import msgspec

from replaypack.errors import FormatError, InvalidNameError

from .digests import SHORT_SIZE, digest
from .names import check_name
from .record_frame import Entry, decode_entry, encode_entry
from .table import INLINE_SPACE

__all__ = ["JOURNAL_VERSION", "JournalHead", "JournalRecord", "encode_head", "encode_record", "read_journal"]

JOURNAL_VERSION = 1
_HEAD = Struct("<I8s")
_MAGIC = b"RPKJRNL\n"
_WRITER = re.compile(r"[0-9a-f]{16}")
_PACK = re.compile(r"[0-9a-f]{64}")
_U32 = 1 << 32


class JournalHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which recording a journal belongs to, and where in it.

    ``archive`` is the URL without credentials; ``revision`` the claimed one; ``first`` the sequence number of the
    journal's first record, ``literals`` and ``inlines`` the sizes (bytes) of the two halves of the address space
    before it. ``external`` are frames of other recordings that the claim mapped into it: (first offset, raw bytes,
    literal bytes, digest, pack, bytes of the pack, 0, offset in the pack, compressed bytes). ``content`` are the
    members of the manifest's content that recovery cannot find elsewhere.
    """

    version: int
    archive: str
    name: str
    revision: int
    claim: Literal["create", "append", "replace"]
    writer: str
    number: int
    first: int
    literals: int
    inlines: int
    external: list[tuple[int, int, int, bytes, str, int, int, int, int]]
    content: dict[str, Any]


class JournalRecord(NamedTuple):
    """One record of a journal: its entry as in a record frame, the literals that it added, whether a frame begins.

    Recipes refer to recipes before them in the same record frame only; recovery closes its frames at the same
    places, so that records can be used as they are.
    """

    entry: Entry
    literals: bytes
    starts_frame: bool


def _frame(body: bytes) -> bytes:
    return _HEAD.pack(len(body), digest(body)) + body  # of the digest the first 8 bytes


def encode_head(head: JournalHead) -> bytes:
    """Return the first bytes of a journal."""
    return _MAGIC + _frame(msgspec.msgpack.encode(head))


def encode_record(entry: Entry, literals: bytes, *, starts_frame: bool) -> bytes:
    """Return the journal entry of one record: ``flags (1) ‖ record ‖ literals``."""
    return _frame(encode_entry(entry, b"\1" if starts_frame else b"\0", literals))


def _bodies(data: bytes) -> Iterator[bytes]:
    pos = len(_MAGIC)
    while pos + _HEAD.size <= len(data):
        size, check = _HEAD.unpack_from(data, pos)
        end = pos + _HEAD.size + size
        body = data[pos + _HEAD.size : end]
        if len(body) != size or digest(body)[:8] != check:
            # Cut off at the end is what a death leaves. With more behind it, something else did this.
            if len(body) == size and any(
                data[end + at : end + at + 4096].strip(b"\0") for at in range(0, 1 << 16, 4096)
            ):
                raise FormatError(f"the journal is damaged at byte {pos} of {len(data)}: what follows is not read")
            return
        yield body
        pos += _HEAD.size + size


def read_journal(data: bytes, *, where: str = "journal") -> tuple[JournalHead, Iterator[JournalRecord]]:
    """Parse a journal; the iterator ends at the first entry that is cut off or damaged.

    Raises `FormatError` where not even the head can be read.
    """
    bodies = _bodies(data) if data[: len(_MAGIC)] == _MAGIC else iter(())
    first = next(bodies, None)
    if first is None:
        raise FormatError("not a journal, or cut off before its first record", where=where)
    try:
        head = msgspec.msgpack.decode(first, type=JournalHead)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FormatError(f"the head of a journal does not parse: {error}", where=where) from None
    if head.version != JOURNAL_VERSION:
        raise FormatError(
            f"journal version {head.version} is not {JOURNAL_VERSION}",
            reason="future_version" if head.version > JOURNAL_VERSION else "unmigratable",
            where=where,
        )
    problem = _problem(head)
    if problem:
        raise FormatError(f"the head of a journal is unsound: {problem}", where=where)
    return head, _records(bodies, where)


def _problem(head: JournalHead) -> str | None:
    """What is wrong with a head. Its name and writer become keys of objects, its numbers entries of tables."""
    try:
        check_name(head.name)
    except InvalidNameError as error:
        return str(error)
    if not _WRITER.fullmatch(head.writer):
        return "its writer id is malformed"
    if not 0 < head.revision < 10**8 or head.number < 0 or not 0 <= head.first <= 1 << 48:
        return "a number is out of its bounds"
    if not (0 <= head.literals <= INLINE_SPACE and 0 <= head.inlines <= INLINE_SPACE):
        return "the literals end beyond their address space"
    end = None
    for first, raw, items, short, pack, size, _, offset, length in head.external:
        if (
            (first != end and end is not None)
            or not 0 <= first < INLINE_SPACE
            or not 0 < items <= raw < _U32
            or len(short) != SHORT_SIZE
            or not _PACK.fullmatch(pack)
            or not 0 < size < _U32
            or not (offset >= 0 and length > 0 and offset + length <= size)
        ):
            return "a frame of another recording is malformed"
        end = first + items
    return None


def _records(bodies: Iterator[bytes], where: str) -> Iterator[JournalRecord]:
    for body in bodies:
        if not body or body[0] > 1:
            raise FormatError("a record of a journal has unknown flags", where=where)
        entry, end = decode_entry(body, 1, where=where)
        yield JournalRecord(entry, body[end:], bool(body[0]))
