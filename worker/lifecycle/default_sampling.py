"""The sampling of requests that do not say otherwise."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.engine.sampling import SamplingParams
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
    return SamplingParams(**(found | settings.sampling))


def changed_sampling(params: SamplingParams) -> dict[str, Any]:
    """The fields that are not neutral, and the temperature; a file has numbers of 32 bits."""
    neutral = SamplingParams()
    found = {"temperature": params.temperature} | {
        name: value
        for name in params.__struct_fields__
        if (value := getattr(params, name)) != getattr(neutral, name)
    }
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in found.items()
    }
