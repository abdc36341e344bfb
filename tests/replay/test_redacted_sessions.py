"""Sessions under redaction: what the program gets is its own, what is recorded is not, and replay finds it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive, ReplayMismatch, ReplaySession
from replaypack.errors import ReplaypackWarning, UsageError
from replaypack.policies.redaction import Redactor
from replaypack.replay.mismatch import explain
from tests.policies.canaries import leaks

SECRET = "canary-4f1c9a7be2"


def test_a_session_records_no_secret_and_replays_with_another(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")

    def run(mode: Any, token: str) -> list[Any]:
        with archive.session("s", mode, secrets=[SECRET], on_missing="error") as session:
            args = {"url": "/x", "headers": {"Authorization": f"Bearer {token}"}}
            seen = [session.tool("fetch", args, lambda: {"text": f"hello {SECRET}", "api_key": token})]
            seen.append(session.tool("say", {"text": SECRET}, lambda: [SECRET, token]))
            try:
                session.tool("fail", {"password": token}, lambda: 1 / len(""))
            except ZeroDivisionError as error:
                seen.append(str(error))
        return seen

    live = run("record", "token-of-today-1")
    assert live[0] == {"text": f"hello {SECRET}", "api_key": "token-of-today-1"}
    assert not leaks(tmp_path)
    replayed = run("replay", "token-of-tomorrow-2")
    assert replayed[0] == {"text": "hello __redacted__", "api_key": "__redacted__"}
    assert replayed[2] == live[2]
    recording = archive.open("s", secrets=[SECRET])
    shown = str(explain(recording, "tool", {"name": "say", "args": {"text": f"{SECRET}!"}}, name="say"))
    assert SECRET not in shown


def test_calls_with_secrets_and_without_are_found_in_recorded_order(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a", {"replaypack": {"fsync": False}})
    secret = {1: "api_key", 4: "password"}

    def args(number: int, token: str) -> dict[str, Any]:
        name = secret.get(number % 5)
        return {"n": number} if name is None else {"n": number, name: f"{token}-{number}"}

    def run(mode: Any, token: str) -> list[Any]:
        with archive.session("s", mode, strict=True) as session:
            return [session.tool("t", args(n, token), lambda n=n: [n]) for n in range(100)]

    assert run("record", "one") == run("replay", "two")
    # A value that is known to be secret is removed from the live call first, which then is another one.
    with archive.session("s", "replay", secrets=["t-of-today"]) as session:
        session.tool("t", {"n": 0}, lambda: 0)
        with pytest.raises(ReplayMismatch):
            session.tool("t", {"n": "t-of-today"}, lambda: 0)
    # What is asked for in place of a secret is what was recorded.
    with archive.session("s", "replay") as session:
        session.tool("t", {"n": 0}, lambda: 0)
        assert session.tool("t", {"n": 1, "api_key": "__redacted__"}, lambda: 0) == [1]


def test_a_call_that_was_taken_down_before_a_secret_was_learned(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with archive.recorder("r", flush_interval=None) as recorder:
        calls = [
            recorder.prepare_call("tool", {"q": SECRET}, name=f"n {SECRET}"),
            recorder.prepare_call("tool", {"q": 1}, request={"sent": SECRET}),
            recorder.prepare_call("tool", key="mine", request={"sent": SECRET}),
        ]
        recorder.append(call=recorder.prepare_call("tool", {"q": SECRET}), response=SECRET)
        recorder.learn_secret(SECRET)
        for call in calls:
            recorder.append(call=call, response=SECRET)
        assert not leaks(tmp_path)
    assert not leaks(tmp_path)
    recording = archive.open("r", secrets=[SECRET])
    assert recording.count("tool", {"q": SECRET}) == 2
    found = recording.lookup(key="mine")
    assert found is not None
    assert found.request == {"sent": "__redacted__"}
    assert recording.record(2).identity == {"q": 1}
    assert all("redacted" in record.flags for record in recording.records())
    assert not list(archive.verify("r"))


@pytest.mark.filterwarnings("ignore", category=ReplaypackWarning)
def test_live_calls_of_a_replay_are_redacted_as_the_recording_was(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with archive.session("s", "record", redact=None) as session:
        session.tool("a", {"password": "p"}, lambda: 1)
    with archive.session("s", "replay", on_missing="live") as session:
        assert session.tool("a", {"password": "p"}, lambda: 2) == 1
        assert session.tool("a", {"password": "other"}, lambda: 3) == 3
    assert archive.open("s").record(1).request["args"] == {"password": "other"}


def test_a_miss_shows_no_secret_wherever_the_call_has_it(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with archive.session("s", "record", secrets=[SECRET]) as session:
        session.tool("say", {"text": "x"}, lambda: 1)
    with archive.session("s", "replay", secrets=[SECRET]) as session, session.scope(f"scope {SECRET}"):
        for name, args in ((f"say {SECRET}", {"text": "x"}), ("say", {SECRET: [(SECRET,)]})):
            with pytest.raises(ReplayMismatch) as miss:
                session.tool(name, args, lambda: 2)
            shown = session.explain("tool", {"name": name, "args": args})
            parts = [miss.value, miss.value.explanation, miss.value.name, miss.value.scope, shown, shown.to_dict()]
            assert SECRET not in "".join(map(repr, parts)) + "".join(map(str, parts))


@pytest.mark.parametrize("option", ["secrets", "secrets_from_env"])
def test_secrets_of_an_iterator_are_removed(tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ITS_VALUE", SECRET)
    given = {"secrets": SECRET, "secrets_from_env": "ITS_VALUE"}[option]
    for _ in range(2):
        with Archive(tmp_path / "a").session("s", strict=True, **{option: iter([given])}) as session:
            session.tool("say", {"text": SECRET}, lambda: SECRET)
    assert not leaks(tmp_path)


def test_a_session_learns_a_secret(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")

    def run() -> Any:
        with archive.session("s", strict=True) as session:
            early = session.stream("model", {"q": "before"}, lambda: iter([f"1 {SECRET}", f"2 {SECRET}"]))
            next(early)
            token = session.tool("log in", {}, lambda: SECRET)
            learned = session.learn_secret(token, SECRET)
            list(early)
            session.tool("ask", {"token": token}, lambda: f"you are {token}")
            session.tool("ask", {"given": SECRET}, lambda: 1)
            assert not leaks(tmp_path)
        return learned

    assert (run().rewritten, run().rewritten) == (1, 0)
    assert not leaks(tmp_path)
    # Learned while replaying, it is removed from what is then recorded live, too.
    with archive.session("s", on_missing="live") as session:
        session.learn_secret(SECRET)
        session.tool("new", {"text": SECRET}, lambda: SECRET)
    assert not leaks(tmp_path)
    with pytest.raises(UsageError, match="at least 6 bytes"), archive.session("s") as session:
        session.learn_secret("short")


def test_a_live_session_has_nothing_to_learn() -> None:
    with ReplaySession("live") as session:
        assert session.learn_secret(SECRET).published == []


def test_a_session_of_an_open_recording_and_the_recording_share_their_secrets(tmp_path: Path) -> None:
    archive, other = Archive(tmp_path / "a"), "canary-of-the-reader"
    with archive.session("s", secrets=[SECRET]) as session:
        session.tool("say", {"text": SECRET}, lambda: 1)
    recording = archive.open("s", secrets=[other])
    with ReplaySession.from_recording(recording, secrets=iter([SECRET]), on_missing="live") as session:
        assert session.tool("say", {"text": SECRET}, lambda: 2) == 1
        session.tool("new", {"texts": [SECRET, other]}, lambda: f"{SECRET} {other}")
    assert not leaks(tmp_path)
    [added] = archive.open("s").records(first=1)
    assert (added.request["args"], added.response) == ({"texts": ["__redacted__"] * 2}, "__redacted__ __redacted__")


def test_a_secret_that_is_learned_while_another_thread_looks_something_up_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(tmp_path / "a")
    with archive.session("s") as session:
        session.tool("t", {}, lambda: 1)
    recording = archive.open("s")
    real = Redactor.of

    def slow(*given: Any) -> Redactor | None:
        made = real(*given)
        monkeypatch.undo()
        recording.learn_secret(SECRET)
        return made

    monkeypatch.setattr(Redactor, "of", slow)
    recording.key_of("tool", {})
    assert recording.key_of("tool", {"text": SECRET}) == recording.key_of("tool", {"text": "__redacted__"})
