"""`ReplayChatModel`: a LangChain chat model whose calls are recorded by a session and answered from it.

Needs ``langchain-core`` (extra ``[langchain]``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from replaypack.errors import UsageError
from replaypack.replay.current import current_session
from replaypack.replay.modes import BoundaryKind
from replaypack.replay.session import ReplaySession

try:
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models.chat_models import BaseChatModel, generate_from_stream
    from langchain_core.messages import (
        AIMessageChunk,
        BaseMessage,
        BaseMessageChunk,
        message_to_dict,
        messages_from_dict,
    )
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.runnables import RunnableBinding
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from pydantic import ConfigDict, PrivateAttr
except ImportError as problem:
    raise UsageError(
        f"the LangChain integration needs langchain-core: {problem}", hint="pip install 'replaypack[langchain]'"
    ) from problem

__all__ = ["ReplayChatModel"]

#: Ids that LangChain gives to messages by itself, anew in each run: they tell no two requests apart.
_OWN_IDS = ("run-", "lc_")
#: Tracing's note of the schema, which holds the class itself; the tools say the same. Releases differ in its name.
_NOTES = ("ls_structured_output_format", "structured_output_format")


class ReplayChatModel(BaseChatModel):
    """Records the calls of ``inner`` in a session, or answers them from its recording.

    ``session`` is a `ReplaySession`, or None for the current one (without one the calls go to ``inner`` and nothing
    is recorded). ``model_name`` (str) names the model in the key, so that no other model's recording answers.
    ``parameters`` is whatever else of the model's construction shall be in the key (temperature, …): with ``inner``
    None they cannot be asked of it. ``inner`` may be None when everything is answered from the recording.

    The key is made of the model's name, ``parameters``, the messages, the tools, the stop sequences (as a set) and
    every option of the call. Ids that LangChain gives to messages by itself are left out. A call recorded whole
    answers a streamed one, as one chunk, and the other way round. A response comes back as what is recorded of it,
    live and replayed.

    Raises `CanonicalizationError` or `ValueEncodingError` (with the path) for an option that has no canonical form
    (NaN, a class, …) before the model is called, `ReplayMismatch` for a call that the recording does not answer,
    `UsageError` where a call must go to the model and ``inner`` is None.
    """

    inner: BaseChatModel | None = None
    session: ReplaySession | None = None
    model_name: str
    parameters: Mapping[str, Any] = {}

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    #: What `bind_tools` was given: the tools as they are, for the model, and their schemas, for the key.
    _tools: Sequence[Any] | None = PrivateAttr(default=None)
    _tool_options: dict[str, Any] = PrivateAttr(default_factory=dict)
    _schemas: list[dict[str, Any]] | None = PrivateAttr(default=None)

    @property
    def _llm_type(self) -> str:
        return "replaypack"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, **self.parameters, "tools": self._schemas, **self._tool_options}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return this model with tools. Their schemas are keyed in OpenAI's form, whatever ``inner`` makes of them."""
        bound: Self = self.model_copy()
        bound._tools = list(tools)
        bound._tool_options = dict(kwargs) if tool_choice is None else {**kwargs, "tool_choice": tool_choice}
        bound._schemas = [convert_to_openai_tool(tool) for tool in tools]
        return bound

    # What tells calls apart

    def _identity(self, messages: Sequence[BaseMessage], stop: Sequence[str] | None, options: Mapping[str, Any]) -> Any:
        identity: dict[str, Any] = {
            "model": self.model_name,
            "messages": [_without_own_id(message_to_dict(message)) for message in messages],
        }
        if self.parameters:
            identity["parameters"] = dict(self.parameters)
        if self._schemas is not None:
            identity["tools"] = self._schemas
        if stop is not None:
            identity["stop"] = sorted(set(stop))
        options = {name: value for name, value in {**self._tool_options, **options}.items() if name not in _NOTES}
        if options:
            identity["options"] = options
        return identity

    def _model(self, options: dict[str, Any]) -> tuple[BaseChatModel, dict[str, Any]]:
        """The model to call and its options, the tools bound in its own way."""
        if self.inner is None:
            raise UsageError(
                f"a call of {self.model_name} has to go to the model, and there is none",
                hint="give inner=…, or a recording that answers every call",
            )
        if self._tools is None:
            return self.inner, options
        binding = self.inner.bind_tools(self._tools, **self._tool_options)
        bound = binding
        kwargs: dict[str, Any] = {}
        while isinstance(bound, RunnableBinding):
            kwargs = {**bound.kwargs, **kwargs}
            bound = bound.bound
        if not isinstance(bound, BaseChatModel):
            raise UsageError(f"bind_tools of {type(self.inner).__name__} returns a {type(bound).__name__}, not a model")
        return bound, {**kwargs, **options}

    # Calls

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        def call() -> ChatResult:
            model, options = self._model(kwargs)
            return model._generate(messages, stop=stop, run_manager=run_manager, **options)

        session = self.session or current_session()
        if session is None:
            return call()
        identity = self._identity(messages, stop, kwargs)
        answer = session.call(BoundaryKind.MODEL, identity, lambda: _plain(call()), name=self.model_name)
        if isinstance(answer, dict):
            return _result(answer)
        if isinstance(answer, AsyncIterator):
            # It was recorded from an asynchronous stream, and there may be a loop running here already.
            with ThreadPoolExecutor(1) as pool:
                return _joined(pool.submit(asyncio.run, _collected(answer)).result())
        return _joined(list(answer))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        async def call() -> ChatResult:
            model, options = self._model(kwargs)
            return await model._agenerate(messages, stop=stop, run_manager=run_manager, **options)

        async def plain() -> Any:
            return _plain(await call())

        session = self.session or current_session()
        if session is None:
            return await call()
        identity = self._identity(messages, stop, kwargs)
        answer = await session.acall(BoundaryKind.MODEL, identity, plain, name=self.model_name)
        if isinstance(answer, dict):
            return _result(answer)
        return _joined(await _collected(answer) if isinstance(answer, AsyncIterator) else list(answer))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        def call() -> Iterator[Any]:
            model, options = self._model(kwargs)
            if type(model)._stream is BaseChatModel._stream:
                yield _plain(model._generate(messages, stop=stop, run_manager=run_manager, **options))
                return
            for chunk in model._stream(messages, stop=stop, run_manager=run_manager, **options):
                yield _plain_generation(chunk)

        session = self.session or current_session()
        if session is None:
            items: Iterator[Any] = call()
        else:
            identity = self._identity(messages, stop, kwargs)
            items = session.stream(BoundaryKind.MODEL, identity, call, name=self.model_name)
        for item in items:
            yield _chunk(item)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async def call() -> AsyncIterator[Any]:
            model, options = self._model(kwargs)
            cls = type(model)
            if cls._astream is BaseChatModel._astream and cls._stream is BaseChatModel._stream:
                yield _plain(await model._agenerate(messages, stop=stop, run_manager=run_manager, **options))
                return
            async for chunk in model._astream(messages, stop=stop, run_manager=run_manager, **options):
                yield _plain_generation(chunk)

        session = self.session or current_session()
        if session is None:
            items: AsyncIterator[Any] = call()
        else:
            identity = self._identity(messages, stop, kwargs)
            items = session.astream(BoundaryKind.MODEL, identity, call, name=self.model_name)
        async for item in items:
            yield _chunk(item)


def _without_own_id(message: dict[str, Any]) -> dict[str, Any]:
    id_ = message["data"].get("id")
    if id_ is None or (isinstance(id_, str) and id_.startswith(_OWN_IDS)):
        message["data"].pop("id", None)
    return message


# What is recorded: a whole result, or the chunks of a stream


def _plain(result: ChatResult) -> dict[str, Any]:
    generations = [_plain_generation(generation) for generation in result.generations]
    return {"generations": generations, "llm_output": result.llm_output}


def _plain_generation(generation: ChatGeneration) -> dict[str, Any]:
    # A copy: LangChain writes an id of its own into the message afterwards.
    message = message_to_dict(generation.message)
    return {"message": _without_own_id(message), "generation_info": generation.generation_info}


def _result(answer: Mapping[str, Any]) -> ChatResult:
    return ChatResult(
        generations=[
            ChatGeneration(message=_message(entry), generation_info=entry.get("generation_info"))
            for entry in answer["generations"]
        ],
        llm_output=answer.get("llm_output"),
    )


def _message(entry: Mapping[str, Any]) -> BaseMessage:
    [message] = messages_from_dict([entry["message"]])
    return message


def _chunk(item: Mapping[str, Any]) -> ChatGenerationChunk:
    entry = item["generations"][0] if "generations" in item else item
    message = _message(entry)
    if not isinstance(message, BaseMessageChunk):
        message = AIMessageChunk.model_validate({**message.model_dump(exclude={"type"}), "chunk_position": "last"})
    return ChatGenerationChunk(message=message, generation_info=entry.get("generation_info"))


def _joined(items: list[Any]) -> ChatResult:
    if len(items) == 1 and "generations" in items[0]:
        return _result(items[0])
    return generate_from_stream(_chunk(item) for item in items)


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]
