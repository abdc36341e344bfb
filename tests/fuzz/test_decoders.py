"""No decoder answers hostile bytes with anything but one of our errors, within bounds of time and memory."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.format.strategies import mutated

from .decoders import DECODERS, run, seeds

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_sound_is_accepted(name: str) -> None:
    for seed in seeds(name):
        DECODERS[name][0](seed)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_was_changed_is_refused_or_decoded(name: str, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(seeds(name)))
    run(name, data.draw(st.one_of(mutated(seed), st.binary(max_size=60))))


@pytest.mark.heavy
@pytest.mark.parametrize("name", DECODERS)
def test_coverage_finds_nothing_else(name: str, tmp_path: Path) -> None:
    """libFuzzer, led by coverage: 15 seconds for each decoder; an input may take 5 seconds, and all of Python 1 GiB."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds(name)):
        (corpus / str(number)).write_bytes(seed)
    limits = ["-max_total_time=15", "-timeout=5", "-rss_limit_mb=1024", "-max_len=16384", "-print_final_stats=1"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.coverage", name, str(corpus), f"-artifact_prefix={tmp_path}/", *limits],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=200,
    )
    found = [path.read_bytes().hex() for path in tmp_path.glob("crash-*")]
    assert done.returncode == 0, f"{found} {done.stderr[-3000:]}"
