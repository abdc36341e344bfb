"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.fault_points import pytest_terminal_summary
from tests.support.servers import (
    gcs_server,
    moto_server,
    seaweed_server,
    static_server,
    static_server_in_chunks,
    static_server_without_ranges,
)

# Here alone, so that there is one server of each kind for all tests of a process, and one summary of all processes.
__all__ = [
    "gcs_server",
    "moto_server",
    "pytest_terminal_summary",
    "seaweed_server",
    "static_server",
    "static_server_in_chunks",
    "static_server_without_ranges",
]

# How long an example takes says how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("patient"), derandomize=True)
settings.load_profile("patient")

# A shell without job control starts what runs in the background with Ctrl-C ignored, and its children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Journals of remote archives go to a directory of the tests, never to the user's own."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before
