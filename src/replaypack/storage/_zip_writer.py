"""One new zip file with stored entries, written as a storage: what an archive is copied into to be one file."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from replaypack._files import atomic_file, write_hint
from replaypack.errors import ObjectMissingError, ObjectTooShortError, StorageError, StorageUnsupportedError
from replaypack.storage._local import translated
from replaypack.storage._protocol import ObjectInfo, Storage, check_key, check_prefix, check_range

__all__ = ["ZipWriter"]

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64: Final = struct.Struct("<4sLQL")
_MASK16, _MASK32 = 0xFFFF, 0xFFFFFFFF
#: Midnight of 1 January 1980, the first time that zip knows: the same objects give the same file.
_TIME, _DATE = 0, (1 << 5) | 1
_PLAIN_FILE: Final = 0o100644 << 16
_UNIX: Final = 3 << 8


class _Entry(NamedTuple):
    offset: int  # of its local header
    start: int  # of its data
    size: int
    checksum: int


class ZipWriter(Storage):
    """A zip file that appears under ``path`` with `finish`, whole; closed without it, nothing is left.

    Objects that are created once go to the file as they come. Those that may be replaced (`put`) are held in memory
    and written last, right before the directory: whoever opens the file reads its end first, and finds them there.
    With ``overwrite`` a file of that name is replaced.

    Raises `StorageError` where there is a file already or none can be made, `StorageFullError`.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.url = f"zip::{self.path}"
        self._entries: dict[str, _Entry] = {}
        self._held: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._end = 0
        if self.path.exists() and not overwrite:
            raise self._failed("open", FileExistsError("there is such a file"))
        # Between here and `finish` the file has another name.
        self._context = contextlib.ExitStack()
        try:
            self._file: IO[bytes] = self._context.enter_context(atomic_file(path, overwrite=overwrite))
        except OSError as error:
            raise self._failed("open", error) from None

    # -- the protocol -------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        check_key(key, operation="get", url=self.url)
        with self._lock:
            if key in self._held:
                return self._held[key]
            entry = self._entry("get", key)
            return self._read(entry.start, entry.size)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length, url=self._at(key))
        if not length:
            return b""
        data = self.get(key) if key in self._held else None
        with self._lock:
            size = len(data) if data is not None else self._entry("get_range", key).size
            if start + length > size:
                message = f"the object ends at byte {size}, before byte {start + length}"
                raise ObjectTooShortError(message, operation="get_range", url=self._at(key))
            if data is not None:
                return data[start : start + length]
            return self._read(self._entries[key].start + start, length)

    def get_suffix(self, key: str, length: int) -> bytes:
        check_range(0, length, url=self._at(key))
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                return held[len(held) - min(length, len(held)) :]
            entry = self._entry("get_suffix", key)
            taken = min(length, entry.size)
            return self._read(entry.start + entry.size - taken, taken)

    def put_new(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        check_key(key, operation="put_new", url=self.url)
        checksum = zlib.crc32(data)
        with self._lock:
            if key not in self._entries and key not in self._held:
                self._append(key, data, checksum)
                return
        self._accept_existing(key, data)

    def put(self, key: str, data: bytes, *, cache_control: str | None = None) -> None:
        check_key(key, operation="put", url=self.url)
        with self._lock:
            if key in self._entries:
                raise self._unsupported("put", key, "an entry that is written cannot be replaced")
            self._held[key] = bytes(data)

    def delete(self, key: str) -> None:
        check_key(key, operation="delete", url=self.url)
        with self._lock:
            if key in self._entries:
                raise self._unsupported("delete", key, "an entry that is written cannot be taken back")
            self._held.pop(key, None)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix, url=self.url)
        with self._lock:
            sizes = {key: entry.size for key, entry in self._entries.items()}
            sizes.update((key, len(data)) for key, data in self._held.items())
        return iter([ObjectInfo(key, size) for key, size in sizes.items() if key.startswith(prefix)])

    def close(self) -> None:
        """Drop what was written, unless it was finished."""
        with self._lock, contextlib.suppress(_Abandoned), self._context:
            raise _Abandoned

    def finish(self) -> None:
        """Write what was held and the directory, sync it, and give the file its name.

        Raises `StorageFullError`, `StorageError` (a file of that name has come meanwhile).
        """
        with self._lock:
            for key, data in sorted(self._held.items()):
                self._append(key, data, zlib.crc32(data))
            self._held.clear()
            self._write("finish", self._directory())
            try:
                self._context.close()
            except OSError as error:
                raise self._failed("finish", error) from None

    # -- the file -------------------------------------------------------------------------------------

    def _append(self, key: str, data: bytes, checksum: int) -> None:
        name, size, offset = key.encode(), len(data), self._end
        wide = struct.pack("<2H2Q", 1, 16, size, size) if size >= _MASK32 else b""
        told = _MASK32 if wide else size
        version = 45 if wide else 20
        header = _LOCAL.pack(b"PK\x03\x04", version, 0, 0, _TIME, _DATE, checksum, told, told, len(name), len(wide))
        start = offset + len(header) + len(name) + len(wide)
        self._write("put_new", header + name + wide, data)
        self._entries[key] = _Entry(offset, start, size, checksum)

    def _directory(self) -> bytes:
        out = bytearray()
        start = self._end
        for key, entry in self._entries.items():
            name = key.encode()
            numbers = [number for number in (entry.size, entry.size, entry.offset) if number >= _MASK32]
            wide = struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""
            version = 45 if wide else 20
            size, offset = min(entry.size, _MASK32), min(entry.offset, _MASK32)
            out += _CENTRAL.pack(
                b"PK\x01\x02", _UNIX | version, version, 0, 0, _TIME, _DATE, entry.checksum, size, size,
                len(name), len(wide), 0, 0, 0, _PLAIN_FILE, offset,
            )  # fmt: skip
            out += name + wide
        count, size = len(self._entries), len(out)
        if count >= _MASK16 or size >= _MASK32 or start >= _MASK32:
            end64 = start + size
            out += _END64.pack(b"PK\x06\x06", _END64.size - 12, _UNIX | 45, 45, 0, 0, count, count, size, start)
            out += _LOCATOR64.pack(b"PK\x06\x07", 0, end64, 1)
        count, size, start = min(count, _MASK16), min(size, _MASK32), min(start, _MASK32)
        out += _END.pack(b"PK\x05\x06", 0, 0, count, count, size, start, 0)
        return bytes(out)

    def _write(self, operation: str, *parts: bytes) -> None:
        try:
            self._file.seek(self._end)  # a write that failed half-way is written over
            for part in parts:
                self._file.write(part)
        except (OSError, ValueError) as error:
            raise self._failed(operation, error) from None
        self._end += sum(map(len, parts))

    def _read(self, start: int, length: int) -> bytes:
        try:
            self._file.seek(start)
            return self._file.read(length)
        except (OSError, ValueError) as error:
            raise self._failed("get", error) from None

    def _entry(self, operation: str, key: str) -> _Entry:
        check_key(key, operation=operation, url=self.url)
        if key not in self._entries:
            raise ObjectMissingError("no such entry", operation=operation, url=self._at(key))
        return self._entries[key]

    def _failed(self, operation: str, error: OSError | ValueError) -> StorageError:
        if isinstance(error, FileExistsError):
            hint = "choose another name, or overwrite it"
            return StorageError("there is such a file already", operation=operation, url=str(self.path), hint=hint)
        if isinstance(error, OSError):
            said = translated(error, operation, str(self.path))
            said.hint = write_hint(error)
            return said
        return StorageError("it is closed", operation=operation, url=str(self.path))

    def _unsupported(self, operation: str, key: str, why: str) -> StorageUnsupportedError:
        return StorageUnsupportedError(why, operation=operation, url=self._at(key))


class _Abandoned(Exception):
    pass
