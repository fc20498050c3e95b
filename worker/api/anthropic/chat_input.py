"""An Anthropic client's body to a ChatInput."""

from __future__ import annotations

from worker.api.anthropic.history import PARAM, messages_of
from worker.api.anthropic.schemas import CHOICES, AnthropicChoice, MessagesRequest
from worker.api.common.bounds import stops_of, tokens_of
from worker.api.common.chat.chat_input import ChatInput, puts_words
from worker.api.common.chat.tools import ToolChoice, Tools, check_choice, tools_of
from worker.api.common.sampling import sampling_of
from worker.api.common.shapes import UNTHREADED
from worker.api.common.thinking import thinking_of
from worker.engine.request import GenerationParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded

OWN = (None, "custom", "function")  # types of tools that the client runs by a schema


def chat_input_of(body: MessagesRequest, loaded: Loaded) -> ChatInput:
    """Raises RequestError that names the field; blocks: a grammar is checked."""
    if not body.messages:
        raise RequestError("messages is missing.", param=PARAM, hint="Send one message.")
    if body.thread is not None:
        raise RequestError(
            "thread cannot be: this worker stores nothing between requests.",
            param="thread",
            hint="Send the whole conversation.",
            code=UNTHREADED,
        )
    messages = messages_of(body)
    declared = tools_of(body.tools, OWN)
    tools = declared.shown
    asked = body.tool_choice
    asked = AnthropicChoice(asked) if isinstance(asked, str) and asked else asked or None
    choice = _choice(asked, declared)
    return ChatInput(
        messages=messages,
        params=GenerationParams(
            prompt_param=PARAM,
            sampling=sampling_of(body, loaded),
            max_tokens=_max_tokens(body),
            stop=stops_of(body.stop_sequences, "stop_sequences"),
        ),
        tools=choice.among(tools),
        left_out=tuple(declared.left_out),
        choice=choice.mode,
        only=choice.only,
        parallel=not (asked and asked.disable_parallel_tool_use),
        thinking=thinking_of(body, settings=loaded.settings),
        variables=body.chat_template_kwargs or {},
        continues=puts_words(messages),
    )


def _choice(asked: AnthropicChoice | None, tools: Tools) -> ToolChoice:
    if asked is None:
        return ToolChoice()
    mode = CHOICES.get(asked.type)
    if mode is None:
        raise RequestError("tool_choice.type must be auto, any, tool or none.", param="tool_choice")
    choice = ToolChoice(mode)
    if asked.type == "tool":
        if asked.name is None:
            raise RequestError("tool_choice.name is missing.", param="tool_choice")
        choice = ToolChoice(mode, asked.name)
    check_choice(choice, tools)
    return choice


def _max_tokens(body: MessagesRequest) -> int | None:
    """0 reads the prompt only, which fills the cache."""
    given = body.max_tokens
    if given is None:
        return tokens_of(n_predict=body.n_predict, default=None)
    if given < 0:
        raise RequestError("max_tokens must not be negative.", param="max_tokens")
    return given
