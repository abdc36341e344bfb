"""Redaction: what is secret is removed before anything is hashed, keyed or written (spec chapter 11)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from replaypack._plain import MAX_DEPTH, Path, on_fresh_stack, to_plain
from replaypack.errors import FormatError, ReplaypackError, UsageError, ValueEncodingError
from replaypack.values import ABSENT

from ._bodies import (
    MAX_UNFOLDED,
    base64_runs,
    decode_base64,
    dump_json,
    encode_base64,
    is_base64,
    load_json,
    tempting,
    unfold,
)
from ._names import PLACEHOLDER, NameRules, words
from ._secrets import MIN_SECRET, KnownSecrets
from ._shapes import SHAPES, Shape, prefixed
from ._texts import clean_text, has_names, suspicious

__all__ = [
    "DEFAULT",
    "PLACEHOLDER",
    "VALUES_ONLY",
    "Note",
    "RedactionPolicy",
    "Redactor",
    "policy_from_manifest",
    "secrets_of_environment",
]

REDACTED: Final = 1
TRANSFORMED: Final = 2
"""The flags of a record that it had secrets, and that something encoded is stored decoded (spec, registry)."""

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
            texts = getattr(self, label)
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
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

    def to_manifest(self) -> dict[str, Any]:
        """The policy as it stands in a manifest: ``name``, ``version``, and ``rules`` where it has its own."""
        noted: dict[str, Any] = {"name": self.name, "version": self.version}
        if self.names or self.keep or self.prefixes:
            noted["rules"] = {"keep": [*self.keep], "names": [*self.names], "prefixes": [*self.prefixes]}
        return noted


def _sound(label: str, text: str) -> bool:
    return bool(_PREFIX.fullmatch(text)) if label == "prefixes" else bool(words(text)) and len(text) <= 128


DEFAULT: Final = RedactionPolicy()
"""The listed names and forms of tokens."""
VALUES_ONLY: Final = RedactionPolicy(name="values")
"""No rules: only values that are known to be secret are removed."""


def policy_from_manifest(noted: Mapping[str, Any]) -> RedactionPolicy | None:
    """The policy that a manifest names (`RedactionPolicy.to_manifest`); None for ``none``.

    Raises `FormatError` (``future_version``) for one that this version does not know: keys made under it cannot be
    made again.
    """
    name, version = noted.get("name"), noted.get("version")
    if name == "none":
        return None
    try:
        rules = msgspec.convert(noted.get("rules") or {}, dict[str, tuple[str, ...]])
        return RedactionPolicy(name=str(name), version=version if type(version) is int else 0, **rules)
    except (UsageError, msgspec.ValidationError, TypeError):
        raise FormatError(
            f"the redaction policy {name!r} {version} is not one that this version knows",
            reason="future_version",
            where="manifest",
        ) from None


def secrets_of_environment(names: Iterable[str] | None = None) -> list[str]:
    """The values of environment variables: of those named, else of all whose name says that they hold a secret.

    Values of less than 6 bytes are left out. Raises `UsageError` where a variable that is named is not set.
    """
    if names is None:
        rules = NameRules()
        found = [v for n, v in os.environ.items() if rules.sensitive(n) or words(n)[-1:] == ["token"]]
    else:
        missing = [name for name in names if name not in os.environ]
        if missing:
            raise UsageError(f"the environment has no variable {missing[0]}")
        found = [os.environ[name] for name in names]
    return [value for value in found if len(value.strip().encode("utf-8", "surrogateescape")) >= MIN_SECRET]


class Note(NamedTuple):
    """What was found: where in the value, by which rule, the secret itself."""

    path: Path
    rule: str
    secret: str


class _Memo:
    """What is known of texts seen before: they are not looked at again. Bounded: two generations by size."""

    __slots__ = ("blobs", "changed", "clean", "keys", "old", "size")

    LIMIT = 24 << 20

    def __init__(self) -> None:
        #: Texts without anything secret that are no sensitive names either.
        self.clean: set[str] = set()
        self.old: set[str] = set()
        self.size = 0
        #: Names of fields that are neither sensitive nor hold a secret.
        self.keys: set[object] = set()
        self.changed: dict[str, tuple[str | bytes, int]] = {}
        #: Bytes without anything secret.
        self.blobs: set[bytes] = set()

    def add_blob(self, data: bytes) -> None:
        if len(data) < self.LIMIT:
            self.size += len(data) + 80
            if self.size > self.LIMIT:
                self.old, self.clean, self.blobs, self.size = self.clean, set(), set(), 0
            self.blobs.add(data)

    def add(self, texts: Iterable[str]) -> None:
        texts = [text for text in texts if len(text) < self.LIMIT]
        self.size += sum(map(len, texts)) + 80 * len(texts)
        if self.size > self.LIMIT:
            self.old, self.clean, self.blobs, self.size = self.clean, set(), set(), 0
        self.clean.update(texts)

    def unknown(self, texts: Iterable[str]) -> set[str]:
        found = set(texts)
        found -= self.clean
        if found and self.old:
            again = found & self.old
            if again:
                self.add(again)
                found -= again
        return found

    def add_key(self, key: object) -> None:
        if len(self.keys) > 50_000:
            self.keys = set()
        self.keys.add(key)


class _State(NamedTuple):
    known: KnownSecrets
    memo: _Memo


_PLAIN = frozenset({dict, list, tuple, str, int, float, bool, bytes, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
_values = dict.values
_T = TypeVar("_T")


def _leaves(value: object) -> tuple[set[object], list[str], list[bytes]] | None:
    """Keys, texts and bytes of a value, collected level by level in C; None where it is not plain data."""
    keys: set[object] = set()
    texts: list[str] = []
    blobs: list[bytes] = []
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        here = set(map(type, level))
        if not here <= _PLAIN:
            return None
        if str in here:
            texts += level if len(here) == 1 else [part for part in level if type(part) is str]
        if bytes in here:
            blobs += [part for part in level if type(part) is bytes]
        if here.isdisjoint(_CONTAINERS):
            return keys, texts, blobs
        maps = [part for part in level if type(part) is dict] if dict in here else []
        rows = [part for part in level if type(part) is list or type(part) is tuple] if len(here) > 1 or not maps else []
        if len(maps) + len(rows) > 1024:
            maps = list({id(part): part for part in maps}.values())
            rows = list({id(part): part for part in rows}.values())
        level = list(chain.from_iterable(rows))
        if maps:
            level += chain.from_iterable(map(_values, maps))
            keys.update(chain.from_iterable(maps))
    return None


#: A text below this size is looked at together with others.
_SHORT = 4096


class Redactor:
    """Applies one policy, and removes the values that it is told are secret. Safe for many threads.

    ``secrets`` are values (text or bytes, 6 bytes and more). They are held in memory, and shown by nothing.
    """

    def __init__(self, policy: RedactionPolicy = DEFAULT, secrets: Iterable[str | bytes] = ()) -> None:
        if isinstance(secrets, str | bytes):
            raise UsageError("secrets are several values: give a list")
        self.policy = policy
        by_rule = policy.name != "values"
        self.rules: NameRules | None = NameRules(policy.names, policy.keep) if by_rule else None
        self.shapes: tuple[Shape, ...] = (*SHAPES, *prefixed(policy.prefixes)) if by_rule else ()
        self._state = _State(KnownSecrets().adding(secrets), _Memo())

    def __repr__(self) -> str:
        return f"<Redactor {self.policy.name} {self.policy.version}, {self._state.known!r}>"

    def learn(self, *secrets: str | bytes) -> bool:
        """Remove these values too, from now on; False where all were known. Raises `UsageError`."""
        known = self._state.known.adding(secrets)
        if known is self._state.known:
            return False
        self._state = _State(known, _Memo())
        return True

    def redact(self, value: Any) -> Any:
        """``value`` without secrets: the same object where it has none."""
        return self.process(value)[0]

    def process(self, value: Any) -> tuple[Any, int]:
        """`redact`, and the flags (bits) that say what was done."""
        if value is None or value is ABSENT:
            return value, 0
        state = self._state
        memo = state.memo
        if type(value) is str and value in memo.clean:
            return value, 0
        plain = value
        found = _leaves(plain)
        if found is None:
            try:
                plain = to_plain(value)
                found = _leaves(plain)
            except ReplaypackError:
                pass
            if found is None:
                return value, 0  # what cannot be stored is refused, with its path, by what would store it
        keys, texts, blobs = found
        dirty = bool(blobs) and not memo.blobs.issuperset(blobs)
        if keys and not keys <= memo.keys:
            dirty = self._new_keys(keys - memo.keys, state) or dirty
        unknown = memo.unknown(texts)
        if unknown:
            dirty = self._new_texts(unknown, state) or dirty
        if not dirty:
            return value, 0
        walk = Walk(self, state)
        result = on_fresh_stack(lambda: walk.whole(plain))
        return (value if result is plain else result), walk.bits

    def _new_keys(self, keys: Iterable[object], state: _State) -> bool:
        dirty = False
        for key in keys:
            if type(key) is not str:
                if type(key) is tuple or type(key) is bytes:
                    dirty = True
                continue
            special = key == "cookies" or (self.rules is not None and self.rules.sensitive(key))
            if special or Walk(self, state).text(key) is not key:
                dirty = True
            else:
                state.memo.add_key(key)
        return dirty

    def _new_texts(self, texts: set[str], state: _State) -> bool:
        """Whether some of these are not clean; the others are remembered."""
        short = "\0".join([text for text in texts if len(text) < _SHORT])
        quiet = not self.suspect(short, state.known)
        clean = [text for text in texts if quiet and len(text) < _SHORT and not is_base64(text)]
        if len(clean) < len(texts):
            for text in texts.difference(clean):
                if text in state.memo.changed:
                    continue
                if Walk(self, state).text(text) is text and not self.names_field(text):
                    clean.append(text)
        state.memo.add(clean)
        return len(clean) < len(texts)

    def names_field(self, text: str) -> bool:
        """Whether a text is the name of a sensitive field, so that what stands beside it is secret."""
        return self.rules is not None and len(text) <= 128 and self.rules.sensitive(text)

    def suspect(self, text: str, known: KnownSecrets) -> bool:
        """Whether any rule, or any known secret, may apply to a text."""
        if self.rules is not None and suspicious(text, self.shapes, self.rules.own_names):
            return True
        return any(form in text for form in known.plain) or any(form in text for form in known.aligned)


_SCHEMA_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_SCHEMA_WORDS = frozenset(
    "type title description format default examples example enum const anyOf oneOf allOf not $ref nullable minLength "
    "maxLength pattern minimum maximum items properties required additionalProperties readOnly writeOnly deprecated "
    "minItems maxItems uniqueItems exclusiveMinimum exclusiveMaximum multipleOf $comment contentEncoding name in "
    "schema discriminator $defs definitions strict".split()
)
_SCHEMA_SIGNS = frozenset({"type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const"})
_SCHEMA_VALUES = frozenset({"default", "examples", "example", "enum", "const"})
_NAMING = ("name", "key", "Name", "Key")
_NAMED = ("value", "values", "Value", "Values")


def _is_schema(value: dict[Any, Any]) -> bool:
    """Whether a map describes a field, as JSON Schema does, instead of being its value."""
    if not all(type(key) is str and (key in _SCHEMA_WORDS or key.startswith("x-")) for key in value):
        return False
    type_ = value.get("type")
    if type_ is not None:
        return all(type(t) is str and t in _SCHEMA_TYPES for t in (type_ if type(type_) is list else [type_]))
    return not _SCHEMA_SIGNS.isdisjoint(value)


class Walk:
    """One pass through one value. Whatever has no secret in it comes back as the same object."""

    _MAX_NESTING = 8

    def __init__(self, redactor: Redactor, state: _State, notes: list[Note] | None = None) -> None:
        self._redactor = redactor
        self._rules = redactor.rules
        self._known = state.known
        self._memo = state.memo
        self._notes = notes
        self._path: Path = None
        self._room = MAX_UNFOLDED
        self._nesting = 0
        self.bits = 0

    def whole(self, value: Any) -> Any:
        """The value without secrets."""
        return self._any(value, None)

    def _hit(self, rule: str, secret: str) -> None:
        self.bits |= REDACTED
        if self._notes is not None:
            self._notes.append(Note(self._path, rule, secret))

    # Structure

    def _any(self, value: Any, path: Path) -> Any:
        cls = type(value)
        if cls is str:
            self._path = path if not self._nesting else self._path
            return self.text(value)
        if cls is dict:
            return self._map(value, path)
        if cls is list or cls is tuple:
            return self._list(value, path)
        if cls is bytes:
            if value in self._memo.blobs:
                return value
            self._path = path if not self._nesting else self._path
            new = self._bytes(value)
            if new is value:
                self._memo.add_blob(value)
            return new
        return value

    def _map(self, value: dict[Any, Any], path: Path) -> dict[Any, Any]:
        changes: dict[Any, Any] = {}
        renamed: dict[Any, Any] = {}
        rules = self._rules
        for key, child in value.items():
            below = (path, key)
            if type(key) is str and rules is not None and (key == "cookies" or rules.sensitive(key)):
                new = self._cookies(child, below) if key == "cookies" else self._hide(child, below, "name")
            else:
                new = self._any(child, below)
            if new is not child:
                changes[key] = new
            new_key = self._key(key, below)
            if new_key is not key:
                renamed[key] = new_key
        for naming in _NAMING if rules is not None else ():
            name = value.get(naming)
            if type(name) is bytes:
                name = name.decode("latin-1")
            if type(name) is str and self._redactor.names_field(name):
                for named in _NAMED:
                    if named in value:
                        new = self._hide(value[named], (path, named), "name")
                        if new is not value[named]:
                            changes[named] = new
        if not changes and not renamed:
            return value
        result: dict[Any, Any] = {}
        for key, child in value.items():
            new_key = renamed.get(key, key)
            count = 2
            while new_key in result or (new_key is not key and new_key in value):
                # Nothing is lost where two keys become equal.
                new_key = f"{renamed[key]} {count}"
                count += 1
            result[new_key] = changes.get(key, child)
        return result

    def _key(self, key: Any, path: Path) -> Any:
        if type(key) is str:
            if key in self._memo.keys or key in self._memo.clean:
                return key
            self._path = path if not self._nesting else self._path
            new: Any = self.text(key)
            return new if type(new) is str else PLACEHOLDER
        if type(key) is bytes:
            self._path = path if not self._nesting else self._path
            return self._bytes(key)
        if type(key) is tuple:
            parts = [self._key(part, path) for part in key]
            return key if all(map(_same, parts, key)) else tuple(parts)
        return key

    def _list(self, value: Any, path: Path) -> Any:
        pairs = self._rules is not None and len(value) > 0 and all(map(_is_pair, value))
        parts = []
        for index, child in enumerate(value):
            below = (path, index)
            if pairs and self._redactor.names_field(_text_of(child[0])):
                hidden = self._hide(child[1], (below, 1), "name")
                parts.append(child if hidden is child[1] else [child[0], hidden])
            else:
                parts.append(self._any(child, below))
        if all(map(_same, parts, value)):
            return value
        return tuple(parts) if type(value) is tuple else parts

    def _cookies(self, value: Any, path: Path) -> Any:
        """Every value in a map of cookies, or in a list of maps as HAR has them."""
        if type(value) is dict:
            return self._each(value, value, path)
        if type(value) is list and value and all(type(item) is dict for item in value):
            items = [self._each(item, ("value",), (path, n)) for n, item in enumerate(value)]
            return value if all(map(_same, items, value)) else items
        return self._any(value, path)

    def _each(self, value: dict[Any, Any], names: Iterable[Any], path: Path) -> dict[Any, Any]:
        hidden = {
            name: self._hide(value[name], (path, name), "name")
            for name in names
            if type(value.get(name)) in (str, bytes)
        }
        changed = any(new is not value[name] for name, new in hidden.items())
        return {name: hidden.get(name, child) for name, child in value.items()} if changed else value

    def _hide(self, value: Any, path: Path, rule: str) -> Any:
        """The placeholder, whatever the value was; what is empty, absent or true or false is no secret."""
        cls = type(value)
        if value is None or cls is bool or (cls in (str, bytes, dict, list, tuple) and not value):
            return value
        hidden: Any = PLACEHOLDER
        if cls is bytes:
            hidden = PLACEHOLDER.encode()
        elif cls is list or cls is tuple:
            kinds = set(map(type, value))
            hidden = [PLACEHOLDER.encode() if kinds == {bytes} else PLACEHOLDER]
            if list(value) == hidden or kinds <= {type(None), bool}:
                return value
        elif cls is dict and _is_schema(value):
            return self._schema(value, path)
        if cls in (str, bytes) and value == hidden:
            return value
        self._path = path if not self._nesting else self._path
        self._hit(rule, value if cls is str else value.decode("latin-1") if cls is bytes else "")
        return hidden

    def _schema(self, value: dict[Any, Any], path: Path) -> Any:
        changed = False
        result = {}
        for key, child in value.items():
            new = self._hide(child, (path, key), "name") if key in _SCHEMA_VALUES else self._any(child, (path, key))
            changed = changed or new is not child
            result[key] = new
        return result if changed else value

    # Texts and bytes

    def text(self, text: str) -> Any:
        """A text without secrets: text, or bytes where it was base64 of something that is no text."""
        memo = self._memo
        if text in memo.clean or not text:
            return text
        if self._notes is None:
            found = memo.changed.get(text)
            if found is not None:
                self.bits |= found[1]
                return found[0]
        before, self.bits = self.bits, 0
        new = self._text(text)
        if new is not text and self._notes is None and len(text) < 1 << 20:
            if len(memo.changed) >= 2000:
                memo.changed.clear()
            memo.changed[text] = (new, self.bits)
        self.bits |= before
        return new

    def _text(self, text: str) -> Any:
        if is_base64(text):
            return self._whole_base64(text)
        runs = list(base64_runs(text))
        bare = _without(text, runs) if runs else text
        if self._rules is not None and self._nesting < self._MAX_NESTING:
            if has_names(bare.lower(), self._rules.own_names):
                loaded = load_json(text)
                if loaded is not None:
                    new = self._inside(lambda: self._any(loaded, None))
                    return text if new is loaded else dump_json(new, text)
        if not runs:
            return self._plain_text(text)
        parts: list[str] = []
        done = 0
        for start, end in runs:
            parts += (self._plain_text(text[done:start]), self._run(text[start:end]))
            done = end
        parts.append(self._plain_text(text[done:]))
        new_text = "".join(parts)
        return text if new_text == text else new_text

    def _inside(self, action: Any) -> Any:
        self._nesting += 1
        try:
            return action()
        finally:
            self._nesting -= 1

    def _plain_text(self, text: str, *, latin: bool = False) -> str:
        if self._rules is not None:
            text = clean_text(text, self._rules, self._redactor.shapes, self._hit)
        known = self._known
        if known:
            for form in known.plain_bytes if latin else known.plain:
                if form in text:
                    self._hit("known", form)
                    text = text.replace(form, PLACEHOLDER)
            for form in known.aligned:
                if form in text:
                    text = self._aligned(text, form)
        if "base64," in text or self._begins_base64(text):
            text = _RUN.sub(lambda match: self._run(match[0]), text)
        return text

    def _begins_base64(self, text: str) -> bool:
        return self._rules is not None and any(mark in text for mark in ("eyJ", "ewo", "W3s", "H4sI"))

    def _aligned(self, text: str, form: str) -> str:
        """Base64 in a text that holds a known secret, as characters of it tell."""
        parts: list[str] = []
        done = 0
        while (at := text.find(form, done)) >= 0:
            start = len(text[:at].rstrip(_ALPHABET)) if at - done < 1 << 16 else at
            start = max(start, done)
            end = len(text) - len(text[at:].lstrip(_ALPHABET))
            run = text[start:end]
            new = self._run(run)
            if new == run:  # not sound by itself: then it goes as a whole
                self._hit("known", run)
                new = PLACEHOLDER
            parts += (text[done:start], new)
            done = end
        return "".join(parts) + text[done:]

    def _decoded(self, text: str) -> tuple[bytes, Any] | None:
        """What a run of base64 holds and what becomes of it; None where it is not looked into, or stays."""
        known = self._known
        if self._nesting >= self._MAX_NESTING or not (known or self._rules is not None and tempting(text)):
            return None
        data = decode_base64(text)
        if data is None:
            return None
        if not (self._rules is not None and tempting(text)) and not any(raw in data for raw in known.raw):
            return None
        new = self._inside(lambda: self._bytes(data))
        return None if new is data else (data, new)

    def _whole_base64(self, text: str) -> Any:
        found = self._decoded(text)
        if found is not None:
            self.bits |= TRANSFORMED
            new = found[1]
            try:
                return new.decode() if type(new) is bytes else new
            except UnicodeDecodeError:
                return new
        if len(text) > 8192:
            # A form of a token does not stand in the middle of letters; known values may.
            for form in self._known.plain:
                if form in text:
                    self._hit("known", form)
                    text = text.replace(form, PLACEHOLDER)
            return text
        return self._plain_text(text)

    def _run(self, text: str) -> str:
        """A run of base64 in a text: encoded again, so that what is around it stays sound."""
        bare = text.rstrip("=")
        for form in self._known.plain:
            if form in text:
                self._hit("known", form)
                return text.replace(form, PLACEHOLDER)
        found = self._decoded(text)
        if found is None:
            return text
        self.bits |= TRANSFORMED
        return encode_base64(found[1], text if len(bare) % 4 else bare)

    def _bytes(self, data: bytes) -> bytes:
        """Bytes without secrets; a compressed body that has some comes back decoded."""
        if not data:
            return data
        if self._nesting < self._MAX_NESTING:
            inner = unfold(data, self._room)
            if inner is not None:
                self._room -= len(inner)
                new = self._inside(lambda: self._bytes(inner))
                if new is inner:
                    return data
                self.bits |= TRANSFORMED
                return new
        try:
            text, latin = data.decode(), False
        except UnicodeDecodeError:
            text, latin = data.decode("latin-1"), True
            if not self._worth_reading(data):
                new_text = self._known_in(text)
                return data if new_text is text else new_text.encode("latin-1")
        new = self._plain_text(text, latin=True) if latin else self.text(text)
        if new is text or new == text:
            return data
        if type(new) is bytes:
            return new
        return new.encode("latin-1" if latin else "utf-8")  # type: ignore[no-any-return]

    def _worth_reading(self, data: bytes) -> bool:
        """Whether bytes that are not UTF-8 may have text with names: forms with files, other alphabets of letters."""
        return b"form-data" in data or not data[:256].translate(None, _LETTERS)

    def _known_in(self, text: str) -> str:
        for form in self._known.plain_bytes:
            if form in text:
                self._hit("known", form)
                text = text.replace(form, PLACEHOLDER)
        for form in self._known.aligned:
            if form in text:
                text = self._aligned(text, form)
        return text


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])(?:eyJ|ewo|W3s|H4sI|(?<=base64,))[A-Za-z0-9+/_-]{13,4096}={0,2}")
_LETTERS = bytes((9, 10, 13, *range(32, 127), *range(0xA0, 0x100)))


def _same(a: object, b: object) -> bool:
    return a is b


def _is_pair(value: Any) -> bool:
    return type(value) in (list, tuple) and len(value) == 2 and type(value[0]) in (str, bytes)


def _text_of(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _without(text: str, runs: list[tuple[int, int]]) -> str:
    parts = []
    done = 0
    for start, end in runs:
        parts.append(text[done:start])
        done = end
    return " ".join((*parts, text[done:]))
