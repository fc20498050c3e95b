"""A chat client's body to a Talk: fields checked, messages in their neutral form."""

from __future__ import annotations

import msgspec

from worker.chat.message import Call, Message
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.limits import LOGPROBS
from worker.service.openai.chat_schemas import ChatMessage, ChatRequest, PastCall
from worker.service.openai.limits import stops_of, tokens_of, truncates
from worker.service.openai.thinking import thinking_of
from worker.service.openai.tools import choice_of, tools_of
from worker.service.sampling import sampling_of
from worker.service.talk.talk import Talk
from worker.settings import Settings

PARAM = "messages"
# Fields of the form that tools had before 2024 -> what to send instead.
_OLD = {
    "functions": 'Send tools: {"type": "function", "function": ...} for each.',
    "function_call": "Send tool_choice.",
}


def talk_of(body: ChatRequest, settings: Settings, loaded: Loaded) -> Talk:
    """Raises RequestError that names the field; blocks: a grammar is checked."""
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs.", param="top_logprobs")
    if not 0 <= (body.top_logprobs or 0) <= LOGPROBS.most:
        raise RequestError(f"top_logprobs must be from 0 to {LOGPROBS.most}.", param="top_logprobs")
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
    tools = tools_of(body.tools)
    choice = choice_of(body.tool_choice, tools)
    return Talk(
        messages=tuple(_message(m, place) for place, m in enumerate(body.messages or ())),
        param=PARAM,
        tools=choice.among(tools),
        choice=choice.mode,
        only=choice.only,
        parallel=body.parallel_tool_calls is not False,
        thinking=thinking_of(
            effort=body.reasoning_effort,
            variables=body.chat_template_kwargs,
            asked_format=body.reasoning_format,
            default_format=settings.reasoning_format,
            reasoning_budget_tokens=body.reasoning_budget_tokens,
            thinking_budget_tokens=body.thinking_budget_tokens,
        ),
        variables=body.chat_template_kwargs or {},
        opens=body.add_generation_prompt is not False,
        continues=bool(body.continue_final_message),
        truncates=truncates(body.truncation),
        sampling=sampling_of(body, loaded),
        max_tokens=tokens_of(
            max_completion_tokens=body.max_completion_tokens,
            max_tokens=body.max_tokens,
            least=1,
            default=None,
        ),
        stop=stops_of(body.stop),
        n=1 if body.n is None else body.n,
        tells_progress=bool(body.stream and body.return_progress),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def _message(message: ChatMessage, place: int) -> Message:
    """Texts in parts become one, a line each."""
    if message.function_call:
        raise RequestError(
            f"messages[{place}].function_call is a form that is no longer read here.",
            param=PARAM,
            hint="Send tool_calls, and the result as a message of the role tool.",
        )
    content = message.content
    if isinstance(content, list):
        if other := next((part.type for part in content if part.type != "text"), None):
            raise RequestError(
                f"messages[{place}].content has a part of type {other}; only text can be read.",
                param=PARAM,
            )
        content = "\n".join(part.text or "" for part in content)
    content = message.refusal if content is None else content
    if content is None and not message.tool_calls:
        raise RequestError(f"messages[{place}].content is missing.", param=PARAM)
    return Message(
        role=message.role,
        content=content,
        thought=message.reasoning_content or message.reasoning,
        calls=tuple(_call(call) for call in message.tool_calls or ()),
        call_id=message.tool_call_id,
        name=message.name,
    )


def _call(call: PastCall) -> Call:
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments or {}).decode()
    return Call(call.id or "", call.function.name, arguments)
