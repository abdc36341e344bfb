"""``except RateLimitError`` loops run on replay: exceptions of HTTP clients and model SDKs come back as themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replaypack import Archive
from replaypack.replay.failures import describe, rebuild


def replayed(tmp_path: Path, error: Exception) -> Any:
    archive = Archive(tmp_path)

    def call() -> Any:
        raise error

    def refuse() -> Any:
        raise AssertionError("called while replaying")

    for mode in ("record", "replay"):
        # Redaction is not what this is about: the message of httpx has the password of its URL.
        with archive.session("run", mode, redact=None) as session:
            try:
                session.model("m", {}, call if mode == "record" else refuse)
            except Exception as raised:
                caught = raised
    assert caught is not error
    assert type(caught) is type(error)
    # What is a secret in the message is removed, as everywhere.
    texts = [str(error), *map(str, error.args)]
    assert [str(caught), *map(str, caught.args)] == [text.replace(":secret@", ":__redacted__@") for text in texts]
    return caught


@pytest.fixture(params=["httpx", "httpx2"])
def http(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


def test_httpx_errors_come_back(tmp_path: Path, http: Any) -> None:
    request = http.Request("POST", "https://example.org/v1?q=1", headers={"authorization": "Bearer secret"})
    response = http.Response(503, headers={"retry-after": "7"}, json={"error": "busy"}, request=request)
    with pytest.raises(http.HTTPStatusError) as raised:
        response.raise_for_status()
    error = replayed(tmp_path / "status", raised.value)
    assert error.response.status_code == 503
    assert error.response.headers["retry-after"] == "7"
    assert error.response.json() == {"error": "busy"}
    assert (error.request.method, str(error.request.url)) == ("POST", "https://example.org/v1?q=1")
    assert "secret" not in str(describe(raised.value)["details"])
    timeout = replayed(tmp_path / "timeout", http.ReadTimeout("slow", request=request))
    assert isinstance(timeout, http.TimeoutException)
    assert timeout.request.method == "POST"
    assert type(rebuild(describe(http.ConnectError("down")))) is http.ConnectError
    assert type(rebuild(describe(http.StreamConsumed()))) is http.StreamConsumed
    assert type(rebuild(describe(http.InvalidURL("bad")))) is http.InvalidURL


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_sdk_errors_come_back(tmp_path: Path, package: str) -> None:
    sdk = pytest.importorskip(package)
    http = __import__(next(name for name in ("httpx2", "httpx") if hasattr(sdk._exceptions, name)))
    request = http.Request("POST", "https://api.example.org/v1/chat")
    body = {"type": "rate_limit", "code": "slow_down", "message": "slow down"}
    response = http.Response(429, headers={"retry-after": "3", "x-request-id": "r1"}, json=body, request=request)
    error = replayed(tmp_path / "rate", sdk.RateLimitError("slow down", response=response, body=body))
    assert isinstance(error, sdk.APIStatusError)
    assert error.status_code == 429
    assert error.body == body
    assert error.message == "slow down"
    assert error.response.headers["retry-after"] == "3"
    timeout = replayed(tmp_path / "timeout", sdk.APITimeoutError(request))
    assert isinstance(timeout, sdk.APIConnectionError)
    replayed(tmp_path / "connection", sdk.APIConnectionError(message="no route", request=request))
    replayed(tmp_path / "invalid", sdk.APIResponseValidationError(response, body))
    replayed(tmp_path / "base", sdk.APIError("what", request, body=None))


def test_openai_errors_made_of_objects_keep_type_and_message(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")

    class Completion:
        usage = "12 tokens"

    replayed(tmp_path, openai.LengthFinishReasonError(completion=Completion()))


@pytest.mark.parametrize(("package", "name"), [("openai", "OpenAIError"), ("anthropic", "AnthropicError")])
def test_types_of_an_sdk_without_a_constructor_of_their_own_come_back(tmp_path: Path, package: str, name: str) -> None:
    cls = getattr(pytest.importorskip(package), name)
    replayed(tmp_path, cls("the api_key client option must be set", 7))
