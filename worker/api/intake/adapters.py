"""Which adapters a request chooses, by its fields or by its path."""

from __future__ import annotations

from typing import Protocol, Self, TypeVar, runtime_checkable

import msgspec

from worker.api.intake.facts import AdapterTable, ChosenAdapters, NamedAdapter
from worker.api.intake.generation import Generation
from worker.errors import RequestError

Chosen = TypeVar("Chosen")


@runtime_checkable
class Adaptable(Protocol):
    """What can be computed with adapters, beside texts."""

    def with_adapters(self, choice: ChosenAdapters) -> Self: ...


class AdapterScale(msgspec.Struct):
    """An adapter by its number, and how much it counts; 0: not at all."""

    id: int
    scale: float


def scales_of(given: list[AdapterScale] | None) -> dict[int, float] | None:
    """By number. Raises RequestError where one is named twice."""
    if given is None:
        return None
    scales = {each.id: each.scale for each in given}
    if len(scales) < len(given):
        raise RequestError("An adapter is named twice.", param="lora")
    return scales


def choice_of(body: msgspec.Struct, adapters: AdapterTable) -> ChosenAdapters:
    """By the fields `model` and `lora`. Raises NotFoundError, RequestError."""
    model, lora = getattr(body, "model", None), getattr(body, "lora", None)
    return adapters.choose(model, scales_of(lora))


def with_adapters(made: Chosen, choice: ChosenAdapters) -> Chosen:
    """The same, computed with the adapters that were chosen.

    Raises RequestError where a request for vectors names one.
    """
    replace = msgspec.structs.replace
    if isinstance(made, Generation):
        return replace(made, prompts=tuple(map(choice.of, made.prompts)), model=choice.model)
    if isinstance(made, Adaptable):
        return made.with_adapters(choice)
    if choice.is_named:
        raise RequestError("Vectors are computed without adapters.", param="model")
    return made


# How a path that names the model is described.
MODEL_ID = "The model's id; slashes may be raw or encoded."


def adapter_at(path: str, adapters: AdapterTable) -> NamedAdapter | None:
    """The adapter that a path parameter names, or None for the model. Raises NotFoundError."""
    return adapters.find(str(path).removeprefix("/"))
