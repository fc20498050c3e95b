"""POST /infill."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from litestar import Request as HttpRequest
from litestar import post
from litestar.types import ASGIApp

from worker.api.common.exchange import DeltaExchange
from worker.api.common.generation import Generation, run
from worker.api.common.limits import check_alternatives, stops_of, tokens_of
from worker.api.common.logprobs import token_score
from worker.api.common.preparing import Preparing
from worker.api.common.sampling import sampling_of
from worker.api.common.tally import Tally
from worker.api.common.usage import timings_of
from worker.api.infill.prompt import prompt_of
from worker.api.infill.schemas import Infilled, InfillPart, InfillRequest, InfillScore
from worker.engine.request import GenerationParams
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http import sse
from worker.lifecycle.loaded import Loaded


class InfillExchange(DeltaExchange):
    """A text in one piece, or an event for each token and a last one without text."""

    closing: ClassVar[bytes] = b""

    def __init__(
        self,
        generation: Generation,
        stream: Stream,
        body: InfillRequest,
        loaded: Loaded,
    ) -> None:
        super().__init__(stream, streaming=bool(body.stream))
        self._loaded = loaded
        self._fields = body.response_fields
        self._tally = Tally(generation.num_prompt_tokens, stream.ids)
        self._truncated = generation.truncated is not None
        self._model = generation.model
        self._text = ""
        self._wants_scores = generation.params.logprobs is not None
        self._scores: list[InfillScore] = []
        self._last: Delta | None = None

    def _take(self, delta: Delta) -> None:
        self._tally.add(delta)
        self._text += delta.text
        self._last = delta
        if delta.logprob is not None:
            score = token_score(delta.logprob, self._loaded.backend.pieces)
            fields = msgspec.structs.asdict(score)
            self._scores.append(InfillScore(**fields, id=delta.logprob.token))

    def told(self, delta: Delta) -> list[bytes]:
        """A token's event."""
        self._take(delta)
        if delta.token is None:
            return []
        part = InfillPart(
            content=delta.text,
            tokens=[delta.token],
            tokens_predicted=self._tally.num_sampled,
            tokens_evaluated=self._tally.num_prompt,
            completion_probabilities=self._scores[-1:] if self._wants_scores else msgspec.UNSET,
        )
        return [sse.frame(part)]

    def told_last(self) -> list[bytes]:
        """The last event, without text."""
        return [sse.frame(self._whole(""))]

    async def body(self) -> object:
        """The whole text."""
        while self.stream.is_running:
            for delta in await self.stream.take():
                self._take(delta)
        whole = self._whole(self._text)
        return whole.only(self._fields) if self._fields else whole

    def _whole(self, content: str) -> Infilled:
        tally, last = self._tally, self._last
        kind = "limit"
        if last is not None and last.finish_reason == "stop":
            kind = "eos" if last.token in self._loaded.backend.end_tokens else "word"
        return Infilled(
            content=content,
            model=self._model,
            tokens_predicted=tally.num_sampled,
            tokens_evaluated=tally.num_prompt,
            tokens_cached=tally.num_cached or 0,
            truncated=self._truncated,
            stop_type=kind,
            has_new_line="\n" in self._text,
            timings=timings_of(tally),
            completion_probabilities=self._scores if self._wants_scores else msgspec.UNSET,
        )


def _generation(body: InfillRequest, loaded: Loaded) -> Generation:
    max_tokens = tokens_of(n_predict=body.n_predict, max_tokens=body.max_tokens, default=None)
    prompt, truncated = prompt_of(body, max_tokens, loaded)
    check_alternatives(n_probs=body.n_probs)
    return Generation(
        prompts=(prompt,),
        truncated=truncated,
        params=GenerationParams(
            prompt_param="input_prefix",
            sampling=sampling_of(body, loaded),
            max_tokens=max_tokens,
            stop=stops_of(body.stop),
            logprobs=body.n_probs or None,
        ),
    )


@post("/infill", status_code=200, summary="Write between two texts (llama-server)")
async def infill(
    request: HttpRequest[Any, Any, Any], loaded: Loaded, preparing: Preparing
) -> ASGIApp:
    """The whole text at once, or its events."""
    body = await preparing.body(request, InfillRequest, loaded)
    generation = await preparing.make(request, body, loaded, _generation, body, loaded)
    return InfillExchange(generation, run(generation, loaded), body, loaded)
