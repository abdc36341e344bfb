"""What each command shows: on a terminal, in a pipe, and as JSON."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import replaypack

from .conftest import CANARY, environment, is_safe, run, run_on_terminal, run_process

# ls


def test_ls_in_a_pipe_is_tab_separated(archive: str) -> None:
    result = run_process("ls", archive)
    assert (result.code, result.err) == (0, "")
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert [row[:3] for row in rows] == [
        ["incomplete", "incomplete", "1"],
        ["team/appended", "sealed", "5"],
        ["team/mixed", "sealed", "7"],
    ]
    assert all(row[3].isdigit() and row[4].endswith("Z") for row in rows)
    assert [row[5] for row in rows] == ["2", "4", "2"]


def test_ls_on_a_terminal_is_a_table_with_headings_and_human_sizes(archive: str) -> None:
    result = run_on_terminal("ls", archive)
    assert result.code == 0
    assert "NAME" in result.out
    assert "KiB" in result.out or " B" in result.out
    assert "\t" not in result.out


def test_ls_json_prefix_and_long(archive: str) -> None:
    rows = run("ls", archive, "--json", "--prefix", "team/").json
    assert [row["name"] for row in rows] == ["team/appended", "team/mixed"]
    assert rows[1]["metadata"]["note"] == CANARY
    assert rows[1]["counts"] == {"http": 1, "model": 2, "tool": 4}
    assert isinstance(rows[1]["bytes"], int)
    assert rows[0]["content_digest"] in run("ls", archive, "-l").out


def test_ls_lists_a_broken_recording_with_its_fault(archive: str, tmp_path: Path) -> None:
    shutil.copytree(archive, tmp_path / "a")
    for path in (tmp_path / "a/recordings/team/mixed").iterdir():
        path.write_bytes(b"{}")
    result = run("ls", str(tmp_path / "a"))
    assert result.code == 1
    assert len(result.out.splitlines()) == 3
    assert "team/mixed\tbroken" in result.out
    rows = run("ls", str(tmp_path / "a"), "--json").json
    assert rows[2]["fault"]["code"] == "format.corrupted"


# show


def test_show_summary(archive: str) -> None:
    result = run("show", f"{archive}#team/mixed")
    pairs = dict(line.split("\t", 1) for line in result.out.splitlines())
    assert result.code == 0
    assert pairs["state"] == "sealed"
    assert pairs["records"] == "7 (http 1, model 2, tool 4)"
    recording = replaypack.open(f"{archive}#team/mixed")
    assert pairs["redaction"] == "default 1"
    assert pairs["content digest"] == recording.content_digest
    document = run("show", f"{archive}#team/mixed", "--json").json
    assert document["content_digest"] == recording.content_digest
    assert document["redaction"] == {"name": "default", "version": 1}


def test_show_says_why_a_recording_is_incomplete(archive: str) -> None:
    assert "error\tZeroDivisionError: division by zero" in run("show", f"{archive}#incomplete").out
    assert run("show", f"{archive}#incomplete", "--json").json["error"]["type"] == "ZeroDivisionError"


def test_show_records(archive: str) -> None:
    rows = [line.split("\t") for line in run("show", f"{archive}#team/mixed", "--records").out.splitlines()]
    assert [row[0] for row in rows] == [str(number) for number in range(7)]
    assert rows[0][1:7] == ["2023-11-14T22:13:20Z", "tool", "search", "", "ok", "1.500"]
    assert rows[5][5] == "error"
    assert len(rows[0][9]) == 64


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["--kind", "model"], [2, 3]),
        (["--kind", "model", "--kind", "http"], [2, 3, 4]),
        (["--name", "search"], [0, 5]),
        (["--status", "error"], [5]),
        (["--scope", CANARY], [1]),
        (["--until", "2023-11-14T22:13:21"], [0]),
        (["--since", "2023-11-14T22:13:21Z", "--kind", "http"], [4]),
        (["--since", "2023-11-14T23:13:21+01:00", "--limit", "2"], [1, 2]),
        (["--first", "2", "--last", "4"], [2, 3, 4]),
        (["--limit", "0"], []),
        (["--first", "5", "--follow"], [5, 6]),
    ],
)
def test_show_filters(archive: str, filters: list[str], wanted: list[int]) -> None:
    result = run("show", f"{archive}#team/mixed", *filters)
    assert [int(line.split("\t")[0]) for line in result.out.splitlines()] == wanted
    text = run("show", f"{archive}#team/mixed", "--json", *filters).out
    rows = [json.loads(line) for line in text.splitlines()] if "--follow" in filters else json.loads(text)
    assert [row["seq"] for row in rows] == wanted


def test_show_follows_a_recording_until_it_is_sealed(tmp_path: Path) -> None:
    recorder = replaypack.Archive(tmp_path).recorder("live", flush_interval=None)
    recorder.append(kind="tool", identity=0, response=0)
    recorder.flush()
    process = subprocess.Popen(
        [sys.executable, "-m", "replaypack", "show", f"{tmp_path}#live", "--follow", "--json"],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["seq"] == 0
    recorder.append(kind="tool", identity=1, response=1)
    recorder.flush()
    assert json.loads(process.stdout.readline())["seq"] == 1
    recorder.seal()
    assert process.wait(60) == 0
    process.stdout.close()


def test_records_that_answer_nothing_outside_are_marked(tmp_path: Path) -> None:
    with replaypack.Archive(tmp_path).session("r", "record") as session:
        session.tool("outer", 1, lambda: session.tool("inner", 1, lambda: 2))
        stream = session.stream("tool", {"name": "stream"}, lambda: iter([1, 2]))
        next(stream)
        stream.close()
    lines = run("show", f"{tmp_path}#r", "--records").out.splitlines()
    assert [line.split("\t")[-1] for line in lines] == ["inside", "", "truncated"]
    shown = run_on_terminal("show", f"{tmp_path}#r", "--records", columns=200).out
    assert "ok inside" in shown
    assert "ok truncated" in shown


def test_a_narrow_terminal_loses_no_column_silently(archive: str) -> None:
    at = f"{archive}#team/appended"
    for arguments in (["show", at, "--records"], ["show", at, "--follow"]):
        result = run_on_terminal(*arguments, columns=80)
        lines = result.out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
        note = "(too narrow for SCOPE, REQUEST; a pipe or --json has all columns)"
        assert lines.pop(0 if "--follow" in arguments else -1) == note
        assert lines[0].split() == ["SEQ", "TIME", "KIND", "NAME", "STATUS", "SECONDS", "RESPONSE", "KEY"]
        key = replaypack.open(at).record(0).key.hex()
        assert lines[1].rstrip().endswith(f"  {key[:12]}…")
        assert all(len(line) <= 80 for line in lines)
        wide = run_on_terminal(*arguments, columns=200).out
        assert "too narrow" not in wide
        assert "RESPONSE" in wide
    tiny = run_on_terminal("show", at, "--records", columns=30).out
    assert "too narrow for TIME, SCOPE, SECONDS" in " ".join(tiny.split())
    assert "too narrow" not in run_on_terminal("ls", archive, columns=80).out
    assert "too narrow for" in run_on_terminal("ls", archive, "--long", columns=80).out
    assert "too narrow for WRITER" in run_on_terminal("log", at, columns=80).out


@pytest.mark.parametrize(
    ("filters", "note"),
    [
        (["--kind", "tol"], "no records of kind 'tol'; there are http, model, tool"),
        (["--kind", "tol", "--kind", "x", "-r"], "no records of kind 'tol' or 'x'; there are http, model, tool"),
        (["--kind", "tool", "--status", "interrupted"], "no records match"),
        (["--name", "serch"], "no records match"),
        (["--scope", "nowhere"], "no records match"),
        (["--first", "100", "--follow"], "no records match"),
    ],
)
def test_a_filter_that_leaves_nothing_is_noted(archive: str, filters: list[str], note: str) -> None:
    result = run("show", f"{archive}#team/mixed", *filters)
    assert result == (0, "", f"note: {note}\n")
    result = run("show", f"{archive}#team/mixed", *filters, "--json")
    assert (result.code, result.err) == (0, f"note: {note}\n")
    assert result.out.split() == ([] if "--follow" in filters else ["[", "]"])
    assert run_on_terminal("show", f"{archive}#team/mixed", *filters).out == f"note: {note}\r\n"


def test_nothing_that_was_asked_for_is_not_noted(archive: str) -> None:
    assert run("show", f"{archive}#team/mixed", "--limit", "0") == (0, "", "")
    assert run("show", f"{archive}#team/mixed", "--kind", "tol", "--kind", "http").err == ""


def test_nothing_found_is_said_on_a_terminal_alone(archive: str, tmp_path: Path) -> None:
    replaypack.Archive(tmp_path / "runs").recorder("empty").seal()
    arguments = ["show", f"{tmp_path}/runs#empty", "--records"]
    assert run_on_terminal(*arguments).out == "no records\r\n"
    assert run(*arguments) == (0, "", "")
    assert run_on_terminal("ls", archive, "--prefix", "none").out == "no recordings\r\n"


def test_the_columns_of_a_pipe_are_documented() -> None:
    for command in ("ls", "show", "log"):
        assert "In a pipe" in run(command, "--help").out
    for marker in ("$bytes", "$float", "$map", "$surrogates", "$int"):
        assert f'{{"{marker}":' in run("cat", "--help").out


# cat


def test_cat_shows_request_and_response(archive: str) -> None:
    result = run("cat", f"{archive}#team/mixed", "0")
    assert result.code == 0
    assert "# record 0: tool search, ok" in result.out
    assert '"q": "weather"' in result.out
    assert "漢字" in result.out
    assert is_safe(result.out)


def test_cat_one_payload(archive: str) -> None:
    at = f"{archive}#team/mixed"
    assert json.loads(run("cat", at, "0", "--request").out) == {"q": "weather"}
    assert json.loads(run("cat", at, "0", "--response").out) == {"answer": CANARY, "list": [1, 1.0, True, None]}
    assert json.loads(run("cat", at, "3", "--identity", "--json").out) == {"n": 3}
    assert run("cat", at, "4", "--identity").code == 2
    assert run("cat", at, "6", "--response").code == 2


def test_cat_json_says_what_json_cannot(archive: str) -> None:
    at = f"{archive}#team/mixed"
    document = run("cat", at, "3", "--json").json
    assert document["response"] == {
        "$map": [
            [1, {"$float": "nan"}],
            ["inf", {"$float": "-inf"}],
            ["b", {"$bytes": "/w=="}],
            ["big", 2**70],
        ]
    }
    assert document["key_scheme"] == "identity"
    own = run("cat", at, "4", "--json").json
    assert own["request"] == {"$$bytes": "x"}
    assert int(own["response"]["$int"], 16) == 10**6000
    assert base64.b64decode(run("cat", at, "2", "--json").json["response"]["$bytes"]) == b"\x00\x01\xff" * 2000


def test_cat_json_of_lone_surrogates_is_json_for_every_parser(tmp_path: Path) -> None:
    with replaypack.Archive(tmp_path).recorder("a") as recorder:
        recorder.append(kind="tool", identity="a\ud800\\", response={"\udfff": 1, "big": 2**100})
    document = run("cat", f"{tmp_path}#a", "0", "--json").json
    assert document["request"] == {"$surrogates": "a\\ud800\\\\"}
    assert document["response"] == {"$map": [[{"$surrogates": "\\udfff"}, 1], ["big", 2**100]]}
    json.dumps(document, ensure_ascii=False).encode()


def test_cat_raw_writes_the_stored_bytes(archive: str) -> None:
    at = f"{archive}#team/mixed"
    done = subprocess.run(
        [sys.executable, "-m", "replaypack", "cat", at, "2", "--response", "--raw"],
        env=environment(),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"\x00\x01\xff" * 2000
    assert run("cat", at, "2", "--raw").code == 2
    assert "redirect" in run_on_terminal("cat", at, "2", "--response", "--raw").out


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_cat_by_digest(archive: str, seq: int) -> None:
    at = f"{archive}#team/mixed"
    digest = run("cat", at, str(seq), "--json").json["payloads"]["response"]["digest"]
    for name in (digest, digest.removeprefix("blake3:").upper()):
        assert run("cat", at, name).out == run("cat", at, str(seq), "--response").out
    missing = run("cat", at, "blake3:" + "0" * 64)
    assert missing.code != 0
    assert "no blob" in missing.err


def test_cat_bytes_on_a_terminal_is_a_dump(archive: str) -> None:
    result = run_on_terminal("cat", f"{archive}#team/mixed", "2")
    assert "00000000  00 01 ff 00" in result.out
    assert "1904 more bytes" in result.out


# log, verify, recover, rm


def test_log(archive: str) -> None:
    rows = [line.split("\t") for line in run("log", f"{archive}#team/appended").out.splitlines()]
    assert [row[:4] for row in rows] == [
        ["1", "claim", "open", "0"],
        ["2", "seal", "sealed", "2"],
        ["3", "claim", "sealed", "2"],
        ["4", "append", "sealed", "5"],
    ]
    entries = run("log", f"{archive}#team/appended", "--json").json
    assert [entry["previous"] for entry in entries[1:]] == [entry["manifest_digest"] for entry in entries[:-1]]


def test_log_of_a_broken_revision_is_still_json(archive: str, tmp_path: Path) -> None:
    shutil.copytree(archive, tmp_path / "a")
    (tmp_path / "a/recordings/team/appended/00000003.json").write_bytes(b"{}")
    result = run("log", f"{tmp_path}/a#team/appended", "--json")
    assert result.code == 1
    assert [entry.get("revision") for entry in result.json] == [1, 2, None]
    assert result.json[2]["error"]["code"] == "format.corrupted"


def test_verify_of_something_sound(archive: str) -> None:
    for target in (archive, f"{archive}#team/mixed", f"{archive}#team/appended@2"):
        result = run("verify", target)
        assert (result.code, result.err) == (0, "")
        assert result.out.startswith("sound: ")
    document = run("verify", archive, "--json", "--level", "structure").json
    assert document["sound"] is True
    assert document["faults"] == []
    assert (document["recordings"], document["level"]) == (3, "structure")


def test_verify_tells_of_packs_that_no_recording_names(archive: str, tmp_path: Path) -> None:
    target = tmp_path / "a"
    shutil.copytree(archive, target)
    shutil.rmtree(target / "recordings")
    packs = list(target.glob("packs/*/*.rpk"))
    size = sum(pack.stat().st_size for pack in packs)
    note = (
        f"note: {len(packs)} packs ({size} bytes) that no recording names: a writer's, or for `gc`; `recover --into` "
        "finds recordings in them\n"
    )
    for level in ("structure", "full"):
        result = run("verify", str(target), "--level", level)
        assert (result.code, result.out, result.err) == (0, f"{note}sound: 0 recordings (level {level})\n", "")
    assert run("verify", str(target), "--json").json["unnamed"] == {"packs": len(packs), "bytes": size}
    assert run("verify", str(target), "--level", "manifest", "--json").json["unnamed"] is None
    one = run("verify", f"{archive}#team/mixed", "--json").json
    assert one["unnamed"] is None
    assert run("recover", str(target), "--into", str(tmp_path / "b")).code in (0, 1)
    assert list(replaypack.Archive(tmp_path / "b").recordings()) == list(replaypack.Archive(archive).recordings())


def test_verify_lists_every_fault_and_exits_with_1(archive: str, tmp_path: Path) -> None:
    target = str(tmp_path / "a")
    shutil.copytree(archive, target)
    for pack in list((tmp_path / "a").glob("packs/*/*.rpk")):
        pack.unlink()
    (tmp_path / "a/recordings/team/mixed/latest.json").write_bytes(b"{}")
    result = run_process("verify", target)
    assert result.code == 1
    *faults, verdict = [line.split("\t") for line in result.out.splitlines()]
    assert {fault[0] for fault in faults} == {"pack.missing", "latest.corrupted"}
    assert verdict[0].startswith(f"{len(faults)} faults in 3 recordings")
    document = run("verify", target, "--json").json
    assert document["sound"] is False
    assert len(document["faults"]) == len(faults)
    assert set(document["faults"][0]) == {"code", "where", "message", "remedy", "recording"}
    terminal = run_on_terminal("verify", target)
    assert terminal.code == 1
    assert "→" in terminal.out


def test_verify_of_one_broken_revision(archive: str, tmp_path: Path) -> None:
    shutil.copytree(archive, tmp_path / "a")
    (tmp_path / "a/recordings/team/appended/00000002.json").write_bytes(b"{}")
    result = run("verify", f"{tmp_path}/a#team/appended@2")
    assert (result.code, result.out.split("\t")[0]) == (1, "manifest.corrupted")


@pytest.mark.parametrize("damage", ["pack.missing", "pack.size", "page.corrupted"])
def test_verify_of_a_recording_whose_list_of_packs_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr("replaypack._write.publish._MAX_INLINE_PACKS", 0)
    monkeypatch.setattr("replaypack._write.publish.INLINE_LIMIT", 10)
    archive = replaypack.Archive(tmp_path)
    with archive.recorder("r") as recorder:
        recorder.append(kind="tool", identity=1, response="x" * 5000)
    [page] = archive.open("r").manifest.storage.pack_pages
    pack = tmp_path / "packs" / page.pack[:2] / f"{page.pack}.rpk"
    data = bytearray(pack.read_bytes())
    data[page.offset + 2] ^= 1
    pack.write_bytes(data if damage == "page.corrupted" else data[: page.offset])
    if damage == "pack.missing":
        pack.unlink()
    for target in ("", "#r", "#r@2"):
        result = run("verify", f"{tmp_path}{target}", "--json")
        assert result.code == 1
        [fault] = result.json["faults"]
        assert fault["code"] == damage
        assert fault["where"].startswith(f"packs/{page.pack[:2]}/{page.pack}.rpk")


def test_verify_against_a_digest(archive: str) -> None:
    at = f"{archive}#team/mixed"
    digest = replaypack.open(at).content_digest
    assert run("verify", at, "--expect-digest", digest).code == 0
    result = run("verify", at, "--expect-digest", "0" * 64)
    assert result.code == 1
    assert result.out.startswith("digest.unexpected\t")
    assert digest in result.out
    both = run("verify", at, "--expect-digest", digest, "--expect-manifest", "0" * 64, "--json")
    assert (both.code, [fault["code"] for fault in both.json["faults"]]) == (1, ["digest.unexpected"])
    older = run("verify", f"{archive}#team/appended@2", "--expect-digest", digest, "--level", "manifest")
    assert (older.code, older.out.split("\t")[0]) == (1, "digest.unexpected")
    assert run("verify", archive, "--expect-digest", digest).code == 2


def test_recover(tmp_path: Path) -> None:
    script = (
        "import os, sys, replaypack\n"
        "r = replaypack.Archive(sys.argv[1]).recorder('dead', flush_interval=None)\n"
        "[r.append(kind='tool', identity=i, response=i) for i in range(4)]\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment(), check=False)
    assert run("recover", str(tmp_path)).out == "dead: 4 records, 4 of them from the journal\n"
    assert run("recover", str(tmp_path)).out == "nothing to recover\n"
    assert run("show", f"{tmp_path}#dead", "--json").json["records"] == 4
    (tmp_path / "journal" / "0000000000000000-000000.rpj").write_bytes(b"garbage")
    result = run("recover", str(tmp_path), "--json")
    assert result.code == 1
    assert result.json[0]["error"]["code"] == "format.corrupted"
    assert "journal kept" in run("recover", str(tmp_path)).out


def test_recover_tells_a_store_that_cannot_be_asked_from_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replaypack import recover
    from replaypack.errors import FormatError, StorageTimeoutError

    with replaypack.Archive(tmp_path).recorder("a") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
    broken, unreachable = FormatError("no"), StorageTimeoutError("no")
    for errors, code in (([None], 0), ([broken], 1), ([unreachable, broken], 2), ([None, unreachable], 2)):
        found = [recover.Recovered("x", 1, 1, "j", error) for error in errors]
        monkeypatch.setattr(recover, "recover", lambda archive, found=found, **_: found)
        result = run("recover", str(tmp_path))
        assert result.code == code
        assert ("x: 1 record, 1 of them" in result.out) == (None in errors)


def test_rm_asks_first(archive: str, tmp_path: Path) -> None:
    shutil.copytree(archive, tmp_path / "a")
    at = f"{tmp_path}/a#team/mixed"
    refused = run("rm", at)
    assert (refused.code, refused.out) == (2, "")
    assert "--yes" in refused.err
    assert run_on_terminal("rm", at, typed="n\n").code == 1
    assert run("show", at).code == 0
    assert run_on_terminal("rm", at, typed="y\n").code == 0
    assert run("show", at).code == 1
    done = run("rm", f"{tmp_path}/a#incomplete", "--yes")
    assert done.code == 0
    assert "packs stay until they are collected" in done.out
    assert [row["name"] for row in run("ls", f"{tmp_path}/a", "--json").json] == ["team/appended"]
    assert run("rm", f"{tmp_path}/a#team/appended@2", "--yes").code == 2
