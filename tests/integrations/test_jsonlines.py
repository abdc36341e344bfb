"""JSON lines: what goes out comes back; what others write comes in; what is wrong is said, and changes nothing."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard
from benchmarks.corpora import corpora_directory, corpus

import replaypack
from replaypack import Archive, Recording
from replaypack.errors import ExportError, ImportFormatError, RecordingExistsError, RecordingNotFoundError, UsageError
from replaypack.integrations.interchange import Summary, detect, format_named, formats
from replaypack.integrations.jsonlines import JsonLines
from tests.archive.support import calls

SOURCE = str(Path(replaypack.__file__).parent.parent)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive", {"replaypack": {"fsync": False}})


def rows(recording: Recording) -> list[bytes]:
    return [record.row_bytes for record in recording.records()]


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((json.dumps(line) if not isinstance(line, str) else line) + "\n" for line in lines))
    return path


def load(archive: Archive, path: Path, name: str = "new", **options: Any) -> Summary:
    return JsonLines().load(path, archive, name, **options)


def test_what_is_exported_comes_back_the_same(archive: Archive, tmp_path: Path) -> None:
    expected = list(calls(120, large=True))
    extra: list[dict[str, Any]] = [
        {"kind": "tool", "identity": None, "response": None, "name": "", "scope": ""},
        {"kind": "tool", "identity": {"a": 1}, "request": {"$bytes": "x"}, "response": "\ud800\\"},
        {"kind": "model", "identity": b"\x00", "response": float("-inf"), "flags": ["truncated"]},
        {"kind": "model", "key": b"\xff host", "error": {}, "status": "interrupted", "start": 1, "duration": 2},
        {"kind": "x-own", "identity": "s", "response": [float("nan")], "status": "error", "attributes": {"$map": 1}},
    ]
    with archive.recorder("old", metadata={"$float": "nan", "n": {"$map": 1}}, recorded_by="me") as recorder:
        for call in expected + extra:
            recorder.append(**call)
    old = archive.open("old")
    path = tmp_path / "out.jsonl"
    assert JsonLines().dump(old, path) == Summary("jsonl", len(old))
    assert load(archive, path) == Summary("jsonl", len(old))
    new = archive.open("new")
    assert rows(new) == rows(old)
    assert new.manifest.content.merkle_root == old.manifest.content.merkle_root
    assert new.metadata == old.metadata
    assert new.manifest.content.recorded_by == "me"
    assert list(archive.verify("new")) == []
    again = tmp_path / "again.jsonl"
    JsonLines().dump(new, again)
    assert again.read_bytes().split(b"\n", 1)[1] == path.read_bytes().split(b"\n", 1)[1]


def test_the_match_policy_comes_back_too(archive: Archive, tmp_path: Path) -> None:
    uuid = "123e4567-e89b-12d3-a456-42661417400"
    with archive.recorder("old", match="uuids") as recorder:
        recorder.append(kind="tool", identity={"id": uuid + "0"}, response=1)
    path = tmp_path / "out.jsonl"
    # An overridden policy is the reader's alone: what goes out is the recording as it is.
    JsonLines().dump(archive.open("old", match="timestamps"), path)
    load(archive, path)
    new = archive.open("new")
    assert rows(new) == rows(archive.open("old"))
    assert new.match == replaypack.MatchPolicy.of("uuids")
    assert new.count("tool", {"id": uuid + "1"}) == 1
    assert list(archive.verify("new")) == []
    head, line = path.read_text().splitlines()
    newer = write(tmp_path / "newer.jsonl", head.replace('"renumber"', '"rename"'), line)
    with pytest.raises(ImportFormatError, match="newer version"):
        load(archive, newer, "newer")


def test_keys_of_another_scheme_are_kept(archive: Archive, tmp_path: Path) -> None:
    with archive.recorder("old") as recorder:
        recorder.append(kind="http", request={"u": 1}, response=1, key_digest=b"k" * 32, key_scheme="http/1")
        recorder.append(kind="http", identity={"u": 1}, request=2, response=1, key_digest=b"l" * 32, key_scheme="x-a/1")
        with pytest.raises(UsageError):
            recorder.append(kind="http", key="a", response=1, key_digest=b"k" * 32)
        with pytest.raises(UsageError):
            recorder.append(kind="http", response=1, key_digest=b"k")
    JsonLines().dump(archive.open("old"), tmp_path / "out")
    load(archive, tmp_path / "out")
    assert rows(archive.open("new")) == rows(archive.open("old"))
    assert [record.key_scheme for record in archive.open("new").records()] == ["http/1", "x-a/1"]


def test_an_incomplete_recording_stays_one(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), archive.recorder("old") as recorder:  # noqa: PT012
        recorder.append(kind="tool", identity=1, response=1)
        _ = 1 / 0
    JsonLines().dump(archive.open("old"), tmp_path / "out")
    load(archive, tmp_path / "out")
    assert archive.open("new").state == "incomplete"
    assert archive.open("new").manifest.content.error == archive.open("old").manifest.content.error


def test_common_shapes_are_read(archive: Archive, tmp_path: Path) -> None:
    path = write(
        tmp_path / "in.jsonl",
        {"kind": "tool", "name": "search", "args": {"q": "x"}, "result": [1]},
        {
            "kind": "model",
            "input": {"m": 1},
            "output": "text",
            "start": "2026-01-31T12:00:00.5+01:00",
            "duration": 0.25,
        },
        "",
        {"kind": "http", "identity": {"u": 1}, "request": {"u": 1, "h": {}}, "response": {"$bytes": "AP8="}, "seq": 9},
        {"kind": "tool", "name": "t", "request": 1, "error": "it failed", "response": None, "scope": "s"},
        {"kind": "tool", "key": "mine", "request": {"a": 1}, "response": 2, "start": 1_700_000_000.25},
    )
    assert load(archive, path).records == 5
    recording = archive.open("new")
    with archive.session("new", "replay") as session:
        assert session.tool("search", {"q": "x"}, lambda: "made live") == [1]
    found = recording.lookup("model", {"m": 1})
    assert found is not None
    assert (found.response, found.duration, found.start) == ("text", 0.25, 1_769_857_200_500_000_000)
    found = recording.lookup("http", {"u": 1})
    assert found is not None
    assert (found.response, found.request) == (b"\x00\xff", {"u": 1, "h": {}})
    found = recording.lookup("tool", 1, scope="s")
    assert found is not None
    assert (found.status, found.error) == ("error", {"message": "it failed"})
    found = recording.lookup(key="mine")
    assert found is not None
    assert (found.response, found.start) == (2, 1_700_000_000_250_000_000)


def test_other_members_can_be_named_or_skipped(archive: Archive, tmp_path: Path) -> None:
    path = write(
        tmp_path / "in.jsonl", {"prompt": "p", "answer": "a", "id": 7}, {"prompt": "q", "id": 8, "answer": "b"}
    )
    with pytest.raises(ImportFormatError, match=r"line 1: the member 'prompt' is not known"):
        load(archive, path)
    members = {"request": "prompt", "response": "answer"}
    summary = load(archive, path, kind="model", members=members, unknown="skip")
    assert summary.notes == ("the member 'id' was skipped in 2 lines",)
    assert [record.request for record in archive.open("new").records()] == ["p", "q"]
    with pytest.raises(UsageError, match="'prompt' is not a member"):
        load(archive, path, members={"prompt": "request"})


GOOD = '{"kind": "tool", "request": 1, "response": 1}'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not a line of JSON: expecting property name"),
        ("[1]", "is an array, not an object"),
        ("7", r"is a number \(7\), not an object"),
        ('{"request": 1}', "it has no kind"),
        ('{"kind": "tool"}', "no request, no identity and no key"),
        ('{"kind": 1, "request": 1}', "kind is a number"),
        ('{"kind": "tool", "request": 1, "input": 2}', "'request' and 'input' mean the same"),
        ('{"kind": "tool", "request": 1, "request": 2}', "the member 'request' twice"),
        ('{"kind": "tool", "request": 1, "foo": 2}', "the member 'foo' is not known"),
        ('{"kind": "tool", "request": 1, "response": 1, "error": "x"}', "a response and an error"),
        ('{"kind": "tool", "request": 1, "error": 5}', "error is a number"),
        ('{"kind": "tool", "request": 1, "status": "fine"}', "status 'fine' is not one of"),
        ('{"kind": "tool", "request": 1, "flags": ["fine"]}', "fine"),
        ('{"kind": "tool", "request": 1, "start": "yesterday"}', "'yesterday' is not a time"),
        ('{"kind": "tool", "request": 1, "start": "1969-01-01"}', "before 1970"),
        ('{"kind": "tool", "request": 1, "duration": -1}', "not seconds"),
        ('{"kind": "tool", "request": 1, "duration": true}', "not seconds"),
        ('{"kind": "tool", "request": 1, "start_ns": 1.5}', "not nanoseconds"),
        ('{"kind": "tool", "request": 1, "salt": "00"}', "salt is not 16 hex digits"),
        ('{"kind": "tool", "request": 1, "key": "a", "key_scheme": "opaque"}', "key is not 64 hex digits"),
        ('{"kind": "tool", "request": 1, "key_scheme": "http/1"}', "of the scheme 'http/1' is not there"),
        ('{"kind": "tool", "identity": 1, "key": "a"}', "a key and an identity"),
        ('{"kind": "tool", "request": {"$float": "nan"}}', "NaN"),
        ('{"kind": "tool", "request": 1, "response": ' + "[" * 300 + "]" * 300 + "}", "nested deeper than 256"),
        ('{"kind": "tool", "request": ' + "[" * 50_000, "nested too deeply"),
        ('{"kind": "tool", "request": "\\ud83d\\ude00", "scope": "\\ud800"}', "lone surrogates"),
        ('{"kind": "tool", "request": 1e400}', "beyond what a double holds"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_nothing_is_left(
    archive: Archive, tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n")
    with pytest.raises(ImportFormatError, match=said) as caught:
        load(archive, path)
    assert "in.jsonl, line 3" in str(caught.value)
    assert len(str(caught.value)) < 700 + len(str(path))
    assert list(archive.recordings()) == []
    assert archive.leftovers() == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"kind": "tool", "request": "\xff"}', "line 1 is not a line of JSON: byte 30 is not UTF-8"),
        ("\ufeff{}".encode("utf-16-le"), "convert the file to UTF-8"),
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b'{\n  "kind": "tool"\n}\n', "is it JSON lines, one object a line"),
        (b'{"replaypack": {"version": 2}}\n', "upgrade"),
        (b'{"replaypack": {"version": 1}}\n', "does not describe a recording"),
    ],
)
def test_files_that_are_no_json_lines(archive: Archive, tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "in.jsonl").write_bytes(data)
    with pytest.raises(ImportFormatError, match=said):
        load(archive, tmp_path / "in.jsonl")
    assert list(archive.recordings()) == []


def test_a_byte_order_mark_is_noted_and_windows_line_ends_do_not_matter(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n" + GOOD.encode())
    assert load(archive, tmp_path / "in.jsonl") == Summary("jsonl", 2, ("the file began with a byte order mark",))
    assert detect(tmp_path / "in.jsonl").name == "jsonl"


def test_a_line_that_is_too_long_is_refused(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("_jsonlines_reader", "jsonlines"):
        monkeypatch.setattr(f"replaypack.integrations.{module}.MAX_LINE", 1000)
    path = write(tmp_path / "in.jsonl", GOOD, {"kind": "tool", "request": "x" * 2000})
    with pytest.raises(ImportFormatError, match="line 2 has more than 1000 bytes"):
        load(archive, path)
    with archive.recorder("long") as recorder:
        recorder.append(kind="tool", identity=1, response="x" * 2000)
    with pytest.raises(ExportError, match="record 0 takes"):
        JsonLines().dump(archive.open("long"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_was_cut_off_or_changed_is_noticed(archive: Archive, tmp_path: Path) -> None:
    with archive.recorder("old") as recorder:
        for number in range(5):
            recorder.append(kind="tool", identity=number, response=number)
    path = tmp_path / "out"
    JsonLines().dump(archive.open("old"), path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(ImportFormatError, match="has 4 records, and says that it has 5"):
        load(archive, path)
    path.write_bytes(b"".join(lines[1:-1]))
    assert load(archive, path, "part").records == 4
    path.write_bytes(b"".join(lines).replace(b'"response":3', b'"response":4'))
    assert "the file was changed" in load(archive, path, "changed").notes[0]
    path.write_bytes(b"".join(lines).replace(b'"salt"', b'"pepper"'))
    with pytest.raises(ImportFormatError, match="'pepper' is not known"):
        load(archive, path, "unknown", unknown="skip")


def test_what_was_there_stays_when_an_import_fails(archive: Archive, tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good", GOOD, GOOD), write(tmp_path / "bad", GOOD, "{")
    load(archive, good)
    before = rows(archive.open("new"))
    with pytest.raises(RecordingExistsError):
        load(archive, good)
    for mode in ("append", "replace"):
        with pytest.raises(ImportFormatError):
            load(archive, bad, if_exists=mode)
        assert archive.open("new").state == "sealed"
        assert rows(archive.open("new")) == before
        assert rows(archive.open("new", fresh=True)) == before
        assert list(archive.verify("new")) == []
    assert load(archive, good, if_exists="append").records == 2
    assert len(archive.open("new")) == 4
    assert load(archive, good, if_exists="replace").records == 2
    assert len(archive.open("new")) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupted_import_leaves_nothing(archive: Archive, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "replaypack", "import", "-", f"{archive.url}#new"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert process.stdin is not None
    process.stdin.write((GOOD + "\n").encode() * 1000)
    process.stdin.flush()
    journals = tmp_path / "archive" / "journal"
    end = time.monotonic() + 60
    while not (journals.is_dir() and any(path.stat().st_size > 20_000 for path in journals.iterdir())):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    with pytest.raises(RecordingNotFoundError):
        archive.open("new")
    assert list(archive.recordings()) == []
    assert list(journals.iterdir()) == []


def test_an_export_is_whole_or_not_there(archive: Archive, tmp_path: Path) -> None:
    load(archive, write(tmp_path / "in", GOOD, GOOD))
    path = tmp_path / "out.jsonl"
    path.write_text("mine")
    with pytest.raises(ExportError, match="is there already"):
        JsonLines().dump(archive.open("new"), path)

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        JsonLines().dump(archive.open("new"), path, overwrite=True, progress=stop)
    assert path.read_text() == "mine"
    assert {entry.name for entry in tmp_path.iterdir()} == {"archive", "in", "out.jsonl"}
    JsonLines().dump(archive.open("new"), path, overwrite=True)
    assert len(path.read_text().splitlines()) == 3
    with pytest.raises(ExportError, match="cannot be written"):
        JsonLines().dump(archive.open("new"), tmp_path / "no" / "such")


def test_formats_are_told_apart(tmp_path: Path) -> None:
    assert "jsonl" in formats()
    assert detect(write(tmp_path / "a", GOOD)).name == "jsonl"
    # What one line says of another format does not matter where more lines follow.
    assert detect(write(tmp_path / "a", {"entries": [], "records": [], "mode": "record"}, GOOD)).name == "jsonl"
    with pytest.raises(UsageError, match="'yaml' is not a format"):
        format_named("yaml")
    for data, said in (
        (gzip.compress(GOOD.encode()), "decompress it first"),
        (b"", "it is empty"),
        (b"[1, 2]", "name its format"),
    ):
        (tmp_path / "b").write_bytes(data)
        with pytest.raises(ImportFormatError, match=said):
            detect(tmp_path / "b")


# Real data


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["swe-agent", pytest.param("tau-bench", marks=pytest.mark.heavy)])
def test_recorded_runs_go_out_and_come_back(archive: Archive, tmp_path: Path, name: str) -> None:
    recorded = corpus(name)
    if recorded is None:
        pytest.skip("the corpora are not here: set REPLAYPACK_CORPORA to the directory of the .tar.zst files")
    path = tmp_path / "in.jsonl"
    with path.open("w") as file:
        for call in recorded:
            line = {"kind": call.kind, "name": call.name, "input": call.request, "output": call.response}
            file.write(json.dumps(line) + "\n")
    assert load(archive, path, "a").records == len(recorded)
    first = archive.open("a")
    for record, call in zip(first.records(), recorded, strict=True):
        assert (record.kind, record.name) == (call.kind, call.name)
        assert repr((record.request, record.response)) == repr((call.request, call.response))
    JsonLines().dump(first, tmp_path / "out.jsonl")
    load(archive, tmp_path / "out.jsonl", "b")
    assert archive.open("b").manifest.content.merkle_root == first.manifest.content.merkle_root


@pytest.mark.corpus
def test_lines_that_others_wrote_come_in_with_their_members_named(archive: Archive, tmp_path: Path) -> None:
    directory = corpora_directory()
    if directory is None or not (directory / "tau-bench.tar.zst").is_file():
        pytest.skip("the corpora are not here: set REPLAYPACK_CORPORA to the directory of the .tar.zst files")
    count = 0
    with (
        (directory / "tau-bench.tar.zst").open("rb") as file,
        zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        for member in tar:
            content = tar.extractfile(member)
            if content is None or not member.name.endswith(".jsonl"):
                continue
            path = tmp_path / "few_shot.jsonl"
            path.write_bytes(content.read())
            assert detect(path).name == "jsonl"
            with pytest.raises(ImportFormatError, match="line 1: the member 'messages_display' is not known"):
                load(archive, path)
            count += load(
                archive, path, kind="model", members={"request": "messages_display"}, if_exists="append"
            ).records
    assert count == 69
    assert len(archive.open("new")) == 69


def test_what_a_file_holds_is_kept_also_where_an_append_finds_nothing(archive: Archive, tmp_path: Path) -> None:
    line = '{"kind": "tool", "request": {"password": "hunter2-hunter2"}, "response": 1}'
    load(archive, write(tmp_path / "in", line), if_exists="append")
    load(archive, write(tmp_path / "in", line), if_exists="append")
    assert [record.request for record in archive.open("new").records()] == [{"password": "hunter2-hunter2"}] * 2
