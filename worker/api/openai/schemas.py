"""What OpenAI's clients send and what they get. Null means not given."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from worker.api.answer.logprobs import Logprobs, PromptLogprobs, TokenScore
from worker.api.answer.usage import LlamaTimings, PromptProgress, Usage
from worker.api.intake.bounds import TRUNCATIONS, between, count_from, items, one_of, texts
from worker.api.intake.chat.content_parts import MessageContent
from worker.api.intake.chat.past_message import PastMessage
from worker.api.intake.chat.tools import ChoiceObject, DeclaredTools
from worker.api.intake.prompts import Truncated
from worker.api.intake.sampling import SamplingFields
from worker.api.intake.thinking import FORMATS, ChatFields
from worker.limits import LOGPROBS, MESSAGES, SEQUENCES, STOP, STOPS, TOOLS


class StreamOptions(msgspec.Struct, kw_only=True):
    """How a stream reports usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class AnyChoice(msgspec.Struct, kw_only=True):
    """token_ids: of the sampled tokens, where asked for"""

    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


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


class ControlRequest(msgspec.Struct, kw_only=True):
    """POST /v1/chat/completions/control, as llama-server has it.

    id      of the running answer, as its events tell it
    action  reasoning_end: the thought ends now
    model   says nothing
    """

    id: str | None = None
    action: Annotated[str | None, one_of("reasoning_end")] = None
    model: Any = None


class ControlReply(msgspec.Struct, omit_defaults=True):
    """message: why nothing happened"""

    success: bool
    message: str = ""


class TemplateReply(msgspec.Struct):
    """The prompt as text."""

    prompt: str


class ChatLogprobs(msgspec.Struct):
    """One entry a token."""

    content: list[TokenScore]


class FunctionDelta(msgspec.Struct):
    """What is called; its name is told once."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    arguments: str = ""


class ToolCallDelta(msgspec.Struct):
    """A tool call, or what one event adds to it.

    index  of the call in the answer; in events only
    """

    function: FunctionDelta
    index: int | msgspec.UnsetType = msgspec.UNSET
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET


class ChatDelta(msgspec.Struct):
    """An answer, or what one event adds to it; the role is told once."""

    role: str | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToolCallDelta] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(AnyChoice, kw_only=True):
    """One answer: `message` whole, or `delta` in an event."""

    index: int
    message: ChatDelta | msgspec.UnsetType = msgspec.UNSET
    delta: ChatDelta | msgspec.UnsetType = msgspec.UNSET
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class ChatCompletion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A whole answer, or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    timings: LlamaTimings | msgspec.UnsetType = msgspec.UNSET
    prompt_progress: PromptProgress | msgspec.UnsetType = msgspec.UNSET
    truncated: Truncated | msgspec.UnsetType = msgspec.UNSET
    warnings: tuple[str, ...] = ()
    service_tier: str | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: tuple[int, ...] = ()
    prompt_logprobs: PromptLogprobs | None = None
    verbose: TemplateReply | msgspec.UnsetType = msgspec.field(
        name="__verbose", default=msgspec.UNSET
    )


class CompletionRequest(SamplingFields, kw_only=True):
    """POST /v1/completions.

    prompt              a text, a list of texts, token ids, or a list of lists of token ids
    max_tokens          tokens to sample at most; 16 where it is not given, -1: until the model or
                        the context ends, 0: the prompt is only read, or with echo scored
    n                   continuations of each prompt
    best_of             continuations of which the best n by mean logprob are answered
    echo                the prompt is repeated before its continuation
    suffix              what comes after the answer: infill, for models with such tokens
    stop                the answer ends before the first of these
    logprobs            likeliest alternatives to report for each token; true is 1
    n_probs             llama-server's name of it
    prompt_logprobs     the logprob of each prompt token and so many alternatives; not streamed
    stream              true: events, one for each token
    stream_options      how a stream reports usage
    return_progress     true: each step that reads the prompt is an event, too
    return_token_ids    true: the ids of the prompt and of the answer, too
    return_tokens_as_token_ids
                        true: logprobs name tokens by their ids
    timings_per_token   true: events have timings
    add_special_tokens  false: a prompt of text gets no BOS
    truncation          auto is for conversations, and refused here
    """

    prompt: str | list[str | int | list[int]] | None = None
    max_tokens: Annotated[int | None, count_from(0)] = None
    n: Annotated[int | None, between(1, SEQUENCES.most)] = None
    best_of: Annotated[int | None, between(1, SEQUENCES.most)] = None
    echo: bool | None = None
    suffix: str | None = None
    stop: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None
    logprobs: Annotated[bool | int | None, between(0, LOGPROBS.most)] = None
    n_probs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    prompt_logprobs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    timings_per_token: bool | None = None
    add_special_tokens: bool | None = None
    truncation: Annotated[str | None, one_of(*TRUNCATIONS)] = None


class Choice(AnyChoice):
    """One continuation, or what one event adds to it; the prompt's ids stand in the first one."""

    text: str
    index: int
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    prompt_token_ids: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A whole answer, or one event of a stream."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    object: str
    system_fingerprint: str
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    timings: LlamaTimings | msgspec.UnsetType = msgspec.UNSET
    prompt_progress: PromptProgress | msgspec.UnsetType = msgspec.UNSET
    warnings: tuple[str, ...] = ()
    service_tier: str | msgspec.UnsetType = msgspec.UNSET
