"""replaypack: a content-addressed archive format for replay recordings of LLM and agent runs."""

from __future__ import annotations

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .archive import Archive, aopen, open
    from .audit.diff import assert_same, diff
    from .canonical import canonical_json, key_digest
    from .errors import (
        ProjectionError,
        ReplayedError,
        ReplayHydrationError,
        ReplayMismatch,
        ReplayMissError,
        ReplaypackError,
        ReplayPersistenceError,
    )
    from .policies.matching import MatchPolicy
    from .recorder import Recorder
    from .recording import Record, Recording
    from .replay.current import acall, call, current_session, tool
    from .replay.keyed import ProjectionReport, ReplayEntry, ReplayKey, ReplayStore, ScenarioReplayBuilder
    from .replay.modes import BoundaryKind, ReplayFallback, ReplayMode
    from .replay.session import ReplaySession
    from .values import ABSENT

__all__ = [
    "ABSENT",
    "Archive",
    "BoundaryKind",
    "MatchPolicy",
    "Record",
    "Recorder",
    "Recording",
    "ReplayFallback",
    "ReplayMismatch",
    "ReplayMode",
    "ReplaySession",
    "ReplayedError",
    "ProjectionError",
    "ProjectionReport",
    "ReplayEntry",
    "ReplayHydrationError",
    "ReplayKey",
    "ReplayMissError",
    "ReplayPersistenceError",
    "ReplayStore",
    "ReplaypackError",
    "ScenarioReplayBuilder",
    "__version__",
    "acall",
    "aopen",
    "assert_same",
    "call",
    "canonical_json",
    "current_session",
    "diff",
    "key_digest",
    "open",
    "tool",
]


#: Where the names are defined.
_NAMES = {
    "archive": ("Archive", "aopen", "open"),
    "audit.diff": ("assert_same", "diff"),
    "canonical": ("canonical_json", "key_digest"),
    "errors": (
        "ProjectionError",
        "ReplayHydrationError",
        "ReplayMismatch",
        "ReplayMissError",
        "ReplayPersistenceError",
        "ReplayedError",
        "ReplaypackError",
    ),
    "policies.matching": ("MatchPolicy",),
    "recorder": ("Recorder",),
    "recording": ("Record", "Recording"),
    "replay.current": ("acall", "call", "current_session", "tool"),
    "replay.keyed": ("ProjectionReport", "ReplayEntry", "ReplayKey", "ReplayStore", "ScenarioReplayBuilder"),
    "replay.modes": ("BoundaryKind", "ReplayFallback", "ReplayMode"),
    "replay.session": ("ReplaySession",),
    "values": ("ABSENT",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
#: Modules that are there without an import of their own.
_MODULES = frozenset(
    "archive canonical errors format policies record recorder recording replay storage tagged values".split()
)


if not TYPE_CHECKING:  # or any name would be one of the package, misspelt ones too

    def __getattr__(name: str) -> Any:
        # Imported when it is asked for: the command line is to answer an interrupt from its first moment on, and
        # whoever replays need not load what records.
        if name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
