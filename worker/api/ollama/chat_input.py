"""An Ollama client's body to a ChatInput, or to the Generation of a plain text."""

from __future__ import annotations

from worker.api.common.bounds import check_alternatives, stops_of
from worker.api.common.chat.chat_input import ChatInput, puts_words
from worker.api.common.chat.parts import check_pictures
from worker.api.common.chat.parts import text_of as said_in
from worker.api.common.chat.past_message import PastMessage, message_of, pictures_of
from worker.api.common.chat.tools import DeclaredTools, tools_of
from worker.api.common.generation import Generation
from worker.api.common.prompts import infill_prompt, text_prompt
from worker.api.common.sampling import sampling_of
from worker.api.common.thinking import thinking_of
from worker.api.ollama.history import messages_of
from worker.api.ollama.schemas import (
    GenerateRequest,
    OllamaChatRequest,
    OllamaOptions,
    OllamaRequest,
)
from worker.chat.message import Message
from worker.engine.request import GenerationParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded

PARAM = "prompt"


def chat_of(body: OllamaChatRequest, loaded: Loaded) -> ChatInput:
    """Raises RequestError that names the field; blocks: a schema is compiled."""
    return _talk(body, messages_of(body), "messages", loaded, body.tools)


def question_of(body: GenerateRequest, loaded: Loaded) -> ChatInput:
    """A prompt as a conversation of one question. Raises and blocks as above."""
    check_pictures(pictures_of(body.images), "images", "images")
    asked = PastMessage(content=body.prompt or "", images=body.images)
    messages = [message_of(asked, "user")]
    if system := said_in(body.system):
        messages.insert(0, Message(role="system", content=system))
    return _talk(body, tuple(messages), PARAM, loaded)


def text_of(body: GenerateRequest, loaded: Loaded) -> Generation:
    """A prompt to continue as it is. Raises and blocks as above."""
    text = body.prompt or ""
    if body.images:
        raise RequestError(
            "images stand where a chat template puts them.",
            param="images",
            hint="Ask without raw and suffix, of a model that has one.",
        )
    if body.suffix:
        prompt = infill_prompt(text, body.suffix, loaded, PARAM)
    else:
        prompt = text_prompt(text, loaded, PARAM)
    return Generation(prompts=(prompt,), params=_params(body, PARAM, loaded))


def check_generate(body: GenerateRequest) -> None:
    """Raise RequestError for what no prompt can have here."""
    if body.context:
        raise RequestError(
            "context is of another server: this worker stores nothing between requests.",
            param="context",
            hint="Send the whole conversation to /api/chat.",
        )


def check_asked(body: OllamaRequest, loaded: Loaded) -> None:
    """Raise RequestError for what no answer can have, also where none is asked for; blocks."""
    _params(body, PARAM, loaded)


def _talk(
    body: OllamaRequest,
    messages: tuple[Message, ...],
    param: str,
    loaded: Loaded,
    declared: DeclaredTools = None,
) -> ChatInput:
    options, tools = body.options or OllamaOptions(), tools_of(declared)
    return ChatInput(
        messages=messages,
        params=_params(body, param, loaded),
        tools=tools.shown,
        left_out=tuple(tools.left_out),
        thinking=thinking_of(body, options, settings=loaded.settings),
        continues=puts_words(messages),
        variables=(body.chat_template_kwargs or {}) | (options.chat_template_kwargs or {}),
    )


def _params(body: OllamaRequest, param: str, loaded: Loaded) -> GenerationParams:
    options = body.options or OllamaOptions()
    return GenerationParams(
        prompt_param=param,
        stop=stops_of(options.stop),
        logprobs=_logprobs(body),
        sampling=sampling_of(options, loaded, body),
        max_tokens=_max_tokens(options, body, loaded.settings.n_predict),
    )


def _max_tokens(options: OllamaOptions, body: OllamaRequest, default: int | None) -> int | None:
    asked = (options.num_predict, options.n_predict, body.n_predict, default)
    given = next((count for count in asked if count is not None), None)
    return None if given is None or given <= 0 else given


def _logprobs(body: OllamaRequest) -> int | None:
    check_alternatives(top_logprobs=body.top_logprobs)
    return (body.top_logprobs or 0) if body.logprobs else None
