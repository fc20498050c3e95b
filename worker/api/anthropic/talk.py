"""An Anthropic client's body to a Talk."""

from __future__ import annotations

from typing import Any

from worker.api.anthropic.history import PARAM, messages_of
from worker.api.anthropic.schemas import (
    CHOICES,
    THINKING,
    AnthropicChoice,
    MessagesRequest,
    OutputFormat,
    ThinkingConfig,
)
from worker.api.common.limits import stops_of
from worker.api.common.shapes.anthropic import UNTHREADED
from worker.api.common.talk.form import json_of, sampling_in_form
from worker.api.common.talk.talk import Talk
from worker.api.common.talk.tools import ToolChoice, check_choice, tools_of
from worker.chat.effort import AskedEffort, effort_of
from worker.chat.format import Thinking
from worker.chat.message import Message, Tool
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded

FORMAT = "output_config.format"
OWN = (None, "custom", "function")  # types of tools that the client runs by a schema


def talk_of(body: MessagesRequest, loaded: Loaded) -> Talk:
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
    choice = _choice(asked, tools)
    effort = None if body.output_config is None else body.output_config.effort
    return Talk(
        messages=messages,
        param=PARAM,
        tools=choice.among(tools),
        left_out=tuple(declared.left_out),
        choice=choice.mode,
        only=choice.only,
        parallel=not (asked and asked.disable_parallel_tool_use),
        thinking=_thinking(body.thinking, effort, body.reasoning_effort, body.think),
        continues=_continues(messages),
        sampling=sampling_in_form(body, _form(body), FORMAT, loaded),
        max_tokens=_max_tokens(body.max_tokens),
        stop=stops_of(body.stop_sequences, "stop_sequences"),
    )


def _choice(asked: AnthropicChoice | None, tools: tuple[Tool, ...]) -> ToolChoice:
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
    check_choice(choice, {tool.name for tool in tools})
    return choice


def _thinking(asked: ThinkingConfig | AskedEffort, *efforts: AskedEffort) -> Thinking:
    is_on, effort = effort_of(*efforts)
    if asked is None or is_on is False:
        return Thinking(is_on=is_on, effort=effort)
    if not isinstance(asked, ThinkingConfig):
        asked = ThinkingConfig(asked)
    if asked.type in (None, ""):
        return Thinking(is_on=is_on, effort=effort)
    thinks, word = effort_of(asked.type)
    if thinks is None and word not in THINKING:
        known = ", ".join(("enabled", "disabled", *THINKING))
        raise RequestError(f"thinking.type must be one of {known}.", param="thinking")
    if asked.budget_tokens is not None and asked.budget_tokens < 1:
        raise RequestError("thinking.budget_tokens must be at least 1.", param="thinking")
    return Thinking(is_on=thinks is not False, effort=effort, budget=asked.budget_tokens)


def _continues(messages: tuple[Message, ...]) -> bool:
    """Whether the answer goes on with what the last message puts into the model's mouth: a text."""
    last = messages[-1]
    return last.role == "assistant" and not last.calls and bool((last.content or "").strip())


def _form(body: MessagesRequest) -> dict[str, Any] | None:
    asked: OutputFormat | None = body.output_format
    if body.output_config is not None and body.output_config.format is not None:
        asked = body.output_config.format
    if asked is None:
        return None
    schema = asked.json_schema if asked.schema is None else asked.schema
    if asked.type != "json_schema" or schema is None:
        raise RequestError(f"{FORMAT} must be of type json_schema and have a schema.", param=FORMAT)
    return json_of(schema)


def _max_tokens(given: int | None) -> int | None:
    """0 reads the prompt only, which fills the cache."""
    if given is not None and given < 0:
        raise RequestError("max_tokens must not be negative.", param="max_tokens")
    return given
