"""An Anthropic client's body to a ChatInput: its messages of blocks in their neutral form."""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.api.answer.shapes import UNTHREADED
from worker.api.anthropic.loaded_tools import loaded_tools
from worker.api.anthropic.schemas import CHOICES, AnthropicChoice, MessageParam, MessagesRequest
from worker.api.intake.bounds import stops_of, tokens_of
from worker.api.intake.chat.chat_input import ChatInput, puts_words
from worker.api.intake.chat.content_parts import (
    ContentPart,
    check_pictures,
    newest,
    parts_of,
    text_of_parts,
    words_of,
)
from worker.api.intake.chat.past_message import (
    arguments_of,
    call_name,
    name_of,
    result_of,
    role_of,
)
from worker.api.intake.chat.tools import ToolChoice, Tools, settle, tools_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.sampling import sampling_of
from worker.api.intake.thinking import thinking_of
from worker.budget import Budget
from worker.chat.message import Call, Message
from worker.engine.request import GenerationParams
from worker.errors import RequestError

PARAM = "messages"
# Claude Code begins its system text with a line that is another one for each request. With it in
# the prompt nothing that follows would be found in the cache.
_BILLING = re.compile(r"\s*x-anthropic-billing-header:[^\n]*\n?")


def messages_of(body: MessagesRequest, media: MediaInputs) -> tuple[Message, ...]:
    """Raises RequestError that names the place.

    A tool's result is a message of its own. Neighbours of one role are one message.
    """
    found: list[Message] = []
    if system := _system(body, media):
        found.append(Message(role="system", content=system))
    names: dict[str, str] = {}  # of the tools that were called, by the id of the call
    given = [
        (place, each, role_of(each.role)) for place, each in enumerate(body.messages or ()) if each
    ]
    first = newest([role for _, _, role in given])
    for number, (place, message, role) in enumerate(given):
        if number >= first and role == "user":
            check_pictures(message.content, f"{PARAM}[{place}].content", PARAM, media)
        if role == "assistant":
            parts = _from_assistant(message, names, media)
        else:
            parts = _from_user(message, role, names, media)
        for part in parts:
            if found and found[-1].role == part.role != "tool":
                found[-1] = _join(found[-1], part)
            else:
                found.append(part)
    return tuple(found)


def _system(body: MessagesRequest, media: MediaInputs) -> str:
    said = (words_of(part, media) for part in parts_of(body.system))
    texts = [text for text in said if text]
    texts = [_BILLING.sub("", text, count=1) if _BILLING.match(text) else text for text in texts]
    return "\n".join(text for text in texts if text)


def _from_user(
    message: MessageParam, role: str, names: dict[str, str], media: MediaInputs
) -> Iterable[Message]:
    """Texts and results, in their order."""
    texts: list[ContentPart] = []
    found: list[Message] = []
    for block in parts_of(message.content):
        if block.get("type") != "tool_result":
            texts.append(block)
            continue
        if texts:
            found.append(Message(role=role, content=text_of_parts(texts, media)))
            texts = []
        found.append(_result(block, names, media))
    if texts or not found:
        found.append(Message(role=role, content=text_of_parts(texts, media)))
    return found


def _from_assistant(
    message: MessageParam, names: dict[str, str], media: MediaInputs
) -> Iterable[Message]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    for block in parts_of(message.content):
        said = words_of(block, media)
        if block.get("type") == "tool_use":
            call = _call(block)
            names[call.id] = call.name
            calls.append(call)
        elif said is not None:
            (thoughts if block.get("type") == "thinking" else texts).append(said)
    yield Message(
        role="assistant",
        content="\n".join(texts) if texts or not calls else None,
        thought="\n".join(thoughts) or None,
        calls=tuple(calls),
    )


def _call(block: ContentPart) -> Call:
    fields = ("input", "arguments", "args", "parameters")
    given = next((block[name] for name in fields if block.get(name) is not None), None)
    name = call_name(block.get("name"))
    return Call(name_of(block.get("id")) or "", name, arguments_of(given))


def _result(block: ContentPart, names: dict[str, str], media: MediaInputs) -> Message:
    """One without an id is that of the first call that has none."""
    known = name_of(block.get("tool_use_id"))
    return result_of(block, call_id=known, name=names.get(known or ""), media=media)


def _join(first: Message, second: Message) -> Message:
    def both(left: str | None, right: str | None) -> str | None:
        return f"{left}\n{right}" if left and right else left or right

    return Message(
        role=first.role,
        content=both(first.content, second.content),
        thought=both(first.thought, second.thought),
        calls=first.calls + second.calls,
    )


OWN = (None, "custom", "function")  # types of tools that the client runs by a schema


def chat_input_of(body: MessagesRequest, facts: ModelFacts, budget: Budget) -> ChatInput:
    """Raises RequestError that names the field; blocks: a grammar is checked."""
    media = MediaInputs(facts.media, budget)
    if not body.messages:
        raise RequestError("messages is missing.", param=PARAM, hint="Send one message.")
    if body.thread is not None:
        raise RequestError(
            "thread cannot be: this worker stores nothing between requests.",
            param="thread",
            hint="Send the whole conversation.",
            code=UNTHREADED,
        )
    messages = messages_of(body, media)
    asked = body.tool_choice
    asked = AnthropicChoice(asked) if isinstance(asked, str) and asked else asked or None
    declared = tools_of(loaded_tools(body, asked.name if asked else None), OWN)
    choice = _choice(asked, declared)
    return ChatInput(
        messages=messages,
        media=media,
        params=GenerationParams(
            prompt_param=PARAM,
            sampling=sampling_of(body, facts, budget),
            max_tokens=_max_tokens(body),
            stop=stops_of(body.stop_sequences, "stop_sequences"),
        ),
        tools=choice.tools,
        left_out=tuple(declared.left_out),
        choice=choice.mode,
        only=choice.only,
        parallel=not (asked and asked.disable_parallel_tool_use),
        thinking=thinking_of(body, settings=facts.settings),
        variables=body.chat_template_kwargs or {},
        continues=puts_words(messages),
    )


def _choice(asked: AnthropicChoice | None, tools: Tools) -> ToolChoice:
    if asked is None:
        return settle(ToolChoice(), tools)
    mode = CHOICES.get(asked.type)
    if mode is None:
        raise RequestError("tool_choice.type must be auto, any, tool or none.", param="tool_choice")
    choice = ToolChoice(mode)
    if asked.type == "tool":
        if asked.name is None:
            raise RequestError("tool_choice.name is missing.", param="tool_choice")
        choice = ToolChoice(mode, asked.name)
    return settle(choice, tools)


def _max_tokens(body: MessagesRequest) -> int | None:
    """0 reads the prompt only, which fills the cache."""
    given = body.max_tokens
    if given is None:
        return tokens_of(n_predict=body.n_predict, default=None)
    if given < 0:
        raise RequestError("max_tokens must not be negative.", param="max_tokens")
    return given
