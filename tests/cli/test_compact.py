"""``replaypack compact``."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaypack import Archive

from .conftest import run


@pytest.fixture
def url(tmp_path: Path) -> str:
    archive = Archive(tmp_path / "archive")
    for name in ("a", "b"):
        with archive.recorder(name) as recorder:
            for number in range(30):
                recorder.append(kind="tool", identity={"text": "long words " * 500, "n": number}, response=number)
    return archive.url


def test_compact(url: str) -> None:
    before = Archive(url).open("a").content_digest
    dry = run("compact", url, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert [line.rpartition(", ")[2] for line in dry.out.splitlines()] == ["would be compacted"] * 2
    assert Archive(url).open("a").manifest.revision == 2
    result = run("compact", url, "a", "--level", "12")
    assert (result.code, result.err) == (0, "")
    first, total, last = result.out.splitlines()
    assert total.startswith("packs of these recordings, each counted once: ")
    assert first.startswith("a: 30 records, ")
    assert first.endswith(", revision 3")
    assert last.endswith(f"to be freed by: replaypack gc {url} --keep-last 1 --apply")
    assert Archive(url).open("a").content_digest == before
    again = run("compact", url, "a", "--level", "12")
    assert (again.code, again.out.splitlines()[0]) == (0, "1 recording compact already at level 12")
    everything = run("compact", url, "--json").json
    assert [(item["name"], item["outcome"]) for item in everything["recordings"]] == [
        ("a", "compacted"),
        ("b", "compacted"),
    ]
    assert run("compact", url, "--again", "--json").json["recordings"][1]["revision"] == 4
    assert run("verify", url).code == 0


def test_what_cannot_be_compacted(url: str, tmp_path: Path) -> None:
    with Archive(url).recorder("c") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
        recorder.flush()
        result = run("compact", url)
        assert result.code == 0
        assert "c: skipped: " in result.out
        assert run("compact", url, "c").code == 1
    assert run("compact", url, "nowhere").code == 1
    assert run("compact", f"{url}#a").code == 2
    assert run("compact", str(tmp_path / "no")).code != 0
    for pack in (tmp_path / "archive").glob("packs/*/*"):
        pack.write_bytes(pack.read_bytes()[:40])
    result = run("compact", url, "c", "--json")
    assert result.code == 1
    assert result.json["recordings"][0]["error"]["code"].startswith(("format.", "storage."))
