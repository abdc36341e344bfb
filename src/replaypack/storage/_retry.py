"""Trying again: exponential backoff with full jitter, bounded in time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

__all__ = ["Retry"]

T = TypeVar("T")

FIRST_WAIT: Final = 0.1
"""Seconds: the upper bound of the first wait; each following one's is twice as large."""

LONGEST_WAIT: Final = 8.0
"""Seconds: no wait is longer, so that a store that comes back is noticed soon."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often an operation is attempted. ``seconds`` after the first attempt began, no other begins.

    Each wait is random between nothing and its bound ("full jitter"), so that many clients that failed together
    do not come back together. ``clock``, ``sleep`` and ``jitter`` are there for tests.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def run(
        self,
        attempt: Callable[[], T],
        may_retry: Callable[[Exception], bool],
        waiting: Callable[[Exception, float], None] = lambda error, left: None,
    ) -> T:
        """What ``attempt`` returns; its last exception once ``may_retry`` says no, or time is up.

        ``waiting`` is told of each exception after which it is tried again, and how many seconds are left.
        """
        end = self.clock() + self.seconds
        bound = FIRST_WAIT
        while True:
            try:
                return attempt()
            except Exception as error:
                wait = bound * self.jitter()
                if not may_retry(error) or self.clock() + wait >= end:
                    raise
                waiting(error, end - self.clock())
            self.sleep(wait)
            bound = min(bound * 2, LONGEST_WAIT)
