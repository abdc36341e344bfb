"""An archive in one zip file with stored entries, read by ranges. The file is untrusted: every number is checked."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from replaypack.errors import (
    FormatError,
    ObjectMissingError,
    ObjectTooShortError,
    ReadOnlyStorageError,
    StorageUnsupportedError,
)
from replaypack.storage._protocol import KeyRange, ObjectInfo, Storage, check_key, check_prefix, check_range, is_key

__all__ = ["ZipSource", "ZipStorage"]

TAIL: Final = 128 * 1024
"""Bytes read first, from the end. They hold the end record and, of most archives, the whole directory."""

LARGEST_DIRECTORY: Final = 64 << 20
"""Bytes of a central directory, at most: about half a million entries."""

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LARGEST_HEADER: Final = _LOCAL.size + 2 * 0xFFFF
_ENCRYPTED, _LATER, _STRONG, _MASKED = 1, 1 << 3, 1 << 6, 1 << 13
_MASK32: Final = 0xFFFFFFFF  # the number did not fit: it stands in a zip64 field

Answers = list[bytes]  # inside the class the name is a method's


class ZipSource(Protocol):
    """Reads the zip file itself."""

    url: str

    def suffix(self, length: int) -> bytes:
        """The last bytes, or all of a smaller file."""

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Exactly these (start, length) ranges."""

    def close(self) -> None:
        """Releases what the source holds."""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: bytes
    offset: int
    size: int
    checksum: int
    flags: int
    end: int  # where the next entry, or the directory, begins

    @property
    def expected_data(self) -> int:
        """Where the data begins when nothing stands between it and the next entry."""
        return self.end - self.size


class ZipStorage(Storage):
    """``zip::URL`` or a URL ending in ``.zip``; ``zip://inner/prefix::URL`` for an archive in a folder of it.

    Opening costs one request, two with a large directory; every read after it one. The directory is read once: a
    zip file is taken not to change.
    Raises, besides what the source does, `FormatError` for a file that is no sound zip file, and
    `StorageUnsupportedError` for compressed or encrypted entries.
    """

    read_only = True

    def __init__(self, source: ZipSource, prefix: str = "") -> None:
        self.url = f"zip://{prefix}::{source.url}" if prefix else f"zip::{source.url}"
        self._source = source
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._lock = threading.Lock()
        self._directory: dict[str, _Entry] | None = None
        self._tail, self._tail_start = b"", 0  # the end of the file, once it was read
        self._data: dict[str, int] = {}  # where the data of entries begins whose local header was verified

    # -- the protocol -------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        entry = self._entry("get", key)
        data = self._read("get", [(key, entry, 0, entry.size)])[0]
        if zlib.crc32(data) != entry.checksum:
            raise FormatError("the data does not match its checksum", where=self._at(key))
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get_ranges([(key, start, length)])[0]

    def get_suffix(self, key: str, length: int) -> bytes:
        check_range(0, length, url=self._at(key))
        entry = self._entry("get_suffix", key)
        taken = min(length, entry.size)
        return self._read("get_suffix", [(key, entry, entry.size - taken, taken)])[0]

    def get_ranges(self, ranges: Sequence[KeyRange]) -> list[bytes]:
        wanted = []
        for key, start, length in ranges:
            check_range(start, length, url=self._at(key))
            entry = self._entry("get_range", key)
            if length and start + length > entry.size:
                raise ObjectTooShortError(
                    f"the object ends at byte {entry.size}, before byte {start + length}",
                    operation="get_range",
                    url=self._at(key),
                )
            wanted.append((key, entry, start, length))
        return self._read("get_range", wanted)

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._check_writable("put_new", key)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        self._check_writable("put", key)

    def delete(self, key: str) -> None:
        self._check_writable("delete", key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix, url=self.url)
        return iter([ObjectInfo(key, entry.size) for key, entry in self._entries().items() if key.startswith(prefix)])

    def close(self) -> None:
        self._source.close()

    def _check_writable(self, operation: str, key: str) -> None:
        check_key(key, operation=operation, url=self.url)
        raise ReadOnlyStorageError("a zip file can only be read", operation=operation, url=self._at(key))

    # -- entries --------------------------------------------------------------------------------------

    def _entry(self, operation: str, key: str) -> _Entry:
        check_key(key, operation=operation, url=self.url)
        entry = self._entries().get(key)
        if entry is None:
            raise ObjectMissingError("no such entry", operation=operation, url=self._at(key))
        return entry

    def _read(self, operation: str, wanted: Sequence[tuple[str, _Entry, int, int]]) -> Answers:
        """The ranges of entries. An entry not read before has its local header fetched along, and verified."""
        asked: list[tuple[int, int]] = []
        unverified: dict[str, _Entry] = {}
        for key, entry, start, length in wanted:
            if key not in self._data:
                unverified[key] = entry
            asked.append((self._data.get(key, entry.expected_data) + start, length))
        headers = [(e.offset, min(_LARGEST_HEADER, e.end - e.size - e.offset)) for e in unverified.values()]
        answers = self._ranges([*headers, *asked])
        for (key, entry), header in zip(unverified.items(), answers, strict=False):
            self._data[key] = entry.offset + self._verified(entry, header)
        answers = answers[len(headers) :]
        again = [i for i, (key, _, start, _) in enumerate(wanted) if self._data[key] + start != asked[i][0]]
        if again:  # something stands between the data and the next entry: a data descriptor, or padding
            corrected = self._ranges([(self._data[wanted[i][0]] + wanted[i][2], wanted[i][3]) for i in again])
            for index, data in zip(again, corrected, strict=True):
                answers[index] = data
        return answers

    def _ranges(self, ranges: Sequence[tuple[int, int]]) -> Answers:
        """As the source does, without asking for what came with the directory: all of a small archive."""
        tail, first = self._tail, self._tail_start
        asked = [(start, length) for start, length in ranges if start < first]
        fetched = iter(self._source.ranges(asked) if asked else ())
        return [next(fetched) if start < first else tail[start - first :][:length] for start, length in ranges]

    def _verified(self, entry: _Entry, header: bytes) -> int:
        """The length of the local header, which must say the same as the directory."""
        where = f"{self.url}, local header at byte {entry.offset}"
        fields = _LOCAL.unpack_from(header)
        signature, _, flags, method, _, _, checksum, packed, size, name_length, extra_length = fields
        if signature != b"PK\x03\x04":
            raise FormatError("there is none", where=where)
        if method != 0 or flags & (_ENCRYPTED | _STRONG | _MASKED):
            raise FormatError("it is compressed or encrypted, unlike its directory entry", where=where)
        length: int = _LOCAL.size + name_length + extra_length
        if length > len(header):
            raise FormatError("it runs into its data", where=where)
        if header[_LOCAL.size : _LOCAL.size + name_length] != entry.name:
            raise FormatError("it has another name than its directory entry", where=where)
        if not flags & _LATER:
            for told, known in ((packed, entry.size), (size, entry.size), (checksum, entry.checksum)):
                if told not in (known, _MASK32):
                    raise FormatError("it differs from its directory entry", where=where)
        return length

    # -- the directory ----------------------------------------------------------------------------------

    def _entries(self) -> dict[str, _Entry]:
        with self._lock:
            if self._directory is None:
                self._directory = self._read_directory()
            return self._directory

    def _read_directory(self) -> dict[str, _Entry]:
        tail = self._source.suffix(TAIL)
        start, size, count, tail_start = self._find_directory(tail)
        self._tail, self._tail_start = tail, tail_start
        if start >= tail_start:
            directory = tail[start - tail_start : start - tail_start + size]
        else:
            directory = self._source.ranges([(start, size)])[0]
        raw = list(self._parse(directory, count))
        raw.sort(key=lambda entry: entry.offset)
        found: dict[str, _Entry] = {}
        ends = [*(later.offset for later in raw[1:]), start] if raw else []
        for entry, end in zip(raw, ends, strict=True):
            # Each entry has bytes of its own, all before the directory: no overlap, no byte served twice.
            if entry.offset + _LOCAL.size + len(entry.name) + entry.size > end:
                raise FormatError(f"entries overlap at byte {entry.offset}", where=self.url)
            path = entry.name.decode("ascii", "replace")
            if not path.startswith(self._prefix) or not is_key(key := path.removeprefix(self._prefix)):
                continue
            if key in found:
                raise FormatError(f"two entries are named {path!r}", where=self.url)
            found[key] = _Entry(entry.name, entry.offset, entry.size, entry.checksum, entry.flags, end)
        return found

    def _find_directory(self, tail: bytes) -> tuple[int, int, int, int]:
        """Start, size and number of entries of the directory, and where in the file ``tail`` begins.

        The end record stands right behind the directory, which fixes where in the file everything lies. What has
        bytes before the first or behind the last part of the zip file is refused.
        """
        at = tail.rfind(b"PK\x05\x06")
        while at >= 0:
            if len(tail) - at >= _END.size and at + _END.size + _END.unpack_from(tail, at)[7] == len(tail):
                break
            at = tail.rfind(b"PK\x05\x06", 0, at + 3) if at else -1
        if at < 0:
            raise FormatError("this is no zip file: it has no end record", where=self.url)
        _, disk, first_disk, here, count, size, start, _ = _END.unpack_from(tail, at)
        end = at
        if tail[max(0, at - _LOCATOR64.size) : at].startswith(b"PK\x06\x07"):
            end, disk, first_disk, here, count, size, start = self._find_directory64(tail, at)
        if disk or first_disk or here != count:
            raise FormatError("a zip file in several parts is not supported", where=self.url)
        if size > LARGEST_DIRECTORY or count * _CENTRAL.size > size:
            raise FormatError(f"a directory of {count} entries in {size} bytes is absurd", where=self.url)
        tail_start: int = start + size - end
        if tail_start < 0 or (tail_start > 0 and len(tail) < TAIL):
            raise FormatError("the directory is not where the end record says", where=self.url)
        return start, size, count, tail_start

    def _find_directory64(self, tail: bytes, at: int) -> tuple[int, int, int, int, int, int, int]:
        locator = at - _LOCATOR64.size
        end = locator - _END64.size
        if end < 0 or tail[end : end + 4] != b"PK\x06\x06":
            raise FormatError("the zip64 end record is missing", where=self.url)
        _, _, _, _, disk, first_disk, here, count, size, start = _END64.unpack_from(tail, end)
        return end, disk, first_disk, here, count, size, start

    def _parse(self, directory: bytes, count: int) -> Iterator[_Entry]:
        at = 0
        for _ in range(count):
            if at + _CENTRAL.size > len(directory) or directory[at : at + 4] != b"PK\x01\x02":
                raise FormatError("the directory breaks off", where=self.url)
            fields = _CENTRAL.unpack_from(directory, at)
            _, _, _, flags, method, _, _, checksum, packed, size, name_length, extra_length, comment_length = fields[
                :13
            ]
            offset = fields[16]
            at += _CENTRAL.size
            name = directory[at : at + name_length]
            extra = directory[at + name_length : at + name_length + extra_length]
            at += name_length + extra_length + comment_length
            if at > len(directory):
                raise FormatError("the directory breaks off", where=self.url)
            size, packed, offset = self._wide(extra, size, packed, offset)
            if not name.endswith(b"/"):
                if flags & (_ENCRYPTED | _STRONG | _MASKED):
                    raise self._refused(name, "is encrypted")
                if method != 0 or packed != size:
                    raise self._refused(name, "is compressed")
            yield _Entry(name, offset, size, checksum, flags, 0)

    def _refused(self, name: bytes, what: str) -> StorageUnsupportedError:
        shown = name[:80].decode("ascii", "replace")
        return StorageUnsupportedError(
            f"entry {shown!r} {what}; an archive is read from stored entries only",
            operation="open",
            url=self.url,
            hint="zip -0 stores",
        )

    def _wide(self, extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
        """The numbers that did not fit 32 bits, from the zip64 extra field, where they stand in this order."""
        values = [size, packed, offset]
        if _MASK32 not in values:
            return size, packed, offset
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                field = extra[at + 4 : at + 4 + length]
                wide = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
                values = [next(wide, _MASK32) if value == _MASK32 else value for value in values]
                break
            at += 4 + length
        return values[0], values[1], values[2]
