"""The adapters that are served: by number, by name, and which of them a request gets."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from worker.errors import NotFoundError, RequestError, UsageError
from worker.llama.adapters import DIGEST_BYTES, adapter_key
from worker.model.adapter import AdapterConfig, load_adapter
from worker.model.config import ModelConfig
from worker.settings import Settings

MOST_SCALE = 100.0
_OLLAMAS_TAG = ":latest"


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """One of them.

    id      its place on the command line, from 0
    name    that a request gives as its model
    scale   with which it counts when it is named
    counts  whether it counts for requests that choose nothing
    digest  of its file
    """

    id: int
    name: str
    scale: float
    counts: bool
    digest: bytes
    config: AdapterConfig


class AdapterChoice(msgspec.Struct, frozen=True):
    """What a request gets: the key of its prompts, and the model's name in its answer.

    is_named  the request names an adapter
    """

    key: bytes
    model: str
    is_named: bool = False


def load_adapters(config: ModelConfig, settings: Settings) -> tuple[Adapter, ...]:
    """What the settings name, once all of it fits the model.

    Raises UsageError where two have one name, ModelFileError.
    """
    if not settings.lora:
        return ()
    found: list[Adapter] = []
    for place, spec in enumerate(settings.lora):
        adapter = load_adapter(spec.file, config.path)
        counts = spec.name is None and not settings.lora_init_without_apply
        name = spec.name or Path(spec.file).stem
        digest = _digest(adapter)
        if any(name == each.name or digest == each.digest for each in found):
            raise UsageError(
                f"Two adapters are called {name}, or are one and the same.",
                hint="Give each a name of its own: --lora FILE=NAME.",
            )
        found.append(
            Adapter(
                id=place, name=name, scale=spec.scale, counts=counts, digest=digest, config=adapter
            )
        )
    return tuple(found)


def _digest(adapter: AdapterConfig) -> bytes:
    """Of all bytes: its states on disk outlive the worker."""
    with Path(adapter.files[0].path).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).digest()


class ServedAdapters:
    """Chooses for each request. For the event loop's thread.

    scales  by number, of requests that choose nothing
    """

    def __init__(self, names: Sequence[str], adapters: Iterable[Adapter]) -> None:
        """names: the model's id, and its others. Raises UsageError where an adapter has one."""
        self._names = names
        self.all = tuple(adapters)
        self._by_name = {adapter.name: adapter for adapter in self.all}
        if shared := self._by_name.keys() & set(names):
            raise UsageError(
                f"The model and an adapter are both called {shared.pop()}.",
                hint="Give the adapter another name: --lora FILE=NAME.",
            )
        self.scales = {each.id: each.scale for each in self.all if each.counts}

    def choose(self, model: str | None, scales: Mapping[int, float] | None) -> AdapterChoice:
        """For a request with these fields; `scales` by number, None: it names none.

        Raises NotFoundError for a model or a number that is not here, RequestError for a scale that
        cannot be and where both fields name adapters.
        """
        adapter = self._named(model)
        if scales is None:
            if adapter is not None:
                return AdapterChoice(
                    adapter_key([(adapter.digest, adapter.scale)]), adapter.name, True
                )
            return AdapterChoice(self._key(self.scales), self._names[0])
        if adapter is not None:
            raise RequestError(
                "Both model and lora choose adapters.", param="lora", hint="Leave one of them out."
            )
        self.check(scales)
        return AdapterChoice(self._key(scales), self._names[0])

    def check(self, scales: Mapping[int, float]) -> None:
        """Raise NotFoundError or RequestError where these cannot be."""
        for number, scale in scales.items():
            if not 0 <= number < len(self.all):
                numbers = ", ".join(f"{each.id} ({each.name})" for each in self.all) or "none"
                raise NotFoundError(
                    f"There is no adapter {number}.", param="lora", hint=f"There are: {numbers}."
                )
            if not math.isfinite(scale) or abs(scale) > MOST_SCALE:
                raise RequestError(
                    f"The scale of an adapter must be from {-MOST_SCALE:g} to {MOST_SCALE:g}.",
                    param="lora",
                )

    def find(self, name: str) -> Adapter | None:
        """The adapter of this name, also as `base:NAME`; None where it is the model itself.

        Raises NotFoundError for anything else.
        """
        if name in self._names:
            return None
        base, _, behind = name.rpartition(":")
        adapter = self._by_name.get(behind if base in self._names else name)
        if adapter is None:
            names = ", ".join(repr(each) for each in (self._names[0], *self._by_name))
            raise NotFoundError(
                f"The model {name[:200]!r} is not served here.",
                hint=f"This worker serves {names}.",
                param="model",
                code="model_not_found",
            )
        return adapter

    def _named(self, model: str | None) -> Adapter | None:
        """Without adapters any name is the model's."""
        name = (model or "").removesuffix(_OLLAMAS_TAG)
        return self.find(name) if name and self.all else None

    def _key(self, scales: Mapping[int, float]) -> bytes:
        return adapter_key((self.all[number].digest, scale) for number, scale in scales.items())
