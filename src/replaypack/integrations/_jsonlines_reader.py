"""Lines of JSON as records: our own shape and other common ones, checked. Used by `jsonlines`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Literal

from replaypack.errors import ImportFormatError, ReplaypackError, UsageError
from replaypack.recorder import Recorder
from replaypack.tagged import load_json

from .interchange import described

__all__ = ["BOM", "MAX_LINE", "UNKNOWN_MEMBER", "Reader", "Unknown"]

#: What to do about a member that is not known.
UNKNOWN_MEMBER = "skip unknown members, or say what they are called"

#: Bytes of the longest line that is read or written.
MAX_LINE = 1 << 30
BOM = b"\xef\xbb\xbf"

_MEMBERS = frozenset(
    "seq kind name scope identity request response error status key key_scheme start start_ns duration duration_ns "
    "flags attributes salt".split()
)
#: What else our members are called. Two names of one are refused.
_NAMES = {"request": ("input", "args", "arguments"), "response": ("output", "result")}

Unknown = Literal["refuse", "skip"]


class Reader:
    """Lines, checked and recorded."""

    def __init__(self, path: Path, kind: str | None, members: dict[str, str], unknown: Unknown) -> None:
        self.path = path
        self.kind = kind
        self.unknown = unknown
        #: Whether this package wrote the file, so that nothing in it can be unknown.
        self.strict = False
        self._notes: list[str] = []
        self._skipped: dict[str, int] = {}
        # What each member of a line means to us.
        self._meaning = {name: name for name in _MEMBERS}
        for ours, others in _NAMES.items():
            self._meaning.update(dict.fromkeys(others, ours))
        for ours, theirs in members.items():
            if ours not in _MEMBERS:
                raise UsageError(f"{ours!r} is not a member", hint=f"there are {', '.join(sorted(_MEMBERS))}")
            self._meaning[theirs] = ours

    def open(self) -> Any:
        if str(self.path) == "-":
            return nullcontext(sys.stdin.buffer)
        try:
            return self.path.open("rb")
        except OSError as error:
            raise ImportFormatError(f"{self.path} cannot be read: {error.strerror}") from None

    def where(self, number: int) -> str:
        return f"{'standard input' if str(self.path) == '-' else self.path}, line {number}"

    def note(self, text: str) -> None:
        self._notes.append(text)

    def notes(self) -> Iterator[str]:
        yield from self._notes
        for name, count in self._skipped.items():
            yield f"the member {name!r} was skipped in {count} {'line' if count == 1 else 'lines'}"

    def lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, numbered from 1."""
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise ImportFormatError(
                    f"{self.where(number)} has more than {MAX_LINE} bytes", hint="is it JSON lines?"
                )
            if number == 1:
                if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise ImportFormatError(f"{self.where(1)} begins like UTF-16", hint="convert the file to UTF-8")
                if line.startswith(BOM):
                    line = line[len(BOM) :]
                    self.note("the file began with a byte order mark")
            if line := line.strip():
                yield number, line

    def append(self, recorder: Recorder, number: int, line: bytes) -> None:
        """Record a line. Raises `ImportFormatError`."""
        where = self.where(number)
        try:
            value = load_json(line)
        except ValueError as error:
            hint = "is it JSON lines, one object a line?" if number == 1 or line in (b"{", b"[", b"}", b"]") else None
            raise ImportFormatError(f"{where} is not a line of JSON: {error}", hint=hint) from None
        if not isinstance(value, dict):
            raise ImportFormatError(
                f"{where} is {described(value)}, not an object", hint="one object a line is a record"
            )
        try:
            recorder.append(**self.arguments(value))
        except _Refused as refusal:
            raise ImportFormatError(f"{where}: {refusal}", hint=refusal.hint) from None
        except ReplaypackError as error:
            if not isinstance(error, ValueError | UsageError) or error.code.startswith("archive."):
                raise
            raise ImportFormatError(f"{where}: {error.message}", hint=error.hint) from None

    def arguments(self, value: dict[str, Any]) -> dict[str, Any]:
        """The arguments of `Recorder.append` that a line stands for."""
        found: dict[str, Any] = {}
        called: dict[str, str] = {}
        for name, item in value.items():
            ours = self._meaning.get(name)
            if ours is None:
                self._unknown(name)
            elif ours in found:
                raise _Refused(f"{called[ours]!r} and {name!r} mean the same")
            else:
                found[ours], called[ours] = item, name
        result = {name: found[name] for name in ("kind", "name", "scope", "status") if found.get(name) is not None}
        kind = result.setdefault("kind", self.kind)
        if kind is None:
            raise _Refused("it has no kind", "name the kind of such lines, as with --kind model")
        for name in ("kind", "name", "scope", "status"):
            if not isinstance(result.get(name, ""), str):
                raise _Refused(f"{name} is {described(result[name])}, not text")
        if called.get("request") in ("args", "arguments") and kind == "tool" and "name" in result:
            # What a session makes of a tool call (spec/registry.md).
            found["request"] = {"name": result["name"], "args": found["request"]}
        result.update(_key(found))
        result.update(_outcome(found))
        result.update(_times(found))
        for name in ("flags", "attributes"):
            if found.get(name) is not None:
                if not isinstance(found[name], list if name == "flags" else dict):
                    raise _Refused(f"{name} is {described(found[name])}")
                result[name] = found[name]
        if "salt" in found:
            result["salt"] = _hex(found["salt"], "salt", 8)
        return result

    def _unknown(self, name: str) -> None:
        if self.unknown == "refuse" or self.strict:
            raise _Refused(f"the member {name!r} is not known", UNKNOWN_MEMBER)
        self._skipped[name] = self._skipped.get(name, 0) + 1


class _Refused(Exception):
    """Why a line is no record."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def _key(found: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {name: found[name] for name in ("identity", "request") if name in found}
    key, scheme = found.get("key"), found.get("key_scheme")
    if scheme is not None and not isinstance(scheme, str):
        raise _Refused(f"key_scheme is {described(scheme)}, not text")
    if key is None:
        if scheme not in (None, "identity"):
            raise _Refused(f"a key of the scheme {scheme!r} is not there")
        if not result:
            raise _Refused("it has no request, no identity and no key: nothing would find it")
        result.setdefault("identity", found.get("request"))
        if "identity" not in found:
            del result["request"]
    elif scheme is None:
        if not isinstance(key, str):
            raise _Refused(f"key is {described(key)}, not text")
        if "identity" in result:
            raise _Refused("it has a key and an identity", "leave one out, or name the key_scheme")
        result["key"] = key
    else:
        result["key_digest"], result["key_scheme"] = _hex(key, "key", 32), scheme
    return result


def _outcome(found: dict[str, Any]) -> dict[str, Any]:
    error = found.get("error")
    if error is None:
        return {"response": found["response"]} if "response" in found else {}
    if found.get("response") is not None:
        raise _Refused("it has a response and an error")
    if not isinstance(error, str | dict):
        raise _Refused(f"error is {described(error)}, not an object or text")
    return {"error": {"message": error} if isinstance(error, str) else error}


def _times(found: dict[str, Any]) -> dict[str, int]:
    result = {}
    for name, read in (("start", _moment), ("duration", _seconds)):
        exact, other = found.get(name + "_ns"), found.get(name)
        if exact is not None and other is not None:
            raise _Refused(f"it has {name} and {name}_ns")
        if exact is not None:
            if type(exact) is not int or not 0 <= exact < 1 << 63:
                raise _Refused(f"{name}_ns is {described(exact)}, not nanoseconds")
            result[name] = exact
        elif other is not None:
            result[name] = read(other, name)
    return result


def _moment(value: Any, name: str) -> int:
    if not isinstance(value, str):
        return _seconds(value, name)
    try:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        nanoseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    except (ValueError, OverflowError):
        raise _Refused(f"{name} {value[:40]!r} is not a time", "write e.g. 2026-01-31T12:00:00Z") from None
    if nanoseconds < 0:
        raise _Refused(f"{name} {value[:40]!r} is before 1970")
    return nanoseconds


def _seconds(value: Any, name: str) -> int:
    if type(value) not in (int, float) or not 0 <= value < 1 << 33:
        raise _Refused(f"{name} is {described(value)}, not seconds", f"write nanoseconds as {name}_ns")
    whole = int(value)  # by itself: seconds since the epoch leave a double few digits behind the point
    rest: int = round((value - whole) * 1_000_000_000)
    return whole * 1_000_000_000 + rest


def _hex(value: Any, name: str, size: int) -> bytes:
    try:
        data = bytes.fromhex(value)
    except (TypeError, ValueError):
        data = b""
    if len(data) != size:
        raise _Refused(f"{name} is not {2 * size} hex digits")
    return data
