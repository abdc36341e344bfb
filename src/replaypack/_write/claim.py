"""Claiming a name: the revision that says who records, and what stands in its way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from replaypack._read.manifests import Manifests
from replaypack.canonical import canonical_json
from replaypack.errors import (
    ConflictError,
    InvalidNameError,
    ObjectExistsError,
    ObjectMissingError,
    RecordingExistsError,
)
from replaypack.format.manifest import Manifest, encode_manifest
from replaypack.format.manifest_members import PackRef
from replaypack.format.manifest_members import Storage as StorageSection
from replaypack.format.manifest_pages import encode_pack_page
from replaypack.format.names import MARKER, open_key, revision_key
from replaypack.format.versions import CURRENT_VERSION, FORMAT, parse_document
from replaypack.storage import Storage

from .journal import journal_directory, writer_is_alive
from .publish import Publisher
from .reuse import Reused
from .stamps import now_rfc3339

__all__ = ["claim", "mark", "refuse_case_twin", "refuse_claimed"]

#: A claim that published nothing for this long may be taken over.
CLAIM_EXPIRES = timedelta(hours=24)


def claim(publisher: Publisher, newest: Manifest | None, reused: Sequence[PackRef] = ()) -> Manifest:
    """Create the publisher's revision, which repeats what was there and says who writes now.

    It names the packs of other recordings that are ``reused`` too, so that they stay until the first flush does. Then
    it is made sure that they are there still.

    Raises `ConflictError`, and `ObjectMissingError` where one of them is gone.
    """
    name, mode, revision, writer = publisher.name, publisher.mode, publisher.revision, publisher.writer
    if mode == "create" or newest is None:
        content = publisher.template
        section = StorageSection(
            revision=revision,
            checkpoint=0,
            cause="claim",
            claim=mode,
            writer=writer.hex(),
            created=now_rfc3339(),
            previous=newest.digest if newest is not None else None,
            packs=list(reused),
            pack_pages=[],
            segments=[],
            literals=0,
            inlines=0,
            merkle_edge=[],
            tombstones=[],
            withheld=[],
            source=None,
        )
    else:
        content = newest.content
        packs, pages = newest.storage.packs, newest.storage.pack_pages
        more = [pack for pack in reused if pack not in packs]
        if more and pages:
            pages = [*pages, *publisher.pages([encode_pack_page(more)])]
        elif more:
            packs = [*packs, *more]  # behind the others, which keep their places
        section = msgspec.structs.replace(
            newest.storage,
            packs=packs,
            pack_pages=pages,
            revision=revision,
            checkpoint=0,
            cause="claim",
            claim=mode,
            writer=writer.hex(),
            created=now_rfc3339(),
            previous=newest.digest,
        )
    manifest = encode_manifest(content, section)
    mark(publisher.storage)
    try:
        publisher.storage.put_new(revision_key(name, revision), manifest.raw)
    except ObjectExistsError:
        raise ConflictError(
            f"another recorder claimed {publisher.storage.url}#{name} at the same moment",
            hint="record under another name",
        ) from None
    publisher.write_latest(name, manifest)
    if reused:
        try:
            Reused(publisher.storage).ensure(reused)
        except ObjectMissingError:
            publisher.withdraw()
            raise
    return manifest


def mark(storage: Storage) -> None:
    """Create the marker; it is there for people and writers, and readers do not need it."""
    marker = canonical_json({"format": FORMAT, "version": CURRENT_VERSION})
    try:
        storage.put_new(MARKER, marker)
    except ObjectExistsError:
        parse_document(storage.get(MARKER), where=MARKER)


def refuse_claimed(storage: Storage, name: str, newest: Manifest | None) -> None:
    """Raise `RecordingExistsError` where a recorder that may be alive holds the claim."""
    if newest is None or newest.storage.cause not in ("claim", "checkpoint"):
        return
    held = newest.storage
    if held.claim == "replace":
        # Readers do not see what it published; that it did says that it was alive.
        checkpoint = Manifests(storage).get(open_key(name, held.revision))
        if checkpoint is not None and checkpoint.storage.writer == held.writer:
            held = checkpoint.storage
    alive = writer_is_alive(journal_directory(storage), held.writer)
    # One of the future is no younger: a claim that never expires would be a lock.
    age = datetime.now(UTC) - datetime.fromisoformat(held.created[:26].rstrip("Z") + "+00:00")
    if alive or (alive is None and abs(age) < CLAIM_EXPIRES):
        raise RecordingExistsError(
            f"{storage.url}#{name} is being recorded by writer {held.writer} since {held.created}",
            hint="its claim expires when it has published nothing for 24 hours"
            if alive is None
            else "wait for it, or record under another name",
        )


def refuse_case_twin(storage: Storage, name: str) -> None:
    """Names that differ only in case are one file on some disks; refused where that can be seen."""
    if storage.local_path is None:
        return
    parent = storage.local_path / "recordings"
    for segment in name.split("/"):
        try:
            names = os.listdir(parent)
        except OSError:
            return
        for other in names:
            if other != segment and other.lower() == segment.lower():
                raise InvalidNameError(f"{name!r} differs only in case from what is there: {other!r}")
        parent = parent / segment
