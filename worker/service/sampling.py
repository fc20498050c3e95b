"""Sampling fields to SamplingParams: what was asked for, over what the model's file recommends."""

from __future__ import annotations

from typing import Annotated

import msgspec

from worker.engine.sampling import LIMITS, SamplingParams, check_sampling
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.limits import BREAKER, BREAKERS
from worker.model.config import ModelConfig
from worker.service.bounds import items
from worker.service.constraints import ConstraintFields, constraint_of


class SamplingFields(ConstraintFields, kw_only=True):
    """The sampling fields of every API, under the names that clients use; null: not given.

    repetition_penalty  another name of repeat_penalty
    logit_bias          token id -> what is added to its logit; also a list of pairs
    seed                -1 takes a random one
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_last_n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Annotated[
        list[str] | None,
        items(BREAKERS.most, of={"minLength": 1, "maxLength": BREAKER.most}),
    ] = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    logit_bias: dict[str, float] | list[tuple[int, float]] | None = None
    seed: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None


# Names of other systems -> ours; ours wins where both are given.
_ALIASES = {"repetition_penalty": "repeat_penalty"}
_ALL = _RANDOM = -1  # vLLM's way to say "all", llama-server's way to say "random"
# What the fields may hold under the names that clients use: field -> (lowest, highest).
FIELD_LIMITS = {
    **LIMITS,
    **{alias: LIMITS[ours] for alias, ours in _ALIASES.items()},
    "top_k": (_ALL, LIMITS["top_k"][1]),
    "seed": (_RANDOM, LIMITS["seed"][1]),
}
# Fields that SamplingParams holds in another shape.
_SHAPED = frozenset({"dry_sequence_breakers", "logit_bias"})
# general.sampling.* in the file -> our field, where the names differ
_FILE_NAMES = {"penalty_last_n": "repeat_last_n", "penalty_repeat": "repeat_penalty"}


def defaults_of(config: ModelConfig) -> SamplingParams:
    """The OpenAI API's neutral defaults, overridden by what the file recommends."""
    recommended = msgspec.structs.asdict(config.sampling)
    del recommended["sequence"]  # the order of llama.cpp's samplers: ours is fixed
    found = {_FILE_NAMES.get(k, k): value for k, value in recommended.items() if value is not None}
    return SamplingParams(**found)


def sampling_of(fields: SamplingFields, loaded: Loaded) -> SamplingParams:
    """What was asked for, over `defaults_of`. Raises RequestError that names the client's field.

    Blocks: a constraint is compiled here, in the request's own thread.
    """
    asked = {k: value for k, value in msgspec.structs.asdict(fields).items() if value is not None}
    names = {
        ours: alias for alias, ours in _ALIASES.items() if alias in asked and ours not in asked
    }
    asked |= {ours: asked[alias] for ours, alias in names.items()}
    plain = SamplingParams.__struct_fields__
    given = {k: value for k, value in asked.items() if k in plain and k not in _SHAPED}
    if given.get("top_k") == _ALL:
        given["top_k"] = 0
    if given.get("seed") == _RANDOM:
        del given["seed"]
    if fields.dry_sequence_breakers is not None:
        given["dry_sequence_breakers"] = tuple(fields.dry_sequence_breakers)
    if fields.logit_bias:
        given["logit_bias"] = _logit_bias(fields.logit_bias)
    constraint = constraint_of(fields)
    if constraint is not None:
        loaded.backend.prepare(constraint)
        given["constraint"] = constraint
    params = msgspec.structs.replace(defaults_of(loaded.config), **given)
    check_sampling(params, loaded.backend.vocab_size, names)
    return params


def _logit_bias(
    bias: dict[str, float] | list[tuple[int, float]],
) -> tuple[tuple[int, float], ...]:
    pairs = bias.items() if isinstance(bias, dict) else bias
    try:
        return tuple((int(token), float(value)) for token, value in pairs)
    except ValueError:
        raise RequestError("logit_bias must have token ids as keys.", param="logit_bias") from None
