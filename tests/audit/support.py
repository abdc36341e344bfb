"""Looking for faults in an archive, and putting some there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

import replaypack
from replaypack.audit import FAULTS, Fault
from replaypack.format.manifest import Manifest, encode_manifest, parse_manifest
from replaypack.format.manifest_members import Content, Storage

NAME = "runs/sealed"


def faults(path: Path, level: str = "full", **options: Any) -> list[Fault]:
    found = list(replaypack.Archive(path).verify(level=level, **options))  # type: ignore[arg-type]
    for fault in found:
        assert fault.code in FAULTS
        assert fault.remedy
        assert fault.message
        assert fault.recording.partition("@")[0] == NAME
    return found


def codes(path: Path, level: str = "full") -> set[str]:
    return {fault.code for fault in faults(path, level)}


def packs(path: Path) -> list[Path]:
    """The packs that the sealed revision uses, largest first."""
    used = {ref.digest for ref in replaypack.Archive(path).open(NAME).manifest.storage.packs}
    found = [pack for pack in path.glob("packs/*/*.rpk") if pack.stem in used]
    return sorted(found, key=lambda pack: -pack.stat().st_size)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x40
    file.write_bytes(data)


def revise(path: Path, storage: dict[str, Any] | None = None, content: dict[str, Any] | None = None) -> Manifest:
    """Rewrite the sealed manifest with some members replaced, its digests made anew."""
    key = path / "recordings" / NAME / "00000002.json"
    old = parse_manifest(key.read_bytes())
    new_content: Content = msgspec.structs.replace(old.content, **(content or {}))
    new_storage: Storage = msgspec.structs.replace(old.storage, **(storage or {}))
    manifest = encode_manifest(new_content, new_storage)
    key.write_bytes(manifest.raw)
    key.with_name("latest.json").write_bytes(manifest.raw)
    return manifest
