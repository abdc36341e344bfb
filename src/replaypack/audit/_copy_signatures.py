"""The signatures of what is copied: they go along, and stay there while a collector is at work."""

from __future__ import annotations

from replaypack.errors import AccessDeniedError, ObjectExistsError, ObjectMissingError, StorageUnsupportedError
from replaypack.format.dsse import MAX_ENVELOPE
from replaypack.format.marks import Marks
from replaypack.format.names import signature_parts
from replaypack.storage import Storage

from ._copy_plan import Plan
from ._transfer import reading
from .sign import MAX_OBJECTS

__all__ = ["SignatureCopier"]


class SignatureCopier:
    """Copies the signatures of one content after another; ``marks`` is what a collector has marked at the target."""

    def __init__(self, source: Storage, target: Storage, marks: Marks) -> None:
        self._source = source
        self._target = target
        self._marks = marks
        #: Whether the source cannot be listed, so that signatures could not be looked for.
        self.unlisted = False

    def copy(self, plan: Plan) -> tuple[dict[str, str], int, str | None]:
        """Copy the signatures of the content that is copied.

        Return the keys of those that are there now, here and there, how many were copied, and what was in the way.
        Raises `Damaged` where one is gone since it was listed, `StorageError`.
        """
        source, target = self._source, self._target
        try:
            listed = source.list(f"recordings/{plan.name}/{plan.content_digest}.")
            found = [info for info in listed if signature_parts(plan.name, info.key) is not None]
        except (StorageUnsupportedError, AccessDeniedError):
            self.unlisted = True
            return {}, 0, None
        keys = sorted(info.key for info in found if info.size <= MAX_ENVELOPE)
        there: dict[str, str] = {}
        copied, note = 0, None
        if len(keys) < len(found):
            note = f"signatures of more than {MAX_ENVELOPE} bytes were left out: no reader takes them"
        if len(keys) > MAX_OBJECTS:
            keys, note = keys[:MAX_OBJECTS], f"more than {MAX_OBJECTS} signatures: the others were left out"
        for key in keys:
            to = f"recordings/{plan.to}/{key.rpartition('/')[2]}"
            with reading():
                data = source.get(key)
            if self._has(to, data):
                if self._marks.has(to):
                    target.put(to, data)  # written anew it is not marked any more
            else:
                try:
                    target.put_new(to, data)
                    copied += 1
                except ObjectExistsError:
                    note = f"the destination has another signature {to}: it was left alone"
                    continue
            there[key] = to
        return there, copied, note

    def _has(self, to: str, data: bytes) -> bool:
        try:
            return self._target.get_suffix(to, MAX_ENVELOPE + 1) == data
        except ObjectMissingError:
            return False

    def ensure(self, there: dict[str, str]) -> None:
        """Look for those that `copy` told of again: until the revision was there a collector might take them away."""
        for key, to in there.items():
            try:
                self._target.get(to)
            except ObjectMissingError:
                self._target.put_new(to, self._source.get(key))
