"""Why a call is not answered, and what was recorded that comes nearest to it."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec

from replaypack import values
from replaypack._escape import counted, escape
from replaypack._plain import survey
from replaypack.canonical import canonical_json, key_digest
from replaypack.differences import Difference, differences
from replaypack.errors import CanonicalizationError, PurgedError, UsageError
from replaypack.recording import Record, Recording
from replaypack.values import ABSENT

from ._capture import is_empty, is_inside

__all__ = ["Explanation", "Near", "Reason", "explain"]

Reason: TypeAlias = Literal[
    "answered", "exhausted", "unanswerable", "purged", "other_scope", "other_kind", "no_kind", "no_name", "missing"
]

#: Records of the very key that are looked at: their scopes, and whether they can answer.
_SAME = 16
#: Records whose requests are compared roughly, and those that are compared in full for each one that is shown.
_ROUGHLY = 256
_IN_FULL = 3
#: Differences that are listed of a record, and the most that are counted.
_LISTED = 5
_COUNTED = 100
#: Kinds under which the same identity is looked for.
_KINDS = 16
#: Members of a map, and elements of a list in it, that are compared by themselves.
_MEMBERS = 64
_ELEMENTS = 1000


class Near(msgspec.Struct, frozen=True):
    """A recorded call that comes near. ``differences`` are the first of ``count``, from it to the call that was made.

    ``count`` stops at 100.
    """

    seq: int
    kind: str
    name: str | None
    scope: str | None
    differences: tuple[Difference, ...]
    count: int

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "seq": self.seq,
            "kind": self.kind,
            "name": self.name,
            "scope": self.scope,
            "count": self.count,
            "differences": [difference.to_dict() for difference in self.differences],
        }


class Explanation(msgspec.Struct, frozen=True):
    """Why a call is answered, or not. As text it is a few lines for people.

    ``recorded``: how many records of the key the scope has (those without a scope, where it has none). ``played``: how
    many of them answered already. ``looked_at``: records among which the nearest were searched, of ``records``.
    ``detail``: the reason as a sentence. ``hint``: what to do about it, where there is something to do.
    """

    kind: str
    name: str | None
    scope: str | None
    key: bytes
    reason: Reason
    recorded: int
    played: int
    detail: str
    hint: str | None
    nearest: tuple[Near, ...]
    looked_at: int
    records: int

    @property
    def answered(self) -> bool:
        """Whether a record answers the call."""
        return self.reason == "answered"

    def __str__(self) -> str:
        name = f" {self.name!r}" if self.name is not None else ""
        scope = f", scope {self.scope!r}" if self.scope is not None else ""
        verdict = "is answered" if self.answered else "is not answered"
        lines = [escape(f"{self.kind}{name}{scope} (key {self.key.hex()[:12]}…) {verdict}: {self.detail}")]
        if self.hint is not None:
            lines.append(escape(self.hint))
        if self.nearest:
            every = self.looked_at == self.records
            lines.append(f"nearest of {'all ' if every else ''}{counted(self.looked_at, 'record')} looked at:")
        for near in self.nearest:
            label = "".join(f", {what} {text!r}" for what, text in (("name", near.name), ("scope", near.scope)) if text)
            lines.append(escape(f"  record {near.seq}{label}:"))
            lines += [f"    {difference}" for difference in near.differences]
            if near.count > len(near.differences):
                more = near.count - len(near.differences)
                lines.append(f"    and {more}{' or more' if near.count >= _COUNTED else ''} other differences")
            if not near.differences:
                lines.append("    the request is the same; the key of the host is not")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "answered": self.answered,
            "reason": self.reason,
            "detail": self.detail,
            "hint": self.hint,
            "kind": self.kind,
            "name": self.name,
            "scope": self.scope,
            "key": self.key.hex(),
            "recorded": self.recorded,
            "played": self.played,
            "looked_at": self.looked_at,
            "records": self.records,
            "nearest": [near.to_dict() for near in self.nearest],
        }


def can_answer(record: Record) -> bool:
    """Whether a record answers unless something else was asked for.

    Not if it was interrupted or truncated, made inside of another call, or has no response.
    """
    row = record.head
    return record.status != "interrupted" and "truncated" not in record.flags and not (is_inside(row) or is_empty(row))


def explain(
    recording: Recording,
    kind: str,
    identity: object = ABSENT,
    *,
    name: str | None = None,
    scope: str | None = None,
    near: int = 0,
    frames: int = 16,
    count: int = 3,
    key: bytes | None = None,
    request: object = ABSENT,
    played: int = 0,
    answers: Callable[[Record], bool] = can_answer,
    able: int | None = None,
    normalise: Callable[[object], object] | None = None,
    purged: PurgedError | None = None,
) -> Explanation:
    """Say why a recording answers a call, or not, with the ``count`` recorded calls nearest to it.

    The call is named by ``kind`` and ``identity``, or by the ``key`` (32 bytes, as `Record.key`) and then compared by
    its ``request``. ``played`` records of the key have answered already. ``near`` is the sequence number around which
    similar calls are searched: at most ``frames`` record frames are read in all, in few rounds.
    ``answers`` says which records can answer, ``able`` how many of the key do, where that is known. ``normalise`` is
    what is done to both sides before they are compared, and before the key is computed: by default what the
    recording's match policy does. ``purged`` is the error of the record whose turn it is.

    Raises `UsageError` without identity and key, `CanonicalizationError` for an identity that has no key, and what
    reading raises.
    """
    plain = ABSENT if identity is ABSENT else survey(identity, CanonicalizationError).value
    if (redactor := recording.redactor) is not None:
        # Compared with what was recorded, and shown: neither with the secrets of the live call.
        plain, request = redactor.redact(plain), redactor.redact(request)
        name, scope = redactor.redact(name), redactor.redact(scope)
    if key is None:
        if plain is ABSENT:
            raise UsageError("give either the identity of the call or its key")
        key = recording.key_of(kind, plain) if normalise is None else key_digest(kind, normalise(plain))
    if normalise is None and recording.match.rules:
        normalise = partial(recording.match.apply, kind)
    call = _Call(kind, name, scope, key, plain, request, normalise)
    counts = recording.manifest.content.counts
    same = recording.of_key(key, limit=_SAME, frames=max(1, frames // 2))
    reason, recorded, detail, hint = _reason(recording, call, same, played, answers, able)
    if reason == "answered" and purged is None:
        purged = _purged(recording, key, scope, played)
    if purged is not None:
        reason, detail, hint = "purged", f"{purged.message}; call number {played + 1} of it was that record", None
    nearest: list[Near] = []
    looked: list[Record] = []
    if reason != "answered" and counts.get(kind, 0) and count > 0:
        spent = len({id(record._found.frame) for record in same})
        looked = recording.around(near, frames=max(0, frames - spent))
        if reason == "missing" and name is not None:
            reason, detail, hint = _name(looked, call, len(recording)) or (reason, detail, hint)
        nearest = _nearest(recording, call, looked, near, count)
        if reason == "missing" and call.identity is not ABSENT and any(r.key_scheme == "opaque" for r in looked):
            hint = hint or "keys that a host made are found by that key alone, not by an identity"
    if reason not in ("answered", "purged"):
        detail += _not_there(recording)
    return Explanation(
        kind, name, scope, key, reason, recorded, played, detail, hint, tuple(nearest), len(looked), len(recording)
    )


def _purged(recording: Recording, key: bytes, scope: str | None, nth: int) -> PurgedError | None:
    """The error of the ``nth`` record of a call, where it was purged."""
    if recording.tombstones:
        try:
            recording.lookup_digest(key, scope=scope, nth=nth)
        except PurgedError as error:
            return error
    return None


def _not_there(recording: Recording) -> str:
    """What else may be behind a miss: records of which nothing says what they were, and requests not in this copy."""
    text = ""
    if purged := recording.manifest.purged:
        was = "was purged, and it may have been that one" if purged == 1 else "were purged, and it may have been one"
        text += f"; {counted(purged, 'record')} of the recording {was}"
    if recording.withheld:
        text += "; what was asked is withheld in this copy, so that the nearest calls cannot be shown"
    return text


class _Call(msgspec.Struct, frozen=True):
    kind: str
    name: str | None
    scope: str | None
    key: bytes
    identity: Any
    request: Any
    normalise: Callable[[object], object] | None

    def of(self, record: Record) -> Any:
        """What of a record is compared with `own`."""
        # A record with a key of the host has no identity.
        value = record.request if self.identity is ABSENT or record.key_scheme == "opaque" else record.identity
        if value is ABSENT or self.normalise is None:
            return value
        return self.normalise(value)

    @property
    def own(self) -> Any:
        value = self.request if self.identity is ABSENT else self.identity
        if value is ABSENT:
            return ABSENT
        plain = survey(value).value
        return plain if self.normalise is None else self.normalise(plain)


#: The reason, how many are recorded, the reason as a sentence, what to do.
_Because: TypeAlias = tuple[Reason, int, str, str | None]


def _reason(
    recording: Recording,
    call: _Call,
    same: Sequence[Record],
    played: int,
    answers: Callable[[Record], bool],
    able: int | None,
) -> _Because:
    counts = recording.manifest.content.counts
    others: dict[bytes, str] = {}
    if call.identity is not ABSENT:
        kinds = [kind for kind in list(counts)[:_KINDS] if kind != call.kind]
        if recording.match.rules:
            others = {recording.key_of(kind, call.identity): kind for kind in kinds}
        else:
            identity = call.own
            others = {key_digest(kind, identity): kind for kind in kinds}
    total, *elsewhere = recording.count_keys([call.key, *others])
    label = call.scope
    recorded = recording.count_scoped(call.key, label)
    if not recorded and label is not None:
        label, recorded = None, recording.count_scoped(call.key, None)
    where = f" in scope {label!r}" if label is not None else " without a scope" if call.scope is not None else ""
    flawed = [record for record in same if record.scope == label and not answers(record)]
    if able is None:
        able = recorded - len(flawed)
    what = ", ".join(f"record {record.seq} ({_flaw(record)})" for record in flawed[:3])
    if recorded and flawed and not able:
        detail = f"recorded {_times(recorded)}{where}, but nothing there answers: {what}"
        return "unanswerable", recorded, detail, _remedy(flawed)
    times = f"recorded {_times(able)}{where}"
    besides = f"; not counting {recorded - able} that cannot answer: {what}" if what else ""
    if able > played:
        return "answered", recorded, f"{times}, {played} of them played{besides}", None
    if recorded:
        all_ = "that one has" if able == 1 else f"all {able} have"
        return "exhausted", recorded, f"{times}, and {all_} answered: this is call number {played + 1}{besides}", None
    if total:
        scopes = list(dict.fromkeys(record.scope for record in same if record.scope is not None))
        some = ", ".join(map(repr, scopes[:5])) or "others"
        here = "without a scope" if call.scope is None else f"in scope {call.scope!r} or without one"
        detail = f"never recorded {here}; {_times(total)} in other scopes, such as {some}"
        return "other_scope", 0, detail, "another scope's records never answer: make the call in the scope it had"
    for kind, other in zip(others.values(), elsewhere, strict=True):
        if other:
            detail = f"never recorded as {call.kind!r}; the same identity is recorded {_times(other)} as {kind!r}"
            return "other_kind", 0, detail, None
    if not counts.get(call.kind, 0):
        there = ", ".join(f"{kind} ({number})" for kind, number in counts.items())
        detail = f"the recording has no records of kind {call.kind!r}; " + (
            f"it has {there}" if there else "it is empty"
        )
        return "no_kind", 0, detail, _did_you_mean(call.kind, counts)
    number = counts[call.kind]
    detail = f"never recorded; there {'is' if number == 1 else 'are'} {counted(number, 'record')} of kind {call.kind!r}"
    return "missing", 0, detail, None


def _name(looked: Sequence[Record], call: _Call, records: int) -> tuple[Reason, str, str | None] | None:
    names = Counter(record.name for record in looked if record.kind == call.kind and record.name is not None)
    if call.name is None or call.name in names or not any(record.kind == call.kind for record in looked):
        return None
    among = "the recording" if len(looked) == records else f"none of the {len(looked)} records looked at"
    has = "has no records" if len(looked) == records else "is"
    there = ", ".join(f"{name} ({number})" for name, number in names.most_common(8))
    detail = f"never recorded; {among} {has} of {call.kind!r} with the name {call.name!r}"
    return "no_name", detail + (f"; there are {there}" if there else ""), _did_you_mean(call.name, names)


def _did_you_mean(text: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(text, list(known)[:1000], n=1)
    return f"did you mean {near[0]!r}?" if near else None


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _flaw(record: Record) -> str:
    """What keeps a record from answering."""
    status = [record.status] if record.status != "ok" else []
    inside = ["made inside of another call"] if is_inside(record.head) else []
    empty = ["no response"] if is_empty(record.head) else []
    return ", ".join([*status, *sorted(record.flags), *inside, *empty]) or "ok"


def _remedy(flawed: Sequence[Record]) -> str | None:
    """What to do about records that do not answer."""
    if any("truncated" in record.flags and not is_empty(record.head) for record in flawed):
        return "answer_truncated=True replays what was read of a stream"
    if any(is_inside(record.head) for record in flawed):
        return "what is called inside of another call is answered by that one"
    return None


# What comes near


def _nearest(recording: Recording, call: _Call, looked: Iterable[Record], near: int, count: int) -> list[Near]:
    own = call.own
    if own is ABSENT:
        return []
    size = len(values.encode_payload(own)[1])

    def first_glance(record: Record) -> tuple[bool, int, int]:
        row = record.row
        ref = row.request if call.identity is ABSENT or row.identity is None else row.identity
        # Sizes in steps, so that among those that are about as large the nearest in time come first.
        apart = abs(math.log2(((ref.size if ref is not None else 0) + 64) / (size + 64)))
        return call.name is not None and record.name != call.name, round(2 * apart), abs(record.seq - near)

    ranked = sorted((r for r in looked if r.kind == call.kind and r.key != call.key), key=first_glance)
    # A call that was recorded many times is shown once, where it is nearest.
    unique: dict[bytes, Record] = {}
    for record in ranked:
        unique.setdefault(record.key, record)
    likely = list(unique.values())[:_ROUGHLY]
    mine = _Shape(own)
    rated: list[tuple[bool, float, int, Record, Any]] = []
    for record in recording.with_requests(likely):
        value = call.of(record)
        if value is not ABSENT:
            foreign, _, distance = first_glance(record)
            rated.append((foreign, -mine.likeness(_Shape(value)), distance, record, value))
    rated.sort(key=lambda item: item[:3])
    compared = []
    for foreign, unlike, distance, record, value in rated[: _IN_FULL * count]:
        found = differences(value, own, limit=_COUNTED)
        # The same request under another key says something only where the host makes the keys.
        if found or call.identity is ABSENT or record.key_scheme == "opaque":
            shown = Near(record.seq, record.kind, record.name, record.scope, tuple(found[:_LISTED]), len(found))
            compared.append(((foreign, len(found), unlike, distance), shown))
    compared.sort(key=lambda item: item[0])
    return [shown for _, shown in compared[:count]]


class _Shape:
    """What two values are compared by roughly: canonical JSON, and the parts near the top of it, by themselves."""

    def __init__(self, value: Any) -> None:
        self.text = _canonical(value)
        self.parts = Counter(_parts(value))
        self.size = sum(map(len, self.parts.elements()))

    def likeness(self, other: _Shape) -> float:
        """From 0 (nothing in common) to 2 (equal)."""
        a, b = self.text, other.text
        most = min(len(a), len(b))
        start = _common(a, b, most)
        end = _common(a[::-1], b[::-1], most - start)
        shared = sum(map(len, (self.parts & other.parts).elements()))
        return (start + end) / max(len(a), len(b), 1) + shared / max(self.size, other.size, 1)


def _parts(value: Any) -> Iterator[bytes]:
    """The members of a map, each with its name, and the elements of the lists among them: messages, say."""
    members = value.items() if isinstance(value, dict) else [("", value)]
    for name, member in islice(members, _MEMBERS):
        for item in islice(member, _ELEMENTS) if isinstance(member, list | tuple) else [member]:
            yield _canonical(name) + _canonical(item)


def _canonical(value: Any) -> bytes:
    try:
        return canonical_json(value)
    except CanonicalizationError:
        return values.encode(value)


def _common(a: bytes, b: bytes, most: int) -> int:
    """How many bytes at the beginning of two texts are the same, up to ``most``."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
