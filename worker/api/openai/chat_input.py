"""A chat client's body to a ChatInput: fields checked, messages in their neutral form."""

from __future__ import annotations

from collections.abc import Iterator

from worker.api.answer.logprobs import prompt_logprobs_of
from worker.api.intake.bounds import check_alternatives, stops_of, tokens_of, truncates
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.chat.content_parts import check_pictures, newest, text_of
from worker.api.intake.chat.past_message import message_of, role_of
from worker.api.intake.chat.tools import choice_of, tools_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.sampling import sampling_of
from worker.api.intake.thinking import thinking_of
from worker.api.openai.schemas import ChatRequest
from worker.budget import Budget
from worker.chat.message import Message
from worker.engine.request import GenerationParams
from worker.errors import RequestError

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
    declared = tools_of(body.tools)
    choice = choice_of(body.tool_choice, declared)
    params = GenerationParams(
        prompt_param=PARAM,
        sampling=sampling_of(body, facts, budget),
        max_tokens=tokens_of(
            max_completion_tokens=body.max_completion_tokens,
            max_tokens=body.max_tokens,
            n_predict=body.n_predict,
            default=settings.n_predict,
        ),
        stop=stops_of(body.stop),
        n=1 if body.n is None else body.n,
        logprobs=_logprobs(body),
        prompt_logprobs=prompt_logprobs_of(body.prompt_logprobs, stream=body.stream),
        prompt_ranks=body.prompt_logprobs is not None,
        tells_progress=bool(body.stream and body.return_progress),
    )
    return ChatInput(
        messages=tuple(messages_of(body, media)),
        media=media,
        params=params,
        tools=choice.tools,
        left_out=tuple(declared.left_out),
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
    if not (body.logprobs or body.n_probs):
        return None
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
        if number >= first and role == "user":
            check_pictures(message.content, f"messages[{place}].content", PARAM, media)
        yield message_of(message, role, media)
