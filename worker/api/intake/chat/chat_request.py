"""An OpenAI client's chat, and its ChatInput: fields checked, messages in their neutral form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from worker.api.intake.bounds import (
    TRUNCATIONS,
    between,
    check_alternatives,
    count_from,
    items,
    one_of,
    prompt_logprobs_of,
    stops_of,
    texts,
    tokens_of,
    truncates,
)
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.chat.content_parts import MessageContent, check_pictures, newest, text_of
from worker.api.intake.chat.past_message import PastMessage, message_of, role_of
from worker.api.intake.chat.tools import (
    ChoiceObject,
    DeclaredTools,
    ToolChoice,
    choice_of,
    tools_of,
)
from worker.api.intake.facts import ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.sampling import sampling_of
from worker.api.intake.thinking import FORMATS, ChatFields, thinking_of
from worker.budget import Budget
from worker.chat.message import Message
from worker.engine.request import GenerationParams
from worker.errors import RequestError
from worker.limits import LOGPROBS, MESSAGES, SEQUENCES, STOP, STOPS, TOOLS


class StreamOptions(msgspec.Struct, kw_only=True):
    """How a stream reports usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatMessage(PastMessage, kw_only=True):
    """One message of the conversation.

    role             system, developer, user, assistant, tool, or whatever else the template knows;
                     the words of any other, and of none, are the user's
    prefix, partial  true, of an assistant's last message: the answer goes on with it
    """

    role: str | None = None
    prefix: bool | None = None
    partial: bool | None = None


class ChatRequest(ChatFields, kw_only=True):
    """POST /v1/chat/completions; what makes the prompt is also the body of POST /apply-template.

    messages                the conversation, with what is to be answered at its end
    system                  a system message before it
    tools                   functions that the model may call
    tool_choice             auto, none, required, or the tool that is to be called
    parallel_tool_calls     false: an answer holds one call at most
    reasoning_format        none leaves thoughts in the content
    reasoning_budget_tokens, thinking_budget_tokens
                            tokens of thought at most; the first counts
    reasoning_control       true: /v1/chat/completions/control may end the thought (llama-server)
    chat_template           refused: the template is the model file's own
    functions, function_call
                            the form that tools had before; refused
    add_generation_prompt   false: the prompt ends without the assistant's opening
    continue_final_message  true: the last message goes on
    truncation              auto drops old turns where the context is too small
    max_tokens, max_completion_tokens
                            tokens to sample at most; -1, and where neither is given: until the
                            model or the context ends; 0 reads the prompt, which fills the cache
    n                       answers
    stop                    an answer ends before the first of these
    logprobs                true: the logprob of each token; a number above 0 is true
    top_logprobs            likeliest alternatives to report for each token; needs logprobs
    n_probs                 llama-server's name of both
    prompt_logprobs         the logprob of each prompt token and so many alternatives; not streamed
    stream                  true: events, one for each token
    stream_options          how a stream reports usage
    return_progress         true: each step that reads the prompt is an event, too
    return_token_ids        true: the ids of the prompt and of the answer, too
    return_tokens_as_token_ids
                            true: logprobs name tokens by their ids
    timings_per_token       true: events have timings
    verbose                 true, or as the worker is: the text that the model read, too
    """

    messages: Annotated[list[ChatMessage | None] | None, items(MESSAGES.most, least=1)] = None
    system: MessageContent = None
    tools: Annotated[DeclaredTools, items(TOOLS.most)] = None
    tool_choice: str | ChoiceObject | None = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    reasoning_format: Annotated[str | None, one_of(*FORMATS)] = None
    reasoning_budget_tokens: Annotated[int | None, count_from(0)] = None
    thinking_budget_tokens: Annotated[int | None, count_from(0)] = None
    reasoning_control: bool | None = None
    chat_template: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    truncation: Annotated[str | None, one_of(*TRUNCATIONS)] = None
    max_tokens: Annotated[int | None, count_from(0)] = None
    max_completion_tokens: Annotated[int | None, count_from(0)] = None
    n: Annotated[int | None, between(1, SEQUENCES.most)] = None
    stop: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None
    logprobs: Annotated[bool | int | None, between(0, LOGPROBS.most)] = None
    top_logprobs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    n_probs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    prompt_logprobs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    timings_per_token: bool | None = None
    verbose: bool | None = None


PARAM = "messages"
# Fields of the form that tools had before 2024 -> what to send instead.
_OLD = {
    "functions": 'Send tools: {"type": "function", "function": ...} for each.',
    "function_call": "Send tool_choice.",
}


def chat_input_of(body: ChatRequest, facts: ModelFacts, budget: Budget) -> ChatInput:
    """Raises RequestError that names the field; blocks: a grammar is checked."""
    media = MediaInputs(facts.media, budget)
    settings = facts.settings
    if body.chat_template is not None:
        raise RequestError(
            "A chat template in a request is not accepted; the model file's own is used.",
            param="chat_template",
        )
    for field, hint in _OLD.items():
        if getattr(body, field):
            raise RequestError(
                f"{field} is a form that is no longer read here.", param=field, hint=hint
            )
    choice, left_out = ToolChoice(), ()
    if body.tools or body.tool_choice:
        declared = tools_of(body.tools)
        choice, left_out = choice_of(body.tool_choice, declared), tuple(declared.left_out)
    logprobs, scored = None, body.prompt_logprobs
    if body.logprobs or body.top_logprobs or body.n_probs:
        logprobs = _logprobs(body)
    if scored is not None:
        scored = prompt_logprobs_of(scored, stream=body.stream)
    params = GenerationParams(
        prompt_param=PARAM,
        sampling=sampling_of(body, facts, budget),
        max_tokens=tokens_of(
            max_completion_tokens=body.max_completion_tokens,
            max_tokens=body.max_tokens,
            n_predict=body.n_predict,
            default=settings.n_predict,
        ),
        stop=stops_of(body.stop) if body.stop else (),
        n=1 if body.n is None else body.n,
        logprobs=logprobs,
        prompt_logprobs=scored,
        prompt_ranks=body.prompt_logprobs is not None,
        tells_progress=bool(body.stream and body.return_progress),
    )
    return ChatInput(
        messages=tuple(messages_of(body, media)),
        media=media,
        params=params,
        tools=choice.tools,
        left_out=left_out,
        choice=choice.mode,
        only=choice.only,
        parallel=body.parallel_tool_calls is not False,
        thinking=thinking_of(
            body,
            asked_format=body.reasoning_format,
            settings=settings,
            default_format=settings.reasoning_format,
            reasoning_budget_tokens=body.reasoning_budget_tokens,
            thinking_budget_tokens=body.thinking_budget_tokens,
        ),
        variables=body.chat_template_kwargs or {},
        opens=body.add_generation_prompt is not False,
        continues=_continues(body),
        controlled=bool(body.reasoning_control),
        truncates=body.truncation is not None and truncates(body.truncation),
    )


def _continues(body: ChatRequest) -> bool:
    """Others say so in the message itself."""
    if body.continue_final_message and body.add_generation_prompt:
        raise RequestError(
            "Where a message goes on no other one is opened.", param="add_generation_prompt"
        )
    last = next(filter(None, reversed(body.messages or ())), None)
    if last is None or not (last.prefix or last.partial):
        return bool(body.continue_final_message)
    return bool(body.continue_final_message) or role_of(last.role, last) == "assistant"


def _logprobs(body: ChatRequest) -> int | None:
    """Alternatives for each token; None: no logprobs. A number in `logprobs` is true, whatever it
    counts for completions."""
    if body.top_logprobs and not body.logprobs:
        raise RequestError(
            "top_logprobs needs logprobs.", param="top_logprobs", hint="Set logprobs to true."
        )
    check_alternatives(logprobs=body.logprobs, top_logprobs=body.top_logprobs, n_probs=body.n_probs)
    if body.logprobs:
        return body.top_logprobs or 0
    return body.n_probs or None


def messages_of(body: ChatRequest, media: MediaInputs) -> Iterator[Message]:
    given = body.messages or []
    if given and body.system is not None and (system := text_of(body.system, media)):
        yield Message(role="system", content=system)
    told = [(place, each, role_of(each.role, each)) for place, each in enumerate(given) if each]
    first = newest([role for _, _, role in told])
    for number, (place, message, role) in enumerate(told):
        if message == type(message)():
            raise RequestError(f"messages[{place}] has no role and says nothing.", param=PARAM)
        if number >= first and role == "user" and not isinstance(message.content, str):
            check_pictures(message.content, f"messages[{place}].content", PARAM, media)
        yield message_of(message, role, media)
