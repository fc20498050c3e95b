"""An Ollama client's body to a ChatInput, or to the Generation of a plain text."""

from __future__ import annotations

import msgspec

from worker.api.intake.bounds import check_alternatives, stops_of
from worker.api.intake.chat.chat_input import ChatInput, puts_words
from worker.api.intake.chat.content_parts import check_pictures, newest, text_of
from worker.api.intake.chat.past_message import PastMessage, message_of, pictures_of, role_of
from worker.api.intake.chat.tools import DeclaredTools, tools_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.prompts import infill_prompt, text_prompt
from worker.api.intake.sampling import sampling_of
from worker.api.intake.thinking import thinking_of
from worker.api.ollama.schemas import (
    GenerateRequest,
    OllamaChatRequest,
    OllamaOptions,
    OllamaRequest,
)
from worker.budget import Budget
from worker.chat.message import Call, Message
from worker.engine.request import GenerationParams
from worker.errors import RequestError

_MESSAGES = "messages"


def messages_of(body: OllamaChatRequest, media: MediaInputs) -> tuple[Message, ...]:
    """Raises RequestError that names the place.

    Calls without an id get one, and results are given to the calls before them: by id, by the
    tool's name, or in their order.
    """
    found: list[Message] = []
    open_calls: list[Call] = []
    count = 0
    given = body.messages or []
    if given and (system := text_of(body.system, media)):
        found.append(Message(role="system", content=system))
    told = [(place, each, role_of(each.role, each)) for place, each in enumerate(given) if each]
    first = newest([role for _, _, role in told])
    for number, (place, message, role) in enumerate(told):
        where = f"{_MESSAGES}[{place}]"
        if number >= first and role == "user":
            check_pictures(pictures_of(message.images), f"{where}.images", _MESSAGES, media)
            check_pictures(message.content, f"{where}.content", _MESSAGES, media)
        said = message_of(message, role, media)
        if said.role == "tool":
            found.append(_match_call(said, open_calls))
            continue
        open_calls = []
        for call in said.calls:
            # Nine letters and digits: some templates take no other id.
            known = call.id or f"call{count:05}"
            open_calls.append(msgspec.structs.replace(call, id=known))
            count += 1
        found.append(msgspec.structs.replace(said, calls=tuple(open_calls)))
    return tuple(found)


def _match_call(result: Message, open_calls: list[Call]) -> Message:
    """Takes the call that it answers out of the open ones."""

    def is_meant(call: Call) -> bool:
        if result.call_id:
            return call.id == result.call_id
        return not result.name or call.name == result.name

    call = next(filter(is_meant, open_calls), None)
    if call is None:
        return result
    open_calls.remove(call)
    return msgspec.structs.replace(result, call_id=call.id, name=result.name or call.name)


PARAM = "prompt"


def chat_input_of(body: OllamaChatRequest, facts: ModelFacts, budget: Budget) -> ChatInput:
    """Raises RequestError that names the field; blocks: a schema is compiled."""
    media = MediaInputs(facts.media, budget)
    return _talk(body, messages_of(body, media), _MESSAGES, facts, media, body.tools)


def question_of(body: GenerateRequest, facts: ModelFacts, budget: Budget) -> ChatInput:
    """A prompt as a conversation of one question. Raises and blocks as above."""
    media = MediaInputs(facts.media, budget)
    check_pictures(pictures_of(body.images), "images", "images", media)
    asked = PastMessage(content=body.prompt or "", images=body.images)
    messages = [message_of(asked, "user", media)]
    if system := text_of(body.system, media):
        messages.insert(0, Message(role="system", content=system))
    return _talk(body, tuple(messages), PARAM, facts, media)


def continuation_of(body: GenerateRequest, facts: ModelFacts, budget: Budget) -> Generation:
    """A prompt to continue as it is. Raises and blocks as above."""
    text = body.prompt or ""
    if body.images:
        raise RequestError(
            "images stand where a chat template puts them.",
            param="images",
            hint="Ask without raw and suffix, of a model that has one.",
        )
    if body.suffix:
        prompt = infill_prompt(text, body.suffix, facts, PARAM, budget)
    else:
        prompt = text_prompt(text, facts, PARAM, budget)
    return Generation(prompts=(prompt,), params=_params(body, PARAM, facts, budget))


def check_generate(body: GenerateRequest) -> None:
    """Raise RequestError for what no prompt can have here."""
    if body.context:
        raise RequestError(
            "context is of another server: this worker stores nothing between requests.",
            param="context",
            hint="Send the whole conversation to /api/chat.",
        )


def check_asked(body: OllamaRequest, facts: ModelFacts, budget: Budget) -> None:
    """Raise RequestError for what no answer can have, also where none is asked for; blocks."""
    _params(body, PARAM, facts, budget)


def _talk(
    body: OllamaRequest,
    messages: tuple[Message, ...],
    param: str,
    facts: ModelFacts,
    media: MediaInputs,
    declared: DeclaredTools = None,
) -> ChatInput:
    options, tools = body.options or OllamaOptions(), tools_of(declared)
    return ChatInput(
        messages=messages,
        params=_params(body, param, facts, media.budget),
        media=media,
        tools=tools.shown,
        left_out=tuple(tools.left_out),
        thinking=thinking_of(body, options, settings=facts.settings),
        continues=puts_words(messages),
        variables=(body.chat_template_kwargs or {}) | (options.chat_template_kwargs or {}),
    )


def _params(body: OllamaRequest, param: str, facts: ModelFacts, budget: Budget) -> GenerationParams:
    options = body.options or OllamaOptions()
    return GenerationParams(
        prompt_param=param,
        stop=stops_of(options.stop),
        logprobs=_logprobs(body),
        sampling=sampling_of(options, facts, budget, body),
        max_tokens=_max_tokens(options, body, facts.settings.n_predict),
    )


def _max_tokens(options: OllamaOptions, body: OllamaRequest, default: int | None) -> int | None:
    asked = (options.num_predict, options.n_predict, body.n_predict, default)
    given = next((count for count in asked if count is not None), None)
    return None if given is None or given <= 0 else given


def _logprobs(body: OllamaRequest) -> int | None:
    check_alternatives(top_logprobs=body.top_logprobs)
    return (body.top_logprobs or 0) if body.logprobs else None
