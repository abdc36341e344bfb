"""Which contents the manifests of one name are of, and which of them continue others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from replaypack.format.manifest import Manifest
from replaypack.format.manifest_members import Content

__all__ = ["Group", "groups_of"]


class Group(NamedTuple):
    """One content of a name, with the manifests that have it, newest first, and older ones that it continues."""

    manifests: list[Manifest]
    older: list[Manifest]

    @property
    def content(self) -> Content:
        return self.manifests[0].content


def groups_of(manifests: Sequence[Manifest]) -> list[Group]:
    """The contents of one name, oldest first; those that a later one continues are with that."""
    by_content: dict[str, list[Manifest]] = {}
    order = sorted(manifests, key=lambda m: (m.storage.revision, m.storage.checkpoint))
    for manifest in reversed(order):
        by_content.setdefault(manifest.content_digest, []).append(manifest)
    groups: list[Group] = []
    for same in by_content.values():  # newest first
        content = same[0].content
        for group in groups:
            newer = group.content
            if newer.id == content.id and newer.match == content.match and content.records <= newer.records:
                group.older.extend(same)
                break
        else:
            if content.records or not groups or content.state != "open":
                groups.append(Group(same, []))
    return groups[::-1]
