"""Redaction by names (spec section 11.4, rules 2 and 3), without the library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PLACEHOLDER = "__redacted__"
REGISTRY = (Path(__file__).parent.parent / "registry.md").read_text("utf-8")
SCHEMA_WORDS = {
    *("type", "title", "description", "format", "default", "examples", "example", "enum", "const", "anyOf", "oneOf"),
    *("allOf", "not", "$ref", "nullable", "minLength", "maxLength", "pattern", "minimum", "maximum", "items"),
    *("properties", "required", "additionalProperties", "readOnly", "writeOnly", "deprecated", "minItems", "maxItems"),
    *("uniqueItems", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "$comment", "contentEncoding", "name"),
    *("in", "schema", "discriminator", "$defs", "definitions", "strict"),
}
SCHEMA_TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}
SCHEMA_VALUES = {"default", "examples", "example", "enum", "const"}


def listed(label: str) -> set[str]:
    """The names of a list of the registry."""
    return set(re.findall(r"`([a-z]+)`", REGISTRY.split(f"<!-- {label} -->")[1].split("<!-- end -->")[0]))


def words(name: str) -> list[str]:
    parts: list[str] = [""]
    for at, char in enumerate(name):
        before, after = name[at - 1 : at] if at else "", name[at + 1 : at + 2]
        if not re.fullmatch("[A-Za-z0-9]", char):
            parts.append("")
            continue
        if "A" <= char <= "Z" and (
            re.fullmatch("[a-z0-9]", before) or (re.fullmatch("[A-Z]", before) and re.fullmatch("[a-z]", after))
        ):
            parts.append("")
        parts[-1] += char.lower()
    parts = [part for part in parts if part]
    while parts and parts[-1].isdigit():
        parts.pop()
    return [*parts[:-1], parts[-1].rstrip("0123456789")] if parts else []


class Names:
    def __init__(self, policy: dict[str, Any]) -> None:
        rules = policy.get("rules", {})
        self.list = listed("names") | {"".join(words(name)) for name in rules.get("names", [])}
        self.keep = {"".join(words(name)) for name in rules.get("keep", [])}

    def sensitive(self, name: object) -> bool:
        if isinstance(name, bytes):
            name = name.decode("latin-1")
        if not isinstance(name, str) or not 3 <= len(name) <= 128:
            return False
        parts = words(name)
        if "".join(parts) in self.keep:
            return False
        return any("".join(parts[-n:]) in self.list for n in range(1, 5) if n <= len(parts))

    def in_query(self, name: str) -> bool:
        folded = "".join(words(name))
        return self.sensitive(name) or (folded in listed("query names") and folded not in self.keep)

    def redact(self, value: Any) -> Any:
        if isinstance(value, dict):
            result = {}
            for key, child in value.items():
                named = key in ("value", "values") and any(self.sensitive(value.get(n)) for n in ("name", "key"))
                result[key] = self.hide(child) if self.sensitive(key) or named else self.redact(child)
            return result
        if isinstance(value, list):
            if value and all(isinstance(v, list) and len(v) == 2 and isinstance(v[0], str | bytes) for v in value):
                return [[v[0], self.hide(v[1]) if self.sensitive(v[0]) else self.redact(v[1])] for v in value]
            return [self.redact(child) for child in value]
        return value

    def hide(self, value: Any) -> Any:
        if value is None or isinstance(value, bool) or (isinstance(value, str | bytes | list | dict) and not value):
            return value
        if isinstance(value, dict) and self.is_schema(value):
            return {k: self.hide(v) if k in SCHEMA_VALUES else self.redact(v) for k, v in value.items()}
        if isinstance(value, list):
            if all(item is None or isinstance(item, bool) for item in value):
                return value
            return [PLACEHOLDER.encode() if all(isinstance(item, bytes) for item in value) else PLACEHOLDER]
        return PLACEHOLDER.encode() if isinstance(value, bytes) else PLACEHOLDER

    @staticmethod
    def is_schema(value: dict[Any, Any]) -> bool:
        if not all(isinstance(key, str) and (key in SCHEMA_WORDS or key.startswith("x-")) for key in value):
            return False
        types = value.get("type")
        if types is None:
            return bool({"anyOf", "oneOf", "allOf", "$ref", "enum", "const"} & set(value))
        return all(isinstance(t, str) and t in SCHEMA_TYPES for t in (types if isinstance(types, list) else [types]))
