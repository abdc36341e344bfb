"""``replaypack catalog``, and ``ls`` over http."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.servers import Server

from .conftest import run


def test_ls_over_http_shows_what_the_catalog_says(archive: str, static_server: Server) -> None:
    pytest.importorskip("aiohttp")
    assert static_server.root is not None
    url = f"{static_server.url}/listed"
    shutil.copytree(archive, static_server.root / "listed")
    before = run("ls", url)
    assert before.code == 2
    assert "catalog" in before.err
    local = {row["name"]: row for row in run("ls", archive, "--json").json}
    done = run("catalog", str(static_server.root / "listed"), "--json").json
    assert done["recordings"] == len(local)
    table = run("ls", url, "--long")
    assert table.code == 0
    assert table.out == run("ls", archive, "--long").out
    listed = run("ls", url, "--json")
    assert "as of 20" in listed.err
    assert {*listed.json[0], "metadata"} == set(next(iter(local.values())))
    for row in listed.json:
        same = {key: value for key, value in local[row["name"]].items() if key in row}
        assert same == {key: value for key, value in row.items() if key in same}
    assert {row["name"] for row in listed.json} == set(local)


def test_it_says_what_it_wrote(archive: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "runs")
    shutil.copytree(archive, copy)
    assert "in catalog.json.zst" in run("catalog", copy).out
    missing = run("catalog", f"{copy}-none")
    assert missing.code == 1
    assert "there is no archive" in missing.err
