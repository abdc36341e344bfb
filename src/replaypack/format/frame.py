"""zstd frames: the unit of compression and of reading (spec chapter 04, "Frames")."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import zstandard

from replaypack.errors import FormatError

__all__ = ["MAX_COMPRESSED", "MAX_FRAME", "Compressor", "decompress"]

#: The most bytes a frame may decompress to. Writers stay far below; readers refuse more before allocating.
MAX_FRAME = 64 << 20
#: More than zstd can make of the largest frame.
MAX_COMPRESSED = MAX_FRAME + (MAX_FRAME >> 7) + 1024


#: Up to this size zstd takes small tables by itself; and about how many bytes, at most, a frame of sections has.
_SMALL_TABLES = 128 << 10
_SECTIONS = 256 << 10


class Compressor:
    """Makes zstd frames with content size and checksum at one level; safe to share between threads."""

    def __init__(self, level: int = 3, *, noted: bool = False) -> None:
        self.level = level
        #: What packs of its frames say of their level: 0 where it is not to be relied on.
        self.noted = level if noted else 0
        self._local = threading.local()

    def _context(self) -> zstandard.ZstdCompressor:
        compressor: zstandard.ZstdCompressor | None = getattr(self._local, "compressor", None)
        if compressor is None:
            # A zstd context must not be used by two threads at once, and costs more to make than to keep.
            compressor = zstandard.ZstdCompressor(
                level=self.level, write_content_size=True, write_checksum=True, write_dict_id=False
            )
            self._local.compressor = compressor
        return compressor

    def _context_of_sections(self) -> zstandard.ZstdCompressor:
        compressor: zstandard.ZstdCompressor | None = getattr(self._local, "sections", None)
        if compressor is None:
            # zstd's tables for more than 128 KiB, which record frames just pass, are megabytes: in ones that stay in
            # the processor's cache it finds the same in three quarters of the time.
            usual = zstandard.ZstdCompressionParameters.from_level(self.level, source_size=_SECTIONS)
            if usual.strategy > zstandard.STRATEGY_LAZY2:
                compressor = self._context()
            else:
                parameters = zstandard.ZstdCompressionParameters.from_level(
                    self.level,
                    source_size=_SECTIONS,
                    hash_log=min(usual.hash_log, 17),
                    chain_log=min(usual.chain_log, 16),
                    write_content_size=True,
                    write_checksum=True,
                    write_dict_id=False,
                )
                compressor = zstandard.ZstdCompressor(compression_params=parameters)
            self._local.sections = compressor
        return compressor

    def __call__(self, raw: bytes | bytearray | memoryview) -> bytes:
        """Compress ``raw`` (at most `MAX_FRAME` bytes) into one frame."""
        if len(raw) > MAX_FRAME:
            raise ValueError(f"a frame holds at most {MAX_FRAME} bytes, not {len(raw)}")
        # Copied: what zstandard returns keeps the room that it took for the worst case, as much as the raw bytes.
        return bytes(memoryview(self._context().compress(raw)))

    def sections(self, parts: Sequence[bytes]) -> bytes:
        """Compress ``parts`` into one frame, each beginning a zstd block: digests and text share no entropy tables."""
        size = sum(map(len, parts))
        if size > MAX_FRAME:
            raise ValueError(f"a frame holds at most {MAX_FRAME} bytes, not {size}")
        context = self._context_of_sections() if size > _SMALL_TABLES else self._context()
        stream = context.compressobj(size=size)
        out = []
        for part in parts[:-1]:
            out.append(stream.compress(part))
            if part:
                out.append(stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        out.append(stream.compress(parts[-1]))
        out.append(stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH))
        return b"".join(out)


_local = threading.local()


def decompress(
    frame: bytes | memoryview, raw_size: int | None = None, *, most: int = MAX_FRAME, where: str = "frame"
) -> bytes:
    """Decompress one whole zstd frame.

    ``raw_size`` (bytes), where the caller knows it, must be what the frame says of itself, which may be ``most``
    (bytes). The size is
    checked before anything is allocated. Raises `FormatError` (``corrupted``) for anything else than
    exactly one sound frame that names its size.
    """
    try:
        size = zstandard.frame_content_size(frame)
    except zstandard.ZstdError:
        raise FormatError("not a zstd frame", where=where) from None
    if size < 0:
        raise FormatError("a zstd frame does not name its size", where=where)
    if not size:
        raise FormatError("a zstd frame is empty", where=where)
    if size > most or (raw_size is not None and size != raw_size):
        wanted = f"{raw_size}" if raw_size is not None and raw_size <= most else f"at most {most}"
        raise FormatError(f"a zstd frame says it holds {size} bytes, not {wanted}", where=where)
    decompressor = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    try:
        raw = decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FormatError(f"a zstd frame does not decompress: {error}", where=where) from None
    if len(raw) != size:
        raise FormatError(f"a zstd frame holds {len(raw)} bytes, not the {size} it names", where=where)
    return bytes(raw)
