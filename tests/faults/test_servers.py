"""A server of objects that is killed in the middle of everything, and started again. Heavy."""

from __future__ import annotations

import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.storage import Storage, open_storage
from tests.support.fault_points import POINTS
from tests.support.servers import Weed

from .harness import Point, state
from .scenarios import Append, Collect, Compact, Record, Scenario
from .storage import FaultyStorage, Plan

#: A killed server takes a quarter of a minute to come back: one operation in so many is tried.
EVERY = int(os.environ.get("REPLAYPACK_KILL_EVERY", "5"))
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def weed() -> Iterator[Weed]:
    pytest.importorskip("s3fs")
    with tempfile.TemporaryDirectory() as directory:
        server = Weed(directory)
        server.start()
        urllib.request.urlopen(urllib.request.Request(f"{server.url}/faults", method="PUT")).close()
        yield server
        server.stop()


class ServerPoint(Point):
    """A point of which the fault is that the server dies just before the operation."""

    def __init__(self, scenario: Scenario, weed: Weed, number: int, directory: Path) -> None:
        super().__init__(scenario, "s3", "fail", number, directory)
        self._weed = weed
        self._url = f"s3://faults/{scenario.name}-{number}"
        self.plan.hook = weed.kill

    def store(self, plan: Plan) -> Storage:
        options = {
            "key": "any",
            "secret": "any",
            "endpoint_url": self._weed.url,
            "client_kwargs": {"region_name": "us-east-1"},
            # What runs into the dead server gives up soon; what comes after it waits until all of it is up.
            "replaypack": {"retry_seconds": 1 if plan is self.plan else 60},
        }
        return FaultyStorage(open_storage(self._url, options), plan)

    def prepare(self) -> None:
        with Archive("", storage=self.store(Plan())) as archive:
            self.scenario.prepare(archive, self.directory)


@pytest.mark.parametrize("scenario", [Record(), Append(), Compact(), Collect()], ids=lambda scenario: scenario.name)
def test_a_server_that_is_killed(
    weed: Weed, scenario: Scenario, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    number = tried = 0
    while True:
        directory = tmp_path / str(number)
        directory.mkdir()
        with state(directory):
            point = ServerPoint(scenario, weed, number, directory)
            point.prepare()
            reached = point.run()
            if not reached:
                break
            weed.start()
            point.check()
        number += EVERY
        tried += 1
    record_property(POINTS, ((scenario.name, "seaweed", "killed"), tried))
    assert tried
