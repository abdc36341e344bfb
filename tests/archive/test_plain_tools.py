"""What an auditor does without this package: zstd, b3sum and jq on the files of an archive."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from blake3 import blake3

from replaypack import Archive
from replaypack.format.frame import decompress
from replaypack.format.pack import parse_pack
from tests.archive.support import calls


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("plain")
    with Archive(path).recorder("run", flush_interval=None, metadata={"suite": "smoke"}) as recorder:
        for call in calls(60, large=True):
            recorder.append(**call)
    return path


def run(tool: str, *arguments: str) -> bytes:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not installed")
    return subprocess.run([found, *arguments], capture_output=True, check=True).stdout


def test_zstd_decompresses_a_pack(directory: Path) -> None:
    for path in directory.glob("packs/*/*.rpk"):
        data = path.read_bytes()
        frames = [decompress(data[f.offset : f.offset + f.length], f.raw) for f in parse_pack(data).frames]
        assert run("zstd", "-q", "-dc", str(path)) == b"".join(frames)


def test_a_pack_is_named_by_its_digest(directory: Path) -> None:
    packs = list(directory.glob("packs/*/*.rpk"))
    assert packs
    for path in packs:
        assert blake3(path.read_bytes()).hexdigest() == path.stem
        assert path.parent.name == path.stem[:2]


def test_b3sum_gives_the_name(directory: Path) -> None:
    for path in directory.glob("packs/*/*.rpk"):
        assert run("b3sum", "--no-names", str(path)).decode().strip() == path.stem


def test_jq_reads_a_manifest(directory: Path) -> None:
    latest = directory / "recordings" / "run" / "latest.json"
    assert run("jq", "-r", ".content.metadata.suite", str(latest)) == b"smoke\n"
    assert json.loads(run("jq", "-c", ".content.counts", str(latest))) == {"http": 10, "model": 10, "tool": 42}


def test_a_pack_alone_tells_what_it_holds(directory: Path) -> None:
    """Its table of contents names the recording, and which records and literals its frames hold."""
    named = [parse_pack(path.read_bytes()) for path in directory.glob("packs/*/*.rpk")]
    [toc] = [toc for toc in named if toc.origins]
    assert [origin.name for origin in toc.origins] == ["run"]
    records = [frame for frame in toc.frames if frame.kind == 1]
    assert records[0].first == 0
    assert sum(frame.count for frame in records) == 62
    [large] = [toc for toc in named if not toc.origins]
    assert sum(frame.count for frame in large.frames) == 5 << 20
