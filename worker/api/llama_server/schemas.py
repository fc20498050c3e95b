"""What llama-server's clients send and what they get. Null means not given."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from worker.api.answer.logprobs import TopToken
from worker.api.answer.usage import LlamaTimings, PromptProgress
from worker.api.intake.bounds import between, count_from, texts
from worker.api.intake.embeddings import EmbeddingsRequest
from worker.api.intake.sampling import SamplingFields
from worker.api.intake.texts import Inputs
from worker.limits import LOGPROBS, SEQUENCES, STOP, STOPS
from worker.requests.trace import CacheTrace


class WritingFields(SamplingFields, kw_only=True):
    """What both routes read.

    max_tokens       another name of n_predict; neither, or -1: until the model or the context ends
    stop             the answer ends before the first of these
    stream           true: events, one for each token
    n_probs          likeliest alternatives to report for each token; 0: none, and no logprobs
    return_tokens    true: the whole answer has the sampled tokens' ids; events always have them
    return_progress  true: each step that reads the prompt is an event, too
    response_fields  of the whole answer only these, a path such as timings/prompt_n under its path
    timings_per_token  true: events have timings
    post_sampling_probs  true: n_probs reports probabilities that samplers left, without a grammar
    id_slot          a number by which /slots finds what was said

    cache_prompt, n_cache_reuse, n_keep and n_discard are not read: what is kept is as if computed,
    and nothing is shifted.
    """

    max_tokens: Annotated[int | None, count_from(0)] = None
    stop: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None
    stream: bool | None = None
    n_probs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    return_tokens: bool | None = None
    return_progress: bool | None = None
    response_fields: list[str] | None = None
    post_sampling_probs: bool | None = None
    timings_per_token: bool | None = None
    id_slot: int | None = None


class ExtraFile(msgspec.Struct):
    """A piece of another file, shown before the one that is written in."""

    text: str
    filename: str | None = None


class InfillRequest(WritingFields, kw_only=True):
    """POST /infill.

    input_prefix, input_suffix  the text before and behind the place to write at
    input_extra      pieces of other files
    prompt           what is written at the place already
    """

    input_prefix: str | None = None
    input_suffix: str | None = None
    input_extra: list[ExtraFile] | None = None
    prompt: str | None = None


class PromptObject(msgspec.Struct):
    """A text with `<__media__>` for each picture or sound, whose bytes are base64."""

    prompt_string: str
    multimodal_data: Any = None


class WritingRequest(WritingFields, kw_only=True):
    """POST /completion.

    prompt  a text, `{"prompt_string": TEXT, "multimodal_data": [BASE64]}`, or a list of texts and
            token ids, which are one prompt where one of them is an id; or a list of such
    n_cmpl  answers to each prompt
    """

    shows_media: ClassVar[bool] = True

    prompt: str | PromptObject | list[Any] | None = None
    n_cmpl: Annotated[int | None, between(1, SEQUENCES.most)] = None


class DrawnToken(msgspec.Struct):
    """One of the likeliest tokens that samplers left."""

    id: int
    token: str
    bytes: list[int]
    prob: float


class WrittenScore(msgspec.Struct, kw_only=True):
    """A sampled token: by the model's own distribution, or by what samplers left of it."""

    id: int
    token: str
    bytes: list[int]
    logprob: float | msgspec.UnsetType = msgspec.UNSET
    top_logprobs: list[TopToken] | msgspec.UnsetType = msgspec.UNSET
    prob: float | msgspec.UnsetType = msgspec.UNSET
    top_probs: list[DrawnToken] | msgspec.UnsetType = msgspec.UNSET


class WrittenPart(msgspec.Struct, kw_only=True):
    """What one token adds, in a stream."""

    index: int = 0
    content: str
    tokens: list[int]
    stop: bool = False
    id_slot: int = -1
    tokens_predicted: int
    tokens_evaluated: int
    completion_probabilities: list[WrittenScore] | msgspec.UnsetType = msgspec.UNSET
    prompt_progress: PromptProgress | msgspec.UnsetType = msgspec.UNSET
    timings: LlamaTimings | msgspec.UnsetType = msgspec.UNSET


class Written(msgspec.Struct, kw_only=True):
    """The whole answer, or the last event of a stream, whose content is then empty.

    id_slot           -1: slots are the engine's affair
    stop_type         eos, word or limit
    tokens_evaluated  of the prompt
    tokens_cached     of those, the cache gave so many
    truncated         whether a part of what was sent did not fit
    """

    index: int = 0
    content: str
    tokens: list[int] = []
    id_slot: int = -1
    stop: bool = True
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    generation_settings: dict[str, Any]
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: str
    stopping_word: str
    timings: LlamaTimings
    completion_probabilities: list[WrittenScore] | msgspec.UnsetType = msgspec.UNSET
    cache_trace: CacheTrace | msgspec.UnsetType = msgspec.UNSET
    warnings: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

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


class AdapterEntry(msgspec.Struct, omit_defaults=True):
    """An adapter; `scale` is what it counts for requests that choose nothing, `path` its file's
    name, `alora_invocation_tokens` where an activated one begins to count."""

    id: int
    name: str
    path: str
    scale: float
    rank: int
    alora_invocation_tokens: tuple[int, ...] = ()


class Success(msgspec.Struct):
    """It is done."""

    success: bool = True


class SlotFileName(msgspec.Struct):
    """POST /slots/{id}.

    filename  below --slot-save-path; needed but to erase
    """

    filename: str | None = None


class SlotReply(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What was done: tokens, bytes of the file, milliseconds."""

    id_slot: int
    filename: str | None = None
    n_saved: int | None = None
    n_written: int | None = None
    n_restored: int | None = None
    n_read: int | None = None
    n_erased: int | None = None
    timings: dict[str, float] = {}


class LlamaEmbeddingRequest(EmbeddingsRequest, kw_only=True):
    """POST /embedding and /embeddings.

    content  another name of input
    """

    content: Inputs = None


class LlamaEmbedding(msgspec.Struct):
    """One text's vector, or those of its tokens."""

    index: int
    embedding: list[list[float]]
