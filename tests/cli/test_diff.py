"""``replaypack diff`` and ``replaypack stats``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replaypack import Archive

from .conftest import CANARY, is_safe, run, run_on_terminal, without_pack


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("diff") / "runs"
    archive = Archive(path)
    for name, answer in (("a", "first"), ("b", "second"), ("c", "first")):
        with archive.recorder(name) as recorder:
            for number in range(3):
                recorder.append(
                    kind="tool",
                    name="search",
                    identity={"q": number},
                    response={"text": f"the {answer if number == 1 else 'same'} answer", "id": name},
                    duration=1_000_000,
                )
            if name == "b":
                usage = {"prompt_tokens": 3, "completion_tokens": 4}
                recorder.append(kind="model", name=CANARY, identity=CANARY, response={"t": CANARY, "usage": usage})
    return archive.url


def test_diff(url: str) -> None:
    result = run("diff", f"{url}#a", f"{url}#b", "--ignore", "/response/id")
    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[:4] == [
        f"--- {url}#a@2",
        f"+++ {url}#b@2",
        "~ changed 1 → 1: tool search",
        '    `/response/text` differs at character 4: "first" → "second"',
    ]
    assert lines[4].startswith("+ added 3: model ")
    assert is_safe(result.out)
    assert lines[-2] == "1 changed, 1 added, 2 the same"
    assert lines[-1].startswith("records 3 → 4 (model 0 → 1, tool 3); failed 0; time in calls 0.003 s → ")


def test_the_exit_code_is_that_of_diff(url: str) -> None:
    assert run("diff", f"{url}#a", f"{url}#a").code == 0
    same = run("diff", f"{url}#a", f"{url}#c", "--ignore", "/response/id")
    assert (same.code, same.out.splitlines()[-2]) == (0, "no differences in 3 records")
    assert run("diff", f"{url}#a", f"{url}#c").code == 1
    missing = run("diff", f"{url}#a", f"{url}#missing", "--json")
    assert (missing.code, missing.json["error"]["code"]) == (2, "archive.recording_not_found")
    assert run("diff", f"{url}#a", f"{url}-nowhere#a").code == 2
    wrong = run("diff", f"{url}#a", f"{url}#b", "--ignore", "nonsense")
    assert (wrong.code, "is no rule" in wrong.err) == (2, True)


def test_json_kinds_and_counts_only(url: str) -> None:
    found = run("diff", f"{url}#a", f"{url}#b", "--json").json
    assert found["counts"] == {"same": 0, "changed": 3, "added": 1, "removed": 0, "moved": 0}
    assert found["entries"][0]["differences"][0] == {
        "pointer": "/response/id",
        "what": "changed",
        "old": "a",
        "new": "b",
        "at": 0,
        "texts": [{"old_at": 0, "new_at": 0, "old": "a", "new": "b"}],
        "later": 2,
        "later_in": [1, 2],
    }
    assert run("diff", f"{url}#a", f"{url}#b", "--kind", "model", "--json").json["counts"]["added"] == 1
    counts = run("diff", f"{url}#a", f"{url}#b", "--stat")
    assert (counts.code, len(counts.out.splitlines())) == (1, 2)
    few = run("diff", f"{url}#a", f"{url}#b", "--limit", "1")
    assert "(1 record looked into; there are more that differ)" in few.out


def test_counts_alone_say_what_was_purged(url: str, tmp_path: Path) -> None:
    copy = shutil.copytree(url, tmp_path / "copy")
    assert run("purge", f"{copy}#b", "--records", "0", "--reason", "test", "--yes", "--keep-shared").code == 0
    counts = run("diff", f"{copy}#a", f"{copy}#b", "--stat")
    assert counts.out.splitlines()[1] == "records that were purged, and are not compared: 0 → 1"


def test_stats_of_a_recording(url: str) -> None:
    model, tool = [line.split("\t") for line in run("stats", f"{url}#b").out.splitlines()]
    assert model[2:4] == ["1", "0"]
    assert model[-3:] == ["3", "4", "0"]
    assert tool[:4] == ["tool", "search", "3", "0"]
    assert tool[6:10] == ["0.001000"] * 4
    assert tool[-3:] == ["", "", ""]
    assert run("stats", f"{url}#b", "--no-tokens").out.splitlines()[0].split("\t")[-3:] == ["", "", ""]
    found = run("stats", f"{url}#b", "--json").json
    assert found["tokens"] == {"input": 3, "output": 4, "cached": 0}
    assert found["groups"][1]["percentiles"]["max"] == 0.001
    assert set(found["ratios"]) == {"dedup", "compression", "total"}


def test_stats_of_an_archive(url: str) -> None:
    lines = [line.split("\t") for line in run("stats", url).out.splitlines()]
    assert [(line[0], line[1]) for line in lines] == [("a@2", "3"), ("b@2", "4"), ("c@2", "3")]
    assert run("stats", url, "--json").json["records"] == 10
    assert run("stats", f"{url}-nowhere").code == 1


def test_stats_name_what_is_damaged_and_sum_up_the_others(url: str, tmp_path: Path) -> None:
    path = str(tmp_path / "runs")
    shutil.copytree(url, path)
    without_pack(Archive(path), "b")
    hint = f"see what `verify` says of {path}#b, or `recover` it into another place"
    result = run("stats", path)
    assert result.code == 1
    assert [line.split("\t")[0] for line in result.out.splitlines()] == ["a@2", "c@2"]
    assert result.err.startswith("error: b: reading ")
    assert result.err.endswith(f"({hint})\n")
    result = run("stats", path, "--json")
    assert (result.code, result.err, result.json["records"]) == (1, "", 6)
    [failed] = result.json["failed"]
    assert (failed["name"], failed["error"]["code"], failed["error"]["hint"]) == ("b", "storage.missing", hint)
    assert set(failed["error"]) == {"code", "message", "hint", "url", "operation"}
    assert run("stats", url, "--json").json["failed"] == []
    for name in "ac":
        without_pack(Archive(path), name)
    shown = run_on_terminal("stats", path, columns=1000)
    assert shown.code == 1
    assert "no recordings" not in shown.out


@pytest.mark.parametrize("command", ["stats #", "show # -r", "show # -r --json", "cat # 1", "prove # 1", "export # -"])
def test_an_error_of_reading_names_the_recording(url: str, tmp_path: Path, command: str) -> None:
    path = str(tmp_path / "runs")
    shutil.copytree(url, path)
    gone = without_pack(Archive(path), "b")
    result = run(*(f"{path}#b" if word == "#" else word for word in command.split()))
    assert result.code == 1
    assert result.err.startswith("error: b: reading ")
    assert result.err.count("b: reading") == 1
    assert gone.name in result.err
    hint = f"see what `verify` says of {path}#b, or `recover` it into another place"
    assert result.err.endswith(f"({hint})\n")
    if "--json" in command:
        assert result.json[-1]["error"]["hint"] == hint


def test_on_a_terminal(url: str) -> None:
    shown = run_on_terminal("stats", f"{url}#b")
    assert "\u202e" not in shown.out
    assert "4 records, 0 errors, tokens 3 in (0 cached), 4 out" in shown.out
    assert "of payloads" in shown.out
    assert "3 recordings, 10 records" in run_on_terminal("stats", url).out
    assert "~ changed 1 → 1" in run_on_terminal("diff", f"{url}#a", f"{url}#b").out
