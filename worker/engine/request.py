"""What was asked: one prompt, how to sample from it, when to stop."""

from __future__ import annotations

import msgspec

from worker.errors import RequestError

MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_LOGPROBS = 20
MAX_GRAMMAR_CHARS = 65_536
MAX_BIAS = 1e6
SEED_RANGE = 2**32


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen. The defaults change nothing (the OpenAI API's).

    temperature      0 is greedy; 1 leaves the model's distribution as it is
    top_k            keep the k likeliest; 0 keeps all
    top_p            keep the smallest set with this much probability
    min_p            keep what has at least this share of the likeliest token's probability
    typical_p        keep the locally typical set with this much probability
    repeat_penalty   divides positive and multiplies negative logits of recent tokens
    repeat_last_n    how many tokens count as recent; -1 is the whole context
    logit_bias       (token id, added logit); -100 and less forbids a token in practice
    seed             0 to 2**32 - 1; None takes a random one
    min_tokens       no end of generation before this many tokens
    grammar          GBNF text that the output must match
    grammar_param    the field that the grammar was made from, to name in errors
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    grammar: str | None = None
    grammar_param: str = "grammar"


# field -> (lowest, highest); both ends are allowed.
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_k": (-1, 2**31 - 1),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "typical_p": (0, 1),
    "repeat_penalty": (1e-3, 100),
    "repeat_last_n": (-1, 2**31 - 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "dry_multiplier": (0, 100),
    "dry_base": (1, 100),
    "dry_allowed_length": (0, 2**31 - 1),
    "dry_penalty_last_n": (-1, 2**31 - 1),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
    "mirostat": (0, 2),
    "mirostat_tau": (0, 100),
    "mirostat_eta": (0, 1),
    "seed": (0, SEED_RANGE - 1),
    "min_tokens": (0, 2**31 - 1),
}


def check_sampling(params: SamplingParams, vocab_size: int) -> None:
    """Raise RequestError that names the first field out of its range."""
    for field, (low, high) in _RANGES.items():
        value = getattr(params, field)
        if value is None:
            continue
        if not low <= value <= high:  # NaN is in no range
            raise RequestError(f"{field} must be from {low:g} to {high:g}.", param=field)
    if len(params.logit_bias) > vocab_size:
        raise RequestError("logit_bias names more tokens than there are.", param="logit_bias")
    for token, bias in params.logit_bias:
        if not 0 <= token < vocab_size:
            raise RequestError(
                f"logit_bias names token {token}, the vocabulary has 0 to {vocab_size - 1}.",
                param="logit_bias",
            )
        if not -MAX_BIAS <= bias <= MAX_BIAS:
            raise RequestError(
                f"logit_bias must be from {-MAX_BIAS:g} to {MAX_BIAS:g}.", param="logit_bias"
            )
    breakers = params.dry_sequence_breakers
    if len(breakers) > MAX_STOPS or any(not 0 < len(b) <= 40 or "\0" in b for b in breakers):
        raise RequestError(
            f"dry_sequence_breakers must be at most {MAX_STOPS} texts of 1 to 40 characters.",
            param="dry_sequence_breakers",
        )
    if params.grammar is not None and len(params.grammar) > MAX_GRAMMAR_CHARS:
        raise RequestError(
            f"grammar must be at most {MAX_GRAMMAR_CHARS} characters.", param="grammar"
        )


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to continue.

    prompt      token ids, at least one, exactly as computed (BOS included where it is wanted)
    max_tokens  tokens to sample at most; 0 only scores the prompt
    stop        the text ends before the first of these
    logprobs    how many likeliest alternatives to report for each sampled token; None: no logprobs
    prompt_logprobs  the same for each prompt token
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None


def check_length(count: int, max_length: int, *, output: int = 0) -> None:
    """Raise RequestError where a prompt of `count` tokens leaves no room for `output` more.

    max_length: longest sequence, prompt and output together, that the context holds
    """
    if count + output > max_length:
        raise RequestError(
            f"prompt has {count} tokens, the context holds {max_length}.",
            param="prompt",
            hint="Shorten it or start the worker with a larger --ctx-size.",
            code="context_length_exceeded",
        )


def check_request(request: Request, vocab_size: int, max_length: int) -> None:
    """Raise RequestError for what must not reach native code; `max_length` as above."""
    if not request.prompt:
        raise RequestError("prompt is empty.", param="prompt", hint="Send at least one token.")
    check_length(len(request.prompt), max_length, output=1 if request.max_tokens else 0)
    if min(request.prompt) < 0 or max(request.prompt) >= vocab_size:
        raise RequestError(f"prompt holds token ids outside 0 to {vocab_size - 1}.", param="prompt")
    if request.max_tokens < 0:
        raise RequestError("max_tokens must not be negative.", param="max_tokens")
    if len(request.stop) > MAX_STOPS or any(
        not 0 < len(text) <= MAX_STOP_CHARS for text in request.stop
    ):
        raise RequestError(
            f"stop must be at most {MAX_STOPS} texts of 1 to {MAX_STOP_CHARS} characters.",
            param="stop",
        )
    for field in ("logprobs", "prompt_logprobs"):
        value = getattr(request, field)
        if value is not None and not 0 <= value <= MAX_LOGPROBS:
            raise RequestError(f"logprobs must be from 0 to {MAX_LOGPROBS}.", param="logprobs")
    check_sampling(request.sampling, vocab_size)
