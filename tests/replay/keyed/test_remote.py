"""A keyed store on S3, through a proxy that counts what is asked."""

from __future__ import annotations

from itertools import product

from replaypack import Archive, ReplayStore
from replaypack.replay.keyed import ArchivedReplayStore
from tests.storage.conftest import Bucket

from .contract import entry, key, trace


def test_a_cold_lookup_reads_the_manifest_one_page_and_one_record_frame(s3_bucket: Bucket) -> None:
    """All eight rungs of the ladder lie in the page that is read for the first."""
    pairs = [
        (
            key(f"q{number}", answering_model_id=model, visit_index=visit),
            entry(f"{number} {model} {visit}", agent_metrics={"noise": hash((number, model, visit))}),
        )
        for number, model, visit in product(range(1500), ("m", None), (0, None))
    ]
    ReplayStore(entries=pairs).save_to(Archive("", storage=s3_bucket.open()), "run")
    for asked, expected in (((0, 3), "m 0"), ((5, None), "m None"), ((None, 3), "None None")):
        store = ArchivedReplayStore(archive=Archive("", storage=s3_bucket.open()), name="run")
        segment = store.recording.manifest.storage.segments[0]
        assert segment.near is None
        s3_bucket.proxy.clear()
        visit, replicate = asked
        model = None if visit is None else "m"
        found = store.lookup(question_id="q777", answering_model_id=model, visit_index=visit, replicate=replicate)
        assert trace(found) == f"777 {expected}"
        assert [request.method for request in s3_bucket.proxy.requests] == ["GET", "GET"]
        assert not any(request.is_list for request in s3_bucket.proxy.requests)
    s3_bucket.proxy.clear()
    store = ArchivedReplayStore(archive=Archive("", storage=s3_bucket.open()), name="run")
    assert store.has_any_for(question_id="q1")
    # The manifest and one page.
    assert len(s3_bucket.proxy.requests) == 2
    assert store.lookup(question_id="nope") is None
    assert len(s3_bucket.proxy.requests) <= 3


def test_registered_on_s3_and_read_elsewhere(s3_bucket: Bucket) -> None:
    archive = Archive("", storage=s3_bucket.open())
    with ArchivedReplayStore(archive=archive, name="run", mode="record", flush_interval=None) as store:
        store.register(key("a"), entry("1"))
        assert trace(store.lookup(question_id="a")) == "1"
        assert len(store.entries) == 1
        # It is published now: another process finds it.
        other = ArchivedReplayStore(archive=Archive("", storage=s3_bucket.open()), name="run")
        assert trace(other.lookup(question_id="a")) == "1"
        store.register(key("a"), entry("2"))
    assert trace(ArchivedReplayStore(archive=archive, name="run").lookup(question_id="a")) == "2"
