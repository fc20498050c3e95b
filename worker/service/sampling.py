"""Sampling fields to SamplingParams: the model's own recommendation under what was asked for."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from worker.engine.request import SamplingParams, check_sampling
from worker.errors import RequestError
from worker.lifecycle.worker import Worker
from worker.model.config import ModelConfig
from worker.service.openai.completion_schemas import (
    PLAIN_SAMPLING,
    SAMPLING_ALIASES,
    SamplingFields,
)

# general.sampling.* in the file -> our field
_RECOMMENDED = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}


def defaults_of(config: ModelConfig | None) -> SamplingParams:
    """The OpenAI API's neutral defaults, overridden by what the file recommends."""
    if config is None:
        return SamplingParams()
    found = {
        ours: value
        for theirs, ours in _RECOMMENDED.items()
        if (value := getattr(config.sampling, theirs)) is not None
    }
    return SamplingParams(**found)


def sampling_of(fields: SamplingFields, worker: Worker) -> SamplingParams:
    """What was asked for, over `defaults_of`. Raises RequestError that names the field."""
    given: dict[str, object] = {}
    used: dict[str, str] = {}
    for name in PLAIN_SAMPLING:
        for alias in SAMPLING_ALIASES.get(name, (name,)):
            value = getattr(fields, alias)
            if value is not None:
                given[name], used[name] = value, alias
                break
    if given.get("top_k") == -1:  # vLLM's way to say "all"
        given["top_k"] = 0
    if given.get("seed") == -1:  # llama-server's way to say "random"
        del given["seed"]
    if fields.dry_sequence_breakers is not None:
        given["dry_sequence_breakers"] = tuple(fields.dry_sequence_breakers)
    if fields.logit_bias:
        given["logit_bias"] = _logit_bias(fields.logit_bias)
    made = _grammar(fields, worker)
    if made is not None:
        given["grammar"], given["grammar_param"] = made
    params = msgspec.structs.replace(defaults_of(worker.config), **given)
    try:
        check_sampling(params, worker.backend.vocab_size)
    except RequestError as error:  # the client knows the field by its own name for it
        name = error.param or ""
        alias = used.get(name, name)
        raise RequestError(error.message.replace(name, alias), param=alias) from None
    return params


def _logit_bias(
    bias: dict[str, float] | list[tuple[int, float]],
) -> tuple[tuple[int, float], ...]:
    pairs = bias.items() if isinstance(bias, dict) else bias
    try:
        return tuple((int(token), float(value)) for token, value in pairs)
    except ValueError:
        raise RequestError("logit_bias must have token ids as keys.", param="logit_bias") from None


def _grammar(fields: SamplingFields, worker: Worker) -> tuple[str, str] | None:
    """(GBNF, field) from the one of grammar, json_schema and response_format that is given."""
    backend = worker.backend
    if fields.grammar:
        # Here, in the request's own thread, so that the engine finds it checked.
        backend.check_grammar(fields.grammar, "grammar")
        return fields.grammar, "grammar"
    if fields.json_schema is not None:
        return backend.json_grammar(fields.json_schema, "json_schema"), "json_schema"
    kind = fields.response_format
    if not kind or kind.get("type") in (None, "text"):
        return None
    name = "response_format"
    if kind.get("type") == "json_object":
        return backend.json_grammar(_object(kind.get("schema")), name), name
    if kind.get("type") == "json_schema":
        schema = _object((_object(kind.get("json_schema")) or {}).get("schema"))
        if schema is not None:
            return backend.json_grammar(schema, name), name
    raise RequestError(
        "response_format must be text, json_object or json_schema with a schema.",
        param="response_format",
    )


def _object(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
