"""``replaypack rekey``, and ``--match``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.policies.matching import MatchPolicy, ignore

from .conftest import run

UUID = "123e4567-e89b-12d3-a456-42661417400"


@pytest.fixture
def url(tmp_path: Path) -> str:
    archive = Archive(tmp_path / "archive")
    with archive.recorder("r") as recorder:
        for number in range(4):
            recorder.append(kind="tool", name="f", identity={"id": f"{UUID}{number}"}, response=number)
        recorder.append(kind="tool", name="f", key="host", response=1)
    return archive.url


def test_rekey(url: str) -> None:
    before = Archive(url).open("r").content_digest
    result = run("rekey", f"{url}#r", "--match", "uuids,timestamps")
    digest = Archive(url).open("r").content_digest
    assert (result.code, result.err) == (
        0,
        f"note: the content digest changed, {before} → {digest}: "
        "signatures and cited digests hold for r@2, the revision before\n",
    )
    assert run("verify", f"{url}#r@2", "--expect-digest", before).code == 0
    first, second, third = result.out.splitlines()
    assert first == f"r@3: match policy uuids+timestamps 1, content digest {digest}"
    assert second == "5 records, 4 keys changed (1 are not computed of what is recorded, and stay)"
    assert third == "different keys: 5 before, 2 now"
    assert run("verify", f"{url}#r").code == 0
    shown = run("show", f"{url}#r").out
    assert "match policy\tuuids+timestamps 1\n" in shown
    assert "derived from\t" in shown
    again = run("rekey", f"{url}#r", "--match", "uuids", "--match", "timestamps")
    assert (again.code, "already" in again.err) == (2, True)


def test_rekey_to_another_with_a_policy_of_ones_own(url: str, tmp_path: Path) -> None:
    policy = MatchPolicy("mine", 2, rules=[ignore("/id")])
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(policy.to_data()))
    result = run("rekey", f"{url}#r@2", "--match", f"@{file}", "--to", "other", "--json")
    assert result.err == ""  # what was signed stays as it is
    assert result.json["name"] == "other"
    assert result.json["derived_from"] == Archive(url).open("r").content_digest
    assert result.json["match"] == policy.to_data()
    assert (result.json["keys_before"], result.json["keys_after"]) == (5, 2)
    assert Archive(url).open("other").match == policy
    assert Archive(url).open("r").match == MatchPolicy.of("none")


def test_show_says_that_a_policy_is_overridden(url: str) -> None:
    shown = run("show", f"{url}#r", "--match", "uuids").out
    assert "match policy\tuuids 1 (overridden here; recorded with none 1)\n" in shown
    result = run("show", f"{url}#r", "--match", "uuids", "--json").json
    assert result["match_overridden"] is True
    keys = [line.split("\t")[9] for line in run("show", f"{url}#r", "-r", "--match", "uuids").out.splitlines()]
    assert keys == [MatchPolicy.of("uuids").key("tool", {"id": UUID + "0"}).hex()] * 4 + keys[4:]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "--match uuids"),
        (["--match", "uuid"], 2, "did you mean 'uuids'?"),
        (["--match", "@missing.json"], 2, "missing.json"),
        (["--match", "uuids", "--to", "r"], 1, "exists already"),
        (["--match", "uuids", "--to", "../r"], 2, "'../r'"),
    ],
)
def test_refusals(url: str, options: list[str], code: int, said: str) -> None:
    result = run("rekey", f"{url}#r", *options)
    assert result.code == code
    assert said in result.err


def test_a_file_that_holds_no_policy(url: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    for text in ("[1]", "{", '{"name": "x"}', '{"name": "x", "version": 1, "rules": [{"rule": "later"}]}'):
        file.write_text(text)
        result = run("rekey", f"{url}#r", "--match", f"@{file}")
        assert result.code == 2, text
        assert result.err.startswith("error: "), result.err
