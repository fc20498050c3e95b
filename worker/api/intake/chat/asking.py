"""A ChatInput made ready for the engine: rendered, tokenised, checked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

from worker import log
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.chat.templates import WITH_DOCUMENTS, WITH_TOOLS
from worker.api.intake.chat.tools import names_of
from worker.api.intake.chat.truncation import checkpoints_of, truncate
from worker.api.intake.constraints import not_held
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.prompts import check_hopeless, rendered_prompt
from worker.chat.constraint import PARAM as TOOLS
from worker.chat.conversation import Conversation
from worker.chat.format import ChatFormat
from worker.chat.message import Message
from worker.chat.reader import ChatReader
from worker.chat.reading.answer import ThoughtTags
from worker.chat.reading.call_grammar import Loosened, by_types
from worker.engine.request import GenerationParams, SpanLimit
from worker.engine.sampling import INT32_MAX
from worker.errors import RequestError
from worker.grammar.constraint import Constraint
from worker.limits import COUNTED, MESSAGES
from worker.requests.prompts import ChatParts, Turn

_log = log.get("talk")
_SYSTEM = ("system", "developer")
_RESERVED = ("messages", "tools", "add_generation_prompt")
_MESSAGES = "messages"  # how templates' errors call what they are given


def ask(
    talk: ChatInput, chat: ChatFormat, facts: ModelFacts, *, must_fit: bool = True
) -> Generation:
    """Raises RequestError that names the client's field; blocks.

    must_fit  the context holds the prompt; else it is only to be looked at
    """
    param = talk.params.prompt_param
    try:
        return _generation_of(talk, chat, facts, must_fit=must_fit)
    except RecursionError:
        raise RequestError("A tool holds too many values in each other.", param=TOOLS) from None
    except RequestError as error:
        if error.param != _MESSAGES or param == _MESSAGES:
            raise
        raise RequestError(error.message, param=param, hint=error.hint, code=error.code) from None


def _generation_of(
    talk: ChatInput, chat: ChatFormat, facts: ModelFacts, *, must_fit: bool
) -> Generation:
    params, names = talk.params, None
    if talk.tools or any(message.calls for message in talk.messages):
        names = names_of(talk)
        talk = names.rename(talk)
    wanted = WITH_TOOLS if talk.tools else WITH_DOCUMENTS if "documents" in talk.variables else ""
    chat = chat.named.get(wanted, chat)
    conversation = conversation_of(talk, chat, facts, must_fit=must_fit)
    param, truncated = params.prompt_param, None
    if talk.truncates:
        conversation, prompt, truncated = truncate(
            conversation, params.max_tokens, facts, param, talk.media
        )
    else:
        prompt = rendered_prompt(conversation.text, facts, param, talk.media, must_fit=must_fit)
    if truncated is None:
        check_arrived(talk.messages, conversation.text, chat.thoughts.tags, param)
    if facts.needs_rest:
        checkpoints = checkpoints_of(conversation, prompt.tokens, facts)
        prompt = msgspec.structs.replace(prompt, checkpoints=checkpoints)
    warnings = talk.left_out
    if params.sampling.constraint is not None:
        warnings += not_held(params.sampling.constraint)
    text, tools = conversation.text, talk.callable if talk.tools else ()

    def reader() -> ChatReader:
        read = chat.reader(tools, prompt=text, thinking=talk.thinking, parallel=talk.parallel)
        return read if names is None else names.reader(read)

    generation = Generation(
        prompts=(prompt,),
        params=_params(talk, chat, text, facts),
        reader=reader,
        truncated=truncated,
        warnings=warnings,
        left_out=tuple(talk.media.left_out),
        parts=parts_of(talk, text),
    )
    if not must_fit:
        generation.check()  # else who runs it does
    return generation


def parts_of(talk: ChatInput, text: str) -> ChatParts:
    """What a prompt is compared by with those before. text: as it was rendered"""
    turns: list[Turn] = []
    for message in talk.messages:
        said = message.content or (message.calls[0].name if message.calls else "")
        turns.append(Turn(message.role, hash(message), said, message.thought or ""))
    given = msgspec.json.encode([talk.tools, talk.variables])
    return ChatParts(tuple(turns), hash((given, talk.thinking)), text)


def _params(talk: ChatInput, chat: ChatFormat, prompt: str, facts: ModelFacts) -> GenerationParams:
    """The talk's, with what only this model and this prompt tell."""
    params, limit = talk.params, None
    sampling = params.sampling
    is_told = talk.only is not None or talk.choice == "required"
    if talk.tools or is_told or sampling.constraint is not None:
        constraint = _prepared_constraint(talk, chat, prompt, facts)
        if constraint is not None:
            sampling = msgspec.structs.replace(sampling, constraint=constraint)
    if talk.thinking.budget is not None or talk.controlled:
        limit = _limit(talk, chat, prompt, facts)
    return msgspec.structs.replace(params, sampling=sampling, spelled=chat.spelled, limit=limit)


def _limit(talk: ChatInput, chat: ChatFormat, prompt: str, facts: ModelFacts) -> SpanLimit | None:
    """Of the thoughts, if the model thinks."""
    budget, end = talk.thinking.budget, chat.thought_end(prompt)
    if end is None:
        return None
    budget = INT32_MAX if budget is None else budget
    forced = facts.vocab.tokenize(
        f"{facts.settings.reasoning_budget_message}{end.text}",
        add_special=False,
        parse_special=True,
    )
    return SpanLimit(budget, end.opens, end.ends, tuple(forced), end.is_open)


def _prepared_constraint(
    talk: ChatInput, chat: ChatFormat, prompt: str, facts: ModelFacts
) -> Constraint | None:
    """What holds the answer. Tools that are too many to be held are held by their types, and then
    not at all, unless there must be a call. Raises RequestError."""
    must = talk.choice == "required" or talk.only is not None
    must = must or talk.params.sampling.constraint is not None
    if not must and (not talk.tools or talk.choice == "none"):
        return None
    for loosened in (facts.guides.loosener(), by_types):
        try:
            constraint = _constraint(talk, chat, prompt, loosened)
            if constraint is not None:
                facts.guides.prepare(constraint, talk.media.budget)
            return constraint
        except RequestError as error:
            if error.param != TOOLS or (must and loosened is by_types):
                raise
            _log.warning("tools are not held by their schemas", why=str(error))
    return None


def _constraint(
    talk: ChatInput, chat: ChatFormat, prompt: str, loosened: Loosened
) -> Constraint | None:
    """What holds the answer to calls and to the structure asked for. Raises RequestError."""
    tools = talk.callable
    if talk.only is not None and not tools:
        raise RequestError(f"No tool is named {talk.only[:100]}.", param="tool_choice")
    required = talk.choice == "required" or talk.only is not None
    if required and not tools:
        raise RequestError("A call is required, but there are no tools.", param="tool_choice")
    return chat.constraint(
        tools,
        prompt=prompt,
        thinking=talk.thinking,
        required=required,
        parallel=talk.parallel and talk.only is None,
        loosened=loosened,
        body=talk.params.sampling.constraint,
    )


def conversation_of(
    talk: ChatInput, chat: ChatFormat, facts: ModelFacts, *, must_fit: bool = True
) -> Conversation:
    """What the messages are to the template. Raises RequestError."""
    param = talk.params.prompt_param
    if not talk.messages:
        raise RequestError(f"{param} is missing.", param=param, hint="Send one message.")
    if len(talk.messages) > MESSAGES.most:
        raise RequestError(f"{param} must be at most {MESSAGES.most}.", param=param)
    if must_fit:
        texts: list[str] = []
        for message in talk.messages:
            texts.append(message.content or "")
            if message.calls:
                texts += [call.arguments for call in message.calls]
        size = sum(map(len, texts))
        if size > COUNTED.most:
            check_hopeless("\n".join(texts), size, facts, param, talk.media.budget)
    variables = talk.variables and {
        name: value
        for name, value in talk.variables.items()
        if name not in _RESERVED and name.isidentifier()
    }
    return chat.conversation(
        with_one_system(talk.messages),
        talk.tools,
        thinking=talk.thinking,
        add_generation_prompt=talk.opens,
        continues=talk.continues,
        variables=variables,
    )


def with_one_system(messages: Sequence[Message]) -> list[Message]:
    """The system's and the developer's messages at the beginning become one of the system's.

    Most templates leave out a developer's message without a word, and many refuse a second one of
    the system's. Later messages of a developer are the system's too.
    """
    first: list[Message] = []
    others: list[Message] = []
    for message in messages:
        if message.role in _SYSTEM and not others:
            first.append(message)
        elif message.role == "developer":
            others.append(msgspec.structs.replace(message, role="system"))
        else:
            others.append(message)
    if not first:
        return others
    texts = [message.content for message in first if message.content]
    return [msgspec.structs.replace(first[0], role="system", content="\n\n".join(texts)), *others]


_WORD = re.compile(r"\w+")
_MAX_WORDS, _MAX_SHOWN = 20, 40


def check_arrived(messages: Sequence[Message], text: str, tags: ThoughtTags, param: str) -> None:
    """Raise RequestError for a message none of whose words stand in the prompt's text.

    tags  around thoughts: templates drop old ones, also those that stand in the content
    """
    for place, message in enumerate(messages, 1):
        said = message.content or ""
        said = said.rpartition(tags.close)[2] if tags.close else said
        said = "" if tags.open and tags.open.strip() in said else said
        called = " ".join(call.name for call in message.calls) if message.calls else ""
        spoken = f"{said} {called}".strip()
        if spoken in text or _has_word(spoken, text):
            continue
        shown = said.strip()[:_MAX_SHOWN]
        raise RequestError(
            f"The model's chat template has no place for message {place}, of the role "
            f"{message.role[:50]}: nothing of {shown!r} is in the prompt.",
            param=param,
            hint="Say it as the user, or start the worker with another --chat-template.",
        )


def _has_word(said: str, text: str) -> bool:
    """Whether one of the longest words is there, as it is or as JSON; marks alone are no words."""
    words = sorted(set(_WORD.findall(said)), key=len, reverse=True)[:_MAX_WORDS]
    return not words or any(word in text or json.dumps(word)[1:-1] in text for word in words)
