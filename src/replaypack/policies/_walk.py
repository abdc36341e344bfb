"""One pass through one value: fields by their names, texts by what they say, bodies by what they hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from replaypack._plain import Path

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
from ._memo import Memo
from ._names import PLACEHOLDER
from ._secrets import KnownSecrets
from ._texts import BASE64_MARKS, Rules, clean_text, has_names

__all__ = ["REDACTED", "TRANSFORMED", "Note", "Walk", "unwrapped"]

#: The flags of a record that it had secrets, and that something encoded is stored decoded (spec, registry).
REDACTED: Final = 1
TRANSFORMED: Final = 2


class Note(NamedTuple):
    """What was found: where in the value, by which rule, the secret itself."""

    path: Path
    rule: str
    secret: str


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
    _LOOKS = 4
    _AGAIN = 4

    def __init__(self, rules: Rules, known: KnownSecrets, memo: Memo, notes: list[Note] | None = None) -> None:
        self._rules = rules
        self._by_name = rules.names is not None
        self._known = known
        self._memo = memo
        self._notes = notes
        self._path: Path = None
        self._room = MAX_UNFOLDED
        self._nesting = 0
        self._level = 0
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
        if cls is dict or cls is list or cls is tuple:
            # Near the top one look in C at all that is below is cheaper than a walk, and mostly enough.
            if self._level < self._LOOKS and self._memo.knows(value):
                return value
            self._level += 1
            new = self._map(value, path) if cls is dict else self._list(value, path)
            self._level -= 1
            return new
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
        names = self._rules.names
        for key, child in value.items():
            below = (path, key)
            if type(key) is str and names is not None and (key == "cookies" or names.sensitive(key)):
                new = self._cookies(child, below) if key == "cookies" else self._hide(child, below, "name")
            else:
                new = self._any(child, below)
            if new is not child:
                changes[key] = new
            new_key = self._key(key, below)
            if new_key is not key:
                renamed[key] = new_key
        for naming in _NAMING if self._by_name else ():
            name = value.get(naming)
            if type(name) is bytes:
                name = name.decode("latin-1")
            if type(name) is str and self._rules.names_field(name):
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
        pairs = self._by_name and len(value) > 0 and all(map(_is_pair, value))
        parts = []
        for index, child in enumerate(value):
            below = (path, index)
            if pairs and self._rules.names_field(_text_of(child[0])):
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
        if new == text:
            new = text
        elif type(new) is str:
            # What one rule left may be what another one looks for: what is recorded has nothing for any of them.
            for _ in range(self._AGAIN):
                again = self._text(new)
                if again == new:
                    break
                new = again
                if type(new) is not str:
                    break
        if new is not text and self._notes is None:
            memo.remember(text, new, self.bits)
        self.bits |= before
        return new

    def _text(self, text: str) -> Any:
        if is_base64(text):
            return self._whole_base64(text)
        runs = list(base64_runs(text))
        bare = _without(text, runs) if runs else text
        if self._by_name and self._nesting < self._MAX_NESTING and has_names(bare.lower(), self._rules.own):
            loaded = load_json(text)
            if loaded is not None:
                new = self._inside(lambda: self._any(loaded, None))
                return text if new is loaded else self._laid_out(text, runs, new)
        return self._around(text, runs)

    def _around(self, text: str, runs: list[tuple[int, int]]) -> str:
        """A text in which long runs of base64 are looked at by themselves."""
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

    def _laid_out(self, text: str, runs: list[tuple[int, int]], new: Any) -> str:
        """The JSON text of ``new``: where replacing in the text gives the same, every other character stays."""
        bits = self.bits
        notes, self._notes = self._notes, None
        replaced = self._around(text, runs)
        self._notes, self.bits = notes, bits
        return replaced if load_json(replaced) == new else dump_json(new, text)

    def _inside(self, action: Callable[[], Any]) -> Any:
        self._nesting += 1
        try:
            return action()
        finally:
            self._nesting -= 1

    def _plain_text(self, text: str, *, latin: bool = False) -> str:
        if self._by_name:
            text = clean_text(text, self._rules, self._hit)
        known = self._known
        if known:
            for form in known.plain_bytes if latin else known.plain:
                if form in text:
                    self._hit("known", form)
                    text = text.replace(form, PLACEHOLDER)
            text = self._known_base64(text)
        if self._by_name and any(map(text.__contains__, BASE64_MARKS)):
            text = _RUN.sub(lambda match: self._run(match[0]), text)
        return text

    def _known_base64(self, text: str) -> str:
        for form in self._known.aligned:
            if form in text:
                text = self._aligned(text, form)
        flat = unwrapped(text)
        if flat is not text and any(map(flat.__contains__, self._known.aligned)):
            text = _WRAPPED.sub(lambda match: self._wrapped(match[0]), text)
        return text

    def _wrapped(self, text: str) -> str:
        """Base64 broken into lines, whose secret stands on two of them: broken in the same way again."""
        flat = unwrapped(text)
        if not any(map(flat.__contains__, self._known.aligned)):
            return text
        new = self._run(flat)
        if new == flat:  # not sound by itself: then it goes as a whole
            self._hit("known", flat)
            return PLACEHOLDER
        line, end, _ = text.partition("\r\n" if "\r" in text else "\n")
        return end.join(new[at : at + len(line)] for at in range(0, len(new), len(line)))

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
        if self._nesting >= self._MAX_NESTING or not (known or (self._by_name and tempting(text))):
            return None
        data = decode_base64(text)
        if data is None:
            return None
        if not (self._by_name and tempting(text)) and not any(raw in data for raw in known.raw):
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
                new: bytes = self._inside(lambda: self._bytes(inner))
                if new is inner:
                    return data
                self.bits |= TRANSFORMED
                return new
        try:
            text, latin = data.decode(), False
        except UnicodeDecodeError:
            text, latin = data.decode("latin-1"), True
            if not self._worth_reading(data):
                cleaned = self._known_in(text)
                return data if cleaned is text else cleaned.encode("latin-1")
        new_text: Any = self._plain_text(text, latin=True) if latin else self.text(text)
        if new_text is text or new_text == text:
            return data
        encoded: bytes = new_text if type(new_text) is bytes else new_text.encode("latin-1" if latin else "utf-8")
        return encoded

    def _worth_reading(self, data: bytes) -> bool:
        """Whether bytes that are not UTF-8 may have text with names: forms with files, other alphabets of letters."""
        return b"form-data" in data or not data[:256].translate(None, _LETTERS)

    def _known_in(self, text: str) -> str:
        for form in self._known.plain_bytes:
            if form in text:
                self._hit("known", form)
                text = text.replace(form, PLACEHOLDER)
        return self._known_base64(text)


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])(?:eyJ|ewo|W3s|H4sI|(?<=base64,))[A-Za-z0-9+/_-]{13,4096}={0,2}")
_WRAPPED = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]++(?:\r?\n[A-Za-z0-9+/_-]++)++={0,2}")
_LETTERS = bytes((9, 10, 13, *range(32, 127), *range(0xA0, 0x100)))


def unwrapped(text: str) -> str:
    """A text without line ends; the same object where there are none."""
    return text.replace("\r", "").replace("\n", "") if "\n" in text else text


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
