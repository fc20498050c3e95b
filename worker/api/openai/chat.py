"""/v1/chat/completions: a conversation by the file's own template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from worker.api.answer.answer_state import AnswerState
from worker.api.answer.logprobs import SpelledIds, TokenScore, prompt_logprobs, token_score
from worker.api.answer.usage import TemplateReply
from worker.api.intake.chat.chat_request import ChatRequest
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.openai.exchange import Answer, OpenAIExchange, tells
from worker.api.openai.schemas import (
    ChatChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    FunctionDelta,
    ToolCallDelta,
)
from worker.chat.reader import Arguments, CallBegun, CallEnded, Content, Thought
from worker.engine.sequence import Delta
from worker.engine.stream import Stream

ROLE = "assistant"
_TYPE = "function"


class ChatAnswer(Answer[ChatChoice]):
    """The assistant's turn in one conversation; its role comes with its first token."""

    def __init__(
        self,
        index: int,
        said: AnswerState,
        pieces: Sequence[bytes] | Mapping[int, bytes],
        *,
        scores: bool = False,
        field: str = "reasoning_content",
    ) -> None:
        """
        index   in the events of a stream
        pieces  token id -> bytes
        scores  whether logprobs are told
        field   of the thoughts: reasoning_content or reasoning
        """
        self._index = index
        self._said = said
        self._pieces = pieces
        self._wants_scores = scores
        self._field = field
        self._has_role = False
        self._scores: list[TokenScore] = []

    @property
    def num_thought_tokens(self) -> int:
        return self._said.num_thought_tokens

    def take(self, delta: Delta) -> list[ChatChoice]:
        """One event for each token at least."""
        if not tells(delta):
            return []
        logprobs: ChatLogprobs | None = None
        if self._wants_scores:
            logprobs = ChatLogprobs([token_score(score, self._pieces) for score in delta.logprobs])
            self._scores += logprobs.content
        choices = [
            ChatChoice(index=self._index, delta=self._delta_of(event))
            for event in self._said.take(delta)
            if not isinstance(event, CallEnded)
        ]
        if not choices:
            # Clients would take an empty text for the begin of the content.
            choices = [self.silent()]
        choices[0].logprobs = logprobs
        if not self._has_role:
            self._has_role = True
            spoken = choices[0].delta
            assert not isinstance(spoken, UnsetType)
            spoken.role = ROLE
            if spoken.content is UNSET:
                spoken.content = None
        choices[-1].finish_reason = self._said.finish_reason
        return choices

    def silent(self) -> ChatChoice:
        return ChatChoice(index=self._index, delta=ChatDelta())

    def whole(self, index: int) -> ChatChoice:
        said = self._said
        calls = [
            ToolCallDelta(FunctionDelta(call.name, call.arguments), id=call.id, type=_TYPE)
            for call in said.calls
        ]
        spoken = self._thought(said.thought) if said.thought else ChatDelta()
        spoken.role = ROLE
        spoken.content = said.content or (None if calls else "")
        spoken.tool_calls = calls or UNSET
        return ChatChoice(
            index=index,
            message=spoken,
            logprobs=ChatLogprobs(self._scores) if self._wants_scores else None,
            finish_reason=said.finish_reason,
        )

    def _delta_of(self, event: Content | Thought | CallBegun | Arguments) -> ChatDelta:
        match event:
            case Content(text):
                return ChatDelta(content=text)
            case Thought(text):
                return self._thought(text)
            case CallBegun(index, name, function):
                call = ToolCallDelta(FunctionDelta(function), index=index, id=name, type=_TYPE)
            case Arguments(index, text):
                call = ToolCallDelta(FunctionDelta(arguments=text), index=index)
        return ChatDelta(tool_calls=[call])

    def _thought(self, text: str) -> ChatDelta:
        if self._field == "reasoning":
            return ChatDelta(reasoning=text)
        return ChatDelta(reasoning_content=text)


class ChatExchange(OpenAIExchange[ChatChoice]):
    """Answers to one conversation."""

    prefix = "chatcmpl-"

    def __init__(
        self, generation: Generation, stream: Stream, body: ChatRequest, facts: ModelFacts
    ) -> None:
        pieces = SpelledIds() if body.return_tokens_as_token_ids else facts.vocab.pieces
        answers = [
            ChatAnswer(
                index,
                AnswerState(generation.reader()),
                pieces,
                scores=generation.params.logprobs is not None,
                field=facts.settings.reasoning_field,
            )
            for index in range(len(stream.ids))
        ]
        super().__init__(generation, stream, body, answers)
        self._prompt_pieces = facts.vocab.pieces
        if body.return_token_ids:
            self._notes["prompt_token_ids"] = generation.prompts[0].tokens
        if body.verbose or (body.verbose is None and facts.settings.verbose):
            self._notes["verbose"] = TemplateReply(generation.prompts[0].text)

    def take(self, delta: Delta) -> Sequence[ChatChoice]:
        """The prompt's scores come with the first token; all copies have the same."""
        count = self._generation.params.prompt_logprobs
        if count is not None and delta.prompt_logprobs is not None:
            found = prompt_logprobs(delta.prompt_logprobs, self._prompt_pieces, count)
            self._notes["prompt_logprobs"] = found
        return super().take(delta)

    def event(self, choices: list[ChatChoice], **more: Any) -> ChatCompletion:
        return ChatCompletion(object="chat.completion.chunk", choices=choices, **self.head, **more)

    def reply(self, choices: list[ChatChoice], **more: Any) -> ChatCompletion:
        return ChatCompletion(object="chat.completion", choices=choices, **self.head, **more)
