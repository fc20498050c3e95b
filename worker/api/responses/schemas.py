"""What clients of the Responses API send. Null means not given."""

from __future__ import annotations

from typing import Annotated, Any

from worker.api.intake.bounds import TRUNCATIONS, between, count_from, items, one_of, texts
from worker.api.intake.chat.content_parts import MessageContent
from worker.api.intake.chat.past_message import Spelled
from worker.api.intake.chat.tools import ChoiceObject, DeclaredTool
from worker.api.intake.constraints import FormFields
from worker.api.intake.thinking import ChatFields
from worker.limits import LOGPROBS, STOP, STOPS, TOOLS


class ResponseTool(DeclaredTool):
    """A function, or a namespace with its functions as `tools`; other tools are skipped."""

    tools: ResponseTools | Spelled = None


# What is no object is left out.
ResponseTools = list[ResponseTool | list[Any] | Spelled]


class TextOptions(FormFields, omit_defaults=True):
    """The form of the answer."""

    verbosity: str | None = None


class ResponseRequest(ChatFields, kw_only=True):
    """POST /v1/responses.

    input                 a text, or a list of items: messages (which need not say their type),
                          calls, their outputs, thoughts; others become a note in brackets
    instructions          a system message before the input
    system                another name of it
    tools                 functions that the model may call
    tool_choice           auto, none, required, or the tool that is to be called
    parallel_tool_calls   false: an answer holds one call at most
    text                  the form of the answer
    stop                  an answer ends before the first of these
    max_output_tokens     tokens to sample at most; -1, and where it is not given: until the model
                          or the context ends; 0 reads the prompt, which fills the cache
    top_logprobs          likeliest alternatives to report for each token of the text
    truncation            auto drops old turns where the context is too small
    include               `message.output_text.logprobs`, `reasoning.encrypted_content`; others say
                          nothing
    metadata, user        come back as they were sent
    store                 false: the response is not stored
    previous_response_id  a stored response, whose conversation goes on
    timings_per_token     true: events have timings
    return_progress       true: each step that reads the prompt is an event, too
    stream                true: events
    background            true: the response goes on without its client, who may ask for it by its
                          id, or for its events
    conversation, prompt  refused: these are not stored
    """

    input: MessageContent = None
    instructions: MessageContent = None
    system: MessageContent = None
    tools: Annotated[ResponseTools | None, items(TOOLS.most)] = None
    tool_choice: str | ChoiceObject | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    stop: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None
    max_output_tokens: Annotated[int | None, count_from(0)] = None
    top_logprobs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    truncation: Annotated[str | None, one_of(*TRUNCATIONS)] = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    store: bool | None = None
    stream: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
