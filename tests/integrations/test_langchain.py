"""A LangChain chat model that records and replays: with LangChain's own models and callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from replaypack import ReplayMismatch, ReplaySession
from replaypack.errors import CanonicalizationError, UsageError, ValueEncodingError
from replaypack.integrations.langchain import ReplayChatModel


class Scripted(BaseChatModel):
    """Answers from a script, whole; notes what it was called with. Has its own shape of tools, as providers do."""

    answers: list[AIMessage]
    calls: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        return self.bind(tools=[f"provider:{getattr(t, 'name', getattr(t, '__name__', t))}" for t in tools], **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kw: Any
    ) -> ChatResult:
        self.calls.append({"messages": list(messages), "stop": stop, **kw})
        answer = self.answers[(len(self.calls) - 1) % len(self.answers)].model_copy()
        return ChatResult(
            generations=[ChatGeneration(message=answer, generation_info={"finish_reason": "stop"})],
            llm_output={"model": "scripted"},
        )


class Streaming(Scripted):
    """The same in chunks, one a word."""

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kw: Any
    ) -> Iterator[ChatGenerationChunk]:
        self.calls.append({"messages": list(messages), "stop": stop, **kw})
        for word in ["It ", "is ", "42."]:
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kw: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages, stop, None, **kw):
            await asyncio.sleep(0)
            yield chunk


def text(content: str) -> AIMessage:
    return AIMessage(content=content, usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5})


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"{tmp_path}/runs#chat"


def recording(place: str, inner: BaseChatModel, **options: Any) -> tuple[ReplaySession, ReplayChatModel]:
    session = ReplaySession("record", place)
    return session, ReplayChatModel(session=session, inner=inner, model_name="m-1", **options)


def replaying(place: str, **options: Any) -> tuple[ReplaySession, ReplayChatModel]:
    session = ReplaySession("replay", place)
    return session, ReplayChatModel(session=session, model_name="m-1", **options)


def test_a_call_comes_back_without_the_model(place: str) -> None:
    session, model = recording(place, Scripted(answers=[text("42")]))
    with session:
        live = model.invoke("What is 6 × 7?")
    session, model = replaying(place)
    with session:
        again = model.invoke("What is 6 × 7?")
        assert (again.content, again.usage_metadata) == ("42", live.usage_metadata)
        assert again.response_metadata == live.response_metadata
        with pytest.raises(ReplayMismatch) as caught:
            model.invoke("What is 6 × 8?")
    assert caught.value.reason == "missing"
    assert "6 × 7" in str(caught.value)


def test_asynchronous_calls_share_the_key(place: str) -> None:
    session, model = recording(place, Scripted(answers=[text("42")]))
    with session:
        asyncio.run(model.ainvoke("?"))
        model.invoke("?")
    session, model = replaying(place)
    with session:
        assert model.invoke("?").content == "42"
        assert asyncio.run(model.ainvoke("?")).content == "42"


def test_a_streamed_call_answers_streamed_and_whole_ones(place: str) -> None:
    session, model = recording(place, Streaming(answers=[text("unused")]))

    async def astreamed(model: ReplayChatModel) -> list[str]:
        return [str(chunk.content) async for chunk in model.astream("?")]

    with session:
        live = [chunk.content for chunk in model.stream("?")]
        alive = asyncio.run(astreamed(model))
        assert [c for c in live if c] == [c for c in alive if c] == ["It ", "is ", "42."]
        for _ in model.stream("?"):
            pass
        asyncio.run(astreamed(model))
    session, model = replaying(place)
    with session:
        # The records of a stream and of an asynchronous one, each asked the other ways.
        assert [c.content for c in model.stream("?")] == live
        assert model.invoke("?").content == "It is 42."
        assert asyncio.run(model.ainvoke("?")).content == "It is 42."
        assert [c.content for c in model.stream("?") if c.content] == ["It ", "is ", "42."]


def test_a_whole_call_answers_a_streamed_one(place: str) -> None:
    call = {"name": "ls", "args": {"path": "."}, "id": "call_1", "type": "tool_call"}
    session, model = recording(place, Scripted(answers=[AIMessage(content="see", tool_calls=[call])]))
    with session:
        assert [c.content for c in model.stream("?")]  # the model cannot stream: one whole result
        model.invoke("?")
    session, model = replaying(place)
    with session:
        for _ in range(2):
            [whole, *rest] = list(model.stream("?"))
            assert whole.content == "see"
            assert whole.tool_calls == [call]
            assert not any(chunk.content for chunk in rest)


def test_tokens_reach_the_callbacks_on_replay(place: str) -> None:
    class Tokens(BaseCallbackHandler):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_llm_new_token(self, token: Any, **_: Any) -> None:
            if token:
                self.seen.append(token)

    session, model = recording(place, Streaming(answers=[text("unused")]))
    with session:
        list(model.stream("?"))
    session, model = replaying(place)
    tokens = Tokens()
    with session:
        list(model.stream("?", config={"callbacks": [tokens]}))
    assert tokens.seen == ["It ", "is ", "42."]


@tool
def ls(path: str) -> list[str]:
    """List a directory."""
    return [path]


def test_tools_are_bound_in_the_models_way_and_keyed_in_one(place: str) -> None:
    inner = Scripted(answers=[text("42")])
    session, model = recording(place, inner)
    with session:
        model.bind_tools([ls]).invoke("?")
    assert inner.calls[0]["tools"] == ["provider:ls"]
    session, model = replaying(place)
    with session:
        with pytest.raises(ReplayMismatch, match="tools"):
            model.invoke("?")
        with pytest.raises(ReplayMismatch, match="tool_choice"):
            model.bind_tools([ls], tool_choice="any").invoke("?")
        assert model.bind_tools([ls]).invoke("?").content == "42"


class Answer(BaseModel):
    """The answer."""

    value: int


def test_structured_output_comes_back_typed(place: str) -> None:
    call = {"name": "Answer", "args": {"value": 42}, "id": "call_1", "type": "tool_call"}
    session, model = recording(place, Scripted(answers=[AIMessage(content="", tool_calls=[call])]))
    with session:
        assert model.with_structured_output(Answer).invoke("?") == Answer(value=42)
    session, model = replaying(place)
    with session:
        assert model.with_structured_output(Answer).invoke("?") == Answer(value=42)


def test_stop_sequences_are_a_set(place: str) -> None:
    session, model = recording(place, Scripted(answers=[text("42")]))
    with session:
        model.invoke("?", stop=["b", "a", "b"])
    session, model = replaying(place)
    with session:
        with pytest.raises(ReplayMismatch):
            model.invoke("?", stop=["a"])
        assert model.invoke("?", stop=["a", "b"]).content == "42"


def test_every_option_and_parameter_is_in_the_key(place: str) -> None:
    session, model = recording(place, Scripted(answers=[text("42")]), parameters={"temperature": 0})
    with session:
        model.invoke("?", seed=1)
    session, other = replaying(place)
    with session:
        model = other.model_copy(update={"parameters": {"temperature": 0}})
        for call in (
            lambda: other.invoke("?", seed=1),
            lambda: model.invoke("?", seed=2),
            lambda: model.invoke("?"),
            lambda: model.invoke("?", seed=True),
            lambda: ReplayChatModel(session=session, model_name="m-2", parameters={"temperature": 0}).invoke(
                "?", seed=1
            ),
        ):
            with pytest.raises(ReplayMismatch):
                call()
        assert model.invoke("?", seed=1).content == "42"


@pytest.mark.parametrize("value", [float("nan"), Answer, {1: "a"}, object()])
def test_options_without_a_canonical_form_are_refused(place: str, value: Any) -> None:
    inner = Scripted(answers=[text("42")])
    session, model = recording(place, inner)
    with session, pytest.raises((CanonicalizationError, ValueEncodingError), match="/options/weird"):
        model.invoke("?", weird=value)
    assert not inner.calls


def test_a_conversation_replays_though_message_ids_are_new(place: str) -> None:
    answers = [
        AIMessage(content="", tool_calls=[{"name": "ls", "args": {"path": "."}, "id": "call_1"}]),
        text("one file"),
    ]

    def conversation(model: ReplayChatModel) -> tuple[list[Any], list[Any]]:
        messages: list[BaseMessage] = [HumanMessage("what is here?")]
        first = model.bind_tools([ls]).invoke(messages)
        messages += [first, ToolMessage("a.txt", tool_call_id=first.tool_calls[0]["id"])]
        last = model.bind_tools([ls]).invoke(messages)
        return [first.id, last.id], [first.tool_calls, last.content]

    session, model = recording(place, Scripted(answers=answers))
    with session:
        ids, said = conversation(model)
    session, model = replaying(place)
    with session:
        new_ids, said_again = conversation(model)
    assert said == said_again
    assert set(ids).isdisjoint(new_ids)


def test_a_call_that_must_go_live_without_a_model_says_so(tmp_path: Path) -> None:
    session = ReplaySession("record", f"{tmp_path}/runs#chat")
    with session, pytest.raises(UsageError, match=r"inner=…"):
        ReplayChatModel(session=session, model_name="m-1").invoke("?")


def test_the_current_session_is_used_and_none_is_needed(place: str) -> None:
    inner = Scripted(answers=[text("42")])
    model = ReplayChatModel(inner=inner, model_name="m-1")
    assert model.invoke("?").content == "42"
    assert [c.content for c in model.stream("?") if c.content] == ["42"]
    with ReplaySession("record", place):
        model.invoke("?")
    with ReplaySession("replay", place):
        model.invoke("?")
    assert len(inner.calls) == 3


def test_recorded_failures_are_raised_again(place: str) -> None:
    class Failing(Scripted):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            raise TimeoutError("the model is busy")

    session, model = recording(place, Failing(answers=[]))
    with session, pytest.raises(TimeoutError):
        model.invoke("?")
    session, model = replaying(place)
    with session, pytest.raises(TimeoutError, match="the model is busy"):
        model.invoke("?")
