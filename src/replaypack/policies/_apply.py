"""Applying rules to one identity: all of them in one walk, with a small automaton that knows the places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replaypack.errors import CanonicalizationError

from .patterns import Pattern

if TYPE_CHECKING:
    from .matching import Rule

__all__ = ["Plan"]

#: Times that rules may make a text longer: each may put 64 characters for one, and the next one for each of those.
MAX_GROWTH = 100
#: Characters that may stand in place of one: a `with`, and a number.
_LONGEST_PUT = 84
#: States kept from one identity to the next; places can combine to many more than there are of them.
_MAX_STATES = 4096


class _State:
    """Where a walk is: which rules act on the strings here, and where it is after each step."""

    __slots__ = ("active", "ignored", "numeric", "open", "other", "specific", "texts")

    def __init__(self, open_: frozenset[tuple[int, int]], active: frozenset[int], plan: Plan) -> None:
        self.open = open_
        self.active = active
        rules = [plan.rules[number] for number in sorted(active)]
        self.ignored = any(rule.rule == "ignore" for rule, _ in rules)
        self.texts = tuple(_Text(rule, pattern) for rule, pattern in rules if pattern is not None)
        self.specific: dict[str, _State | None] = {
            token: None for number, position in open_ for token in [plan.places[number][0][position]] if token != "*"
        }
        #: Whether an element of an array may be named by its number.
        self.numeric = any(token.isascii() and token.isdigit() for token in self.specific)
        self.other: _State | None = None


class _Text:
    """A rule on strings."""

    __slots__ = ("_before", "_behind", "_renumbers", "longest", "needles", "pattern", "whole")

    def __init__(self, rule: Rule, pattern: Pattern) -> None:
        self._renumbers = rule.rule == "renumber"
        self._before, _, self._behind = (rule.by or "").partition("#") if self._renumbers else (rule.by or "", "", "")
        self.needles = pattern.needles
        self.longest = pattern.longest
        self.pattern = pattern.whole if rule.whole else pattern.search
        self.whole = rule.whole

    def put(self, text: str, numbers: dict[str, int]) -> str:
        """What stands in place of a match; ``numbers`` are those given in this identity so far."""
        if not self._renumbers:
            return self._before
        return f"{self._before}{numbers.setdefault(text, len(numbers) + 1)}{self._behind}"


class Plan:
    """The rules that apply to identities of one kind and name. Safe for many threads."""

    def __init__(self, rules: Sequence[tuple[Rule, Pattern | None]]) -> None:
        self.rules = rules
        #: Every place: its tokens, and the number of its rule. A leading ``**`` is told by `_loops`.
        self.places: list[tuple[tuple[str, ...], int]] = []
        always = set()
        self._loops = set()
        for number, (rule, _) in enumerate(rules):
            if not rule.at:
                always.add(number)
            for place in rule.at:
                tokens = [token.replace("~1", "/").replace("~0", "~") for token in place[1:].split("/")]
                if tokens[0] == "**":
                    self._loops.add((len(self.places), 0))
                    del tokens[0]
                self.places.append((tuple(tokens), number))
        #: Numbers are given in the order of canonical JSON; where there are none to give, order does not matter.
        self._ordered = any(rule.rule == "renumber" for rule, _ in rules)
        self._states: dict[tuple[frozenset[tuple[int, int]], frozenset[int]], _State] = {}
        self._start = self._state(frozenset((number, 0) for number in range(len(self.places))), frozenset(always))

    def apply(self, value: Any) -> Any:
        """``value`` (plain) with the rules applied; the same object where nothing changes."""
        if len(self._states) > _MAX_STATES:
            self._states = {}
            self._start = self._state(self._start.open, self._start.active)
        return self._walk(value, self._start, {})

    def _walk(self, value: Any, state: _State, numbers: dict[str, int]) -> Any:
        cls = type(value)
        if cls is str:
            return _changed(value, state.texts, numbers) if state.texts else value
        if cls is dict:
            return self._walk_map(value, state, numbers)
        if cls is list or cls is tuple:
            return self._walk_array(value, state, numbers)
        return value

    def _walk_map(self, value: dict[Any, Any], state: _State, numbers: dict[str, int]) -> Any:
        if not state.texts and not state.open:
            return value
        changes: dict[Any, Any] = {}
        gone: list[Any] = []
        specific = state.specific
        for key in _in_order(value) if self._ordered and len(value) > 1 else value:
            child = value[key]
            after = (
                (specific[key] or self._step(state, key)) if key in specific else state.other or self._step(state, None)
            )
            if after.ignored:
                gone.append(key)
                continue
            kind = type(child)
            if kind is str:
                new = _changed(child, after.texts, numbers) if after.texts else child
            elif kind is dict:
                new = self._walk_map(child, after, numbers)
            elif kind is list or kind is tuple:
                new = self._walk_array(child, after, numbers)
            else:
                continue
            if new is not child:
                changes[key] = new
        if not changes and not gone:
            return value
        result = {**value, **changes}
        for key in gone:
            del result[key]
        return result

    def _walk_array(self, value: Sequence[Any], state: _State, numbers: dict[str, int]) -> Any:
        if not state.texts and not state.open:
            return value
        result: list[Any] | None = None
        specific = state.specific
        after = state.other or self._step(state, None)
        for index, child in enumerate(value):
            if state.numeric:
                key = str(index)
                after = self._step(state, key if key in specific else None)
            new = None if after.ignored else self._walk(child, after, numbers)
            if new is not child:
                if result is None:
                    result = list(value)
                result[index] = new
        return value if result is None else result

    def _step(self, state: _State, key: str | None) -> _State:
        """The state behind a member or element; None stands for every key that no place names here."""
        known = state.other if key is None else state.specific[key]
        if known is not None:
            return known
        active = set(state.active)
        open_ = set(self._loops)
        for number, position in state.open:
            tokens, rule = self.places[number]
            if tokens[position] in ("*", key):
                if position + 1 == len(tokens):
                    active.add(rule)
                else:
                    open_.add((number, position + 1))
        found = self._state(frozenset(open_), frozenset(active))
        if key is None:
            state.other = found
        else:
            state.specific[key] = found
        return found

    def _state(self, open_: frozenset[tuple[int, int]], active: frozenset[int]) -> _State:
        found = self._states.get((open_, active))
        if found is None:
            found = self._states[open_, active] = _State(open_, active, self)
        return found


def _in_order(value: dict[Any, Any]) -> list[Any]:
    """Keys in the order of canonical JSON. Keys that are no strings come as they are: such a map has no key."""
    try:
        text = "".join(value)
    except TypeError:
        return list(value)
    if text.isascii():
        return sorted(value)
    return sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


def _changed(text: str, rules: Sequence[_Text], numbers: dict[str, int]) -> str:
    longest = MAX_GROWTH * len(text)
    for rule in rules:
        if rule.whole:
            if len(text) <= rule.longest and rule.pattern.fullmatch(text) is not None:
                text = rule.put(text, numbers)
        elif not rule.needles or any(needle in text for needle in rule.needles):
            if _LONGEST_PUT * len(text) > longest:  # so it has grown already
                _check_growth(text, rule, numbers, longest)
            text = rule.pattern.sub(lambda found, put=rule.put: put(found[0], numbers), text)  # type: ignore[misc]
    return text


def _check_growth(text: str, rule: _Text, numbers: dict[str, int], longest: int) -> None:
    """Raise `CanonicalizationError` where a rule would make a text too long, before it does."""
    more = sum(len(rule.put(found[0], numbers)) - len(found[0]) for found in rule.pattern.finditer(text))
    if len(text) + more > longest:
        raise CanonicalizationError(
            f"the match policy makes a text more than {MAX_GROWTH} times as long as it was, so that there is no key",
            path="",
            hint="a rule should not find what another one puts in",
        )
