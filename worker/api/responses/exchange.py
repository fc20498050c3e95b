"""A response's way back: its events, or all of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from worker.api.answer.answer_state import AnswerState
from worker.api.answer.exchange import DeltaExchange
from worker.api.answer.logprobs import token_score
from worker.api.answer.usage import Tally, progress_of, timings_of
from worker.api.intake.bounds import truncates
from worker.api.intake.chat.content_parts import text_of
from worker.api.intake.chat.past_message import name_of
from worker.api.intake.chat.tools import choice_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.priority import tier_of
from worker.api.intake.thinking import ReasoningOptions
from worker.api.responses.chat_input import SEALED, DeclaredFunctions, InputItem
from worker.api.responses.items import (
    Breakdown,
    ErrorEvent,
    FunctionTool,
    Incompleteness,
    InputDetails,
    NamespaceTool,
    ReasoningDetails,
    ResponseCompleted,
    ResponseCreated,
    ResponseEvent,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseReply,
    ResponseUsage,
)
from worker.api.responses.output import Output
from worker.api.responses.schemas import ResponseRequest, ResponseTool, TextOptions
from worker.api.responses.store import ResponseStore
from worker.engine.sampling import SamplingParams
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import CancelledError
from worker.http import sse

_CUT = "max_output_tokens"  # OpenAI's word for the end of the context, too


class ResponseExchange(DeltaExchange):
    """created, in_progress, the events of each item, then one of completed, incomplete and failed;
    each under its name."""

    closing: ClassVar[bytes] = b""

    def __init__(
        self,
        generation: Generation,
        stream: Stream,
        body: ResponseRequest,
        facts: ModelFacts,
        store: ResponseStore,
        own: Sequence[InputItem],
    ) -> None:
        """own: its input, without that of earlier responses"""
        super().__init__(
            stream,
            streaming=bool(body.stream or body.background),
            delivery=generation.delivery,
        )
        name = self.name
        reasoning = _reasoning(body)
        # An item tells its call's id again at the end, perhaps at another worker.
        self._said = AnswerState(generation.reader(), name if self.delivery.relay else None)
        functions = DeclaredFunctions(body.tools)
        self._output = Output(
            name,
            functions.places,
            summarises=bool(reasoning.summary or reasoning.generate_summary),
            seals=SEALED in (body.include or ()),
        )
        self._pieces = facts.vocab.pieces
        self._tally = Tally(generation.num_prompt_tokens, stream.ids)
        self._generation = generation
        self._num_events = 0
        self._times_all = bool(body.timings_per_token)
        self._reply = ResponseReply(
            id=f"resp_{name}",
            created_at=self.created,
            model=generation.model,
            background=bool(body.background),
            service_tier=tier_of(generation.priority),
            **_echo(body, generation.params.sampling, functions),
        )
        if generation.truncated is not None:
            self._reply.truncated = generation.truncated
        if generation.warnings:
            self._reply.warnings = generation.warnings
        self._store = store
        if self._reply.store:
            owner = self.delivery.owner
            store.begin(self._reply, own, owner, stream, self._output.cut)

    @property
    def reply(self) -> ResponseReply:
        """The response as it began."""
        return self._reply

    def catch_up(self, num_told: int) -> None:
        self._num_events = max(self._num_events, num_told)

    async def run(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, and keep no response that was left early."""
        try:
            await super().run(scope, receive, send)
        finally:
            self._store.leave(self._reply.id)

    def frames_of(self, delta: Delta) -> list[bytes]:
        """Its events. The stream's first ones wait for the first token: what fails before it has a
        status of its own."""
        told = self._begin()
        if delta.progress is not None:
            progress = progress_of(delta.progress)
            event = ResponseInProgress(response=self._reply, prompt_progress=progress)
            if self._times_all:
                event.timings = timings_of(self._tally, delta.progress)
            return [told + self._frames([event])]
        told += self._frames(self.take(delta))
        return [told] if told else []

    def last_frames(self) -> list[bytes]:
        """The end of the output, and the whole response."""
        cut = self._said.finish_reason == "length"
        told = self._frames(self._output.close("incomplete" if cut else "completed"))
        reply = self._end(broken=True)
        kind = ResponseCompleted if reply.status == "completed" else ResponseIncomplete
        return [told + self._frames([kind(response=reply)])]

    def whole(self) -> ResponseReply:
        cut = self._said.finish_reason == "length"
        self._output.close("incomplete" if cut else "completed")
        return self._end(broken=False)

    def failure(self, error: Exception) -> bytes:
        """What was wrong, then the response that failed."""
        begun = self._begin()
        reply = self.error_reply(error)[1]
        body = reply.error
        code = None if body.code is None else str(body.code)
        told = ErrorEvent(
            code=code,
            message=body.message,
            param=body.param,
            request_id=reply.request_id,
            correlation_id=reply.correlation_id,
        )
        failed = msgspec.structs.replace(
            self._reply,
            status="cancelled" if isinstance(error, CancelledError) else "failed",
            error=Breakdown("server_error", body.message),
            output=self._output.cut(),
        )
        self._store.end(failed)
        return begun + self._frames([told, ResponseFailed(response=failed)])

    def _begin(self) -> bytes:
        """What opens the stream; nothing where it is open."""
        if self._num_events:
            return b""
        return self._frames(
            [ResponseCreated(response=self._reply), ResponseInProgress(response=self._reply)]
        )

    def take(self, delta: Delta) -> list[ResponseEvent]:
        self._tally.add(delta)
        scores = [token_score(score, self._pieces) for score in delta.logprobs]
        return self._output.take(self._said.take(delta), scores)

    def _end(self, *, broken: bool) -> ResponseReply:
        """broken: a call that never ended was told; else its text alone is there."""
        cut = self._said.finish_reason == "length"
        is_whole = not cut and not (broken and self._output.is_broken)
        tally = self._tally
        reply = msgspec.structs.replace(
            self._reply,
            status="completed" if is_whole else "incomplete",
            completed_at=int(time.time()) if is_whole else None,
            incomplete_details=None if is_whole else Incompleteness(_CUT if cut else None),
            output=self._output.items(broken=broken),
            usage=ResponseUsage(
                tally.num_prompt,
                InputDetails(tally.num_cached or 0),
                tally.num_sampled,
                ReasoningDetails(self._said.num_thought_tokens),
                tally.num_prompt + tally.num_sampled,
            ),
            timings=timings_of(tally),
            cache_trace=self._generation.cache_trace,
        )
        self._store.end(reply)
        return reply

    def _frames(self, events: Iterable[ResponseEvent]) -> bytes:
        frames: list[bytes] = []
        for event in events:
            event.sequence_number = self._num_events
            self._num_events += 1
            if self._times_all and event.timings is UNSET:
                event.timings = timings_of(self._tally)
            frames.append(sse.frame(event, name=str(event.__struct_config__.tag)))
        return b"".join(frames)


def _echo(
    body: ResponseRequest, sampling: SamplingParams, functions: DeclaredFunctions
) -> dict[str, Any]:
    """What was asked for, as the response repeats it."""
    choice = choice_of(body.tool_choice, functions.found)
    told: Any = choice.mode
    if choice.only is not None:
        told = {"type": "function", "name": choice.only}
    text = body.text or TextOptions()
    form = text.format or {"type": "text"}
    form = form if form.get("type") else {**form, "type": "json_schema"}
    instructions = body.instructions
    return {
        "instructions": None if instructions is None else text_of(instructions, MediaInputs()),
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": _reasoning(body),
        "store": body.store is not False,
        "temperature": sampling.temperature,
        "text": msgspec.structs.replace(text, format=form),
        "tool_choice": told,
        "tools": [_tool_of(tool) for tool in functions.declared],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": sampling.top_p,
        "truncation": "auto" if truncates(body.truncation) else "disabled",
        "user": body.user,
    }


def _reasoning(body: ResponseRequest) -> ReasoningOptions:
    asked = body.reasoning
    return asked if isinstance(asked, ReasoningOptions) else ReasoningOptions(effort=asked)


def _tool_of(tool: ResponseTool) -> FunctionTool | NamespaceTool:
    if tool.type != "namespace":
        return _function(tool)
    inside = tool.tools if isinstance(tool.tools, list) else ()
    functions = [_function(inner) for inner in inside if isinstance(inner, ResponseTool)]
    description = text_of(tool.description, MediaInputs())
    return NamespaceTool(name_of(tool.name) or "", description, functions)


def _function(tool: ResponseTool) -> FunctionTool:
    neutral, strict = tool.declared.tool, tool.declared.strict
    strict = strict if isinstance(strict, bool) else None
    return FunctionTool(neutral.name, neutral.description, neutral.parameters, strict)
