"""How the next token is chosen: the fields, their limits, their check."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta, inspect

from worker.errors import RequestError
from worker.grammar.constraint import Constraint
from worker.limits import BANNED, BANNED_LENGTH, BIAS, BREAKER, BREAKERS

SEED_RANGE = 2**32
INT32_MAX = 2**31 - 1
# At a lower temperature a logit divided by it no longer fits a float32; sampling is greedy then.
COLDEST = 1e-6

# What a sampler reads -> the fields, with the values that switch it off; in the usual order.
SAMPLERS: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "dry": {"dry_multiplier": 0.0},
    "top_n_sigma": {"top_n_sigma": -1.0},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "xtc": {"xtc_probability": 0.0},
    "temperature": {"temperature": 1.0, "dynatemp_range": 0.0},
    "infill": {},
    "adaptive_p": {"adaptive_target": -1.0},
}
# Works only where it is named.
INFILL = "infill"

# What a request gets that says nothing of them.
ALL_SAMPLERS = tuple(name for name in SAMPLERS if name != INFILL)
_BREAKERS = ("\n", ":", '"', "*")

Fraction = Annotated[float, Meta(ge=0, le=1)]


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen. The defaults change nothing (the OpenAI API's).

    temperature      0 is greedy; 1 leaves the model's distribution as it is
    dynatemp_range   the temperature is so much less where the model is sure, and more where not
    dynatemp_exponent  how fast it grows between both
    top_k            keep the k likeliest; 0 keeps all
    top_p            keep the smallest set with this much probability
    min_p            keep what has at least this share of the likeliest token's probability
    typical_p        keep the locally typical set with this much probability
    top_n_sigma      keep what is at most so many standard deviations below the largest logit; 0
                     and less keep all
    min_keep         tokens that the filters keep at least
    adaptive_target  adaptive-p: tokens of about this probability are chosen, in the mean; below 0
                     is off
    adaptive_decay   adaptive-p: how long what was chosen counts
    repeat_penalty   divides positive and multiplies negative logits of recent tokens
    repeat_last_n    how many last tokens count as recent, the prompt's too; -1 is the whole context
    frequency_penalty  taken from a token's logit for each time that the answer has it
    presence_penalty   taken from the logit of each token that the answer has, once
    dry_multiplier   DRY: how much a token loses that would make a repetition longer; 0 is off
    dry_base         DRY: how fast that grows with the repetition's length
    dry_allowed_length  DRY: repetitions up to this length cost nothing
    dry_penalty_last_n  DRY: how many last tokens are looked at; -1 is the whole context
    dry_sequence_breakers  DRY: texts that end a repetition
    xtc_probability  XTC: how often the likeliest tokens are left out
    xtc_threshold    XTC: only where a less likely one has this much probability
    mirostat         0 is off; 1 and 2 are Mirostat's versions, which replace the filters above
    mirostat_tau     Mirostat: the surprise that it aims at
    mirostat_eta     Mirostat: how fast it gets there
    logit_bias       (token id, added logit); -100 and less forbids a token in practice
    seed             0 to 2**32 - 1; None takes a random one
    min_tokens       no end of generation before this many tokens
    ignore_eos       go on after an end of generation
    n_indent         the answer ends before a line that begins with fewer spaces or tabs
    t_max_predict_ms  milliseconds since the first token after which the answer ends, once it has a
                     line's end; 0: never
    constraint       what the output must match
    banned_strings   phrases that the answer must not have, in whatever case
    samplers         those that are used, by their names in `SAMPLERS`, in this order; names that
                     are not there say nothing
    """

    temperature: Annotated[float, Meta(ge=0, le=100)] = 1.0
    dynatemp_range: Annotated[float, Meta(ge=0, le=100)] = 0.0
    dynatemp_exponent: Annotated[float, Meta(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] = 0
    top_p: Fraction = 1.0
    min_p: Fraction = 0.0
    typical_p: Fraction = 1.0
    top_n_sigma: Annotated[float, Meta(ge=-1, le=100)] = -1.0
    min_keep: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    adaptive_target: Annotated[float, Meta(ge=-1, le=1)] = -1.0
    adaptive_decay: Fraction = 0.9
    repeat_penalty: Annotated[float, Meta(ge=1e-3, le=100)] = 1.0
    repeat_last_n: Annotated[int, Meta(ge=-1, le=INT32_MAX)] = 64
    frequency_penalty: Annotated[float, Meta(ge=-100, le=100)] = 0.0
    presence_penalty: Annotated[float, Meta(ge=-100, le=100)] = 0.0
    dry_multiplier: Annotated[float, Meta(ge=0, le=100)] = 0.0
    dry_base: Annotated[float, Meta(ge=1, le=100)] = 1.75
    dry_allowed_length: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 2
    dry_penalty_last_n: Annotated[int, Meta(ge=-1, le=INT32_MAX)] = -1
    dry_sequence_breakers: tuple[str, ...] = _BREAKERS
    xtc_probability: Fraction = 0.0
    xtc_threshold: Fraction = 0.1
    mirostat: Annotated[int, Meta(ge=0, le=2)] = 0
    mirostat_tau: Annotated[float, Meta(ge=0, le=100)] = 5.0
    mirostat_eta: Fraction = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: Annotated[int, Meta(ge=0, le=SEED_RANGE - 1)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    ignore_eos: bool = False
    n_indent: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    t_max_predict_ms: Annotated[float, Meta(ge=0, le=INT32_MAX)] = 0.0
    constraint: Constraint | None = None
    banned_strings: tuple[str, ...] = ()
    samplers: tuple[str, ...] = ALL_SAMPLERS

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is chosen."""
        return self.temperature < COLDEST

    @property
    def filters(self) -> tuple[str, ...]:
        """The samplers behind penalties and DRY, which change rows and come first."""
        return tuple(name for name in self.samplers if name in tuple(SAMPLERS)[2:])

    @property
    def needs_all(self) -> bool:
        """Whether a filter looks at more than a token and those that are likelier."""
        return (
            self.typical_p < 1
            or self.xtc_probability > 0
            or self.top_n_sigma > 0
            or self.dynatemp_range > 0
            or self.adaptive_target >= 0
            or self.min_keep > 1
            or INFILL in self.samplers
            or not self.in_order
        )

    @property
    def in_order(self) -> bool:
        """Whether the filters come as usual."""
        return list(self.filters) == [name for name in SAMPLERS if name in self.filters]

    def with_samplers(self) -> SamplingParams:
        """With those switched off that are not used."""
        off: dict[str, float] = {}
        for name, fields in SAMPLERS.items():
            if name not in self.samplers:
                off |= fields
        return msgspec.structs.replace(self, **off) if off else self

    @property
    def edits_rows(self) -> bool:
        """Whether it changes logits before a token is chosen from them."""
        return bool(
            self.logit_bias
            or self.ignore_eos
            or self.min_tokens
            or self.dry_multiplier
            or self.weighs_recent
            or self.weighs_written
        )

    @property
    def weighs_recent(self) -> bool:
        """Whether the last tokens, the prompt's too, are penalised."""
        return self.repeat_last_n != 0 and self.repeat_penalty != 1

    @property
    def weighs_written(self) -> bool:
        """Whether tokens of the answer are penalised, all of them."""
        return self.frequency_penalty != 0 or self.presence_penalty != 0


def _limits() -> dict[str, tuple[float, float]]:
    """Field -> (lowest, highest), both allowed, as the annotations above say."""
    found: dict[str, tuple[float, float]] = {}
    params = inspect.type_info(SamplingParams)
    assert isinstance(params, inspect.StructType)
    for field in params.fields:
        kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        for kind in kinds:
            if isinstance(kind, inspect.IntType | inspect.FloatType):
                assert kind.ge is not None
                assert kind.le is not None
                found[field.name] = (kind.ge, kind.le)
    return found


LIMITS = _limits()


def check_sampling(
    params: SamplingParams, vocab_size: int, names: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raise RequestError that names the first field out of its range.

    names: our field -> the name under which the client sent it, where that is another one
    """
    for field, (low, high) in LIMITS.items():
        value = getattr(params, field)
        if value is None:
            continue
        if not low <= value <= high:  # NaN is in no range
            name = names.get(field, field)
            raise RequestError(f"{name} must be from {low} to {high}.", param=name)
    if len(params.logit_bias) > vocab_size:
        raise RequestError("logit_bias names more tokens than there are.", param="logit_bias")
    for token, bias in params.logit_bias:
        if not 0 <= token < vocab_size:
            raise RequestError(
                f"logit_bias names token {token}, the vocabulary has 0 to {vocab_size - 1}.",
                param="logit_bias",
            )
        if not -BIAS.most <= bias <= BIAS.most:
            raise RequestError(
                f"logit_bias must be from {-BIAS.most} to {BIAS.most}.", param="logit_bias"
            )
    banned = params.banned_strings
    if banned and (
        len(banned) > BANNED.most or any(not 0 < len(text) <= BANNED_LENGTH.most for text in banned)
    ):
        raise RequestError(
            f"banned_strings must be at most {BANNED.most} texts of 1 to {BANNED_LENGTH.most} "
            "characters.",
            param="banned_strings",
        )
    breakers = params.dry_sequence_breakers
    if breakers is not _BREAKERS and (
        len(breakers) > BREAKERS.most
        or any(not 0 < len(text) <= BREAKER.most or "\0" in text for text in breakers)
    ):
        raise RequestError(
            f"dry_sequence_breakers must be at most {BREAKERS.most} texts of 1 to "
            f"{BREAKER.most} characters.",
            param="dry_sequence_breakers",
        )
