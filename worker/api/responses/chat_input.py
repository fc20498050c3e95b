"""A client's body of the Responses API to a ChatInput."""

from __future__ import annotations

from worker.api.common.bounds import check_alternatives, stops_of, tokens_of, truncates
from worker.api.common.chat.chat_input import ChatInput
from worker.api.common.chat.tools import choice_of
from worker.api.common.sampling import sampling_of
from worker.api.common.thinking import thinking_of
from worker.api.responses.history import PARAM, messages_of
from worker.api.responses.schemas import ResponseRequest
from worker.api.responses.tools import DeclaredFunctions
from worker.engine.request import GenerationParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.settings import Settings

# Of `include`.
TOLD_LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"
# Fields that need more than stored responses, or work that goes on unread -> what to do instead.
_ABSENT = {
    "conversation": "Send previous_response_id, or the whole conversation as input.",
    "prompt": "Send its text as instructions.",
    "background": "Stream the response, or wait for it.",
}


def chat_input_of(body: ResponseRequest, settings: Settings, loaded: Loaded) -> ChatInput:
    """Raises RequestError that names the field; blocks: a schema is compiled."""
    for field, hint in _ABSENT.items():
        if getattr(body, field):
            raise RequestError(f"{field} is not offered here.", param=field, hint=hint)
    check_alternatives(top_logprobs=body.top_logprobs)
    functions = DeclaredFunctions(body.tools)
    tools = functions.found.shown
    choice = choice_of(body.tool_choice, functions.found)
    logprobs = body.top_logprobs or (0 if TOLD_LOGPROBS in (body.include or ()) else None)
    return ChatInput(
        messages=messages_of(body),
        params=GenerationParams(
            prompt_param=PARAM,
            sampling=sampling_of(body, loaded),
            max_tokens=tokens_of(
                max_output_tokens=body.max_output_tokens,
                n_predict=body.n_predict,
                default=settings.n_predict,
            ),
            stop=stops_of(body.stop),
            logprobs=logprobs,
            tells_progress=bool(body.stream and body.return_progress),
        ),
        tools=choice.among(tools),
        left_out=tuple(functions.found.left_out),
        choice=choice.mode,
        only=choice.only,
        parallel=body.parallel_tool_calls is not False,
        thinking=thinking_of(body, settings=settings, default_format=settings.reasoning_format),
        variables=body.chat_template_kwargs or {},
        truncates=truncates(body.truncation),
    )
