"""Match policies: which parts of an identity do not count for its key (spec chapter 03, "Match policies").

A policy is data: a name, a version and rules, which stand whole in the manifest, so that every reader computes the
same keys. Rules are applied to a copy of the identity before the canonical JSON is made; what is recorded is the
identity as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from replaypack._plain import Census, on_fresh_stack, survey
from replaypack.canonical import canonical_json, key_digest, key_digests, key_of_canonical
from replaypack.errors import CanonicalizationError, FormatError, UsageError

from ._apply import Plan
from .patterns import Pattern, PatternError, compile_pattern

__all__ = ["NONE", "MatchPolicy", "MatchSpec", "Rule", "ignore", "renumber", "replace"]

#: Limits of one policy: rules; places, and characters that are looked for in texts, of all rules together; characters
#: of a placeholder and of a place.
MAX_RULES = 64
MAX_PLACES = 256
MAX_COST = 2048
MAX_WITH = 64
MAX_PLACE = 1024
_MAX_NAMES = 256
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_TOKEN = re.compile(r"(?:[^~/]|~0|~1)*")
_PRINTABLE = re.compile(r"[ -~]{0,64}")
_MEMBERS = {
    "ignore": ({"rule", "at"}, {"kinds", "names"}),
    "replace": ({"rule", "pattern", "with"}, {"at", "whole", "kinds", "names"}),
    "renumber": ({"rule", "pattern", "with"}, {"at", "whole", "kinds", "names"}),
}
_NONE_NAME = "none"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a match policy. Made by `ignore`, `replace` and `renumber`.

    ``at``: places, JSON pointers in which ``*`` stands for any one member or element and a leading ``**`` for any
    number of them; what lies in a place belongs to it. ``pattern``, ``by`` and ``whole``: which texts are replaced,
    by what, and whether only whole strings are. ``kinds`` and ``names`` restrict the rule to records of these kinds,
    and to identities whose member ``name`` (where it has none, ``model``) is one of these.
    """

    rule: Literal["ignore", "replace", "renumber"]
    at: tuple[str, ...] = ()
    pattern: str | None = None
    by: str | None = None
    whole: bool = False
    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """The rule as it stands in a manifest."""
        data: dict[str, Any] = {"rule": self.rule}
        if self.pattern is not None:
            data["pattern"], data["with"] = self.pattern, self.by
        if self.whole:
            data["whole"] = True
        for member in ("at", "kinds", "names"):
            if getattr(self, member):
                data[member] = list(getattr(self, member))
        return data


def ignore(*at: str, kinds: Iterable[str] = (), names: Iterable[str] = ()) -> Rule:
    """A rule: what lies at these places does not count. Members are removed, elements of arrays become null."""
    return Rule(rule="ignore", at=at, kinds=_texts(kinds), names=_texts(names))


def replace(
    pattern: str,
    by: str,
    *,
    at: str | Iterable[str] = (),
    whole: bool = False,
    kinds: Iterable[str] = (),
    names: Iterable[str] = (),
) -> Rule:
    """A rule: whatever matches ``pattern`` counts as the text ``by``, in all strings or at these places.

    ``pattern`` is in the language of spec chapter 03 (`replaypack.policies.patterns`); with ``whole`` it must match
    the whole string.
    """
    return Rule(
        rule="replace", pattern=pattern, by=by, at=_texts(at), whole=whole, kinds=_texts(kinds), names=_texts(names)
    )


def renumber(
    pattern: str,
    by: str,
    *,
    at: str | Iterable[str] = (),
    whole: bool = False,
    kinds: Iterable[str] = (),
    names: Iterable[str] = (),
) -> Rule:
    """A rule: texts that match ``pattern`` count as ``by``, its ``#`` being 1 for the first such text, 2 for the next …

    So ids that are made anew in every run count as equal, and two different ids in one identity stay different. All
    rules of a policy share one numbering. ``by`` should be a text that no pattern of the policy matches.
    """
    return Rule(
        rule="renumber", pattern=pattern, by=by, at=_texts(at), whole=whole, kinds=_texts(kinds), names=_texts(names)
    )


def _texts(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


#: What `MatchPolicy.of` takes.
MatchSpec: TypeAlias = "MatchPolicy | Rule | str | Mapping[str, Any] | Sequence[str | Rule | MatchPolicy] | None"


class MatchPolicy:
    """A named, versioned list of rules; immutable. Equal policies have equal data.

    ``MatchPolicy("my-rules", rules=[ignore("/arguments/trace_id")])``, or `of` for ready-made ones. Raises
    `UsageError` where a rule is not one that can be written down (see spec chapter 03).
    """

    __slots__ = ("_compiled", "_plans", "name", "rules", "version")

    name: str
    version: int
    rules: tuple[Rule, ...]

    def __init__(self, name: str, version: int = 1, *, rules: Iterable[Rule] = ()) -> None:
        self.name = name
        self.version = version
        self.rules = tuple(rules)
        try:
            if not all(isinstance(rule, Rule) for rule in self.rules):
                raise _Unsound("rules are made by ignore(), replace() and renumber()")
            data = self.to_data()
            _check(data)
            self._compiled = _compile(self.rules)
        except _Unsound as error:
            raise UsageError(f"match policy {name!r}: {error}") from None
        self._plans: dict[tuple[str | None, str | None], Plan | None] = {}

    @classmethod
    def of(cls, match: MatchSpec) -> MatchPolicy:
        """The policy that ``match`` names: a policy; the name of a ready-made one; a rule; several of these; the data
        of a manifest (a mapping); None for the one that ignores nothing.

        The rules of several are applied in their order. Raises `UsageError`.
        """
        from .ready import ready_made

        if match is None:
            return NONE
        if isinstance(match, MatchPolicy):
            return match
        if isinstance(match, str):
            return ready_made(match)
        if isinstance(match, Rule):
            return cls("custom", rules=[match])
        if isinstance(match, Mapping):
            try:
                return cls.from_data(match)
            except FormatError as error:
                raise UsageError(f"match: {error.detail}") from None
        try:
            parts = [cls.of(part) for part in match]
        except TypeError as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"a match policy is a name, a rule, or several, not {type(match).__name__}") from None
        parts = [part for part in parts if part.rules]
        if len(parts) < 2:
            return parts[0] if parts else NONE
        rules = dict.fromkeys(rule for part in parts for rule in part.rules)
        names = dict.fromkeys(part.name for part in parts)
        return cls("+".join(names), max(part.version for part in parts), rules=rules)

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, where: str | None = None) -> MatchPolicy:
        """The policy that stands in a manifest.

        Raises `FormatError`: ``future_version`` for a rule that this version does not know, else ``corrupted``.
        """
        try:
            _check(data)
        except _Unsound as error:
            raise FormatError(
                f"the match policy is unsound: {error}" if not error.future else str(error),
                reason="future_version" if error.future else "corrupted",
                where=where,
                hint="upgrade replaypack" if error.future else None,
            ) from None
        rules = [
            Rule(
                rule=item["rule"],
                at=tuple(item.get("at", ())),
                pattern=item.get("pattern"),
                by=item.get("with"),
                whole=item.get("whole", False),
                kinds=tuple(item.get("kinds", ())),
                names=tuple(item.get("names", ())),
            )
            for item in data.get("rules", ())
        ]
        return cls(data["name"], data["version"], rules=rules)

    def to_data(self) -> dict[str, Any]:
        """The policy as it stands in a manifest: ``name``, ``version`` and, unless there are none, ``rules``."""
        data: dict[str, Any] = {"name": self.name, "version": self.version}
        if self.rules:
            data["rules"] = [rule.to_data() for rule in self.rules]
        return data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MatchPolicy):
            return NotImplemented
        return (self.name, self.version, self.rules) == (other.name, other.version, other.rules)

    def __hash__(self) -> int:
        return hash((self.name, self.version, self.rules))

    def __bool__(self) -> bool:
        """Whether it has any rules."""
        return bool(self.rules)

    def __repr__(self) -> str:
        return f"<MatchPolicy {self}>"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def apply(self, kind: str, identity: object) -> Any:
        """What counts of ``identity`` for the key of a record of ``kind``, as plain data; ``identity`` stays as it is.

        Raises `CanonicalizationError` for what is no plain data. Order of maps does not count, and is not kept.
        """
        return self._apply(kind, survey(identity, CanonicalizationError).value)

    def key(self, kind: str, identity: object, *, census: Census | None = None) -> bytes:
        """The key (32 bytes) of a call. ``census`` is that of ``identity``, where the caller has it.

        Raises `CanonicalizationError` with the path.
        """
        if not self.rules:
            return key_digest(kind, identity, census=census)
        if census is None:
            census = survey(identity, CanonicalizationError)
        value = self._apply(kind, census.value)
        if value is census.value:
            return key_of_canonical(kind, canonical_json(value, census=census))
        return key_of_canonical(kind, canonical_json(value))

    def keys(self, kinds: Sequence[str], identities: Sequence[object], *, plain: bool = False) -> list[bytes]:
        """`key` of several calls; ``plain`` as in `key_digests`. Raises as `key` does."""
        return list(map(self.key, kinds, identities)) if self.rules else key_digests(kinds, identities, plain=plain)

    def _apply(self, kind: str, value: Any) -> Any:
        plan = self._plan(kind, value)
        return value if plan is None else on_fresh_stack(lambda: plan.apply(value))

    def _plan(self, kind: str, value: Any) -> Plan | None:
        """The rules that apply to one identity, put together; None where there are none."""
        name = None
        if type(value) is dict:
            for member in ("name", "model"):
                if type(value.get(member)) is str:
                    name = value[member]
                    break
        # Names come from calls, and there may be any number of them: what no rule asks for is one and the same.
        place = (kind if kind in self._compiled.kinds else None, name if name in self._compiled.names else None)
        if place not in self._plans:
            rules = [
                (rule, pattern)
                for rule, pattern in self._compiled.rules
                if (not rule.kinds or kind in rule.kinds) and (not rule.names or name in rule.names)
            ]
            self._plans[place] = Plan(rules) if rules else None
        return self._plans[place]


class _Compiled(msgspec.Struct):
    rules: list[tuple[Rule, Pattern | None]]
    kinds: frozenset[str]
    names: frozenset[str]


def _compile(rules: Iterable[Rule]) -> _Compiled:
    return _Compiled(
        [(rule, None if rule.pattern is None else compile_pattern(rule.pattern)) for rule in rules],
        frozenset(kind for rule in rules for kind in rule.kinds),
        frozenset(name for rule in rules for name in rule.names),
    )


class _Unsound(Exception):
    def __init__(self, message: str, *, future: bool = False) -> None:
        super().__init__(message)
        self.future = future


def _check(data: Mapping[str, Any]) -> None:
    """What a policy must be, whether it was read or is about to be written. Raises `_Unsound`."""
    if not {"name", "version"} <= set(data) <= {"name", "version", "rules"}:
        raise _Unsound("it has other members than name, version and rules")
    name, version, rules = data["name"], data["version"], data.get("rules")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Unsound("its name is 1 to 128 of A-Z a-z 0-9 . _ + -, the first a letter or digit")
    if type(version) is not int or not 0 < version < 1 << 32:
        raise _Unsound("its version is a number from 1 on")
    if rules is None:
        if (name, version) != (_NONE_NAME, 1):
            raise _Unsound(f"a policy without rules is called {_NONE_NAME!r}, and its version is 1")
        return
    if not isinstance(rules, list) or not 0 < len(rules) <= MAX_RULES or name == _NONE_NAME:
        raise _Unsound(f"it has 1 to {MAX_RULES} rules, and its name is not {_NONE_NAME!r}")
    cost = places = 0
    for number, rule in enumerate(rules):
        try:
            cost += _check_rule(rule)
        except _Unsound as error:
            raise _Unsound(f"rule {number}: {error}", future=error.future) from None
        places += len(rule.get("at", ()))
    if cost > MAX_COST or places > MAX_PLACES:
        raise _Unsound(
            f"its patterns match {cost} characters in all, of {MAX_COST}, at {places} places, of {MAX_PLACES}"
        )


def _check_rule(rule: Any) -> int:
    """Check one rule; return how many characters it looks at from each position of a text."""
    if not isinstance(rule, dict) or not isinstance(rule.get("rule"), str):
        raise _Unsound("a rule is an object with a member `rule`")
    kind = rule["rule"]
    if kind not in _MEMBERS:
        raise _Unsound(f"{kind!r} is a rule of a newer version", future=True)
    needed, optional = _MEMBERS[kind]
    if not needed <= set(rule) <= needed | optional:
        raise _Unsound(
            f"{kind} has the members {', '.join(sorted(needed))}, and may have {', '.join(sorted(optional))}"
        )
    for member in ("at", "kinds", "names"):
        texts = rule.get(member)
        if texts is None and member not in rule:
            continue
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise _Unsound(f"{member} is a list of texts, one or more")
        if len(texts) > _MAX_NAMES or len(set(texts)) != len(texts) or max(map(len, texts)) > MAX_PLACE:
            raise _Unsound(f"{member} are at most {_MAX_NAMES} different texts of at most {MAX_PLACE} characters")
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            raise _Unsound(f"{member} holds a lone surrogate") from None
    for place in rule.get("at", ()):
        _check_place(place)
    if kind == "ignore":
        return 0
    if not isinstance(rule["with"], str) or not _PRINTABLE.fullmatch(rule["with"]):
        raise _Unsound(f"`with` is printable ASCII, at most {MAX_WITH} characters")
    if kind == "renumber" and rule["with"].count("#") != 1:
        raise _Unsound("`with` of a renumber rule has one #, where the number goes")
    if "whole" in rule and rule["whole"] is not True:
        raise _Unsound("`whole` is true, or not there")
    if not isinstance(rule["pattern"], str):
        raise _Unsound("a pattern is text")
    try:
        cost = compile_pattern(rule["pattern"]).cost
    except PatternError as error:
        raise _Unsound(str(error)) from None
    return 0 if "whole" in rule else cost


def _check_place(place: str) -> None:
    if not place.startswith("/"):
        raise _Unsound(f"{place!r} is not a place: a JSON pointer of at least one token, such as /arguments/id")
    tokens = place[1:].split("/")
    for number, token in enumerate(tokens):
        if not _TOKEN.fullmatch(token):
            raise _Unsound(f"{place!r}: a ~ that is not ~0 or ~1")
        if token == "**" and (number or len(tokens) == 1 or tokens[1] == "*"):
            raise _Unsound(f"{place!r}: ** comes first, with a member that has a name behind it")


#: The policy that ignores nothing.
NONE = MatchPolicy(_NONE_NAME)
