"""Files of the Karenina corpus."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import zstandard
from benchmarks.corpora import corpora_directory

__all__ = ["karenina_directory", "karenina_file"]


def karenina_directory() -> Path:
    """Where the corpora lie; the test is skipped where they do not."""
    directory = corpora_directory()
    if directory is None or not (directory / "karenina.tar.zst").is_file():
        pytest.skip("the corpora are not here: set REPLAYPACK_CORPORA to the directory of the .tar.zst files")
    return directory


def karenina_file(end: str) -> bytes:
    """The first file of the corpus whose name ends so."""
    path = karenina_directory() / "karenina.tar.zst"
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        raw = stream.read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        name = next(name for name in archive.getnames() if name.endswith(end))
        content = archive.extractfile(name)
        assert content is not None
        return content.read()
