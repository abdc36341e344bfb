"""Real recorded runs, read back exactly. Needs the corpora: ``REPLAYPACK_CORPORA``, or ``../shared/data``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from benchmarks.corpora import CORPORA, corpus

from replaypack import Archive
from tests.archive.support import same

pytestmark = pytest.mark.once

QUICK = [name for name in CORPORA if name != "pydantic-ai"]


def check(name: str, tmp_path: Path) -> None:
    recorded = corpus(name)
    if recorded is None:
        pytest.skip("the corpora are not here: set REPLAYPACK_CORPORA to the directory of the .tar.zst files")
    archive = Archive(tmp_path, {"replaypack": {"fsync": False}})
    with archive.recorder("run", flush_interval=0.5, redact=None) as recorder:
        for call in recorded:
            recorder.append(kind=call.kind, name=call.name, identity=call.request, response=call.response)
    recording = archive.open("run")
    assert len(recording) == len(recorded)
    seen: Counter[bytes] = Counter()
    for record, call in zip(recording.records(), recorded, strict=True):
        assert same(record.request, call.request)
        assert same(record.response, call.response)
        found = recording.lookup(call.kind, call.request, nth=seen[record.key])
        seen[record.key] += 1
        assert found is not None
        assert found.seq == record.seq
    assert not list(archive.verify("run"))


@pytest.mark.corpus
@pytest.mark.parametrize("name", QUICK)
def test_a_corpus_reads_back_exactly(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.corpus
@pytest.mark.heavy
def test_the_largest_corpus_reads_back_exactly(tmp_path: Path) -> None:
    check("pydantic-ai", tmp_path)
