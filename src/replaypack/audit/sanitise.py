"""`sanitise`: a recording without what must not be shared, as a recording of its own.

It has its own content digest and names that of its source; what was removed stands in its metadata, by rule and
number. Secrets are removed as when recording: before anything is hashed, keyed or written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from blake3 import blake3

from replaypack._plain import Path, pointer
from replaypack.canonical import canonical_json
from replaypack.errors import UsageError, WithheldError
from replaypack.format.digests import digest
from replaypack.format.notes import redaction_policy
from replaypack.policies.redaction import (
    DEFAULT,
    PLACEHOLDER,
    VALUES_ONLY,
    RedactionPolicy,
    Redactor,
    known_secrets,
)
from replaypack.recording import Record, Recording
from replaypack.values import ABSENT

from ._allow import Allow
from ._faults import Progress, Report

if TYPE_CHECKING:
    from replaypack.archive import Archive

__all__ = ["STATEMENT", "Removal", "Sanitised", "sanitise"]

#: The member of the metadata that says what was removed.
STATEMENT = "replaypack.sanitised"
#: Attributes of the format's own (spec/registry.md), without which a replay takes a record for something else.
_OWN = (("inside", True), ("stream", "async"), ("stream", "sync"))


class Removal(NamedTuple):
    """One thing that was removed: from which record (None: the manifest), part and place, by which rule.

    Rules are those of `replaypack.audit.scan`, and ``allow`` for what was not allowed. No value is in it.
    """

    seq: int | None
    part: str
    pointer: str
    rule: str


class Sanitised(NamedTuple):
    """What `sanitise` made: a recording of ``records`` records, ``changed`` of which something was removed of.

    ``removed`` counts by rule; ``kept_keys`` are records whose key is the host's: a digest that stays as it is.
    """

    name: str
    locator: str
    content_digest: str
    derived_from: str
    records: int
    changed: int
    kept_keys: int
    removed: dict[str, int]
    redaction: dict[str, Any]


def sanitise(
    source: Recording,
    archive: Archive,
    name: str,
    *,
    redact: RedactionPolicy | Literal["default"] | None = "default",
    allow: Iterable[str] | None = None,
    secrets: Iterable[str | bytes] = (),
    report: Callable[[Removal], None] | None = None,
    progress: Report | None = None,
) -> Sanitised:
    """Write the records of ``source`` as the recording ``name`` of ``archive``, without what must not be shared.

    ``redact`` is the redaction policy, which is applied on top of the source's; None only removes ``secrets`` (values
    of 6 bytes and more). ``allow`` keeps only what these JSON pointers name (`Allow`) of payloads, attributes,
    metadata and errors, and replaces all else by placeholders; scopes become pseudonyms unless ``/scope`` is allowed.
    Kinds, names of tools and models, times and sizes stay, and whether a call was a stream, or made inside of another.
    Keys are computed anew of what is left, so that a replay under the policy finds what was only redacted; those of the
    host stay, which ``kept_keys`` counts.

    The same source and rules give the same content digest. ``report`` is told of each removal. Nothing is visible
    before it is whole.

    Raises `UsageError` (the source is not finished, its requests are withheld, unsound rules),
    `RecordingExistsError`, `StorageError`, `FormatError`.
    """
    return _Sanitiser(source, redact, allow, secrets, report, progress).write(archive, name)


class _Sanitiser:
    def __init__(
        self,
        source: Recording,
        redact: RedactionPolicy | Literal["default"] | None,
        allow: Iterable[str] | None,
        secrets: Iterable[str | bytes],
        report: Callable[[Removal], None] | None,
        progress: Report | None,
    ) -> None:
        if redact not in ("default", None) and not isinstance(redact, RedactionPolicy):
            raise UsageError("redact is a RedactionPolicy, 'default' or None")
        self._source = source
        self._allow = None if allow is None else Allow(allow)
        self._given = list(secrets)
        self._secrets = known_secrets(self._given)
        self._report = report
        self._progress = progress
        self._removed: Counter[str] = Counter()
        self._changed = self._kept_keys = 0
        content = source.manifest.content
        if content.state == "open":
            raise UsageError(f"{source.locator} is still being recorded", hint="sanitise it when it is sealed")
        if source.withheld:
            raise WithheldError(
                f"requests of {source.locator} are withheld: what is left has no keys",
                recording=source.locator,
                seq=None,
                role=min(source.withheld),
            )
        own = DEFAULT if redact == "default" else redact
        self._policy = _both(redaction_policy(content.redaction), own, bool(self._secrets))
        self._redactor = Redactor.of(self._policy, self._secrets)

    def write(self, archive: Archive, name: str) -> Sanitised:
        source, content = self._source, self._source.manifest.content
        metadata = self._take(None, "metadata", content.metadata) or {}
        error = self._take(None, "error", content.error)
        if error is not None and type(error) is not dict:  # that there was one stays
            error = {PLACEHOLDER: PLACEHOLDER}
        rules = {
            "allow": None if self._allow is None else self._allow.pointers,
            "redaction": self._policy.to_data() if self._policy is not None else None,
        }
        seed = b"sanitise" + bytes.fromhex(source.content_digest) + canonical_json(rules)
        recorder = archive.recorder(
            name,
            metadata=metadata if type(metadata) is dict else {},
            match=source.manifest.match,
            recorded_by=content.recorded_by,
            on_error="discard",
            flush_interval=None,
            redact=self._policy,
            secrets=self._given,
            _derived={"id": digest(seed)[:16].hex(), "started": content.started, "derived_from": source.content_digest},
        )
        with recorder:
            for record in source.records():
                if self._progress is not None and record.seq % 64 == 0:
                    self._progress(Progress(source.name, "records", record.seq, len(source)))
                recorder.append(**self._record(record))
            recorder._note_metadata({STATEMENT: self._statement(rules)})
            manifest = recorder.seal(state="incomplete" if content.state == "incomplete" else "sealed", error=error)
        if self._progress is not None:
            self._progress(Progress(source.name, "records", len(source), len(source)))
        return Sanitised(
            name,
            f"{archive.url}#{name}@{manifest.storage.revision}",
            manifest.content_digest,
            source.content_digest,
            manifest.content.records,
            self._changed,
            self._kept_keys,
            dict(sorted(self._removed.items())),
            self._policy.to_data() if self._policy is not None else {"name": "none", "version": 1},
        )

    def _statement(self, rules: dict[str, Any]) -> dict[str, Any]:
        return {
            **rules,
            "changed": self._changed,
            "purged": self._source.manifest.purged,
            "removed": dict(sorted(self._removed.items())),
            "secrets": bool(self._secrets),
        }

    def _record(self, record: Record) -> dict[str, Any]:
        """What `Recorder.append` takes, before the recorder redacts it."""
        row = record.row
        before = self._removed.total()
        call: dict[str, Any] = {
            "kind": row.kind,
            "name": row.name,
            "start": row.start,
            "duration": row.duration,
            # Nobody who has not got the source knows its salts.
            "salt": digest(b"sanitise" + row.salt + record.row_bytes)[:8],
        }
        for part, value in (("kind", row.kind), ("name", row.name)):
            self._note(row.seq, part, value)
        call["scope"] = self._scope(row.seq, row.scope)
        given = row.attributes or {}
        own = {name: value for name, value in given.items() if (name, value) in _OWN}
        others = {name: value for name, value in given.items() if name not in own}
        attributes = self._take(row.seq, "attributes", others or None)
        call["attributes"] = {**(attributes if type(attributes) is dict else {}), **own} or None
        if row.scheme == "opaque" or row.identity is not None:
            call["request"] = self._take(row.seq, "request", record.request)
        if row.scheme != "opaque":
            part = "request" if row.identity is None else "identity"
            call["identity"] = self._take(row.seq, part, record.identity)
        if row.scheme != "identity":
            call["key_digest"], call["key_scheme"] = row.key, row.scheme
            self._kept_keys += 1
        response = self._take(row.seq, "response", record.response)
        failed = row.status != 0 and type(response) is dict
        call["error" if failed else "response"] = response
        call["status"] = record.status
        changed = self._removed.total() > before
        self._changed += changed
        # What is not allowed is no business of the recorder's, which flags what it removes itself.
        call["flags"] = sorted({*record.flags, "redacted"} if changed else record.flags)
        return call

    def _scope(self, seq: int, scope: str | None) -> str | None:
        self._note(seq, "scope", scope)
        if scope is None or self._allow is None or not self._allow.mask("scope", scope).replaced:
            return scope
        self._told(seq, "scope", "", "allow")
        return f"scope-{blake3(scope.encode(), key=self._key).hexdigest(8)}"

    @cached_property
    def _key(self) -> bytes:
        """What scopes are made unrecognisable with: known to whoever has the source, and nobody else."""
        first = next(iter(self._source.records()), None)
        return digest(b"scopes" + (first.row_bytes if first is not None else b""))

    def _take(self, seq: int | None, part: str, value: Any) -> Any:
        """What is allowed of a part; what redaction is going to remove of it is noted."""
        if value is None or value is ABSENT:
            return value
        if self._allow is not None:
            value, replaced = self._allow.mask(part, value)
            for place in replaced:
                self._told(seq, part, place, "allow")
        self._note(seq, part, value)
        return value

    def _note(self, seq: int | None, part: str, value: Any) -> None:
        if self._redactor is None or value is None:
            return
        for path, rule, secret in self._redactor.find(value):
            self._told(seq, part, self._place(path, secret), rule)

    def _place(self, path: Path, secret: str) -> str:
        """A pointer without secrets, which may be names of members too."""
        assert self._redactor is not None
        text = pointer(path)
        return str(self._redactor.redact(text.replace(secret, PLACEHOLDER) if secret else text))

    def _told(self, seq: int | None, part: str, place: str, rule: str) -> None:
        self._removed[rule] += 1
        if self._report is not None:
            self._report(Removal(seq, part, place, rule))


def _both(old: RedactionPolicy | None, new: RedactionPolicy | None, secrets: bool) -> RedactionPolicy | None:
    """The policy that removes what either does: calls are redacted by it before they are looked up."""
    policies = [policy for policy in (old, new) if policy is not None and policy != VALUES_ONLY]
    if not policies:
        return VALUES_ONLY if secrets or old is not None else None
    if len(policies) == 1:
        return policies[0]
    first, second = policies
    keep = set(first.keep) & set(second.keep)
    names = {*first.names, *second.names}
    prefixes = {*first.prefixes, *second.prefixes}
    rules = {"names": tuple(sorted(names)), "keep": tuple(sorted(keep)), "prefixes": tuple(sorted(prefixes))}
    for policy in (second, first):
        if all(getattr(policy, label) == texts for label, texts in rules.items()):
            return policy
    if not names and not keep and not prefixes:
        return DEFAULT
    own = next(policy.name for policy in (second, first) if policy.name.startswith("x-"))
    return RedactionPolicy(name=own, version=max(first.version, second.version), **rules)
