"""What editors send and what they get. Unknown fields are ignored, null means not given."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from worker.api.common.bounds import between, count_from, texts
from worker.api.common.logprobs import TokenScore
from worker.api.common.sampling import SamplingFields
from worker.api.common.usage import LlamaTimings
from worker.limits import LOGPROBS, STOP, STOPS


class ExtraFile(msgspec.Struct):
    """A piece of another file, shown before the one that is written in."""

    text: str
    filename: str | None = None


class InfillRequest(SamplingFields, kw_only=True):
    """POST /infill.

    input_prefix, input_suffix  the text before and behind the place to write at
    input_extra      pieces of other files
    prompt           what is written at the place already
    n_predict        tokens to sample at most; not given or -1: until the model or the context ends
    max_tokens       another name of n_predict
    stop             the answer ends before the first of these
    stream           true: events, one for each token
    n_probs          likeliest alternatives to report for each token; 0: none, and no logprobs
    response_fields  of the whole answer only these, a path such as timings/prompt_n under its path
    """

    input_prefix: str | None = None
    input_suffix: str | None = None
    input_extra: list[ExtraFile] | None = None
    prompt: str | None = None
    n_predict: Annotated[int | None, count_from(0)] = None
    max_tokens: Annotated[int | None, count_from(0)] = None
    stop: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None
    stream: bool | None = None
    n_probs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    response_fields: list[str] | None = None


class InfillScore(TokenScore):
    """A sampled token, with its id."""

    id: int


class InfillPart(msgspec.Struct, kw_only=True):
    """What one token adds, in a stream."""

    index: int = 0
    content: str
    tokens: list[int]
    stop: bool = False
    tokens_predicted: int
    tokens_evaluated: int
    completion_probabilities: list[InfillScore] | msgspec.UnsetType = msgspec.UNSET


class Infilled(msgspec.Struct, kw_only=True):
    """The whole answer, or the last event of a stream, whose content is then empty.

    stop_type         eos, word or limit
    tokens_evaluated  of the prompt
    tokens_cached     of those, the cache gave so many
    truncated         whether a part of what was sent did not fit
    """

    index: int = 0
    content: str
    tokens: list[int] = []
    stop: bool = True
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool
    stop_type: str
    has_new_line: bool
    timings: LlamaTimings
    completion_probabilities: list[InfillScore] | msgspec.UnsetType = msgspec.UNSET

    def only(self, paths: list[str]) -> dict[str, Any]:
        """What is found at these paths."""
        found: dict[str, Any] = {}
        whole: Any = msgspec.to_builtins(self)
        for path in paths:
            value = whole
            for name in path.split("/"):
                value = value.get(name, msgspec.UNSET) if isinstance(value, dict) else msgspec.UNSET  # pyright: ignore
            if value is not msgspec.UNSET:
                found[path] = value
        return found
