"""The number of this process, asked of the system once and not with every call."""

from __future__ import annotations

import os

__all__ = ["process_id"]

_number = os.getpid()


def process_id() -> int:
    """``os.getpid()``."""
    return _number


def _after_fork() -> None:
    global _number
    _number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
