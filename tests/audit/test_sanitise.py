"""Sanitised recordings: nothing of what was removed is left, and what is left replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive, Recording
from replaypack.audit import Removal, sanitise, verify_recording
from replaypack.audit._allow import Allow
from replaypack.audit.sanitise import STATEMENT
from replaypack.errors import RecordingExistsError, UsageError
from replaypack.policies.redaction import PLACEHOLDER, RedactionPolicy

TOKEN = "ghp_" + "a1B2" * 9
SECRET = "correct-horse-battery"
EMAIL = "alice@example.com"
CANARIES = (TOKEN, SECRET, "k-123456", EMAIL, "tenant-7")


def bytes_of(path: Path) -> bytes:
    """All that an archive holds, decompressed."""
    import zstandard

    out = b""
    for file in path.rglob("*"):
        if file.is_file():
            out += file.read_bytes()
            if file.suffix == ".rpk":
                with file.open("rb") as raw:
                    out += zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read()
    return out


@pytest.fixture
def source(tmp_path: Path) -> Recording:
    archive = Archive(tmp_path / "source")
    metadata = {"owner": EMAIL, "token": TOKEN, "run": "nightly"}
    with archive.recorder("r", redact=None, metadata=metadata, match="uuids") as recorder:
        for number in range(40):
            recorder.append(
                kind="model",
                name="m",
                identity={"messages": [{"role": "user", "content": f"I am {EMAIL}, {SECRET}"}], "n": number},
                response={"text": f"answer {number}", "api_key": "k-123456", "usage": {"input_tokens": number}},
                scope="tenant-7",
                attributes={"session": f"Bearer {TOKEN}"} if number % 2 else None,
                start=number,
                duration=5,
            )
        recorder.append(kind="tool", key="host-key", request={EMAIL: 1}, response=b"bytes " * 1000)
        recorder.append(kind="tool", name="f", identity="x", request="y", error=ValueError(SECRET))
        recorder.append(kind="tool", name="f", identity={"clean": True}, response=None)
    return archive.open("r")


def test_redacted(source: Recording, tmp_path: Path) -> None:
    target = Archive(tmp_path / "target")
    removals: list[Removal] = []
    done = sanitise(source, target, "out/r", secrets=[SECRET, "tenant-7"], report=removals.append)
    made = target.open("out/r")
    assert (done.records, done.kept_keys, done.changed) == (43, 1, 41)
    assert done.content_digest == made.content_digest != source.content_digest
    held = bytes_of(tmp_path / "target")
    for canary in (TOKEN, SECRET, "k-123456", "tenant-7"):
        assert canary.encode() not in held
        assert not any(canary in str(removal) for removal in removals)
    assert EMAIL.encode() in held  # no rule names it
    content = made.manifest.content
    assert content.derived_from == source.content_digest
    assert content.redaction.name == "default"
    assert content.started == source.manifest.content.started
    assert made.match == source.match
    assert list(verify_recording(made)) == []
    statement = content.metadata[STATEMENT]
    assert statement["removed"] == done.removed
    assert statement["secrets"] is True
    assert sum(done.removed.values()) == len(removals)
    assert Removal(0, "response", "/api_key", "name") in removals
    assert content.metadata["token"] == PLACEHOLDER
    assert content.metadata["run"] == "nightly"
    # The clean record is as it was, but for its salt.
    clean, before = made.record(42), source.record(42)
    assert (clean.key, clean.flags, clean.row.request) == (before.key, frozenset(), before.row.request)
    assert clean.row.salt != before.row.salt
    assert made.record(0).flags == {"redacted"}
    assert (made.record(1).start, made.record(1).duration) == (1, 5e-9)
    assert made.record(41).status == "error"
    assert made.record(41).error["message"] == PLACEHOLDER  # type: ignore[index]


def test_a_replay_under_the_policy_finds_it(source: Recording, tmp_path: Path) -> None:
    target = Archive(tmp_path / "target")
    sanitise(source, target, "r", secrets=[SECRET, "tenant-7"])
    asked = {"messages": [{"role": "user", "content": f"I am {EMAIL}, {SECRET}"}], "n": 3}
    with target.open("r", secrets=[SECRET, "tenant-7"]) as made:
        found = made.lookup("model", asked, scope="tenant-7")
        assert found is not None
        assert found.response["text"] == "answer 3"
        assert made.lookup(key="host-key") is not None
    with target.open("r") as made:
        assert made.lookup("model", asked) is None


def test_the_same_again_is_the_same(source: Recording, tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        digests.add(sanitise(source, Archive(tmp_path / name), "r", secrets=[SECRET]).content_digest)
    assert len(digests) == 1
    other = sanitise(source, Archive(tmp_path / "c"), "r", secrets=[SECRET], allow=["/response/text"])
    assert other.content_digest not in digests


@pytest.mark.parametrize(
    ("allow", "kept"),
    [
        (["/response"], {PLACEHOLDER: PLACEHOLDER}),
        (["/error/type"], {"type": "RuntimeError", PLACEHOLDER: PLACEHOLDER}),
    ],
)
def test_of_a_run_that_failed_it_stays_that_it_did(tmp_path: Path, allow: list[str], kept: dict[str, str]) -> None:
    archive = Archive(tmp_path)
    with pytest.raises(RuntimeError), archive.recorder("failed") as recorder:  # noqa: PT012
        recorder.append(kind="tool", identity=1, response=2)
        raise RuntimeError(SECRET)
    sanitise(archive.open("failed"), archive, "made", allow=allow)
    content = archive.open("made").manifest.content
    assert (content.state, content.error) == ("incomplete", {**kept, PLACEHOLDER: PLACEHOLDER})
    assert list(archive.verify("made")) == []


def test_only_what_is_allowed(source: Recording, tmp_path: Path) -> None:
    target = Archive(tmp_path / "target")
    removals: list[Removal] = []
    pointers = ["/request/messages/*/role", "/response/usage", "/metadata/run"]
    done = sanitise(source, target, "r", allow=pointers, secrets=[SECRET], report=removals.append)
    made = target.open("r")
    held = bytes_of(tmp_path / "target")
    for canary in (*CANARIES, "answer 3", "bytes bytes"):
        assert canary.encode() not in held
        assert not any(canary in str(removal) for removal in removals)
    record = made.record(3)
    assert record.request == {
        "messages": [{"role": "user", PLACEHOLDER: PLACEHOLDER}],
        PLACEHOLDER: PLACEHOLDER,
    }
    assert record.response == {"usage": {"input_tokens": 3}, PLACEHOLDER: PLACEHOLDER}
    assert record.scope is not None
    assert record.scope.startswith("scope-")
    assert made.record(4).scope == record.scope
    assert record.flags == {"redacted"}
    assert made.record(40).response == PLACEHOLDER.encode()
    assert (made.record(42).response, made.record(42).request) == (None, {PLACEHOLDER: PLACEHOLDER})
    assert made.metadata["run"] == "nightly"
    assert made.metadata[STATEMENT]["allow"] == sorted(pointers)
    assert done.removed["allow"] == sum(removal.rule == "allow" for removal in removals) > 100
    assert list(verify_recording(made)) == []
    assert [item.name for item in made.records()] == [item.name for item in source.records()]


def test_allowed_is_not_yet_clean(source: Recording, tmp_path: Path) -> None:
    target = Archive(tmp_path / "target")
    sanitise(source, target, "r", allow=["/response", "/scope"], secrets=[SECRET])
    assert target.open("r").record(0).response["api_key"] == PLACEHOLDER
    assert target.open("r").record(0).scope == "tenant-7"


def test_policies_are_put_together(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    own = RedactionPolicy(name="x-mine", names=("employee_id",), keep=("password",))
    identity = {"employee_id": "e-1", "password": "p-1", "badge": "b-1"}
    with archive.recorder("r", redact=own) as recorder:
        recorder.append(kind="tool", identity=identity, response=1)
    source = archive.open("r")
    assert source.record(0).request == {"employee_id": PLACEHOLDER, "password": "p-1", "badge": "b-1"}
    second = RedactionPolicy(name="x-more", names=("badge",))
    sanitise(source, archive, "both", redact=second)
    both = archive.open("both")
    assert both.record(0).request == dict.fromkeys(identity, PLACEHOLDER)
    assert both.manifest.content.redaction.name == "x-more"
    assert both.lookup("tool", identity) is not None
    sanitise(source, archive, "plain")
    assert archive.open("plain").manifest.content.redaction.name == "x-mine"
    assert archive.open("plain").lookup("tool", identity) is not None
    sanitise(source, archive, "none", redact=None)
    assert archive.open("none").record(0).request["password"] == "p-1"


def test_refusals(source: Recording, tmp_path: Path) -> None:
    target = Archive(tmp_path / "target")
    for options, said in (
        ({"redact": "none"}, "redact is"),
        ({"allow": ["messages"]}, "JSON pointer"),
        ({"allow": ["/"]}, "JSON pointer"),
        ({"secrets": ["short"]}, "bytes"),
    ):
        with pytest.raises(UsageError, match=said):
            sanitise(source, target, "r", **options)  # type: ignore[arg-type]
    sanitise(source, target, "r")
    with pytest.raises(RecordingExistsError):
        sanitise(source, target, "r")
    open_ = target.recorder("open")
    with target.open("open") as recording, pytest.raises(UsageError, match="still being recorded"):
        sanitise(recording, target, "x")
    open_.discard()
    with target.recorder("open") as recorder:
        recorder.append(kind="tool", identity=1, response=1)
    assert sanitise(target.open("open"), target, "x").changed == 0


def test_an_interruption_leaves_nothing(source: Recording, tmp_path: Path) -> None:
    target = Archive(tmp_path / "target")

    def stop(removal: Removal) -> None:
        if removal.seq == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sanitise(source, target, "r", report=stop)
    assert list(target.recordings()) == []
    assert sanitise(source, target, "r").records == 43


@pytest.mark.parametrize(
    ("pointers", "kept"),
    [
        ([], PLACEHOLDER),
        (["/a"], {"a": {"b": [1, {"c": "x"}]}, PLACEHOLDER: PLACEHOLDER}),
        (["/a/b/*/c"], {"a": {"b": [PLACEHOLDER, {"c": "x"}]}, PLACEHOLDER: PLACEHOLDER}),
        (["/**/c"], {"a": {"b": [PLACEHOLDER, {"c": "x"}]}, "d": PLACEHOLDER, "n": None}),
        (["/response/d", "/response/n"], {"d": b"y", "n": None, PLACEHOLDER: PLACEHOLDER}),
        (["/response"], {"a": {"b": [1, {"c": "x"}]}, "d": b"y", "n": None}),
    ],
)
def test_masks(pointers: list[str], kept: Any) -> None:
    value = {"a": {"b": [1, {"c": "x"}]}, "d": b"y", "n": None}
    masked = Allow(pointers).mask("response", value).value
    if isinstance(masked, dict) and masked.get("d") == PLACEHOLDER.encode():
        masked["d"] = PLACEHOLDER
    assert masked == kept


def test_streams_and_calls_inside_of_calls_stay_what_they_are(tmp_path: Path) -> None:
    archive = Archive(tmp_path)

    def run(name: str) -> list[Any]:
        with archive.session(name, strict=True) as session:
            tool = {"name": "inner", "args": {}}
            return [
                session.tool("outer", {}, lambda: session.call("tool", tool, lambda: "inside")),
                session.call("tool", tool, lambda: "outside"),
                list(session.stream("model", {}, lambda: iter([1, 2]))),
            ]

    live = run("r")
    sanitise(archive.open("r"), archive, "made", allow=["/request", "/response"])
    assert run("made") == live
