"""replaypack: a content-addressed archive format for replay recordings of LLM and agent runs."""

from __future__ import annotations

__version__ = "0.1.0"
