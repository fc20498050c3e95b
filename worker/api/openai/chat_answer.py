"""One answer to a conversation as OpenAI's chat clients read it: deltas, or the whole message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

from worker.api.common.chat.answer_state import AnswerState
from worker.api.common.logprobs import TokenScore, token_score
from worker.api.openai.chat_schemas import (
    ChatChoice,
    ChatDelta,
    ChatLogprobs,
    FunctionDelta,
    ToolCallDelta,
)
from worker.api.openai.exchange import Answer, tells
from worker.chat.reader import Arguments, CallBegun, CallEnded, Content, Thought
from worker.engine.sequence import Delta

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
        """Tokens that were sampled inside thoughts."""
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
            ChatChoice(index=self._index, delta=self._told(event))
            for event in self._said.take(delta)
            if not isinstance(event, CallEnded)
        ]
        if not choices:
            # Clients would take an empty text for the begin of the content.
            choices = [self.silent()]
        choices[0].logprobs = logprobs
        if not self._has_role:
            self._add_role(choices[0])
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

    def _add_role(self, choice: ChatChoice) -> None:
        self._has_role = True
        spoken = choice.delta
        assert not isinstance(spoken, UnsetType)
        spoken.role = ROLE
        if spoken.content is UNSET:
            spoken.content = None

    def _told(self, event: Content | Thought | CallBegun | Arguments) -> ChatDelta:
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
