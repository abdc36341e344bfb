"""``replaypack migrate``."""

from __future__ import annotations

from pathlib import Path

from replaypack import Archive

from .conftest import run


def test_migrate(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive")
    for name in ("a", "b"):
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", identity=1, response=1)
    result = run("migrate", archive.url)
    assert (result.code, result.out, result.err) == (0, "format 1, 2 recordings: nothing to migrate\n", "")
    for path in (tmp_path / "archive" / "recordings" / "b").iterdir():
        path.write_bytes(path.read_bytes().replace(b'"version":1}', b'"version":2}'))
    result = run("migrate", archive.url, "--json")
    assert result.code == 1
    assert (result.json["version"], result.json["migrated"]) == (1, [])
    assert result.json["failed"]["b"]["code"] == "format.future_version"
    assert "version 2 is newer than 1" in run("migrate", archive.url).out
    assert run("migrate", str(tmp_path / "none")).code == 1
