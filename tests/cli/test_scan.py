"""``replaypack scan``."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaypack import Archive
from tests.cli.conftest import run


@pytest.fixture
def url(tmp_path: Path) -> str:
    archive = Archive(tmp_path / "a")
    for name, response in (
        ("clean", {"max_tokens": 5}),
        ("dirty", {"api_key": "tell-nobody-1234", "note": "zxcvbn-99"}),
    ):
        with archive.recorder(name, redact=None) as recorder:
            recorder.append(kind="tool", identity=1, response=response)
    return str(tmp_path / "a")


def test_exit_codes_and_output(url: str) -> None:
    result = run("scan", f"{url}#clean")
    assert (result.code, result.out) == (0, "no secrets found: 1 recording\n")
    result = run("scan", url)
    assert result.code == 1
    assert result.out.splitlines()[0] == "dirty\t0\tresponse\t/api_key\tname\ttel… (16 characters)"
    assert "nobody" not in result.out + result.err


def test_values_of_the_environment_are_searched_for(url: str) -> None:
    result = run("scan", f"{url}#dirty@2", "--secret-env", "MINE", "--json", env={"MINE": "zxcvbn-99"})
    assert result.code == 1
    assert [finding["rule"] for finding in result.json["findings"]] == ["name", "known"]
    assert "zxcvbn-99" not in result.out


@pytest.mark.parametrize("target", ["nowhere", "{url}#missing"])
def test_what_cannot_be_scanned(url: str, target: str, tmp_path: Path) -> None:
    result = run("scan", target.format(url=url))
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert run("scan", url, "--secret-env", "NOT_SET_ANYWHERE").code == 2


def test_a_damaged_archive_cannot_be_scanned(url: str) -> None:
    for pack in Path(url).rglob("*.rpk"):
        pack.write_bytes(b"\0" * pack.stat().st_size)
    result = run("scan", f"{url}#dirty", "--json")
    assert result.code == 2
    assert result.json["error"]["code"] == "format.corrupted"
