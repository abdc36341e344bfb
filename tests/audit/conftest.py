"""An archive on disk with everything that `verify` looks at, made once and copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import replaypack
from tests.storage.conftest import s3_bucket

__all__ = ["s3_bucket"]


def fill(recorder: replaypack.Recorder, first: int, count: int, flush_every: int = 0) -> None:
    """Records of every shape: scopes, errors, own keys, large and small payloads, bytes, odd values, base64."""
    history: list[dict[str, object]] = []
    for i in range(first, first + count):
        if i % 5 == 0:
            history.append({"role": "user", "content": f"question {i} " + "words " * (i % 97)})
            recorder.append(
                kind="model",
                name="m-1",
                identity={"model": "m-1", "messages": list(history), "temperature": 0.5},
                response={"text": f"answer {i}", "logprobs": [float("nan"), -0.0, 2**70]},
            )
        elif i % 5 == 1:
            recorder.append(kind="tool", name="blob", identity={"n": i}, response=bytes([i % 256]) * (i * 30))
        elif i % 5 == 2:
            recorder.append(kind="tool", name="text", key=f"k{i % 20}", request="x" * (i * 40), response="y" * i)
        elif i % 5 == 3:
            recorder.append(
                kind="tool", name="odd", identity=["a", {"s": i}], scope=f"s{i % 3}", error=ValueError(f"no {i}")
            )
        else:
            recorder.append(
                kind="http",
                identity={"url": f"u{i}", "body": b"\xff" * (i % 9)},
                request={"image": "QUJD" * (i * 9)},
                response={1: "one", "two": [None, True, i]},
            )
        if flush_every and i % flush_every == flush_every - 1:
            recorder.flush()


@pytest.fixture(scope="session")
def sound_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sealed recording of 300 records, of three flushes and with a payload in a pack of its own."""
    path = tmp_path_factory.mktemp("sound") / "archive"
    with replaypack.Archive(path).recorder("runs/sealed", metadata={"by": "test"}) as recorder:
        fill(recorder, 0, 299, flush_every=110)
        recorder.append(kind="tool", name="media", identity="media", response=bytes(range(256)) * 16500)
    return path


@pytest.fixture
def archive_path(sound_archive: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(sound_archive, tmp_path / "archive"))


@pytest.fixture
def fill_recorder() -> Callable[..., None]:
    return fill
