"""The way back of what llama-server's routes write."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import msgspec

from worker.api.common.exchange import DeltaExchange
from worker.api.common.generation import Generation
from worker.api.common.logprobs import token_score
from worker.api.common.prompts import TextPrompt
from worker.api.common.tally import Tally
from worker.api.common.usage import progress_of, timings_of
from worker.api.llama_server.schemas import WritingFields, Written, WrittenPart, WrittenScore
from worker.engine.sampling import SAMPLERS
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http import sse
from worker.lifecycle.loaded import Loaded

_RANDOM_SEED = 2**32 - 1  # llama-server's number for it


class Writing:
    """One answer, as far as it is.

    has_ended  nothing more is to be told: it is whole, too late, or its next line leaves the block
    """

    def __init__(self, index: int, name: str, prompt: TextPrompt, body: WritingFields) -> None:
        """name: of its sequence"""
        self.index = index
        self.prompt = prompt
        self.tally = Tally(len(prompt.tokens), [name])
        self.text = ""
        self.tokens: list[int] = []
        self.scores: list[WrittenScore] = []
        self.last: Delta | None = None
        self.has_ended = False
        self._told = 0  # characters of the text
        self._line_at = 0  # where the line begins that was not looked at yet
        self._made_at = time.monotonic()
        self._seconds = max(0.0, body.t_max_predict_ms or 0) / 1e3
        self._indent = body.n_indent or 0
        self._first_at = 0.0

    def take(self, delta: Delta, pieces: Any) -> str:
        """Add a delta; the text that can be told by now."""
        self.tally.add(delta)
        self.text += delta.text
        self.last = delta
        if delta.token is not None:
            self.tokens.append(delta.token)
            self._first_at = self._first_at or time.monotonic()
        for score in delta.logprobs:
            fields = msgspec.structs.asdict(token_score(score, pieces))
            self.scores.append(WrittenScore(**fields, id=score.token))
        ends_early = self._leaves_block() or self._is_late()
        self.has_ended = delta.is_last or ends_early
        if ends_early and delta.timings is None:
            self.tally.prompt_s = self._first_at - self._made_at
            self.tally.sampling_s = time.monotonic() - self._first_at
        stop = len(self.text)
        if self._indent and not self.has_ended and "\n" in self.text:
            # The end of a line waits for the text of the next one, which may be left out.
            line = self.text.rpartition("\n")[2]
            stop -= 0 if line.strip(" \t") else len(line) + 1
        told, self._told = self.text[self._told : stop], max(self._told, stop)
        return told

    def _is_late(self) -> bool:
        is_over = self._seconds and time.monotonic() - self._first_at > self._seconds
        return bool(is_over and "\n" in self.text)

    def _leaves_block(self) -> bool:
        """Whether a line begins too far left; it and what follows is dropped."""
        while self._indent and (end := self.text.find("\n", self._line_at)) >= 0:
            line = self.text[end + 1 :].partition("\n")[0]
            begun = line.lstrip(" \t")
            if not begun and "\n" not in self.text[end + 1 :]:
                break  # nobody knows yet how far it is indented
            if begun and len(line) - len(begun) < self._indent:
                self.text = self.text[:end]
                return True
            self._line_at = end + 1
        return False


class WritingExchange(DeltaExchange):
    """Each answer in one piece, or an event for each token and a last one without text."""

    closing: ClassVar[bytes] = b""

    def __init__(
        self,
        generation: Generation,
        stream: Stream,
        body: WritingFields,
        loaded: Loaded,
    ) -> None:
        super().__init__(stream, streaming=bool(body.stream))
        self._loaded = loaded
        self._body = body
        self._truncated = generation.truncated is not None
        self._model = generation.model
        self._params = generation.params
        self._ends_early = bool(body.t_max_predict_ms or body.n_indent)
        self._writings = {
            name: Writing(place, name, generation.prompts[place // generation.copies], body)
            for place, name in enumerate(stream.ids)
        }

    def _take(self, delta: Delta) -> str:
        writing = self._writings[delta.id]
        if writing.has_ended:
            return ""
        text = writing.take(delta, self._loaded.backend.pieces)
        if self._ends_early and all(each.has_ended for each in self._writings.values()):
            self.stream.close()
        return text

    def _tell_at_once(self, deltas: Any) -> bool:
        """What may end early must be told by the task that waits."""
        return not self._ends_early and super()._tell_at_once(deltas)

    def told(self, delta: Delta) -> list[bytes]:
        """A token's event; behind the last one that of the whole answer, without text."""
        writing = self._writings[delta.id]
        if writing.has_ended:
            return []
        progress = msgspec.UNSET if delta.progress is None else progress_of(delta.progress)
        num_scores = len(writing.scores)
        text = self._take(delta) if delta.progress is None else ""
        events: list[bytes] = []
        if delta.progress is not None or delta.token is not None:
            part = WrittenPart(
                index=writing.index,
                content=text,
                tokens=[] if delta.token is None else [delta.token],
                tokens_predicted=len(writing.tokens),
                tokens_evaluated=writing.tally.num_prompt,
                completion_probabilities=writing.scores[num_scores:]
                if self._scores
                else msgspec.UNSET,
                prompt_progress=progress,
            )
            events.append(sse.frame(part))
        if writing.has_ended:
            events.append(sse.frame(self._only(self._whole(writing, "", []))))
        return events

    async def body(self) -> object:
        """The whole text, or a list where there are several."""
        while self.stream.is_running:
            for delta in await self.stream.take():
                self._take(delta)
        with_tokens = self._body.return_tokens
        told = [
            self._only(self._whole(writing, writing.text, writing.tokens if with_tokens else []))
            for writing in self._writings.values()
        ]
        return told if len(told) > 1 else told[0]

    def _only(self, whole: Written) -> object:
        """The fields that the client wants."""
        fields = self._body.response_fields
        return whole.only(fields) if fields else whole

    @property
    def _scores(self) -> bool:
        return self._params.logprobs is not None

    def _whole(self, writing: Writing, content: str, tokens: list[int]) -> Written:
        tally, last = writing.tally, writing.last
        kind = "limit"
        if last is not None and last.finish_reason == "stop":
            kind = "eos" if last.token in self._loaded.backend.end_tokens else "word"
        return Written(
            index=writing.index,
            content=content,
            tokens=tokens,
            model=self._model,
            tokens_predicted=tally.num_sampled,
            tokens_evaluated=tally.num_prompt,
            tokens_cached=tally.num_cached or 0,
            generation_settings=self._settings(),
            prompt=self._spelled(writing.prompt),
            has_new_line="\n" in writing.text,
            truncated=self._truncated,
            stop_type=kind,
            stopping_word=(last and last.stopped_by) or "",
            timings=timings_of(tally),
            completion_probabilities=writing.scores
            if self._scores and not self.streaming
            else msgspec.UNSET,
        )

    def _spelled(self, prompt: TextPrompt) -> str:
        """A prompt with its control tokens."""
        backend = self._loaded.backend
        parts = (
            backend.pieces[token] or backend.vocab.name(token).encode() for token in prompt.tokens
        )
        return b"".join(parts).decode("utf-8", "replace")

    def _settings(self) -> dict[str, Any]:
        """What was asked for, with what it left open, under llama-server's names."""
        params = self._params
        found = msgspec.structs.asdict(params.sampling)
        del found["constraint"]
        most = -1 if params.max_tokens is None else params.max_tokens
        return found | {
            "seed": _RANDOM_SEED if params.sampling.seed is None else params.sampling.seed,
            "samplers": [name for name in params.sampling.samplers if name in SAMPLERS],
            "n_predict": most,
            "max_tokens": most,
            "stop": params.stop,
            "stream": self.streaming,
            "n_probs": params.logprobs or 0,
        }
