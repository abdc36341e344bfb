"""What a recording consists of, summed up."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaypack import Archive
from replaypack.audit import Progress, stats, stats_archive
from replaypack.audit._tokens import Tokens, tokens_of
from replaypack.errors import FormatError, RecordingNotFoundError
from replaypack.format.names import pack_key_of

from .support import flip

OPENAI = {
    "id": "chatcmpl-1",
    "choices": [{"message": {"content": "hi"}}],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
    },
}
OPENAI_RESPONSES = {"usage": {"input_tokens": 50, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 10}}}
ANTHROPIC = {
    "type": "message",
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 85,
        "output_tokens": 30,
    },
}
LANGCHAIN = {
    "generations": [
        {
            "message": {
                "type": "ai",
                "data": {
                    "content": "x",
                    "usage_metadata": {
                        "input_tokens": 7,
                        "output_tokens": 3,
                        "total_tokens": 10,
                        "input_token_details": {"cache_read": 2},
                    },
                    "response_metadata": {"token_usage": {"prompt_tokens": 7, "completion_tokens": 3}},
                },
            }
        }
    ],
    "llm_output": {"token_usage": {"prompt_tokens": 7, "completion_tokens": 3}},
}
ANTHROPIC_STREAM = {
    "items": [
        {"type": "message_start", "message": {"usage": {"input_tokens": 12, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": "x"}},
        {"type": "message_delta", "usage": {"output_tokens": 40}},
    ],
    "offsets": [1, 2, 3],
}
LANGCHAIN_STREAM = [
    {"usage_metadata": {"input_tokens": 9, "output_tokens": 1}},
    {"usage_metadata": {"input_tokens": 0, "output_tokens": 4}},
]


@pytest.mark.parametrize(
    ("response", "tokens"),
    [
        (OPENAI, (100, 20, 64)),
        (OPENAI_RESPONSES, (50, 5, 10)),
        (ANTHROPIC, (100, 30, 85)),
        (LANGCHAIN, (7, 3, 2)),
        (ANTHROPIC_STREAM, (12, 40, 0)),
        (LANGCHAIN_STREAM, (9, 5, 0)),
        ({"llm_output": {"token_usage": {"prompt_tokens": 4, "completion_tokens": 2}}}, (4, 2, 0)),
        ({"status": 200, "body": json.dumps(OPENAI)}, (100, 20, 64)),
        ({"status": 200, "body": json.dumps(ANTHROPIC).encode()}, (100, 30, 85)),
        (f"event: message\ndata: {json.dumps(ANTHROPIC_STREAM['items'][0])}\n\ndata: [DONE]\n", (12, 1, 0)),  # type: ignore[index]
        ({"usage": None, "choices": []}, None),
        ({"usage": {"disk": 5}}, None),
        ({"usage": {"prompt_tokens": "many", "completion_tokens": -3}}, (0, 0, 0)),
        ("no usage here", None),
        ('{"usage": ', None),
        (None, None),
    ],
)
def test_tokens(response: Any, tokens: tuple[int, int, int] | None) -> None:
    assert tokens_of(response) == (None if tokens is None else Tokens(*tokens))


NAMES = st.sampled_from(["usage", "usage_metadata", "input_tokens", "x"])


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.just("usage"),
        lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner),
    )
)
def test_tokens_of_anything(value: Any) -> None:
    tokens_of(value)


def test_groups(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    rng = random.Random(1)
    durations = [rng.randrange(1, 10**9) for _ in range(1000)]
    with archive.recorder("r", redact=None) as recorder:
        for number, duration in enumerate(durations):
            recorder.append(kind="tool", name="f", identity={"n": number % 100}, response="r" * 50, duration=duration)
        recorder.append(kind="tool", name="g", identity={"n": 0}, error=ValueError("no"), duration=5)
        recorder.append(kind="model", name="m", identity="ask", response=OPENAI)
        recorder.append(kind="model", name="m", identity="ask", response={**OPENAI, "text": "long " * 2000})
    with archive.open("r") as recording:
        found = stats(recording)
        assert stats(recording, tokens=False).tokens is None
    model, f, g = found.groups
    assert [(group.kind, group.name, group.calls, group.errors) for group in found.groups] == [
        ("model", "m", 2, 0),
        ("tool", "f", 1000, 0),
        ("tool", "g", 1, 1),
    ]
    assert model.tokens == (200, 40, 128) == found.tokens
    assert f.tokens is None
    request = 4  # {"n": number}: a map, a name of one letter, a small number
    assert f.bytes == 1000 * (50 + request)
    assert f.unique_bytes == 100 * request + 50
    assert g.unique_bytes == g.bytes - request
    assert not found.estimated
    durations.sort()
    for share, told in ((0.5, f.percentiles.p50), (0.9, f.percentiles.p90), (0.99, f.percentiles.p99)):
        assert told == pytest.approx(durations[int(share * 1000) - 1] / 1e9, rel=0.04)
    assert f.percentiles.max == durations[-1] / 1e9
    assert found.duration == pytest.approx((sum(durations) + 5) / 1e9)
    assert found.stored_bytes == sum(path.stat().st_size for path in (tmp_path / "a").glob("packs/*/*"))
    ratios = found.to_dict()["ratios"]
    assert ratios["dedup"] == round(found.bytes / found.unique_bytes, 3)
    json.dumps(found.to_dict())


def test_an_archive(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    for name in ("one", "two"):
        with archive.recorder(name, redact=None) as recorder:
            for number in range(20):
                recorder.append(kind="tool", identity={"n": number}, response=f"{number} " * 40)
    whole = stats_archive(archive)
    assert [found.locator.rpartition("#")[2] for found in whole.recordings] == ["one@2", "two@2"]
    one, two = whole.recordings
    assert (whole.records, whole.bytes) == (40, one.bytes + two.bytes)
    assert whole.unique_bytes == one.unique_bytes == two.unique_bytes
    assert whole.stored_bytes == one.stored_bytes + two.stored_bytes
    assert len(stats_archive(archive, ["two"]).recordings) == 1
    json.dumps(whole.to_dict())


def test_a_damaged_recording_counts_for_nothing(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    for name in ("a", "b", "c"):
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", identity=name, response=1)
            recorder.append(kind="model", identity=1, response=random.Random(name).randbytes(300_000))
    [pack] = archive.open("b").index.packs
    flip(tmp_path / "a" / pack_key_of(pack.digest), pack.size // 2)
    reports: list[Progress] = []
    with pytest.raises(FormatError):
        stats_archive(archive, ["b"], progress=reports.append)
    assert reports, "no record of it could be read"
    with pytest.raises(FormatError):
        stats_archive(archive)
    whole = stats_archive(archive, keep_going=True)
    [failed] = whole.failed
    assert (failed.name, failed.error.code) == ("b", "format.corrupted")
    assert whole._replace(failed=[]) == stats_archive(archive, ["a", "c"])
    assert json.loads(json.dumps(whole.to_dict()))["failed"][0]["error"]["code"] == "format.corrupted"
    with pytest.raises(RecordingNotFoundError):
        stats_archive(archive, ["a", "nowhere"], keep_going=True)


def test_an_empty_recording(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    archive.recorder("r").seal()
    found = stats(archive.open("r"))
    assert (found.records, found.groups, found.tokens) == (0, [], None)
    assert found.to_dict()["ratios"] == {"dedup": None, "compression": None, "total": None}


def test_very_many_payloads_and_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    module = importlib.import_module("replaypack.audit.stats")
    monkeypatch.setattr(module, "_REMEMBERED", 200)
    monkeypatch.setattr(module, "_GROUPS", 5)
    archive = Archive(tmp_path / "a")
    with archive.recorder("r", redact=None) as recorder:
        for number in range(3000):
            recorder.append(
                kind="tool", name=f"t{number % 9}", identity={"n": number}, response="r" * 100 + str(number)
            )
    found = stats(archive.open("r"))
    assert found.estimated
    assert found.unique_bytes == pytest.approx(found.bytes, rel=0.35)
    assert len(found.groups) == 6
    assert [group.calls for group in found.groups if group.kind == "(others)"] == [4 * 333]


def test_a_sample_of_all_is_that_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    module = importlib.import_module("replaypack.audit.stats")
    monkeypatch.setattr(module, "_REMEMBERED", 100)
    random_ = random.Random(5)
    pool = [(random_.randbytes(32), random_.randrange(10_000)) for _ in range(2000)]
    at_once, together = module._Distinct(), module._Distinct()
    for count in (50, 1500, 10, 400):
        part = module._Distinct()
        for digest, size in random_.choices(pool, k=count):
            at_once.add(digest, size, 0)
            part.add(digest, size, 0)
        together.add_all(part)
        assert (together.level, together._sizes) == (at_once.level, at_once._sizes)
    assert together.level > 0


@given(st.integers(0, 1 << 62))
def test_steps_of_the_histogram(duration: int) -> None:
    import importlib

    module = importlib.import_module("replaypack.audit.stats")
    step = module._step(duration)
    assert abs(module._value(step) - duration) * 32 <= duration
    assert module._step(duration + 1) - step in (0, 1)
