"""What in plain text is a secret by what stands before it: headers, parameters, quoted fields, URLs.

Each rule is one pass; no pattern looks back at what it has passed, or ahead without a bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from ._names import PLACEHOLDER, NameRules
from ._shapes import Shape

__all__ = ["BASE64_MARKS", "Hit", "Rules", "clean_text", "has_names", "suspicious"]

#: Told of what was found: the rule, and the secret.
Hit = Callable[[str, str], None]

#: How JSON and gzip begin in base64, and what stands before it in a data URL.
BASE64_MARKS: Final = frozenset({"eyJ", "ewo", "W3s", "H4sI", "base64,"})

#: Characters from rare to frequent in texts; others are the rarest.
_RARE: Final = "JVKHWZGAISRPETzxq_9876543210-.jkvbywgpfmucdlhrnisoate,"

# Every rule by names needs one of these somewhere, in lower case.
_QUERY_MARKS: Final = ("sig=", "signature=", "credential=")
_KEY = re.compile(r"(?:api|private|subscription|account|access|functions|auth|secret)[^a-z0-9\0]{0,2}key")
_TOKEN = re.compile(
    r"(?:access|refresh|id|auth|api|session|security|bearer|oauth|bot|csrf|xsrf|github|gitlab|hf|npm|private|slack"
    r"|vault)[^a-z0-9\0]{0,2}token|[?&;]token="
)


def has_names(low: str, own: Iterable[str] = ()) -> bool:
    """Whether a text (in lower case) may hold a sensitive name. ``own`` are the policy's, folded."""
    if (
        "secret" in low
        or "cookie" in low
        or ("z" in low and "authorization" in low)
        or ("pass" in low and ("passw" in low or "passphrase" in low))
        or ("=" in low and any(map(low.__contains__, _QUERY_MARKS)))
    ):
        return True
    if "key" in low and _KEY.search(low):
        return True
    if "token" in low and (low.startswith("token=") or "\0token=" in low or _TOKEN.search(low)):
        return True
    if own:
        folded = re.sub(r"[^a-z0-9\0]", "", low)
        return any(name in folded for name in own)
    return False


class Rules(NamedTuple):
    """The rules of a policy: names of fields, forms of tokens, and the marks of those, by their rarest character."""

    names: NameRules | None
    shapes: tuple[Shape, ...]
    marks: tuple[tuple[str, tuple[str, ...]], ...]
    own: frozenset[str]

    @staticmethod
    def of(names: NameRules | None, shapes: Iterable[Shape]) -> Rules:
        """The rules; without names none applies."""
        shapes = tuple(shapes)
        marks: dict[str, list[str]] = {}
        for mark in sorted({mark for shape in shapes for mark in shape.marks} | (BASE64_MARKS if names else set())):
            marks.setdefault(min(mark, key=_RARE.find), []).append(mark)
        grouped = tuple((char, tuple(group)) for char, group in marks.items())
        return Rules(names, shapes, grouped, names.own_names if names else frozenset())

    def marked(self, text: str) -> bool:
        """Whether the mark of some form is in a text. One character is found much faster than several."""
        for char, marks in self.marks:  # noqa: SIM110 - a generator takes several times as long
            if char in text and any(map(text.__contains__, marks)):
                return True
        return False

    def names_field(self, text: str) -> bool:
        """Whether a text is the name of a sensitive field, so that what stands beside it is secret."""
        return self.names is not None and len(text) <= 128 and self.names.sensitive(text)


def suspicious(text: str, rules: Rules) -> bool:
    """Whether any rule may find something: cheap, and right whenever it says no."""
    if rules.names is None:
        return False
    low = text.lower()
    return has_names(low, rules.own) or "bearer" in low or ("://" in low and "@" in low) or rules.marked(text)


_SCHEMES = r"(?:bearer|basic|token|apikey|api-key|digest|negotiate|aws4-hmac-sha256|hawk|ntlm|signature|key)"
#: `Authorization: Bearer x`, `x-api-key: x`, also inside of a command line.
_HEADER = re.compile(
    r"(?:(?<![A-Za-z0-9_-])|(?<=\\n))(?P<name>(?:proxy-)?authorization|(?:[a-z]{1,20}-){0,4}"
    r"(?:api-key|auth-token|access-token|security-token|session-token|private-token|api-token|vault-token"
    r"|subscription-key|functions-key|(?:set-)?cookie))"
    r"""[ \t]{0,4}:[ \t]{0,4}(?P<value>[^\s"'\\][^\r\n"'\\]{0,8191})""",
    re.IGNORECASE,
)
_SCHEME = re.compile(_SCHEMES + r"[ \t]{1,4}", re.IGNORECASE)
_LONG_SCHEME = re.compile(r"(?:digest|aws4-hmac-sha256|hawk|signature)", re.IGNORECASE)
_CREDENTIAL = re.compile(r"[^\s,;<>(){}]{6,}")
_COOKIE = re.compile(r"[^\s=;,]{1,256}=")
_BEARER = re.compile(
    r"(?<![A-Za-z0-9_-])bearer[ \t]{1,4}(?=[A-Za-z._~+/=-]{0,200}[0-9])([A-Za-z0-9._~+/=-]{16,8192})", re.IGNORECASE
)
#: A quoted name and what its value begins with, as in JSON or Python: also where the quotes are escaped, as JSON in
#: JSON is.
_FIELD = re.compile(
    r"""(?P<quote>\\{0,7}["'])(?P<name>[A-Za-z$@][A-Za-z0-9_.$@ -]{1,63})(?P=quote)\s{0,8}[:=,]\s{0,8}"""
    r"""(?:[bru]{0,2}(?P<open>\\{0,7}["'])|(?P<bracket>[\[{(])|(?P<number>-?[0-9][0-9.eE+-]{0,40}))"""
)
#: A name and a value as fields of their own.
_NAMED = re.compile(
    r"""(?P<quote>\\{0,7}["'])(?:name|key|Name|Key)(?P=quote)\s{0,8}:\s{0,8}(?P=quote)(?P<name>[A-Za-z0-9_.-]{2,64})"""
    r"""(?P=quote)\s{0,8},\s{0,8}(?P=quote)[vV]alue(?P=quote)\s{0,8}:\s{0,8}(?P<open>\\{0,7}["'])"""
)
_SCHEMA = re.compile(
    r"""\{\s{0,200}\\{0,7}["'](?:type|title|description|anyOf|oneOf|allOf|\$ref|enum|format)\\{0,7}["']"""
)
_TOKENS = re.compile(r"""\\{0,7}["']|[\[\](){}]""")
_PARAMETER = re.compile(r"""(?P<name>[?&][A-Za-z0-9_.%~\[\]-]{2,100})=(?P<value>[^&#\s"'<>\\]{1,16384})""")
#: Parts of connection strings, and parameters behind `&amp;`.
_SETTING = re.compile(r"""(?P<name>;[A-Za-z][A-Za-z0-9_ -]{2,100})=(?P<value>[^;&#\s"'<>\\]{1,16384})""")
_FORM = re.compile(r"[A-Za-z0-9_.%~\[\]-]{2,100}=")
_NOT_FORM = re.compile(r"[\s\"'<>{}\\]")
_USER = re.compile(r"""://([^\s/?#@:"'<>\\]{0,256}):([^\s/?#@"'<>\\]{1,512})@""")
# Line breaks may be escaped, as in what Python shows of bytes.
_LINE = r"(?:\r?\n|(?:\\{1,4}r)?\\{1,4}n)"
_PART = re.compile(
    r'form-data;[^\r\n]{0,200}?name=\\{0,4}"?([^"\r\n;\\]{1,128})\\{0,4}"?[^\r\n]{0,500}?' + _LINE, re.IGNORECASE
)
_BLANK = re.compile(rf"(?:[^\r\n\\]{{1,500}}{_LINE}){{0,8}}+{_LINE}")
_PART_END = re.compile(_LINE + "--")


def clean_text(text: str, rules: Rules, hit: Hit) -> str:
    """``text`` without the secrets that its form gives away; the same object where there are none."""
    names = rules.names
    if names is None:
        return text
    if "PRIVATE KEY" in text:  # words and lines, of which the rules below would take the first alone
        for shape in rules.shapes:
            if shape.name == "private_key":
                text = _sub(shape.pattern, text, partial(_group, number=0, rule=f"token.{shape.name}", hit=hit))
    low = text.lower()
    if has_names(low, rules.own):
        if "form-data" in low:
            text = _parts(text, names, hit)
        text = _pairs_of_fields(_fields(text, names, hit), names, hit)
        if ":" in text:
            text = _sub(_HEADER, text, lambda match: _header(match, names, hit))
        if "=" in text:
            if _FORM.match(text) and not _NOT_FORM.search(text):
                text = _sub(_PARAMETER, "&" + text, lambda match: _parameter(match, names, hit))[1:]
            elif "?" in text or "&" in text:
                text = _sub(_PARAMETER, text, lambda match: _parameter(match, names, hit))
            if ";" in text:
                text = _sub(_SETTING, text, lambda match: _parameter(match, names, hit))
    if "bearer" in low:
        text = _sub(_BEARER, text, lambda match: _group(match, 1, "bearer", hit))
    if "://" in low and "@" in low:
        text = _sub(_USER, text, lambda match: _group(match, 2, "url.password", hit))
    for shape in rules.shapes if rules.marked(text) else ():
        if any(map(text.__contains__, shape.marks)):
            text = _sub(shape.pattern, text, partial(_group, number=0, rule=f"token.{shape.name}", hit=hit))
    return text


def _sub(pattern: re.Pattern[str], text: str, replace: Callable[[re.Match[str]], str]) -> str:
    new = pattern.sub(replace, text)
    return text if new == text else new


def _group(match: re.Match[str], number: int, rule: str, hit: Hit) -> str:
    secret = match[number]
    if PLACEHOLDER in secret:
        return match[0]
    hit(rule, secret)
    start, end = match.span(number)
    return match[0][: start - match.start()] + PLACEHOLDER + match[0][end - match.start() :]


def _header(match: re.Match[str], rules: NameRules, hit: Hit) -> str:
    name, value = match["name"], match["value"]
    if not rules.sensitive(name):
        return match[0]
    head = match[0][: match.start("value") - match.start()]
    if name.lower().endswith("cookie"):
        secret, before, after = value, "", ""
        if not _COOKIE.match(value):
            return match[0]
    else:
        scheme = _SCHEME.match(value)
        before = scheme[0] if scheme else ""
        rest = value[len(before) :]
        if scheme and _LONG_SCHEME.match(before):
            secret, after = rest, ""
        else:
            found = _CREDENTIAL.match(rest)
            # Without a scheme a word may be no credential but prose.
            if found is None or (not scheme and not any(map(str.isdigit, found[0])) and len(found[0]) < 16):
                return match[0]
            secret, after = found[0], rest[found.end() :]
    if secret == PLACEHOLDER:
        return match[0]
    hit("header", secret)
    return f"{head}{before}{PLACEHOLDER}{after}"


def _parameter(match: re.Match[str], rules: NameRules, hit: Hit) -> str:
    name, value = match["name"], match["value"]
    if value == PLACEHOLDER or not rules.sensitive_in_query(unquote_plus(name[1:])):
        return match[0]
    hit("parameter", value)
    return f"{name}={PLACEHOLDER}"


def _fields(text: str, rules: NameRules, hit: Hit) -> str:
    parts: list[str] = []
    done = at = 0
    while (match := _FIELD.search(text, at)) is not None:
        at = match.end("name")
        name = match["name"]
        separator = text[at + len(match["quote"]) : match.end()].lstrip()[:1]
        if match["bracket"] is not None:
            wanted = (rules.sensitive(name) or name == "cookies") and not _SCHEMA.match(text, match.start("bracket"))
        else:
            wanted = rules.sensitive(name)
        # A comma stands between name and value in pairs, which are in brackets; elsewhere it is a list of words.
        if not wanted or (separator == "," and not _in_pair(text, match.start())):
            continue
        quote = match["quote"]
        if match["open"] is not None:
            start = match.end()
            end = _closing(text, match["open"], start)
            quote = ""
        elif match["bracket"] is not None:
            start = match.start("bracket")
            end = _closing_bracket(text, start)
        else:
            start, end = match.span("number")
        at = max(end, at)
        if end - start < 1 or PLACEHOLDER in text[start : start + 40] or text[start:end] in ("{}", "[]", "()"):
            continue
        hit("field", text[start:end])
        parts += (text[done:start], quote, PLACEHOLDER, quote)
        done = end
    return "".join((*parts, text[done:])) if parts else text


def _pairs_of_fields(text: str, rules: NameRules, hit: Hit) -> str:
    parts: list[str] = []
    done = at = 0
    while (match := _NAMED.search(text, at)) is not None:
        at = match.end()
        if not rules.sensitive(match["name"]):
            continue
        end = _closing(text, match["open"], at)
        if end > at and text[at:end] != PLACEHOLDER:
            hit("field", text[at:end])
            parts += (text[done:at], PLACEHOLDER)
            done = end
        at = end
    return "".join((*parts, text[done:])) if parts else text


def _closing_bracket(text: str, start: int) -> int:
    """Behind the bracket that closes the one at ``start``, brackets in quotes aside; the end of the text if none."""
    depth = 0
    at = start
    while (match := _TOKENS.search(text, at)) is not None:
        at = match.end()
        if match[0][-1] in "\"'":
            at = min(_closing(text, match[0], at) + len(match[0]), len(text))
        elif match[0] in "[{(":
            depth += 1
        else:
            depth -= 1
            if not depth:
                return at
    return len(text)


def _in_pair(text: str, start: int) -> bool:
    before = text[max(0, start - 12) : start].rstrip("bru ")
    return before[-1:] in "[(" and before[:-1].rstrip()[-1:] in ("[", "(", ",")


def _closing(text: str, quote: str, start: int) -> int:
    """Where a quoted value ends; the end of the text where it is cut off."""
    level = len(quote) - 1
    at = start
    while (at := text.find(quote[-1], at)) >= 0:
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        count = at - before
        # Fewer backslashes than at its beginning: what is around the value ends here.
        if count <= level if level else count % 2 == 0:
            return at - min(count, level)
        at += 1
    return len(text)


def _parts(text: str, rules: NameRules, hit: Hit) -> str:
    """Fields of a multipart form."""
    parts: list[str] = []
    done = at = 0
    while (match := _PART.search(text, at)) is not None:
        at = match.end()
        if not rules.sensitive_in_query(match[1]):
            continue
        blank = _BLANK.match(text, at)
        if blank is None:
            continue
        start = blank.end()
        closing = _PART_END.search(text, start)
        end = closing.start() if closing else len(text)
        at = max(at, end)
        if start >= end or text[start:end] == PLACEHOLDER:
            continue
        hit("parameter", text[start:end])
        parts += (text[done:start], PLACEHOLDER)
        done = end
    return "".join(parts) + text[done:] if parts else text
