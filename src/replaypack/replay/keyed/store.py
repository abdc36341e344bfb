"""`ReplayStore`: captured turns in memory, found by the most specific key that answers."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, overload

from replaypack.errors import ReplayMissError, ReplayValueError

from .entry import ReplayEntry
from .identity import get, question_id_of
from .key import Outer, ReplayKey, Rung, ladder

if TYPE_CHECKING:
    from replaypack.archive import Archive
    from replaypack.format.manifest import Manifest

    from .archived import ArchivedReplayStore

__all__ = ["MissPolicy", "Pair", "Pairs", "ReplayStore", "check_policy"]

logger = logging.getLogger("replaypack.replay")

MissPolicy = Literal["fall_through", "strict"]
Pair = tuple[ReplayKey, ReplayEntry]
#: Keys that a miss names.
_SHOWN = 5


def check_policy(policy: Any) -> MissPolicy:
    """Raises `ReplayValueError` for what is no miss policy."""
    if policy not in get_args(MissPolicy):
        raise ReplayValueError(f"miss_policy is 'fall_through' or 'strict', not {policy!r}")
    return policy  # type: ignore[no-any-return]


class Pairs(Sequence[Pair]):
    """Pairs of key and entry that can be read and not be changed; equal to any sequence of the same."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | Sequence[Pair]:
        return self._pairs[index]

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._pairs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._pairs)


class ReplayStore:
    """Captured turns by key, in memory. Turns of questions and of scenarios may lie in one store.

    ``miss_policy``: what `lookup` does where nothing answers: ``"fall_through"`` returns None, ``"strict"`` raises
    `ReplayMissError`. ``entries`` are pairs of key and entry; of two at one place the later answers.

    A registration and a lookup take the same time however many there are. Safe for many threads.
    """

    #: What a strict miss raises; integrations put a class here that their host knows.
    miss_error: type[ReplayMissError] = ReplayMissError

    def __init__(
        self,
        *,
        miss_policy: MissPolicy = "fall_through",
        entries: Iterable[tuple[ReplayKey, ReplayEntry]] = (),
    ) -> None:
        self.miss_policy = miss_policy
        # Pairs by their own identity, in order of registration; and, by place, those that lie at it, the last answers.
        self._pairs: dict[int, Pair] = {}
        self._places: dict[Outer, dict[Rung, tuple[Pair, ...]]] = {}
        self._listed: Pairs | None = None
        self._lock = threading.Lock()
        for key, entry in entries:
            self._add(ReplayKey.model_validate(key), ReplayEntry.model_validate(entry))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self.entries)} entries, {self.miss_policy}>"

    # A lock is neither copied nor pickled: hosts copy their configuration deeply, and send it to other processes.
    def __getstate__(self) -> dict[str, Any]:
        return {"miss_policy": self._miss_policy, "entries": list(self._pairs.values())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ReplayStore.__init__(self, **state)

    @property
    def miss_policy(self) -> MissPolicy:
        """``"fall_through"`` or ``"strict"``."""
        return self._miss_policy

    @miss_policy.setter
    def miss_policy(self, policy: MissPolicy) -> None:
        self._miss_policy = check_policy(policy)

    @property
    def entries(self) -> Sequence[Pair]:
        """The pairs of key and entry, in order of registration, as they are now; `register` changes them."""
        with self._lock:
            if self._listed is None:
                self._listed = Pairs(list(self._pairs.values()))
            return self._listed

    # Registering and looking up

    def register(self, key: ReplayKey, entry: ReplayEntry) -> None:
        """Add an entry. What was registered for the same key is replaced, with a warning to the log.

        Keys and entries of other classes with the same fields (Karenina's own) are taken as well. Raises
        `ReplayValueError`.
        """
        key, entry = ReplayKey.model_validate(key), ReplayEntry.model_validate(entry)
        if self._put(key, entry):
            logger.warning("replay store: the entry of a key was overwritten, a duplicate registration: %r", key)

    def lookup(
        self,
        *,
        question_id: str,
        scenario_id: str | None = None,
        scenario_node: str | None = None,
        answering_model_id: str | None = None,
        visit_index: int | None = None,
        replicate: int | None = None,
    ) -> ReplayEntry | None:
        """Return the entry that answers, the most specific one: model before visit before replicate.

        Raises `ReplayMissError` where there is none and the policy is ``"strict"``, `ReplayValueError` for
        arguments that no key can have.
        """
        key = ReplayKey(
            question_id=question_id,
            scenario_id=scenario_id,
            scenario_node=scenario_node,
            answering_model_id=answering_model_id,
            visit_index=visit_index,
            replicate=replicate,
        )
        found = self.find(key)
        if found is None and self._miss_policy == "strict":
            raise self._miss(key)
        return None if found is None else found[1]

    def has_any_for(
        self, *, question_id: str, scenario_id: str | None = None, scenario_node: str | None = None
    ) -> bool:
        """Whether anything is registered for a question, or for a node of a scenario, whatever model and visit."""
        return self._has(ReplayKey(question_id=question_id, scenario_id=scenario_id, scenario_node=scenario_node))

    def find(self, key: ReplayKey) -> Pair | None:
        """The entry that answers and the key it was registered with; None where there is none, by either policy."""
        place = self._places.get(key.outer)
        if place is not None:
            for rung in ladder(key.rung):
                if pairs := place.get(rung):
                    return pairs[-1]
        return None

    # Files, archives, and other sources

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file of version 1 (see `persistence.dump`)."""
        from .persistence import dump

        dump(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, miss_policy: MissPolicy | None = None) -> ReplayStore:
        """Read a JSON file of version 1 into memory (see `persistence.load`)."""
        from .persistence import load

        return load(path, miss_policy=miss_policy)

    @staticmethod
    def open(
        locator: str, *, miss_policy: MissPolicy | None = None, storage_options: Mapping[str, Any] | None = None
    ) -> ArchivedReplayStore:
        """Open a store that was recorded to an archive, by ``URL#name``; it is read as it is asked.

        ``miss_policy`` is that of the recording by default. Raises what `replaypack.open` raises.
        """
        from .archived import ArchivedReplayStore

        return ArchivedReplayStore(locator, miss_policy=miss_policy, storage_options=storage_options)

    def save_to(self, archive: Archive, name: str, **options: Any) -> Manifest:
        """Record all entries as a recording of an archive; ``options`` go to `Archive.recorder`. Its manifest."""
        from .archived import record_entries

        return record_entries(self.entries, archive, name, miss_policy=self._miss_policy, **options)

    @classmethod
    def from_manual_traces(cls, manual_traces: Any, benchmark: Any, *, miss_policy: MissPolicy = "strict") -> Self:
        """Make a store of hand-written traces: for each question of a benchmark that has one an entry for any model.

        ``manual_traces`` is a mapping by question id, question text or MD5 of the text, to a trace or a trace and
        agent metrics; or an object with ``get_trace_with_metrics(md5)``, as Karenina's trace manager has it.
        ``benchmark`` has ``get_question_ids()`` and ``get_question(id)``, a mapping with ``question``.
        """
        store = cls(miss_policy=miss_policy)
        for question_id in _question_ids(benchmark):
            text = get(benchmark.get_question(question_id), "question")
            if not text:
                continue
            trace, metrics = _manual_trace(manual_traces, question_id, text)
            if trace is not None:
                entry = ReplayEntry(raw_trace=trace, agent_metrics=metrics, captured_model_id="manual")
                store.register(ReplayKey(question_id=question_id_of(text)), entry)
        return store

    # What a store in an archive does otherwise

    def _put(self, key: ReplayKey, entry: ReplayEntry) -> bool:
        """Add an entry; whether another one had its place."""
        with self._lock:
            before = self._places.get(key.outer, {}).get(key.rung, ())
            same = [pair for pair in before if pair[0] == key]
            self._add(key, entry, tuple(pair for pair in before if pair[0] != key))
            for pair in same:
                del self._pairs[id(pair)]
            return bool(before)

    def _add(self, key: ReplayKey, entry: ReplayEntry, before: tuple[Pair, ...] | None = None) -> None:
        place = self._places.setdefault(key.outer, {})
        pair = (key, entry)
        self._listed = None
        self._pairs[id(pair)] = pair
        place[key.rung] = (*(place.get(key.rung, ()) if before is None else before), pair)

    def _has(self, key: ReplayKey) -> bool:
        return key.outer in self._places

    def _registered(self, key: ReplayKey) -> Iterator[ReplayKey]:
        """The keys that are registered for the question or node of a key."""
        for pairs in list(self._places.get(key.outer, {}).values()):
            yield pairs[-1][0]

    def _miss(self, key: ReplayKey) -> ReplayMissError:
        near: list[ReplayKey] = []
        more = False
        for other in self._registered(key):
            if len(near) == _SHOWN:
                more = True
                break
            near.append(other)
        asked = ", ".join(f"{name}={value!r}" for name, value in key.model_dump(exclude_none=True).items())
        if near:
            shown = "; ".join(_describe(other) for other in near) + ("; …" if more else "")
            message = f"no replay entry for {asked}: what is registered there is for {shown}"
            hint = "a wildcard (None) in the registered key answers for every value"
        else:
            what = "this question" if key.scenario_id is None else "this node of this scenario"
            message, hint = f"no replay entry for {asked}: nothing is registered for {what}", None
        return self.miss_error(message, key=key, registered=tuple(near), hint=hint)


def _describe(key: ReplayKey) -> str:
    names = ("answering_model_id", "visit_index", "replicate")
    given = [f"{name}={value!r}" for name, value in zip(names, key.rung, strict=True) if value is not None]
    return ", ".join(given) or "any model, visit and replicate"


def _question_ids(benchmark: Any) -> Iterable[str]:
    if callable(ids := getattr(benchmark, "get_question_ids", None)):
        return list(ids())
    cache = getattr(benchmark, "_questions_cache", None)
    if cache is None:
        cache = getattr(getattr(benchmark, "_base", None), "_questions_cache", None)
    if cache is None:
        raise ReplayValueError(f"{type(benchmark).__name__} has no get_question_ids()")
    return list(cache)


def _manual_trace(traces: Any, question_id: str, text: str) -> tuple[str | None, dict[str, Any] | None]:
    md5 = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    if isinstance(traces, Mapping):
        found = next((traces[name] for name in (question_id, text, md5) if name in traces), None)
        return found if isinstance(found, tuple) else (found, None)
    for source in (traces, getattr(traces, "_trace_manager", None)):
        if callable(ask := getattr(source, "get_trace_with_metrics", None)):
            return ask(md5)  # type: ignore[no-any-return]
    raise ReplayValueError(f"{type(traces).__name__} holds no manual traces: no mapping, no get_trace_with_metrics()")
