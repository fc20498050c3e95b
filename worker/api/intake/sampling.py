"""Sampling fields to SamplingParams: what was asked for, over what the operator and the
model's file recommend."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec

from worker.api.intake.adapters import AdapterScale
from worker.api.intake.bounds import between, count_from, items, one_of, texts, tokens_of
from worker.api.intake.constraints import ConstraintFields, constraint_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.priority import TIERS
from worker.budget import Budget
from worker.engine.sampling import (
    ALL_SAMPLERS,
    INFILL,
    LIMITS,
    SAMPLERS,
    SEED_RANGE,
    SamplingParams,
    check_sampling,
)
from worker.errors import RequestError
from worker.limits import BANNED, BANNED_LENGTH, BIAS, BREAKER, BREAKERS, PRIORITY
from worker.values import samplers

Bias = float | bool | str | None
_NUMBER = re.compile(r"-?[0-9]{1,18}")


class SamplingFields(ConstraintFields, kw_only=True):
    """The model and the sampling of every API, under the names that clients use; null: not given.

    model               the model, or an adapter of it; where there are no adapters: anything
    priority            the lower number comes first, as in vLLM; it counts before service_tier
    service_tier        flex is the priority 10, priority is -10, other words are 0
    return_cache_trace  true: the answer says why no more of the prompt came from the cache
    lora                adapters by their numbers, and how much each counts; others do not
    temperature         0 and less are greedy
    top_k               keep the k likeliest; 0 and less keep all
    repetition_penalty  another name of repeat_penalty
    logit_bias          token id, or a text whose tokens are meant -> what is added to its logit;
                        false forbids it; a number may be a text; also a list of pairs
    seed                any integer of 64 bits; -1 takes a random one
    n_predict           llama-server's name of what bounds the answer, where nothing else does
    samplers            those that are used, by llama-server's names, in this order; also as its
                        command line has them
    """

    tiers: ClassVar[tuple[str, ...]] = TIERS

    model: str | None = None
    priority: Annotated[int | None, between(-PRIORITY.most, PRIORITY.most)] = None
    service_tier: Annotated[str | None, one_of(*TIERS)] = None
    return_cache_trace: bool | None = None
    lora: list[AdapterScale] | None = None
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
        list[str | None] | None,
        items(BREAKERS.most, of={"minLength": 1, "maxLength": BREAKER.most}),
    ] = None
    banned_strings: Annotated[
        str | list[str | None] | None, texts(BANNED.most, BANNED_LENGTH.most)
    ] = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    logit_bias: dict[str, Bias] | list[tuple[str | int, Bias]] | None = None
    seed: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    n_predict: Annotated[int | None, count_from(0)] = None
    samplers: list[str] | str | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    top_n_sigma: float | None = None
    min_keep: int | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    n_indent: int | None = None
    t_max_predict_ms: float | None = None


# Names of other systems -> ours; ours wins where both are given.
_ALIASES = {"repetition_penalty": "repeat_penalty"}
_RANDOM = -1  # llama-server's way to say "random"
_SEEDS = (-(2**63), 2**64 - 1)
# Where programs go beyond a limit to say what stands there: less than 0 is greedy, or off.
_OPEN_BELOW = tuple(
    "temperature top_k min_p xtc_probability top_n_sigma adaptive_target dynatemp_range "
    "n_indent t_max_predict_ms min_keep".split()
)
_OPEN_ABOVE = ("top_p", "top_k", "typical_p")
# What the fields may hold under the names that clients use: field -> (lowest, highest), None: any.
FIELD_LIMITS: dict[str, tuple[float | None, float | None]] = {
    **LIMITS,
    **{alias: LIMITS[ours] for alias, ours in _ALIASES.items()},
    **{name: (None, LIMITS[name][1]) for name in _OPEN_BELOW},
    **{name: (LIMITS[name][0], None) for name in _OPEN_ABOVE},
    "top_k": (None, None),
    "seed": _SEEDS,
}
# Fields that SamplingParams holds in another shape.
_SHAPED = frozenset({"banned_strings", "dry_sequence_breakers", "logit_bias", "samplers"})
_PLAIN = [
    name
    for name in SamplingParams.__struct_fields__
    if name in SamplingFields.__struct_fields__ and name not in _SHAPED
]


def effective_settings(
    params: SamplingParams, max_tokens: int | None, ends: Iterable[int]
) -> dict[str, Any]:
    """What counts, under llama-server's names. ends: tokens that end an answer"""
    found = msgspec.structs.asdict(params)
    del found["constraint"]
    biases = [{"token": token, "bias": bias} for token, bias in params.logit_bias]
    if params.ignore_eos:
        biases += [{"token": token, "bias": None} for token in sorted(ends)]  # -inf
    most = -1 if max_tokens is None else max_tokens
    return found | {
        "seed": SEED_RANGE - 1
        if params.seed is None
        else params.seed,  # its number for a random one
        "logit_bias": biases,
        "samplers": [name for name in params.samplers if name in SAMPLERS],
        "n_predict": most,
        "max_tokens": most,
    }


def sampling_of(
    fields: SamplingFields, facts: ModelFacts, budget: Budget, *more: SamplingFields
) -> SamplingParams:
    """What was asked for, over `default_sampling`. Raises RequestError that names the field.

    more: fields that count where the first ones say nothing
    Blocks: a constraint is compiled here, in the request's own thread.
    """
    params = facts.sampling
    for each in (*reversed(more), fields):
        params = _over(params, each, facts, budget)
    if params.samplers != ALL_SAMPLERS:
        params = params.with_samplers()
    constraint = constraint_of(fields, *more) or params.constraint
    if constraint is not None:
        facts.guides.prepare(constraint, budget)
        params = msgspec.structs.replace(params, constraint=constraint)
    if INFILL in params.samplers:
        _check_infill(params, facts)
    return params


def _check_infill(params: SamplingParams, facts: ModelFacts) -> None:
    """It chooses an end whatever else is asked for. Raises RequestError."""
    if params.constraint is not None or params.ignore_eos or params.min_tokens:
        raise RequestError(
            "The sampler infill goes with no grammar, no ignore_eos and no min_tokens.",
            param="samplers",
        )
    if not facts.vocab.has_infill_sampler:
        raise RequestError("The sampler infill does not know this model.", param="samplers")


def _over(
    params: SamplingParams, fields: SamplingFields, facts: ModelFacts, budget: Budget
) -> SamplingParams:
    if fields.n_predict is not None:
        tokens_of(n_predict=fields.n_predict, default=None)
    names: dict[str, str] = {}
    given: dict[str, Any] = {}
    for name in _PLAIN:
        if (value := getattr(fields, name)) is not None:
            given[name] = value
    for alias, name in _ALIASES.items():
        if name not in given and (value := getattr(fields, alias)) is not None:
            given[name], names[name] = value, alias
    for name in _OPEN_BELOW:
        if name in given:
            given[name] = max(given[name], LIMITS[name][0])
    for name in _OPEN_ABOVE:
        if name in given:
            given[name] = min(given[name], LIMITS[name][1])
    if fields.seed is not None:
        given["seed"] = _seed(fields.seed)
    if fields.dry_sequence_breakers is not None:
        given["dry_sequence_breakers"] = tuple(
            text for text in fields.dry_sequence_breakers if text is not None
        )
    if fields.banned_strings:
        banned = fields.banned_strings
        banned = [banned] if isinstance(banned, str) else banned
        given["banned_strings"] = tuple(dict.fromkeys(filter(None, banned)))
    if fields.samplers:
        given["samplers"] = _samplers(fields.samplers)
    if fields.logit_bias:
        given["logit_bias"] = _logit_bias(fields.logit_bias, facts, budget)
    found = msgspec.structs.replace(params, **given)
    check_sampling(found, facts.vocab.size, names)
    return found


def _samplers(given: list[str] | str) -> tuple[str, ...]:
    text = given if isinstance(given, str) else ";".join(given)
    try:
        return samplers(text)
    except ValueError as error:
        raise RequestError(f"samplers {error}.", param="samplers") from None


def _seed(given: int) -> int | None:
    """The engine's 32 bits of any 64; those that fit stay what they are."""
    if given == _RANDOM:
        return None
    low, high = _SEEDS
    if not low <= given <= high:
        raise RequestError(f"seed must be from {low} to {high}.", param="seed")
    if 0 <= given < SEED_RANGE:
        return given
    mixed = hashlib.blake2b((given % 2**64).to_bytes(8), digest_size=4)
    return int.from_bytes(mixed.digest())


def _logit_bias(
    bias: dict[str, Bias] | list[tuple[str | int, Bias]], facts: ModelFacts, budget: Budget
) -> tuple[tuple[int, float], ...]:
    if len(bias) > facts.vocab.size:  # a text takes 30 µs: a body has room for half a minute
        raise RequestError("logit_bias has more entries than there are tokens.", param="logit_bias")
    found: dict[int, float] = {}
    for name, value in bias.items() if isinstance(bias, dict) else bias:
        budget.check()
        if value is not None:
            added = _bias_of(value)
            for token in _tokens_named(name, facts, budget):
                found[token] = found.get(token, 0.0) + added
    return tuple(found.items())


def _bias_of(value: float | bool | str) -> float:
    """Raises RequestError for what is no number."""
    if value is False:
        return -float(BIAS.most)
    with contextlib.suppress(ValueError):
        if value is not True:
            return float(value)
    raise RequestError("logit_bias must be numbers, or false.", param="logit_bias")


def _tokens_named(name: str | int, facts: ModelFacts, budget: Budget) -> list[int]:
    """A token's id, also as a text, or the tokens of a text."""
    if isinstance(name, int):
        return [name]
    if _NUMBER.fullmatch(name):
        return [int(name)]
    return facts.vocab.tokenize(
        name, add_special=False, parse_special=True, param="logit_bias", budget=budget
    )
