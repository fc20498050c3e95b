"""A client's body of the Responses API to a Talk."""

from __future__ import annotations

from typing import Any

from worker.api.common.limits import check_alternatives, stops_of, tokens_of, truncates
from worker.api.common.sampling import sampling_of
from worker.api.common.talk.form import sampling_in_form
from worker.api.common.talk.talk import Talk
from worker.api.common.thinking import thinking_of
from worker.api.common.tool_choice import choice_of
from worker.api.responses.history import PARAM, messages_of
from worker.api.responses.schemas import ResponseRequest
from worker.api.responses.tools import DeclaredFunctions
from worker.engine.sampling import SamplingParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.settings import Settings

# Of `include`.
TOLD_LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"
FORMAT = "text.format"
# Fields that need something stored, or work that goes on unread -> what to do instead.
_STATEFUL = {
    "previous_response_id": "Send the whole conversation as input.",
    "conversation": "Send the whole conversation as input.",
    "prompt": "Send its text as instructions.",
    "background": "Stream the response, or wait for it.",
}


def talk_of(body: ResponseRequest, settings: Settings, loaded: Loaded) -> Talk:
    """Raises RequestError that names the field; blocks: a schema is compiled."""
    for field, hint in _STATEFUL.items():
        if getattr(body, field):
            raise RequestError(
                f"{field} cannot be: this worker stores nothing between requests.",
                param=field,
                hint=hint,
            )
    check_alternatives(top_logprobs=body.top_logprobs)
    functions = DeclaredFunctions(body.tools)
    tools = functions.tools
    choice = choice_of(body.tool_choice, tools)
    effort = None if body.reasoning is None else body.reasoning.effort
    logprobs = body.top_logprobs or (0 if TOLD_LOGPROBS in (body.include or ()) else None)
    return Talk(
        messages=messages_of(body),
        param=PARAM,
        tools=choice.among(tools),
        left_out=functions.left_out,
        choice=choice.mode,
        only=choice.only,
        parallel=body.parallel_tool_calls is not False,
        thinking=thinking_of(
            effort=body.reasoning_effort if effort is None else effort,
            think=body.think,
            variables=body.chat_template_kwargs,
            default_format=settings.reasoning_format,
        ),
        variables=body.chat_template_kwargs or {},
        truncates=truncates(body.truncation),
        sampling=_sampling(body, loaded),
        max_tokens=tokens_of(max_output_tokens=body.max_output_tokens, default=None),
        stop=stops_of(body.stop),
        logprobs=logprobs,
    )


def _sampling(body: ResponseRequest, loaded: Loaded) -> SamplingParams:
    """With the answer's form, which chats have in another field."""
    form = None if body.text is None else body.text.format
    if form is None or form.type == "text":
        return sampling_of(body, loaded)
    if form.type == "json_schema" and form.schema is None and form.json_schema is None:
        raise RequestError(f"{FORMAT}.schema is missing.", param=FORMAT)
    wrapped = {"schema": form.schema, "json_schema": form.json_schema, "strict": form.strict}
    asked: dict[str, Any] = {"type": form.type, "json_schema": wrapped}
    return sampling_in_form(body, asked, FORMAT, loaded)
