"""Migration, and the archives of earlier releases, which are readable for ever."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import replaypack
from replaypack import Archive
from replaypack.audit import migrate
from replaypack.errors import FormatError, ObjectMissingError, PurgedError, WithheldError
from replaypack.recording import Record
from replaypack.values import ABSENT

from .support import NAME

HISTORICAL = Path(__file__).parents[2] / "spec" / "vectors" / "historical"


def test_nothing_to_migrate(archive_path: Path) -> None:
    before = {path: path.read_bytes() for path in archive_path.rglob("*") if path.is_file()}
    assert migrate(Archive(archive_path)) == (1, 1, [], {})
    assert {path: path.read_bytes() for path in archive_path.rglob("*") if path.is_file()} == before


def test_a_newer_version(archive_path: Path, tmp_path: Path) -> None:
    archive = Archive(archive_path)
    with archive.recorder("old") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
    for path in (archive_path / "recordings" / NAME).glob("*.json"):
        path.write_bytes(path.read_bytes().replace(b'"version":1}', b'"version":2}'))
    done = migrate(archive)
    assert (done.version, done.recordings, done.migrated, list(done.failed)) == (1, 2, [], [NAME])
    error = done.failed[NAME]
    assert isinstance(error, FormatError)
    assert error.reason == "future_version"
    marker = archive_path / "replaypack.json"
    marker.write_bytes(marker.read_bytes().replace(b"1", b"7"))
    with pytest.raises(FormatError, match="7"):
        migrate(archive)
    with pytest.raises(ObjectMissingError):
        migrate(Archive(tmp_path / "none"))


def plain(value: Any) -> Any:
    """A payload as JSON: bytes, what is absent, and the beginnings of long texts in forms of their own."""
    if value is ABSENT:
        return {"absent": True}
    if isinstance(value, bytes):
        return {"bytes": len(value), "base64": base64.b64encode(value[:48]).decode()}
    if isinstance(value, str) and len(value) > 60:
        return {"characters": len(value), "text": value[:40]}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def payload(record: Record, role: str) -> Any:
    try:
        return plain(getattr(record, role))
    except WithheldError:
        return {"withheld": True}


def described(recording: replaypack.Recording) -> dict[str, Any]:
    """All that a recording says."""
    records: list[Any] = []
    for seq in range(len(recording)):
        try:
            record = recording.record(seq)
        except PurgedError as error:
            records.append({"purged": error.reason})
            continue
        records.append(
            {
                "kind": record.kind,
                "name": record.name,
                "key": record.key.hex(),
                "scheme": record.key_scheme,
                "scope": record.scope,
                "start": record.start,
                "duration": record.row.duration,
                "status": record.status,
                "flags": sorted(record.flags),
                "attributes": record.attributes,
                "digests": [ref.digest.hex() for ref in (record.row.request, record.row.identity) if ref is not None]
                + [record.row.response_digest.hex()],
                "request": payload(record, "request"),
                "identity": "the request"
                if record.row.identity is None and record.key_scheme != "opaque"
                else payload(record, "identity"),
                "response": payload(record, "response"),
                "nth": [
                    item.seq for item in recording.records() if (item.key, item.scope) == (record.key, record.scope)
                ],
            }
        )
    content = recording.manifest.content
    return {
        "content_digest": recording.content_digest,
        "state": content.state,
        "metadata": content.metadata,
        "match": str(recording.match),
        "redaction": content.redaction.name,
        "segments": len(recording.manifest.storage.segments),
        "cause": recording.manifest.storage.cause,
        "records": records,
    }


def observed(archive: Archive) -> dict[str, Any]:
    """What all revisions say that were committed, and the newest of each recording."""
    found = {}
    for name in archive.recordings():
        found[name] = described(archive.open(name))
        for manifest in archive.revisions(name):
            if manifest.storage.cause != "claim":
                revision = manifest.storage.revision
                found[f"{name}@{revision}"] = described(archive.open(name, revision))
    return found


@pytest.mark.parametrize("path", sorted(path for path in HISTORICAL.iterdir() if path.is_dir()), ids=lambda p: p.name)
def test_an_archive_of_an_earlier_release(path: Path, tmp_path: Path) -> None:
    """Every record of every recording and revision, by number and by call."""
    archive = Archive(shutil.copytree(path / "archive", tmp_path / "archive"))
    expected = json.loads((path / "expected.json").read_text("utf-8"))
    assert list(archive.verify(level="full")) == []
    assert json.loads(json.dumps(observed(archive))) == expected
    for locator in expected:
        name, _, revision = locator.partition("@")
        with archive.open(name, int(revision) if revision else None) as recording:
            for seq, item in enumerate(expected[locator]["records"]):
                if "purged" not in item:
                    nth = item["nth"].index(seq)
                    hit = recording.lookup_digest(bytes.fromhex(item["key"]), scope=item["scope"], nth=nth)
                    assert hit is not None
                    assert hit.seq == seq
    assert migrate(archive).failed == {}
