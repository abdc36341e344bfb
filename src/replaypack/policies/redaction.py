"""Redaction: what is secret is removed before anything is hashed, keyed or written (spec chapter 11)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from replaypack._plain import Census, on_fresh_stack, to_plain
from replaypack.errors import FormatError, ReplaypackError, UsageError
from replaypack.values import ABSENT

from ._bodies import is_base64, tempting
from ._memo import Memo, leaves
from ._names import PLACEHOLDER, NameRules, words
from ._secrets import MIN_SECRET, KnownSecrets
from ._shapes import SHAPES, prefixed
from ._texts import Rules, suspicious
from ._walk import Note, Walk, unwrapped

__all__ = [
    "DEFAULT",
    "PLACEHOLDER",
    "VALUES_ONLY",
    "Note",
    "RedactionPolicy",
    "Redactor",
    "known_secrets",
    "secrets_of_environment",
]

_VERSION = 1
_MAX_NAMES = 1000
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{3,32}")
_POLICY_NAME = re.compile(r"x-[a-z0-9-]{1,60}")


class RedactionPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is removed by rule. It stands in the manifest, and never holds a secret.

    ``names`` are fields that are sensitive besides those listed in `docs/redaction.md`, ``keep`` are names of that
    list that are not, ``prefixes`` begin tokens of one's own (letters, digits, ``_ . -``, 3 to 32). A policy with any
    of them is called ``x-…``. Raises `UsageError` where it is unsound.
    """

    name: str = ""
    version: int = _VERSION
    names: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        own = False
        for label in ("names", "keep", "prefixes"):
            given = getattr(self, label)
            # Read once: it may be an iterator.
            texts: Any = [None] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
            if not all(isinstance(text, str) for text in texts):
                raise UsageError(f"{label} of a redaction policy are texts")
            texts = tuple(sorted(set(texts)))
            own = own or bool(texts)
            if len(texts) > _MAX_NAMES or not all(_sound(label, text) for text in texts):
                raise UsageError(f"the redaction policy has unsound {label}")
            msgspec.structs.force_setattr(self, label, texts)
        if not self.name:
            msgspec.structs.force_setattr(self, "name", "x-custom" if own else "default")
        if own and not _POLICY_NAME.fullmatch(self.name):
            raise UsageError("a redaction policy with rules of its own has a name like x-mine")
        if not own and (self.name, self.version) not in (("default", _VERSION), ("values", _VERSION)):
            raise UsageError(f"there is no redaction policy {self.name!r} {self.version}")

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> RedactionPolicy | None:
        """The policy that `to_data` made this of; None for ``none``.

        Raises `FormatError` (``future_version``) for one that this version does not know: keys made under it cannot
        be made again.
        """
        name, version = data.get("name"), data.get("version")
        if name == "none":
            return None
        try:
            rules = msgspec.convert(data.get("rules") or {}, dict[str, tuple[str, ...]])
            return cls(name=str(name), version=version if type(version) is int else 0, **rules)
        except (UsageError, msgspec.ValidationError, TypeError):
            raise FormatError(
                f"the redaction policy {name!r} {version} is not one that this version knows",
                reason="future_version",
                where="manifest",
            ) from None

    def to_data(self) -> dict[str, Any]:
        """The policy as it stands in a manifest: ``name``, ``version``, and ``rules`` where it has its own."""
        noted: dict[str, Any] = {"name": self.name, "version": self.version}
        if self.names or self.keep or self.prefixes:
            noted["rules"] = {"keep": [*self.keep], "names": [*self.names], "prefixes": [*self.prefixes]}
        return noted


def _sound(label: str, text: str) -> bool:
    if label != "prefixes":
        return bool(words(text)) and len(text) <= 128
    # What stands for secrets is none itself.
    return bool(_PREFIX.fullmatch(text)) and text not in PLACEHOLDER and PLACEHOLDER not in f"__{text}"


DEFAULT: Final = RedactionPolicy()
"""The listed names and forms of tokens."""
VALUES_ONLY: Final = RedactionPolicy(name="values")
"""No rules: only values that are known to be secret are removed."""


def secrets_of_environment(names: Iterable[str] | None = None) -> list[str]:
    """The values of environment variables: of those named, else of all whose name says that they hold a secret.

    Empty values are left out, and where nothing is named those of less than 6 bytes. Raises `UsageError` where a
    variable that is named is not set, or holds so few.
    """
    if names is None:
        rules = NameRules()
        found = [v for n, v in os.environ.items() if rules.sensitive(n) or words(n)[-1:] == ["token"]]
        return [value for value in found if _size(value) >= MIN_SECRET]
    values = []
    for name in names:
        if name not in os.environ:
            raise UsageError(f"the environment has no variable {name}")
        size = _size(os.environ[name])
        if 0 < size < MIN_SECRET:
            raise UsageError(
                f"the value of the environment variable {name} has {size} bytes; a secret has at least {MIN_SECRET}",
                hint="so short a value stands in many texts by chance: remove it by the name of its field",
            )
        if size:
            values.append(os.environ[name])
    return values


def _size(value: str) -> int:
    return len(value.strip().encode("utf-8", "surrogateescape"))


def known_secrets(secrets: Iterable[str | bytes], from_env: bool | Iterable[str] = False) -> KnownSecrets:
    """Secrets that are given, and those of the environment (`secrets_of_environment`; True: of all telling names).

    Raises `UsageError`.
    """
    known = secrets if isinstance(secrets, KnownSecrets) else KnownSecrets().adding(secrets)
    return known.adding(secrets_of_environment(None if from_env is True else from_env)) if from_env else known


class _State(NamedTuple):
    known: KnownSecrets
    memo: Memo


#: A text below this size is looked at together with others.
_SHORT = 4096


class Redactor:
    """Applies one policy, and removes the values that it is told are secret. Safe for many threads.

    ``secrets`` are values (text or bytes, 6 bytes and more). They are held in memory, and shown by nothing.
    """

    def __init__(self, policy: RedactionPolicy = DEFAULT, secrets: Iterable[str | bytes] | KnownSecrets = ()) -> None:
        self.policy = policy
        by_rule = policy.name != "values"
        shapes = (*SHAPES, *prefixed(policy.prefixes)) if by_rule else ()
        self._rules = Rules.of(NameRules(policy.names, policy.keep) if by_rule else None, shapes)
        self._state = _State(secrets if isinstance(secrets, KnownSecrets) else KnownSecrets().adding(secrets), Memo())

    @classmethod
    def of(cls, policy: RedactionPolicy | None, secrets: KnownSecrets) -> Redactor | None:
        """What applies a policy, None for no rules, and removes secrets; None where there is nothing to remove."""
        return cls(policy or VALUES_ONLY, secrets) if policy is not None or secrets else None

    def __repr__(self) -> str:
        return f"<Redactor {self.policy.name} {self.policy.version}, {self._state.known!r}>"

    def learn(self, *secrets: str | bytes) -> bool:
        """Remove these values too, from now on; False where all were known. Raises `UsageError`."""
        known = self._state.known.adding(secrets)
        if known is self._state.known:
            return False
        self._state = _State(known, Memo())
        return True

    def redact(self, value: Any) -> Any:
        """``value`` without secrets: the same object where it is plain data and has none."""
        return self.process(value)[0]

    def process(self, value: Any) -> tuple[Any, int]:
        """`redact`, and the flags (bits) that say what was done.

        Objects come back as the plain data that was looked at, so that it is this that is recorded.
        """
        if value is None or value is ABSENT:
            return value, 0
        state = self._state
        plain = value
        dirty = self._dirty(plain, state)
        if dirty is None:
            try:
                plain = to_plain(value)
                dirty = self._dirty(plain, state)
            except ReplaypackError:
                pass  # what cannot be stored is refused, with its path, by what would store it
        if not dirty:
            return (plain if dirty is False else value), 0
        walk = self._walk(state)
        result = on_fresh_stack(lambda: walk.whole(plain))
        return result, walk.bits

    def is_clean(self, values: Iterable[Any]) -> bool:
        """Whether none of these, or of what they are the census of, has a secret. None and `ABSENT` have none.

        False also where one of them has to be looked at by itself.
        """
        state = self._state
        memo = state.memo
        keys: list[object] = []
        texts: list[str] = []
        blobs: list[bytes] = []
        for value in values:
            if value is None or value is ABSENT:
                continue
            cls = type(value)
            if cls is str:
                if value not in memo.clean:
                    texts.append(value)
            elif cls is Census and value.texts is not None:
                if not memo.keys.issuperset(value.keys):
                    keys += value.keys
                if not memo.clean.issuperset(value.texts):
                    texts += value.texts
                blobs += value.blobs
            else:
                found = leaves(value.value if cls is Census else value)
                if found is None:
                    return False
                keys += found[0]
                texts += found[1]
                blobs += found[2]
        return not (keys or texts or blobs) or not self._any_dirty(keys, texts, blobs, state)

    def _dirty(self, value: Any, state: _State) -> bool | None:
        """Whether a pass through a value may change it; None where it is not plain data."""
        if type(value) is str and value in state.memo.clean:
            return False
        found = leaves(value)
        return None if found is None else self._any_dirty(*found, state)

    def _any_dirty(
        self, keys: Collection[object], texts: Collection[str], blobs: Collection[bytes], state: _State
    ) -> bool:
        memo = state.memo
        dirty = bool(blobs) and not memo.blobs.issuperset(blobs)
        if not memo.keys.issuperset(keys):
            dirty = self._new_keys(set(keys) - memo.keys, state) or dirty
        if not memo.clean.issuperset(texts):
            unknown = memo.unknown(texts)
            if unknown:
                dirty = self._new_texts(unknown, state) or dirty
        return dirty

    def _new_keys(self, keys: Iterable[object], state: _State) -> bool:
        dirty = False
        for key in keys:
            if type(key) is not str:
                if type(key) is tuple or type(key) is bytes:
                    dirty = True
                else:
                    state.memo.add_key(key)
                continue
            special = key == "cookies" or self._rules.names_field(key)
            if special or self._walk(state).text(key) is not key:
                dirty = True
            else:
                state.memo.add_key(key)
        return dirty

    def _new_texts(self, texts: set[str], state: _State) -> bool:
        """Whether some of these are not clean; the others are remembered."""
        short = "\0".join([text for text in texts if len(text) < _SHORT])
        clean: list[str] = []
        if not self._suspect(short, state.known):
            # Known secrets are found in base64 as it stands; rules by name need it decoded.
            clean = [text for text in texts if len(text) < _SHORT and not (tempting(text) and is_base64(text))]
        if len(clean) < len(texts):
            for text in texts.difference(clean):
                if text in state.memo.changed:
                    continue
                if self._walk(state).text(text) is text and not self._rules.names_field(text):
                    clean.append(text)
        state.memo.add(clean)
        return len(clean) < len(texts)

    def _suspect(self, text: str, known: KnownSecrets) -> bool:
        """Whether any rule, or any known secret, may apply to a text."""
        if suspicious(text, self._rules):
            return True
        if not known:
            return False
        # Base64 may be broken into lines.
        flat = unwrapped(text)
        return any(map(text.__contains__, chain(known.plain, known.aligned))) or (
            flat is not text and any(map(flat.__contains__, known.aligned))
        )

    def _walk(self, state: _State) -> Walk:
        return Walk(self._rules, state.known, state.memo)

    @property
    def knows_secrets(self) -> bool:
        """Whether values are removed because they are known, besides what rules find."""
        return bool(self._state.known)

    def names(self, name: str) -> bool:
        """Whether the value of a field of this name is removed."""
        return self._rules.names_field(name)

    def find(self, value: Any) -> list[Note]:
        """What is secret in a value, and where; the value stays as it is. What is not plain data is not looked into."""
        if value is None or self.is_clean([value]):
            return []
        state = self._state
        notes: list[Note] = []
        walk = Walk(self._rules, state.known, state.memo, notes)
        on_fresh_stack(lambda: walk.whole(value))
        return notes
