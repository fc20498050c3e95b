"""The way back of what llama-server's routes write."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from worker.api.answer.exchange import DeltaExchange
from worker.api.answer.logprobs import TokenScore, token_score
from worker.api.answer.usage import Tally, progress_of, timings_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.prompts import TextPrompt
from worker.api.intake.sampling import effective_settings
from worker.api.llama_server.schemas import (
    DrawnToken,
    WritingFields,
    Written,
    WrittenPart,
    WrittenScore,
)
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http import sse


def _write_score(score: TokenScore, *, as_drawn: bool) -> WrittenScore:
    named: dict[str, Any] = {"id": score.id, "token": score.token, "bytes": score.bytes}
    if not as_drawn:
        return WrittenScore(**named, logprob=score.logprob, top_logprobs=score.top_logprobs)
    top = [
        DrawnToken(each.id, each.token, each.bytes, math.exp(each.logprob))
        for each in score.top_logprobs
        if each.logprob > -math.inf
    ]
    return WrittenScore(**named, prob=math.exp(score.logprob), top_probs=top)


class Writing:
    """One answer, as far as it is."""

    def __init__(self, index: int, name: str, prompt: TextPrompt) -> None:
        """name: of its sequence"""
        self.index = index
        self.prompt = prompt
        self.tally = Tally(len(prompt.tokens), [name])
        self.text = ""
        self.tokens: list[int] = []
        self.scores: list[TokenScore] = []
        self.last: Delta | None = None

    def take(self, delta: Delta, pieces: Any) -> None:
        self.tally.add(delta)
        self.text += delta.text
        self.last = delta
        if delta.token is not None:
            self.tokens.append(delta.token)
        for score in delta.logprobs:
            self.scores.append(token_score(score, pieces))


class WritingExchange(DeltaExchange):
    """Each answer in one piece, or an event for each token and a last one without text."""

    closing: ClassVar[bytes] = b""

    def __init__(
        self, generation: Generation, stream: Stream, body: WritingFields, facts: ModelFacts
    ) -> None:
        super().__init__(stream, streaming=bool(body.stream))
        self._facts = facts
        self._body = body
        self._truncated = generation.truncated is not None
        self._model = generation.model
        self._warnings = generation.warnings or UNSET
        self._params = generation.params
        self._generation = generation
        self._writings = {
            name: Writing(place, name, generation.prompts[place // generation.copies])
            for place, name in enumerate(stream.ids)
        }

    def frames_of(self, delta: Delta) -> list[bytes]:
        """A token's event; behind the last one that of the whole answer, without text."""
        writing = self._writings[delta.id]
        progress = UNSET if delta.progress is None else progress_of(delta.progress)
        num_scores = len(writing.scores)
        if delta.progress is None:
            self.take(delta)
        events: list[bytes] = []
        if delta.progress is not None or delta.token is not None:
            part = WrittenPart(
                index=writing.index,
                content=delta.text,
                tokens=[] if delta.token is None else [delta.token],
                tokens_predicted=len(writing.tokens),
                tokens_evaluated=writing.tally.num_prompt,
                completion_probabilities=self._write_scores(writing.scores[num_scores:]),
                prompt_progress=progress,
                timings=timings_of(writing.tally, delta.progress)
                if self._body.timings_per_token
                else UNSET,
            )
            events.append(sse.frame(part))
        if delta.finish_reason is not None:
            events.append(sse.frame(self._only(self._whole(writing, "", []))))
        return events

    def take(self, delta: Delta) -> None:
        self._writings[delta.id].take(delta, self._facts.vocab.pieces)

    def whole(self) -> object:
        """The whole text, or a list where there are several."""
        with_tokens = self._body.return_tokens
        told = [
            self._only(self._whole(writing, writing.text, writing.tokens if with_tokens else []))
            for writing in self._writings.values()
        ]
        return told if len(told) > 1 else told[0]

    def _only(self, whole: Written) -> object:
        fields = self._body.response_fields
        return whole.only(fields) if fields else whole

    def _write_scores(self, scores: list[TokenScore]) -> list[WrittenScore] | msgspec.UnsetType:
        if self._params.logprobs is None:
            return UNSET
        return [_write_score(score, as_drawn=self._params.as_drawn) for score in scores]

    def _whole(self, writing: Writing, content: str, tokens: list[int]) -> Written:
        tally, last, number = writing.tally, writing.last, self._body.id_slot
        prompt = writing.prompt
        if number is not None and number >= 0 and not prompt.media:
            self._facts.slots.note(number, prompt.key, (*prompt.tokens, *writing.tokens))
        kind = "limit"
        if last is not None and last.finish_reason == "stop":
            kind = "eos" if last.token in self._facts.vocab.end_tokens else "word"
        return Written(
            index=writing.index,
            content=content,
            tokens=tokens,
            id_slot=-1 if number is None else number,
            model=self._model,
            tokens_predicted=tally.num_sampled,
            tokens_evaluated=tally.num_prompt,
            tokens_cached=tally.num_cached or 0,
            generation_settings=self._settings(),
            prompt=self._spell(writing.prompt),
            has_new_line="\n" in writing.text,
            truncated=self._truncated,
            stop_type=kind,
            stopping_word=(last and last.stopped_by) or "",
            timings=timings_of(tally),
            cache_trace=self._generation.cache_trace,
            warnings=self._warnings,
            completion_probabilities=UNSET
            if self.streaming
            else self._write_scores(writing.scores),
        )

    def _spell(self, prompt: TextPrompt) -> str:
        if prompt.media:
            return prompt.text
        vocab = self._facts.vocab
        parts = (vocab.pieces[token] or vocab.name(token).encode() for token in prompt.tokens)
        return b"".join(parts).decode("utf-8", "replace")

    def _settings(self) -> dict[str, Any]:
        """What was asked for, with what it left open, under llama-server's names."""
        params = self._params
        ends = self._facts.vocab.end_tokens
        return effective_settings(params.sampling, params.max_tokens, ends) | {
            "stop": params.stop,
            "stream": self.streaming,
            "n_probs": params.logprobs or 0,
        }
