"""The sampling of requests that do not say otherwise."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.engine.sampling import SamplingParams
from worker.errors import RequestError, UsageError
from worker.grammar.client_grammar import grammar_constraint
from worker.grammar.constraint import Constraint, schema_constraint
from worker.grammar.gbnf import parse_gbnf
from worker.grammar.wrapped import unwrap
from worker.model.config import ModelConfig
from worker.settings import Settings

# general.sampling.* in the file -> our field, where the names differ
_FILE_NAMES = {"penalty_last_n": "repeat_last_n", "penalty_repeat": "repeat_penalty"}


def default_sampling(config: ModelConfig, settings: Settings) -> SamplingParams:
    """The OpenAI API's neutral defaults, overridden by what the file recommends, and that by what
    the operator says."""
    recommended = msgspec.structs.asdict(config.sampling)
    del recommended["sequence"]  # the order of llama.cpp's samplers: ours is fixed
    found = {_FILE_NAMES.get(k, k): value for k, value in recommended.items() if value is not None}
    return SamplingParams(**(found | settings.sampling), constraint=default_constraint(settings))


def default_constraint(settings: Settings) -> Constraint | None:
    """What answers must match if a request asks for no form of its own. Raises RequestError."""
    if settings.grammar is not None:
        return grammar_constraint(settings.grammar, "--grammar")
    if settings.json_schema is None:
        return None
    found = unwrap(settings.json_schema, "--json-schema")
    if found is None:
        raise RequestError("--json-schema holds no JSON schema.", param="--json-schema")
    return schema_constraint(found.schema, "--json-schema", strict=found.strict)


def check_defaults(config: ModelConfig, settings: Settings) -> None:
    """Raise UsageError for defaults of requests that this model can never hold, as far as that is
    known before it is loaded."""
    try:
        constraint = default_constraint(settings)
        if constraint is not None and constraint.kind == "gbnf":
            parse_gbnf(constraint.text, constraint.param)
    except RequestError as error:
        raise unusable_default(error) from None
    unknown = [token for token, _ in settings.logit_bias or () if token >= config.vocab_size]
    if unknown:
        raise UsageError(
            f"--logit-bias names token {unknown[0]}, which the model does not have.",
            hint=f"Name tokens from 0 to {config.vocab_size - 1}.",
        )


def unusable_default(error: RequestError) -> UsageError:
    """What the operator reads in the place of a client."""
    return UsageError(error.message, hint=error.hint or "Correct it, or leave it out.")


def changed_sampling(params: SamplingParams) -> dict[str, Any]:
    """The fields that are not neutral, and the temperature; a file has numbers of 32 bits."""
    neutral = SamplingParams()
    found = {"temperature": params.temperature} | {
        name: value
        for name in params.__struct_fields__
        if name != "constraint" and (value := getattr(params, name)) != getattr(neutral, name)
    }
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in found.items()
    }
