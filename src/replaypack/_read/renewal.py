"""A reader whose packs were collected goes on with the revision that holds the same records now."""

from __future__ import annotations

from collections.abc import Callable

from replaypack.errors import FormatError, ObjectMissingError, StorageError
from replaypack.format.manifest import Manifest
from replaypack.format.names import revision_key

from .manifests import Manifests

__all__ = ["Renewal", "renewed"]

#: Given the manifest in use and the error that a pack of it is missing: the one to go on with. Raises.
Renewal = Callable[[Manifest, ObjectMissingError], Manifest]

#: Revisions below the newest that are looked at.
_BELOW = 8


def renewed(manifests: Manifests, name: str, old: Manifest, error: ObjectMissingError, *, grows: bool) -> Manifest:
    """The newest manifest with the content of ``old``.

    With ``grows`` one that was open may have gone on since: more records behind those that it had.

    Raises `ObjectMissingError`: as it was where nothing newer is there, else one that says what the recording is now.
    """
    try:
        newest = manifests.newest(name, fresh=True)
    except (FormatError, StorageError):
        raise error from None
    if newest is None:
        raise _gone(error, old, "is not there any more", "it was deleted, and its packs collected") from None
    if newest.digest == old.digest:
        raise error  # not collected: lost
    if newest.content_digest == old.content_digest or (grows and _continues(newest, old)):
        return newest
    for number in range(newest.revision - 1, max(0, newest.revision - 1 - _BELOW), -1):
        try:
            below = manifests.get(revision_key(name, number))
        except (FormatError, StorageError):
            break
        if below is not None and below.content_digest == old.content_digest and below.digest != old.digest:
            return below
    raise _gone(error, old, f"is revision {newest.revision} now, with other content", "open it again") from None


def _continues(new: Manifest, old: Manifest) -> bool:
    """Whether a recording that was being recorded is the same, some records later."""
    return old.state == "open" and new.content.id == old.content.id and new.records >= old.records


def _gone(error: ObjectMissingError, old: Manifest, what: str, hint: str) -> ObjectMissingError:
    return ObjectMissingError(
        f"a pack of revision {old.revision} was collected; the recording {what}",
        operation=error.operation,
        url=error.url,
        hint=hint,
    )
