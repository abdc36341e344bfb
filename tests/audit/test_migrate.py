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
from replaypack.errors import FormatError, ObjectMissingError, PurgedError
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
    """A payload as JSON: bytes and what is absent in a form of their own."""
    if value is ABSENT:
        return {"absent": True}
    if isinstance(value, bytes):
        return {"bytes": len(value), "base64": base64.b64encode(value[:48]).decode()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


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
                "request": plain(record.request),
                "identity": plain(record.identity),
                "response": plain(record.response),
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


@pytest.mark.parametrize("path", sorted(path for path in HISTORICAL.iterdir() if path.is_dir()), ids=lambda p: p.name)
def test_an_archive_of_an_earlier_release(path: Path, tmp_path: Path) -> None:
    """Every record of every recording and revision, by number and by call."""
    archive = Archive(shutil.copytree(path / "archive", tmp_path / "archive"))
    expected = json.loads((path / "expected.json").read_text("utf-8"))
    assert list(archive.verify(level="full")) == []
    found = {
        f"{name}@{manifest.storage.revision}": described(archive.open(name, manifest.storage.revision))
        for name in archive.recordings()
        for manifest in archive.revisions(name)
        if manifest.storage.cause != "claim"
    }
    assert json.loads(json.dumps(found)) == expected
    for locator in expected:
        name, _, revision = locator.partition("@")
        with archive.open(name, int(revision)) as recording:
            for seq, item in enumerate(expected[locator]["records"]):
                if "purged" not in item:
                    nth = item["nth"].index(seq)
                    hit = recording.lookup_digest(bytes.fromhex(item["key"]), scope=item["scope"], nth=nth)
                    assert hit is not None
                    assert hit.seq == seq
    assert migrate(archive).failed == {}
