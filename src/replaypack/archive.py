"""`Archive`: the recordings under one URL; `open` and `aopen`: one recording by its locator."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from . import __version__
from ._arguments import check_digest, check_number, check_text, check_type
from ._escape import counted
from ._read.cache import Cache
from ._read.index import Index
from ._read.manifests import Manifests
from ._read.packs import PackReader
from ._read.renewal import renewed
from ._threads import in_thread
from ._write.base import Seed, seed_from
from ._write.claim import claim, refuse_case_twin, refuse_claimed
from ._write.journal import Leftover, find_leftovers, journal_directory
from ._write.publish import ClaimMode, Publisher, progress_of
from ._write.stamps import new_id, now_rfc3339
from .errors import (
    ConflictError,
    FormatError,
    InvalidNameError,
    ObjectMissingError,
    RecordingExistsError,
    ReplaypackError,
    UsageError,
    WithheldError,
)
from .format.digests import digest
from .format.manifest import Manifest, parse_manifest
from .format.manifest_members import Content
from .format.names import LATEST, MARKER, check_name, parse_locator, revision_key
from .format.notes import check_metadata, match_note, redaction_note, redaction_policy
from .policies.matching import MatchPolicy, MatchSpec
from .policies.redaction import (
    DEFAULT,
    VALUES_ONLY,
    RedactionPolicy,
    Redactor,
    known_secrets,
)
from .recorder import Recorder
from .recording import Recording
from .recover import finish_leftover
from .storage import Storage, open_storage

if TYPE_CHECKING:
    from .audit import Copied, Fault, Level
    from .audit._faults import Report
    from .replay.modes import ReplayMode
    from .replay.session import ReplaySession

__all__ = ["Archive", "aopen", "open"]


class Archive:
    """The recordings under one URL: a local directory, ``s3://``, ``gs://``, ``memory://``, …

    Nothing is read or written until it is asked for. ``storage_options`` go to the filesystem behind the URL.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        storage: Storage | None = None,
    ) -> None:
        if storage is None and not isinstance(url, str | os.PathLike):
            raise UsageError(f"an archive is named by a URL or a path, not {type(url).__name__}")
        self.storage = storage if storage is not None else open_storage(url, storage_options)

    def __repr__(self) -> str:
        return f"<Archive {self.url}>"

    @property
    def url(self) -> str:
        """The URL, without credentials."""
        return self.storage.url

    @property
    def manifests(self) -> Manifests:
        """The manifests of its recordings, for what checks or writes them; no stable interface."""
        return Manifests(self.storage)

    def close(self) -> None:
        """Release the storage."""
        self.storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Reading

    def open(
        self,
        name: str,
        revision: int | None = None,
        *,
        fresh: bool = False,
        expect_digest: str | None = None,
        expect_manifest: str | None = None,
        cache_bytes: int = 64 << 20,
        match: MatchSpec = None,
        secrets: Iterable[str | bytes] = (),
    ) -> Recording:
        """Open a recording: one GET, of ``latest.json`` or of the revision named.

        ``fresh`` looks for revisions newer than ``latest.json`` says (always so on a local disk).
        ``expect_digest`` (content) and ``expect_manifest`` (64 hex digits) must match. ``match`` overrides the match
        policy that the recording was made with: its keys are computed anew in memory, with the first lookup, for
        which every request is read. `repr` says so; `replaypack.audit.rekey` makes it lasting. ``secrets`` are
        values that were removed when recording, and are from what is looked up.

        Raises `RecordingNotFoundError`, `FormatError`, `StorageError`, `UsageError`.
        """
        check_name(name)
        policy = None if match is None else MatchPolicy.of(match)
        check_number("revision", revision, "a number from 1 on", least=1, below=10**8)
        check_digest("content", expect_digest)
        check_digest("manifest", expect_manifest)
        manifest = self.manifests.find(name, revision, fresh=fresh)
        for label, wanted, is_ in (
            ("content", expect_digest, manifest.content_digest),
            ("manifest", expect_manifest, manifest.digest),
        ):
            if wanted is not None and wanted != is_:
                raise FormatError(
                    f"the {label} digest is {is_}, not the {wanted} that was expected",
                    where=f"{self.url}#{name}@{manifest.storage.revision}",
                )
        refresh: Callable[[], Manifest] | None = None
        if revision is None:
            refresh = lambda: self.manifests.find(name, None, fresh=True)  # noqa: E731

        def renewal(old: Manifest, error: ObjectMissingError) -> Manifest:
            return renewed(self.manifests, name, old, error, grows=revision is None and expect_digest is None)

        return Recording(
            self.storage,
            name,
            manifest,
            refresh=refresh,
            # Who asks for a manifest by its digest gets no other.
            renewal=renewal if expect_manifest is None else None,
            cache_bytes=cache_bytes,
            match=policy,
            secrets=secrets,
        )

    async def aopen(self, name: str, revision: int | None = None, **options: Any) -> Recording:
        """`open`, without blocking the event loop."""
        return await in_thread(self.open, name, revision, **options)

    def recordings(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the recordings, sorted.

        Where the store has no listing (http) or permits none, they are those of the archive's catalog, with a warning.
        Raises `StorageError` where there is none either.
        """
        yield from self.manifests.names(prefix)

    def revisions(self, name: str) -> Iterator[Manifest]:
        """Yield the manifests of a recording's revisions, oldest first; gaps are legal. Needs a listing.

        Raises `RecordingNotFoundError`.
        """
        numbers = sorted(self.manifests.numbers(name))
        if not numbers:
            raise self.manifests.not_found(name)
        for number in numbers:
            key = revision_key(name, number)
            yield parse_manifest(self.storage.get(key), where=key)

    def require(self) -> None:
        """Raise `ObjectMissingError` unless there is an archive: what looks empty may also be mistyped."""
        try:
            self.storage.get(MARKER)
        except ObjectMissingError:
            raise ObjectMissingError(f"there is no archive at {self.url}", hint=nearby(self.storage)) from None

    # Writing

    def recorder(
        self,
        name: str,
        *,
        if_exists: Literal["error", "append", "replace"] = "error",
        metadata: Mapping[str, Any] | None = None,
        base: str | Sequence[str] | None = None,
        match: MatchSpec = None,
        recorded_by: str | None = None,
        sync: Literal["flush", "record"] = "flush",
        flush_interval: float | None = 5.0,
        on_error: Literal["incomplete", "discard"] = "incomplete",
        level: int = 6,
        redact: RedactionPolicy | Literal["default"] | None = "default",
        secrets: Iterable[str | bytes] = (),
        secrets_from_env: bool | Iterable[str] = False,
        _derived: Mapping[str, Any] | None = None,
    ) -> Recorder:
        """Claim ``name`` and return a `Recorder` for it.

        ``if_exists``: ``"error"``, ``"append"`` (readers see the old content until the first flush) or
        ``"replace"`` (until the seal). ``metadata`` are JSON values noted in the manifest. ``base`` names
        recordings of this archive whose bytes may be reused. ``match`` says what of an identity does not count for
        its key: the name of a ready-made match policy (``"uuids"``), several, or a `MatchPolicy`; it stands in the
        manifest, and an append goes on with the one that is there. ``sync="record"`` syncs the journal to the disk
        with every record instead of every flush. ``flush_interval`` (seconds) is the time to the first
        publication in the background, which doubles up to five minutes; None publishes only on `flush`.
        ``on_error="discard"`` leaves things as they were where an exception ends the ``with`` block, instead of
        sealing what there is as ``incomplete``.

        ``redact`` is the policy by which secrets are removed before anything is hashed or written
        (`docs/redaction.md`); None removes nothing by rule. A recording that is continued keeps its policy.
        ``secrets`` are values (6 bytes and more) that are removed wherever they stand, whatever the policy;
        ``secrets_from_env`` adds those of the environment's variables named, or (True) of all whose names say that
        they hold one.

        What a recorder that died left of this name is finished first (``append``, ``replace``), or reported
        (``error``).

        Raises `RecordingExistsError`, `ConflictError`, `StorageError`, `InvalidNameError`, `WithheldError` (an append
        to a copy whose requests were left out).
        """
        if if_exists not in ("error", "append", "replace"):
            raise UsageError(f"if_exists={if_exists!r} is not 'error', 'append' or 'replace'")
        if type(level) is not int or not 1 <= level <= 22:
            raise UsageError(f"zstd has levels 1 to 22, not {level}")
        if sync not in ("flush", "record"):
            raise UsageError(f"sync={sync!r} is not 'flush' or 'record'")
        if on_error not in ("incomplete", "discard"):
            raise UsageError(f"on_error={on_error!r} is not 'incomplete' or 'discard'")
        check_type("flush_interval", flush_interval, (int, float), "seconds, or None")
        if flush_interval is not None and not 0 < flush_interval < 1 << 31:
            raise UsageError(f"flush_interval is seconds, more than 0, or None, not {flush_interval!r}")
        check_type("metadata", metadata, Mapping, "a mapping")
        check_text("recorded_by", recorded_by)
        check_type("base", base, (str, Collection), "the name of a recording, or several")
        asked = None if match is None else MatchPolicy.of(match)
        check_name(name)
        if redact not in ("default", None) and not isinstance(redact, RedactionPolicy):
            raise UsageError("redact is a RedactionPolicy, 'default' or None")
        refuse_case_twin(self.storage, name)
        finish_leftover(self, name, if_exists)
        newest = self.manifests.newest(name, fresh=True)
        refuse_claimed(self.storage, name, newest)
        mode: ClaimMode = "create"
        old: Manifest | None = None
        if newest is not None and (newest.content.records or newest.content.state != "open"):
            if if_exists == "error":
                raise RecordingExistsError(
                    f"{self.url}#{name} exists already, with {counted(newest.content.records, 'record')}",
                    hint='record with if_exists="append" or "replace", or under another name',
                )
            mode, old = if_exists, newest
        base_manifest = old if mode == "append" else None
        if base_manifest is not None:
            _refuse_other_match(asked, base_manifest, f"{self.url}#{name}")
            _refuse_withheld(base_manifest, f"{self.url}#{name}")
        redaction = _policy(redact, base_manifest, name)
        known = known_secrets(secrets, secrets_from_env)
        redactor = Redactor.of(redaction, known)
        plain_metadata = dict(metadata or {})
        if redactor is not None:
            if redactor.redact(name) != name:
                raise InvalidNameError("the name of the recording holds a secret")
            plain_metadata = redactor.redact(plain_metadata)
            recorded_by = redactor.redact(recorded_by)
        check_metadata(plain_metadata)
        template = self._template(
            plain_metadata, recorded_by, MatchPolicy.of(asked), base_manifest, redaction, bool(known)
        )
        if _derived is not None:  # made of another recording, which these members of the content name
            template = msgspec.structs.replace(template, **_derived)
        writer = new_id(8)
        seed = self._seed(base, base_manifest, name)
        base_packs = Index(base_manifest, PackReader(self.storage), Cache(0)).packs if base_manifest else []
        publisher = Publisher(
            self.storage,
            name,
            writer=writer,
            mode=mode,
            template=template,
            base=base_manifest,
            base_packs=base_packs,
            revision=newest.storage.revision + 1 if newest is not None else 1,
            previous=None,
            level=level,
        )
        # The journal comes first: what says that the claim's recorder is alive is there when the claim is, and a
        # disk that refuses it leaves no claim behind.
        recorder = Recorder(
            publisher,
            progress=progress_of(base_manifest),
            sync=sync,
            flush_interval=flush_interval,
            on_error=on_error,
            seed=seed,
            redactor=redactor,
        )
        reused = {external.pack.digest: external.pack for external in seed.external}
        try:
            publisher.previous = claim(publisher, newest, list(reused.values())).digest
        except BaseException as error:
            # The claim may be there although the store said that it failed. Where it cannot be withdrawn the journal
            # stays: one without an owner says that nobody records, and the name is free for the next recorder.
            recorder._abandon(keep_journal=not isinstance(error, ConflictError) and not _withdrawn(publisher))
            raise
        return recorder

    def session(
        self,
        name: str,
        mode: ReplayMode | Literal["live", "record", "replay", "auto"] = "auto",
        **options: Any,
    ) -> ReplaySession:
        """A `ReplaySession` that records ``name``, or replays it; the options are those of that class."""
        from .replay.session import ReplaySession

        return ReplaySession(mode, self, name, **options)

    def _template(
        self,
        metadata: dict[str, Any],
        recorded_by: str | None,
        match: MatchPolicy,
        base: Manifest | None,
        policy: RedactionPolicy | None,
        secrets: bool,
    ) -> Content:
        by = recorded_by or f"replaypack {__version__}"
        if base is not None:
            return msgspec.structs.replace(
                base.content,
                metadata={**base.content.metadata, **metadata},
                extends=base.content_digest,
                state="open",
                error=None,
            )
        return Content(
            id=new_id(16).hex(),
            state="open",
            started=now_rfc3339(),
            metadata=metadata,
            recorded_by=by,
            match=match_note(match),
            redaction=redaction_note(policy or (VALUES_ONLY if secrets else None)),
            records=0,
            counts={},
            merkle_root=digest(b"").hex(),
            extends=None,
            derived_from=None,
            error=None,
        )

    def leftovers(self) -> list[Leftover]:
        """The journals that dead recorders of this archive left on this machine."""
        found, _ = find_leftovers(journal_directory(self.storage))
        return [leftover for leftover in found if leftover.head.archive == self.url or self.storage.local_path]

    def _seed(self, base: str | Sequence[str] | None, old: Manifest | None, name: str) -> Seed:
        """What the new recording may reuse: of the recording it continues, and of those named by ``base``."""
        start = old.storage.literals if old is not None else 0
        seed = Seed(start, [], [])
        if old is not None:
            seed = seed_from([Recording(self.storage, name, old)], start, same_space=True)
        names = [base] if isinstance(base, str) else list(base or ())
        more = seed_from([self.open(other) for other in names], seed.end)
        return Seed(more.end, more.external, seed.blobs + more.blobs)

    def verify(
        self,
        names: str | Iterable[str] | None = None,
        *,
        level: Level = "full",
        revisions: bool = True,
        progress: Report | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> Iterator[Fault]:
        """Yield every fault of the recordings named, of all by default (see `replaypack.audit.verify_archive`)."""
        from .audit import verify_archive

        if isinstance(names, str):
            names = [names]
        return verify_archive(self, names, level=level, revisions=revisions, progress=progress, state=state)

    def copy_to(
        self,
        to: str | os.PathLike[str] | Archive,
        names: str | Iterable[str] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        if_exists: Literal["error", "replace"] = "error",
        responses_only: bool = False,
        keep_going: bool = False,
        progress: Report | None = None,
    ) -> Copied:
        """Copy the recordings named (all by default; patterns may be given) to another archive.

        Only what is missing travels, and nothing of other recordings does. With ``keep_going`` a recording that is
        damaged here is ``failed`` in the result, with its ``error``, and the others are copied. ``storage_options``
        are those of the destination's filesystem. See `replaypack.audit.copy` for the rest, and for what is raised.
        """
        from .audit import copy

        options: Any = {
            "if_exists": if_exists,
            "responses_only": responses_only,
            "keep_going": keep_going,
            "progress": progress,
        }
        if isinstance(to, Archive):
            return copy(self, to, names, **options)
        with Archive(to, storage_options) as target:
            return copy(self, target, names, **options)

    def delete(self, name: str) -> None:
        """Remove a recording, all of its revisions. Its packs stay until they are collected.

        ``latest.json`` goes last: a deletion that is interrupted leaves a recording that can be read, and that
        can be deleted again. Raises `RecordingNotFoundError`.
        """
        check_name(name)
        self.storage.require_writable("delete")
        prefix = f"recordings/{name}/"
        found = False
        # Once more where a compaction, or what else writes a further revision, came in between.
        for _ in range(10):
            keys = [info.key for info in self.storage.list(prefix)]
            own = [key for key in keys if "/" not in key[len(prefix) :] and key.endswith(".json")]
            if not own:
                break
            found = True
            for key in sorted(own, key=lambda key: (key.endswith("/" + LATEST), key)):
                self.storage.delete(key)
        if not found:
            raise self.manifests.not_found(name)


def _withdrawn(publisher: Publisher) -> bool:
    """Take back a claim that may have been made; whether none is there now."""
    try:
        publisher.withdraw()
    except ObjectMissingError:
        return True
    except ReplaypackError:
        return False
    return True


def _policy(
    wanted: RedactionPolicy | Literal["default"] | None, base: Manifest | None, name: str
) -> RedactionPolicy | None:
    """The policy to record under: the one asked for, which must be that of the recording that is continued."""
    if base is None:
        return DEFAULT if wanted == "default" else wanted
    there = redaction_policy(base.content.redaction)
    if wanted == "default" or wanted == there or (wanted is None and there == VALUES_ONLY):
        return there
    raise UsageError(
        f"{name!r} was recorded under the redaction policy {base.content.redaction.name!r}",
        hint="leave redact out to continue under it, or record under another name",
    )


def _refuse_other_match(match: MatchPolicy | None, base: Manifest, where: str) -> None:
    """Raise `UsageError` where an append asks for other keys than the recording has."""
    if match is not None and match != base.match:
        raise UsageError(
            f"{where} has keys of match policy {base.match}; those of an append cannot be of {match}",
            hint="leave match out, or compute all keys anew first: replaypack rekey",
        )


def _refuse_withheld(base: Manifest, where: str) -> None:
    """Raise `WithheldError` for an append to a copy without its requests: part of it would have them."""
    for role in base.storage.withheld:
        raise WithheldError(
            f"nothing can be appended to {where}: it is a copy in which each {role} is withheld",
            recording=where,
            seq=None,
            role=role,
            hint="append to the recording that it was copied from, or record under another name",
        )


def open(
    locator: str,
    storage_options: Mapping[str, Any] | None = None,
    fresh: bool = False,
    expect_digest: str | None = None,
    expect_manifest: str | None = None,
    match: MatchSpec = None,
    secrets: Iterable[str | bytes] = (),
) -> Recording:
    """Open a recording by its locator, ``URL#name`` or ``URL#name@revision``; the rest is as in `Archive.open`.

    Raises `InvalidLocatorError`, `InvalidNameError`, and what `Archive.open` raises.
    """
    at = parse_locator(locator)
    archive = Archive(at.url, storage_options)
    try:
        recording = archive.open(
            at.name,
            at.revision,
            fresh=fresh,
            expect_digest=expect_digest,
            expect_manifest=expect_manifest,
            match=match,
            secrets=secrets,
        )
    except BaseException:
        archive.close()
        raise
    recording.owns_storage = True
    return recording


async def aopen(
    locator: str,
    storage_options: Mapping[str, Any] | None = None,
    fresh: bool = False,
    expect_digest: str | None = None,
    expect_manifest: str | None = None,
    match: MatchSpec = None,
    secrets: Iterable[str | bytes] = (),
) -> Recording:
    """`open`, without blocking the event loop."""
    return await in_thread(open, locator, storage_options, fresh, expect_digest, expect_manifest, match, secrets)


def nearby(storage: Storage) -> str:
    """What may have been meant where there is no archive: the directory beside it whose name is the nearest."""
    path = storage.local_path
    if path is not None and os.path.isdir(path.parent):
        with contextlib.suppress(OSError):
            there = [entry.name for entry in path.parent.iterdir() if os.path.exists(entry / MARKER)]
            near = difflib.get_close_matches(path.name, there, n=1)
            if near:
                return f"did you mean {path.parent / near[0]}?"
    return "is the URL right?"
