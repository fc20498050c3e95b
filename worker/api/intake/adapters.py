"""Which adapters a request chooses, by its fields or by its path."""

from __future__ import annotations

import msgspec

from worker.api.intake.facts import AdapterTable, ChosenAdapters, NamedAdapter
from worker.errors import RequestError


class AdapterScale(msgspec.Struct):
    """An adapter by its number, and how much it counts; 0: not at all."""

    id: int
    scale: float


def scales_of(given: list[AdapterScale]) -> dict[int, float]:
    """By number. Raises RequestError where one is named twice."""
    scales = {each.id: each.scale for each in given}
    if len(scales) < len(given):
        raise RequestError("An adapter is named twice.", param="lora")
    return scales


def choice_of(body: msgspec.Struct, adapters: AdapterTable) -> ChosenAdapters:
    """By the fields `model` and `lora`. Raises NotFoundError, RequestError."""
    model, lora = getattr(body, "model", None), getattr(body, "lora", None)
    return adapters.choose(model, None if lora is None else scales_of(lora))


# How a path that names the model is described.
MODEL_ID = "The model's id; slashes may be raw or encoded."


def adapter_at(path: str, adapters: AdapterTable) -> NamedAdapter | None:
    """The adapter that a path parameter names, or None for the model. Raises NotFoundError."""
    return adapters.find(str(path).removeprefix("/"))
