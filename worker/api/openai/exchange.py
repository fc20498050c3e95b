"""What the OpenAI API's two ways to answer share: the head, the events of a stream, the usage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from worker import __version__
from worker.api.answer.exchange import DeltaExchange
from worker.api.answer.usage import Tally, Usage, progress_of, timings_of, usage_of
from worker.api.intake.chat.chat_request import ChatRequest
from worker.api.intake.generation import Generation
from worker.api.intake.priority import tier_of
from worker.api.openai.schemas import AnyChoice, CompletionRequest
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http import sse

ChoiceT = TypeVar("ChoiceT", bound=AnyChoice)


class Answer(ABC, Generic[ChoiceT]):
    """One sequence's answer as it grows. It may hold text back, and tell it with a later delta."""

    @abstractmethod
    def take(self, delta: Delta) -> Sequence[ChoiceT]:
        """What the delta makes visible: no event, one or several."""

    @abstractmethod
    def silent(self) -> ChoiceT:
        """A choice of an event that adds nothing."""

    @abstractmethod
    def whole(self, index: int) -> ChoiceT:
        """All of it, once its last delta was taken, as choice number `index`."""

    @property
    def score(self) -> float:
        """What `best_of` ranks by; the higher the better."""
        return 0.0

    @property
    def num_thought_tokens(self) -> int:
        """Tokens that were sampled inside thoughts."""
        return 0


class OpenAIExchange(DeltaExchange, ABC, Generic[ChoiceT]):
    """Frames what the answers make of the deltas, or folds them into one reply.

    prefix  of the reply's id
    head    the fields with which every reply and every event begins
    """

    prefix: ClassVar[str]

    def __init__(
        self,
        generation: Generation,
        stream: Stream,
        body: ChatRequest | CompletionRequest,
        answers: Sequence[Answer[ChoiceT]],
    ) -> None:
        """answers: one for each sequence"""
        super().__init__(stream, streaming=bool(body.stream), delivery=generation.delivery)
        options = body.stream_options
        self._generation = generation
        self._answers = dict(zip(stream.ids, answers, strict=True))
        self._include_usage = bool(options and options.include_usage)
        self._times_all = bool(body.timings_per_token)
        self._ids: dict[str, list[int]] = {}
        if body.return_token_ids:
            self._ids = {name: [] for name in stream.ids}
        self._usage_always = self._include_usage and bool(
            options and options.continuous_usage_stats
        )
        self._tally = Tally(generation.num_prompt_tokens, stream.ids, generation.copies)
        self._notes: dict[str, Any] = {}
        if generation.truncated:
            self._notes["truncated"] = generation.truncated
        if generation.warnings:
            self._notes["warnings"] = generation.warnings
        if body.service_tier is not None:
            self._notes["service_tier"] = tier_of(generation.priority)
        self._untold = self._notes  # in no event yet
        self.head: dict[str, Any] = {
            "id": self.prefix + self.name,
            "created": self.created,
            "model": generation.model,
            "system_fingerprint": f"gguf-worker-{__version__}",
        }

    @abstractmethod
    def event(self, choices: list[ChoiceT], **more: Any) -> msgspec.Struct:
        """An event of a stream with these choices."""

    @abstractmethod
    def reply(self, choices: list[ChoiceT], **more: Any) -> msgspec.Struct:
        """A whole reply with these choices."""

    def frames_of(self, delta: Delta) -> list[bytes]:
        """An event for each choice; what was left out of the prompt stands in the first one."""
        if delta.progress is not None:
            self._tally.add(delta)
            more: dict[str, Any] = {"prompt_progress": progress_of(delta.progress)}
            if self._times_all:
                more["timings"] = timings_of(self._tally, delta.progress)
            return [sse.frame(self.event([self._answers[delta.id].silent()], **more))]
        frames: list[bytes] = []
        choices = self.take(delta)
        for place, choice in enumerate(choices, start=1):
            more = {"usage": self._usage()} if self._usage_always else {}
            if self._times_all or (delta.finish_reason and place == len(choices)):
                more["timings"] = timings_of(self._tally)
            if delta.finish_reason and place == len(choices) and not self._include_usage:
                more["cache_trace"] = self._generation.cache_trace
            frames.append(sse.frame(self.event([choice], **more, **self._untold)))
            self._untold = {}
        return frames

    def last_frames(self) -> list[bytes]:
        """The usage, where asked for, with the times, what was left out of the prompt, and why it
        was read again."""
        if not self._include_usage:
            return []
        usage, timings = self._usage(), timings_of(self._tally)
        trace = self._generation.cache_trace
        event = self.event([], usage=usage, timings=timings, cache_trace=trace, **self._notes)
        return [sse.frame(event)]

    def take(self, delta: Delta) -> Sequence[ChoiceT]:
        """The choices that it makes visible, the first with the token's id where ids are told."""
        self._tally.add(delta)
        choices, ids = self._answers[delta.id].take(delta), self._ids.get(delta.id)
        if ids is not None:
            added = [] if delta.token is None else [delta.token]
            ids += added
            if choices:
                choices[0].token_ids = added
        return choices

    def whole(self) -> msgspec.Struct:
        """The whole reply, the best `n` of `best_of` for each prompt."""
        answers, chosen = list(self._answers.values()), list[Answer[ChoiceT]]()
        n, copies = self._generation.params.n, self._generation.copies
        for first in range(0, len(answers), copies):
            group = answers[first : first + copies]
            if copies > n:
                group.sort(key=lambda answer: -answer.score)
            chosen += group[:n]
        choices = [answer.whole(index) for index, answer in enumerate(chosen)]
        if self._ids:
            ids = {id(answer): self._ids[name] for name, answer in self._answers.items()}
            for choice, answer in zip(choices, chosen, strict=True):
                choice.token_ids = ids[id(answer)]
        usage, timings = self._usage(), timings_of(self._tally)
        trace = self._generation.cache_trace
        return self.reply(choices, usage=usage, timings=timings, cache_trace=trace, **self._notes)

    def _usage(self) -> Usage:
        thought = sum(answer.num_thought_tokens for answer in self._answers.values())
        return usage_of(self._tally, thought)


def tells(delta: Delta) -> bool:
    """Whether there is an event in it. A token that is no text yet, a part of a character, is one
    all the same: clients count and time tokens by events."""
    return bool(delta.text or delta.finish_reason or delta.token is not None)
