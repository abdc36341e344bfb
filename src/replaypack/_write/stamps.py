"""What is unlike in everything that is written: times and random ids."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

__all__ = ["new_id", "now_rfc3339"]


def now_rfc3339(nanoseconds: int | None = None) -> str:
    """A time (nanoseconds since the epoch, now by default) as RFC 3339 in UTC with nine decimals."""
    ns = time.time_ns() if nanoseconds is None else nanoseconds
    moment = datetime.fromtimestamp(ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % 1_000_000_000:09d}Z"


def new_id(size: int) -> bytes:
    """Random bytes for recording and writer ids."""
    return secrets.token_bytes(size)
